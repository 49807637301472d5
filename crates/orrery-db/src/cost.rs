//! Request units: one deterministic model, in hundredths of a unit.
//!
//! Charges depend only on the request and the data it touches (sizes, index terms changed), never on time or
//! caches. The size tables are the service's published figures; sizes in between are interpolated.

use orrery_model::container::{ContainerDefinition, IndexingMode};
use orrery_model::{Charge, Value};

/// Item size in KB and the charge of reading it by key, in hundredths.
const POINT_READ: [(u64, u64); 12] = [
    (1, 100),
    (2, 104),
    (4, 114),
    (8, 133),
    (16, 167),
    (32, 219),
    (64, 476),
    (128, 995),
    (256, 2028),
    (512, 4095),
    (1024, 14_590),
    (2048, 29_180),
];

/// Item size in KB and the charge of writing it without index terms, in hundredths.
const WRITE: [(u64, u64); 12] = [
    (1, 495),
    (2, 629),
    (4, 667),
    (8, 704),
    (16, 952),
    (32, 1123),
    (64, 2267),
    (128, 4819),
    (256, 9829),
    (512, 18_457),
    (1024, 62_500),
    (2048, 125_000),
];

/// Per index term added or removed.
const TERM: u64 = 20;

/// Reading an item of this many bytes by its key.
pub fn point_read(bytes: usize) -> Charge {
    interpolate(&POINT_READ, bytes)
}

/// A read that found nothing, or nothing new.
pub fn missing_item() -> Charge {
    Charge::from_hundredths(100)
}

/// Writing an item of this many bytes over the old one, if there was one: the base by size, plus the index
/// terms that come and go, plus, for a replacement, the removal of the old version.
pub fn write(bytes: usize, old: Option<&Value>, new: &Value, definition: &ContainerDefinition) -> Charge {
    let new_terms = terms(new, definition);
    match old {
        None => base_write(bytes) + per_term(new_terms.len()),
        Some(old) => {
            let changed = difference(&terms(old, definition), &new_terms);
            base_write(bytes) + Charge::from_hundredths(500) + per_term(changed)
        }
    }
}

/// Each operation of a patch.
pub fn patch_operations(count: usize) -> Charge {
    Charge::from_hundredths(40 * count as u64)
}

/// Deleting an item.
pub fn delete(old: Option<&Value>, definition: &ContainerDefinition) -> Charge {
    let removed = old.map_or(0, |old| terms(old, definition).len());
    Charge::from_hundredths(500) + per_term(removed)
}

/// A write that was refused after looking at an item of this size.
pub fn refused_write(bytes: usize) -> Charge {
    Charge::from_hundredths(24) + point_read(bytes)
}

/// A query that visited so many partitions, read so many items and bytes, and returned so many bytes.
pub fn query(partitions: usize, items: u64, item_bytes: u64, output_bytes: usize) -> Charge {
    let extra_partitions = partitions.saturating_sub(1) as u64;
    Charge::from_hundredths(
        230 + 250 * extra_partitions + 2 * items + item_bytes / 1024 + output_bytes as u64 / 1024,
    )
}

/// Reading or changing a database, a container, an offer, a user …
pub fn metadata_read() -> Charge {
    Charge::from_hundredths(100)
}

pub fn metadata_write() -> Charge {
    Charge::from_hundredths(495)
}

fn base_write(bytes: usize) -> Charge {
    interpolate(&WRITE, bytes)
}

fn per_term(count: usize) -> Charge {
    Charge::from_hundredths(TERM * count as u64)
}

fn interpolate(table: &[(u64, u64)], bytes: usize) -> Charge {
    let bytes = bytes as u64;
    let (first, last) = (table[0], table[table.len() - 1]);
    if bytes <= first.0 * 1024 {
        return Charge::from_hundredths(first.1);
    }
    let upper = table.iter().position(|(kilobytes, _)| bytes <= kilobytes * 1024).unwrap_or(table.len() - 1);
    let ((lower_kb, lower), (upper_kb, higher)) = (table[upper - 1], table[upper]);
    let bytes = bytes.min(last.0 * 1024);
    let done = bytes - lower_kb * 1024;
    let whole = (upper_kb - lower_kb) * 1024;
    Charge::from_hundredths(lower + (higher - lower) * done / whole)
}

/// The index terms of an item, hashed and sorted: one for each scalar that the policy indexes.
fn terms(value: &Value, definition: &ContainerDefinition) -> Vec<u64> {
    let mut terms = Vec::new();
    if definition.indexing.mode != IndexingMode::None {
        collect_terms(value, FNV_START, &mut terms);
    }
    terms.sort_unstable();
    terms.dedup();
    terms
}

const FNV_START: u64 = 0xCBF2_9CE4_8422_2325;

fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

fn collect_terms(value: &Value, path: u64, terms: &mut Vec<u64>) {
    match value {
        Value::Object(object) => {
            for (name, member) in object.iter() {
                collect_terms(member, fnv(fnv(path, b"/"), name.as_bytes()), terms);
            }
        }
        Value::Array(items) => {
            let path = fnv(path, b"/[]");
            for item in items {
                collect_terms(item, path, terms);
            }
        }
        Value::Null => terms.push(fnv(path, b"n")),
        Value::Bool(flag) => terms.push(fnv(path, if *flag { b"t" } else { b"f" })),
        Value::Number(number) => terms.push(fnv(fnv(path, b"#"), &number.as_f64().to_bits().to_be_bytes())),
        Value::String(text) => terms.push(fnv(fnv(path, b"s"), text.as_bytes())),
    }
}

/// How many terms are in one list but not in the other.
fn difference(old: &[u64], new: &[u64]) -> usize {
    let (mut at_old, mut at_new, mut common) = (0, 0, 0);
    while at_old < old.len() && at_new < new.len() {
        match old[at_old].cmp(&new[at_new]) {
            std::cmp::Ordering::Less => at_old += 1,
            std::cmp::Ordering::Greater => at_new += 1,
            std::cmp::Ordering::Equal => {
                (at_old, at_new, common) = (at_old + 1, at_new + 1, common + 1);
            }
        }
    }
    old.len() + new.len() - 2 * common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_sizes_cost_what_is_published() {
        for (kilobytes, hundredths) in POINT_READ {
            let bytes = usize::try_from(kilobytes * 1024).unwrap();
            assert_eq!(point_read(bytes).hundredths(), hundredths);
        }
        assert_eq!(point_read(0).hundredths(), 100);
        // A point read of 100 KB is documented as about 10 units; the table has 7.71 there.
        assert_eq!(point_read(100 * 1024).hundredths(), 767);
        assert_eq!(point_read(3 * 1024).hundredths(), 109);
        assert_eq!(point_read(usize::MAX).hundredths(), 29_180);
    }
}
