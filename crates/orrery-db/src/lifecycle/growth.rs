//! Splits partitions whose throughput share or size exceeds the limit.

use std::sync::Arc;

use orrery_model::{ErrorKind, Result};
use orrery_storage::StoreError;

use super::Lifecycle;
use super::split::Cause;
use crate::catalog::{Container, Offer, OfferOwner};
use crate::failure::store_failure;

/// How often to retry a container whose partitions are being changed concurrently.
const LOOKS_MAX: u32 = 100;

impl Lifecycle {
    /// Splits oversized partitions, and completes the offers that wait for it.
    pub(crate) async fn grow(self: &Arc<Self>) -> Result<()> {
        let catalog = self.catalog.snapshot();
        for container in catalog.containers() {
            self.grow_container(container).await?;
        }
        self.note_storage().await?;
        let waiting: Vec<_> =
            catalog.offers.values().filter(|offer| offer.pending).map(|offer| offer.document.rid).collect();
        for rid in waiting {
            // The containers have their partitions now; the offer may be replaced again.
            let finished = self.catalog.change(|change| {
                if let Some(offer) = change.catalog.offers.get(&rid).cloned() {
                    change.put_offer(Offer { pending: false, ..Offer::clone(&offer) });
                }
                Ok(())
            });
            finished.await?;
        }
        Ok(())
    }

    /// Whether a partition's items account for its size. The store's figure may include obsolete versions that have not
    /// been reclaimed yet, which no split would reduce.
    async fn holds_much(&self, container: &Container, range_id: u32) -> Result<bool> {
        let usage = self.measure(container.partition(range_id)?, |_, _| ()).await?;
        // Half of the limit, because the size in the store includes index entries.
        Ok(usage.bytes > self.options.partition_bytes_max / 2)
    }

    /// Records the maximum storage of each owner in its offer: it raises the minimum throughput.
    async fn note_storage(&self) -> Result<()> {
        let catalog = self.catalog.snapshot();
        let mut stored: Vec<(OfferOwner, u64)> = Vec::new();
        for container in catalog.containers() {
            let own = OfferOwner::Container(container.rid);
            // A container without an offer counts for its database.
            let owner = match catalog.offer_of(own) {
                Some(_) => own,
                None => OfferOwner::Database(container.rid.database()),
            };
            let mut bytes = 0;
            for partition in &container.partitions {
                match self.store.size_bytes(partition.store.id).await {
                    Ok(size) => bytes += size,
                    // Split or deleted meanwhile: left to the next round.
                    Err(StoreError::Fenced) => {}
                    Err(error) => return Err(store_failure(error)),
                }
            }
            match stored.iter_mut().find(|(other, _)| *other == owner) {
                Some((_, sum)) => *sum += bytes,
                None => stored.push((owner, bytes)),
            }
        }
        for (owner, bytes) in stored {
            let kilobytes = bytes / 1024;
            let Some(offer) = catalog.offer_of(owner) else { continue };
            // Whole gigabytes count, so smaller changes need not be written.
            if kilobytes >> 20 <= offer.document.storage_kb_max >> 20 {
                continue;
            }
            let rid = offer.document.rid;
            self.catalog
                .change(|change| {
                    if let Some(current) = change.catalog.offers.get(&rid).cloned() {
                        let mut offer = Offer::clone(&current);
                        // Never less: it is the most that was ever stored.
                        offer.document.storage_kb_max = offer.document.storage_kb_max.max(kilobytes);
                        change.put_offer(offer);
                    }
                    Ok(())
                })
                .await?;
        }
        Ok(())
    }

    async fn grow_container(self: &Arc<Self>, container: &Container) -> Result<()> {
        let rid = container.rid;
        let share_max = self.partition_throughput_max();
        let mut looks = 0;
        loop {
            let catalog = self.catalog.snapshot();
            // Looked up for each round, since every split changes the partitions.
            let Some(current) = catalog.container_by_rid(rid) else { return Ok(()) };
            let throughput = catalog
                .offer_of(OfferOwner::Container(rid))
                .map_or(0, |offer| offer.document.throughput.maximum());
            let parts = u32::try_from(current.partitions.len()).unwrap_or(u32::MAX);
            let mut largest = None;
            for partition in &current.partitions {
                let bytes = self.store.size_bytes(partition.store.id).await.map_err(store_failure)?;
                if largest.is_none_or(|(most, _)| bytes > most) {
                    largest = Some((bytes, partition.range_id));
                }
            }
            let Some((bytes, range_id)) = largest else { return Ok(()) };
            let too_fast = throughput.div_ceil(parts.max(1)) > share_max;
            // The cheap question first; the second one scans the counters.
            let too_large =
                bytes > self.options.partition_bytes_max && self.holds_much(current, range_id).await?;
            if !too_fast && !too_large {
                return Ok(());
            }
            // Where throughput asks for more, the widest range is halved; where data does, the fullest.
            let (range_id, cause) = if too_large {
                (range_id, Cause::Full { bytes })
            } else {
                (widest(current).unwrap_or(range_id), Cause::Wish)
            };
            tracing::info!(container = %rid, range_id, throughput, bytes, "splitting a partition");
            match self.split_because(rid, range_id, cause).await {
                Ok(_) => {}
                // A single key cannot be split; it is bounded by the limit of logical partitions.
                Err(error) if error.kind == ErrorKind::BadRequest => return Ok(()),
                // Split concurrently: check again.
                Err(error) if error.kind == ErrorKind::PartitionGone && looks < LOOKS_MAX => looks += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The partition with the fewest ancestors; of several the last one, so that clients that read ranges in order and find
/// one retired have the least to redo.
fn widest(container: &Container) -> Option<u32> {
    let partitions = container.partitions.iter().rev();
    partitions.min_by_key(|partition| partition.parents.len()).map(|partition| partition.range_id)
}
