//! Checkpoints: a consistent set of the store's files, taken while the store is running.
//!
//! Tables never change and journals only grow, so a checkpoint copies nothing: it is a directory of hard links that
//! keeps the files alive while they are copied. The committer links the journals between two groups, which takes
//! microseconds, and reports where the last record ends. The table list is linked after that. It may be newer than the
//! journals, never older, and recovery handles journals whose writes are already in tables.
//!
//! A checkpoint contains every write acknowledged before it was requested. Dropping it removes the links.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tokio::sync::oneshot;

use super::journal::{self, Journal};
use super::shared::{Shared, Task};
use super::{Embedded, history, layout, open, verify};
use crate::contract::{Checkpoint, CheckpointFile, StoreError};

/// How often linking the tables starts over because the list has changed meanwhile.
const ATTEMPTS: usize = 10;

/// The links to a checkpoint's files.
pub(super) struct LinkedFiles {
    directory: PathBuf,
    files: Vec<CheckpointFile>,
    history: String,
    taken_ms: i64,
}

/// A journal in a checkpoint.
pub(super) struct LinkedJournal {
    name: String,
    bytes: u64,
}

impl Embedded {
    /// Links the files of a checkpoint. Writers wait for it only as long as linking a few journals takes.
    pub(super) async fn link_files(&self) -> Result<LinkedFiles, StoreError> {
        self.shared.health.check_writable().map_err(StoreError::Unavailable)?;
        let env = &self.shared.options.env;
        let name = format!("{:016x}", env.random_u64());
        let mut checkpoint = LinkedFiles {
            directory: layout::checkpoints_path(&self.shared.directory).join(name),
            files: Vec::new(),
            history: history::read(&self.shared.directory).map_err(failed)?,
            taken_ms: 0,
        };
        for path in [layout::journals_path(&checkpoint.directory), tables_path(&checkpoint.directory)] {
            fs::create_dir_all(path).map_err(failed)?;
        }
        let (reply, answer) = oneshot::channel();
        let into = layout::journals_path(&checkpoint.directory);
        let pushed = self.shared.queue.push(Task::LinkJournals { into, reply }, usize::MAX);
        pushed.map_err(|_| StoreError::Unavailable("the store is closing".to_owned()))?;
        let journals =
            answer.await.map_err(|_| StoreError::Unavailable("the committer has exited".to_owned()))??;
        for LinkedJournal { name, bytes } in journals {
            let path = format!("journal/{name}");
            checkpoint.files.push(CheckpointFile { path, bytes, checksum: None });
        }
        let shared = std::sync::Arc::clone(&self.shared);
        let linked = orrery_env::task::run_blocking("checkpoint", move || {
            checkpoint.link_rest(&shared).map(|()| checkpoint)
        });
        let linked = linked.await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let mut checkpoint = linked.map_err(failed)?;
        // Not before the last file is linked: nothing in it is newer than this.
        checkpoint.taken_ms = env.now_ms();
        Ok(checkpoint)
    }
}

fn failed(error: impl std::fmt::Display) -> StoreError {
    StoreError::Unavailable(format!("a checkpoint cannot be taken: {error}"))
}

fn tables_path(directory: &Path) -> PathBuf {
    layout::tree_path(directory).join("tables")
}

impl Checkpoint for LinkedFiles {
    fn files(&self) -> &[CheckpointFile] {
        &self.files
    }

    fn history(&self) -> &str {
        &self.history
    }

    fn taken_ms(&self) -> i64 {
        self.taken_ms
    }

    fn read(&self, path: &str, offset: u64, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        // Only listed paths are ever joined with the directory.
        let Some(listed) = self.files.iter().find(|file| file.path == path) else { return Ok(None) };
        let bytes = listed.bytes.saturating_sub(offset).min(bytes_max as u64);
        let mut file = File::open(self.directory.join(&listed.path))?;
        file.seek(SeekFrom::Start(offset))?;
        let mut content = Vec::new();
        file.take(bytes).read_to_end(&mut content)?;
        if content.len() as u64 != bytes {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{path} is too short")));
        }
        Ok(Some(content))
    }
}

impl LinkedFiles {
    fn link_rest(&mut self, shared: &Shared) -> io::Result<()> {
        // Pinned, so that the tables of the list stay while they are linked.
        let pin = shared.tree.pin();
        let mut attempt = 1;
        while let Err(error) = self.link_tree(&shared.directory) {
            // A merge may have replaced the list between reading and linking it.
            if attempt == ATTEMPTS || error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            attempt += 1;
        }
        drop(pin);
        self.link_kept_log(&shared.directory)?;
        self.link(&shared.directory, "FORMAT", None)
    }

    fn link_tree(&mut self, store: &Path) -> io::Result<()> {
        self.files.retain(|file| !file.path.starts_with("tree/"));
        let tree = layout::tree_path(store);
        let Some((number, current)) = verify::read_current(&tree)? else { return Ok(()) };
        let list = format!("tree/v{number}");
        self.link(store, &list, None)?;
        let listed = verify::read_table_list(&tree, &self.directory.join(&list));
        let listed =
            listed.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "malformed table list"))?;
        for table in listed {
            let name = table.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.link(store, &format!("tree/tables/{name}"), Some(table.checksum))?;
        }
        // Written, not linked: it names the list that was linked, whatever the store's own names by now.
        let path = layout::tree_path(&self.directory).join("current");
        File::create(path)?.write_all(&current)?;
        let bytes = current.len() as u64;
        self.files.push(CheckpointFile { path: "tree/current".to_owned(), bytes, checksum: None });
        Ok(())
    }

    fn link_kept_log(&mut self, store: &Path) -> io::Result<()> {
        let Ok(entries) = fs::read_dir(layout::log_path(store)) else { return Ok(()) };
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        names.retain(|path| layout::journal_number(path).is_some());
        names.sort_unstable();
        fs::create_dir_all(layout::log_path(&self.directory))?;
        for path in names {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match self.link(store, &format!("log/{name}"), None) {
                // It has expired meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                linked => linked?,
            }
        }
        Ok(())
    }

    fn link(&mut self, store: &Path, path: &str, checksum: Option<u128>) -> io::Result<()> {
        let link = self.directory.join(path);
        link_or_copy(&store.join(path), &link)?;
        let bytes = fs::metadata(&link)?.len();
        self.files.push(CheckpointFile { path: path.to_owned(), bytes, checksum });
        Ok(())
    }
}

impl Drop for LinkedFiles {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            tracing::warn!(directory = %self.directory.display(), %error, "cannot remove a checkpoint");
        }
    }
}

/// Links all journals up to the one that is being written. Called by the committer, between two groups.
pub(super) fn link_journals(store: &Path, active: &Journal, into: &Path) -> io::Result<Vec<LinkedJournal>> {
    let mut linked = Vec::new();
    for (number, path) in open::journals(store).map_err(io::Error::other)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match link_or_copy(&path, &into.join(&name)) {
            Ok(()) => {}
            // The flusher deletes journals, oldest first, once their writes are in tables.
            Err(error) if error.kind() == io::ErrorKind::NotFound && number != active.number() => continue,
            Err(error) => return Err(error),
        }
        let is_active = number == active.number();
        let bytes = if is_active { active.end() } else { fs::metadata(into.join(&name))?.len() };
        linked.push(LinkedJournal { name, bytes });
    }
    assert!(!linked.is_empty(), "the journal that is being written exists");
    Ok(linked)
}

/// Removes leftover checkpoints of an earlier process.
pub(super) fn remove_left_over(store: &Path) -> io::Result<()> {
    let path = layout::checkpoints_path(store);
    match fs::remove_dir_all(&path) {
        Ok(()) => journal::sync_directory(store),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Some file systems have no hard links.
fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) =>
        {
            fs::copy(from, to).map(|_| ())
        }
        linked => linked,
    }
}
