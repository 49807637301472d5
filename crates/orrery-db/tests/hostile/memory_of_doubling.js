// limit: thrown
var s = 'x'; for (;;) s += s;
