//! What a request leaves behind for its response headers, whether it succeeds or fails: the charge, and
//! which partitions served it at which position.

use std::sync::Arc;

use orrery_metering::Priority;
use orrery_model::Charge;
use orrery_model::session::{SessionEntry, SessionToken};
use orrery_storage::Lsn;

use super::Admitted;
use crate::catalog::{Container, Partition};

/// Gathered while a request runs.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub charge: Charge,
    /// The container that the request was about, once it is known.
    pub container: Option<Arc<Container>>,
    pub served: Vec<Served>,
    /// Where the item that was read was last written, which may be long before its partition's position.
    pub item_lsn: Option<Lsn>,
    pub priority: Priority,
    /// The throughput bucket that the request names.
    pub bucket: Option<u8>,
    /// The partition key value of a request that has one, as JSON.
    pub key: Option<String>,
    /// Work of the server itself, which is not held to the throughput that was provisioned.
    pub(crate) is_own_work: bool,
    /// The request is about metadata: the account's budget pays for it.
    pub(crate) is_metadata: bool,
    /// What a script has logged, if that was asked.
    pub script_log: Option<String>,
    /// The partitions that have let the request pass.
    pub(crate) admitted: Vec<Admitted>,
    /// The work of reading where nobody was asked yet whether the request may pass.
    pub(crate) unadmitted: u64,
}

/// A partition that took part, and how far it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    pub range_id: u32,
    pub version: u64,
    pub lsn: Lsn,
}

impl Trace {
    /// For a request of this importance that may name a throughput bucket.
    pub fn for_request(priority: Priority, bucket: Option<u8>) -> Self {
        Self { priority, bucket, ..Self::default() }
    }

    /// For work of the server itself, which is not held to the throughput that was provisioned.
    pub fn for_own_work() -> Self {
        Self { is_own_work: true, ..Self::default() }
    }

    /// Notes that a partition has read so much for the request: its part of the charge.
    pub(crate) fn worked(&mut self, partition: &Partition, weight: u64) {
        let by = |admitted: &&mut Admitted| admitted.partition == partition.store.id;
        match self.admitted.iter_mut().find(by) {
            Some(admitted) => admitted.weight += weight,
            None => self.unadmitted += weight,
        }
    }

    /// Takes over what reading ahead of the request has noted at a partition.
    pub(crate) fn join(&mut self, partition: &Partition, read: &Self) {
        for served in &read.served {
            self.served_by(partition, served.lsn);
        }
        self.worked(partition, read.unadmitted);
    }

    pub fn add(&mut self, charge: Charge) {
        self.charge += charge;
    }

    pub(crate) fn at(&mut self, container: &Arc<Container>) {
        self.container = Some(Arc::clone(container));
    }

    /// Notes that a partition has served at this position; of several notes the furthest counts.
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
