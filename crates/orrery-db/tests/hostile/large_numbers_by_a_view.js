// limit: thrown
let wide = new DataView(new ArrayBuffer(8)).getBigInt64(0); for (;;) { wide *= wide; }
