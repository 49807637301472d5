// limit: time
var a = new Uint32Array(4000000); for (;;) a.sort();
