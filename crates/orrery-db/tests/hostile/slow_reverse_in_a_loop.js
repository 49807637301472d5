// limit: time
var a = []; a.length = 4000000; for (;;) a.reverse();
