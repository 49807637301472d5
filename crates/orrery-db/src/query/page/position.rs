//! The start of the next page of a query, as encoded in its continuation token.
//!
//! A JSON object, because sort values are JSON: `{"k":"<base64 key>","s":rows,"p":passed}` for streams, with
//! `"i":candidate` if they follow the index and `"a":[["<min>","<max>","<base64 key>"]]` if keys are in order inside a
//! partition only (`items/areas.rs`),
//! `{"v":[…],"o":ordinal,"r":row,"p":passed}` for sorted rows, `{"n":returned,"i":candidate}` for rows that must be
//! recomputed.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery_model::value::{self, Value};
use orrery_model::{Object, Result};
use orrery_query::pipeline::{ResumePoint, ResumeValue};
use orrery_storage::Key;

use crate::items::areas::Area;
use crate::layout::continuation::invalid;
use crate::layout::index_entry;

/// A position in the result of a query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Position {
    /// At an item, some of whose rows were returned.
    Stream {
        key: Key,
        skip_rows: u32,
        passed: u64,
        /// The number of the index candidate that was followed; none = all items.
        path: Option<u32>,
        /// For index entries and RIDs, which are in order inside a partition only: what `key` speaks of, and the
        /// larger areas, since split, in which earlier pages had stopped. The smallest comes first.
        areas: Vec<Area>,
    },
    /// After a row in sort order.
    Sorted { point: ResumePoint, passed: u64 },
    /// After this many rows, computed along an index candidate or from all items.
    Counted { returned: u64, path: Option<u32> },
}

/// Where a stream resumes.
#[derive(Default)]
pub(crate) struct StreamStart {
    pub(crate) key: Key,
    pub(crate) skip_rows: u32,
    pub(crate) passed: u64,
    /// The access path of the earlier pages; `None` = this is the first.
    #[expect(clippy::option_option, reason = "the first page, all items, or a candidate")]
    pub(crate) path: Option<Option<u32>>,
    pub(crate) areas: Vec<Area>,
    /// Whether rows come in the order in which their items were inserted, where that is cheap.
    pub(crate) by_insertion: bool,
}

impl StreamStart {
    /// The same position in the current index: its generation may have changed since the last page.
    pub(crate) fn in_generation(mut self, generation: u32) -> Self {
        if !self.areas.is_empty() {
            // Without areas the key is that of an item, which has no generation.
            self.key = index_entry::in_generation(self.key, generation);
        }
        for area in &mut self.areas {
            area.key = index_entry::in_generation(std::mem::take(&mut area.key), generation);
        }
        self
    }
}

impl Position {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut object = Object::new();
        let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
        match self {
            Self::Stream { key, skip_rows, passed, path, areas } => {
                object.set("k", Value::from(URL_SAFE_NO_PAD.encode(key)));
                object.set("s", number(u64::from(*skip_rows)));
                object.set("p", number(*passed));
                if let Some(path) = path {
                    object.set("i", number(u64::from(*path)));
                }
                object.set("a", areas.iter().map(Area::to_value).collect::<Vec<_>>().into());
            }
            Self::Sorted { point, passed } => {
                object.set("v", point.values.iter().map(ResumeValue::to_value).collect::<Vec<_>>().into());
                object.set("o", number(point.ordinal.unwrap_or(0)));
                object.set("r", number(u64::from(point.row)));
                // How many rows OFFSET and LIMIT have passed, since they count over all pages.
                object.set("p", number(*passed));
            }
            Self::Counted { returned, path } => {
                object.set("n", number(*returned));
                if let Some(path) = path {
                    object.set("i", number(u64::from(*path)));
                }
            }
        }
        Value::from(object).to_json().into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let value = value::parse(bytes).map_err(|_| invalid())?;
        Self::read(&value).ok_or_else(invalid)
    }

    fn read(value: &Value) -> Option<Self> {
        let number = |name: &str| u64::try_from(value.get(name)?.as_i64()?).ok();
        let path = number("i").and_then(|path| u32::try_from(path).ok());
        // The members tell the three kinds apart: `n`, `k` or `v`.
        if let Some(returned) = number("n") {
            return Some(Self::Counted { returned, path });
        }
        let passed = number("p")?;
        if let Some(text) = value.get("k").and_then(Value::as_str) {
            let skip_rows = u32::try_from(number("s")?).ok()?;
            let areas = value.get("a")?.as_array()?.iter().map(Area::parse);
            let areas = areas.collect::<Option<Vec<_>>>()?;
            let key = URL_SAFE_NO_PAD.decode(text).ok()?;
            return Some(Self::Stream { key, skip_rows, passed, path, areas });
        }
        let values =
            value.get("v")?.as_array()?.iter().map(ResumeValue::parse).collect::<Option<Vec<_>>>()?;
        let row = u32::try_from(number("r")?).ok()?;
        // The row itself was returned.
        let point = ResumePoint { values, ordinal: Some(number("o")?), row, exclude: true };
        Some(Self::Sorted { point, passed })
    }
}

#[cfg(test)]
mod tests {
    use orrery_model::partition_key::EffectiveKey;

    use super::*;

    #[test]
    fn positions_come_back_as_they_were() {
        let point = ResumePoint {
            values: vec![ResumeValue::Scalar(Value::from("x")), ResumeValue::Undefined],
            ordinal: Some(7),
            row: 2,
            exclude: true,
        };
        for position in [
            Position::Stream {
                key: vec![0x10, 0, 0xFF],
                skip_rows: 3,
                passed: 9,
                path: None,
                areas: Vec::new(),
            },
            Position::Stream {
                key: vec![0x20],
                skip_rows: 0,
                passed: 0,
                path: Some(2),
                areas: vec![Area { min: EffectiveKey::MIN, max: EffectiveKey::max(), key: vec![0x20] }],
            },
            Position::Sorted { point, passed: 4 },
            Position::Counted { returned: 12, path: Some(3) },
        ] {
            assert_eq!(Position::decode(&position.encode()), Ok(position));
        }
        assert!(Position::decode(b"{}").is_err());
    }

    /// What is read as a position is written so that it reads the same.
    #[test]
    fn fuzz_positions() {
        let seeds = [
            br#"{"k":"EAD_","s":3,"p":9,"i":2,"a":[["","FF","EA"]]}"#.to_vec(),
            br#"{"v":["x",[],{"type":"array"}],"o":7,"r":2,"p":4}"#.to_vec(),
            br#"{"n":12,"i":3}"#.to_vec(),
        ];
        orrery_testing::fuzz::fuzz("positions", &seeds, |input| {
            if let Ok(position) = Position::decode(input) {
                assert_eq!(Position::decode(&position.encode()), Ok(position));
            }
        });
    }
}
