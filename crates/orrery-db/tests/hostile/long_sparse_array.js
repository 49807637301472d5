// limit: thrown
var a = []; a.length = 4294967295; a.sort();
