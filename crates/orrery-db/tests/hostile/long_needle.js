// limit: thrown
'a'.repeat(10000000).indexOf('a'.repeat(5000000) + 'b');
