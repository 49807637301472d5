//! Items: how they lie in a partition, and every operation on them.

pub(crate) mod all_versions;
pub(crate) mod batch;
pub(crate) mod body;
pub(crate) mod change_feed;
pub(crate) mod explain;
pub(crate) mod feed;
pub(crate) mod history;
pub(crate) mod keys;
pub(crate) mod point;
pub(crate) mod purge;
pub(crate) mod statistics;
pub(crate) mod stored;
pub(crate) mod transaction;

use std::sync::Arc;
use std::time::Duration;

use orrery_model::partition_key::{EffectiveKey, PartitionKey};
use orrery_model::rid::ContainerRid;
use orrery_model::session::SessionToken;
use orrery_model::{Error, ErrorKind, Result, Value};
use orrery_storage::{Lsn, ReadPage, ReadRequest};

use crate::catalog::{Container, Partition};
use crate::failure::store_failure;
use crate::{Database, Trace};
use stored::StoredItem;

/// How long a read waits for a partition to reach the position in the client's session token.
const SESSION_WAIT: Duration = Duration::from_millis(200);

/// The item with its system properties, as queries and conditions see it.
pub(crate) fn document_value(item: &StoredItem, container: ContainerRid) -> Result<Value> {
    let mut text = Vec::with_capacity(item.body.len() + 256);
    item.write_document(container, &mut text);
    body::parse_object(&text)
}

/// The same with only these of its properties. The whole item need not be looked at for that.
pub(crate) fn document_members(
    item: &StoredItem,
    container: ContainerRid,
    names: &[Box<str>],
) -> Result<Value> {
    if names.iter().any(|name| stored::SYSTEM_PROPERTIES.contains(&name.as_ref())) {
        let mut text = Vec::new();
        item.write_document(container, &mut text);
        return body::parse_object_members(&text, item.is_plain, names);
    }
    body::parse_object_members(&item.body, item.is_plain, names)
}

impl Database {
    /// The container, checked against the RID that the client believes it has.
    pub(crate) fn item_container(
        &self,
        trace: &mut Trace,
        database: &str,
        container: &str,
        intended_rid: Option<&str>,
    ) -> Result<Arc<Container>> {
        let catalog = self.catalog.snapshot();
        let container = catalog.container(database, container)?;
        trace.at(container);
        if intended_rid.is_some_and(|rid| rid != container.rid.to_string()) {
            return Err(Error::new(
                ErrorKind::ContainerRecreated,
                "Collection rid provided by the user does not match the existing collection.",
            ));
        }
        Ok(Arc::clone(container))
    }

    /// Reads one moment of a partition, not earlier than the client's session.
    pub(crate) async fn read_partition(
        &self,
        trace: &mut Trace,
        partition: &Partition,
        session: Option<&SessionToken>,
        request: ReadRequest,
    ) -> Result<ReadPage> {
        if let Some(container) = trace.container.clone() {
            self.admit(trace, &container, partition)?;
        }
        let page = self.store.read(partition.store, request.clone()).await.map_err(store_failure)?;
        trace.served_by(partition, page.lsn);
        trace.worked(partition, weight(&page));
        let Some(ahead) = session_ahead(session, partition, page.lsn) else { return Ok(page) };
        let reached =
            self.store.wait_lsn(partition.store.id, ahead - 1, SESSION_WAIT).await.map_err(store_failure)?;
        if session_ahead(session, partition, reached).is_some() {
            return Err(Error::new(
                ErrorKind::ReadSessionNotAvailable,
                "The read session is not available for the input session token.",
            ));
        }
        let page = self.store.read(partition.store, request).await.map_err(store_failure)?;
        trace.served_by(partition, page.lsn);
        Ok(page)
    }

    /// Reads from the partition of a key, wherever that is by now.
    pub(crate) async fn read_of_key(
        &self,
        trace: &mut Trace,
        container: &Arc<Container>,
        effective: &EffectiveKey,
        session: Option<&SessionToken>,
        request: ReadRequest,
    ) -> Result<ReadPage> {
        let mut container = Arc::clone(container);
        let mut attempt = 0;
        loop {
            let partition = container.partition_of(effective);
            match self.read_partition(trace, partition, session, request.clone()).await {
                Err(error) if self.may_route_again(&error, &mut attempt).await => {
                    container = self.current_container(&container)?;
                }
                result => return result,
            }
        }
    }

    /// Whether readers see the item: neither expired nor purged.
    pub(crate) fn is_visible(
        &self,
        container: &Container,
        _partition: &Partition,
        effective: &EffectiveKey,
        item: &StoredItem,
    ) -> bool {
        !self.is_expired(container, item) && !self.purges.hides(container.rid, effective, item.lsn)
    }

    /// The same by the item's key.
    pub(crate) fn is_visible_at(&self, container: &Container, item_key: &[u8], item: &StoredItem) -> bool {
        !self.is_expired(container, item) && !self.purges.hides_at(container.rid, item_key, item.lsn)
    }

    fn is_expired(&self, container: &Container, item: &StoredItem) -> bool {
        let default_ttl = container.definition.default_ttl;
        default_ttl.is_some() && item.is_expired(default_ttl, self.env.now_seconds())
    }
}

/// How much of a request's work a read was: its bytes, and something for the way.
fn weight(page: &ReadPage) -> u64 {
    let values: usize = page.values.iter().flatten().map(bytes::Bytes::len).sum();
    let entries: usize = page.entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum();
    (64 + values + entries) as u64
}

/// The position that the client has seen and the partition has not reached, if so.
fn session_ahead(session: Option<&SessionToken>, partition: &Partition, lsn: Lsn) -> Option<Lsn> {
    let lineage = std::iter::once(partition.range_id).chain(partition.parents.iter().rev().copied());
    let entry = session?.entry_for(lineage)?;
    entry.is_ahead_of(partition.session_version(), lsn).then_some(entry.lsn.max(1))
}

/// The key that a request must carry.
pub(crate) fn required_key(key: Option<&PartitionKey>) -> Result<&PartitionKey> {
    key.ok_or_else(|| Error::bad_request("PartitionKey value must be supplied for this operation."))
}

/// The error for a key in the header that is not the one in the item.
pub(crate) fn key_mismatch() -> Error {
    Error::new(
        ErrorKind::PartitionKeyMismatch,
        "PartitionKey extracted from document doesn't match the one specified in the header. Learn more: https://aka.ms/CosmosDB/sql/errors/wrong-pk-value",
    )
}
