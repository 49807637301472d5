// limit: memory
var o = {}; for (var i = 0; ; i++) o['k' + i] = [i];
