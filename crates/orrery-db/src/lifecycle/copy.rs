//! Copies the entries of partitions to their successors.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::future::try_join_all;
use orrery_model::partition_key::EffectiveKey;
use orrery_model::rid::ContainerRid;
use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::{Entry, Key, KeyRange, PartitionRef, ReadRequest, Scan, WriteSet};

use super::Lifecycle;
use crate::catalog::{Container, PendingPartition, existing};
use crate::failure::store_failure;
use crate::layout::stored::POSITIONS;
use crate::layout::stored::StoredItem;
use crate::layout::{index_entry, keys, split_log};

const COPY_ENTRIES: usize = 1000;
/// Entries read per page; items may be large.
const ITEMS_AT_ONCE: usize = 32;
/// Bytes written to a child per transaction.
const APPLY_BYTES: usize = 4 << 20;
const APPLY_KEYS: usize = 5000;

/// A partition that is copied from.
pub(super) struct Source {
    pub store: PartitionRef,
    /// The index of its first LSN sequence in the child.
    pub numbering: u16,
}

/// Who owns an entry.
enum Owner {
    /// None: it is not copied.
    None,
    Key(EffectiveKey),
    /// Exists in every partition.
    All,
}

/// Moves entries from parents to their children.
pub(super) struct Copy<'a> {
    pub database: &'a Lifecycle,
    pub container: ContainerRid,
    pub children: &'a [PendingPartition],
}

impl Copy<'_> {
    /// Copies all entries. Concurrent changes are in the split log.
    pub(super) async fn everything(&self, source: &Source) -> Result<()> {
        let mut range = KeyRange::all();
        loop {
            self.check_going_on()?;
            let scan = Scan::forward(range.clone(), COPY_ENTRIES);
            let read = self.database.store.read(source.store, ReadRequest::Scan(scan));
            let page = read.await.map_err(store_failure)?;
            if let Some(last) = page.entries.last() {
                range.start = [last.key.as_slice(), &[0]].concat();
            }
            let mut of_child = vec![Vec::new(); self.children.len()];
            // Looked up for every page: a policy change may add or retire a generation during the copy.
            let container = self.container()?;
            for entry in page.entries {
                for child in self.owners(&container, &entry.key, &entry.value)? {
                    of_child[child].push(Entry {
                        key: source.key(&entry.key),
                        value: source.value(&entry.key, &entry.value)?,
                    });
                }
            }
            let loads = self.children.iter().zip(of_child).filter(|(_, entries)| !entries.is_empty());
            let loads = loads.map(|(child, entries)| self.database.store.bulk_load(child.store, entries));
            // The children are independent of each other, so their loads run at the same time.
            try_join_all(loads).await.map_err(store_failure)?;
            if !page.more {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Copies the current state of the keys in some split log entries after `followed`; returns the number of entries.
    /// There may be more.
    pub(super) async fn follow(&self, source: &Source, followed: &mut Key) -> Result<usize> {
        self.check_going_on()?;
        let scan = Scan::forward(split_log::entries_after(followed), COPY_ENTRIES);
        let store = &self.database.store;
        let page = store.read(source.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
        let Some(last) = page.entries.last() else { return Ok(0) };
        let touched: BTreeSet<Key> =
            page.entries.iter().flat_map(|entry| split_log::decode_keys(&entry.value)).collect();
        // Items and versions are large and are read a few at a time; all other entries are small.
        let (items, others): (Vec<Key>, Vec<Key>) = touched
            .into_iter()
            .filter(|key| !split_log::is_own(key))
            .partition(|key| keys::parse_item(key).is_some() || keys::parse_history(key).is_some());
        let mut changes = Changes::new(self.children.len());
        for keys in items.chunks(ITEMS_AT_ONCE).chain(others.chunks(COPY_ENTRIES)) {
            let read =
                store.read(source.store, ReadRequest::Get(keys.to_vec())).await.map_err(store_failure)?;
            let container = self.container()?;
            for (key, value) in keys.iter().zip(read.values) {
                if let Some(value) = value {
                    for child in self.owners(&container, key, &value)? {
                        changes.put(child, source.key(key), source.value(key, &value)?);
                    }
                } else {
                    // The owning child is unknown without the value; deleting a missing entry is harmless.
                    for child in 0..self.children.len() {
                        changes.delete(child, source.key(key));
                    }
                }
            }
            // Bounded, and far below the largest commit of a store.
            if changes.keys >= APPLY_KEYS || changes.bytes >= APPLY_BYTES {
                self.apply(std::mem::replace(&mut changes, Changes::new(self.children.len()))).await?;
            }
        }
        self.apply(changes).await?;
        // Only after the changes are applied: a repeated page is harmless, a skipped one is not.
        followed.clone_from(&last.key);
        // A page that was truncated by size is not the end.
        Ok(if page.more { page.entries.len().max(COPY_ENTRIES) } else { page.entries.len() })
    }

    async fn apply(&self, changes: Changes) -> Result<()> {
        let commits = self.children.iter().zip(changes.of_child);
        let commits = commits.filter(|(_, writes)| !writes.is_empty());
        let commits = commits.map(|(child, writes)| self.database.commit_as_it_is(child.store, writes));
        try_join_all(commits).await?;
        Ok(())
    }

    /// The current container: its index may have a new generation since the copy started.
    fn container(&self) -> Result<std::sync::Arc<Container>> {
        existing(&self.database.catalog.snapshot(), self.container).cloned()
    }

    /// The children that an entry belongs to.
    fn owners(&self, container: &Container, key: &[u8], value: &[u8]) -> Result<Vec<usize>> {
        Ok(match owner(container, key, value)? {
            Owner::None => Vec::new(),
            Owner::All => (0..self.children.len()).collect(),
            Owner::Key(effective) => {
                let child = self.children.iter().position(|child| child.range.contains(&effective));
                vec![child.ok_or_else(|| {
                    Error::internal("an entry lies in a partition that does not own its key")
                })?]
            }
        })
    }

    /// A stopping server does not wait for a long copy: it is rolled back.
    fn check_going_on(&self) -> Result<()> {
        if self.database.is_stopping() {
            return Err(Error::new(ErrorKind::Unavailable, "The server is stopping."));
        }
        Ok(())
    }
}

fn owner(container: &Container, key: &[u8], value: &[u8]) -> Result<Owner> {
    // The split log belongs to the parent.
    if split_log::is_own(key) {
        return Ok(Owner::None);
    }
    if *key == keys::INDEX_VERSION || keys::parse_history_mark(key).is_some() {
        return Ok(Owner::All);
    }
    let unknown = || Error::internal("an entry of an unknown kind cannot be moved");
    // An index entry contains its item's key; of every other kind, the key or the value names the item.
    let item = if let Some(number) = index_entry::generation_of(key) {
        // Entries of a retired generation are not needed in the children.
        let Some(generation) = container.index.generations().find(|known| known.number == number) else {
            return Ok(Owner::None);
        };
        index_entry::item_of_index_key(key, |_, number| {
            let paths = generation.policy.composite.get(usize::try_from(number).ok()?)?;
            Some(paths.iter().map(|path| path.descending).collect())
        })
    } else {
        keys::item_key_of(key, value)
    };
    let item = item.ok_or_else(unknown)?;
    Ok(Owner::Key(keys::parse_item(&item).ok_or_else(unknown)?.0))
}

impl Source {
    /// The key that an entry has in the child.
    fn key(&self, key: &[u8]) -> Key {
        if self.numbering == 0 {
            return key.to_vec();
        }
        // Feed and history are ordered by LSN; the second sequence gets positions beyond those of the first.
        if let Some((lsn, position)) = keys::parse_feed(key) {
            keys::feed(lsn, self.position(position))
        } else if let Some((lsn, position, step)) = keys::parse_history(key) {
            keys::history(lsn, self.position(position), step)
        } else if let Some(numbering) = keys::parse_history_mark(key) {
            keys::history_mark(numbering + self.numbering)
        } else {
            key.to_vec()
        }
    }

    /// The value of an entry in the child: items contain the key of their feed entry.
    fn value(&self, key: &[u8], value: &Bytes) -> Result<Bytes> {
        if self.numbering == 0 || keys::parse_item(key).is_none() {
            return Ok(value.clone());
        }
        let mut item = StoredItem::decode(value)
            .ok_or_else(|| Error::internal("A stored item has an unknown format."))?;
        item.position = self.position(item.position);
        Ok(item.encode())
    }

    fn position(&self, position: u16) -> u16 {
        // At most `u16::MAX`: a merge checks the number of sequences.
        position + self.numbering * POSITIONS
    }
}

/// Writes for each child.
struct Changes {
    of_child: Vec<WriteSet>,
    keys: usize,
    bytes: usize,
}

impl Changes {
    fn new(children: usize) -> Self {
        Self { of_child: (0..children).map(|_| WriteSet::default()).collect(), keys: 0, bytes: 0 }
    }

    fn put(&mut self, child: usize, key: Key, value: Bytes) {
        self.keys += 1;
        self.bytes += key.len() + value.len();
        self.of_child[child].put(key, value);
    }

    fn delete(&mut self, child: usize, key: Key) {
        self.keys += 1;
        self.bytes += key.len();
        self.of_child[child].delete(key);
    }
}
