// limit: time
const left = 'ab'.repeat(4000000) + 'c', right = 'ab'.repeat(4000000) + 'c';
for (;;) { left === right; left < right; }
