// limit: thrown
var d = {}, x = d; for (var i = 0; i < 100000; i++) x = x.a = {}; JSON.stringify(d);
