// limit: time
new Proxy({}, { get() { for (;;) ; } }).x;
