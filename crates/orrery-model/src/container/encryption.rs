//! The client encryption policy. Clients encrypt; the database stores the policy, rejects changes, and lets the caller
//! check that the keys exist.

use super::fields;
use crate::error::{Error, Result};
use crate::partition_key::PartitionKeyDefinition;
use crate::path::KeyPath;
use crate::value::Object;

const PATHS_MAX: usize = 1000;
const ALGORITHM: &str = "AEAD_AES_256_CBC_HMAC_SHA256";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientEncryptionPolicy {
    pub format_version: u8,
    pub paths: Vec<EncryptedPath>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptedPath {
    pub path: KeyPath,
    /// The id of a client encryption key of the database.
    pub key_id: Box<str>,
    pub deterministic: bool,
}

pub(super) fn parse(
    container: &Object,
    partition_key: &PartitionKeyDefinition,
) -> Result<Option<ClientEncryptionPolicy>> {
    let Some(policy) = fields::optional_object(container, "clientEncryptionPolicy")? else { return Ok(None) };
    // Version 2 allows the id and partition keys to be encrypted.
    let format_version = match fields::optional_i64(policy, "policyFormatVersion")?.unwrap_or(1) {
        1 => 1,
        2 => 2,
        other => {
            return Err(Error::bad_request(format!(
                "The client encryption policy format version {other} is invalid. Supported versions are 1 and 2."
            )));
        }
    };
    let listed = fields::array(policy, "includedPaths")?;
    if listed.len() > PATHS_MAX {
        return Err(Error::bad_request(format!(
            "The client encryption policy has more than {PATHS_MAX} paths."
        )));
    }
    let mut paths: Vec<EncryptedPath> = Vec::with_capacity(listed.len());
    for entry in listed {
        let encrypted = parse_path(fields::object(entry, "includedPaths")?)?;
        let path = &encrypted.path;
        if paths.iter().any(|earlier| earlier.path.same_property(path)) {
            return Err(Error::bad_request(format!(
                "The client encryption path '{path}' is listed more than once."
            )));
        }
        // The server looks these up by their encrypted text, so the same value must always encrypt to the same
        // text.
        let names_item = path.segments() == [Box::from("id")]
            || partition_key.paths().iter().any(|key| key.segments()[0] == path.segments()[0]);
        if names_item && (format_version < 2 || !encrypted.deterministic) {
            return Err(Error::bad_request(format!(
                "The path '{path}' is the id or a part of the partition key: encrypting it needs policy format version 2 and deterministic encryption."
            )));
        }
        paths.push(encrypted);
    }
    Ok(Some(ClientEncryptionPolicy { format_version, paths }))
}

fn parse_path(entry: &Object) -> Result<EncryptedPath> {
    let text = fields::required_str(entry, "path")?;
    // Clients encrypt whole top-level properties.
    let path = KeyPath::parse(text).ok().filter(|path| path.segments().len() == 1);
    let path = path.ok_or_else(|| {
        Error::bad_request(format!("Invalid path '{text}' in the client encryption policy."))
    })?;
    let deterministic = match fields::required_str(entry, "encryptionType")? {
        "Deterministic" => true,
        "Randomized" => false,
        other => {
            return Err(Error::bad_request(format!(
                "Invalid encryption type '{other}' in the client encryption policy: it is either 'Deterministic' or 'Randomized'."
            )));
        }
    };
    let algorithm = fields::required_str(entry, "encryptionAlgorithm")?;
    if algorithm != ALGORITHM {
        return Err(Error::bad_request(format!(
            "Invalid encryption algorithm '{algorithm}' in the client encryption policy: only '{ALGORITHM}' is supported."
        )));
    }
    let key_id = fields::required_str(entry, "clientEncryptionKeyId")?.into();
    Ok(EncryptedPath { path, key_id, deterministic })
}
