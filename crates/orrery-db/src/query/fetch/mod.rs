//! Fetching the items of a query: entries and items batch by batch, some of them ahead of their use.
//!
//! What may live here: reads of partitions along an access path. What the items mean to the query is decided in `page`.

pub(super) mod ahead;
pub(super) mod lacking;
pub(super) mod reader;
