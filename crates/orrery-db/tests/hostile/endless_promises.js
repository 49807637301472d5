// limit: time
(function f() { Promise.resolve().then(f); })();
