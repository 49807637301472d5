// limit: thrown
String.prototype.substring = String.prototype.startsWith = String.prototype.replace = function () { throw 'poisoned'; }; JSON.parse = JSON.stringify = function () { throw 'poisoned'; }; __.readDocument(__.getAltLink() + '/docs/none', function () {});
