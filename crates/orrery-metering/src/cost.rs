//! Request units: one deterministic model, in hundredths of a unit.
//!
//! Charges depend only on the request and the data it touches (sizes, index terms changed, partitions visited,
//! entries and items read, bytes out), never on time or caches.
//!
//! Where the figures come from:
//! * Point reads and writes by size: the service's published tables; sizes in between are interpolated. 100 KB,
//!   which the documentation gives as about 10 for a read and 50 for a write, is a point of its own.
//! * 0.2 per index term, 5 for a removal, 0.4 per patch operation: published examples (a replace of 1 KB with
//!   two terms costs 10.8, a delete 5 and its terms). A string makes a term for each 16 bytes, up to three: so the
//!   published example of a blog, whose items hold several long identifiers, costs what it says.
//! * Queries: at least 2.3, and 2 to 3 for each further physical partition, are published. The rest is fitted to
//!   the three published charges whose items and bytes are published too: 3.19 for one item of 10 KB found by the
//!   index, 2.98 for one of about 6.5 KB, and 4059.95 for a scan of 60,951 items with 400 MB.
//! * A rejected write, a metadata operation: as observed in the service.

use orrery_model::Charge;

/// Item size in KB and the charge of reading it by key, in hundredths.
const POINT_READ: [(u64, u64); 13] = [
    (1, 100),
    (2, 104),
    (4, 114),
    (8, 133),
    (16, 167),
    (32, 219),
    (64, 476),
    (100, 950),
    (128, 995),
    (256, 2028),
    (512, 4095),
    (1024, 14_590),
    (2048, 29_180),
];

/// Item size in KB and the charge of writing it without index terms, in hundredths.
const WRITE: [(u64, u64); 13] = [
    (1, 495),
    (2, 629),
    (4, 667),
    (8, 704),
    (16, 952),
    (32, 1123),
    (64, 2267),
    (100, 4700),
    (128, 4819),
    (256, 9829),
    (512, 18_457),
    (1024, 62_500),
    (2048, 125_000),
];

/// Per index term added or removed.
const TERM: u64 = 20;
/// Bytes of a string that make one term, and the most terms that it makes.
const TERM_STRING_BYTES: usize = 16;
const STRING_TERMS_MAX: usize = 3;
/// Longer strings make no more terms.
pub const STRING_BYTES_MAX: usize = TERM_STRING_BYTES * STRING_TERMS_MAX;

/// How many index terms a string of this many bytes makes.
pub fn string_terms(bytes: usize) -> usize {
    bytes.div_ceil(TERM_STRING_BYTES).clamp(1, STRING_TERMS_MAX)
}

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

/// Creating an item of this many bytes with this many index terms.
pub fn create(bytes: usize, terms: usize) -> Charge {
    base_write(bytes) + per_term(terms)
}

/// Replacing an item: removing the old version, writing the new one, and the index terms that come and go.
pub fn replace(bytes: usize, terms_changed: usize) -> Charge {
    base_write(bytes) + REMOVAL + per_term(terms_changed)
}

/// Each operation of a patch.
pub fn patch_operations(count: usize) -> Charge {
    Charge::from_hundredths(40 * count as u64)
}

/// Deleting an item with this many index terms.
pub fn delete(terms: usize) -> Charge {
    REMOVAL + per_term(terms)
}

/// A write that was rejected after reading an item of this size.
pub fn refused_write(bytes: usize) -> Charge {
    Charge::from_hundredths(24) + point_read(bytes)
}

/// The first partition that a query visits, and each further one.
const QUERY_PARTITION_FIRST: u64 = 230;
const QUERY_PARTITION_MORE: u64 = 250;
/// The rest of a query in ten-thousandths of a unit: its steps are smaller than a hundredth.
const QUERY_INDEX_ENTRY: u64 = 20;
const QUERY_ITEM: u64 = 150;
const QUERY_ITEM_KB: u64 = 80;
const QUERY_OUTPUT_KB: u64 = 550;
/// Looking into the index at all.
const QUERY_INDEX_LOOKUP: u64 = 26;

/// The work of a query page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryWork {
    pub partitions: u64,
    pub index_entries: u64,
    pub items: u64,
    pub item_bytes: u64,
    pub output_bytes: u64,
}

/// A component of a charge: an amount with its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub what: &'static str,
    pub quantity: u64,
    pub charge: Charge,
}

/// A query page.
pub fn query(work: &QueryWork) -> Charge {
    query_parts(work).iter().map(|part| part.charge).sum()
}

/// Evaluation steps included for every page, plus those for each byte of the items it reads. Queries that read each
/// property of each item a few times stay far below.
const EVALUATION_STEPS_FREE: u64 = 100_000;
const EVALUATION_STEPS_FREE_PER_BYTE: u64 = 8;
/// Further steps per hundredth of a unit. No figure is published; a step takes a few nanoseconds, so that a unit buys
/// about as much CPU time as elsewhere.
const EVALUATION_STEPS: u64 = 1_000;

/// The charge for evaluation beyond what is usual for the items read.
pub fn evaluation(steps: u64, item_bytes: u64) -> Charge {
    // Ordinary evaluation is part of the charges for items and bytes, which were fitted with it.
    let free = EVALUATION_STEPS_FREE + item_bytes.saturating_mul(EVALUATION_STEPS_FREE_PER_BYTE);
    Charge::from_hundredths(steps.saturating_sub(free) / EVALUATION_STEPS)
}

/// The components of a query page's charge. Each is rounded separately, so that they add up.
pub fn query_parts(work: &QueryWork) -> [Part; 6] {
    let partitions = QUERY_PARTITION_FIRST + QUERY_PARTITION_MORE * work.partitions.saturating_sub(1);
    // One lookup per page, however many entries it reads.
    let lookups = u64::from(work.index_entries > 0);
    let small = |what, quantity: u64, each: u64| Part {
        what,
        quantity,
        // From ten-thousandths, rounded up: work is never free.
        charge: Charge::from_hundredths(quantity.saturating_mul(each).div_ceil(100)),
    };
    let kilobytes = |what, bytes: u64, each: u64| Part {
        what,
        quantity: bytes,
        charge: Charge::from_hundredths(bytes.saturating_mul(each).div_ceil(1024 * 100)),
    };
    [
        Part { what: "partitions", quantity: work.partitions, charge: Charge::from_hundredths(partitions) },
        Part {
            what: "indexLookup",
            quantity: lookups,
            charge: Charge::from_hundredths(QUERY_INDEX_LOOKUP * lookups),
        },
        small("indexEntries", work.index_entries, QUERY_INDEX_ENTRY),
        small("itemsLoaded", work.items, QUERY_ITEM),
        kilobytes("bytesLoaded", work.item_bytes, QUERY_ITEM_KB),
        kilobytes("bytesReturned", work.output_bytes, QUERY_OUTPUT_KB),
    ]
}

/// A page of the change feed with this many changes and bytes: one unit for the lookup, plus items and bytes as for a
/// query. No figure is published; a page of a hundred small items costs few units, or a reader with one unit a second
/// could not read two of them in ten seconds (`readFeedDocumentsWithThroughputControl` of the Java SDK).
pub fn changes(count: usize, bytes: usize) -> Charge {
    let work = QueryWork {
        partitions: 1,
        index_entries: 0,
        items: count as u64,
        item_bytes: bytes as u64,
        output_bytes: bytes as u64,
    };
    // Without the first part, the base charge of a query.
    let reading = query_parts(&work).iter().skip(1).map(|part| part.charge).sum::<Charge>();
    missing_item() + reading
}

/// The components of a point read's charge.
pub fn read_parts(bytes: usize) -> Vec<Part> {
    vec![Part { what: "bytesRead", quantity: bytes as u64, charge: point_read(bytes) }]
}

/// The components of a write's charge: the new version, the removal of the old one, and changed index terms.
pub fn write_parts(new_bytes: Option<usize>, removes: bool, terms: usize, patch_count: usize) -> Vec<Part> {
    let mut parts = Vec::new();
    if let Some(bytes) = new_bytes {
        parts.push(Part { what: "bytesWritten", quantity: bytes as u64, charge: base_write(bytes) });
    }
    if removes {
        parts.push(Part { what: "versionRemoved", quantity: 1, charge: REMOVAL });
    }
    // Listed even if it is zero, so that a reader sees that no term changed.
    parts.push(Part { what: "indexTermsChanged", quantity: terms as u64, charge: per_term(terms) });
    if patch_count > 0 {
        let charge = patch_operations(patch_count);
        parts.push(Part { what: "patchOperations", quantity: patch_count as u64, charge });
    }
    parts
}

/// Running a script, beside the operations it carries out. No figure is published; ours is that of a point read.
pub fn script() -> Charge {
    Charge::from_hundredths(100)
}

/// Reading or changing a database, a container, an offer, a user …
pub fn metadata_read() -> Charge {
    Charge::from_hundredths(100)
}

pub fn metadata_write() -> Charge {
    Charge::from_hundredths(495)
}

/// How many index terms cost this many hundredths.
pub fn terms_for(hundredths: u64) -> usize {
    usize::try_from(hundredths / TERM).unwrap_or(usize::MAX)
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
    // Sizes beyond the table are charged like its last entry; items have at most that size.
    let upper = table.iter().position(|(kilobytes, _)| bytes <= kilobytes * 1024).unwrap_or(table.len() - 1);
    let ((lower_kb, lower), (upper_kb, higher)) = (table[upper - 1], table[upper]);
    let bytes = bytes.min(last.0 * 1024);
    // Integers throughout, rounded down: the same size always has the same charge.
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

    #[test]
    fn parts_add_up_to_what_is_charged() {
        let sum = |parts: Vec<Part>| -> Charge { parts.iter().map(|part| part.charge).sum() };
        assert_eq!(sum(read_parts(5000)), point_read(5000));
        assert_eq!(sum(write_parts(Some(3000), false, 7, 0)), create(3000, 7));
        assert_eq!(sum(write_parts(Some(3000), true, 3, 2)), replace(3000, 3) + patch_operations(2));
        assert_eq!(sum(write_parts(None, true, 3, 0)), delete(3));
    }

    #[test]
    fn queries_cost_their_partitions_and_what_they_read() {
        let work = |partitions, items: u64| QueryWork {
            partitions,
            index_entries: items,
            items,
            item_bytes: items * 1024,
            output_bytes: items * 1024,
        };
        assert_eq!(query(&work(1, 0)).hundredths(), 230);
        // 2 to 3 units for each further partition.
        assert_eq!(query(&work(4, 0)).hundredths(), 230 + 3 * 250);
    }

    #[test]
    fn pages_of_the_change_feed_cost_a_look_and_what_they_carry() {
        assert_eq!(changes(0, 0).hundredths(), 100);
        let small = changes(100, 30_000).as_f64();
        assert!((2.0..6.0).contains(&small), "{small}");
        assert!(changes(100, 100 << 10) > changes(100, 30_000));
    }

    /// Items loaded and their bytes, rows' bytes, and the charge, as the documentation prints them together.
    #[test]
    fn published_queries_cost_what_is_published() {
        let examples = [
            // "Optimize request cost", sample query metrics.
            (1, 9_963, 10_012, true, 3.19),
            // "Troubleshoot query issues", an indexed filter on the nutrition data set, whose items have 6,562 bytes.
            (1, 6_562, 6_562, true, 2.98),
            // The same page, UPPER() in a filter.
            (60_951, 399_998_938, 510, false, 4059.95),
        ];
        for (items, item_bytes, output_bytes, is_indexed, published) in examples {
            let index_entries = if is_indexed { items } else { 0 };
            let work = QueryWork { partitions: 1, index_entries, items, item_bytes, output_bytes };
            let found = query(&work).as_f64();
            assert!((found - published).abs() <= published * 0.02, "{found} for {published}");
        }
    }
}
