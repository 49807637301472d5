//! How a client wants its query to be run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use orrery_model::session::SessionToken;
use orrery_query::plan::Features;
use tokio::sync::Notify;

use crate::items::feed::FeedScope;
use crate::layout::page_request::PageRequest;

/// How a client wants its query to be run.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct QueryOptions {
    pub intended_rid: Option<String>,
    pub session: Option<SessionToken>,
    pub scope: FeedScope,
    pub page: PageRequest,
    /// Whether the query may visit more than one logical partition.
    pub cross_partition: bool,
    /// The maximum size of a continuation token that the client accepts, in bytes.
    pub token_bytes_max: Option<usize>,
    /// Scan all items instead of using the index, for comparison.
    pub without_index: bool,
    /// Return index metrics.
    pub index_metrics: bool,
    /// Return query advice.
    pub advice: bool,
    /// Which cross-partition queries the client has to merge.
    pub client_merge: ClientMerge,
    /// Cancels the query when its client has disconnected.
    pub cancellation: Option<Cancellation>,
    /// Count the entries of all candidates even if there is no choice, for an explanation.
    pub probe_all: bool,
    /// The memory budget for the query's state; without it only the limits of a single query apply.
    pub memory: Option<StateMemory>,
}

/// Memory for query state from a shared budget, released with the query.
#[derive(Clone)]
pub struct StateMemory(pub Arc<dyn orrery_query::context::Memory + Send + Sync>);

impl std::fmt::Debug for StateMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("StateMemory")
    }
}

/// Which queries a client has to merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientMerge {
    #[default]
    Never,
    /// Those that need no more than these features. The server merges the others.
    With(Features),
    /// All that the service leaves to clients.
    Always,
}

/// Cancels a query whose client has disconnected. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<Cancelled>);

#[derive(Debug, Default)]
struct Cancelled {
    flag: AtomicBool,
    notify: Notify,
    looks: AtomicU64,
}

impl Cancellation {
    pub fn cancel(&self) {
        // The flag first: whoever is woken looks at it.
        self.0.flag.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.flag.load(Ordering::Acquire)
    }

    /// Whether to stop, asked from time to time by the evaluation.
    pub(crate) fn look(&self) -> bool {
        self.0.looks.fetch_add(1, Ordering::Relaxed);
        self.is_cancelled()
    }

    /// How often the evaluation has asked: it grows while the query is working.
    pub fn looks(&self) -> u64 {
        self.0.looks.load(Ordering::Relaxed)
    }

    /// Resolves once cancelled.
    pub async fn cancelled(&self) {
        // Created before the flag is read, so that a cancellation in between is not missed.
        let notified = self.0.notify.notified();
        if !self.is_cancelled() {
            notified.await;
        }
    }
}
