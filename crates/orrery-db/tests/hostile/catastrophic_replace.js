// limit: time
'x'.repeat(1000000).replace(/x*?y|(?=x*z)/g, '');
