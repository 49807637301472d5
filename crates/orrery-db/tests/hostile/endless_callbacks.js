// limit: time
(function again() { if (!__.readDocument(__.getAltLink() + '/docs/none', again)) for (;;) ; })();
