// limit: time
const text = 'a'.repeat(2000000);
for (;;) { /a*a*b/.test(text); text.replace(/(a+)+$/g, 'b'); }
