//! The keys of a running account. Each can be replaced while requests are answered.
//!
//! There are two keys of each kind, for rotation without downtime: clients switch to one, then the other is replaced. A
//! key that the server was started with is not replaced here, because the next start would bring it back. The others
//! are the server's own: one file each beside the data, on disk before the new key is accepted.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use super::{AccountKeys, MasterKey};
use crate::durable_file::{self, Access};

/// One of the four keys of an account, by the service's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Primary,
    Secondary,
    PrimaryReadOnly,
    SecondaryReadOnly,
}

impl KeyKind {
    pub const ALL: [Self; 4] =
        [Self::Primary, Self::Secondary, Self::PrimaryReadOnly, Self::SecondaryReadOnly];

    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
            Self::PrimaryReadOnly => "primaryReadonly",
            Self::SecondaryReadOnly => "secondaryReadonly",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The file that holds the key, in this directory.
    pub fn file_in(self, directory: &Path) -> PathBuf {
        directory.join(match self {
            Self::Primary => "account-key",
            Self::Secondary => "account-key-secondary",
            Self::PrimaryReadOnly => "account-key-readonly",
            Self::SecondaryReadOnly => "account-key-readonly-secondary",
        })
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Where a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// There is none of this kind yet.
    Missing,
    /// The one of all emulators.
    WellKnown,
    /// The server's options.
    Options,
    /// The server made it.
    Own,
}

impl KeySource {
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "none",
            Self::WellKnown => "well-known",
            Self::Options => "options",
            Self::Own => "own",
        }
    }
}

/// Where the server's own keys are kept.
#[derive(Clone, Debug)]
pub enum KeyHome {
    Directory(PathBuf),
    /// In memory, like the data.
    Process,
    /// Nowhere: several servers share the data and would not share the key.
    Shared,
}

/// Why a key was not replaced.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    #[error(
        "the {0} key is the well-known one of all emulators, which cannot be replaced; start the server with a key of your \
         own or with the production profile"
    )]
    WellKnown(KeyKind),
    #[error("the {0} key is set by the server's options; change it there and restart the server")]
    Options(KeyKind),
    #[error(
        "servers that share a store take their keys from their options; change the {0} key there, one server at a time"
    )]
    Shared(KeyKind),
    #[error("the {0} key was not replaced, because the new one cannot be written to its file")]
    File(KeyKind, #[source] io::Error),
}

/// The keys of a running account.
pub struct KeyRing {
    /// What requests are checked against.
    current: ArcSwap<AccountKeys>,
    home: KeyHome,
    slots: Mutex<Slots>,
}

/// A key by its kind, and keys of the options that are of no kind: there may be any number of read-only ones.
struct Slots {
    slots: [(Option<MasterKey>, KeySource); 4],
    more_read_only: Vec<MasterKey>,
}

impl Slots {
    fn keys(&self) -> AccountKeys {
        let [primary, secondary, first, second] = &self.slots;
        AccountKeys {
            primary: primary.0.clone().expect("an account has a primary key"),
            secondary: secondary.0.clone(),
            read_only: self.more_read_only.iter().chain(&first.0).chain(&second.0).cloned().collect(),
        }
    }
}

impl KeyRing {
    /// The keys as the server was started: `given` by its options, except that the primary one is of `primary`.
    pub fn new(given: AccountKeys, primary: KeySource, home: KeyHome) -> Self {
        let secondary = if given.secondary.is_some() { KeySource::Options } else { KeySource::Missing };
        let none = || (None, KeySource::Missing);
        let slots = Slots {
            // The options name no kind for read-only keys, so the last two slots are free for keys of our own.
            slots: [(Some(given.primary), primary), (given.secondary, secondary), none(), none()],
            more_read_only: given.read_only,
        };
        Self { current: ArcSwap::from_pointee(slots.keys()), home, slots: Mutex::new(slots) }
    }

    /// The keys that count for a request that arrives now.
    pub fn current(&self) -> Guard<Arc<AccountKeys>> {
        self.current.load()
    }

    /// Where each key comes from.
    pub fn sources(&self) -> [(KeyKind, KeySource); 4] {
        let slots = self.slots.lock();
        KeyKind::ALL.map(|kind| (kind, slots.slots[kind as usize].1))
    }

    /// Whether the server's own keys outlive the process.
    pub fn is_durable(&self) -> bool {
        matches!(self.home, KeyHome::Directory(_))
    }

    /// Adds a key that an earlier rotation has made. Keys of the options win.
    pub fn add_stored(&self, kind: KeyKind, key: MasterKey) {
        let mut slots = self.slots.lock();
        if slots.slots[kind as usize].1 == KeySource::Missing {
            slots.slots[kind as usize] = (Some(key), KeySource::Own);
            self.current.store(Arc::new(slots.keys()));
        }
    }

    /// Replaces a key, or makes the first of its kind. When this returns, the new key counts and the former one does not.
    /// Blocks on the disk.
    pub fn rotate(&self, kind: KeyKind, key: &MasterKey) -> Result<(), RotationError> {
        // Held while the file is written: of two rotations of one kind, the file and the memory keep the same key.
        let mut slots = self.slots.lock();
        // A key that comes from outside would be back after a restart, so replacing it here would only look like
        // success.
        match (slots.slots[kind as usize].1, &self.home) {
            (KeySource::WellKnown, _) => return Err(RotationError::WellKnown(kind)),
            (KeySource::Options, _) => return Err(RotationError::Options(kind)),
            (_, KeyHome::Shared) => return Err(RotationError::Shared(kind)),
            (KeySource::Missing | KeySource::Own, KeyHome::Process) => {}
            (KeySource::Missing | KeySource::Own, KeyHome::Directory(directory)) => {
                // On disk before it counts: a restart must not bring back a key that clients have stopped using.
                store_key(&kind.file_in(directory), key).map_err(|error| RotationError::File(kind, error))?;
            }
        }
        slots.slots[kind as usize] = (Some(key.clone()), KeySource::Own);
        // Requests read the whole set at once, and never see a mixture of two.
        self.current.store(Arc::new(slots.keys()));
        Ok(())
    }
}

/// Writes a key to its file, which only the owner may read; on disk when this returns.
pub fn store_key(path: &Path, key: &MasterKey) -> io::Result<()> {
    durable_file::write(path, format!("{}\n", key.reveal()).as_bytes(), Access::Owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> MasterKey {
        MasterKey::from_bytes(&[byte; 64])
    }

    fn own(home: KeyHome) -> KeyRing {
        KeyRing::new(AccountKeys::new(key(1)), KeySource::Own, home)
    }

    #[test]
    fn a_rotated_key_is_on_disk_and_replaces_only_its_kind() {
        let directory = tempfile::tempdir().unwrap();
        let ring = own(KeyHome::Directory(directory.path().to_owned()));
        for (at, kind) in KeyKind::ALL.into_iter().enumerate() {
            let new = key(10 + u8::try_from(at).unwrap());
            ring.rotate(kind, &new).unwrap();
            let stored = std::fs::read_to_string(kind.file_in(directory.path())).unwrap();
            assert_eq!(stored.trim(), new.reveal(), "{kind}");
        }
        let keys = ring.current();
        assert_eq!(keys.primary.reveal(), key(10).reveal());
        assert_eq!(keys.secondary.as_ref().unwrap().reveal(), key(11).reveal());
        let read_only: Vec<&str> = keys.read_only.iter().map(MasterKey::reveal).collect();
        assert_eq!(read_only, [key(12).reveal(), key(13).reveal()]);
        assert!(ring.sources().iter().all(|(_, source)| *source == KeySource::Own));
    }

    #[test]
    fn a_key_that_cannot_be_stored_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let ring = own(KeyHome::Directory(directory.path().join("missing")));
        assert!(matches!(ring.rotate(KeyKind::Primary, &key(2)), Err(RotationError::File(..))));
        assert_eq!(ring.current().primary.reveal(), key(1).reveal());
    }

    #[test]
    fn keys_that_a_restart_would_bring_back_stay() {
        let given = AccountKeys { primary: key(1), secondary: Some(key(2)), read_only: vec![key(3)] };
        let ring = KeyRing::new(given.clone(), KeySource::Options, KeyHome::Process);
        for kind in [KeyKind::Primary, KeyKind::Secondary] {
            assert!(matches!(ring.rotate(kind, &key(9)), Err(RotationError::Options(_))));
        }
        ring.add_stored(KeyKind::Secondary, key(9));
        assert_eq!(ring.current().secondary.as_ref().unwrap().reveal(), key(2).reveal());
        // Read-only keys of the options have no kind, so that one more can be made and replaced.
        ring.rotate(KeyKind::PrimaryReadOnly, &key(4)).unwrap();
        ring.rotate(KeyKind::PrimaryReadOnly, &key(5)).unwrap();
        let read_only: Vec<String> =
            ring.current().read_only.iter().map(|key| key.reveal().to_owned()).collect();
        assert_eq!(read_only, [key(3).reveal(), key(5).reveal()]);

        let ring = KeyRing::new(given.clone(), KeySource::WellKnown, KeyHome::Process);
        assert!(matches!(ring.rotate(KeyKind::Primary, &key(9)), Err(RotationError::WellKnown(_))));
        let ring = KeyRing::new(AccountKeys::new(key(1)), KeySource::Options, KeyHome::Shared);
        assert!(matches!(ring.rotate(KeyKind::Secondary, &key(9)), Err(RotationError::Shared(_))));
    }
}
