//! Encodings: everything in a partition, and the tokens that clients carry.
//!
//! Only pure functions between values and bytes belong here; nothing reads the store or knows the catalog. The formats
//! are frozen by tests; a change needs a new version and a way to read the old one.

pub(crate) mod continuation;
pub(crate) mod document;
pub(crate) mod history;
pub(crate) mod index_entry;
pub(crate) mod keys;
pub(crate) mod page_request;
pub(crate) mod split_log;
pub(crate) mod statistics;
pub(crate) mod stored;
pub(crate) mod tombstone;
