// limit: thrown
throw { toString() { throw 1; }, get stack() { throw 2; } };
