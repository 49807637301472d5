// limit: memory
for (;;) if (!__.createDocument(__.getSelfLink(), { pk: 'none', x: 'x'.repeat(100000) }, function () {})) throw 'refused';
