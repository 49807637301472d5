//! Repositories of backups: a directory that holds the files of any number of checkpoints.
//!
//! ```text
//! LOCK                held while a backup is added or removed
//! files/<checksum>    contents, named by their XXH3-128 in hexadecimal; shared by all backups that need them
//! backups/<name>      manifests: which files make up one backup, see `manifest`
//! ```
//!
//! Tables never change, so a second backup adds only tables that were written since the first, and the journals. A
//! manifest is written last, after everything it names is on disk: an interrupted backup leaves files that the next one
//! reuses, never a backup that cannot be restored.
//!
//! The module copies bytes and knows nothing about where they come from; `orrery backup` reads a checkpoint over HTTP.

mod manifest;
mod restore;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use self::manifest::Manifest;
pub use self::manifest::ManifestFile;
pub use self::restore::RestoreSummary;
use super::error::OpenError;
use super::journal;
use crate::contract::CheckpointFile;

/// Why a backup could not be taken, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Another process adds or removes a backup.
    #[error("the backup directory {} is in use by another process", directory.display())]
    InUse { directory: PathBuf },
    #[error("{} is neither empty nor a backup directory: it contains {found}", directory.display())]
    NotARepository { directory: PathBuf, found: String },
    /// The content of a file differs from what was backed up, or the file is missing.
    #[error("{} is damaged: {detail}", file.display())]
    Damaged { file: PathBuf, detail: String },
    #[error("there is no backup named {0}")]
    UnknownBackup(String),
    #[error("there is no backup yet")]
    Empty,
    /// The requested time is not covered.
    #[error("{0}")]
    NotCovered(String),
    #[error("{} is not empty: restore into a new directory", directory.display())]
    TargetNotEmpty { directory: PathBuf },
    /// The restored files do not form a store.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl BackupError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    fn damaged(file: &Path, detail: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), detail: detail.into() }
    }
}

/// A directory with backups.
pub struct BackupRepository {
    directory: PathBuf,
}

/// The summary of one backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSummary {
    pub name: String,
    /// When the checkpoint was taken, in milliseconds since 1970.
    pub taken_ms: i64,
    /// The id of the line of writes it belongs to.
    pub history: String,
    pub files: usize,
    pub bytes: u64,
}

/// A backup that is being added.
pub struct NewBackup<'a> {
    repository: &'a BackupRepository,
    manifest: Manifest,
    /// Files of earlier backups of the same history, by path and length: enough to identify a journal.
    known: BTreeMap<(String, u64), u128>,
    copied_bytes: u64,
    /// Released on drop.
    _lock: File,
}

/// Receives the content of one file.
pub struct FileReceiver<'a, 'b> {
    backup: &'a mut NewBackup<'b>,
    expected: CheckpointFile,
    unfinished: PathBuf,
    file: File,
    hasher: Xxh3,
    bytes: u64,
}

impl BackupRepository {
    /// Opens a repository; creates it if the directory is missing or empty.
    pub fn create(directory: impl Into<PathBuf>) -> Result<Self, BackupError> {
        let directory = directory.into();
        fs::create_dir_all(&directory).map_err(BackupError::io(&directory))?;
        // Refuses a directory with foreign files: `prune` deletes whatever no manifest needs.
        let ours = ["LOCK", "files", "backups"];
        for entry in fs::read_dir(&directory).map_err(BackupError::io(&directory))? {
            let name = entry.map_err(BackupError::io(&directory))?.file_name();
            if !ours.iter().any(|our| *our == name) {
                let found = name.to_string_lossy().into_owned();
                return Err(BackupError::NotARepository { directory, found });
            }
        }
        let repository = Self { directory };
        for path in [repository.files_path(), repository.backups_path()] {
            fs::create_dir_all(&path).map_err(BackupError::io(&path))?;
        }
        journal::sync_directory(&repository.directory).map_err(BackupError::io(&repository.directory))?;
        Ok(repository)
    }

    /// Opens an existing repository.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, BackupError> {
        let repository = Self { directory: directory.into() };
        let path = repository.backups_path();
        fs::metadata(&path).map_err(BackupError::io(&path))?;
        Ok(repository)
    }

    /// All complete backups, oldest first.
    pub fn backups(&self) -> Result<Vec<BackupSummary>, BackupError> {
        Ok(self.manifests()?.iter().map(Manifest::summary).collect())
    }

    /// Starts a backup of a checkpoint with this history and time.
    pub fn begin(&self, history: &str, taken_ms: i64) -> Result<NewBackup<'_>, BackupError> {
        // Held until the backup is finished or dropped, so that `prune` cannot delete files that it is about to name.
        let lock = self.lock()?;
        let manifests = self.manifests()?;
        let same = manifests.iter().filter(|manifest| manifest.history == history);
        let known = same.flat_map(|manifest| &manifest.files).map(|file| {
            // A kept journal has another path than before, but the same name, length and content.
            ((file_name(&file.path), file.bytes), file.checksum)
        });
        // The time is the name; a second backup in the same millisecond takes the next free number.
        let name = (taken_ms..).map(|name| name.to_string());
        let name = name.into_iter().find(|name| manifests.iter().all(|manifest| manifest.name != *name));
        let manifest = Manifest {
            name: name.unwrap_or_default(),
            history: history.to_owned(),
            taken_ms,
            files: Vec::new(),
        };
        Ok(NewBackup { repository: self, manifest, known: known.collect(), copied_bytes: 0, _lock: lock })
    }

    /// Compares every file of a backup with its checksum.
    pub fn verify(&self, name: &str) -> Result<BackupSummary, BackupError> {
        let manifest = self.manifest(name)?;
        for file in &manifest.files {
            self.read_checked(file, &mut io::sink())?;
        }
        Ok(manifest.summary())
    }

    /// Removes all but the newest `keep` backups, and files that no backup needs. Returns how many backups were removed.
    pub fn prune(&self, keep: usize) -> Result<usize, BackupError> {
        let lock = self.lock()?;
        let manifests = self.manifests()?;
        // Manifests go first, files after: a crash in between leaves files without a manifest, which the next
        // prune deletes, never the other way round.
        let (old, kept) = manifests.split_at(manifests.len().saturating_sub(keep));
        for manifest in old {
            let path = self.backups_path().join(&manifest.name);
            fs::remove_file(&path).map_err(BackupError::io(&path))?;
        }
        // Durable before the first file goes: otherwise a manifest could return after a
        // power failure without its files.
        let backups = self.backups_path();
        journal::sync_directory(&backups).map_err(BackupError::io(&backups))?;
        let needed: BTreeSet<String> = kept
            .iter()
            .flat_map(|manifest| &manifest.files)
            .map(|file| content_name(file.checksum))
            .collect();
        let files = self.files_path();
        // Also deletes what interrupted backups have left behind.
        for entry in fs::read_dir(&files).map_err(BackupError::io(&files))?.flatten() {
            if !needed.contains(&*entry.file_name().to_string_lossy()) {
                fs::remove_file(entry.path()).map_err(BackupError::io(&entry.path()))?;
            }
        }
        drop(lock);
        Ok(old.len())
    }

    fn lock(&self) -> Result<File, BackupError> {
        let path = self.directory.join("LOCK");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(BackupError::io(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(fs::TryLockError::WouldBlock) => {
                Err(BackupError::InUse { directory: self.directory.clone() })
            }
            Err(fs::TryLockError::Error(source)) => Err(BackupError::io(&path)(source)),
        }
    }

    fn files_path(&self) -> PathBuf {
        self.directory.join("files")
    }

    fn backups_path(&self) -> PathBuf {
        self.directory.join("backups")
    }

    fn content_path(&self, checksum: u128) -> PathBuf {
        self.files_path().join(content_name(checksum))
    }

    /// All manifests, oldest first.
    fn manifests(&self) -> Result<Vec<Manifest>, BackupError> {
        let directory = self.backups_path();
        let entries = fs::read_dir(&directory).map_err(BackupError::io(&directory))?;
        let mut manifests = Vec::new();
        for entry in entries {
            let path = entry.map_err(BackupError::io(&directory))?.path();
            // Names have none; `.tmp` is a manifest that was never finished.
            if path.extension().is_none() {
                manifests.push(Manifest::read(&path)?);
            }
        }
        manifests.sort_by(|one, other| (one.taken_ms, &one.name).cmp(&(other.taken_ms, &other.name)));
        Ok(manifests)
    }

    fn manifest(&self, name: &str) -> Result<Manifest, BackupError> {
        let found = self.manifests()?.into_iter().find(|manifest| manifest.name == name);
        found.ok_or_else(|| BackupError::UnknownBackup(name.to_owned()))
    }

    /// Copies a file's content and fails unless it has the expected length and checksum.
    fn read_checked(&self, file: &ManifestFile, into: &mut dyn Write) -> Result<(), BackupError> {
        let path = self.content_path(file.checksum);
        let mut content = match File::open(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(BackupError::damaged(&path, format!("it is missing; it holds {}", file.path)));
            }
            Err(error) => return Err(BackupError::io(&path)(error)),
        };
        let (mut hasher, mut bytes) = (Xxh3::new(), 0);
        let mut buffer = vec![0; 256 << 10];
        loop {
            let read = content.read(&mut buffer).map_err(BackupError::io(&path))?;
            if read == 0 {
                break;
            }
            hasher.update(&buffer[..read]);
            bytes += read as u64;
            into.write_all(&buffer[..read]).map_err(BackupError::io(&path))?;
        }
        // Checked at the end, since the content is streamed: the caller discards what it has written if this fails.
        if bytes != file.bytes || hasher.digest128() != file.checksum {
            return Err(BackupError::damaged(&path, format!("the content of {} has changed", file.path)));
        }
        Ok(())
    }
}

impl<'b> NewBackup<'b> {
    /// Adds a file that the repository already has. `false`: its content must be received.
    pub fn reuse(&mut self, file: &CheckpointFile) -> bool {
        let by_name = || self.known.get(&(file_name(&file.path), file.bytes)).copied();
        // A table's number and length do not identify it, its checksum does. Journals of a history are identified by both.
        let checksum = file.checksum.or_else(|| file.path.ends_with(".journal").then(by_name).flatten());
        let Some(checksum) = checksum else { return false };
        // The length is compared because a crash may have left a short file. Its content is verified by
        // `verify` and by every restore.
        let has = fs::metadata(self.repository.content_path(checksum));
        if has.is_ok_and(|found| found.len() == file.bytes) {
            self.add(file, checksum);
            return true;
        }
        false
    }

    /// Starts to receive a file's content.
    pub fn receive<'a>(&'a mut self, file: &CheckpointFile) -> Result<FileReceiver<'a, 'b>, BackupError> {
        let unfinished =
            // Not named by its checksum until it is complete, so an interrupted transfer is never reused.
            self.repository.files_path().join(format!("unfinished-{}", self.manifest.files.len()));
        let writer = File::create(&unfinished).map_err(BackupError::io(&unfinished))?;
        Ok(FileReceiver {
            backup: self,
            expected: file.clone(),
            unfinished,
            file: writer,
            hasher: Xxh3::new(),
            bytes: 0,
        })
    }

    /// Bytes received so far.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// Completes the backup: from now on it can be restored, also after a power failure.
    pub fn finish(self) -> Result<BackupSummary, BackupError> {
        let files = self.repository.files_path();
        // The files' names must be durable before the manifest that relies on them.
        journal::sync_directory(&files).map_err(BackupError::io(&files))?;
        self.manifest.write(&self.repository.backups_path())?;
        Ok(self.manifest.summary())
    }

    fn add(&mut self, file: &CheckpointFile, checksum: u128) {
        let file = ManifestFile { path: file.path.clone(), bytes: file.bytes, checksum };
        self.manifest.files.push(file);
    }
}

impl FileReceiver<'_, '_> {
    /// Appends a part of the content.
    pub fn write(&mut self, part: &[u8]) -> Result<(), BackupError> {
        self.hasher.update(part);
        self.bytes += part.len() as u64;
        self.file.write_all(part).map_err(BackupError::io(&self.unfinished))
    }

    /// Checks length and checksum and makes the file durable.
    pub fn finish(self) -> Result<(), BackupError> {
        let checksum = self.hasher.digest128();
        // A journal has no checksum of its own in the checkpoint; its records have.
        if self.bytes != self.expected.bytes || self.expected.checksum.is_some_and(|known| known != checksum)
        {
            let detail =
                format!("the content received for {} is not what the server has", self.expected.path);
            return Err(BackupError::damaged(&self.unfinished, detail));
        }
        // Before the rename: a name must never lead to content that is not on disk.
        self.file.sync_all().map_err(BackupError::io(&self.unfinished))?;
        let path = self.backup.repository.content_path(checksum);
        fs::rename(&self.unfinished, &path).map_err(BackupError::io(&path))?;
        self.backup.copied_bytes += self.bytes;
        self.backup.add(&self.expected, checksum);
        Ok(())
    }
}

fn content_name(checksum: u128) -> String {
    format!("{checksum:032x}")
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}
