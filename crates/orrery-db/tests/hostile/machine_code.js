// limit: thrown
new WebAssembly.Module(new Uint8Array(8));
