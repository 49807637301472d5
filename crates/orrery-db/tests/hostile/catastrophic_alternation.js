// limit: time
/(?:a|a)*c/.exec('a'.repeat(100000));
