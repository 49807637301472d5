// Changes to the language that every script sees: errors with a number, time and randomness from the server, and
// builtins that respect the time limit. Runs before the first line of a script, in the script's own realm.
(function (native) {
  "use strict";
  const { construct, apply, ownKeys } = Reflect;
  const { defineProperty, setPrototypeOf, getOwnPropertyDescriptor } = Object;

  function replace(target, name, value) {
    const { enumerable } = getOwnPropertyDescriptor(target, name);
    defineProperty(target, name, { value, writable: true, configurable: true, enumerable });
  }

  // Scripts write `new Error(404, "text")`: the number becomes the sub-status of the response.
  const NativeError = Error;
  function ServerError(...given) {
    const numbered = given.length > 1 && typeof given[0] === "number";
    const error = construct(NativeError, numbered ? [given[1]] : given, new.target || ServerError);
    if (numbered) {
      defineProperty(error, "number", { value: given[0], writable: true, configurable: true });
    }
    return error;
  }
  defineProperty(ServerError, "name", { value: "Error" });
  defineProperty(ServerError, "length", { value: 1 });
  defineProperty(ServerError, "prototype", { value: NativeError.prototype, writable: false });
  setPrototypeOf(ServerError, NativeError);
  replace(NativeError.prototype, "constructor", ServerError);
  replace(globalThis, "Error", ServerError);

  const NativeDate = Date;
  const { now, random } = native;
  function ServerDate(...given) {
    if (new.target === undefined) {
      return new NativeDate(now()).toString();
    }
    return construct(NativeDate, given.length === 0 ? [now()] : given, new.target);
  }
  for (const name of ownKeys(NativeDate)) {
    if (name !== "prototype") {
      defineProperty(ServerDate, name, getOwnPropertyDescriptor(NativeDate, name));
    }
  }
  defineProperty(ServerDate, "now", { value: function now_() { return now(); }, writable: true, configurable: true });
  defineProperty(ServerDate, "prototype", { value: NativeDate.prototype, writable: false });
  replace(NativeDate.prototype, "constructor", ServerDate);
  replace(globalThis, "Date", ServerDate);
  replace(Math, "random", function () { return random(); });

  // Nothing in here may reach outside, and shared memory could block a thread forever.
  for (const name of ["Atomics", "SharedArrayBuffer", "performance", "gc", "navigator", "queueMicrotask"]) {
    delete globalThis[name];
  }

  // The engine checks the clock only every few thousand steps, and one step may be a builtin that visits millions of
  // elements. So builtins are weighted by their arguments, and enough weight triggers a clock check.
  const FUEL = 512;
  let fuel = FUEL;
  const { check, isPlainArray, isProxy } = native;
  function weight(value) {
    if (typeof value === "string") {
      return value.length >>> 12;
    }
    if (typeof value !== "object" || value === null) {
      return 0;
    }
    return isPlainArray(value) ? value.length >>> 10 : 8;
  }
  function spend(amount) {
    fuel -= amount;
    if (fuel < 0) {
      fuel = FUEL;
      check();
    }
  }
  function like(builtin, guarded) {
    defineProperty(guarded, "name", { value: builtin.name, configurable: true });
    defineProperty(guarded, "length", { value: builtin.length, configurable: true });
    return guarded;
  }
  function eachBuiltin(target, visit) {
    for (const name of ownKeys(target)) {
      const { value, writable } = getOwnPropertyDescriptor(target, name);
      if (typeof value === "function" && writable && name !== "constructor") {
        visit(name, value);
      }
    }
  }
  function weigh(target, base) {
    eachBuiltin(target, function (name, builtin) {
      replace(target, name, like(builtin, function (...given) {
        spend(base + weight(this) + weight(given[0]));
        return apply(builtin, this, given);
      }));
    });
  }

  // A loop over the length of something that is not a real array, or of a huge sparse one, never checks the clock.
  const LONGEST = 1 << 22;
  function tooLong() {
    throw new RangeError("The array or string is too long for this function.");
  }
  function isBounded(value) {
    if (typeof value !== "object" && typeof value !== "function" || value === null) {
      return true;
    }
    if (isPlainArray(value)) {
      return value.length <= LONGEST;
    }
    // Anything but a plain number may have changed by the time the builtin reads it.
    const length = isProxy(value) ? undefined : getOwnPropertyDescriptor(value, "length");
    return length !== undefined && typeof length.value === "number" && length.value <= LONGEST;
  }
  function snapshot(value) {
    const length = value.length;
    if (!(length <= LONGEST)) {
      tooLong();
    }
    const copy = [];
    for (let at = 0; at < length; at++) {
      if (at in value) {
        defineProperty(copy, at, { value: value[at], writable: true, enumerable: true, configurable: true });
      }
    }
    return copy;
  }
  const MUTATORS = new Set(["reverse", "sort", "shift", "unshift", "splice", "copyWithin", "fill", "pop", "push"]);
  const mutates = Set.prototype.has.bind(MUTATORS);
  const ITERATES = new Set(["keys", "values", "entries", "at", "find", "findIndex", "findLast", "findLastIndex"]);
  eachBuiltin(Array.prototype, function (name, builtin) {
    if (typeof name === "symbol" || ITERATES.has(name)) {
      return;
    }
    const changes = mutates(name);
    replace(Array.prototype, name, like(builtin, function (...given) {
      let target = this;
      if (!isBounded(target)) {
        if (changes || isPlainArray(target)) {
          tooLong();
        }
        target = snapshot(target);
      }
      spend(1 + weight(target) + weight(given[0]));
      return apply(builtin, target, given);
    }));
  });
  const { concat, map } = Array.prototype;
  const spreadable = Symbol.isConcatSpreadable;
  replace(Array.prototype, "concat", like(concat, function (...given) {
    for (let at = 0; at < given.length; at++) {
      const each = given[at];
      if (typeof each === "object" && each !== null && !isBounded(each)
          && (isPlainArray(each) || isProxy(each) || each[spreadable])) {
        tooLong();
      }
    }
    return apply(concat, this, given);
  }));
  function flatten(out, list, depth) {
    const length = list.length;
    for (let at = 0; at < length; at++) {
      if (at in list) {
        const each = list[at];
        if (depth > 0 && Array.isArray(each)) {
          flatten(out, each, depth - 1);
        } else {
          out[out.length] = each;
        }
      }
    }
    return out;
  }
  replace(Array.prototype, "flat", like(Array.prototype.flat, function (depth) {
    return flatten([], this, depth === undefined ? 1 : Number(depth) || 0);
  }));
  replace(Array.prototype, "flatMap", like(Array.prototype.flatMap, function (...given) {
    return flatten([], apply(map, this, given), 1);
  }));
  replace(String, "raw", like(String.raw, function (strings, ...given) {
    let text = "";
    const { raw } = strings, length = raw.length;
    for (let at = 0; at < length; at++) {
      text += raw[at];
      if (at + 1 < length && at < given.length) {
        text += given[at];
      }
    }
    return text;
  }));

  // Searching a long string in a long string takes time proportional to their product.
  const PRODUCT_MAX = 2 ** 31;
  for (const name of ["indexOf", "lastIndexOf", "includes", "split", "replace", "replaceAll"]) {
    const builtin = String.prototype[name];
    const takesObjects = name === "split" || name === "replace" || name === "replaceAll";
    replace(String.prototype, name, like(builtin, function (...given) {
      if (this === undefined || this === null) {
        return apply(builtin, this, given);
      }
      if (takesObjects && typeof given[0] === "object" && given[0] !== null) {
        return apply(builtin, this, given);
      }
      const text = `${this}`;
      if (given.length > 0 && given[0] !== undefined) {
        given[0] = `${given[0]}`;
        if (text.length * given[0].length > PRODUCT_MAX && given[0].length > 64) {
          tooLong();
        }
      }
      return apply(builtin, text, given);
    }));
  }

  // BigInt: one operator on large values takes seconds and cannot be interrupted. The service's documentation of scripts
  // does not mention it. Literals are refused wherever text becomes code, which includes this place.
  for (const name of ["BigInt", "BigInt64Array", "BigUint64Array"]) {
    delete globalThis[name];
  }
  for (const name of ["getBigInt64", "getBigUint64", "setBigInt64", "setBigUint64"]) {
    delete DataView.prototype[name];
  }
  const { refuseLargeNumbers } = native;
  const nativeEval = globalThis.eval;
  replace(globalThis, "eval", like(nativeEval, function (text) {
    if (typeof text === "string") {
      refuseLargeNumbers(text);
    }
    return nativeEval(text);
  }));
  const makers = [function () {}, function* () {}, async function () {}, async function* () {}];
  for (let at = 0; at < makers.length; at++) {
    const prototype = Object.getPrototypeOf(makers[at]);
    const NativeMaker = prototype.constructor;
    const maker = like(NativeMaker, function (...given) {
      for (let part = 0; part < given.length; part++) {
        given[part] = `${given[part]}`;
        refuseLargeNumbers(given[part]);
      }
      return construct(NativeMaker, given, new.target || maker);
    });
    defineProperty(maker, "prototype", { value: NativeMaker.prototype, writable: false });
    defineProperty(prototype, "constructor", { value: maker, configurable: true });
  }
  replace(globalThis, "Function", makers[0].constructor);

  const { stringify } = JSON;
  replace(JSON, "stringify", like(stringify, function (...given) {
    if (isPlainArray(given[0]) && !isBounded(given[0])) {
      tooLong();
    }
    return apply(stringify, JSON, given);
  }));

  weigh(String.prototype, 1);
  weigh(Object.getPrototypeOf(Uint8Array.prototype), 128);
  weigh(ArrayBuffer.prototype, 64);
  weigh(RegExp.prototype, 1);
  weigh(JSON, 1);
  weigh(Object, 8);
  weigh(Reflect, 8);
  weigh(Number.prototype, 1);
  for (const name of ["decodeURI", "decodeURIComponent", "encodeURI", "encodeURIComponent", "escape", "unescape"]) {
    const builtin = globalThis[name];
    replace(globalThis, name, like(builtin, function (...given) {
      spend(1 + weight(given[0]));
      return apply(builtin, undefined, given);
    }));
  }
})
