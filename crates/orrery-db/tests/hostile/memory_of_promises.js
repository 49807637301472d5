// limit: memory
var p = Promise.resolve(); for (;;) p = p.then(() => {});
