//! Kills a writing process and checks what it left on disk.
//!
//! The test starts itself as a child process, which writes from many tasks and prints every acknowledgement. It kills
//! the child at a random time, opens the store and compares it with the acknowledgements. The next round continues in
//! the same directory. `ORRERY_SOAK_ROUNDS` sets the number of rounds, `ORRERY_CRASH_SEED` replays the kill times of a
//! run.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_storage::{
    Decision, Embedded, EmbeddedOptions, Key, KeyRange, Lsn, Op, PartitionId, PartitionRef, PartitionStore,
    ReadRequest, Scan, View, WriteSet, commit,
};

const PARTITIONS: u32 = 3;
const WRITERS: u32 = 16;
/// How many writes are kept before they are deleted again.
const WRITES_KEPT: u64 = 40;

const DIRECTORY_VARIABLE: &str = "ORRERY_CRASH_DIRECTORY";

fn partition(id: u32) -> PartitionRef {
    PartitionRef { id: PartitionId(id), epoch: 0 }
}

fn options() -> EmbeddedOptions {
    // Small sizes, so that tables are being written and merged when the kill hits.
    EmbeddedOptions { memtable_bytes: 256 << 10, table_bytes: 256 << 10, ..EmbeddedOptions::default() }
}

/// Keys per write. The last writer has enough of them that the fsync overlaps with the memtable insert.
fn parts(writer: u32) -> u32 {
    if writer == WRITERS - 1 { 1000 } else { 4 }
}

fn part_key(writer: u32, number: u64, part: u32) -> Key {
    format!("writer {writer:02} number {number:08} part {part}").into_bytes()
}

fn part_value(writer: u32, number: u64, part: u32, lsn: Lsn) -> Bytes {
    let text = format!("{writer} {number} {part} {lsn} ");
    let fill = text.len() * 7 + usize::try_from(number % 300).unwrap();
    Bytes::from(text.repeat(1 + fill / 20))
}

fn last_key(writer: u32) -> Key {
    format!("last {writer:02}").into_bytes()
}

/// Write number n of a writer: puts several keys and the writer's counter, and deletes an older write.
struct NumberedWrite {
    writer: u32,
}

impl Op for NumberedWrite {
    type Out = u64;

    fn id(&self) -> u128 {
        0
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        keys.push(last_key(self.writer));
    }

    fn decide(&self, view: &dyn View, lsn: Lsn) -> Decision<u64> {
        let number = 1 + view.get(&last_key(self.writer)).map_or(0, |last| parse_last(&last).0);
        let mut writes = WriteSet::default();
        for part in 0..parts(self.writer) {
            writes.put(part_key(self.writer, number, part), part_value(self.writer, number, part, lsn));
            if number > WRITES_KEPT {
                writes.delete(part_key(self.writer, number - WRITES_KEPT, part));
            }
        }
        writes.put(last_key(self.writer), format!("{number} {lsn}"));
        Decision::Write(writes, number)
    }
}

fn parse_last(value: &[u8]) -> (u64, Lsn) {
    let text = std::str::from_utf8(value).unwrap();
    let (number, lsn) = text.split_once(' ').unwrap();
    (number.parse().unwrap(), lsn.parse().unwrap())
}

/// The child process. In an ordinary test run the variable is not set, and there is nothing to do.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY_VARIABLE) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(write_until_killed(Path::new(&directory)));
}

async fn write_until_killed(directory: &Path) {
    let store: Arc<dyn PartitionStore> = Arc::new(Embedded::open(directory, options()).unwrap());
    for id in 0..PARTITIONS {
        store.create(PartitionId(id), 0).await.unwrap();
    }
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            loop {
                let id = writer % PARTITIONS;
                let done = commit(store.as_ref(), partition(id), NumberedWrite { writer }).await.unwrap();
                say(&format!("ack {id} {writer} {} {}", done.out, done.lsn));
            }
        }));
    }
    tasks.push(tokio::spawn(async move {
        let first = 100 + store.partitions().await.unwrap().iter().map(|info| info.id.0).max().unwrap();
        for id in first.. {
            store.create(PartitionId(id), 7).await.unwrap();
            commit(store.as_ref(), partition(id), NumberedWrite { writer: 0 }).await.unwrap();
            say(&format!("made {id}"));
            if id >= first + 3 {
                say(&format!("unmaking {}", id - 3));
                store.destroy(PartitionId(id - 3)).await.unwrap();
                say(&format!("unmade {}", id - 3));
            }
        }
    }));
    for task in tasks {
        task.await.unwrap();
    }
}

/// Prints a line with one write call. A line that a kill cut off does not count as acknowledged.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

#[derive(Default)]
struct Acknowledged {
    writes: BTreeMap<u32, (u64, Lsn)>,
    lsns: BTreeMap<u32, Lsn>,
    made: BTreeSet<u32>,
    unmaking: BTreeSet<u32>,
    unmade: BTreeSet<u32>,
}

impl Acknowledged {
    fn hear(&mut self, line: &str) {
        // The test harness prints too, and may put its own text at the start of our line.
        let Some(start) = ["ack ", "made ", "unmaking ", "unmade "].iter().find_map(|word| line.find(word))
        else {
            return;
        };
        let words: Vec<&str> = line[start..].split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let id = u32::try_from(number(1)).unwrap();
        match words[0] {
            "ack" => {
                let last = self.writes.entry(u32::try_from(number(2)).unwrap()).or_default();
                *last = (*last).max((number(3), number(4)));
                let lsn = self.lsns.entry(id).or_default();
                *lsn = (*lsn).max(number(4));
            }
            "made" => drop(self.made.insert(id)),
            "unmaking" => drop(self.unmaking.insert(id)),
            _ => drop(self.unmade.insert(id)),
        }
    }
}

/// Kills a writing process once it has said so many lines, and hears what else it had said by then.
fn run_and_kill(directory: &Path, lines: u64) -> Acknowledged {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(DIRECTORY_VARIABLE, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut acknowledged = Acknowledged::default();
    let mut line = String::new();
    for heard in 0.. {
        if heard == lines {
            child.kill().unwrap();
        }
        line.clear();
        if reader.read_line(&mut line).unwrap() == 0 {
            break;
        }
        if line.ends_with('\n') {
            acknowledged.hear(&line);
        }
    }
    child.wait().unwrap();
    acknowledged
}

async fn read_all(store: &dyn PartitionStore, id: u32) -> BTreeMap<Key, Bytes> {
    let scan = Scan { bytes_max: usize::MAX, ..Scan::forward(KeyRange::all(), usize::MAX) };
    let page = store.read(partition(id), ReadRequest::Scan(scan)).await.unwrap();
    assert!(!page.more);
    page.entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
}

/// The exact content a partition must have, derived from the counters of its writers.
fn expected_content(
    found: &BTreeMap<Key, Bytes>,
    writers: impl Iterator<Item = u32>,
) -> BTreeMap<Key, Bytes> {
    let mut expected = BTreeMap::new();
    for writer in writers {
        let Some(last) = found.get(&last_key(writer)) else { continue };
        expected.insert(last_key(writer), last.clone());
        let (last, last_lsn) = parse_last(last);
        for number in last.saturating_sub(WRITES_KEPT - 1).max(1)..=last {
            // The first part contains the LSN of its write; all parts must agree on it.
            let first = found.get(&part_key(writer, number, 0)).expect("a write is missing");
            let lsn: Lsn = std::str::from_utf8(first).unwrap().split(' ').nth(3).unwrap().parse().unwrap();
            assert!(lsn <= last_lsn);
            for part in 0..parts(writer) {
                expected.insert(part_key(writer, number, part), part_value(writer, number, part, lsn));
            }
        }
    }
    expected
}

async fn check(
    store: &dyn PartitionStore,
    acknowledged: &Acknowledged,
    before: &BTreeMap<u32, Lsn>,
) -> BTreeMap<u32, Lsn> {
    let infos = store.partitions().await.unwrap();
    let lsns: BTreeMap<u32, Lsn> = infos.iter().map(|info| (info.id.0, info.lsn)).collect();
    for (id, lsn) in acknowledged.lsns.iter().chain(before) {
        assert!(lsns.get(id).is_some_and(|now| now >= lsn), "partition {id} went back behind {lsn}");
    }
    for id in (0..PARTITIONS).filter(|id| lsns.contains_key(id)) {
        let found = read_all(store, id).await;
        let writers = (0..WRITERS).filter(|writer| writer % PARTITIONS == id);
        for writer in writers.clone() {
            if let Some((number, _)) = acknowledged.writes.get(&writer) {
                let last = found.get(&last_key(writer)).expect("an acknowledged write is missing");
                assert!(parse_last(last).0 >= *number, "writer {writer} lost acknowledged writes");
            }
        }
        let expected = expected_content(&found, writers);
        assert_eq!(found, expected, "partition {id}");
    }
    for id in acknowledged.made.difference(&acknowledged.unmaking) {
        assert_eq!(lsns.get(id), Some(&8), "partition {id} was made");
        let found = read_all(store, *id).await;
        assert_eq!(found.len(), 5);
        assert_eq!(found, expected_content(&found, 0..1));
    }
    for id in &acknowledged.unmade {
        assert!(!lsns.contains_key(id), "partition {id} was destroyed");
    }
    lsns.into_iter().filter(|(id, _)| *id < PARTITIONS).collect()
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let from_env = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let rounds = from_env("ORRERY_SOAK_ROUNDS").unwrap_or(6);
    let mut seed = from_env("ORRERY_CRASH_SEED").unwrap_or_else(|| RandomState::new().hash_one("seed"));
    println!("ORRERY_CRASH_SEED={seed}");
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("data");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut before, mut writes, mut slowest) = (BTreeMap::new(), 0, Duration::ZERO);
    for round in 0..rounds {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Some die before their first write; the text of the test harness counts too.
        let lines = (seed >> 33) % 3000;
        let acknowledged = run_and_kill(&path, lines);
        writes += acknowledged.lsns.values().sum::<Lsn>();
        let started = Instant::now();
        let store = Embedded::open(&path, options()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        slowest = slowest.max(started.elapsed());
        before = runtime.block_on(check(&store, &acknowledged, &before));
        assert!(store.verify().is_empty());
        // Every other round closes the store cleanly; the rest go from crash to crash.
        if round % 2 == 0 {
            runtime.block_on(store.close()).unwrap();
        }
    }
    println!("{rounds} rounds, {writes} numbers checked, slowest reopening {slowest:?}");
    assert!(writes > 0, "nothing was acknowledged before the kills");
}
