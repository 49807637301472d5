// limit: thrown
__.createDocument(__.getSelfLink(), { id: 'foreign', pk: 'somebody else' });
