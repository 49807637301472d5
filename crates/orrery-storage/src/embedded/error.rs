//! Errors of opening an embedded store, worded for the operator who has to act on them.

use std::io;
use std::path::{Path, PathBuf};

/// Why [`super::Embedded::open`] failed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the lock on the directory.
    #[error("the data directory {} is in use by another process", directory.display())]
    InUse { directory: PathBuf },
    /// A file is missing or its content fails a check.
    #[error("{} is damaged: {detail}", file.display())]
    Damaged { file: PathBuf, detail: String },
    #[error(
            "the data directory {} has format version {found}, but this program supports versions up to {known}",
        directory.display()
    )]
    NewerFormat { directory: PathBuf, found: u32, known: u32 },
    /// The directory belongs to something else, so it is left untouched.
    #[error("{} is neither empty nor an Orrery data directory: it contains {found}", directory.display())]
    NotAStore { directory: PathBuf, found: String },
    /// The operating system reported an error.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl OpenError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    pub(super) fn damaged(file: &Path, detail: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), detail: detail.into() }
    }
}
