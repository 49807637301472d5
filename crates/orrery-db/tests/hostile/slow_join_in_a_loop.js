// limit: time
var a = Array(1000000).fill('abc'); for (;;) a.join();
