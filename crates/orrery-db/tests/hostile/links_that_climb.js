// limit: thrown
__.readDocument(__.getAltLink() + '/../../users/u');
