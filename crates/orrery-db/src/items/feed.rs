//! The read feed: all items of a container, a range or a key, page by page. A partition with
//! few items comes in the order in which they were inserted, others in key order.

use orrery_model::partition_key::{EffectiveKey, EpkRange, PartitionKey};
use orrery_model::session::SessionToken;
use orrery_model::{Charge, Error, Result, Value, value};
use orrery_storage::Key;

use orrery_metering::cost;

use super::Items;
use super::areas::{Area, areas_at, pieces};
use super::insertion_order::{ItemStream, Placed, View};
use super::point::has_key;
use crate::catalog::{Container, GoneRanges};
use crate::layout::page_request::PageRequest;
use crate::layout::{continuation, keys};
use crate::partition::Receipt;

/// Bytes of items in one page.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// The default page size.
const PAGE_ITEMS_MAX: usize = 1000;
/// Entries requested from the store per read.
const SCAN_ENTRIES_MAX: usize = 256;

/// Which items a feed or query covers.
#[derive(Clone, Debug, Default)]
pub struct FeedScope {
    /// A complete partition key, or a prefix of a hierarchical one.
    pub partition_key: Option<PartitionKey>,
    /// A physical partition by its range id.
    pub range_id: Option<u32>,
    /// How to handle a retired partition.
    pub gone_ranges: GoneRanges,
    /// A window of effective keys.
    pub window: Option<EpkRange>,
}

/// A page of items.
#[derive(Debug, Default)]
pub struct FeedPage {
    /// The items' JSON texts, separated by commas.
    pub documents: Vec<u8>,
    pub count: usize,
    pub continuation: Option<String>,
}

impl FeedScope {
    /// The range of effective keys of a scope. Unknown range ids belong to retired partitions.
    pub fn range(&self, container: &Container) -> Result<EpkRange> {
        let definition = &container.definition.partition_key;
        let mut range = EpkRange::full();
        let mut narrow = |other: &EpkRange| {
            // An empty range instead of an error: the request is for nothing.
            range = range.intersect(other).unwrap_or(EpkRange::new(EffectiveKey::MIN, EffectiveKey::MIN));
        };
        if let Some(range_id) = self.range_id {
            narrow(container.range_of(range_id, self.gone_ranges)?);
        }
        if let Some(window) = &self.window {
            narrow(window);
        }
        if let Some(key) = &self.partition_key {
            let key = definition.check_prefix(key)?;
            if definition.is_full(&key) {
                narrow(&EpkRange::point(definition.effective_key(&key)));
            } else {
                narrow(&definition.prefix_range(&key));
            }
        }
        Ok(range)
    }
}

/// Where a page begins.
#[derive(Debug, Default, PartialEq)]
struct FeedStart {
    key: Key,
    areas: Vec<Area>,
}

impl FeedStart {
    fn after(start: &Self, piece: &EpkRange, mark: &Key) -> Self {
        // The smallest key after the mark.
        let key = [mark.as_slice(), &[0]].concat();
        Self { areas: areas_at(&start.areas, piece, &key), key }
    }

    /// An item key as it is; marks of areas as JSON.
    fn encode(&self) -> Vec<u8> {
        match self.areas.as_slice() {
            [] => self.key.clone(),
            areas => {
                let areas: Vec<Value> = areas.iter().map(Area::to_value).collect();
                Value::from(areas).to_json().into_bytes()
            }
        }
    }

    fn decode(bytes: Vec<u8>) -> Result<Self> {
        if keys::is_item(&bytes) {
            return Ok(Self { key: bytes, areas: Vec::new() });
        }
        let value = value::parse(&bytes).map_err(|_| continuation::invalid())?;
        let areas = value.as_array().and_then(|areas| areas.iter().map(Area::parse).collect());
        Ok(Self { key: Key::new(), areas: areas.ok_or_else(continuation::invalid)? })
    }
}

impl Items {
    pub async fn read_items(
        &self,
        receipt: &mut Receipt,
        at: (&str, &str),
        intended_rid: Option<&str>,
        scope: &FeedScope,
        session: Option<&SessionToken>,
        page: &PageRequest,
    ) -> Result<FeedPage> {
        let mut attempt = 0;
        loop {
            match self.read_items_once(receipt, at, intended_rid, scope, session, page).await {
                Err(error) if self.may_read_again(&error, at, scope, &mut attempt).await => {}
                result => return result,
            }
        }
    }

    /// Whether a read failed only because a partition was split meanwhile. A client that names a retired range must get
    /// the error.
    pub(crate) async fn may_read_again(
        &self,
        error: &Error,
        (database, container): (&str, &str),
        scope: &FeedScope,
        attempt: &mut u32,
    ) -> bool {
        let catalog = self.catalog.snapshot();
        let is_there = |range_id| {
            catalog
                .container(database, container)
                .is_ok_and(|container| container.range_of(range_id, scope.gone_ranges).is_ok())
        };
        scope.range_id.is_none_or(is_there) && self.may_route_again(error, attempt).await
    }

    async fn read_items_once(
        &self,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
        intended_rid: Option<&str>,
        scope: &FeedScope,
        session: Option<&SessionToken>,
        page: &PageRequest,
    ) -> Result<FeedPage> {
        let count_max = page.count_max(100, PAGE_ITEMS_MAX)?;
        let container = self.item_container(receipt, database, container, intended_rid)?;
        let range = scope.range(&container)?;
        let only =
            scope.partition_key.as_ref().filter(|key| container.definition.partition_key.may_collide(key));
        let token_scope = format!("docs/{}", container.rid);
        let secret = self.catalog.snapshot().secret;
        let token = page.continuation.as_ref();
        let start = token.map(|token| continuation::open(&secret, &token_scope, token)).transpose()?;
        let start = start.map(FeedStart::decode).transpose()?.unwrap_or_default();
        let mut out = FeedPage::default();
        // The last item of the page and the piece it is in, which is where the next page starts.
        let mut after: Option<(EpkRange, Key)> = None;
        'partitions: for partition in container.partitions_in(&range) {
            let own = partition.range.intersect(&range).expect("it overlaps");
            let view = View { items: self, partition, session, overlay: None };
            for (piece, from) in pieces(&start.areas, &start.key, &own) {
                let mut items = ItemStream::new(piece.clone(), from);
                while !items.is_read() {
                    // One more than fits, to see whether another page follows.
                    let count = SCAN_ENTRIES_MAX.min(count_max - out.count + 1);
                    for Placed { mark, item_key, item } in items.next(&view, receipt, count).await? {
                        let hidden = !self.is_visible_at(&container, &item_key, &item);
                        if hidden || only.is_some_and(|key| !has_key(&container, key, &item)) {
                            continue;
                        }
                        if out.count == count_max || out.documents.len() >= PAGE_BYTES_MAX {
                            let (piece, mark) = after.expect("a full page has a last item");
                            let resume = FeedStart::after(&start, &piece, &mark);
                            out.continuation =
                                Some(continuation::seal(&secret, &token_scope, &resume.encode()));
                            break 'partitions;
                        }
                        if out.count > 0 {
                            out.documents.push(b',');
                        }
                        item.write_document(container.rid, &mut out.documents);
                        out.count += 1;
                        receipt.add(cost::point_read(item.body.len()));
                        after = Some((piece.clone(), mark));
                    }
                }
            }
        }
        // A page without items costs what a missing item costs.
        if receipt.charge == Charge::ZERO {
            receipt.add(cost::missing_item());
        }
        Ok(out)
    }
}
