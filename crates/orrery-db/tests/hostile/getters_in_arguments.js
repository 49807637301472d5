// limit: thrown
__.createDocument(__.getSelfLink(), { pk: 'hostile', get id() { throw new Error('got'); } });
