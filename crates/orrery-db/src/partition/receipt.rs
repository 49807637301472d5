//! A request's two sides as the database sees them: what it brings along ([`RequestContext`]) and what it leaves for its
//! response ([`Receipt`]).
//!
//! The context is fixed before the work starts and nothing below changes it. The receipt is opened for one context,
//! passed to every verb by `&mut`, and filled on the way, so that a request that fails half-way still reports its charge and
//! the partitions that served it. It keeps its context: whoever admits the request to a partition or settles its charge
//! needs both, and no caller can pair a receipt with another request's context.

use std::sync::Arc;

use orrery_metering::Priority;
use orrery_model::Charge;
use orrery_model::session::{SessionEntry, SessionToken};
use orrery_storage::Lsn;

use super::Admitted;
use crate::catalog::{Container, Partition};

/// What a request brings along for the budgets that pay for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestContext {
    /// Low-priority requests are throttled first.
    pub priority: Priority,
    /// The throughput bucket that the request names.
    pub bucket: Option<u8>,
    /// Work of the server itself, which provisioned throughput does not limit.
    pub is_own_work: bool,
}

/// What a request leaves for its response, whether it succeeds or fails: the charge, and which partitions served it at
/// which position.
#[derive(Clone, Debug, Default)]
pub struct Receipt {
    context: RequestContext,
    /// What the request has cost so far.
    pub charge: Charge,
    /// The container that the request was about, once it is known.
    pub container: Option<Arc<Container>>,
    /// The partitions that took part.
    pub served: Vec<Served>,
    /// Where the item that was read was last written, which may be long before its partition's position.
    pub item_lsn: Option<Lsn>,
    /// The partition key value of a request that has one, as JSON.
    pub key: Option<String>,
    /// What the logical partition that was written holds now.
    pub key_usage: Option<KeyUsage>,
    /// What a script has logged, if the request asked for it.
    pub script_log: Option<String>,
    /// The account's metadata budget has admitted the request and pays for it.
    pub(super) is_metadata: bool,
    /// The partitions that have admitted the request.
    pub(super) admitted: Vec<Admitted>,
    /// Read work at partitions that have not admitted the request yet.
    unadmitted: u64,
}

/// What lies under one partition key value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUsage {
    pub items: u64,
    /// Bytes of the items.
    pub bytes: u64,
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

    /// What the request brought along.
    pub fn context(&self) -> RequestContext {
        self.context
    }

    /// Adds to the charge.
    pub fn add(&mut self, charge: Charge) {
        self.charge += charge;
    }

    /// Notes that a partition did this much of the reading: its share of the charge.
    pub(crate) fn worked(&mut self, partition: &Partition, weight: u64) {
        let by = |admitted: &&mut Admitted| admitted.partition == partition.store.id;
        match self.admitted.iter_mut().find(by) {
            Some(admitted) => admitted.weight += weight,
            None => self.unadmitted += weight,
        }
    }

    /// Takes over what a read-ahead has noted at a partition.
    pub(crate) fn join(&mut self, partition: &Partition, read: &Self) {
        for served in &read.served {
            self.served_by(partition, served.lsn);
        }
        self.worked(partition, read.unadmitted);
    }

    pub(crate) fn at(&mut self, container: &Arc<Container>) {
        self.container = Some(Arc::clone(container));
    }

    /// Notes that a partition has served at this position; of several positions the highest counts.
    pub(crate) fn served_by(&mut self, partition: &Partition, lsn: Lsn) {
        if let Some(served) = self.served.iter_mut().find(|served| served.range_id == partition.range_id) {
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
