//! How a client wants its query to be run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orrery_model::session::SessionToken;
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
    /// The longest continuation token that the client takes, in bytes.
    pub token_bytes_max: Option<usize>,
    /// Go through all items, whatever the index offers: for comparing the two.
    pub without_index: bool,
    /// Tell which indexes the query uses and which would help it.
    pub index_metrics: bool,
    /// Give advice on filters that an index serves badly.
    pub advice: bool,
    /// Which queries over several keys the client is asked to merge.
    pub client_merge: ClientMerge,
    /// Ends the query when nobody waits for it any more.
    pub cancellation: Option<Cancellation>,
    /// Count the entries of index candidates also where there is nothing to choose, for an explanation.
    pub probe_all: bool,
    /// Where the query takes memory for its state from; without it only the limits of a single query hold.
    pub memory: Option<StateMemory>,
}

/// Memory for the state of queries, from a budget that they share. What a query has taken is given back with it.
#[derive(Clone)]
pub struct StateMemory(pub Arc<dyn orrery_query::context::Memory + Send + Sync>);

impl std::fmt::Debug for StateMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("StateMemory")
    }
}

/// Which queries a client is asked to merge by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientMerge {
    #[default]
    Never,
    /// Those whose rows any client merges right.
    WhereSure,
    /// All that the service leaves to clients.
    Always,
}

/// Ends a query whose client has gone. Clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<Cancelled>);

#[derive(Debug, Default)]
struct Cancelled {
    flag: AtomicBool,
    notify: Notify,
}

impl Cancellation {
    pub fn cancel(&self) {
        self.0.flag.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.flag.load(Ordering::Acquire)
    }

    /// Done once it was cancelled.
    pub async fn cancelled(&self) {
        let notified = self.0.notify.notified();
        if !self.is_cancelled() {
            notified.await;
        }
    }
}
