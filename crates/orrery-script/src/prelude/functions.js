// Calls user-defined functions by name, with arguments and results as JSON text.
(function () {
  "use strict";
  const { parse, stringify } = JSON;
  const { apply } = Reflect;
  const functions = { __proto__: null };
  return {
    define(name, body) { functions[name] = body; },
    call(name, text) { return stringify(apply(functions[name], undefined, parse(text))); },
    describe(thrown) {
      try {
        return String(thrown);
      } catch {
        return "unknown";
      }
    },
  };
})
