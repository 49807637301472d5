//! Why a store could not be opened, and how faults of the engine are told to callers.

use std::io;
use std::path::{Path, PathBuf};

/// Why [`super::Embedded::open`] failed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the data directory {} is in use by another process", directory.display())]
    InUse { directory: PathBuf },
    #[error("{} is damaged: {detail}", file.display())]
    Damaged { file: PathBuf, detail: String },
    #[error(
        "the data directory {} has format version {found}, this program knows versions up to {known}",
        directory.display()
    )]
    NewerFormat { directory: PathBuf, found: u32, known: u32 },
    #[error("{} is not a data directory of Orrery and not empty: it holds {found}", directory.display())]
    NotAStore { directory: PathBuf, found: String },
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
