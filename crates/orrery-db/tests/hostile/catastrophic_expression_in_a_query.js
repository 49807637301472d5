// limit: thrown
__.queryDocuments(__.getSelfLink(), 'SELECT VALUE RegexMatch("' + 'a'.repeat(40) + 'b", "^(a+)+$") FROM c', function (e) { throw e || 'answered'; });
