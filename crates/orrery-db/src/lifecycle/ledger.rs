//! The ledger of a container: every logical partition with its exact size and its usage over the last minutes, page by
//! page in the order of the hashes.

use orrery_model::partition_key::{EffectiveKey, EpkRange};
use orrery_model::value::Value;
use orrery_model::{Charge, Error, Object, Result};
use orrery_storage::{ReadRequest, Scan};

use super::Lifecycle;
use super::view::number;
use crate::catalog::{Container, Partition};
use crate::failure::store_failure;
use crate::layout::keys;
use crate::layout::statistics::Statistics;
use crate::partition::{KeyLoad, LEDGER_MINUTES};

/// Most logical partitions of a page.
const PAGE_KEYS_MAX: usize = 10_000;

/// A page of a container's logical partitions.
#[derive(Clone, Debug)]
pub struct LedgerPage {
    pub minutes: usize,
    pub keys: Vec<LedgerKey>,
    /// What requests without a single key, and keys that are not tracked, used: by partition, on the first page only.
    pub others: Vec<(u32, KeyLoad)>,
    /// Where the next page starts.
    pub continuation: Option<String>,
}

/// A logical partition with its size and usage.
#[derive(Clone, Debug)]
pub struct LedgerKey {
    /// The partition key value as JSON.
    pub key: String,
    pub range_id: u32,
    pub items: u64,
    pub bytes: u64,
    pub usage: KeyLoad,
}

impl Lifecycle {
    /// The logical partitions after `continuation`, at most `keys_max` of them, with their usage over `minutes`.
    pub async fn key_ledger(
        &self,
        (database, container): (&str, &str),
        continuation: Option<&str>,
        keys_max: usize,
        minutes: usize,
    ) -> Result<LedgerPage> {
        let after = match continuation {
            None => None,
            Some(text) => Some(EffectiveKey::parse(text).map_err(|_| {
                Error::bad_request("The continuation is not one of this container's ledger.")
            })?),
        };
        let (keys_max, minutes) = (keys_max.clamp(1, PAGE_KEYS_MAX), minutes.clamp(1, LEDGER_MINUTES));
        let mut attempt = 0;
        loop {
            let catalog = self.catalog.snapshot();
            let container = catalog.container(database, container)?;
            match self.ledger_page(container, after.as_ref(), keys_max, minutes).await {
                Err(error) if self.may_route_again(&error, &mut attempt).await => {}
                result => return result,
            }
        }
    }

    async fn ledger_page(
        &self,
        container: &Container,
        after: Option<&EffectiveKey>,
        keys_max: usize,
        minutes: usize,
    ) -> Result<LedgerPage> {
        let mut page = LedgerPage { minutes, keys: Vec::new(), others: Vec::new(), continuation: None };
        let mut partitions: Vec<&Partition> = container.partitions.iter().collect();
        // The page follows the hashes over all partitions, so that a continuation is one hash.
        partitions.sort_by(|a, b| a.range.min.cmp(&b.range.min));
        if after.is_none() {
            let others = |partition: &&Partition| {
                (partition.range_id, self.others_usage(container, partition, minutes))
            };
            page.others = partitions.iter().map(others).collect();
        }
        for partition in partitions {
            // Partitions that end before the continuation were on earlier pages. It stays valid when they split.
            let is_before =
                |after: &EffectiveKey| !partition.range.contains(after) && partition.range.min <= *after;
            if after.is_some_and(is_before) {
                continue;
            }
            let last = self.ledger_of(container, partition, after, keys_max, &mut page).await?;
            if page.keys.len() >= keys_max {
                page.continuation = last.map(|key| key.to_string());
                break;
            }
        }
        Ok(page)
    }

    /// Adds the logical partitions of one partition, until the page is full; returns the last one.
    async fn ledger_of(
        &self,
        container: &Container,
        partition: &Partition,
        after: Option<&EffectiveKey>,
        keys_max: usize,
        page: &mut LedgerPage,
    ) -> Result<Option<EffectiveKey>> {
        let mut range = keys::statistics_in(&partition.range);
        if let Some(after) = after.filter(|after| EpkRange::contains(&partition.range, after)) {
            range.start = [keys::statistics(after).as_slice(), &[0]].concat();
        }
        let mut last = None;
        loop {
            let scan = Scan::forward(range.clone(), keys_max - page.keys.len());
            let read = self.store.read(partition.store, ReadRequest::Scan(scan)).await;
            let read = read.map_err(store_failure)?;
            let first = page.keys.len();
            for entry in &read.entries {
                // Also of keys that are left out below, or a page without keys could not continue.
                last = keys::parse_statistics(&entry.key).or(last);
                let Some(statistics) = Statistics::decode(&entry.value) else { continue };
                let key = Statistics::key_text(&entry.value).unwrap_or_default().to_owned();
                let (items, bytes) = (statistics.items, statistics.bytes);
                let usage = KeyLoad::default();
                page.keys.push(LedgerKey { key, range_id: partition.range_id, items, bytes, usage });
            }
            // In one call, which takes the ledger's lock once.
            self.fill_usage(container, partition, page.minutes, &mut page.keys[first..]);
            // A key without items is there only if requests used it lately.
            let own = page.keys.split_off(first);
            let is_idle = |key: &LedgerKey| key.items == 0 && key.usage == KeyLoad::default();
            page.keys.extend(own.into_iter().filter(|key| !is_idle(key)));
            match read.entries.last() {
                Some(entry) if read.more && page.keys.len() < keys_max => {
                    range.start = [entry.key.as_slice(), &[0]].concat();
                }
                _ => return Ok(last),
            }
        }
    }

    fn fill_usage(
        &self,
        container: &Container,
        partition: &Partition,
        minutes: usize,
        keys: &mut [LedgerKey],
    ) {
        let names = keys.iter().map(|key| key.key.as_str());
        let usages = self.key_usage(container, partition, minutes, names);
        for (key, usage) in keys.iter_mut().zip(usages) {
            key.usage = usage;
        }
    }
}

impl LedgerPage {
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.set("minutes", number(self.minutes as u64));
        object.set("keys", self.keys.iter().map(LedgerKey::to_value).collect::<Vec<_>>().into());
        let others = self.others.iter().filter(|(_, usage)| *usage != KeyLoad::default());
        let others = others.map(|(range_id, usage)| {
            let mut other = Object::new();
            other.set("partition", Value::from(range_id.to_string()));
            set_usage(&mut other, usage);
            Value::from(other)
        });
        object.set("others", others.collect::<Vec<_>>().into());
        if let Some(continuation) = &self.continuation {
            object.set("continuation", Value::from(continuation.as_str()));
        }
        object.into()
    }
}

impl LedgerKey {
    fn to_value(&self) -> Value {
        let mut key = Object::new();
        key.set("partitionKey", Value::from(self.key.as_str()));
        key.set("partition", Value::from(self.range_id.to_string()));
        key.set("items", number(self.items));
        key.set("bytes", number(self.bytes));
        set_usage(&mut key, &self.usage);
        key.into()
    }
}

fn set_usage(object: &mut Object, usage: &KeyLoad) {
    object.set("requestUnits", Value::from(Charge::as_f64(usage.used)));
    object.set("throttled", number(usage.throttled));
}
