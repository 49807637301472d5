//! Opens a directory: locks it, checks its format, replays journals after a crash, starts the threads.
//!
//! Every problem is reported with the file it was found in. Nothing is repaired silently except a torn record at the
//! end of the newest journal, which was never acknowledged.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::EmbeddedOptions;
use super::committer::Committer;
use super::error::OpenError;
use super::journal::{self, Journal};
use super::layout::{self, PartitionRecord, Slot};
use super::shared::{Partition, Shared};
use super::tree::{Pin, Tree, TreeError};
use super::{background, checkpoint, history, verify, watchdog};
use crate::contract::{Direction, KeyRange, PartitionId, Scan, Want};
use crate::transaction::panic_text;

type Opened = (Arc<Shared>, Vec<JoinHandle<()>>, File);

pub(super) fn open(directory: PathBuf, options: EmbeddedOptions) -> Result<Opened, OpenError> {
    // The lock comes first: everything after it may change files.
    let lock = lock(&directory)?;
    check_format(&directory)?;
    history::ensure(&directory, options.env.as_ref())?;
    // Links of a process that died; they would keep files alive.
    checkpoint::remove_left_over(&directory).map_err(OpenError::io(&directory))?;
    let tree = open_tree(&directory, &options)?;
    let (journal, sealed) = recover_journals(&directory, &tree)?;
    let shared = Arc::new(Shared::new(directory, options, tree));
    // After the replay, which may have created or destroyed partitions.
    let next_slot = load_partitions(&shared)?;
    // The flusher is not running yet; it starts with these journals.
    for path in sealed {
        shared.background.memtable_sealed(path);
    }
    let committer = Committer::new(Arc::clone(&shared), journal, next_slot);
    let committer = committer.map_err(OpenError::io(&shared.directory))?;
    let (flusher, merger, watchdog) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
    let threads = [
        spawn("orrery-commit", move || committer.run()),
        spawn("orrery-flush", move || background::run_flusher(&flusher)),
        spawn("orrery-merge", move || background::run_merger(&merger)),
        spawn("orrery-watch", move || watchdog::run_watchdog(&watchdog)),
    ];
    let threads = threads.into_iter().collect::<Result<Vec<_>, _>>();
    match threads {
        Ok(threads) => Ok((shared, threads, lock)),
        Err(source) => {
            // Threads that were started see the failure and exit.
            shared.fail("its threads cannot be started");
            Err(OpenError::io(&shared.directory)(source))
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    orrery_env::task::thread(name, run)
}

fn lock(directory: &Path) -> Result<File, OpenError> {
    let is_new = !directory.exists();
    fs::create_dir_all(directory).map_err(OpenError::io(directory))?;
    // The new directory's own name must be durable too.
    if is_new && let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        journal::sync_directory(parent).map_err(OpenError::io(parent))?;
    }
    let path = layout::lock_path(directory);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(OpenError::io(&path))?;
    match file.try_lock() {
        // Released by the operating system if the process dies, so no lock is ever left behind.
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { directory: directory.to_owned() }),
        Err(TryLockError::Error(source)) => Err(OpenError::io(&path)(source)),
    }
}

/// Rejects directories of another kind or a newer version; initialises an empty one.
fn check_format(directory: &Path) -> Result<(), OpenError> {
    let path = layout::format_path(directory);
    match fs::read(&path) {
        Ok(content) => {
            let version = std::str::from_utf8(&content).ok().and_then(layout::parse_format);
            match version {
                Some(layout::FORMAT_VERSION) => Ok(()),
                Some(found) if found > layout::FORMAT_VERSION => Err(OpenError::NewerFormat {
                    directory: directory.to_owned(),
                    found,
                    known: layout::FORMAT_VERSION,
                }),
                _ => Err(OpenError::damaged(&path, "it does not contain a format version")),
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(directory, &path),
        Err(error) => Err(OpenError::io(&path)(error)),
    }
}

/// Initialises a store. `FORMAT` is written last, so that an interrupted initialisation is started over.
fn create(directory: &Path, format: &Path) -> Result<(), OpenError> {
    check_holds_no_data(directory, format)?;
    let (tree, journals) = (layout::tree_path(directory), layout::journals_path(directory));
    for path in [&tree, &journals] {
        // Left by an initialisation that was interrupted; `check_holds_no_data` has seen that they are empty.
        if path.try_exists().map_err(OpenError::io(path))? {
            fs::remove_dir_all(path).map_err(OpenError::io(path))?;
        }
        fs::create_dir(path).map_err(OpenError::io(path))?;
    }
    // Make both directory entries durable before anything relies on their contents.
    journal::sync_directory(directory).map_err(OpenError::io(directory))?;
    Journal::create(directory, 1).map_err(OpenError::io(&journals))?;
    let unfinished = format.with_extension("tmp");
    let written = File::create(&unfinished).and_then(|mut file| {
        file.write_all(layout::format_text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, format)?;
        journal::sync_directory(directory)
    });
    written.map_err(OpenError::io(format))
}

/// Makes sure that a directory without `FORMAT` is empty, or contains only what an interrupted initialisation leaves:
/// no table and no journal with records.
fn check_holds_no_data(directory: &Path, format: &Path) -> Result<(), OpenError> {
    let ours = ["LOCK", "FORMAT.tmp", "PROBE", "HISTORY", "HISTORY.tmp", "tree", "journal"];
    for entry in fs::read_dir(directory).map_err(OpenError::io(directory))? {
        let name = entry.map_err(OpenError::io(directory))?.file_name();
        if !ours.iter().any(|our| *our == name) {
            let found = name.to_string_lossy().into_owned();
            return Err(OpenError::NotAStore { directory: directory.to_owned(), found });
        }
    }
    let tables = layout::tree_path(directory).join("tables");
    let has_tables = fs::read_dir(&tables).is_ok_and(|mut entries| entries.next().is_some());
    let has_records = journals(directory)?.into_iter().any(|(number, path)| {
        let replayed = journal::replay(&path, number, true, &mut |_, _| {});
        // A journal that cannot be read counts as data.
        replayed.map_or(true, |replayed| replayed.records > 0)
    });
    if has_tables || has_records {
        return Err(OpenError::damaged(format, "it is missing, but the directory contains data"));
    }
    Ok(())
}

pub(super) fn open_tree(directory: &Path, options: &EmbeddedOptions) -> Result<Tree, OpenError> {
    let path = layout::tree_path(directory);
    let tables = verify::check_table_list(&path)?;
    if options.verify_tables
        && let Some((file, detail)) = verify::find_damaged_table(&tables)
    {
        return Err(OpenError::Damaged { file, detail });
    }
    let open = || Tree::open(&path, options.cache_bytes, options.table_bytes);
    let error = match catch_unwind(AssertUnwindSafe(open)) {
        Ok(Ok(tree)) => return Ok(tree),
        Ok(Err(error)) => error,
        Err(payload) => {
            let text = panic_text(payload.as_ref());
            lsm_tree::Error::Io(std::io::Error::new(std::io::ErrorKind::InvalidData, text))
        }
    };
    // Whatever the error says, a damaged table is the most likely cause, even of an invalid argument.
    if let Some((file, found)) = verify::find_damaged_table(&tables) {
        return Err(OpenError::Damaged { file, detail: format!("{found} ({error:?})") });
    }
    Err(match TreeError::from(error) {
        TreeError::Damaged(detail) => OpenError::Damaged { file: path, detail },
        TreeError::Io(detail) | TreeError::Full(detail) => {
            OpenError::Io { path, source: std::io::Error::other(detail) }
        }
    })
}

/// Replays all journals. Returns the one to continue with and those whose memtables must still become tables.
fn recover_journals(directory: &Path, tree: &Tree) -> Result<(Journal, Vec<PathBuf>), OpenError> {
    let found = journals(directory)?;
    check_complete(directory, tree, &found)?;
    let mut sealed = Vec::new();
    let (mut next, mut reuse) = (1, false);
    for (place, (number, path)) in found.iter().enumerate() {
        let newest = place + 1 == found.len();
        let mut apply = |sequence, changes| tree.replay(sequence, changes);
        // Only the newest journal may end with a torn record.
        let replayed = journal::replay(path, *number, newest, &mut apply)?;
        if replayed.torn_bytes > 0 {
            tracing::info!(
                journal = %path.display(),
                bytes = replayed.torn_bytes,
                            "dropped a torn record at the end of the journal; it was never acknowledged"
            );
        }
        let surplus = replayed.torn_bytes + replayed.unused_bytes;
        // Cut off durably, so that the journal counts as sealed from now on.
        if surplus > 0 {
            cut_end(path, surplus).map_err(OpenError::io(path))?;
        }
        // Reuse an empty journal: every consumed number has left its mark in the tree, so that a missing journal is
        // detected.
        reuse = replayed.records == 0;
        if reuse {
            next = *number;
            continue;
        }
        next = number + 1;
        // One memtable per journal also after recovery, so that the journal can be deleted with its flush.
        tree.seal_memtable();
        sealed.push(path.clone());
    }
    let journal = if reuse { Journal::reuse(directory, next) } else { Journal::create(directory, next) };
    let journal = journal.map_err(OpenError::io(directory))?;
    Ok((journal, sealed))
}

/// Checks that no journal is missing: they are numbered without gaps, and the tree records the last one it absorbed.
fn check_complete(directory: &Path, tree: &Tree, found: &[(u64, PathBuf)]) -> Result<(), OpenError> {
    let absorbed = tree.pin().get(&layout::journal_key());
    let absorbed = absorbed.map_err(|fault| damaged_tree(directory, fault))?;
    let absorbed =
        absorbed.and_then(|value| <[u8; 8]>::try_from(&value[..]).ok()).map_or(0, u64::from_be_bytes);
    let missing = |number| {
        let path = layout::journal_path(directory, number);
        Err(OpenError::damaged(&path, "the journal is missing"))
    };
    // A start always leaves at least one journal. Journals up to `absorbed` may be gone: their memtables are tables.
    let Some((first, _)) = found.first() else { return missing(absorbed + 1) };
    if *first > absorbed + 1 {
        return missing(absorbed + 1);
    }
    match found.windows(2).find(|pair| pair[1].0 != pair[0].0 + 1) {
        Some(pair) => missing(pair[0].0 + 1),
        None => Ok(()),
    }
}

/// Lists the journals, oldest first.
pub(super) fn journals(directory: &Path) -> Result<Vec<(u64, PathBuf)>, OpenError> {
    let path = layout::journals_path(directory);
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(OpenError::io(&path)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(OpenError::io(&path))?.path();
        if let Some(number) = layout::journal_number(&path) {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn cut_end(path: &Path, bytes: usize) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(file.metadata()?.len() - bytes as u64)?;
    file.sync_all()
}

/// Loads all partition records and resumes sweeping dead slots; returns the next free slot.
fn load_partitions(shared: &Shared) -> Result<u32, OpenError> {
    let directory = &shared.directory;
    let pin = shared.tree.pin();
    let records = read_all(directory, &pin, b'P')?;
    for (key, value) in records {
        let (Some(id), Some(record)) = (key, PartitionRecord::decode(&value)) else {
            return Err(OpenError::damaged(&layout::tree_path(directory), "a partition record is malformed"));
        };
        shared.insert(Arc::new(Partition::new(PartitionId(id), record)));
    }
    for (slot, _) in read_all(directory, &pin, b'D')? {
        // Never sweep slot 0, the store's own, whatever a malformed record says.
        if let Some(slot) = slot.filter(|slot| *slot != Slot::STORE.0) {
            shared.tree.dead_slots().add(Slot(slot));
            shared.background.slot_died();
        }
    }
    let next = pin.get(&layout::next_slot_key()).map_err(|fault| damaged_tree(directory, fault))?;
    Ok(next.and_then(|value| <[u8; 4]>::try_from(&value[..]).ok()).map_or(1, u32::from_be_bytes))
}

fn read_all(
    directory: &Path,
    pin: &Pin<'_>,
    kind: u8,
) -> Result<Vec<(Option<u32>, bytes::Bytes)>, OpenError> {
    let (start, end) = layout::store_range(kind);
    let scan = Scan {
        range: KeyRange::all(),
        direction: Direction::Forward,
        entries_max: usize::MAX,
        bytes_max: usize::MAX,
        want: Want::KeysAndValues,
    };
    let page = pin.scan_full(start, end, &scan).map_err(|fault| damaged_tree(directory, fault))?;
    let read = |entry: crate::contract::Entry| (layout::number_in_key(&entry.key), entry.value);
    Ok(page.entries.into_iter().map(read).collect())
}

/// Turns a failed read into an error that names the damaged table.
fn damaged_tree(directory: &Path, fault: TreeError) -> OpenError {
    let path = layout::tree_path(directory);
    let detail = match fault {
        TreeError::Damaged(detail) => detail,
        TreeError::Io(detail) | TreeError::Full(detail) => {
            return OpenError::Io { path, source: std::io::Error::other(detail) };
        }
    };
    let damaged = verify::check_table_list(&path).map(|tables| verify::find_damaged_table(&tables));
    match damaged {
        Err(error) => error,
        Ok(Some((file, found))) => OpenError::Damaged { file, detail: format!("{found} ({detail})") },
        Ok(None) => OpenError::Damaged { file: path, detail },
    }
}
