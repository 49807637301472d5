// limit: thrown
new Uint8Array(1e9);
