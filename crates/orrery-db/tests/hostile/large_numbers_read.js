// limit: time
const digits = '9'.repeat(300000);
for (;;) { try { 0n == digits; } catch (error) {} }
