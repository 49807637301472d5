//! A disk that fills up, on a real, small file system. Skipped with a message where mounting one is not permitted.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stderr, reason = "tests")]
#![cfg(target_os = "linux")]

mod operations;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_storage::{
    CommitError, Embedded, EmbeddedOptions, Health, Key, PartitionId, PartitionRef, PartitionStore,
    ReadRequest, StoreError, commit,
};

use operations::Blind;

const PARTITION: PartitionRef = PartitionRef { id: PartitionId(1), epoch: 0 };
const DISK_MB: u32 = 32;
const FILLER_BYTES: usize = 12 << 20;

/// A small file system that is unmounted when the test ends.
struct SmallDisk {
    directory: tempfile::TempDir,
    /// The file that holds the file system, unless it is in memory.
    image: Option<tempfile::NamedTempFile>,
}

impl SmallDisk {
    /// One in memory.
    fn mount() -> Option<Self> {
        let disk = Self { directory: tempfile::tempdir().unwrap(), image: None };
        let size = format!("size={DISK_MB}m");
        succeeds(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(disk.path()))
            .then_some(disk)
    }

    /// An ext4, which turns read-only when it is damaged.
    fn mount_ext4() -> Option<Self> {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(u64::from(DISK_MB) << 20).unwrap();
        let disk = Self { directory: tempfile::tempdir().unwrap(), image: Some(image) };
        let made = succeeds(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(disk.image_path()));
        (made && disk.attach()).then_some(disk)
    }

    fn image_path(&self) -> &Path {
        self.image.as_ref().unwrap().path()
    }

    fn attach(&self) -> bool {
        let options = ["-o", "loop,errors=remount-ro"];
        succeeds(Command::new("mount").args(options).arg(self.image_path()).arg(self.path()))
    }

    fn detach(&self) {
        assert!(succeeds(Command::new("umount").arg(self.path())));
    }

    /// What the kernel does when it meets an error in the file system.
    fn turn_read_only(&self) {
        assert!(succeeds(Command::new("mount").args(["-o", "remount,abort"]).arg(self.path())));
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

fn succeeds(command: &mut Command) -> bool {
    let succeeded = command.output().is_ok_and(|output| output.status.success());
    if !succeeded {
        eprintln!("skipped: cannot mount a file system here ({command:?})");
    }
    succeeded
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg(self.path()).output().ok();
    }
}

fn key(number: u32) -> Key {
    number.to_be_bytes().to_vec()
}

/// An incompressible value.
fn value(number: u32) -> Bytes {
    let mut state = u64::from(number) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..8192).map(|_| next()).collect::<Vec<u8>>().into()
}

fn sizes(reserve: u64) -> EmbeddedOptions {
    EmbeddedOptions {
        memtable_bytes: 1 << 20,
        table_bytes: 1 << 20,
        disk_reserve_bytes: reserve,
        ..EmbeddedOptions::default()
    }
}

async fn check_all_there(store: &Embedded, count: u32) {
    for number in 0..count {
        let page = store.read(PARTITION, ReadRequest::Get(vec![key(number)])).await.unwrap();
        assert_eq!(page.values, [Some(value(number))], "entry {number}");
    }
}

/// Writes until the store refuses; returns the number of acknowledged writes.
async fn fill(store: &Embedded, from: u32) -> u32 {
    for number in from.. {
        match commit(store, PARTITION, Blind::put(key(number), value(number))).await {
            Ok(_) => {}
            Err(CommitError::Full(_)) => return number,
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!("the disk is finite")
}

async fn fill_and_free_the_disk(reserve: u64) {
    let Some(disk) = SmallDisk::mount() else { return };
    let filler = disk.path().join("filler");
    fs::write(&filler, vec![1; FILLER_BYTES]).unwrap();
    let path = disk.path().join("data");
    let store = Embedded::open(&path, sizes(reserve)).unwrap();
    store.create(PARTITION.id, 0).await.unwrap();
    let written = fill(&store, 0).await;
    assert!(written > 100, "only {written} were accepted");
    let Health::Impaired(reason) = store.health() else { panic!("{:?}", store.health()) };
    assert!(!reason.is_empty());
    assert!(matches!(store.create(PartitionId(2), 0).await, Err(StoreError::Full(_))));
    check_all_there(&store, written).await;
    let counter = (b"counter".to_vec(), Bytes::from_static(b"1"));
    let delete = Blind { puts: vec![counter], deletes: vec![key(written - 1)] };
    let deleted = commit(&store, PARTITION, delete).await;
    // Without a reserve there may be no space even for removals.
    assert!(deleted.is_ok() || (reserve == 0 && matches!(deleted, Err(CommitError::Full(_)))), "{deleted:?}");
    // Once there is space again, writes resume by themselves.
    fs::remove_file(&filler).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while store.health() != Health::Ready {
        assert!(Instant::now() < deadline, "{:?}", store.health());
        tokio::task::yield_now().await;
    }
    let all = fill(&store, written - 1).await;
    assert!(all > written);
    // A clean shutdown with a full disk loses nothing.
    let closed = tokio::time::timeout(Duration::from_secs(20), store.close()).await;
    closed.expect("closing hangs").unwrap();
    drop(store);
    let store = Embedded::open(&path, sizes(reserve)).unwrap();
    check_all_there(&store, all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_rejects_growth_and_recovers() {
    fill_and_free_the_disk(4 << 20).await;
}

/// Without a reserve a failing write detects the full disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_without_a_reserve_loses_nothing() {
    fill_and_free_the_disk(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_that_turns_read_only_is_reported_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount_ext4() else { return };
    let path = disk.path().join("data");
    let store = Embedded::open(&path, sizes(0)).unwrap();
    store.create(PARTITION.id, 0).await.unwrap();
    let mut written = 0;
    while written < 200 {
        commit(&store, PARTITION, Blind::put(key(written), value(written))).await.unwrap();
        written += 1;
    }
    disk.turn_read_only();
    // The page cache may take a few more, but an fsync fails, so none is acknowledged.
    let refused = commit(&store, PARTITION, Blind::put(key(written), value(written))).await;
    assert!(refused.is_err(), "acknowledged on a read-only file system");
    match store.health() {
        Health::Ready => panic!("a store that cannot write is ready"),
        Health::Impaired(reason) | Health::Failed(reason) => assert!(!reason.is_empty()),
    }
    check_all_there(&store, written).await;
    // There is nothing to flush to: closing may report that, but ends.
    tokio::time::timeout(Duration::from_secs(20), store.close()).await.expect("closing hangs").ok();
    drop(store);
    disk.detach();
    assert!(disk.attach());
    let store = Embedded::open(&path, sizes(0)).unwrap();
    check_all_there(&store, written).await;
    commit(&store, PARTITION, Blind::put(key(written), value(written))).await.unwrap();
}
