//! The change feed of latest versions: every item once, at the position of its last change. All versions are in
//! `items/all_versions.rs`.
//!
//! A page covers one physical partition, or a part of its keys. The etag is the position up to which the partition was
//! read, including changes outside the scope, so that a reader of an idle scope advances. Positions stay valid across
//! splits: children continue their parent's LSNs.

use orrery_model::partition_key::EpkRange;
use orrery_model::session::SessionToken;
use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::{Key, Lsn, ReadPage, ReadRequest, Scan};

use orrery_metering::cost;

use super::Items;
use super::feed::FeedScope;
use super::point::has_key;
use crate::catalog::{Container, Partition};
use crate::layout::document::decode;
use crate::layout::keys;
use crate::layout::page_request::PageRequest;
use crate::partition::Receipt;

const PAGE_BYTES_MAX: usize = 4 << 20;
const PAGE_ITEMS_MAX: usize = 1000;
const FETCH_ENTRIES: usize = 256;

/// Where a reader starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeStart {
    Beginning,
    Now,
    /// After the position of an earlier page.
    After(Lsn),
}

/// Which changes a reader wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeMode {
    /// Every item once, at its last change.
    #[default]
    LatestVersions,
    /// Every change, including deletes.
    AllVersions,
}

/// A reader's request.
#[derive(Clone, Debug)]
pub struct ChangeRequest {
    pub mode: ChangeMode,
    pub scope: FeedScope,
    pub start: ChangeStart,
    /// Only changes at or after this second.
    pub modified_since: Option<i64>,
    pub session: Option<SessionToken>,
    pub page: PageRequest,
    /// Wrap each document in an envelope with metadata, as newer clients request.
    pub envelope: bool,
    /// Whether deletes of all versions come with the item that they have ended.
    pub previous_images: bool,
}

/// A page of changes.
#[derive(Debug, Default)]
pub struct ChangePage {
    /// The JSON texts, separated by commas.
    pub documents: Vec<u8>,
    pub count: usize,
    /// The position to continue from, as an etag.
    pub etag: String,
}

impl ChangePage {
    pub(super) fn is_full(&self, count_max: usize) -> bool {
        self.count >= count_max || self.documents.len() >= PAGE_BYTES_MAX
    }

    /// Counts one more document, whose text the caller appends.
    pub(super) fn begin_document(&mut self) {
        if self.count > 0 {
            self.documents.push(b',');
        }
        self.count += 1;
    }

    /// Ends the page at a position, and charges for it.
    pub(super) fn ended(mut self, receipt: &mut Receipt, reached: Lsn) -> Self {
        receipt.add(cost::changes(self.count, self.documents.len()));
        self.etag = format!("\"{reached}\"");
        self
    }
}

impl Items {
    pub async fn read_changes(
        &self,
        receipt: &mut Receipt,
        at: (&str, &str),
        intended_rid: Option<&str>,
        request: &ChangeRequest,
    ) -> Result<ChangePage> {
        let mut attempt = 0;
        loop {
            match self.read_changes_once(receipt, at, intended_rid, request).await {
                // A client whose keys are no longer in one partition must get an error now.
                Err(error) if self.crosses_partitions(at, &request.scope) => return Err(error),
                Err(error) if self.may_read_again(&error, at, &request.scope, &mut attempt).await => {}
                result => return result,
            }
        }
    }

    fn crosses_partitions(&self, (database, container): (&str, &str), scope: &FeedScope) -> bool {
        let catalog = self.catalog.snapshot();
        let Ok(container) = catalog.container(database, container) else { return false };
        scope.range(container).is_ok_and(|range| only_partition(container, &range, scope).is_err())
    }

    async fn read_changes_once(
        &self,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
        intended_rid: Option<&str>,
        request: &ChangeRequest,
    ) -> Result<ChangePage> {
        let count_max = request.page.count_max(100, PAGE_ITEMS_MAX)?;
        let container = self.item_container(receipt, database, container, intended_rid)?;
        let range = request.scope.range(&container)?;
        let partition = only_partition(&container, &range, &request.scope)?;
        if request.mode == ChangeMode::AllVersions {
            return self.read_versions(receipt, (&container, partition), &range, request, count_max).await;
        }
        let start = match request.start {
            ChangeStart::Beginning => 0,
            ChangeStart::After(lsn) => lsn,
            ChangeStart::Now => return self.now(receipt, partition, request).await,
        };
        let only = request.scope.partition_key.as_ref();
        // Only if other keys can have the same hash must each item be compared with the key.
        let only = only.filter(|key| container.definition.partition_key.may_collide(key));
        let mut out = ChangePage::default();
        let mut reached = start;
        let mut left = keys::feed_after(start);
        loop {
            let scan = ReadRequest::Scan(Scan::forward(left.clone(), FETCH_ENTRIES));
            let changes = self.read_partition(receipt, partition, request.session.as_ref(), scan).await?;
            // One read for all items of a page; the feed has only their keys.
            let items = self.changed_items(receipt, partition, &changes).await?;
            for (entry, value) in changes.entries.iter().zip(items) {
                let Some((lsn, position)) = keys::parse_feed(&entry.key) else { continue };
                // A page ends only between transactions: the position says nothing about places inside of one.
                if out.is_full(count_max) && lsn > reached {
                    return Ok(out.ended(receipt, reached));
                }
                reached = lsn;
                let Some((effective, _)) = keys::parse_item(&entry.value) else { continue };
                let Some(item) = value.map(|bytes| decode(&bytes)).transpose()? else { continue };
                // An item that was written again since the scan comes at its later position.
                let is_current = (item.lsn, item.position) == (lsn, position);
                let is_wanted = is_current
                    && range.contains(&effective)
                    && request.modified_since.is_none_or(|since| item.timestamp > since)
                    && only.is_none_or(|key| has_key(&container, key, &item))
                    && self.is_visible(&container, partition, &effective, &item);
                if !is_wanted {
                    continue;
                }
                out.begin_document();
                if request.envelope {
                    out.documents.extend_from_slice(b"{\"current\":");
                }
                item.write_document(container.rid, &mut out.documents);
                // Reopens the object, to add the LSN as its last property.
                out.documents.pop();
                out.documents.extend_from_slice(format!(",\"_lsn\":{lsn}}}").as_bytes());
                if request.envelope {
                    let metadata = format!(",\"metadata\":{{\"lsn\":{lsn},\"crts\":{}}}}}", item.timestamp);
                    out.documents.extend_from_slice(metadata.as_bytes());
                }
            }
            match changes.entries.last() {
                Some(last) if changes.more => left.start = [last.key.as_slice(), &[0]].concat(),
                // A reader at this position has seen every change up to it.
                _ => return Ok(out.ended(receipt, reached.max(changes.lsn))),
            }
        }
    }

    /// The current end of the partition, as a position to continue from.
    pub(super) async fn now(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        request: &ChangeRequest,
    ) -> Result<ChangePage> {
        let nothing = ReadRequest::Get(Vec::new());
        let page = self.read_partition(receipt, partition, request.session.as_ref(), nothing).await?;
        Ok(ChangePage::default().ended(receipt, page.lsn))
    }

    async fn changed_items(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        changes: &ReadPage,
    ) -> Result<Vec<Option<bytes::Bytes>>> {
        let item_keys: Vec<Key> = changes.entries.iter().map(|entry| entry.value.to_vec()).collect();
        Ok(self.read_partition(receipt, partition, None, ReadRequest::Get(item_keys)).await?.values)
    }
}

/// The partition that contains the scope. Positions belong to a partition, so a scope over several has none.
fn only_partition<'a>(
    container: &'a Container,
    range: &EpkRange,
    scope: &FeedScope,
) -> Result<&'a Partition> {
    let mut partitions = container.partitions.iter().filter(|partition| partition.range.overlaps(range));
    match (partitions.next(), partitions.next()) {
        (Some(partition), None) => Ok(partition),
        (None, _) => {
            Err(Error::bad_request("One of the input values is invalid. The range of keys is empty."))
        }
        (Some(_), Some(_)) if scope.window.is_some() || scope.partition_key.is_some() => Err(Error::new(
            ErrorKind::PartitionGone,
            "The range of keys lies in more than one partition. Please read the partition key ranges again.",
        )),
        (Some(_), Some(_)) => Err(Error::bad_request(
            "The change feed of a container with several partitions must name a partition key range or a partition key.",
        )),
    }
}
