// limit: thrown
Math.max.apply(null, { length: 1e9 });
