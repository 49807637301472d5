//! Request units: one deterministic model, in hundredths of a unit.
//!
//! Charges depend only on the request and the data it touches (sizes, index terms changed), never on time or
//! caches. The size tables are the service's published figures; sizes in between are interpolated.

use orrery_model::Charge;

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

/// Removing a version, whatever its size.
const REMOVAL: Charge = Charge::from_hundredths(500);

/// Reading an item of this many bytes by its key.
pub fn point_read(bytes: usize) -> Charge {
    interpolate(&POINT_READ, bytes)
}

/// A read that found nothing, or nothing new.
pub fn missing_item() -> Charge {
    Charge::from_hundredths(100)
}

/// Creating an item of this many bytes with so many index terms.
pub(crate) fn create(bytes: usize, terms: usize) -> Charge {
    base_write(bytes) + per_term(terms)
}

/// Replacing an item: removing the old version, writing the new one, and the index terms that come and go.
pub(crate) fn replace(bytes: usize, terms_changed: usize) -> Charge {
    base_write(bytes) + REMOVAL + per_term(terms_changed)
}

/// Each operation of a patch.
pub fn patch_operations(count: usize) -> Charge {
    Charge::from_hundredths(40 * count as u64)
}

/// Deleting an item with so many index terms.
pub(crate) fn delete(terms: usize) -> Charge {
    REMOVAL + per_term(terms)
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
        for (kilobytes, hundredths) in WRITE {
            let bytes = usize::try_from(kilobytes * 1024).unwrap();
            assert_eq!(create(bytes, 0).hundredths(), hundredths);
        }
    }

    #[test]
    fn index_terms_and_removals_cost_what_is_published() {
        assert_eq!(create(1024, 2).hundredths(), 535);
        // Published as 10.8 for 1 KB with two terms, both of which change.
        assert_eq!(replace(1024, 4).hundredths(), 1075);
        assert_eq!(delete(2).hundredths(), 540);
        assert_eq!(patch_operations(3).hundredths(), 120);
    }
}
