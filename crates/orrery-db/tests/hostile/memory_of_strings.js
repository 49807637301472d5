// limit: memory
var a = []; for (;;) a.push('x'.repeat(1000000) + a.length);
