// limit: thrown
JSON.parse('['.repeat(1000000));
