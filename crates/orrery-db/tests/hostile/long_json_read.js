// limit: time
const json = '[' + '{"a":[1,2,3]},'.repeat(20000) + '0]';
for (;;) { JSON.parse(json); JSON.stringify(json); }
