// limit: thrown
function f() { f(); } f();
