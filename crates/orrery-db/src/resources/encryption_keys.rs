//! Client encryption keys of a database. They cannot be deleted individually: data encrypted with them would be lost.

use orrery_model::document::parse_object;
use std::sync::Arc;

use orrery_model::encryption_key::ClientEncryptionKey;
use orrery_model::rid::ClientEncryptionKeyRid;
use orrery_model::{Error, ErrorKind, Result, Value};

use super::Resources;
use super::databases::check_etag;
use super::metadata::{MetadataReply, first_unused};
use crate::catalog::{DatabaseEntry, EncryptionKey, already_exists};
use crate::partition::Receipt;

/// The maximum number of keys per database.
const KEYS_MAX: usize = 1000;

impl Resources {
    pub async fn create_encryption_key(
        &self,
        receipt: &mut Receipt,
        database: &str,
        body: &[u8],
    ) -> Result<MetadataReply> {
        let key = ClientEncryptionKey::parse(&parse_object(body)?)?;
        let random = self.env.random_u64();
        self.change_catalog(receipt, |change| {
            let database = Arc::clone(change.catalog.database(database)?);
            if database.encryption_keys.contains_key(key.id.as_str()) {
                return Err(already_exists());
            }
            if database.encryption_keys.len() >= KEYS_MAX {
                return Err(Error::new(
                    ErrorKind::QuotaExceeded,
                    format!("A database holds at most {KEYS_MAX} client encryption keys."),
                ));
            }
            let rid = unused_rid(&database, random);
            let created = change.stamp.timestamp;
            let key = EncryptionKey { rid, key, stamp: change.stamp, created };
            let reply = reply(&key, true);
            change.put_encryption_key(&database.id, key);
            Ok(reply)
        })
        .await
    }

    pub fn read_encryption_key(
        &self,
        receipt: &mut Receipt,
        (database, key): (&str, &str),
    ) -> Result<MetadataReply> {
        let catalog = self.read_catalog(receipt);
        Ok(reply(catalog.database(database)?.encryption_key(key)?, false))
    }

    /// Replaces a key that was rewrapped.
    pub async fn replace_encryption_key(
        &self,
        receipt: &mut Receipt,
        (database, key): (&str, &str),
        body: &[u8],
        if_match: Option<&str>,
    ) -> Result<MetadataReply> {
        let new = ClientEncryptionKey::parse(&parse_object(body)?)?;
        self.change_catalog(receipt, |change| {
            let database = Arc::clone(change.catalog.database(database)?);
            let current = database.encryption_key(key)?;
            check_etag(if_match, current.stamp)?;
            if new.id != current.key.id {
                return Err(Error::bad_request("The id of a client encryption key cannot be changed."));
            }
            let (rid, created) = (current.rid, current.created);
            let key = EncryptionKey { rid, key: new, stamp: change.stamp, created };
            let reply = reply(&key, false);
            change.put_encryption_key(&database.id, key);
            Ok(reply)
        })
        .await
    }
}

/// Checks that the keys in a container's encryption policy exist.
pub(crate) fn check_policy_keys(database: &DatabaseEntry, container: &Value) -> Result<()> {
    let policy = container.get("clientEncryptionPolicy");
    let paths = policy.and_then(|policy| policy.get("includedPaths")).and_then(Value::as_array);
    let named = paths.unwrap_or_default().iter();
    let named = named.filter_map(|path| path.get("clientEncryptionKeyId").and_then(Value::as_str));
    let mut missing: Vec<&str> = named.filter(|id| !database.encryption_keys.contains_key(*id)).collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::bad_request(format!("ClientEncryptionKey with id '[{}]' does not exist.", missing.join(","))))
}

fn reply(key: &EncryptionKey, created: bool) -> MetadataReply {
    MetadataReply::new(key.to_value(), key.stamp, created)
}

fn unused_rid(database: &DatabaseEntry, random: u64) -> ClientEncryptionKeyRid {
    let first = u32::try_from(random & 0xFFFF_FFFF).expect("32 bits are left");
    let candidates = (0u32..).map(|step| ClientEncryptionKeyRid::new(database.rid, first.wrapping_add(step)));
    let taken = |rid: &ClientEncryptionKeyRid| database.encryption_keys.values().any(|key| key.rid == *rid);
    first_unused(candidates, taken)
}
