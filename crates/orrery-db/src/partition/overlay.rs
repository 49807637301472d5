//! A snapshot of a partition with a script's own writes on top, which all reads of a script use.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use orrery_model::Result;
use orrery_storage::{Direction, Entry, Key, Lsn, ReadPage, ReadRequest, Scan, Snapshot, Tally, Want};

use crate::failure::store_failure;

pub(crate) struct Overlay {
    snapshot: Box<dyn Snapshot>,
    own: BTreeMap<Key, Option<Bytes>>,
}

impl Overlay {
    pub(crate) fn new(snapshot: Box<dyn Snapshot>) -> Self {
        Self { snapshot, own: BTreeMap::new() }
    }

    pub(crate) fn lsn(&self) -> Lsn {
        self.snapshot.lsn()
    }

    /// The script's own value for a key, if it has written it.
    pub(crate) fn own(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.own.get(key)
    }

    pub(crate) fn write(&mut self, writes: BTreeMap<Key, Option<Bytes>>) {
        self.own.extend(writes);
    }

    pub(crate) async fn read(&self, request: ReadRequest) -> Result<ReadPage> {
        match request {
            ReadRequest::Get(keys) => self.get(keys).await,
            ReadRequest::Scan(scan) => self.scan(scan).await,
            ReadRequest::Tally(tally) => self.tally(tally).await,
        }
    }

    async fn tally(&self, tally: Tally) -> Result<ReadPage> {
        // The script's own entries have to be merged first, so the keys are read and counted here.
        let keys = Scan { want: Want::Keys, ..Scan::forward(tally.range.clone(), tally.entries_max) };
        let page = self.scan(keys).await?;
        let keys = page.entries.iter().map(|entry| entry.key.as_slice());
        Ok(ReadPage { lsn: page.lsn, ..tally.of_keys(keys, page.more) })
    }

    async fn get(&self, keys: Vec<Key>) -> Result<ReadPage> {
        let mut page = self.snapshot.read(ReadRequest::Get(keys.clone())).await.map_err(store_failure)?;
        for (key, value) in keys.iter().zip(&mut page.values) {
            // A deletion counts too: the script must not see what it has deleted.
            if let Some(own) = self.own.get(key) {
                value.clone_from(own);
            }
        }
        Ok(page)
    }

    /// Merges the script's entries into a page of the snapshot and removes those it has deleted. A page is empty only
    /// at the end of the range: readers continue from its last entry.
    async fn scan(&self, mut scan: Scan) -> Result<ReadPage> {
        loop {
            let request = ReadRequest::Scan(scan.clone());
            let mut page = self.snapshot.read(request).await.map_err(store_failure)?;
            // Up to which key the page speaks. Without more entries it speaks of the whole range.
            let reached = page.entries.last().filter(|_| page.more).map(|last| last.key.clone());
            let (from, to) = match (scan.direction, &reached) {
                (Direction::Forward, Some(last)) => {
                    (Bound::Included(scan.range.start.clone()), Bound::Included(last.clone()))
                }
                (Direction::Backward, Some(last)) => (Bound::Included(last.clone()), end_of(&scan)),
                (_, None) => (Bound::Included(scan.range.start.clone()), end_of(&scan)),
            };
            // Only the script's keys inside that span: later ones belong to later pages.
            self.merge(&mut page, &scan, from, to);
            match reached {
                // All entries of the page were deleted by the script, so go on behind them.
                Some(last) if page.entries.is_empty() => match scan.direction {
                    Direction::Forward => scan.range.start = [last.as_slice(), &[0]].concat(),
                    Direction::Backward => scan.range.end = Some(last),
                },
                _ => return Ok(page),
            }
        }
    }

    fn merge(&self, page: &mut ReadPage, scan: &Scan, from: Bound<Key>, to: Bound<Key>) {
        if self.own.is_empty() || scan.range.is_empty() {
            return;
        }
        let mut merged: BTreeMap<Key, Bytes> =
            std::mem::take(&mut page.entries).into_iter().map(|entry| (entry.key, entry.value)).collect();
        for (key, value) in self.own.range((from, to)) {
            match value {
                None => {
                    merged.remove(key);
                }
                Some(value) => {
                    let value = if scan.want == Want::Keys { Bytes::new() } else { value.clone() };
                    merged.insert(key.clone(), value);
                }
            }
        }
        let entries = merged.into_iter().map(|(key, value)| Entry { key, value });
        page.entries = match scan.direction {
            Direction::Forward => entries.collect(),
            Direction::Backward => entries.rev().collect(),
        };
    }
}

fn end_of(scan: &Scan) -> Bound<Key> {
    scan.range.end.clone().map_or(Bound::Unbounded, Bound::Excluded)
}
