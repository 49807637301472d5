//! Restores a backup into a new directory, optionally to a point in time.
//!
//! The tables are copied as they are. The journals are replayed one by one, each into a table of its own, so that a day
//! of writes needs no more memory than one journal. For a point in time the replay continues with the journals of later
//! backups of the same history and stops at the first record written after that time.
//!
//! `FORMAT` is written last: an interrupted restore is not mistaken for a store.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use super::manifest::{Manifest, ManifestFile};
use super::{BackupError, BackupRepository};
use crate::embedded::journal::{self, Change, Journal};
use crate::embedded::tree::{Tree, TreeError};
use crate::embedded::{Embedded, EmbeddedOptions, history, layout, open, verify};

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreSummary {
    /// The backup that the tables came from.
    pub backup: String,
    /// The time of the last write that was restored, in milliseconds since 1970, to 10 ms; `None` if nothing was
    /// ever written.
    pub reached_ms: Option<i64>,
    /// Journal records that were replayed on top of the tables.
    pub records: u64,
    pub bytes: u64,
}

impl BackupRepository {
    /// Restores the named backup, or the newest one, into an empty directory. With `until_ms`, restores the state at
    /// that time instead: the newest backup before it, and the journals after that backup.
    pub fn restore(
        &self,
        target: &Path,
        name: Option<&str>,
        until_ms: Option<i64>,
        options: &EmbeddedOptions,
    ) -> Result<RestoreSummary, BackupError> {
        let manifests = self.manifests()?;
        let base = choose(&manifests, name, until_ms)?;
        let journals = journals_after(&manifests, base, until_ms);
        // Backup and journals are chosen before the target is touched, so that a wrong argument changes nothing.
        prepare(target)?;
        let mut bytes = 0;
        for file in &base.files {
            if file.path.starts_with("tree/") {
                self.write(file, &target.join(&file.path))?;
                bytes += file.bytes;
            }
        }
        // Opens the tables only; there is no journal and no committer while this runs.
        let tree = open::open_tree(target, options)?;
        let mut replay = Replay { until_ms, ended: false, records: 0, reached_ms: None };
        // The tables carry the time and the journal number of their newest write, which is where the replay continues.
        replay.reached_ms = last_time(target, &tree)?;
        let mut next = last_number(target, &tree)? + 1;
        for (number, file) in journals {
            if replay.ended {
                break;
            }
            // A gap: replaying later journals would skip writes in the middle.
            if number > next {
                let path = layout::journal_path(target, next);
                return Err(BackupError::NotCovered(format!(
                    "journal {} is in none of the backups: they do not cover the time up to the requested one",
                    path.file_name().unwrap_or_default().display()
                )));
            }
            let path = layout::journal_path(target, number);
            self.write(file, &path)?;
            bytes += file.bytes;
            journal::replay(&path, number, false, &mut |sequence, changes| {
                replay.apply(&tree, sequence, changes);
            })?;
            // One table per journal, which bounds the memory however long the log is.
            if tree.seal_memtable() {
                flush(target, &tree)?;
            }
            // Its writes are in a table; the restored store must not replay them a second time.
            fs::remove_file(&path).map_err(BackupError::io(&path))?;
            // From the tree, not from the file's name: a journal without records counts as not there.
            next = next.max(last_number(target, &tree)? + 1);
        }
        // The restored store starts with a journal of its own, after all numbers that were used.
        Journal::create(target, next).map_err(BackupError::io(target))?;
        drop(tree);
        // A new history: from here on the same journal numbers mean other writes.
        history::write(target, options.env.as_ref()).map_err(BackupError::io(target))?;
        write_format(target)?;
        // Read everything once more and verify the table checksums before the store is used.
        drop(Embedded::open(target, EmbeddedOptions { verify_tables: true, ..options.clone() })?);
        let Replay { records, reached_ms, .. } = replay;
        Ok(RestoreSummary { backup: base.name.clone(), reached_ms, records, bytes })
    }

    fn write(&self, file: &ManifestFile, path: &Path) -> Result<(), BackupError> {
        let mut writer = File::create(path).map_err(BackupError::io(path))?;
        self.read_checked(file, &mut writer)?;
        writer.sync_all().map_err(BackupError::io(path))
    }
}

struct Replay {
    until_ms: Option<i64>,
    /// A record after the requested time was found.
    ended: bool,
    records: u64,
    reached_ms: Option<i64>,
}

impl Replay {
    fn apply(&mut self, tree: &Tree, sequence: u64, changes: Vec<Change>) {
        let mark = changes.iter().find(|change| change.key == layout::time_key());
        if let Some(at) = mark.and_then(|change| time(change.value.as_deref()?)) {
            // The first record after the time ends the replay; records are in the order of their times.
            self.ended |= self.until_ms.is_some_and(|until| at > until);
            if !self.ended {
                self.reached_ms = Some(at);
            }
        }
        if !self.ended {
            tree.replay(sequence, changes);
            self.records += 1;
        }
    }
}

fn choose<'a>(
    manifests: &'a [Manifest],
    name: Option<&str>,
    until_ms: Option<i64>,
) -> Result<&'a Manifest, BackupError> {
    let newest = manifests.last().ok_or(BackupError::Empty)?;
    let named = |name: &str| {
        let found = manifests.iter().find(|manifest| manifest.name == name);
        found.ok_or_else(|| BackupError::UnknownBackup(name.to_owned()))
    };
    let Some(until) = until_ms else { return name.map_or(Ok(newest), named) };
    let last = name.map_or(Ok(newest), named)?;
    // Nothing is known about writes after the newest backup, so they must not be promised.
    if until > last.taken_ms {
        let reason =
            "the requested time is after the newest backup: take a backup first, or leave the time out";
        return Err(BackupError::NotCovered(reason.to_owned()));
    }
    // Of the same line of writes as the last one: a restored server starts a new line.
    let mut before = manifests.iter().filter(|manifest| manifest.history == last.history);
    before
        .rfind(|manifest| manifest.taken_ms <= until)
        .ok_or_else(|| BackupError::NotCovered("the requested time is before the oldest backup".to_owned()))
}

/// The journals to replay, by number. Of a journal that several backups contain, the longest version counts: it grew.
fn journals_after<'a>(
    manifests: &'a [Manifest],
    base: &'a Manifest,
    until_ms: Option<i64>,
) -> BTreeMap<u64, &'a ManifestFile> {
    let later = manifests.iter().filter(|manifest| {
        until_ms.is_some() && manifest.history == base.history && manifest.taken_ms > base.taken_ms
    });
    // The base's own journals, then those of later backups of the same history.
    let own = base.files.iter().filter(|file| file.path.starts_with("journal/"));
    let mut journals = BTreeMap::<u64, &ManifestFile>::new();
    for file in own.chain(later.flat_map(|manifest| &manifest.files)) {
        let Some(number) = layout::journal_number(Path::new(&file.path)) else { continue };
        let known = journals.entry(number).or_insert(file);
        if known.bytes < file.bytes {
            *known = file;
        }
    }
    // Older ones are in the base's tables.
    let first = base.files.iter().filter(|file| file.path.starts_with("journal/"));
    let first = first.filter_map(|file| layout::journal_number(Path::new(&file.path))).min();
    journals.retain(|number, _| first.is_some_and(|first| *number >= first));
    journals
}

fn prepare(target: &Path) -> Result<(), BackupError> {
    fs::create_dir_all(target).map_err(BackupError::io(target))?;
    if fs::read_dir(target).map_err(BackupError::io(target))?.next().is_some() {
        return Err(BackupError::TargetNotEmpty { directory: target.to_owned() });
    }
    for path in [layout::journals_path(target), layout::tree_path(target).join("tables")] {
        fs::create_dir_all(&path).map_err(BackupError::io(&path))?;
    }
    Ok(())
}

fn write_format(target: &Path) -> Result<(), BackupError> {
    let path = layout::format_path(target);
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(layout::format_text().as_bytes())?;
        file.sync_all()?;
        journal::sync_directory(target)
    });
    written.map_err(BackupError::io(&path))
}

/// Writes the sealed memtable to a table, and merges tables so that they do not pile up.
fn flush(target: &Path, tree: &Tree) -> Result<(), BackupError> {
    let flushed = tree.flush().and_then(|()| {
        while tree.compact()? {}
        tree.collect(true)
    });
    flushed.map_err(|error| describe(target, TreeError::from(error)))
}

fn describe(target: &Path, fault: TreeError) -> BackupError {
    let (TreeError::Io(detail) | TreeError::Full(detail) | TreeError::Damaged(detail)) = fault;
    let tables = verify::check_table_list(&layout::tree_path(target));
    match tables.ok().and_then(|tables| verify::find_damaged_table(&tables)) {
        Some((file, found)) => BackupError::Damaged { file, detail: found },
        None => BackupError::Io { path: target.to_owned(), source: std::io::Error::other(detail) },
    }
}

fn last_number(target: &Path, tree: &Tree) -> Result<u64, BackupError> {
    let value = tree.pin().get(&layout::journal_key()).map_err(|fault| describe(target, fault))?;
    Ok(value.and_then(|value| <[u8; 8]>::try_from(&value[..]).ok()).map_or(0, u64::from_be_bytes))
}

fn last_time(target: &Path, tree: &Tree) -> Result<Option<i64>, BackupError> {
    let value = tree.pin().get(&layout::time_key()).map_err(|fault| describe(target, fault))?;
    Ok(value.and_then(|value| time(&value)))
}

fn time(value: &[u8]) -> Option<i64> {
    <[u8; 8]>::try_from(value).ok().map(i64::from_be_bytes)
}
