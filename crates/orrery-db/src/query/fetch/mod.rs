//! Fetches the items of a query: entries and items in batches, some of them read ahead.
//!
//! Only reads of partitions along an access path belong here. What the items mean to the query is decided in `page`.

pub(super) mod ahead;
pub(super) mod lacking;
pub(super) mod reader;
pub(super) mod tally;
