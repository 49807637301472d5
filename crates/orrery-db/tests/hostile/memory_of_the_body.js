// limit: thrown
getContext().getResponse().setBody('x'.repeat(5000000));
