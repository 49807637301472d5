// limit: time
const long = (1n << 1048500n) - 1n;
for (;;) { try { `${long}`; } catch (error) {} }
