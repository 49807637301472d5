// limit: thrown
__.createDocument(__.getSelfLink(), '{"id": ');
