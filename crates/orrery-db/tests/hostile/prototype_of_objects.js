// limit: none
Object.prototype.error = { number: 1 }; Object.prototype.rid = 'x'; Object.prototype.etag = 'x'; Object.defineProperty(Object.prototype, 'body', { get() { throw 'poisoned'; } }); __.readDocument(__.getAltLink() + '/docs/none', function (e) { if (e.number !== 404) getContext().abort(new Error('fooled')); });
