// limit: thrown
function* g() { yield* g(); } g().next();
