// limit: none
getContext = undefined; __ = undefined; Error = undefined; JSON = undefined; Object.freeze(globalThis);
