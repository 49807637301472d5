// limit: time
try { for (;;) ; } catch (e) { } finally { for (;;) ; }
