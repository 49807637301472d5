//! The start of the next page of a query, as encoded in its continuation token.
//!
//! A JSON object, because sort values are JSON: `{"k":"<base64 key>","s":rows,"p":passed}` for streams, with
//! `"i":candidate,"a":[["<min>","<max>","<base64 key>"]]` if they follow the index,
//! `{"v":[…],"o":ordinal,"r":row,"p":passed}` for sorted rows, `{"n":returned,"i":candidate}` for rows that must be
//! recomputed.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery_model::partition_key::{EffectiveKey, EpkRange};
use orrery_model::value::{self, Value};
use orrery_model::{Object, Result};
use orrery_query::pipeline::{ResumePoint, ResumeValue};
use orrery_storage::Key;

use crate::catalog::Partition;
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
        /// For index entries, which are ordered inside a partition only: the partition that `key` was in, and
        /// the larger ones, since split, in which earlier pages had stopped. The smallest comes first.
        areas: Vec<Area>,
    },
    /// After a row in sort order.
    Sorted { point: ResumePoint, passed: u64 },
    /// After this many rows, computed along an index candidate or from all items.
    Counted { returned: u64, path: Option<u32> },
}

/// The range of a partition, which stays valid after a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub min: EffectiveKey,
    pub max: EffectiveKey,
    /// Entries before this one were read.
    pub key: Key,
}

impl Area {
    pub(crate) fn covers(&self, range: &EpkRange) -> bool {
        self.min <= range.min && range.max <= self.max
    }
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
}

impl StreamStart {
    /// The same position in the current index: its generation may have changed since the last page.
    pub(crate) fn in_generation(mut self, generation: u32) -> Self {
        if !self.areas.is_empty() {
            self.key = index_entry::in_generation(self.key, generation);
        }
        for area in &mut self.areas {
            area.key = index_entry::in_generation(std::mem::take(&mut area.key), generation);
        }
        self
    }

    /// The areas of a page that ends at this key: its own partition, and the rest of the larger ones.
    pub(crate) fn areas_at(&self, by_entries: bool, partition: &Partition, key: &Key) -> Vec<Area> {
        if !by_entries {
            return Vec::new();
        }
        let range = &partition.range;
        let own = Area { min: range.min.clone(), max: range.max.clone(), key: key.clone() };
        let larger = self.areas.iter().filter(|area| area.max > range.max).cloned();
        std::iter::once(own).chain(larger).collect()
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
                let areas = areas.iter().map(|area| {
                    let key = URL_SAFE_NO_PAD.encode(&area.key);
                    Value::from(vec![area.min.to_string().into(), area.max.to_string().into(), key.into()])
                });
                object.set("a", areas.collect::<Vec<_>>().into());
            }
            Self::Sorted { point, passed } => {
                object.set("v", point.values.iter().map(ResumeValue::to_value).collect::<Vec<_>>().into());
                object.set("o", number(point.ordinal.unwrap_or(0)));
                object.set("r", number(u64::from(point.row)));
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
        if let Some(returned) = number("n") {
            return Some(Self::Counted { returned, path });
        }
        let passed = number("p")?;
        if let Some(text) = value.get("k").and_then(Value::as_str) {
            let skip_rows = u32::try_from(number("s")?).ok()?;
            let bound = |value: &Value| EffectiveKey::parse(value.as_str()?).ok();
            let areas = value.get("a")?.as_array()?.iter().map(|area| match area.as_array()? {
                [min, max, key] => Some(Area {
                    min: bound(min)?,
                    max: bound(max)?,
                    key: URL_SAFE_NO_PAD.decode(key.as_str()?).ok()?,
                }),
                _ => None,
            });
            let areas = areas.collect::<Option<Vec<_>>>()?;
            let key = URL_SAFE_NO_PAD.decode(text).ok()?;
            return Some(Self::Stream { key, skip_rows, passed, path, areas });
        }
        let values =
            value.get("v")?.as_array()?.iter().map(ResumeValue::parse).collect::<Option<Vec<_>>>()?;
        let row = u32::try_from(number("r")?).ok()?;
        let point = ResumePoint { values, ordinal: Some(number("o")?), row, exclude: true };
        Some(Self::Sorted { point, passed })
    }
}

#[cfg(test)]
mod tests {
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
