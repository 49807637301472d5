// limit: thrown
process.exit(1);
