// limit: thrown
Array.prototype.reverse.call(new Proxy([], { get: () => 2 ** 53 - 1 }));
