// limit: time
const many = [];
for (let at = 0; at < 400000; at++) { many.push('number ' + (at * 7919 % 400009)); }
for (;;) { many.slice().sort(); }
