// limit: memory
var m = new Map(); for (var i = 0; ; i++) m.set(i, {});
