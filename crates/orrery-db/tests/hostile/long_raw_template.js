// limit: time
String.raw({ raw: { length: 1e15 } });
