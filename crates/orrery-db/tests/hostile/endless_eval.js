// limit: time
eval('for (;;) ;');
