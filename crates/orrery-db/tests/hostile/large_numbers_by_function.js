// limit: thrown
(() => {}).constructor('x = 3' + 'n', 'for (;;) x *= x')();
