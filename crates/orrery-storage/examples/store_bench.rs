//! Measures a store with the write shape of an indexed item: 1 KB of body, twelve index entries put and
//! twelve deleted, one feed entry put and one deleted, counters.
//!
//! `store_bench [--seconds n] [--memory] [--relaxed] [--directory path]` prints one figure per line. To measure the
//! reopening time it starts itself as a child process, kills it under load and opens its directory.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for developers")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "rounded figures")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_storage::{
    Decision, Durability, Embedded, EmbeddedOptions, Key, KeyRange, Lsn, Memory, Op, PartitionId,
    PartitionRef, PartitionStore, ReadRequest, Scan, View, WriteSet, commit,
};

const PARTITIONS: u32 = 8;
const INDEXED_PATHS: u8 = 12;

#[derive(Clone)]
struct Settings {
    seconds: u64,
    memory: bool,
    relaxed: bool,
    directory: Option<PathBuf>,
    victim: Option<PathBuf>,
}

#[tokio::main]
async fn main() {
    let settings = read_arguments();
    if let Some(directory) = &settings.victim {
        return write_until_killed(directory, &settings).await;
    }
    let temporary = tempfile::tempdir().unwrap();
    let directory = settings.directory.clone().unwrap_or_else(|| temporary.path().join("data"));

    let started = Instant::now();
    let store = open(&directory, &settings);
    report("opening an empty store", started.elapsed());
    println!("resident memory of the empty store: {} KB", resident_kilobytes());
    let started = Instant::now();
    for partition in 0..PARTITIONS {
        store.create(PartitionId(partition), 0).await.unwrap();
    }
    report("creating a partition", started.elapsed() / PARTITIONS);
    let started = Instant::now();
    for partition in 1000..1100 {
        store.create(PartitionId(partition), 0).await.unwrap();
    }
    for partition in 1000..1100 {
        store.destroy(PartitionId(partition)).await.unwrap();
    }
    report("creating and destroying a partition", started.elapsed() / 100);

    for writers in [1, 64] {
        measure_writes(&store, writers, settings.seconds).await;
    }
    measure_reads(&store, settings.seconds).await;
    let started = Instant::now();
    store.close().await.unwrap();
    report("closing", started.elapsed());
    drop(store);
    if settings.memory {
        return;
    }
    let started = Instant::now();
    let store = open(&directory, &settings);
    report("opening after a clean end", started.elapsed());
    println!("resident memory: {} KB", resident_kilobytes());
    drop(store);
    println!("on disk: {} MB", disk_bytes(&directory) >> 20);
    measure_reopening(&temporary.path().join("killed"), &settings);
}

fn read_arguments() -> Settings {
    let mut settings = Settings { seconds: 3, memory: false, relaxed: false, directory: None, victim: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seconds" => settings.seconds = arguments.next().unwrap().parse().unwrap(),
            "--memory" => settings.memory = true,
            "--relaxed" => settings.relaxed = true,
            "--directory" => settings.directory = arguments.next().map(PathBuf::from),
            "--victim" => settings.victim = arguments.next().map(PathBuf::from),
            other => panic!("unknown argument {other}"),
        }
    }
    settings
}

fn open(directory: &Path, settings: &Settings) -> Arc<dyn PartitionStore> {
    if settings.memory {
        return Arc::new(Memory::new());
    }
    let mut options = EmbeddedOptions::default();
    if settings.relaxed {
        options.durability = Durability::Relaxed { interval_ms: 50 };
    }
    Arc::new(Embedded::open(directory, options).unwrap())
}

/// Replaces an item: reads the old one, deletes its index and feed entries, writes the new ones.
struct ReplaceItem {
    item: u64,
    version: u64,
    body: Bytes,
}

impl ReplaceItem {
    fn item_key(&self) -> Key {
        let mut key = b"\x10effective-key-16".to_vec();
        key.extend_from_slice(format!("item-{:012}", self.item).as_bytes());
        key
    }

    fn index_key(&self, path: u8, version: u64) -> Key {
        let spread = (version ^ u64::from(path)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut key = vec![0x20, 0, path];
        key.extend_from_slice(&spread.to_be_bytes());
        key.extend_from_slice(&self.item_key());
        key
    }
}

impl Op for ReplaceItem {
    type Out = Lsn;

    fn id(&self) -> u128 {
        0
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        keys.push(self.item_key());
        keys.push(b"\x70counters".to_vec());
    }

    fn decide(&self, view: &dyn View, lsn: Lsn) -> Decision<Lsn> {
        let old = view.get(&self.item_key());
        let count = view.get(b"\x70counters").map_or(0, |value| value.len());
        let mut writes = WriteSet::default();
        if let Some(old) = old {
            let number = |at: usize| u64::from_be_bytes(old[at..at + 8].try_into().unwrap());
            let (old_lsn, old_version) = (number(0), number(8));
            writes.delete([&[0x30], &old_lsn.to_be_bytes()[..]].concat());
            for path in 0..INDEXED_PATHS {
                writes.delete(self.index_key(path, old_version));
            }
        }
        for path in 0..INDEXED_PATHS {
            writes.put(self.index_key(path, self.version), Bytes::new());
        }
        let mut value = lsn.to_be_bytes().to_vec();
        value.extend_from_slice(&self.version.to_be_bytes());
        value.extend_from_slice(&self.body);
        writes.put(self.item_key(), value);
        writes.put([&[0x30], &lsn.to_be_bytes()[..]].concat(), self.item_key());
        writes.put(b"\x70counters".to_vec(), vec![0; 16.max(count)]);
        Decision::Write(writes, lsn)
    }
}

async fn measure_writes(store: &Arc<dyn PartitionStore>, writers: u64, seconds: u64) {
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let first = (writers << 40) + (u64::from(std::process::id()) << 20);
    let cpu_before = cpu_time();
    let started = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let (store, stop, done) = (Arc::clone(store), Arc::clone(&stop), Arc::clone(&done));
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    // Distinct from the numbers of other rounds and processes, because they become index values.
                    let number = first + done.fetch_add(1, Ordering::Relaxed);
                    let begun = Instant::now();
                    write_item(store.as_ref(), writer, number).await;
                    latencies.push(begun.elapsed());
                }
                latencies
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.unwrap());
    }
    latencies.sort_unstable();
    let elapsed = started.elapsed().as_secs_f64();
    let at = |part: usize| latencies[(latencies.len() - 1) * part / 1000];
    println!(
        "{writers} writers: {:.0} operations/s, p50 {:?}, p99 {:?}, max {:?}, cpu {:.0} us per operation",
        latencies.len() as f64 / elapsed,
        at(500),
        at(990),
        at(1000),
        cpu_time().saturating_sub(cpu_before).as_secs_f64() * 1e6 / latencies.len() as f64,
    );
}

async fn write_item(store: &dyn PartitionStore, writer: u64, number: u64) {
    let partition = PartitionRef { id: PartitionId((number % u64::from(PARTITIONS)) as u32), epoch: 0 };
    let item = (number.wrapping_mul(0x9E37_79B9) ^ writer) % 50_000;
    let text = format!("{{\"item\":{item},\"number\":{number},\"text\":\"");
    let body: Vec<u8> =
        text.bytes().chain((0..1000).map(|at| b'a' + (at * 7 + number as usize) as u8 % 26)).collect();
    commit(store, partition, ReplaceItem { item, version: number, body: Bytes::from(body) }).await.unwrap();
}

async fn measure_reads(store: &Arc<dyn PartitionStore>, seconds: u64) {
    let mut latencies = Vec::new();
    let started = Instant::now();
    let mut number = 0_u64;
    while started.elapsed() < Duration::from_secs(seconds.min(2)) {
        number += 1;
        let partition = PartitionRef { id: PartitionId((number % u64::from(PARTITIONS)) as u32), epoch: 0 };
        let key = ReplaceItem { item: number.wrapping_mul(7919) % 50_000, version: 0, body: Bytes::new() }
            .item_key();
        let begun = Instant::now();
        store.read(partition, ReadRequest::Get(vec![key])).await.unwrap();
        latencies.push(begun.elapsed());
    }
    latencies.sort_unstable();
    let at = |part: usize| latencies[(latencies.len() - 1) * part / 1000];
    println!("get: p50 {:?}, p99 {:?}, {} read", at(500), at(990), latencies.len());
    let partition = PartitionRef { id: PartitionId(0), epoch: 0 };
    let (rounds, started) = (200, Instant::now());
    for _ in 0..rounds {
        let scan = Scan::forward(KeyRange::prefix(b"\x10"), 100);
        store.read(partition, ReadRequest::Scan(scan)).await.unwrap();
    }
    report("scan of 100 items", started.elapsed() / rounds);
}

/// The child process: 64 writers until it is killed.
async fn write_until_killed(directory: &Path, settings: &Settings) {
    let store = open(directory, settings);
    for partition in 0..PARTITIONS {
        store.create(PartitionId(partition), 0).await.unwrap();
    }
    println!("ready");
    measure_writes(&store, 64, 3600).await;
}

fn measure_reopening(directory: &Path, settings: &Settings) {
    for round in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("--victim")
            .arg(directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(2500 + 337 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let journals = disk_bytes(&directory.join("journal"));
        let started = Instant::now();
        let store = open(directory, settings);
        let elapsed = started.elapsed();
        println!("reopening after kill: {elapsed:?} with {} MB of journals", journals >> 20);
        drop(store);
    }
}

fn report(what: &str, elapsed: Duration) {
    println!("{what}: {elapsed:?}");
}

fn disk_bytes(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let size = |path: PathBuf| {
        if path.is_dir() { disk_bytes(&path) } else { path.metadata().map_or(0, |metadata| metadata.len()) }
    };
    entries.map(|entry| size(entry.unwrap().path())).sum()
}

fn proc_field(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn resident_kilobytes() -> u64 {
    proc_field("/proc/self/status", "VmRSS:")
}

/// User and system time of this process, from clock ticks of ten milliseconds.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}
