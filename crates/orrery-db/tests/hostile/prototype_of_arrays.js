// limit: thrown
Array.prototype.push = Array.prototype.map = Array.prototype[Symbol.iterator] = function () { throw 'poisoned'; }; Object.defineProperty(Array.prototype, '0', { set() { throw 'poisoned'; } }); __.readDocument(__.getAltLink() + '/docs/none', function (e) { if (e.number !== 404) getContext().abort(new Error('fooled')); });
