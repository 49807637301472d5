//! Random operations compared with a naive in-memory map.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

use bytes::Bytes;
use orrery_storage::{Direction, KeyPacker, ReadRequest, Want};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<(Key, Vec<u8>)>, Vec<Key>),
    /// Puts, or deletes without a value, keys that no operation reads.
    WriteUnread(Vec<Key>, Option<Vec<u8>>),
    Reject,
    Load(Vec<(Key, Vec<u8>)>),
    DeleteRange(KeyRange, usize),
    Get(Vec<Key>),
    Scan(Scan),
    Snapshot,
    Reopen {
        close: bool,
    },
}

fn any_key() -> impl Strategy<Value = Key> {
    // Few distinct bytes and short keys, so that keys collide, are prefixes of each other and end in FF.
    prop::collection::vec(prop::sample::select(vec![0_u8, 1, b'a', 0xFE, 0xFF]), 0..4)
}

fn any_range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        (any_key(), prop::option::of(any_key())).prop_map(|(start, end)| KeyRange { start, end }),
        any_key().prop_map(|prefix| KeyRange::prefix(&prefix)),
    ]
}

fn any_entries() -> impl Strategy<Value = Vec<(Key, Vec<u8>)>> {
    let value = prop_oneof![prop::collection::vec(any::<u8>(), 0..20), Just(vec![b'v'; 3000])];
    prop::collection::btree_map(any_key(), value, 0..8).prop_map(|entries| entries.into_iter().collect())
}

fn any_scan() -> impl Strategy<Value = Scan> {
    let direction = prop::sample::select(vec![Direction::Forward, Direction::Backward]);
    let want = prop::sample::select(vec![Want::Keys, Want::KeysAndValues]);
    let bytes_max = prop_oneof![0..100_usize, Just(4 << 20)];
    (any_range(), direction, 0..12_usize, bytes_max, want).prop_map(
        |(range, direction, entries_max, bytes_max, want)| Scan {
            range,
            direction,
            entries_max,
            bytes_max,
            want,
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any_entries(), prop::collection::btree_set(any_key(), 0..4)).prop_map(|(puts, deletes)| {
            let deletes = deletes.into_iter().filter(|key| puts.iter().all(|(put, _)| put != key)).collect();
            Step::Write(puts, deletes)
        }),
        6 => (
            prop::collection::btree_set(any_key(), 1..6),
            prop::option::weighted(0.7, prop::collection::vec(any::<u8>(), 0..9)),
        )
            .prop_map(|(keys, value)| Step::WriteUnread(keys.into_iter().collect(), value)),
        1 => Just(Step::Reject),
        1 => any_entries().prop_map(Step::Load),
        2 => (any_range(), 0..6_usize).prop_map(|(range, max)| Step::DeleteRange(range, max)),
        3 => prop::collection::vec(any_key(), 0..20).prop_map(Step::Get),
        6 => any_scan().prop_map(Step::Scan),
        1 => Just(Step::Snapshot),
        1 => any::<bool>().prop_map(|close| Step::Reopen { close }),
    ]
}

type Model = BTreeMap<Key, Bytes>;

fn in_range<'a>(model: &'a Model, range: &KeyRange) -> Vec<(&'a Key, &'a Bytes)> {
    if range.is_empty() {
        return Vec::new();
    }
    let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    model.range::<[u8], _>((Bound::Included(&range.start[..]), end)).collect()
}

fn expected_page(model: &Model, scan: &Scan) -> (Vec<Entry>, bool) {
    let mut entries = in_range(model, &scan.range);
    if scan.direction == Direction::Backward {
        entries.reverse();
    }
    let mut page: Vec<Entry> = Vec::new();
    let mut bytes = 0;
    for (key, value) in entries {
        if page.len() >= scan.entries_max || (bytes >= scan.bytes_max && !page.is_empty()) {
            return (page, true);
        }
        let value = if scan.want == Want::Keys { Bytes::new() } else { value.clone() };
        bytes += key.len() + value.len();
        page.push(Entry { key: key.clone(), value });
    }
    (page, false)
}

fn borrow(entries: &[(Key, Vec<u8>)]) -> Vec<(&[u8], &[u8])> {
    entries.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect()
}

async fn run_steps(constructor: Constructor, steps: &[Step]) {
    let subject = opened(constructor).await;
    let mut store = subject.store;
    let mut model = Model::new();
    let mut lsn = 0;
    let mut snapshots = Vec::new();
    for step in steps {
        match step {
            Step::Write(puts, deletes) => {
                let deletes: Vec<&[u8]> = deletes.iter().map(Vec::as_slice).collect();
                lsn += 1;
                assert_eq!(run(&store, write(&borrow(puts), &deletes)).await.unwrap().lsn, lsn);
                model.extend(puts.iter().map(|(key, value)| (key.clone(), Bytes::from(value.clone()))));
                for key in deletes {
                    model.remove(key);
                }
            }
            Step::WriteUnread(keys, value) => {
                let mut packer = KeyPacker::default();
                for key in keys {
                    packer.bytes().extend_from_slice(key);
                    packer.end_key();
                }
                let value = value.clone().map(Bytes::from);
                let unread = vec![(packer.finish(), value.clone())];
                let writes = WriteSet { unread, ..WriteSet::default() };
                lsn += 1;
                let write = op(&[], move |_, _| Decision::Write(writes.clone(), ()));
                assert_eq!(run(&store, write).await.unwrap().lsn, lsn);
                for key in keys {
                    match &value {
                        Some(value) => drop(model.insert(key.clone(), value.clone())),
                        None => drop(model.remove(key)),
                    }
                }
            }
            Step::Reject => {
                let expected: Vec<(Key, Bytes)> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
                let keys: Vec<&[u8]> = model.keys().map(Vec::as_slice).collect();
                let check = op(&keys, move |view, _| {
                    Decision::Reject(
                        expected.iter().all(|(key, value)| view.get(key).as_ref() == Some(value)),
                    )
                });
                assert_eq!(run(&store, check).await.unwrap(), Committed { out: true, lsn });
            }
            Step::Load(entries) => {
                let loaded = entries.iter().map(|(key, value)| entry(key, value)).collect();
                store.bulk_load(PARTITION, loaded).await.unwrap();
                model.extend(entries.iter().map(|(key, value)| (key.clone(), Bytes::from(value.clone()))));
            }
            Step::DeleteRange(range, max) => {
                let keys: Vec<Key> =
                    in_range(&model, range).into_iter().take(*max).map(|(key, _)| key.clone()).collect();
                assert_eq!(store.delete_range(PARTITION, range.clone(), *max).await.unwrap(), keys.len());
                for key in keys {
                    model.remove(&key);
                }
            }
            Step::Get(keys) => {
                let page = store.read(PARTITION, ReadRequest::Get(keys.clone())).await.unwrap();
                let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
                assert_eq!((page.values, page.lsn), (expected, lsn));
            }
            Step::Scan(request) => {
                let page = scan(&store, request.clone()).await;
                assert_eq!((page.entries, page.more), expected_page(&model, request), "{request:?}");
                assert_eq!(page.lsn, lsn);
            }
            Step::Snapshot => {
                let snapshot = store.snapshot(PARTITION).await.unwrap();
                assert_eq!(snapshot.lsn(), lsn);
                snapshots.push((snapshot, model.clone()));
            }
            Step::Reopen { close } => {
                let Some(reopen) = &subject.reopen else { continue };
                snapshots.clear();
                if *close {
                    store.close().await.unwrap();
                }
                drop(store);
                store = reopen();
            }
        }
        for (snapshot, model) in &snapshots {
            let request = Scan::forward(KeyRange::all(), 1000);
            let page = snapshot.read(ReadRequest::Scan(request.clone())).await;
            match page {
                Ok(page) => assert_eq!((page.entries, page.more), expected_page(model, &request)),
                Err(error) => assert_eq!(error, StoreError::SnapshotExpired),
            }
        }
    }
    let all: Vec<(Key, Bytes)> = model.into_iter().collect();
    assert_eq!(everything(&store).await, all);
}

pub(crate) async fn random_operations(constructor: Constructor) {
    // proptest generates the cases, but they run here, because its own runner does not support async code. A failure
    // prints the seed; set ORRERY_RANDOM_SEED to replay it.
    let from_env = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seed = from_env("ORRERY_RANDOM_SEED").unwrap_or_else(|| RandomState::new().hash_one("seed"));
    let cases = from_env("ORRERY_RANDOM_CASES").unwrap_or(25);
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() });
    for _ in 0..cases {
        let steps = prop::collection::vec(any_step(), 1..60).new_tree(&mut runner).unwrap().current();
        let outcome = tokio::spawn({
            let steps = steps.clone();
            async move { run_steps(constructor, &steps).await }
        });
        if let Err(error) = outcome.await {
            panic!("{error}\nseed {seed}, the steps were {steps:#?}");
        }
    }
}
