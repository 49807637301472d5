//! Reads, scans and snapshots.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orrery_storage::{Direction, Limits, ReadRequest, Tally, TallyBy, Want};

use super::*;

async fn with_letters(constructor: Constructor) -> Subject {
    let subject = opened(constructor).await;
    for letter in b'a'..=b'j' {
        put(&subject.store, &[letter], &[letter; 10]).await;
    }
    // A deleted key and a rewritten value, as in any real partition.
    run(&subject.store, write(&[(b"c", b"again")], &[b"e"])).await.unwrap();
    subject
}

fn backward(range: KeyRange, entries_max: usize) -> Scan {
    Scan { direction: Direction::Backward, ..Scan::forward(range, entries_max) }
}

fn range(start: &[u8], end: &[u8]) -> KeyRange {
    KeyRange::new(start.to_vec(), end.to_vec())
}

pub(crate) async fn gets_return_values_in_request_order(constructor: Constructor) {
    let subject = with_letters(constructor).await;
    let wanted: Vec<Key> = [&b"j"[..], b"missing", b"a", b"e", b"a"].iter().map(|key| key.to_vec()).collect();
    let page = subject.store.read(PARTITION, ReadRequest::Get(wanted)).await.unwrap();
    let expected = [Some("jjjjjjjjjj"), None, Some("aaaaaaaaaa"), None, Some("aaaaaaaaaa")];
    assert_eq!(page.values, expected.map(|value| value.map(Bytes::from)));
    assert_eq!((page.lsn, page.entries.len(), page.more), (11, 0, false));
    // More than any engine reads inline.
    let many: Vec<Key> = (0..100).map(|_| b"c".to_vec()).collect();
    let page = subject.store.read(PARTITION, ReadRequest::Get(many)).await.unwrap();
    assert_eq!(page.values, vec![Some(Bytes::from("again")); 100]);
}

pub(crate) async fn several_reads_answer_as_each_alone(constructor: Constructor) {
    let subject = with_letters(constructor).await;
    let other = PartitionRef { id: PartitionId(PARTITION.id.0 + 1), epoch: 0 };
    subject.store.create(other.id, 5).await.unwrap();
    let write_other = write(&[(b"b", b"other"), (b"q", b"")], &[]);
    commit(subject.store.as_ref(), other, write_other).await.unwrap();
    let get = |keys: &[&[u8]]| ReadRequest::Get(keys.iter().map(|key| key.to_vec()).collect());
    let scan = |range: KeyRange, entries_max: usize| {
        ReadRequest::Scan(Scan { want: Want::Keys, ..Scan::forward(range, entries_max) })
    };
    let few_bytes = Scan { want: Want::Keys, bytes_max: 2, ..Scan::forward(KeyRange::all(), 100) };
    let missing = PartitionRef { id: PartitionId(4711), epoch: 0 };
    let stale = PartitionRef { epoch: 1, ..PARTITION };
    let mixed = vec![
        (PARTITION, get(&[b"c", b"missing", b"a", b"c"])),
        (other, get(&[b"b", b"c"])),
        (PARTITION, scan(KeyRange::all(), 4)),
        (other, scan(KeyRange::all(), 2)),
        (other, scan(range(b"c", b"d"), 10)),
        (PARTITION, scan(range(b"b", b"e"), 100)),
        (PARTITION, ReadRequest::Scan(few_bytes)),
        (other, ReadRequest::Scan(Scan { want: Want::Keys, ..backward(KeyRange::all(), 1) })),
        (PARTITION, ReadRequest::Scan(Scan { want: Want::Keys, ..backward(range(b"b", b"g"), 9) })),
        (missing, get(&[b"a"])),
        (stale, scan(KeyRange::all(), 1)),
    ];
    // Reads that a store may have to send on their own.
    let others = vec![
        (other, ReadRequest::Get(Vec::new())),
        (PARTITION, ReadRequest::Scan(backward(KeyRange::all(), 2))),
        (other, scan(KeyRange::all(), 0)),
        (
            other,
            ReadRequest::Tally(Tally {
                range: KeyRange::all(),
                by: TallyBy::Range,
                entries_max: 10,
                runs_max: 1,
            }),
        ),
    ];
    let together = [mixed.clone(), others, mixed[..1].to_vec(), Vec::new()];
    for reads in together {
        let pages = subject.store.read_each(reads.clone()).await;
        assert_eq!(pages.len(), reads.len());
        for ((partition, request), page) in reads.into_iter().zip(pages) {
            let about = format!("{partition:?} {request:?}");
            match (page, subject.store.read(partition, request).await) {
                (Ok(page), Ok(alone)) => {
                    assert_eq!((page.lsn, page.more), (alone.lsn, alone.more), "{about}");
                    assert_eq!(page.values, alone.values, "{about}");
                    assert_eq!(page.entries, alone.entries, "{about}");
                    assert_eq!(page.runs, alone.runs, "{about}");
                }
                (Err(error), Err(alone)) => assert_eq!(error, alone, "{about}"),
                (page, alone) => panic!("{about}: {page:?} instead of {alone:?}"),
            }
        }
    }
}

pub(crate) async fn scans_go_both_ways(constructor: Constructor) {
    let subject = with_letters(constructor).await;
    let cases: [(KeyRange, &[u8]); 7] = [
        (KeyRange::all(), b"abcdfghij"),
        (range(b"b", b"d"), b"bc"),
        (range(b"b", b"d\0"), b"bcd"),
        (range(b"aa", b"g"), b"bcdf"),
        (KeyRange { start: b"h".to_vec(), end: None }, b"hij"),
        (KeyRange::prefix(b"d"), b"d"),
        (range(b"", b"zzz"), b"abcdfghij"),
    ];
    for (range, expected) in cases {
        let page = scan(&subject.store, Scan::forward(range.clone(), 100)).await;
        let forward: Vec<u8> = page.entries.iter().map(|entry| entry.key[0]).collect();
        assert_eq!((&forward[..], page.more, page.lsn), (expected, false, 11), "{range:?}");
        assert!(page.values.is_empty());
        let page = scan(&subject.store, backward(range.clone(), 100)).await;
        let reversed: Vec<u8> = page.entries.iter().rev().map(|entry| entry.key[0]).collect();
        assert_eq!((&reversed[..], page.more), (expected, false), "{range:?}");
    }
    let page = scan(&subject.store, Scan::forward(range(b"c", b"d"), 100)).await;
    assert_eq!(page.entries, [entry(b"c", b"again")]);
}

async fn tally(subject: &Subject, tally: Tally) -> ReadPage {
    subject.store.read(PARTITION, ReadRequest::Tally(tally)).await.unwrap()
}

fn run_of(beginning: &[u8], count: u64) -> (&[u8], u64) {
    (beginning, count)
}

fn runs(page: &ReadPage) -> Vec<(&[u8], u64)> {
    page.runs.iter().map(|run| (run.beginning.as_slice(), run.count)).collect()
}

pub(crate) async fn tallies_count_what_scans_return(constructor: Constructor) {
    let subject = with_letters(constructor).await;
    for key in [&b"k1a"[..], b"k1b", b"k1c", b"k2", b"k3a", b"k3b", b"l"] {
        put(&subject.store, key, b"value").await;
    }
    run(&subject.store, write(&[], &[b"k1b"])).await.unwrap();
    let all = |range| Tally { range, by: TallyBy::Range, entries_max: 1000, runs_max: 1 };
    for (range, count) in [(KeyRange::all(), 15), (range(b"b", b"d"), 2), (KeyRange::prefix(b"k"), 5)] {
        let page = tally(&subject, all(range)).await;
        assert_eq!((runs(&page), page.more), (vec![run_of(b"", count)], false));
        assert_eq!((page.lsn, page.entries.len(), page.values.len()), (19, 0, 0));
    }
    let nothing = [range(b"e", b"f"), range(b"x", b"y"), range(b"d", b"b"), range(b"b", b"b")];
    for range in nothing {
        let page = tally(&subject, all(range)).await;
        assert_eq!((runs(&page), page.more, page.lsn), (Vec::new(), false, 19));
    }
    // Keys that share their first two bytes, where they have as many.
    let pairs =
        |range| Tally { by: TallyBy::Beginning(|key| key.len().min(2)), runs_max: 1000, ..all(range) };
    let page = tally(&subject, pairs(range(b"i", b"z"))).await;
    let expected = [("i", 1), ("j", 1), ("k1", 2), ("k2", 1), ("k3", 2), ("l", 1)];
    let expected = expected.map(|(beginning, count)| run_of(beginning.as_bytes(), count));
    assert_eq!((runs(&page), page.more), (expected.to_vec(), false));
    // Pages end at either limit, inside a run too, and go on behind the last key that was counted.
    for (entries_max, runs_max) in [(1, 1000), (2, 1000), (3, 1000), (1000, 1), (1000, 2), (3, 2), (2, 1)] {
        let (mut range, mut counted, mut pages) = (range(b"i", b"z"), Vec::new(), 0);
        loop {
            let page = tally(&subject, Tally { entries_max, runs_max, ..pairs(range.clone()) }).await;
            assert!(page.runs.len() <= runs_max);
            assert!(page.runs.iter().map(|run| run.count).sum::<u64>() <= entries_max as u64);
            counted.extend(page.runs.into_iter().flat_map(|run| vec![run.beginning; run.count as usize]));
            pages += 1;
            if !page.more {
                break;
            }
            range.start = [page.reached.unwrap().as_slice(), &[0]].concat();
        }
        assert_eq!(counted, [&b"i"[..], b"j", b"k1", b"k1", b"k2", b"k3", b"k3", b"l"]);
        assert!(pages > 1, "{entries_max} {runs_max}");
    }
    let (mut range, mut sum) = (KeyRange::all(), 0);
    loop {
        let page = tally(&subject, Tally { entries_max: 4, ..all(range.clone()) }).await;
        sum += page.runs.iter().map(|run| run.count).sum::<u64>();
        let Some(reached) = page.reached.filter(|_| page.more) else { break };
        range.start = [reached.as_slice(), &[0]].concat();
    }
    assert_eq!(sum, 15);
    // A snapshot counts what it shows.
    let snapshot = subject.store.snapshot(PARTITION).await.unwrap();
    run(&subject.store, write(&[(b"k9", b"new")], &[b"a", b"b"])).await.unwrap();
    let page = snapshot.read(ReadRequest::Tally(all(KeyRange::all()))).await.unwrap();
    assert_eq!(runs(&page), [run_of(b"", 15)]);
    let page = snapshot.read(ReadRequest::Tally(pairs(KeyRange::prefix(b"k")))).await.unwrap();
    assert_eq!(runs(&page), [run_of(b"k1", 2), run_of(b"k2", 1), run_of(b"k3", 2)]);
    assert_eq!(runs(&tally(&subject, all(KeyRange::all())).await), [run_of(b"", 14)]);
}

pub(crate) async fn scans_stop_at_limits(constructor: Constructor) {
    let subject = with_letters(constructor).await;
    let store = &subject.store;
    let page = scan(store, Scan::forward(KeyRange::all(), 3)).await;
    assert_eq!((keys(&page), page.more), (vec![&b"a"[..], b"b", b"c"], true));
    let page = scan(store, backward(KeyRange::all(), 3)).await;
    assert_eq!((keys(&page), page.more), (vec![&b"j"[..], b"i", b"h"], true));
    let page = scan(store, Scan::forward(range(b"a", b"d"), 3)).await;
    assert_eq!((page.entries.len(), page.more), (3, false));
    let page = scan(store, Scan::forward(KeyRange::all(), 0)).await;
    assert_eq!((page.entries.len(), page.more), (0, true));
    // Each entry has eleven bytes, but c has six: the third entry reaches 25.
    for (bytes_max, expected) in [(0, 1), (1, 1), (11, 1), (12, 2), (22, 2), (25, 3), (28, 3), (29, 4)] {
        let page = scan(store, Scan { bytes_max, ..Scan::forward(KeyRange::all(), 100) }).await;
        assert_eq!((page.entries.len(), page.more), (expected, true), "{bytes_max} bytes");
    }
    let page = scan(store, Scan { bytes_max: 11, ..Scan::forward(range(b"a", b"b"), 100) }).await;
    assert_eq!((page.entries.len(), page.more), (1, false));
}

pub(crate) async fn scans_of_keys_only(constructor: Constructor) {
    let subject = with_letters(constructor).await;
    let scan_keys = Scan { want: Want::Keys, bytes_max: 5, ..Scan::forward(KeyRange::all(), 100) };
    let page = scan(&subject.store, scan_keys).await;
    // Values are neither returned nor counted.
    assert_eq!((keys(&page), page.more), (vec![&b"a"[..], b"b", b"c", b"d", b"f"], true));
    assert!(page.entries.iter().all(|entry| entry.value.is_empty()));
}

pub(crate) async fn empty_ranges_are_empty(constructor: Constructor) {
    let subject = with_letters(constructor).await;
    let empty = [range(b"d", b"d"), range(b"f", b"b"), range(b"", b""), range(b"e", b"f"), range(b"x", b"z")];
    for range in empty {
        for scan_range in [Scan::forward(range.clone(), 10), backward(range.clone(), 10)] {
            let page = scan(&subject.store, scan_range).await;
            assert_eq!((page.entries.len(), page.more), (0, false), "{range:?}");
        }
    }
}

pub(crate) async fn writes_are_read_back(constructor: Constructor) {
    let subject = opened(constructor).await;
    let mut tasks = Vec::new();
    for writer in 0..8_u8 {
        let store = Arc::clone(&subject.store);
        tasks.push(tokio::spawn(async move {
            for round in 0..30_u8 {
                let (key, value) = ([writer], [round; 3]);
                let lsn = put(&store, &key, &value).await;
                let request = ReadRequest::Get(vec![key.to_vec()]);
                let page = store.read(PARTITION, request).await.unwrap();
                assert_eq!(page.values, [Some(Bytes::copy_from_slice(&value))]);
                assert!(page.lsn >= lsn);
                let page = scan(&store, Scan::forward(KeyRange::prefix(&key), 1)).await;
                assert_eq!(page.entries, [entry(&key, &value)]);
                let snapshot = store.snapshot(PARTITION).await.unwrap();
                assert!(snapshot.lsn() >= lsn);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

pub(crate) async fn snapshots_are_stable(constructor: Constructor) {
    let subject = with_letters(constructor).await;
    let store = &subject.store;
    let snapshot = store.snapshot(PARTITION).await.unwrap();
    assert_eq!(snapshot.lsn(), 11);
    for round in 0..20_u8 {
        run(store, write(&[(b"a", &[round]), (&[b'k', round], b"new"), (b"e", b"new")], &[b"b"]))
            .await
            .unwrap();
        run(store, write(&[(b"b", b"back")], &[b"a", b"j"])).await.unwrap();
    }
    store.bulk_load(PARTITION, vec![entry(b"loaded", b"new")]).await.unwrap();
    store.delete_range(PARTITION, range(b"f", b"h"), 10).await.unwrap();
    let page = snapshot.read(ReadRequest::Scan(Scan::forward(KeyRange::all(), 100))).await.unwrap();
    let letters: Vec<u8> = page.entries.iter().map(|entry| entry.key[0]).collect();
    assert_eq!(letters, b"abcdfghij");
    assert_eq!(page.lsn, 11);
    let request = ReadRequest::Get(vec![b"a".to_vec(), b"b".to_vec(), b"e".to_vec(), b"loaded".to_vec()]);
    let page = snapshot.read(request).await.unwrap();
    let expected = [Some("aaaaaaaaaa"), Some("bbbbbbbbbb"), None, None];
    assert_eq!(page.values, expected.map(|value| value.map(Bytes::from)));
    let later = store.snapshot(PARTITION).await.unwrap();
    assert_eq!(later.lsn(), 51);
    // A retired partition stays readable through its snapshot: a split copies from one.
    store.retire(PARTITION).await.unwrap();
    let page = snapshot.read(ReadRequest::Get(vec![b"a".to_vec()])).await.unwrap();
    assert_eq!(page.values, [Some(Bytes::from("aaaaaaaaaa"))]);
}

pub(crate) async fn snapshots_are_consistent_under_load(constructor: Constructor) {
    let subject = opened(constructor).await;
    put(&subject.store, &0_u32.to_be_bytes(), &0_u64.to_be_bytes()).await;
    let writers: Vec<_> = (0..4_u32)
        .map(|writer| {
            let store = Arc::clone(&subject.store);
            tokio::spawn(async move {
                for round in 0..60_u32 {
                    // Every write adds one entry and stores its own LSN, so that a snapshot can be checked against the LSN
                    // it claims: number of entries = LSN.
                    let key = (1 + writer * 1000 + round).to_be_bytes();
                    let op = op(&[], move |_, lsn| {
                        let mut writes = WriteSet::default();
                        writes.put(key.to_vec(), vec![0; 500]);
                        writes.put(0_u32.to_be_bytes().to_vec(), lsn.to_be_bytes().to_vec());
                        Decision::Write(writes, ())
                    });
                    run(&store, op).await.unwrap();
                }
            })
        })
        .collect();
    while writers.iter().any(|writer| !writer.is_finished()) {
        let snapshot = subject.store.snapshot(PARTITION).await.unwrap();
        for _ in 0..2 {
            let request = ReadRequest::Scan(Scan::forward(KeyRange::all(), 1000));
            let page = snapshot.read(request).await.unwrap();
            assert_eq!(page.entries.len() as u64, snapshot.lsn());
            let noted = u64::from_be_bytes(page.entries[0].value[..].try_into().unwrap());
            assert_eq!(noted, if snapshot.lsn() == 1 { 0 } else { snapshot.lsn() });
            tokio::task::yield_now().await;
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

pub(crate) async fn snapshots_expire(constructor: Constructor) {
    let limits = Limits { snapshot_age_max: Duration::ZERO, ..Limits::COMMON };
    let subject = opened_with(constructor, limits).await;
    put(&subject.store, b"key", b"value").await;
    let snapshot = subject.store.snapshot(PARTITION).await.unwrap();
    let result = snapshot.read(ReadRequest::Get(vec![b"key".to_vec()])).await;
    assert_eq!(result.unwrap_err(), StoreError::SnapshotExpired);
    // It blocks nothing.
    for _ in 0..10 {
        put(&subject.store, b"key", b"again").await;
    }
    assert_eq!(get(&subject.store, b"key").await.unwrap(), "again");
}

pub(crate) async fn large_values_come_back(constructor: Constructor) {
    let subject = opened(constructor).await;
    let large: Vec<u8> = (0..Limits::COMMON.value_bytes_max).map(|at| (at % 251) as u8).collect();
    for key in 0..3_u8 {
        put(&subject.store, &[key], &large).await;
    }
    let long_key = vec![7; Limits::COMMON.key_bytes_max];
    put(&subject.store, &long_key, b"value").await;
    assert_eq!(get(&subject.store, &[1]).await.unwrap(), large);
    assert_eq!(get(&subject.store, &long_key).await.unwrap(), "value");
    // One value reaches the default page size, so each page holds one.
    let page = scan(&subject.store, Scan::forward(KeyRange::all(), 10)).await;
    assert_eq!((page.entries.len(), page.more), (1, true));
}
