// limit: time
throw { toString() { for (;;) ; } };
