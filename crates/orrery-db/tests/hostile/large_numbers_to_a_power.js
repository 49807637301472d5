// limit: time
for (;;) { try { 3n ** 600000n; } catch (error) {} }
