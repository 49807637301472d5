// limit: time
let wide = 1n << 1048500n;
wide = wide - 1n;
for (;;) { try { wide * wide / wide; } catch (error) { wide * 3n; } }
