// limit: thrown
var d = {}, x = d; for (var i = 0; i < 300; i++) x = x.a = {}; __.createDocument(__.getSelfLink(), { id: 'deep', pk: 'hostile', d: d });
