// limit: time
new Set({ [Symbol.iterator]: () => ({ next: () => ({ done: false, value: 1 }) }) });
