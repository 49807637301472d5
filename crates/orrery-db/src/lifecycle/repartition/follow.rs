//! Replays the changes of the first container into the second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use orrery_env::Env;
use orrery_model::partition_key::PartitionKey;
use orrery_model::rid::ContainerRid;
use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::{Key, Lsn, ReadRequest, Scan};

use crate::catalog::{Container, Partition, RepartitionRun, existing};
use crate::failure::store_failure;
use crate::items::fill::Missing;
use crate::items::point::CopyOf;
use crate::items::prepare::PreparedItem;
use crate::items::transaction::{Action, ActionKind};
use crate::layout::document::decode;
use crate::layout::stored::StoredItem;
use crate::layout::{keys, tombstone};
use crate::lifecycle::Lifecycle;
use crate::partition::Receipt;

const CHANGES_AT_ONCE: usize = 256;
/// Concurrent writes to the second container: with group commit this is faster than a single writer to the first
/// container, so the copy catches up.
const WRITES_AT_ONCE: usize = 32;
/// Positions are recorded after this many changes.
const RECORD_AFTER: u64 = 5_000;
/// The cut-over starts when a round has at most this many changes.
const LITTLE: u64 = 100;
const ROUNDS_MAX: usize = 100;
/// Rounds without progress before the cut-over starts anyway: writers are then as fast as the copy, and freezing them
/// helps.
const ROUNDS_IN_VAIN_MAX: usize = 5;
/// The maximum number of changed items that are compared again.
const TOUCHED_MAX: usize = 1_000_000;

pub(super) struct Follower<'a> {
    pub(super) database: &'a Lifecycle,
    run: RepartitionRun,
    pub(super) source: Arc<Container>,
    pub(super) target: ContainerRid,
    path: &'a str,
    positions: Vec<Lsn>,
    unrecorded: u64,
    /// Items of either container, by their keys in the store, that changed since the comparison began.
    pub(super) touched: Option<Touched>,
}

#[derive(Debug, Default)]
pub(super) struct Touched {
    pub source: BTreeSet<Key>,
    pub target: BTreeSet<Key>,
}

/// The randomness of a copy: deterministic per item, so that its copy is found again.
struct OfItem(u64);

impl Env for OfItem {
    fn now_ms(&self) -> i64 {
        0
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = self.0.to_le_bytes()[at % 8];
        }
    }
}

impl OfItem {
    fn new(item_key: &[u8]) -> Self {
        let hash = orrery_model::murmur3::x64_128(item_key, 0);
        Self(u64::try_from(hash & u128::from(u64::MAX)).expect("64 bits are left"))
    }
}

/// An item to be copied.
pub(super) struct Copied {
    pub key: PartitionKey,
    pub item: PreparedItem,
}

impl Copied {
    pub(super) fn new(target: &Container, item_key: &[u8], body: &Bytes) -> Result<Self> {
        // A random suffix must be the same each time the item is copied, or a second copy would not replace the first.
        let random = OfItem::new(item_key);
        let prepared = PreparedItem::for_container(target, body, None, Missing::Made, &random);
        let item = prepared.map_err(|error| {
            let id = keys::parse_item(item_key).map(|(_, id)| id.to_owned()).unwrap_or_default();
            Error::new(
                error.kind,
                format!("The item '{id}' cannot be stored in the new container: {}", error.message),
            )
        })?;
        let key = target.definition.partition_key.extract(&item.value)?;
        Ok(Self { key, item })
    }

    /// Its key in the second container.
    pub(super) fn store_key(&self, target: &Container) -> Key {
        keys::item(&target.definition.partition_key.effective_key(&self.key), self.item.id.as_str())
    }
}

impl<'a> Follower<'a> {
    pub(super) fn new(database: &'a Lifecycle, run: RepartitionRun, path: &'a str) -> Result<Self> {
        let source = Arc::clone(existing(&database.catalog.snapshot(), run.source)?);
        let repartition = run.own(&source)?;
        let known = |partition: &Partition| {
            let found = repartition.positions.iter().find(|(range_id, _)| *range_id == partition.range_id);
            found.map_or(0, |(_, lsn)| *lsn)
        };
        let positions = source.partitions.iter().map(known).collect();
        let target = repartition.target;
        Ok(Self { database, run, source, target, path, positions, unrecorded: 0, touched: None })
    }

    pub(super) fn target(&self) -> Result<Arc<Container>> {
        Ok(Arc::clone(existing(&self.database.catalog.snapshot(), self.target)?))
    }

    /// Follows until little is left.
    pub(super) async fn catch_up(&mut self) -> Result<()> {
        let (mut before, mut in_vain) = (u64::MAX, 0);
        for _ in 0..ROUNDS_MAX {
            let changes = self.round().await?;
            in_vain += usize::from(changes >= before);
            // Writers may be as fast as the copier: after some rounds without progress, the rest is left to the
            // freeze.
            if changes <= LITTLE || in_vain > ROUNDS_IN_VAIN_MAX {
                break;
            }
            before = changes;
        }
        self.record().await
    }

    /// Follows until nothing is left, while writes are frozen.
    pub(super) async fn follow_to_the_end(&mut self) -> Result<()> {
        while self.round().await? > 0 {}
        Ok(())
    }

    async fn round(&mut self) -> Result<u64> {
        let mut changes = 0;
        for at in 0..self.positions.len() {
            loop {
                let (count, is_more) = self.step(at).await?;
                changes += count;
                self.unrecorded += count;
                if self.unrecorded >= RECORD_AFTER {
                    self.record().await?;
                }
                if !is_more {
                    break;
                }
            }
        }
        Ok(changes)
    }

    /// Copies some changes of one partition; returns their number, and whether there are more.
    async fn step(&mut self, at: usize) -> Result<(u64, bool)> {
        let partition = self.source.partitions[at].clone();
        let from = self.positions[at];
        let scan = ReadRequest::Scan(Scan::forward(keys::feed_after(from), CHANGES_AT_ONCE));
        let page = self.database.store.read(partition.store, scan).await.map_err(store_failure)?;
        let number = |key: &[u8]| keys::parse_feed(key).map_or(0, |(lsn, _)| lsn);
        // A transaction has at most a hundred changes, so a full page contains at least one complete transaction.
        // The last transaction of a full page may continue on the next one, so the step ends before it.
        let to = match page.entries.last() {
            Some(last) if page.more => number(&last.key) - 1,
            _ => page.lsn,
        };
        // Old versions are removed before new ones are copied: an item may have moved to the key of another one.
        let mut count = self.bury(&partition, from, to).await?;
        let changed = page.entries.iter().filter(|entry| number(&entry.key) <= to);
        let item_keys: Vec<Key> = changed.map(|entry| entry.value.to_vec()).collect();
        count += item_keys.len() as u64;
        let target = self.target()?;
        for item_key in &item_keys {
            // Noted before the copy: the comparison must look at the item again whether or not the copy succeeds.
            self.touch(|touched| touched.source.insert(item_key.clone()))?;
        }
        let this = &*self;
        let copies = stream::iter(item_keys).map(|item_key| this.copy(&target, item_key));
        copies.buffer_unordered(WRITES_AT_ONCE).try_collect::<()>().await?;
        // Only now: after an error the whole step is repeated, which does no harm.
        self.positions[at] = to;
        Ok((count, page.more))
    }

    /// Copies one item to the second container; a page names each item once.
    async fn copy(&self, target: &Arc<Container>, item_key: Key) -> Result<()> {
        // Deleted meanwhile: its tombstone removes the copy.
        let Some(item) = self.database.item_at(&self.source, &item_key).await? else { return Ok(()) };
        // The copy keeps the item's time, and with it the end of its lifetime.
        let timestamp_ms = item.timestamp.saturating_mul(1000);
        let copied = Copied::new(target, &item_key, &item.body)?;
        let kind = ActionKind::Upsert(copied.item.clone());
        self.apply(target, copied, kind, Some(timestamp_ms)).await?;
        self.database.repartitions.update(self.path, |status| status.copied += 1);
        Ok(())
    }

    /// Removes copies of replaced versions, unless the current version has the same key.
    async fn bury(&mut self, partition: &Partition, from: Lsn, to: Lsn) -> Result<u64> {
        let mut range = tombstone::between(from, to);
        let mut count = 0;
        let target = self.target()?;
        loop {
            let scan = ReadRequest::Scan(Scan::forward(range.clone(), CHANGES_AT_ONCE));
            let page = self.database.store.read(partition.store, scan).await.map_err(store_failure)?;
            // Versions with the same key need only one check.
            let mut ended: BTreeMap<(Key, Key), Copied> = BTreeMap::new();
            for entry in &page.entries {
                count += 1;
                let Some((item_key, body)) = tombstone::decode(&entry.value) else { continue };
                let old = Copied::new(&target, &item_key, &body)?;
                let old_key = old.store_key(&target);
                self.touch(|touched| touched.target.insert(old_key.clone()))?;
                ended.insert((item_key, old_key), old);
            }
            let this = &*self;
            let burials = stream::iter(ended).map(|((item_key, old_key), old)| {
                let target = &target;
                async move {
                    // If the current version has the same key, the copy there is its own.
                    if let Some(item) = this.database.item_at(&this.source, &item_key).await?
                        && Copied::new(target, &item_key, &item.body)?.store_key(target) == old_key
                    {
                        return Ok(());
                    }
                    if this.apply(target, old, ActionKind::Delete, None).await? {
                        this.database.repartitions.update(this.path, |status| status.removed += 1);
                    }
                    Ok(())
                }
            });
            burials.buffer_unordered(WRITES_AT_ONCE).try_collect::<()>().await?;
            if !range.continue_after(&page) {
                return Ok(count);
            }
        }
    }

    fn touch(&mut self, note: impl FnOnce(&mut Touched) -> bool) -> Result<()> {
        let Some(touched) = &mut self.touched else { return Ok(()) };
        note(touched);
        // Bounded, since the list is in memory.
        if touched.source.len() + touched.target.len() > TOUCHED_MAX {
            let message =
                "Too many items changed after the comparison. Please resume when there are fewer writes.";
            return Err(Error::new(ErrorKind::RetryWith, message));
        }
        Ok(())
    }

    /// Writes to the second container; returns whether anything changed.
    async fn apply(
        &self,
        target: &Arc<Container>,
        copied: Copied,
        kind: ActionKind,
        at_ms: Option<i64>,
    ) -> Result<bool> {
        let action = Action { id: copied.item.id.clone(), kind, if_match: None, if_none_match: None };
        let mut receipt = Receipt::default();
        let copy = Some(CopyOf { at_ms, run: self.run });
        let outcome =
            self.database.run_transaction_as(&mut receipt, target, copied.key, vec![action], copy).await?;
        match outcome.results.into_iter().next().map(|result| result.outcome) {
            // Never copied, or removed by an earlier attempt at this step.
            Some(Err(error)) if error.kind == ErrorKind::NotFound => Ok(false),
            Some(Err(error)) => Err(error),
            _ => Ok(true),
        }
    }

    /// Records the positions reached.
    async fn record(&mut self) -> Result<()> {
        let ids = self.source.partitions.iter().map(|partition| partition.range_id);
        let positions: Vec<(u32, Lsn)> = ids.zip(self.positions.iter().copied()).collect();
        self.unrecorded = 0;
        let counted = self.database.repartitions.get(self.path).unwrap_or_default();
        let run = self.run;
        self.database
            .edit_repartition(self.source.rid, |own| {
                // A run that was taken over must not set back the positions of its successor.
                run.check_own(own)?;
                (own.positions, own.copied, own.removed) = (positions, counted.copied, counted.removed);
                Ok(())
            })
            .await
    }
}

impl Lifecycle {
    /// The item with this key, if visible.
    pub(super) async fn item_at(
        &self,
        container: &Arc<Container>,
        item_key: &[u8],
    ) -> Result<Option<StoredItem>> {
        let Some((effective, _)) = keys::parse_item(item_key) else { return Ok(None) };
        let request = ReadRequest::Get(vec![item_key.to_vec()]);
        let page = self.read_of_key(&mut Receipt::default(), container, &effective, None, request).await?;
        let item = page.values.into_iter().next().flatten().map(|bytes| decode(&bytes)).transpose()?;
        let partition = container.partition_of(&effective);
        Ok(item.filter(|item| self.is_visible(container, partition, &effective, item)))
    }
}
