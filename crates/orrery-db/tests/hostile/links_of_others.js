// limit: thrown
__.readDocument('dbs/else/colls/else/docs/x');
