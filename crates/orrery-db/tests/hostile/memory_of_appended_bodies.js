// limit: thrown
for (;;) getContext().getResponse().appendBody('x'.repeat(100000));
