//! Reading a container: its definition, its partition ranges, and its items page by page.
//!
//! Items are read in *lanes*: a window of effective keys and the position reached in it. A lane survives splits and
//! merges: it is cut to the ranges that exist now and keeps its position, because a continuation stays valid in
//! whichever partition holds the keys.

use orrery_env::Env;
use orrery_model::Value;
use orrery_model::partition_key::{EffectiveKey, EpkRange};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Client, Request, Response, path};
use crate::failure::Failure;
use crate::io::plain;

/// A container, named by its database and its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerPath {
    pub(crate) database: String,
    pub(crate) container: String,
}

impl ContainerPath {
    pub(crate) fn new(database: &str, container: &str) -> Self {
        Self { database: database.to_owned(), container: container.to_owned() }
    }

    pub(crate) fn path(&self) -> String {
        path(&["dbs", &self.database, "colls", &self.container])
    }

    pub(crate) fn item_path(&self, id: &str) -> String {
        path(&["dbs", &self.database, "colls", &self.container, "docs", id])
    }

    pub(crate) fn items_path(&self) -> String {
        self.path() + "/docs"
    }
}

impl std::fmt::Display for ContainerPath {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.database, self.container)
    }
}

/// A physical partition and the effective keys it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionRange {
    pub(crate) id: String,
    pub(crate) keys: EpkRange,
}

impl PartitionRange {
    /// A row of the feed of ranges. Some emulators write the id as a number.
    fn parse(row: &Value) -> Option<Self> {
        let text = |name: &str| row.get(name).and_then(Value::as_str);
        let id = row.get("id").filter(|id| matches!(id, Value::String(_) | Value::Number(_))).map(plain)?;
        Some(Self { id, keys: EpkRange::parse(text("minInclusive")?, text("maxExclusive")?).ok()? })
    }
}

/// A part of a container, and how far it has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) keys: EpkRange,
    pub(crate) continuation: Option<String>,
}

impl Lane {
    /// One lane over the whole container.
    pub(crate) fn whole() -> Self {
        Self { keys: EpkRange::full(), continuation: None }
    }

    /// Cuts this lane to the current ranges; each part comes with its range.
    pub(crate) fn cut(&self, ranges: &[PartitionRange]) -> Vec<(Self, PartitionRange)> {
        let parts = ranges.iter().filter_map(|range| {
            let keys = self.keys.intersect(&range.keys)?;
            Some((Self { keys, continuation: self.continuation.clone() }, range.clone()))
        });
        parts.collect()
    }
}

/// Items of one page, each as the text the server sent.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) items: Vec<Box<RawValue>>,
    /// The token of the next page; none after the last.
    pub(crate) continuation: Option<String>,
}

/// The result of reading a page.
#[derive(Debug)]
pub(crate) enum PageOutcome {
    Page(Page),
    /// The range was split or merged: read the ranges again and cut the lane to them.
    RangeGone,
}

#[derive(Deserialize)]
struct Feed {
    #[serde(rename = "Documents")]
    items: Vec<Box<RawValue>>,
}

impl Client {
    /// The definition of a container; none if it or its database does not exist.
    pub(crate) async fn read_container(
        &self,
        env: &dyn Env,
        container: &ContainerPath,
    ) -> Result<Option<Response>, Failure> {
        // The header asks for the number of items, which progress needs.
        let request = Request::get(container.path()).with("x-ms-documentdb-populatequotainfo", "True");
        let response = self.send(env, &request).await?;
        if response.status == 404 { Ok(None) } else { response.accepted().map(Some) }
    }

    /// The current physical partitions, ordered by key.
    pub(crate) async fn read_ranges(
        &self,
        env: &dyn Env,
        container: &ContainerPath,
    ) -> Result<Vec<PartitionRange>, Failure> {
        let mut ranges = Vec::new();
        let mut continuation: Option<String> = None;
        loop {
            let mut request = Request::get(container.path() + "/pkranges");
            if let Some(token) = &continuation {
                request = request.with("x-ms-continuation", token);
            }
            let response = self.send(env, &request).await?.accepted()?;
            let body = response.json().unwrap_or_default();
            let rows = body.get("PartitionKeyRanges").and_then(Value::as_array).unwrap_or(&[]);
            for row in rows {
                ranges.push(PartitionRange::parse(row).ok_or_else(|| {
                    Failure::refused("the server returned partition ranges that cannot be parsed")
                })?);
            }
            continuation = response.continuation().map(str::to_owned);
            if continuation.is_none() {
                break;
            }
        }
        if ranges.is_empty() {
            return Err(Failure::refused(format!("the server returned no partition ranges of {container}")));
        }
        // In the order that `range_of` relies on.
        ranges.sort_by(|first, second| first.keys.min.as_bytes().cmp(second.keys.min.as_bytes()));
        Ok(ranges)
    }

    /// One page of a lane's items in the server's order. `range` must contain the lane.
    pub(crate) async fn read_page(
        &self,
        env: &dyn Env,
        container: &ContainerPath,
        lane: &Lane,
        range: &PartitionRange,
        items_max: u32,
    ) -> Result<PageOutcome, Failure> {
        let mut request = Request::get(container.items_path())
            .with("x-ms-documentdb-partitionkeyrangeid", &range.id)
            .with("x-ms-max-item-count", &items_max.to_string());
        // The id names a whole range; for a part of one its keys are needed too.
        if lane.keys != range.keys {
            request = request
                .with("x-ms-read-key-type", "EffectivePartitionKeyRange")
                .with("x-ms-start-epk", &lane.keys.min.to_string())
                .with("x-ms-end-epk", &lane.keys.max.to_string());
        }
        if let Some(token) = &lane.continuation {
            request = request.with("x-ms-continuation", token);
        }
        let response = self.send(env, &request).await?;
        if response.is_range_gone() {
            return Ok(PageOutcome::RangeGone);
        }
        let response = response.accepted()?;
        // Items stay text, so that numbers keep their spelling.
        let feed: Feed = serde_json::from_slice(&response.body).map_err(|error| {
            Failure::refused(format!("the server returned a page that cannot be parsed: {error}"))
        })?;
        let continuation = response.continuation().map(str::to_owned);
        Ok(PageOutcome::Page(Page { items: feed.items, continuation }))
    }
}

/// The index of the range that holds a key. The ranges are sorted.
pub(crate) fn range_of(ranges: &[PartitionRange], key: &EffectiveKey) -> usize {
    let after = ranges.partition_point(|range| range.keys.min.as_bytes() <= key.as_bytes());
    after.saturating_sub(1)
}

/// JSON with everything beyond ASCII escaped, so that a header can carry it.
pub(crate) fn ascii_json(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii() {
            out.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(out, "\\u{unit:04x}").expect("a String accepts every write");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(id: &str, min: &str, max: &str) -> PartitionRange {
        PartitionRange { id: id.to_owned(), keys: EpkRange::parse(min, max).unwrap() }
    }

    #[test]
    fn lanes_survive_splits_and_merges() {
        let ranges = [range("1", "", "20"), range("2", "20", "FF")];
        let lane = Lane { keys: EpkRange::parse("10", "FF").unwrap(), continuation: Some("x".to_owned()) };
        let cut = lane.cut(&ranges);
        let bounds: Vec<_> = cut
            .iter()
            .map(|(lane, range)| (lane.keys.min.to_string(), lane.keys.max.to_string(), range.id.as_str()))
            .collect();
        assert_eq!(
            bounds,
            [("10".to_owned(), "20".to_owned(), "1"), ("20".to_owned(), "FF".to_owned(), "2")]
        );
        assert!(cut.iter().all(|(lane, _)| lane.continuation.as_deref() == Some("x")));
    }

    #[test]
    fn ranges_may_have_numbers_for_ids() {
        let row = |text: &str| PartitionRange::parse(&orrery_model::value::parse(text.as_bytes()).unwrap());
        let expected = Some(range("0", "", "FF"));
        assert_eq!(row(r#"{"id":0,"minInclusive":"","maxExclusive":"FF"}"#), expected);
        assert_eq!(row(r#"{"id":"0","minInclusive":"","maxExclusive":"FF"}"#), expected);
        assert_eq!(row(r#"{"id":null,"minInclusive":"","maxExclusive":"FF"}"#), None);
    }

    #[test]
    fn each_key_belongs_to_one_range() {
        let ranges = [range("1", "", "20"), range("2", "20", "FF")];
        for (key, expected) in [("", 0), ("05", 0), ("1FFF", 0), ("20", 1), ("3A", 1)] {
            assert_eq!(range_of(&ranges, &EffectiveKey::parse(key).unwrap()), expected, "{key}");
        }
    }

    #[test]
    fn header_json_is_ascii() {
        assert_eq!(ascii_json("[\"aé😀\"]"), "[\"a\\u00e9\\ud83d\\ude00\"]");
    }
}
