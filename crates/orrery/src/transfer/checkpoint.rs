//! Where an interrupted transfer resumes: a small JSON file, replaced atomically.
//!
//! It identifies the transfer it belongs to (`identity`), so that a position in one file or container is never applied
//! to another. The `state` belongs to the command and holds only confirmed positions.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use orrery_model::{Object, Value, value};

use crate::failure::Failure;

const VERSION: i64 = 1;

/// The checkpoint file of one transfer.
pub(crate) struct Checkpoint {
    path: PathBuf,
    identity: Value,
}

impl Checkpoint {
    /// Opens the checkpoint at `path` for the transfer with this identity; returns the saved state if there is one.
    pub(crate) fn open(path: &Path, identity: Value) -> Result<(Self, Option<Value>), Failure> {
        let checkpoint = Self { path: path.to_owned(), identity };
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((checkpoint, None)),
            Err(error) => return Err(checkpoint.failure("read", &error)),
        };
        let value = value::parse(&text).map_err(|error| checkpoint.failure("read", &error))?;
        if value.get("version").and_then(Value::as_i64) != Some(VERSION) {
            return Err(checkpoint.failure("read", &"it has an unknown version"));
        }
        if value.get("identity") != Some(&checkpoint.identity) {
            return Err(Failure::refused(format!(
                "the checkpoint {} belongs to another transfer: {}. Use another file or remove this one",
                path.display(),
                value.get("identity").cloned().unwrap_or_default().to_json()
            )));
        }
        Ok((checkpoint, value.get("state").cloned()))
    }

    /// Saves the state. A crash leaves either the old state or the new one.
    pub(crate) fn save(&self, state: Value) -> Result<(), Failure> {
        let mut object = Object::new();
        object.set("version", Value::from(VERSION));
        object.set("identity", self.identity.clone());
        object.set("state", state);
        let temporary = self.path.with_extension("new");
        let write = || -> io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(Value::from(object).to_json().as_bytes())?;
            // Before the rename, or a crash could leave the new name without its content.
            file.sync_all()?;
            fs::rename(&temporary, &self.path)
        };
        write().map_err(|error| self.failure("written", &error))
    }

    /// Removes the file after a complete transfer.
    pub(crate) fn remove(&self) -> Result<(), Failure> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failure("removed", &error)),
            _ => Ok(()),
        }
    }

    fn failure(&self, what: &str, error: &dyn std::fmt::Display) -> Failure {
        Failure::refused(format!("the checkpoint {} cannot be {what}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_resumed_only_by_its_own_transfer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("point");
        let identity = |name: &str| Value::from(name);
        let (checkpoint, state) = Checkpoint::open(&path, identity("a")).ok().unwrap();
        assert!(state.is_none());
        checkpoint.save(Value::from(7)).ok().unwrap();
        let (checkpoint, state) = Checkpoint::open(&path, identity("a")).ok().unwrap();
        assert_eq!(state, Some(Value::from(7)));
        let other = Checkpoint::open(&path, identity("b")).err().and_then(|failure| failure.message);
        assert!(other.unwrap().contains("another transfer: \"a\""));
        checkpoint.remove().ok().unwrap();
        assert!(Checkpoint::open(&path, identity("b")).ok().unwrap().1.is_none());
    }
}
