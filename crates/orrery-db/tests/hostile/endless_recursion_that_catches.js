// limit: time
function f() { try { f(); } catch (e) { f(); } } f();
