//! Damaged, missing, foreign and locked files: each must be detected and named, and no read may ever return anything
//! but what was written.

#![allow(clippy::unwrap_used, reason = "tests")]

mod operations;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use orrery_storage::{
    CommitError, Embedded, EmbeddedOptions, Health, Key, KeyRange, OpenError, PartitionId, PartitionRef,
    PartitionStore, ReadRequest, Scan, StoreError, commit,
};

use operations::Blind;

const PARTITION: PartitionRef = PartitionRef { id: PartitionId(1), epoch: 0 };

type Model = BTreeMap<Key, Bytes>;

fn options() -> EmbeddedOptions {
    EmbeddedOptions { memtable_bytes: 24 << 10, table_bytes: 24 << 10, ..EmbeddedOptions::default() }
}

fn open(path: &Path) -> Result<Embedded, OpenError> {
    Embedded::open(path, options())
}

fn refusal(path: &Path) -> OpenError {
    open(path).err().expect("the store must not open")
}

fn assert_damaged(path: &Path, named: &Path) {
    match refusal(path) {
        OpenError::Damaged { file, .. } => assert_eq!(file, named),
        other => panic!("{other:?}"),
    }
}

/// Entries of different sizes, some compressible, in writes of one to three keys.
async fn fill(store: &Embedded, writes: u32) -> Model {
    let mut model = Model::new();
    store.create(PARTITION.id, 0).await.unwrap();
    for write in 0..writes {
        let puts = (0..=write % 3).map(|part| {
            let key = format!("key {:04} {part}", write.wrapping_mul(7919) % 10_000).into_bytes();
            let text = format!("value {write} {part} ").repeat(1 + (write % 40) as usize);
            (key, Bytes::from(text))
        });
        let puts: Vec<(Key, Bytes)> = puts.collect();
        model.extend(puts.iter().cloned());
        commit(store, PARTITION, Blind { puts, ..Blind::default() }).await.unwrap();
    }
    model
}

/// A cleanly closed store with several tables.
async fn closed_store(writes: u32) -> (tempfile::TempDir, PathBuf, Model) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let store = open(&path).unwrap();
    let model = fill(&store, writes).await;
    store.close().await.unwrap();
    (directory, path, model)
}

fn files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Reads everything, key by key and in pages. Each result is correct or an error that names the file; returns whether
/// there was an error.
async fn read_everything(store: &Embedded, model: &Model, damaged: &Path, context: &str) -> bool {
    let mut faults = 0;
    let mut note = |error: StoreError| match error {
        StoreError::Damaged { place, .. } => {
            assert_eq!(place, damaged.display().to_string(), "{context}");
            faults += 1;
        }
        other => panic!("{context}: {other:?}"),
    };
    for (key, value) in model {
        match store.read(PARTITION, ReadRequest::Get(vec![key.clone()])).await {
            Ok(page) => assert_eq!(page.values, [Some(value.clone())], "{context}"),
            Err(error) => note(error),
        }
    }
    let expected: Vec<(&Key, &Bytes)> = model.iter().collect();
    let mut range = KeyRange::all();
    let mut seen = 0;
    loop {
        match store.read(PARTITION, ReadRequest::Scan(Scan::forward(range.clone(), 25))).await {
            Ok(page) => {
                for entry in &page.entries {
                    assert_eq!((&entry.key, &entry.value), expected[seen], "{context}");
                    seen += 1;
                }
                if !page.more {
                    assert_eq!(seen, expected.len(), "{context}");
                    break;
                }
                range.start.clone_from(&page.entries.last().unwrap().key);
                range.start.push(0);
            }
            Err(error) => {
                note(error);
                break;
            }
        }
    }
    faults > 0
}

#[tokio::test]
async fn flipped_bits_in_tables_are_detected() {
    let (_directory, path, model) = closed_store(120).await;
    let tables = files(&path.join("tree").join("tables"));
    assert!(!tables.is_empty());
    // Opening may merge and thereby replace tables, so every case starts from a copy.
    let work = path.with_file_name("work");
    let (mut cases, mut at_open, mut at_read, mut harmless) = (0, 0, 0, 0);
    for table in &tables {
        let content = fs::read(table).unwrap();
        let step = (content.len() / 25).max(1);
        let ends = [0, 1, content.len() - 1, content.len() - 9, content.len() - 20];
        for at in (0..content.len()).step_by(step).chain(ends) {
            cases += 1;
            copy(&path, &work);
            let damaged = work.join("tree").join("tables").join(table.file_name().unwrap());
            let mut flipped = content.clone();
            flipped[at] ^= 0x10;
            fs::write(&damaged, &flipped).unwrap();
            let context = format!("{} byte {at} of {}", table.display(), content.len());
            // An explicit verification finds it in any case.
            let strict = EmbeddedOptions { verify_tables: true, ..options() };
            match Embedded::open(&work, strict).err() {
                Some(OpenError::Damaged { file, .. }) => assert_eq!(file, damaged, "{context}"),
                other => panic!("{context}: {other:?}"),
            }
            match open(&work) {
                Err(OpenError::Damaged { file, .. }) => {
                    assert_eq!(file, damaged, "{context}");
                    at_open += 1;
                }
                Err(other) => panic!("{context}: {other:?}"),
                Ok(store) => {
                    if read_everything(&store, &model, &damaged, &context).await {
                        at_read += 1;
                    } else {
                        // No read depends on this byte.
                        harmless += 1;
                    }
                }
            }
        }
    }
    println!("{cases} cases: {at_open} noticed at opening, {at_read} at reading, {harmless} without effect");
    assert!(at_open > 0 && at_read > 0);
}

fn copy(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    fs::create_dir(to).unwrap();
    for file in files(from) {
        let target = to.join(file.file_name().unwrap());
        if file.is_dir() {
            copy(&file, &target);
        } else {
            fs::copy(&file, &target).unwrap();
        }
    }
}

#[tokio::test]
async fn flipped_bits_in_the_table_list_are_detected() {
    let (_directory, path, model) = closed_store(60).await;
    let tree = path.join("tree");
    // `current` names the active list; older ones may remain until the next start.
    let current = tree.join("current");
    let number = u64::from_le_bytes(fs::read(&current).unwrap()[..8].try_into().unwrap());
    for list in [tree.join(format!("v{number}")), current] {
        let content = fs::read(&list).unwrap();
        for at in 0..content.len() {
            let mut flipped = content.clone();
            flipped[at] ^= 0x04;
            fs::write(&list, &flipped).unwrap();
            let OpenError::Damaged { file, .. } = refusal(&path) else {
                panic!("{} byte {at}", list.display())
            };
            assert!(file.starts_with(&tree), "{}", file.display());
        }
        fs::write(&list, &content).unwrap();
    }
    let store = open(&path).unwrap();
    assert!(!read_everything(&store, &model, &path, "repaired").await);
}

#[tokio::test]
async fn flipped_bits_in_journals_are_detected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    // A memtable large enough that nothing leaves the journal; dropped without being closed.
    let store = Embedded::open(&path, EmbeddedOptions::default()).unwrap();
    let model = fill(&store, 30).await;
    drop(store);
    let journals = files(&path.join("journal"));
    let [journal] = &journals[..] else { panic!("{journals:?}") };
    let content = fs::read(journal).unwrap();
    let mut cut_short = 0;
    for at in (0..content.len()).step_by(11) {
        let mut flipped = content.clone();
        flipped[at] ^= 0x40;
        fs::write(journal, &flipped).unwrap();
        match Embedded::open(&path, EmbeddedOptions::default()) {
            Err(OpenError::Damaged { file, .. }) => assert_eq!(&file, journal),
            Err(other) => panic!("{other:?}"),
            // A length that points beyond the file looks like a torn write. The record is dropped as a whole.
            Ok(store) => {
                assert_eq!(store.partitions().await.unwrap()[0].lsn, 29, "byte {at} of {}", content.len());
                cut_short += 1;
                drop(store);
                fs::remove_dir_all(path.join("journal")).unwrap();
                fs::create_dir(path.join("journal")).unwrap();
                fs::remove_dir_all(path.join("tree")).unwrap();
            }
        }
        fs::write(journal, &content).unwrap();
    }
    assert!(cut_short <= 1, "only a damaged length of the last record may be mistaken for a torn write");
    let store = open(&path).unwrap();
    assert!(!read_everything(&store, &model, &path, "repaired").await);
}

#[tokio::test]
async fn missing_files_are_detected() {
    let (_directory, path, _) = closed_store(60).await;
    let table = files(&path.join("tree").join("tables")).remove(0);
    let away = path.with_file_name("away");
    fs::rename(&table, &away).unwrap();
    assert_damaged(&path, &table);
    fs::rename(&away, &table).unwrap();

    let journal = files(&path.join("journal")).pop().unwrap();
    fs::rename(&journal, &away).unwrap();
    assert_damaged(&path, &journal);
    fs::rename(&away, &journal).unwrap();

    let format = path.join("FORMAT");
    fs::rename(&format, &away).unwrap();
    assert_damaged(&path, &format);
    fs::rename(&away, &format).unwrap();
    open(&path).unwrap();
}

#[tokio::test]
async fn foreign_formats_are_rejected() {
    let (_directory, path, model) = closed_store(10).await;
    let format = path.join("FORMAT");
    let content = fs::read(&format).unwrap();
    assert_eq!(content, b"orrery-store 1\n");
    fs::write(&format, "orrery-store 2\n").unwrap();
    match refusal(&path) {
        OpenError::NewerFormat { directory, found: 2, known: 1 } => assert_eq!(directory, path),
        other => panic!("{other:?}"),
    }
    for garbage in ["", "orrery-store 0\n", "orrery-store 1", "orrery-stone 1\n", "\u{0}"] {
        fs::write(&format, garbage).unwrap();
        assert_damaged(&path, &format);
    }
    fs::write(&format, &content).unwrap();
    let store = open(&path).unwrap();
    assert!(!read_everything(&store, &model, &path, "as before").await);

    let foreign = path.with_file_name("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("letters.txt"), "dear diary").unwrap();
    match refusal(&foreign) {
        OpenError::NotAStore { directory, found } => {
            assert_eq!((directory, found.as_str()), (foreign.clone(), "letters.txt"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read_to_string(foreign.join("letters.txt")).unwrap(), "dear diary");
}

#[tokio::test]
async fn a_directory_serves_one_store_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let first = open(&path).unwrap();
    match refusal(&path) {
        error @ OpenError::InUse { .. } => assert!(error.to_string().contains(path.to_str().unwrap())),
        other => panic!("{other:?}"),
    }
    first.close().await.unwrap();
    let second = open(&path).unwrap();
    drop(second);
    open(&path).unwrap();
    drop(first);
}

/// An interrupted initialisation is started over, wherever it was interrupted.
#[tokio::test]
async fn an_interrupted_initialisation_is_started_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    drop(open(&path).unwrap());
    fs::remove_file(path.join("FORMAT")).unwrap();
    drop(open(&path).unwrap());
    fs::remove_file(path.join("FORMAT")).unwrap();
    fs::remove_dir_all(path.join("tree")).unwrap();
    let store = open(&path).unwrap();
    fill(&store, 3).await;
}

/// If a new journal cannot be created, writes go offline, nothing acknowledged is lost, and reads are served.
#[tokio::test]
async fn a_write_failure_leaves_reads_working() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let store = open(&path).unwrap();
    let mut model = fill(&store, 5).await;
    let mut obstacles = Vec::new();
    for number in 1..200 {
        let obstacle = path.join("journal").join(format!("{number:010}.tmp"));
        if fs::create_dir(&obstacle).is_ok() {
            obstacles.push(obstacle);
        }
    }
    let mut offline = None;
    for write in 0..200_u32 {
        let put = (format!("more {write}").into_bytes(), Bytes::from(vec![b'x'; 1000]));
        match commit(&store, PARTITION, Blind::put(put.0.clone(), put.1.clone())).await {
            Ok(_) => model.extend([put]),
            Err(error) => {
                offline = Some(error);
                break;
            }
        }
    }
    assert!(matches!(offline, Some(CommitError::Unavailable(_))), "{offline:?}");
    let again = commit(&store, PARTITION, Blind::default()).await;
    assert!(matches!(again, Err(CommitError::Unavailable(_))), "{again:?}");
    assert!(matches!(store.health(), Health::Failed(_)), "{:?}", store.health());
    assert!(!read_everything(&store, &model, &path, "while nothing can be written").await);
    assert!(matches!(store.close().await, Err(StoreError::Unavailable(_))));
    drop(store);
    for obstacle in obstacles {
        fs::remove_dir(obstacle).unwrap();
    }
    let store = open(&path).unwrap();
    assert!(!read_everything(&store, &model, &path, "after the fault").await);
    commit(&store, PARTITION, Blind::default()).await.unwrap();
}
