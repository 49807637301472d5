//! Reads of a partition: admitted, at least as new as the client's session, and rerouted if the partition has split.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::partition_key::EffectiveKey;
use orrery_model::session::SessionToken;
use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::{Lsn, ReadPage, ReadRequest};

use super::{Partitions, Receipt};
use crate::catalog::{Container, Partition};
use crate::failure::store_failure;

/// How long a read waits for a partition to reach the position in the client's session token.
const SESSION_WAIT: Duration = Duration::from_millis(200);

/// How often a request is rerouted because its partition was split.
pub(crate) const ROUTING_ATTEMPTS: u32 = 250;

impl Partitions {
    /// The container, checked against the RID in the request.
    pub(crate) fn item_container(
        &self,
        receipt: &mut Receipt,
        database: &str,
        container: &str,
        intended_rid: Option<&str>,
    ) -> Result<Arc<Container>> {
        let catalog = self.catalog.snapshot();
        let container = catalog.container(database, container)?;
        receipt.at(container);
        if intended_rid.is_some_and(|rid| rid != container.rid.to_string()) {
            return Err(Error::new(
                ErrorKind::ContainerRecreated,
                "Collection rid provided by the user does not match the existing collection.",
            ));
        }
        Ok(Arc::clone(container))
    }

    /// Reads a snapshot of a partition that is at least as new as the client's session.
    pub(crate) async fn read_partition(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        session: Option<&SessionToken>,
        request: ReadRequest,
    ) -> Result<ReadPage> {
        // Background work has no container in its receipt and is not throttled here.
        if let Some(container) = receipt.container.clone() {
            self.admit(receipt, &container, partition)?;
        }
        let page = self.store.read(partition.store, request.clone()).await.map_err(store_failure)?;
        receipt.served_by(partition, page.lsn);
        receipt.worked(partition, weight(&page));
        // The usual case: the partition is at least where the client's session is.
        let Some(ahead) = session_ahead(session, partition, page.lsn) else { return Ok(page) };
        // It can be behind only for a moment, or the token is of another container.
        let reached =
            self.store.wait_lsn(partition.store.id, ahead - 1, SESSION_WAIT).await.map_err(store_failure)?;
        if session_ahead(session, partition, reached).is_some() {
            return Err(Error::new(
                ErrorKind::ReadSessionNotAvailable,
                "The read session is not available for the input session token.",
            ));
        }
        // Read again: the first page is from before the position that the client has seen.
        let page = self.store.read(partition.store, request).await.map_err(store_failure)?;
        receipt.served_by(partition, page.lsn);
        Ok(page)
    }

    /// Reads from the current partition of a key.
    pub(crate) async fn read_of_key(
        &self,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        effective: &EffectiveKey,
        session: Option<&SessionToken>,
        request: ReadRequest,
    ) -> Result<ReadPage> {
        let mut container = Arc::clone(container);
        let mut attempt = 0;
        loop {
            // Looked up for each attempt, because the container may be a newer version by now.
            let partition = container.partition_of(effective);
            match self.read_partition(receipt, partition, session, request.clone()).await {
                Err(error) if self.may_route_again(&error, &mut attempt).await => {
                    container = self.current_container(&container)?;
                }
                result => return result,
            }
        }
    }

    pub(crate) fn current_container(&self, container: &Container) -> Result<Arc<Container>> {
        let current = self.catalog.snapshot().container_by_rid(container.rid).cloned();
        current.ok_or_else(crate::catalog::not_found)
    }

    /// Whether the failure is a retired partition, so that refreshing the catalog may help.
    pub(crate) async fn may_route_again(&self, error: &Error, attempt: &mut u32) -> bool {
        *attempt += 1;
        let again = error.kind == ErrorKind::PartitionGone && *attempt < ROUTING_ATTEMPTS;
        if again {
            // The cut-over of a split is brief: retry quickly at first, then back off.
            orrery_env::task::sleep(std::time::Duration::from_millis(u64::from((*attempt).min(20)))).await;
            self.look_at_catalog_again().await;
        }
        again
    }
}

/// About as many bytes as a key has that is counted only.
pub(crate) const TALLIED_BYTES: u64 = 64;

/// The weight of a read within a request: its bytes plus a constant.
pub(crate) fn weight(page: &ReadPage) -> u64 {
    let values: usize = page.values.iter().flatten().map(bytes::Bytes::len).sum();
    let entries: usize = page.entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum();
    let tallied: u64 = page.runs.iter().map(|run| run.count * TALLIED_BYTES).sum();
    (64 + values + entries) as u64 + tallied
}

/// The position of the client's session, if the partition has not reached it.
fn session_ahead(session: Option<&SessionToken>, partition: &Partition, lsn: Lsn) -> Option<Lsn> {
    // The client's token may name the partition or any of its ancestors; the nearest one counts.
    let lineage = std::iter::once(partition.range_id).chain(partition.parents.iter().rev().copied());
    let entry = session?.entry_for(lineage)?;
    // At least 1, so that waiting for the position before it is possible.
    entry.is_ahead_of(partition.session_version(), lsn).then_some(entry.lsn.max(1))
}
