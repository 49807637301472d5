//! The two sides of a request: its attributes ([`RequestContext`]) and what it collects for its response ([`Receipt`]).
//!
//! The context is fixed before the work starts. The receipt is created for one context, passed to every method by
//! `&mut`, and filled along the way, so that a request that fails halfway still reports its charge and the partitions
//! that served it. It owns its context: admission and settling need both, and a receipt cannot be paired with another
//! request's context.

use std::sync::Arc;

use orrery_metering::Priority;
use orrery_model::Charge;
use orrery_model::session::{SessionEntry, SessionToken};
use orrery_storage::Lsn;

use super::Admitted;
use crate::catalog::{Container, Partition};

/// The attributes of a request that budgets depend on.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestContext {
    /// Low-priority requests are throttled first.
    pub priority: Priority,
    /// The request's throughput bucket.
    pub bucket: Option<u8>,
    /// Work of the server itself, which provisioned throughput does not limit.
    pub is_own_work: bool,
}

/// What a request collects for its response, whether it succeeds or fails: the charge, and which partitions served it
/// at which position.
#[derive(Clone, Debug, Default)]
pub struct Receipt {
    context: RequestContext,
    /// The charge so far.
    pub charge: Charge,
    /// The request's container, once it is known.
    pub container: Option<Arc<Container>>,
    /// The partitions that took part.
    pub served: Vec<Served>,
    /// The LSN of the item that was read, which may be far behind its partition's LSN.
    pub item_lsn: Option<Lsn>,
    /// The partition key value of a request that has one, as JSON.
    pub key: Option<String>,
    /// The counters of the written logical partition.
    pub key_usage: Option<KeyUsage>,
    /// The script's log, if the request asked for it.
    pub script_log: Option<String>,
    /// The account's metadata budget has admitted the request and is charged.
    pub(super) is_metadata: bool,
    /// The partitions that have admitted the request.
    pub(super) admitted: Vec<Admitted>,
    /// Read work at partitions that have not admitted the request yet.
    unadmitted: u64,
}

/// The size of one logical partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUsage {
    pub items: u64,
    /// Bytes of the items.
    pub bytes: u64,
    /// The size at which their physical partition splits.
    pub partition_bytes_max: u64,
}

/// The quota of a partition of a container, in kilobytes, as headers and scripts get it. The service names the size at
/// which a partition splits, and as the size of a document a 1024th of that.
pub fn item_quota(partition_bytes_max: u64) -> String {
    let kilobytes = partition_bytes_max.div_ceil(1024);
    let document = kilobytes.div_ceil(1024);
    format!("documentSize={document};documentsSize={kilobytes};documentsCount=-1;collectionSize={kilobytes};")
}

/// A partition that took part, and its position at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The partition's id in its container's routing table.
    pub range_id: u32,
    /// The session token version, which grows when the partition is replaced.
    pub version: u64,
    /// The partition's last write at that time.
    pub lsn: Lsn,
}

impl RequestContext {
    /// For work of the server itself, which provisioned throughput does not limit.
    pub fn own_work() -> Self {
        Self { is_own_work: true, ..Self::default() }
    }
}

impl Receipt {
    /// An empty receipt for one request.
    pub fn open(context: RequestContext) -> Self {
        Self { context, ..Self::default() }
    }

    /// The request's context.
    pub fn context(&self) -> RequestContext {
        self.context
    }

    /// Adds to the charge.
    pub fn add(&mut self, charge: Charge) {
        self.charge += charge;
    }

    /// Records a partition's share of the read work, and thus of the charge.
    pub(crate) fn worked(&mut self, partition: &Partition, weight: u64) {
        let by = |admitted: &&mut Admitted| admitted.partition == partition.store.id;
        // Work at a partition that has not admitted the request yet is kept until a page uses it.
        match self.admitted.iter_mut().find(by) {
            Some(admitted) => admitted.weight += weight,
            None => self.unadmitted += weight,
        }
    }

    /// Adds what a read-ahead has recorded at a partition.
    pub(crate) fn join(&mut self, partition: &Partition, read: &Self) {
        for served in &read.served {
            self.served_by(partition, served.lsn);
        }
        self.worked(partition, read.unadmitted);
    }

    pub(crate) fn at(&mut self, container: &Arc<Container>) {
        self.container = Some(Arc::clone(container));
    }

    /// Records that a partition has served the request at this position; the highest position counts.
    pub(crate) fn served_by(&mut self, partition: &Partition, lsn: Lsn) {
        if let Some(served) = self.served.iter_mut().find(|served| served.range_id == partition.range_id) {
            // A request may read a partition several times; its token must cover what it has seen last.
            served.lsn = served.lsn.max(lsn);
        } else {
            let version = partition.session_version();
            self.served.push(Served { range_id: partition.range_id, version, lsn });
        }
    }

    /// The session token of the response, if a partition took part.
    pub fn session_token(&self) -> Option<SessionToken> {
        let entries = self.served.iter();
        let entries: Vec<_> =
            entries.map(|served| SessionEntry::new(served.range_id, served.version, served.lsn)).collect();
        (!entries.is_empty()).then_some(SessionToken { entries })
    }
}
