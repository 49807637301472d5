// limit: thrown
'x'.padEnd(2 ** 30);
