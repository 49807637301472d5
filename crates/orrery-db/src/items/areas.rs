//! Where the next page continues if keys are in order inside a partition only: by index entries, or by RIDs.
//!
//! A mark alone would not do, because partitions are split and merged between two pages. So it comes with the range of
//! keys that it speaks of, its *area*. Inside a larger area that was split, an earlier page may have stopped in a child:
//! then both are needed, the smaller one first.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery_model::Value;
use orrery_model::partition_key::{EffectiveKey, EpkRange};
use orrery_storage::Key;

use crate::layout::keys;

/// A range of keys, which stays valid after a split, and a mark in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub min: EffectiveKey,
    pub max: EffectiveKey,
    /// What comes before this one was read.
    pub key: Key,
}

static NO_KEY: Key = Key::new();

impl Area {
    fn covers(&self, range: &EpkRange) -> bool {
        self.min <= range.min && range.max <= self.max
    }

    pub(crate) fn to_value(&self) -> Value {
        let key = URL_SAFE_NO_PAD.encode(&self.key);
        Value::from(vec![self.min.to_string().into(), self.max.to_string().into(), key.into()])
    }

    pub(crate) fn parse(value: &Value) -> Option<Self> {
        let bound = |value: &Value| EffectiveKey::parse(value.as_str()?).ok();
        match value.as_array()? {
            [min, max, key] => Some(Self {
                min: bound(min)?,
                max: bound(max)?,
                key: URL_SAFE_NO_PAD.decode(key.as_str()?).ok()?,
            }),
            _ => None,
        }
    }
}

/// The pieces of a range of keys that are left to read, each with the mark to continue from. `key` is the mark if it is
/// in order everywhere, so that there are no areas.
pub(crate) fn pieces<'a>(areas: &'a [Area], key: &'a Key, range: &EpkRange) -> Vec<(EpkRange, &'a Key)> {
    let Some(current) = areas.first() else { return vec![(range.clone(), key)] };
    // Every bound of an area is a cut, so that each piece has exactly one mark.
    let mut cuts = vec![range.min.clone(), range.max.clone()];
    cuts.extend(areas.iter().flat_map(|area| [area.min.clone(), area.max.clone()]));
    // What lies before the smallest area was read by earlier pages.
    cuts.retain(|cut| range.min <= *cut && *cut <= range.max && *cut >= current.min);
    cuts.sort();
    cuts.dedup();
    let pieces = cuts.windows(2).map(|cut| EpkRange { min: cut[0].clone(), max: cut[1].clone() });
    // The smallest area that covers a piece comes first and has the latest mark.
    let mark = |piece: &EpkRange| areas.iter().find(|area| area.covers(piece)).map(|area| &area.key);
    pieces.map(|piece| (piece.clone(), mark(&piece).unwrap_or(&NO_KEY))).collect()
}

/// The areas of a page that ends at this mark of a piece: the piece, and the rest of the larger ones. Item keys need
/// none: they are in order everywhere.
pub(crate) fn areas_at(areas: &[Area], piece: &EpkRange, key: &Key) -> Vec<Area> {
    if keys::is_item(key) {
        return Vec::new();
    }
    let own = Area { min: piece.min.clone(), max: piece.max.clone(), key: key.clone() };
    // Areas that end within the piece are done with; larger ones still speak of what follows.
    let larger = areas.iter().filter(|area| area.max > piece.max).cloned();
    std::iter::once(own).chain(larger).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(min: &str, max: &str) -> EpkRange {
        EpkRange { min: EffectiveKey::parse(min).unwrap(), max: EffectiveKey::parse(max).unwrap() }
    }

    fn area(min: &str, max: &str, key: u8) -> Area {
        let EpkRange { min, max } = range(min, max);
        Area { min, max, key: vec![0x18, key] }
    }

    /// Areas, a partition, and its pieces with their marks.
    #[test]
    fn partitions_continue_after_splits_and_merges() {
        let check = |areas: &[Area], partition: (&str, &str), expected: &[(&str, &str, Option<u8>)]| {
            let found = pieces(areas, &NO_KEY, &range(partition.0, partition.1));
            let expected: Vec<(EpkRange, Key)> = expected
                .iter()
                .map(|(min, max, key)| (range(min, max), key.map_or(Key::new(), |key| vec![0x18, key])))
                .collect();
            let found: Vec<(EpkRange, Key)> =
                found.into_iter().map(|(piece, key)| (piece, key.clone())).collect();
            assert_eq!(found, expected, "{areas:?} {partition:?}");
        };
        let one = [area("10", "20", 1)];
        check(&[], ("10", "20"), &[("10", "20", None)]);
        check(&one, ("", "10"), &[]);
        check(&one, ("10", "20"), &[("10", "20", Some(1))]);
        check(&one, ("20", "30"), &[("20", "30", None)]);
        // Split.
        check(&one, ("10", "18"), &[("10", "18", Some(1))]);
        check(&one, ("18", "20"), &[("18", "20", Some(1))]);
        // Stopped in the first child.
        let two = [area("10", "18", 2), area("10", "20", 1)];
        check(&two, ("10", "18"), &[("10", "18", Some(2))]);
        check(&two, ("18", "20"), &[("18", "20", Some(1))]);
        // Merged again, and with the neighbours.
        check(&two, ("10", "20"), &[("10", "18", Some(2)), ("18", "20", Some(1))]);
        check(&one, ("", "30"), &[("10", "20", Some(1)), ("20", "30", None)]);
    }

    #[test]
    fn the_rest_of_a_larger_area_is_kept() {
        let at = vec![0x18, 9];
        assert_eq!(
            areas_at(&[area("10", "20", 1)], &range("10", "18"), &at),
            [area("10", "18", 9), area("10", "20", 1)]
        );
        assert_eq!(areas_at(&[area("10", "20", 1)], &range("18", "20"), &at), [area("18", "20", 9)]);
        assert_eq!(areas_at(&[area("10", "20", 1)], &range("10", "20"), &vec![0x10, 1, 0, 0]), []);
    }
}
