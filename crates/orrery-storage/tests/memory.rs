//! The memory use of the embedded store, measured with a counting allocator: blocks, including allocator overhead, must
//! stay within the configured cache size.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use orrery_storage::{
    Direction, Embedded, EmbeddedOptions, Entry, KeyRange, PartitionId, PartitionRef, PartitionStore,
    ReadRequest, Scan, Want,
};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

/// The size class that mimalloc uses for an allocation: four per power of two.
fn taken(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / 8).max(16);
    bytes.div_ceil(step) * step
}

// SAFETY: every call is forwarded to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(taken(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(taken(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CACHE_BYTES: usize = 9 << 20;
const PARTITION: PartitionRef = PartitionRef { id: PartitionId(1), epoch: 0 };

/// Incompressible items of a kilobyte, with as many short index entries as real items have.
fn entries(numbers: std::ops::Range<u64>) -> Vec<Entry> {
    let mut made = Vec::new();
    for number in numbers {
        let mut state = number;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()
        };
        let mut text = |words: usize| (0..words).flat_map(|_| next()).collect::<Vec<u8>>();
        let item = [b"item".to_vec(), number.to_be_bytes().to_vec()].concat();
        made.push(Entry { key: item, value: text(128).into() });
        for index in 0..8_u8 {
            made.push(Entry {
                key: [b"x".to_vec(), vec![index], text(12)].concat(),
                value: vec![0; 8].into(),
            });
        }
    }
    made
}

async fn read_everything(store: &Embedded) -> usize {
    let (mut start, mut count) = (Vec::new(), 0);
    loop {
        let scan = Scan {
            range: KeyRange { start, end: None },
            direction: Direction::Forward,
            entries_max: 1000,
            bytes_max: 1 << 20,
            want: Want::KeysAndValues,
        };
        let page = store.read(PARTITION, ReadRequest::Scan(scan)).await.unwrap();
        count += page.entries.len();
        match page.entries.last() {
            Some(last) if page.more => start = [last.key.as_slice(), &[0]].concat(),
            _ => return count,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_stays_within_its_budget() {
    const ITEMS: u64 = 12_000;
    let directory = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions {
        cache_bytes: CACHE_BYTES as u64,
        memtable_bytes: 1 << 20,
        table_bytes: 1 << 20,
        ..EmbeddedOptions::default()
    };
    let path = directory.path().join("data");
    let store = Embedded::open(&path, options.clone()).unwrap();
    store.create(PARTITION.id, 0).await.unwrap();
    for first in (0..ITEMS).step_by(500) {
        store.bulk_load(PARTITION, entries(first..first + 500)).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    // Everything is in tables now.
    let before = HELD.load(Ordering::Relaxed);
    let store = Embedded::open(&path, options).unwrap();
    for _ in 0..2 {
        assert_eq!(read_everything(&store).await as u64, 9 * ITEMS);
    }
    let held = HELD.load(Ordering::Relaxed) - before;
    assert!(held <= CACHE_BYTES, "{held} of {CACHE_BYTES} bytes");
    // The cache is fully used: there is more data than fits.
    assert!(held >= CACHE_BYTES / 2, "{held} of {CACHE_BYTES} bytes");
}
