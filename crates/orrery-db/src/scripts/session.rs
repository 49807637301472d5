//! One attempt of a script's transaction: a snapshot of its logical partition, its own writes on top, and the list of
//! its actions, which is committed atomically if the logical partition has not been written meanwhile.
//!
//! The operations run through the same code as every write (`items/transaction.rs`): here to determine their outcome,
//! and again in the store, on the same state, to apply them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::ids::ItemId;
use orrery_model::partition_key::{EffectiveKey, PartitionKey};
use orrery_model::rid::ItemRid;
use orrery_model::session::SessionToken;
use orrery_model::{Error, Result};
use orrery_storage::{Key, ReadRequest, Scan, View};

use orrery_metering::cost;

use super::Scripts;
use crate::catalog::{Container, Partition};
use crate::failure::{commit_failure, store_failure};
use crate::items::batch::{BatchOperation, prepare};
use crate::items::feed::FeedScope;
use crate::items::key_mismatch;
use crate::items::point::has_key;
use crate::items::transaction::{
    Action, ActionSuccess, ItemTransaction, ScriptStamp, Working, item_not_found,
};
use crate::layout::document::decode;
use crate::layout::page_request::PageRequest;
use crate::layout::statistics::Statistics;
use crate::layout::stored::{POSITIONS, StoredItem};
use crate::layout::{continuation, keys};
use crate::partition::{Overlay, Receipt};
use crate::query::{QueryOptions, QueryPage, QueryRequest};

/// The maximum bytes written by a script: the store applies the whole transaction at once, including index entries and
/// history.
const WRITE_BYTES_MAX: usize = 12 << 20;
const PAGE_BYTES_MAX: usize = 4 << 20;

pub(super) struct Session<'a> {
    pub(super) database: &'a Scripts,
    pub(super) container: Arc<Container>,
    pub(super) partition: Partition,
    pub(super) key: PartitionKey,
    effective: EffectiveKey,
    overlay: Overlay,
    /// The transaction without actions.
    transaction: ItemTransaction,
    statistics: Statistics,
    actions: Vec<Action>,
    written_bytes: usize,
}

/// The result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Committed,
    /// The logical partition was written, or its index or partition has changed: run again.
    Overtaken,
}

/// A page of items.
pub(super) struct ItemPage {
    pub documents: Vec<u8>,
    pub continuation: Option<String>,
}

impl<'a> Session<'a> {
    pub(super) async fn open(
        database: &'a Scripts,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        key: &PartitionKey,
        session: Option<&SessionToken>,
    ) -> Result<Self> {
        let effective = container.definition.partition_key.effective_key(key);
        let partition = container.partition_of(&effective).clone();
        receipt.key.get_or_insert_with(|| key.to_json());
        // Admits the request, and waits for the client's session.
        database.read_partition(receipt, &partition, session, ReadRequest::Get(Vec::new())).await?;
        let snapshot = database.store.snapshot(partition.store).await.map_err(store_failure)?;
        // From here on the script sees this snapshot and its own writes, nothing else.
        let overlay = Overlay::new(snapshot);
        // The position of the snapshot, not that of the check above: it is what the script has seen.
        receipt.served_by(&partition, overlay.lsn());
        let page = overlay.read(ReadRequest::Get(vec![keys::statistics(&effective)])).await?;
        let statistics = page.values.into_iter().next().flatten();
        let statistics = statistics.and_then(|bytes| Statistics::decode(&bytes)).unwrap_or_default();
        let env = &database.env;
        let transaction = ItemTransaction {
            operation_id: u128::from(env.random_u64()) << 64 | u128::from(env.random_u64()),
            container: Arc::clone(container),
            range_id: partition.range_id,
            partition_key: key.clone(),
            effective: effective.clone(),
            now_ms: env.now_ms(),
            logical_partition_bytes_max: database.options.logical_partition_bytes_max,
            actions: Arc::default(),
            entries: Vec::new(),
            // The commit compares `read_at` with the counters as they are then, which detects any write in between.
            script: Some(ScriptStamp { read_at: statistics.written_at, seed: env.random_u64() }),
        };
        Ok(Self {
            database,
            container: Arc::clone(container),
            partition,
            key: key.clone(),
            effective,
            overlay,
            transaction,
            statistics,
            actions: Vec::new(),
            written_bytes: 0,
        })
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.transaction.now_ms
    }

    /// Whether another write is allowed.
    pub(super) fn has_room(&self) -> bool {
        self.actions.len() < usize::from(POSITIONS) && self.written_bytes < WRITE_BYTES_MAX
    }

    /// Resolves a RID to an id, if an item of this key has it.
    pub(super) async fn id_of_rid(&self, rid: &str) -> Result<ItemId> {
        // A RID of another container must not find an item here by its ordinal.
        let rid = ItemRid::parse(rid).filter(|rid| rid.container == self.container.rid);
        let rid = rid.ok_or_else(item_not_found)?;
        let page = self.overlay.read(ReadRequest::Get(vec![keys::rid(rid.ordinal())])).await?;
        let place = page.values.into_iter().next().flatten().ok_or_else(item_not_found)?;
        match keys::parse_item(&place) {
            Some((effective, id)) if effective == self.effective => ItemId::parse(id),
            _ => Err(item_not_found()),
        }
    }

    pub(super) async fn read_item(&self, receipt: &mut Receipt, id: &ItemId) -> Result<StoredItem> {
        let key = keys::item(&self.effective, id.as_str());
        let page = self.overlay.read(ReadRequest::Get(vec![key])).await?;
        let item = page.values.into_iter().next().flatten().map(|bytes| decode(&bytes)).transpose()?;
        let Some(item) = item.filter(|item| self.shows(item)) else {
            receipt.add(cost::missing_item());
            return Err(item_not_found());
        };
        receipt.add(cost::point_read(item.body.len()));
        Ok(item)
    }

    fn shows(&self, item: &StoredItem) -> bool {
        // The same three rules as for all readers: purged, expired, or of another key with the same hash.
        item.lsn > self.statistics.purged_to
            && !item.is_expired(self.container.definition.default_ttl, self.now_ms().div_euclid(1000))
            && has_key(&self.container, &self.key, item)
    }

    /// Validates an operation, which must stay inside the logical partition.
    pub(super) fn prepare(&self, operation: &BatchOperation) -> Result<Action> {
        let (own, action) = prepare(&self.container, Some(&self.key), operation, self.database.env())?;
        if own == self.key { Ok(action) } else { Err(key_mismatch()) }
    }

    /// Executes a write on top of the earlier ones. A failed write changes nothing.
    pub(super) async fn write(&mut self, receipt: &mut Receipt, action: Action) -> Result<ActionSuccess> {
        // Each write has its own position in the feed, and a transaction has `POSITIONS` of them.
        let position = u16::try_from(self.actions.len()).unwrap_or(u16::MAX);
        if position >= POSITIONS {
            return Err(Error::new(
                orrery_model::ErrorKind::TooLarge,
                format!("A script may write at most {POSITIONS} times."),
            ));
        }
        let mut named = Vec::new();
        self.transaction.reads_of(&action, &mut HashSet::new(), &mut named);
        let mut view = Fetched { overlay: &self.overlay, values: HashMap::new() };
        // Provisional. The item gets its real LSN when the store decides the transaction.
        let lsn = self.overlay.lsn() + 1;
        // What is read may name further keys: the item that holds a unique tuple, for example.
        let (result, statistics, writes) = loop {
            view.fetch(std::mem::take(&mut named)).await?;
            let mut working = Working::after(&self.transaction, &view, lsn, self.statistics);
            let result = working.run(&action, position);
            named = working.take_missing().into_iter().collect();
            if named.is_empty() {
                let (statistics, writes) = working.into_changes();
                break (result, statistics, writes);
            }
        };
        receipt.add(result.charge);
        // Returns here for a failed write, before any state has changed.
        let success = result.outcome?;
        let size = |(key, value): (&Key, &Option<Bytes>)| key.len() + value.as_ref().map_or(0, Bytes::len);
        self.written_bytes += writes.iter().map(size).sum::<usize>();
        self.statistics = statistics;
        self.overlay.write(writes);
        self.actions.push(action);
        Ok(success)
    }

    /// The items of the logical partition, page by page.
    pub(super) async fn list(&self, receipt: &mut Receipt, page: &PageRequest) -> Result<ItemPage> {
        let count_max = page.count_max(100, 1000)?;
        let token_scope = format!("script/{}", self.container.rid);
        let secret = self.database.catalog.snapshot().secret;
        let mut range = keys::items_of(&self.effective);
        if let Some(token) = &page.continuation {
            range.start = range.start.max(continuation::open(&secret, &token_scope, token)?);
        }
        let mut out = ItemPage { documents: Vec::new(), continuation: None };
        let mut count = 0;
        loop {
            // One more than wanted, to know whether another page follows.
            let scan = Scan::forward(range.clone(), (count_max - count).clamp(1, 256) + 1);
            let read = self.overlay.read(ReadRequest::Scan(scan)).await?;
            for entry in &read.entries {
                // The token names the first item that did not fit.
                if count == count_max || out.documents.len() >= PAGE_BYTES_MAX {
                    out.continuation = Some(continuation::seal(&secret, &token_scope, &entry.key));
                    return Ok(out);
                }
                let item = decode(&entry.value)?;
                if !self.shows(&item) {
                    continue;
                }
                if count > 0 {
                    out.documents.push(b',');
                }
                item.write_document(self.container.rid, &mut out.documents);
                receipt.add(cost::point_read(item.body.len()));
                count += 1;
            }
            match read.entries.last() {
                Some(last) if read.more => range.start = [last.key.as_slice(), &[0]].concat(),
                _ => {
                    if count == 0 {
                        receipt.add(cost::missing_item());
                    }
                    return Ok(out);
                }
            }
        }
    }

    pub(super) async fn query(
        &self,
        receipt: &mut Receipt,
        request: &QueryRequest,
        page: PageRequest,
    ) -> Result<QueryPage> {
        let scope = FeedScope { partition_key: Some(self.key.clone()), ..FeedScope::default() };
        let options = QueryOptions { scope, page, ..QueryOptions::default() };
        self.database.query_container(receipt, &self.container, &options, request, Some(&self.overlay)).await
    }

    /// Commits all writes atomically, unless there was a conflict.
    pub(super) async fn commit(mut self, receipt: &mut Receipt) -> Result<Ending> {
        // A script that only read has seen one snapshot, so there is nothing that could conflict.
        if self.actions.is_empty() {
            return Ok(Ending::Committed);
        }
        self.transaction.actions = Arc::new(self.actions);
        match self.database.commit(&self.partition, self.transaction).await {
            Ok(committed) if committed.out.stale => Ok(Ending::Overtaken),
            Ok(committed) if committed.out.failed => {
                // The store decides the same actions on the same versions, so their outcome cannot differ.
                let error = committed.out.results.into_iter().find_map(|result| result.outcome.err());
                tracing::error!(?error, "a script's write was decided twice and differently");
                Err(Error::internal("The script's writes could not be repeated."))
            }
            Ok(committed) => {
                receipt.served_by(&self.partition, committed.lsn);
                Ok(Ending::Committed)
            }
            Err(error) => Err(commit_failure(error)),
        }
    }
}

/// The values that an action reads: the script's own, and those of the snapshot.
struct Fetched<'a> {
    overlay: &'a Overlay,
    values: HashMap<Key, Option<Bytes>>,
}

impl Fetched<'_> {
    async fn fetch(&mut self, mut wanted: Vec<Key>) -> Result<()> {
        // What the script has written is not read from the snapshot, where it is older.
        wanted.retain(|key| self.overlay.own(key).is_none());
        let page = self.overlay.read(ReadRequest::Get(wanted.clone())).await?;
        self.values.extend(wanted.into_iter().zip(page.values));
        Ok(())
    }
}

impl View for Fetched<'_> {
    fn get(&self, key: &[u8]) -> Option<Bytes> {
        match self.overlay.own(key) {
            Some(own) => own.clone(),
            None => self.values.get(key).cloned().flatten(),
        }
    }

    fn has_read(&self, key: &[u8]) -> bool {
        self.overlay.own(key).is_some() || self.values.contains_key(key)
    }
}
