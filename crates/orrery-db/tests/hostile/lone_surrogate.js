// limit: thrown
__.createDocument(__.getSelfLink(), '\ud800');
