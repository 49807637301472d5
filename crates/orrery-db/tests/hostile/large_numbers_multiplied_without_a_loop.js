// limit: time
const half = (1n << 524200n) - 1n;
const products = "half * half;".repeat(20000);
try { eval(products); } catch (error) { eval(products); }
