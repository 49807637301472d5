// limit: time
throw { get number() { for (;;) ; } };
