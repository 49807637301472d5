// limit: time
var a = [[]]; a[0].length = 4294967295; a.flat(Infinity);
