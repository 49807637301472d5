// limit: thrown
const wide = (1n << 1048500n) - 1n; for (;;) { `${wide * wide}`; }
