// limit: thrown
new RegExp('('.repeat(100000));
