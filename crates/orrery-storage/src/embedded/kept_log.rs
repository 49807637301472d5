//! Journals that are kept after their writes are in tables, for restoring to a point in time.
//!
//! The flusher would delete a journal once its memtable is a table. With `keep_log` it moves the journal to `log/`
//! instead and deletes it when it is older than that. Nothing but a backup reads these files, so losing one costs the
//! ability to restore to a moment in it, never data.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::shared::Shared;
use super::{journal, layout};

/// Takes a journal whose writes are all in tables out of the way of the next start.
pub(super) fn retire_journal(shared: &Shared, journal: &Path) -> std::io::Result<()> {
    let journals = layout::journals_path(&shared.directory);
    let kept = layout::log_path(&shared.directory);
    // On a full disk the log is the first thing to give up.
    match journal.file_name().filter(|_| !shared.options.keep_log.is_zero() && !shared.health.is_full()) {
        Some(name) => {
            fs::create_dir_all(&kept)?;
            fs::rename(journal, kept.join(name))?;
            // The new name before the old directory: a crash may leave the journal under both, never under none.
            journal::sync_directory(&kept)?;
        }
        None => fs::remove_file(journal)?,
    }
    journal::sync_directory(&journals)
}

/// Deletes kept journals that are older than the retention, or all of them if the disk is full.
pub(super) fn remove_expired(shared: &Shared) {
    let Ok(entries) = fs::read_dir(layout::log_path(&shared.directory)) else { return };
    let now_ms = shared.options.env.now_ms();
    let keep = if shared.health.is_full() { Duration::ZERO } else { shared.options.keep_log };
    for path in entries.flatten().map(|entry| entry.path()) {
        if layout::journal_number(&path).is_none() {
            continue;
        }
        // The time of its last write; a journal is not changed once it is sealed.
        let written = fs::metadata(&path).and_then(|file| file.modified()).ok();
        let written_ms = written.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let written_ms = written_ms.and_then(|at| i64::try_from(at.as_millis()).ok()).unwrap_or(0);
        let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        if now_ms.saturating_sub(written_ms) >= keep_ms
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::warn!(journal = %path.display(), %error, "cannot delete an expired journal");
        }
    }
}
