//! Coordination between processes that have the same store open.
//!
//! Safety does not depend on it: epochs fence commits and a version fences the catalog. A duty keeps two processes
//! from doing the same background work twice; notes let them divide a budget among themselves. A store that only
//! one process can open has no coordination.

use std::time::Duration;

use bytes::Bytes;

use super::{BoxFuture, Pending};

/// Advisory locks and shared notes of the processes that use one store.
pub trait Coordination: Send + Sync {
    /// Acquires a duty, which one process holds at a time. `None` = another process holds it. It ends when it is
    /// released or dropped, when the process dies, or when its connection is lost.
    fn try_duty(&self, name: &str) -> Pending<'_, Option<Box<dyn Duty>>>;

    /// Publishes this process's note and returns all notes younger than `age_max`, its own first.
    fn exchange_notes(&self, note: Bytes, age_max: Duration) -> Pending<'_, Vec<Bytes>>;
}

/// An advisory lock held by this process.
pub trait Duty: Send + Sync {
    /// Verifies that this process still holds it.
    fn check(&self) -> Pending<'_, ()>;

    /// Releases it immediately; after a mere drop the store may take a moment to notice.
    fn release(self: Box<Self>) -> BoxFuture<'static, ()>;
}
