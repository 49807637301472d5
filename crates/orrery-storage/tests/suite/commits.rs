//! Commits: order, groups, failing operations, limits.

use std::sync::Arc;

use bytes::Bytes;
use orrery_storage::{
    CommitError, Committed, Decision, KeyPacker, Limits, PartitionId, PartitionRef, ReadRequest, WriteSet,
    commit,
};

use super::*;

pub(crate) async fn lsns_are_assigned_in_order(constructor: Constructor) {
    let subject = opened(constructor).await;
    for expected in 1..=20 {
        let done = run(&subject.store, write(&[(b"key", b"value")], &[])).await.unwrap();
        assert_eq!(done, Committed { out: expected, lsn: expected });
    }
    let page = subject.store.read(PARTITION, ReadRequest::Get(vec![])).await.unwrap();
    assert_eq!(page.lsn, 20);
    assert_eq!(subject.store.partitions().await.unwrap()[0].lsn, 20);

    // Concurrent writers: every LSN is assigned once, and a write is visible exactly at its LSN.
    let mut tasks = Vec::new();
    for writer in 0..16_u8 {
        let store = Arc::clone(&subject.store);
        tasks.push(tokio::spawn(async move {
            let mut numbers = Vec::new();
            for _ in 0..10 {
                let op = op(&[b"log"], move |view, lsn| {
                    let mut log = view.get(b"log").map(|log| log.to_vec()).unwrap_or_default();
                    log.extend_from_slice(&lsn.to_be_bytes());
                    let mut writes = WriteSet::default();
                    writes.put(b"log".to_vec(), log);
                    writes.put(vec![b'w', writer], lsn.to_be_bytes().to_vec());
                    Decision::Write(writes, lsn)
                });
                let done = run(&store, op).await.unwrap();
                assert_eq!(done.lsn, done.out);
                numbers.push(done.lsn);
            }
            assert!(numbers.is_sorted());
            numbers
        }));
    }
    let mut numbers = Vec::new();
    for task in tasks {
        numbers.extend(task.await.unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (21..=180).collect::<Vec<_>>());
    let log = get(&subject.store, b"log").await.unwrap();
    let seen: Vec<u64> = log.chunks(8).map(|lsn| u64::from_be_bytes(lsn.try_into().unwrap())).collect();
    assert_eq!(seen, numbers);
}

pub(crate) async fn rejected_operations_consume_no_lsn(constructor: Constructor) {
    let subject = opened(constructor).await;
    assert_eq!(put(&subject.store, b"key", b"value").await, 1);
    for _ in 0..3 {
        let rejected = run(&subject.store, op(&[b"key"], |view, _| Decision::Reject(view.get(b"key")))).await;
        assert_eq!(rejected.unwrap(), Committed { out: Some(Bytes::from("value")), lsn: 1 });
    }
    assert_eq!(put(&subject.store, b"key", b"value").await, 2);
}

pub(crate) async fn later_operations_see_earlier_ones(constructor: Constructor) {
    let subject = opened(constructor).await;
    // Started together, so that a grouping store puts them into one group.
    let appends = (0..40_u8).map(|number| {
        let store = Arc::clone(&subject.store);
        tokio::spawn(async move {
            let op = op(&[b"list"], move |view, _| {
                let mut list = view.get(b"list").map(|list| list.to_vec()).unwrap_or_default();
                list.push(number);
                let mut writes = WriteSet::default();
                writes.put(b"list".to_vec(), list);
                // Alternately deleted and recreated, so that deletions within a group are visible too.
                if number % 2 == 0 {
                    writes.delete(b"flag".to_vec());
                } else {
                    writes.put(b"flag".to_vec(), vec![number]);
                }
                Decision::Write(writes, ())
            });
            run(&store, op).await.unwrap();
        })
    });
    for append in appends.collect::<Vec<_>>() {
        append.await.unwrap();
    }
    let list = get(&subject.store, b"list").await.unwrap();
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..40).collect::<Vec<_>>());
    let last = *list.last().unwrap();
    let flag = get(&subject.store, b"flag").await;
    assert_eq!(flag, (last % 2 == 1).then(|| Bytes::from(vec![last])));
}

pub(crate) async fn operations_may_request_further_reads(constructor: Constructor) {
    let subject = opened(constructor).await;
    put(&subject.store, b"a", b"b").await;
    put(&subject.store, b"b", b"c").await;
    put(&subject.store, b"c", b"end").await;
    let follow = op(&[b"a"], |view, _| {
        let mut key = b"a".to_vec();
        loop {
            if !view.has_read(&key) {
                return Decision::NeedReads(vec![key]);
            }
            match view.get(&key) {
                Some(next) => key = next.to_vec(),
                None => return Decision::Reject(key),
            }
        }
    });
    assert_eq!(run(&subject.store, follow).await.unwrap().out, b"end");
}

pub(crate) async fn inconsistent_data_fails_only_that_operation(constructor: Constructor) {
    let subject = opened(constructor).await;
    put(&subject.store, b"key", b"value").await;
    let found = op(&[b"key"], |view, _| match view.get(b"key") {
        Some(_) => Decision::<()>::Inconsistent("the key has a value".to_owned()),
        None => Decision::Reject(()),
    });
    let result = run(&subject.store, found).await;
    assert_eq!(result.unwrap_err(), CommitError::Inconsistent("the key has a value".to_owned()));
    // No LSN was consumed, and the store itself goes on: what to do about it is the caller's decision.
    assert_eq!(put(&subject.store, b"key", b"value").await, 2);
}

pub(crate) async fn endless_reads_fail_only_that_operation(constructor: Constructor) {
    let subject = opened(constructor).await;
    let endless = op(&[], |_, _| Decision::<()>::NeedReads(vec![b"more".to_vec()]));
    let result = run(&subject.store, endless).await;
    assert!(matches!(result, Err(CommitError::Failed(_))), "{result:?}");
    assert_eq!(put(&subject.store, b"key", b"value").await, 1);
}

pub(crate) async fn a_panic_fails_only_that_operation(constructor: Constructor) {
    let subject = opened(constructor).await;
    let mut tasks = Vec::new();
    for number in 0..30_u8 {
        let store = Arc::clone(&subject.store);
        tasks.push(tokio::spawn(async move {
            let op = op(&[], move |_, lsn| {
                assert!(number % 3 != 0, "meant to panic");
                let mut writes = WriteSet::default();
                writes.put(vec![number], "value");
                Decision::Write(writes, lsn)
            });
            (number, run(&store, op).await)
        }));
    }
    for task in tasks {
        match task.await.unwrap() {
            (number, Ok(_)) => assert_ne!(number % 3, 0),
            (number, Err(CommitError::Failed(text))) => {
                assert_eq!(number % 3, 0);
                assert!(text.contains("meant to panic"), "{text}");
            }
            (_, other) => panic!("{other:?}"),
        }
    }
    assert_eq!(everything(&subject.store).await.len(), 20);
    assert_eq!(put(&subject.store, b"key", b"value").await, 21);
}

pub(crate) async fn reading_an_unnamed_key_fails_only_that_operation(constructor: Constructor) {
    let subject = opened(constructor).await;
    put(&subject.store, b"unnamed", b"value").await;
    let careless = op(&[b"named"], |view, _| {
        assert!(view.has_read(b"named"));
        assert!(!view.has_read(b"unnamed"));
        Decision::Reject(view.get(b"unnamed"))
    });
    let result = run(&subject.store, careless).await;
    assert!(matches!(result, Err(CommitError::Failed(_))), "{result:?}");
    assert_eq!(put(&subject.store, b"key", b"value").await, 2);
}

pub(crate) async fn writing_a_key_twice_fails(constructor: Constructor) {
    let subject = opened(constructor).await;
    for twice in [
        write(&[(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], &[]),
        write(&[(b"a", b"1")], &[b"b", b"a"]),
        write(&[], &[b"a", b"a"]),
    ] {
        let result = run(&subject.store, twice).await;
        assert!(matches!(result, Err(CommitError::Failed(_))), "{result:?}");
    }
    assert!(everything(&subject.store).await.is_empty());
    assert_eq!(put(&subject.store, b"key", b"value").await, 1);
}

/// Run concurrently, so that a grouping store has several in one group.
pub(crate) async fn unread_keys_are_written(constructor: Constructor) {
    let subject = opened(constructor).await;
    let packed = |keys: &[String]| {
        let mut packer = KeyPacker::default();
        for key in keys {
            packer.bytes().extend_from_slice(key.as_bytes());
            packer.end_key();
        }
        packer.finish()
    };
    let writers = (0..20_u8).map(|writer| {
        let keys: Vec<String> = (0..10).map(|number| format!("{writer}/{number}")).collect();
        let (store, all, odd) = (Arc::clone(&subject.store), packed(&keys), keys[1].clone().into_bytes());
        tokio::spawn(async move {
            for value in ["first", "second", "third"] {
                let unread = vec![(all.clone(), Some(Bytes::from(value)))];
                let writes = WriteSet { unread, ..Default::default() };
                run(&store, op(&[], move |_, lsn| Decision::Write(writes.clone(), lsn))).await.unwrap();
                let mut writes = WriteSet::default();
                let gone = all.filter(|key| key[key.len() - 1] % 2 == 1 && key != odd);
                writes.unread.push((gone, None));
                writes.put(odd.clone(), value);
                run(&store, op(&[], move |_, lsn| Decision::Write(writes.clone(), lsn))).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let names = (0..20).flat_map(|writer| [0, 1, 2, 4, 6, 8].map(|number| format!("{writer}/{number}")));
    let mut expected: Vec<_> = names.map(|name| (name.into_bytes(), Bytes::from("third"))).collect();
    expected.sort_unstable();
    assert_eq!(everything(&subject.store).await, expected);
    let overlong = packed(&["x".repeat(Limits::COMMON.key_bytes_max + 1)]);
    let writes = WriteSet { unread: vec![(overlong, None)], ..Default::default() };
    let result = run(&subject.store, op(&[], move |_, lsn| Decision::Write(writes.clone(), lsn))).await;
    assert!(matches!(result, Err(CommitError::TooLarge(_))), "{result:?}");
}

pub(crate) async fn limits_are_enforced(constructor: Constructor) {
    let limits =
        Limits { key_bytes_max: 100, value_bytes_max: 1000, commit_bytes_max: 3000, ..Limits::COMMON };
    let subject = opened_with(constructor, limits).await;
    let key = |bytes: usize| vec![b'k'; bytes];
    let value = |bytes: usize| vec![b'v'; bytes];
    run(&subject.store, write(&[(&key(100), &value(1000))], &[])).await.unwrap();
    let too_large = [
        write(&[(b"small", b"value"), (&key(101), b"value")], &[]),
        write(&[(b"small", b"value"), (b"key", &value(1001))], &[]),
        write(&[(b"small", b"value")], &[&key(101)]),
        write(&[(b"1", &value(1000)), (b"2", &value(1000)), (b"3", &value(998))], &[]),
        write(&[(b"1", &value(1000)), (b"2", &value(1000)), (b"3", &value(900))], &[&key(98)]),
    ];
    for op in too_large {
        let result = run(&subject.store, op).await;
        assert!(matches!(result, Err(CommitError::TooLarge(_))), "{result:?}");
    }
    assert_eq!(everything(&subject.store).await.len(), 1);
    let at_the_limit = write(&[(b"1", &value(1000)), (b"2", &value(1000)), (b"3", &value(997))], &[]);
    assert_eq!(run(&subject.store, at_the_limit).await.unwrap().lsn, 2);
    // Reading a key that is too long to exist is not an error.
    assert_eq!(get(&subject.store, &key(101)).await, None);
    let long = key(70_000);
    let read = op(&[&long.clone()], move |view, _| Decision::Reject(view.get(&long)));
    assert_eq!(run(&subject.store, read).await.unwrap().out, None);
    let result = subject.store.bulk_load(PARTITION, vec![entry(&key(101), b"")]).await;
    assert!(matches!(result, Err(StoreError::TooLarge(_))), "{result:?}");
}

pub(crate) async fn counters_are_exact(constructor: Constructor) {
    let subject = opened(constructor).await;
    let mut tasks = Vec::new();
    for writer in 0..24_u8 {
        let store = Arc::clone(&subject.store);
        tasks.push(tokio::spawn(async move {
            for round in 0..25 {
                let key = vec![(writer + round) % 3];
                let op = op(&[&key.clone()], move |view, _| {
                    let count = view
                        .get(&key)
                        .map_or(0, |value| u64::from_be_bytes((&value[..]).try_into().unwrap()));
                    let mut writes = WriteSet::default();
                    writes.put(key.clone(), (count + 1).to_be_bytes().to_vec());
                    Decision::Write(writes, ())
                });
                run(&store, op).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let counters = everything(&subject.store).await;
    let counts = counters.iter().map(|(_, value)| u64::from_be_bytes((&value[..]).try_into().unwrap()));
    assert_eq!(counts.collect::<Vec<_>>(), [200, 200, 200]);
}

pub(crate) async fn multi_key_writes_are_atomic(constructor: Constructor) {
    let subject = opened(constructor).await;
    let keys: Vec<Vec<u8>> = (0..20_u8).map(|key| vec![key]).collect();
    let writer = {
        let (store, keys) = (Arc::clone(&subject.store), keys.clone());
        tokio::spawn(async move {
            for round in 0..200_u32 {
                let value = round.to_be_bytes();
                let puts: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (key.as_slice(), &value[..])).collect();
                run(&store, write(&puts, &[])).await.unwrap();
            }
        })
    };
    while !writer.is_finished() {
        let page = subject.store.read(PARTITION, ReadRequest::Get(keys.clone())).await.unwrap();
        assert!(page.values.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", page.values);
        let page = scan(&subject.store, Scan::forward(KeyRange::all(), 100)).await;
        assert!(page.entries.windows(2).all(|pair| pair[0].value == pair[1].value));
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
}

pub(crate) async fn an_empty_write_consumes_an_lsn(constructor: Constructor) {
    let subject = opened(constructor).await;
    assert_eq!(run(&subject.store, write(&[], &[])).await.unwrap().lsn, 1);
    assert_eq!(run(&subject.store, write(&[], &[b"absent"])).await.unwrap().lsn, 2);
    assert_eq!(put(&subject.store, b"", b"the empty key").await, 3);
    assert_eq!(get(&subject.store, b"").await.unwrap(), "the empty key");
}

pub(crate) async fn partitions_share_nothing(constructor: Constructor) {
    let subject = opened(constructor).await;
    let store = &subject.store;
    let partitions: Vec<PartitionRef> =
        (2..40).map(|id| PartitionRef { id: PartitionId(id), epoch: 0 }).collect();
    for partition in &partitions {
        store.create(partition.id, 0).await.unwrap();
    }
    for round in 1..=3 {
        for partition in &partitions {
            let value = partition.id.0.to_be_bytes();
            let done =
                commit(store.as_ref(), *partition, write(&[(b"\xFF\xFF", &value), (b"", &value)], &[]));
            assert_eq!(done.await.unwrap().lsn, round);
        }
    }
    for partition in &partitions {
        let all = ReadRequest::Scan(Scan::forward(KeyRange::all(), 100));
        let page = store.read(*partition, all).await.unwrap();
        assert_eq!(keys(&page), [&b""[..], b"\xFF\xFF"]);
        assert!(page.entries.iter().all(|entry| entry.value[..] == partition.id.0.to_be_bytes()));
    }
}
