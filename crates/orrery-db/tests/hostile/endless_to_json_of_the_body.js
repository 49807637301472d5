// limit: time
getContext().getResponse().setBody({ toJSON() { for (;;) ; } });
