// limit: time
const over = (1n << 1048500n) - 1n, under = (1n << 524200n) - 1n;
for (;;) { try { over / under; over % under; } catch (error) {} }
