//! What processes that have the same store open need of each other. A store that only one process can have
//! open offers none of it.
//!
//! Nothing here is needed for safety: commits are fenced by epochs and the catalog by its version. Duties keep
//! two processes from doing the same work twice, and notes let them share what is divided between them.

use std::time::Duration;

use bytes::Bytes;

use crate::contract::{BoxFuture, StoreError};

/// The meeting place of the processes.
pub trait Coordination: Send + Sync {
    /// Takes a duty that one process has at a time. `None` = another one has it. It ends when it is released or
    /// dropped, when the process dies, or when its connection is lost.
    fn try_duty(&self, name: &str) -> BoxFuture<'_, Result<Option<Box<dyn Duty>>, StoreError>>;

    /// Leaves a note for the others and answers everybody's that is younger than `age_max`, one's own first.
    fn exchange_notes(&self, note: Bytes, age_max: Duration)
    -> BoxFuture<'_, Result<Vec<Bytes>, StoreError>>;
}

/// A duty that this process has.
pub trait Duty: Send + Sync {
    /// Asks whether it is still ours.
    fn check(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Gives it up at once; dropping it may take the store a moment to notice.
    fn release(self: Box<Self>) -> BoxFuture<'static, ()>;
}
