// limit: thrown
throw undefined;
