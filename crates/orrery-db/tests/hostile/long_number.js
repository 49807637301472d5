// limit: thrown
BigInt('9'.repeat(1000000));
