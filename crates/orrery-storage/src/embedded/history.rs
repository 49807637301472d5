//! The id of a line of writes.
//!
//! Journal numbers identify journals within one history only: a restored store continues with the same numbers but other
//! content. Its new id keeps its journals apart from those of the store it was restored from.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use orrery_env::Env;

use super::error::OpenError;
use super::{journal, layout};

/// Writes a history id unless the store has one.
pub(super) fn ensure(directory: &Path, env: &dyn Env) -> Result<(), OpenError> {
    let path = layout::history_path(directory);
    match path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => write(directory, env).map_err(OpenError::io(&path)),
        Err(error) => Err(OpenError::io(&path)(error)),
    }
}

/// Starts a new history.
pub(super) fn write(directory: &Path, env: &dyn Env) -> std::io::Result<()> {
    let path = layout::history_path(directory);
    let unfinished = path.with_extension("tmp");
    let mut file = File::create(&unfinished)?;
    file.write_all(format!("{:016x}{:016x}\n", env.random_u64(), env.random_u64()).as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    journal::sync_directory(directory)
}

pub(super) fn read(directory: &Path) -> std::io::Result<String> {
    Ok(fs::read_to_string(layout::history_path(directory))?.trim_end().to_owned())
}
