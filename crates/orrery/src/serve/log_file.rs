//! The log as a file with rotation: a full file is renamed, and the oldest ones are removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// When a file is full, and how many full ones are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RotationPolicy {
    pub(crate) bytes_max: u64,
    pub(crate) files: u32,
}

/// The current log file. Every write is a whole event.
pub(super) struct LogFile {
    path: PathBuf,
    policy: RotationPolicy,
    file: File,
    bytes: u64,
}

impl LogFile {
    /// Opens the file to append to it.
    pub(super) fn open(path: &Path, policy: RotationPolicy) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), policy, file, bytes })
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// Renames the full file and those before it, and starts a new one.
    fn rotate(&mut self) -> io::Result<()> {
        if self.policy.files == 0 {
            fs::remove_file(&self.path)?;
        } else {
            // From the oldest on, so that each file makes room for the one before it.
            for number in (1..self.policy.files).rev() {
                match fs::rename(self.numbered(number), self.numbered(number + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            fs::rename(&self.path, self.numbered(1))?;
        }
        *self = Self::open(&self.path, self.policy)?;
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let is_full = self.bytes.saturating_add(event.len() as u64) > self.policy.bytes_max;
        // If the files cannot be renamed, the log continues in the full one rather than get lost.
        if is_full && self.bytes > 0 && self.rotate().is_err() {
            self.bytes = 0;
        }
        self.file.write_all(event)?;
        self.bytes += event.len() as u64;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_files_are_renamed_and_the_oldest_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("orrery.log");
        let mut log = LogFile::open(&path, RotationPolicy { bytes_max: 10, files: 2 }).unwrap();
        for event in ["one\n", "two\n", "three\n", "four\n", "fifth is longer than a file\n", "six\n"] {
            log.write_all(event.as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).ok();
        assert_eq!(read("orrery.log").unwrap(), "six\n");
        assert_eq!(read("orrery.log.1").unwrap(), "fifth is longer than a file\n");
        assert_eq!(read("orrery.log.2").unwrap(), "four\n");
        assert_eq!(read("orrery.log.3"), None);
        // A later start appends.
        let mut log = LogFile::open(&path, RotationPolicy { bytes_max: 10, files: 0 }).unwrap();
        log.write_all(b"seven\n").unwrap();
        assert_eq!(read("orrery.log").unwrap(), "six\nseven\n");
        log.write_all(b"eight\n").unwrap();
        assert_eq!(read("orrery.log").unwrap(), "eight\n");
    }
}
