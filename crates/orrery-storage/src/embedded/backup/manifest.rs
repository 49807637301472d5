//! Manifests: which files make up a backup.
//!
//! Text, one fact per line, so that an operator can read it:
//!
//! ```text
//! orrery-backup 1
//! history 5e1f…
//! taken 1763467200000
//! file <bytes> <XXH3-128 in hexadecimal> <path>
//! …
//! end <XXH3-64 of everything before, in hexadecimal>
//! ```

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::{BackupError, BackupSummary};
use crate::embedded::journal;

const HEADER: &str = "orrery-backup 1";

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    /// Relative to the store's directory.
    pub path: String,
    pub bytes: u64,
    /// XXH3-128 of the content.
    pub checksum: u128,
}

/// A complete backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) name: String,
    pub(super) history: String,
    pub(super) taken_ms: i64,
    pub(super) files: Vec<ManifestFile>,
}

impl Manifest {
    pub(super) fn summary(&self) -> BackupSummary {
        BackupSummary {
            name: self.name.clone(),
            taken_ms: self.taken_ms,
            history: self.history.clone(),
            files: self.files.len(),
            bytes: self.files.iter().map(|file| file.bytes).sum(),
        }
    }

    pub(super) fn read(path: &Path) -> Result<Self, BackupError> {
        let text = fs::read_to_string(path).map_err(BackupError::io(path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self::parse(&text, name).ok_or_else(|| BackupError::damaged(path, "the manifest is malformed"))
    }

    /// Writes the manifest durably; it appears under its name only when it is complete.
    pub(super) fn write(&self, directory: &Path) -> Result<(), BackupError> {
        let path = directory.join(&self.name);
        let unfinished = path.with_extension("tmp");
        let text = self.to_text();
        debug_assert_eq!(Self::parse(&text, self.name.clone()).as_ref(), Some(self), "a manifest reads back");
        let written = File::create(&unfinished).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            // After the content is durable: a crash leaves either no manifest or a whole one.
            fs::rename(&unfinished, &path)?;
            journal::sync_directory(directory)
        });
        written.map_err(BackupError::io(&path))
    }

    fn to_text(&self) -> String {
        let mut text = format!("{HEADER}\nhistory {}\ntaken {}\n", self.history, self.taken_ms);
        for file in &self.files {
            writeln!(text, "file {} {:032x} {}", file.bytes, file.checksum, file.path)
                .expect("a String accepts every write");
        }
        let check = xxh3_64(text.as_bytes());
        writeln!(text, "end {check:016x}").expect("a String accepts every write");
        text
    }

    fn parse(text: &str, name: String) -> Option<Self> {
        // The checksum covers the newline before `end`, which `rsplit_once` has cut off.
        let (body, end) = text.trim_end_matches('\n').rsplit_once("\nend ")?;
        let body_with_newline = &text[..=body.len()];
        if u64::from_str_radix(end, 16).ok()? != xxh3_64(body_with_newline.as_bytes()) {
            return None;
        }
        let mut lines = body.lines();
        // A newer format has another header, so it is rejected rather than misread.
        if lines.next()? != HEADER {
            return None;
        }
        let history = lines.next()?.strip_prefix("history ")?.to_owned();
        let taken_ms = lines.next()?.strip_prefix("taken ")?.parse().ok()?;
        let files = lines.map(|line| {
            // The path comes last because it may contain spaces.
            let mut fields = line.strip_prefix("file ")?.splitn(3, ' ');
            let bytes = fields.next()?.parse().ok()?;
            let checksum = u128::from_str_radix(fields.next()?, 16).ok()?;
            let path = fields.next()?.to_owned();
            // A manifest from elsewhere must not make a restore write outside its directory.
            let is_safe =
                !path.starts_with('/') && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
            is_safe.then_some(ManifestFile { path, bytes, checksum })
        });
        Some(Self { name, history, taken_ms, files: files.collect::<Option<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let file = |path: &str| ManifestFile { path: path.to_owned(), bytes: 7, checksum: 0xABCD };
        Manifest {
            name: "12".to_owned(),
            history: "5e1f".to_owned(),
            taken_ms: 12,
            files: vec![file("FORMAT"), file("tree/tables/3")],
        }
    }

    #[test]
    fn a_manifest_has_this_form() {
        let text = manifest().to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], ["orrery-backup 1", "history 5e1f", "taken 12"]);
        assert_eq!(lines[4], "file 7 0000000000000000000000000000abcd tree/tables/3");
        assert_eq!(Manifest::parse(&text, "12".to_owned()), Some(manifest()));
    }

    #[test]
    fn damaged_and_hostile_manifests_are_rejected() {
        let text = manifest().to_text();
        assert_eq!(Manifest::parse(&text.replace("file 7", "file 8"), String::new()), None);
        assert_eq!(Manifest::parse(&text[..text.len() / 2], String::new()), None);
        assert_eq!(Manifest::parse("", String::new()), None);
        for path in ["/etc/passwd", "../x", "tree/../../x", ""] {
            let mut hostile = manifest();
            hostile.files[0].path = path.to_owned();
            assert_eq!(Manifest::parse(&hostile.to_text(), String::new()), None, "{path}");
        }
    }
}
