// limit: time
new Function('for (;;) ;')();
