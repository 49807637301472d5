// limit: time
__.readDocuments(__.getSelfLink(), { get pageSize() { for (;;) ; } });
