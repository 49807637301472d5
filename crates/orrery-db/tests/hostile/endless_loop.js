// limit: time
for (;;) ;
