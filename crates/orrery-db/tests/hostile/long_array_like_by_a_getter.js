// limit: thrown
var c = 0; Array.prototype.reverse.call({ get length() { return c++ ? 2 ** 53 - 1 : 0; } });
