//! Which keys the account has.
//!
//! On loopback the well-known key of emulators is the default: only this machine can reach the port, and SDKs
//! then connect without set-up. Anywhere else that key would open the data to everyone, so a random one is
//! made and kept beside the data.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use orrery_gateway::auth::{AccountKeys, MasterKey};
use orrery_model::env::Env;

use crate::failure::Failure;
use crate::settings::{KeySettings, Storage};

/// The name of the file that keeps a generated key.
const FILE_NAME: &str = "account-key";

/// The keys, and what the user should be told of the first.
pub(crate) struct ChosenKeys {
    pub(crate) keys: AccountKeys,
    pub(crate) origin: KeyOrigin,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyOrigin {
    WellKnown,
    /// Given by the user, who knows it.
    Given,
    /// Made earlier and kept in this file.
    Kept(PathBuf),
    /// Made just now and kept in this file.
    Made(PathBuf),
    /// Made just now and kept nowhere.
    MadeForThisRun,
}

/// Refuses the well-known key where it would open the data to others, before anything is opened.
pub(crate) fn check(settings: &KeySettings, address: IpAddr) -> Result<(), Failure> {
    let mut given = settings.primary.iter().chain(&settings.secondary).chain(&settings.read_only);
    if !well_known_allowed(settings, address) && given.any(MasterKey::is_well_known) {
        return Err(Failure::usage(format!(
            "the well-known key is public and {address} is not a loopback address: choose another key, or say \
             --allow-well-known-key if everyone who can reach this port may do everything"
        )));
    }
    Ok(())
}

/// Servers that share a store must share their keys: one that is made for this run alone would not do.
pub(crate) fn check_shared(
    settings: &KeySettings,
    address: IpAddr,
    storage: &Storage,
) -> Result<(), Failure> {
    let is_shared = matches!(storage, Storage::Postgres(_));
    if is_shared && settings.primary.is_none() && !well_known_allowed(settings, address) {
        return Err(Failure::usage(
            "servers that share a store must have the same key: give one with --key-file or ORRERY_KEY",
        ));
    }
    Ok(())
}

fn well_known_allowed(settings: &KeySettings, address: IpAddr) -> bool {
    address.is_loopback() || settings.allow_well_known
}

/// The keys of the account. `directory` is where a key of our own is kept.
pub(crate) fn choose(
    settings: KeySettings,
    address: IpAddr,
    directory: Option<&Path>,
    env: &dyn Env,
) -> Result<ChosenKeys, Failure> {
    check(&settings, address)?;
    let well_known_allowed = well_known_allowed(&settings, address);
    let (primary, origin) = match (settings.primary, directory) {
        (Some(key), _) if key.is_well_known() => (key, KeyOrigin::WellKnown),
        (Some(key), _) => (key, KeyOrigin::Given),
        (None, _) if well_known_allowed => (MasterKey::well_known(), KeyOrigin::WellKnown),
        (None, Some(directory)) => read_or_make(&directory.join(FILE_NAME), env)?,
        (None, None) => (make(env), KeyOrigin::MadeForThisRun),
    };
    let keys = AccountKeys { primary, secondary: settings.secondary, read_only: settings.read_only };
    Ok(ChosenKeys { keys, origin })
}

fn make(env: &dyn Env) -> MasterKey {
    let mut bytes = [0; 64];
    env.fill_random(&mut bytes);
    MasterKey::from_bytes(&bytes)
}

fn read_or_make(path: &Path, env: &dyn Env) -> Result<(MasterKey, KeyOrigin), Failure> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let key = MasterKey::parse(&text)
                .map_err(|error| Failure::refused(format!("the key file {}: {error}", path.display())))?;
            return Ok((key, KeyOrigin::Kept(path.to_owned())));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(Failure::refused(format!("the key file {} cannot be read: {error}", path.display())));
        }
    }
    let key = make(env);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
        .open(path)
        .and_then(|mut file| writeln!(file, "{}", key.reveal()).and_then(|()| file.sync_all()))
        .map_err(|error| {
            Failure::refused(format!("the key file {} cannot be written: {error}", path.display()))
        })?;
    Ok((key, KeyOrigin::Made(path.to_owned())))
}

#[cfg(test)]
mod tests {
    use orrery_db::SystemEnv;

    use super::*;

    fn settings() -> KeySettings {
        KeySettings { primary: None, secondary: None, read_only: Vec::new(), allow_well_known: false }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn loopback_has_the_well_known_key() {
        for text in ["127.0.0.1", "127.8.8.8", "::1"] {
            let chosen = choose(settings(), address(text), None, &SystemEnv).ok().unwrap();
            assert_eq!(chosen.origin, KeyOrigin::WellKnown);
            assert!(chosen.keys.primary.is_well_known());
        }
    }

    #[test]
    fn other_addresses_get_a_key_that_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["0.0.0.0", "::", "192.0.2.1"] {
            let choose =
                || choose(settings(), address(text), Some(directory.path()), &SystemEnv).ok().unwrap();
            let (first, second) = (choose(), choose());
            assert!(matches!(first.origin, KeyOrigin::Made(_) | KeyOrigin::Kept(_)));
            assert_eq!(second.origin, KeyOrigin::Kept(directory.path().join("account-key")));
            assert_eq!(first.keys.primary.reveal(), second.keys.primary.reveal());
            assert!(!first.keys.primary.is_well_known());
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(directory.path().join("account-key")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        fs::write(directory.path().join("account-key"), "nonsense").unwrap();
        assert!(choose(settings(), address("0.0.0.0"), Some(directory.path()), &SystemEnv).is_err());
    }

    #[test]
    fn without_a_directory_the_key_is_new_each_time() {
        let choose = || choose(settings(), address("0.0.0.0"), None, &SystemEnv).ok().unwrap();
        let (first, second) = (choose(), choose());
        assert_eq!(first.origin, KeyOrigin::MadeForThisRun);
        assert_ne!(first.keys.primary.reveal(), second.keys.primary.reveal());
    }

    #[test]
    fn the_well_known_key_elsewhere_must_be_allowed() {
        let given = |allow_well_known| KeySettings {
            primary: Some(MasterKey::well_known()),
            allow_well_known,
            ..settings()
        };
        assert!(choose(given(false), address("0.0.0.0"), None, &SystemEnv).is_err());
        assert!(choose(given(true), address("0.0.0.0"), None, &SystemEnv).is_ok());
        assert!(choose(given(false), address("::1"), None, &SystemEnv).is_ok());
        let read_only = KeySettings { read_only: vec![MasterKey::well_known()], ..settings() };
        assert!(choose(read_only, address("0.0.0.0"), None, &SystemEnv).is_err());
        let allowed = KeySettings { allow_well_known: true, ..settings() };
        let chosen = choose(allowed, address("0.0.0.0"), None, &SystemEnv).ok().unwrap();
        assert_eq!(chosen.origin, KeyOrigin::WellKnown);
    }
}
