//! Backups of the embedded store: taken while it serves, incremental, verified, restored to a point in time.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use orrery_env::{Env, SystemEnv};
use orrery_storage::{
    BackupError, BackupRepository, BackupSummary, Embedded, EmbeddedOptions, Entry, KeyRange, PartitionId,
    PartitionRef, PartitionStore, ReadRequest, Scan,
};

const PARTITION: PartitionRef = PartitionRef { id: PartitionId(1), epoch: 0 };

/// A clock that the test sets.
struct SetClock(AtomicI64);

impl Env for SetClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemEnv.fill_random(bytes);
    }
}

struct Fixture {
    directory: tempfile::TempDir,
    clock: Arc<SetClock>,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(SetClock(AtomicI64::new(1_000_000)));
        Self { directory: tempfile::tempdir().unwrap(), clock }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn options(&self) -> EmbeddedOptions {
        EmbeddedOptions {
            env: Arc::clone(&self.clock) as Arc<dyn Env>,
            memtable_bytes: 32 << 10,
            table_bytes: 32 << 10,
            ..EmbeddedOptions::default()
        }
    }

    async fn open(&self) -> Embedded {
        // Kept for longer than any clock of these tests shows: expiry compares with the time of the file.
        let options = EmbeddedOptions { keep_log: Duration::from_hours(1 << 20), ..self.options() };
        let store = Embedded::open(self.path("data"), options).unwrap();
        store.create(PARTITION.id, 0).await.unwrap();
        store
    }

    fn set_time(&self, milliseconds: i64) {
        self.clock.0.store(milliseconds, Ordering::Release);
    }

    fn restore(&self, until_ms: Option<i64>, into: &str) -> Result<PathBuf, BackupError> {
        let repository = BackupRepository::open(self.path("backups"))?;
        let target = self.path(into);
        repository.restore(&target, None, until_ms, &self.options())?;
        Ok(target)
    }

    async fn keys_in(&self, directory: &Path) -> Vec<u32> {
        let store = Embedded::open(directory, self.options()).unwrap();
        keys(&store).await
    }
}

async fn put(store: &Embedded, keys: std::ops::Range<u32>) {
    let entry = |key: u32| Entry { key: key.to_be_bytes().to_vec(), value: vec![7; 200].into() };
    store.bulk_load(PARTITION, keys.map(entry).collect()).await.unwrap();
}

async fn keys(store: &Embedded) -> Vec<u32> {
    let scan = Scan { bytes_max: usize::MAX, ..Scan::forward(KeyRange::all(), usize::MAX) };
    let page = store.read(PARTITION, ReadRequest::Scan(scan)).await.unwrap();
    page.entries.iter().map(|entry| u32::from_be_bytes(entry.key[..].try_into().unwrap())).collect()
}

/// Takes a backup; returns its summary and the bytes that had to be copied.
async fn back_up(store: &Embedded, into: PathBuf) -> (BackupSummary, u64) {
    let checkpoint = store.checkpoint().await.unwrap().expect("the embedded store has checkpoints");
    let repository = BackupRepository::create(into).unwrap();
    let mut backup = repository.begin(checkpoint.history(), checkpoint.taken_ms()).unwrap();
    for file in checkpoint.files() {
        if backup.reuse(file) {
            continue;
        }
        let mut receiver = backup.receive(file).unwrap();
        let mut offset = 0;
        while offset < file.bytes {
            // Small parts, so that files are read in several.
            let part = checkpoint.read(&file.path, offset, 10_000).unwrap().unwrap();
            receiver.write(&part).unwrap();
            offset += part.len() as u64;
        }
        receiver.finish().unwrap();
    }
    let copied = backup.copied_bytes();
    (backup.finish().unwrap(), copied)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_taken_under_load_holds_every_write_acknowledged_before_it() {
    let fixture = Fixture::new();
    let store = Arc::new(fixture.open().await);
    let stop = Arc::new(AtomicBool::new(false));
    let (writer_store, writer_stop) = (Arc::clone(&store), Arc::clone(&stop));
    let (acknowledged, mut progress) = tokio::sync::watch::channel(0_u32);
    let writer = tokio::spawn(async move {
        let mut next = 0;
        while !writer_stop.load(Ordering::Acquire) {
            put(&writer_store, next..next + 20).await;
            next += 20;
            acknowledged.send_replace(next);
        }
    });
    let mut least = Vec::new();
    for round in 0..5 {
        // Enough for several flushes and merges between two backups.
        progress.wait_for(|count| *count >= (round + 1) * 1000).await.unwrap();
        let before = *progress.borrow();
        let (backup, _) = back_up(&store, fixture.path("backups")).await;
        least.push((backup.name, before));
    }
    stop.store(true, Ordering::Release);
    writer.await.unwrap();
    for (name, before) in least {
        let repository = BackupRepository::open(fixture.path("backups")).unwrap();
        repository.verify(&name).unwrap();
        let target = fixture.path(&format!("restored-{name}"));
        repository.restore(&target, Some(&name), None, &fixture.options()).unwrap();
        let found = fixture.keys_in(&target).await;
        // A prefix of what was written, at least as long as what was acknowledged.
        assert!(found.len() >= before as usize, "{} of {before}", found.len());
        assert!(found.iter().copied().eq((0..).take(found.len())));
    }
}

#[tokio::test]
async fn a_second_backup_copies_only_what_is_new() {
    let fixture = Fixture::new();
    let store = fixture.open().await;
    put(&store, 0..5000).await;
    // Closing writes everything to tables.
    store.close().await.unwrap();
    let store = fixture.open().await;
    let (first, copied_first) = back_up(&store, fixture.path("backups")).await;
    assert!(copied_first >= 1_000_000, "{copied_first}");
    put(&store, 5000..5020).await;
    let (second, copied_second) = back_up(&store, fixture.path("backups")).await;
    assert!(copied_second < copied_first / 5, "{copied_second} of {copied_first}");
    let repository = BackupRepository::open(fixture.path("backups")).unwrap();
    let names: Vec<_> = repository.backups().unwrap().into_iter().map(|backup| backup.name).collect();
    assert_eq!(names, [first.name.as_str(), second.name.as_str()]);
    // Pruning the first leaves what the second needs.
    assert_eq!(repository.prune(1).unwrap(), 1);
    let target = fixture.restore(None, "restored").unwrap();
    assert_eq!(fixture.keys_in(&target).await.len(), 5020);
}

#[tokio::test]
async fn restores_to_any_second_between_two_backups() {
    let fixture = Fixture::new();
    let store = fixture.open().await;
    put(&store, 0..100).await;
    back_up(&store, fixture.path("backups")).await;
    // One batch per ten seconds, each larger than a memtable.
    for batch in 1..=10 {
        fixture.set_time(1_000_000 + i64::from(batch) * 10_000);
        put(&store, batch * 1000..batch * 1000 + 300).await;
    }
    back_up(&store, fixture.path("backups")).await;
    for (until_ms, batches) in
        [(1_005_000, 0), (1_010_000, 1), (1_035_000, 3), (1_095_000, 9), (1_100_000, 10)]
    {
        let target = fixture.restore(Some(until_ms), &format!("until-{until_ms}")).unwrap();
        let found = fixture.keys_in(&target).await;
        assert_eq!(found.len(), 100 + 300 * batches, "until {until_ms}");
        assert!(found.iter().all(|key| (*key / 1000) as usize <= batches));
    }
    let error = fixture.restore(Some(999_999), "too-early").unwrap_err();
    assert!(error.to_string().contains("before the oldest backup"), "{error}");
    let error = fixture.restore(Some(2_000_000), "too-late").unwrap_err();
    assert!(error.to_string().contains("after the newest backup"), "{error}");
}

#[tokio::test]
async fn a_restored_store_starts_its_own_history() {
    let fixture = Fixture::new();
    let store = fixture.open().await;
    put(&store, 0..1000).await;
    let (original, _) = back_up(&store, fixture.path("backups")).await;
    let target = fixture.restore(None, "restored").unwrap();
    let restored = Embedded::open(&target, fixture.options()).unwrap();
    put(&restored, 1000..1100).await;
    fixture.set_time(2_000_000);
    let (fork, _) = back_up(&restored, fixture.path("backups")).await;
    assert_ne!(original.history, fork.history);
    // The newest backup decides which line of writes a point in time belongs to.
    let error = fixture.restore(Some(1_500_000), "other-line").unwrap_err();
    assert!(matches!(error, BackupError::NotCovered(_)), "{error}");
    let target = fixture.restore(None, "fork").unwrap();
    assert_eq!(fixture.keys_in(&target).await.len(), 1100);
}

#[tokio::test]
async fn damage_in_a_repository_is_found_and_named() {
    let fixture = Fixture::new();
    let store = fixture.open().await;
    put(&store, 0..2000).await;
    let (backup, _) = back_up(&store, fixture.path("backups")).await;
    let files = std::fs::read_dir(fixture.path("backups").join("files")).unwrap();
    let largest = files.map(|file| file.unwrap()).max_by_key(|file| file.metadata().unwrap().len()).unwrap();
    let mut content = std::fs::read(largest.path()).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(largest.path(), content).unwrap();
    let repository = BackupRepository::open(fixture.path("backups")).unwrap();
    let error = repository.verify(&backup.name).unwrap_err().to_string();
    assert!(error.contains(&*largest.file_name().to_string_lossy()), "{error}");
    let error = fixture.restore(None, "restored").unwrap_err();
    assert!(matches!(error, BackupError::Damaged { .. }), "{error}");
    // An incomplete restore is not mistaken for a store.
    assert!(Embedded::open(fixture.path("restored"), fixture.options()).is_err());
}

#[tokio::test]
async fn restore_and_backup_refuse_directories_that_belong_to_something_else() {
    let fixture = Fixture::new();
    let store = fixture.open().await;
    put(&store, 0..10).await;
    back_up(&store, fixture.path("backups")).await;
    std::fs::create_dir(fixture.path("other")).unwrap();
    std::fs::write(fixture.path("other").join("thesis.txt"), "ten years").unwrap();
    let error = fixture.restore(None, "other").unwrap_err();
    assert!(matches!(error, BackupError::TargetNotEmpty { .. }), "{error}");
    let error = BackupRepository::create(fixture.path("other")).err().unwrap();
    assert!(error.to_string().contains("thesis.txt"), "{error}");
}

#[tokio::test]
async fn checkpoints_leave_nothing_behind() {
    let fixture = Fixture::new();
    let store = fixture.open().await;
    put(&store, 0..1000).await;
    let checkpoint = store.checkpoint().await.unwrap().expect("the embedded store has checkpoints");
    let links = fixture.path("data").join("checkpoints");
    assert_eq!(std::fs::read_dir(&links).unwrap().count(), 1);
    assert!(checkpoint.read("../../etc/passwd", 0, 10).unwrap().is_none());
    drop(checkpoint);
    assert_eq!(std::fs::read_dir(&links).unwrap().count(), 0);
    // Left by a process that was killed.
    std::fs::create_dir(links.join("left")).unwrap();
    drop(store);
    let store = fixture.open().await;
    assert!(!links.exists());
    assert_eq!(keys(&store).await.len(), 1000);
}
