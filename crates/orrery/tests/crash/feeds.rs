//! Readers of the change feed that outlive the server: after every crash they resume, and must have seen every acknowledged
//! version in order, and the last version of every item.

use std::collections::BTreeMap;

use orrery_model::Value;

use crate::common::Client;
use crate::common::windows::{ALL_VERSIONS, Window, from_now, read};
use crate::writer::{ItemKey, Version, Writer};

/// A reader of all versions and deletes.
pub struct FeedReader {
    windows: Vec<Window>,
    seen: BTreeMap<ItemKey, Vec<Option<u64>>>,
}

impl FeedReader {
    pub fn new() -> Self {
        Self { windows: from_now(), seen: BTreeMap::new() }
    }

    /// Reads to the end and compares with what the writers know.
    pub fn verify(&mut self, client: &mut Client, writers: &[Writer], context: &str) {
        let windows = std::mem::take(&mut self.windows);
        for row in read(client, windows, &ALL_VERSIONS, &mut self.windows) {
            let (current, metadata) = (row.get("current").unwrap(), row.get("metadata").unwrap());
            if metadata.get("operationType").and_then(Value::as_str) == Some("delete") {
                let id = metadata.get("id").and_then(Value::as_str).unwrap().to_owned();
                let pk = metadata.get("partitionKey").unwrap().get("pk").and_then(Value::as_str).unwrap();
                self.seen.entry((pk.to_owned(), id)).or_default().push(None);
            } else {
                let (place, version) = Version::of(current);
                self.seen.entry(place).or_default().push(Some(version.number));
            }
        }
        let mut count = 0;
        for writer in writers {
            for (place, history) in &writer.history {
                let seen = self.seen.get(place).map(Vec::as_slice).unwrap_or_default();
                // Items deleted by partition key are removed in the background, some time later.
                let unswept =
                    history.split_last().filter(|(last, _)| last.is_none() && writer.purged.contains(place));
                let is_whole = seen == history || unswept.is_some_and(|(_, before)| seen == before);
                assert!(is_whole, "{context}: {place:?}: wrote {history:?}, the feed has {seen:?}");
                count += 1;
            }
        }
        assert_eq!(self.seen.len(), count, "{context}: the feed has items that nobody wrote");
    }
}

/// The latest versions, from the beginning: each item once.
pub fn latest(client: &mut Client, context: &str) -> BTreeMap<ItemKey, Version> {
    let whole = vec![(String::new(), "FF".into(), String::new())];
    let mut found = BTreeMap::new();
    for item in read(client, whole, &[("a-im", "Incremental Feed")], &mut Vec::new()) {
        let (place, version) = Version::of(&item);
        assert!(
            found.insert(place.clone(), version).is_none(),
            "{context}: {place:?} came twice in the feed"
        );
    }
    found
}
