//! The partition key definition of a container: its paths, how they are hashed, and the keys of values under it.

use super::encode;
use super::{EffectiveKey, EpkRange, KeyPart, PartitionKey};
use crate::error::{Error, ErrorKind, Result};
use crate::path::KeyPath;
use crate::value::{Object, Value};

/// Longest string in a version 2 key, in UTF-8 bytes. Version 1 is not checked: it looks only at
/// the beginning of a string, and the service accepts longer ones.
pub const VALUE_BYTES_MAX: usize = 2048;

/// Most paths of a hierarchical key.
const PATHS_MAX: usize = 3;

/// System properties, which cannot be a partition key.
const SYSTEM_PATHS: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

const MISMATCH: &str = "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition key field values specified in the document.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// One path.
    Hash,
    /// Up to three paths, each hashed separately, so that prefixes are ranges.
    MultiHash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyVersion {
    V1,
    V2,
}

/// How a container's items are partitioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionKeyDefinition {
    paths: Vec<KeyPath>,
    kind: KeyKind,
    version: KeyVersion,
    /// Whether the client specified the version, which is then returned.
    version_named: bool,
    system_key: bool,
}

impl PartitionKeyDefinition {
    /// A version 2 definition with these paths: hierarchical if there are several.
    pub fn with_paths(paths: &[&str]) -> Result<Self> {
        let kind = if paths.len() > 1 { "MultiHash" } else { "Hash" };
        let mut object = Object::new();
        object.set("paths", Value::Array(paths.iter().map(|path| Value::from(*path)).collect()));
        object.set("kind", Value::from(kind));
        object.set("version", Value::from(2));
        Self::parse(&Value::Object(object))
    }

    /// Checks the `partitionKey` of a container to be created.
    pub fn parse(value: &Value) -> Result<Self> {
        let Some(definition) = value.as_object() else {
            return Err(Error::bad_request("The partition key definition must be an object."));
        };
        let kind = match definition.get("kind").map(Value::as_str) {
            None => KeyKind::Hash,
            Some(Some(name)) if name.eq_ignore_ascii_case("Hash") => KeyKind::Hash,
            Some(Some(name)) if name.eq_ignore_ascii_case("MultiHash") => KeyKind::MultiHash,
            Some(_) => {
                return Err(Error::bad_request(
                    "The partition key kind is invalid. Valid kinds are 'Hash' and 'MultiHash'.",
                ));
            }
        };
        let version = match definition.get("version") {
            // Every client that hashes treats a missing version as 1.
            None | Some(Value::Null) => KeyVersion::V1,
            Some(version) => match (version.as_i64(), version.as_str()) {
                // The Java client writes the name of its constant.
                (Some(1), _) | (_, Some("V1")) => KeyVersion::V1,
                (Some(2), _) | (_, Some("V2")) => KeyVersion::V2,
                _ => {
                    return Err(Error::bad_request(
                        "The partition key definition version is invalid. Valid versions are 1 and 2.",
                    ));
                }
            },
        };
        let system_key = match definition.get("systemKey") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                return Err(Error::bad_request("The partition key property 'systemKey' must be a boolean."));
            }
        };
        let paths = parse_paths(definition)?;
        if kind == KeyKind::Hash && paths.len() > 1 {
            return Err(Error::bad_request(format!(
                "Too many partition key paths ({}) specified. A maximum of 1 is allowed for kind 'Hash'.",
                paths.len()
            )));
        }
        if kind == KeyKind::MultiHash && version != KeyVersion::V2 {
            return Err(Error::bad_request(
                "The partition key kind 'MultiHash' requires partition key definition version 2.",
            ));
        }
        let version_named = definition.get("version").is_some_and(|version| *version != Value::Null);
        Ok(Self { paths, kind, version, version_named, system_key })
    }

    /// The definition as clients see it. Version 1 is shown to those who asked for it (the Python client's
    /// suite looks for it) and left out for the others (the Rust client's suite); every client takes none for 1.
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.set("paths", Value::Array(self.paths.iter().map(|path| Value::from(path.as_str())).collect()));
        let kind = match self.kind {
            KeyKind::Hash => "Hash",
            KeyKind::MultiHash => "MultiHash",
        };
        object.set("kind", Value::from(kind));
        match self.version {
            KeyVersion::V2 => object.set("version", Value::from(2)),
            KeyVersion::V1 if self.version_named => object.set("version", Value::from(1)),
            KeyVersion::V1 => {}
        }
        if self.system_key {
            object.set("systemKey", Value::Bool(true));
        }
        Value::Object(object)
    }

    pub fn paths(&self) -> &[KeyPath] {
        &self.paths
    }

    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    pub fn version(&self) -> KeyVersion {
        self.version
    }

    pub fn is_system_key(&self) -> bool {
        self.system_key
    }

    /// The key of an item. What is missing, hidden behind something that is not an object, or not a
    /// scalar itself is undefined: clients send `[{}]` for such items and the service stores them.
    pub fn extract(&self, item: &Value) -> Result<PartitionKey> {
        let parts = self.paths.iter().map(|path| KeyPart::of(path.value_in(item)));
        let key = PartitionKey(parts.collect());
        self.check_lengths(&key)?;
        Ok(key)
    }

    /// A key that names one logical partition. `[]` stands for undefined where there is one path.
    pub fn check_full(&self, key: &PartitionKey) -> Result<PartitionKey> {
        if key.0.is_empty() && self.paths.len() == 1 {
            return Ok(PartitionKey(vec![KeyPart::Undefined]));
        }
        if key.0.len() != self.paths.len() {
            return Err(Error::new(ErrorKind::PartitionKeyMismatch, MISMATCH));
        }
        self.check_lengths(key)?;
        Ok(key.clone())
    }

    /// A key that names one logical partition or, in a hierarchical container, all that begin
    /// with it. `[]` stands for undefined where there is one path, for everything elsewhere.
    pub fn check_prefix(&self, key: &PartitionKey) -> Result<PartitionKey> {
        // Only hierarchical keys have prefixes.
        if self.kind == KeyKind::Hash || key.0.len() > self.paths.len() {
            return self.check_full(key);
        }
        self.check_lengths(key)?;
        Ok(key.clone())
    }

    /// Whether a checked key has a component for every path.
    pub fn is_full(&self, key: &PartitionKey) -> bool {
        key.0.len() == self.paths.len()
    }

    fn check_lengths(&self, key: &PartitionKey) -> Result<()> {
        let too_long =
            key.0.iter().any(|part| matches!(part, KeyPart::String(text) if text.len() > VALUE_BYTES_MAX));
        if self.version == KeyVersion::V2 && too_long {
            return Err(Error::bad_request(format!(
                "The partition key value exceeds the maximum size of {VALUE_BYTES_MAX} bytes."
            )));
        }
        Ok(())
    }

    /// The effective key of a validated key. The empty key is the minimum.
    pub fn effective_key(&self, key: &PartitionKey) -> EffectiveKey {
        let bytes = match (self.kind, self.version) {
            // Each component has a hash of its own, so that a prefix of components is a prefix of the key.
            (KeyKind::MultiHash, _) => encode::effective_key_multi(&key.0),
            (KeyKind::Hash, KeyVersion::V2) => encode::effective_key_v2(&key.0),
            (KeyKind::Hash, KeyVersion::V1) => encode::effective_key_v1(&key.0),
        };
        EffectiveKey::from_bytes(bytes)
    }

    /// Whether a checked key may share its place with another: the older hash sees only the first
    /// 100 UTF-16 units of a string, or 99 if a surrogate pair would be cut in half, so a string
    /// of just that length is hashed like longer ones that begin with it.
    pub fn may_collide(&self, key: &PartitionKey) -> bool {
        // Bytes first, which costs nothing: a text of 99 units has at least as many bytes.
        let is_full = |text: &str| text.len() >= 99 && text.encode_utf16().count() >= 99;
        self.version == KeyVersion::V1
            && key.0.iter().any(|part| matches!(part, KeyPart::String(text) if is_full(text)))
    }

    /// The range of a full or partial key.
    pub fn prefix_range(&self, key: &PartitionKey) -> EpkRange {
        EpkRange::point(self.effective_key(key))
    }

    /// A key in the middle of a range, assuming an even spread of keys.
    pub fn middle(&self, range: &EpkRange) -> Option<EffectiveKey> {
        let number = |key: &EffectiveKey| {
            // The first 16 bytes decide; a shorter key is followed by zeros, as far as the order is concerned.
            let mut bytes = [0; 16];
            let taken = key.as_bytes().len().min(16);
            bytes[..taken].copy_from_slice(&key.as_bytes()[..taken]);
            u128::from_be_bytes(bytes)
        };
        let (low, high) = match self.version {
            KeyVersion::V1 => {
                let end = |hash: u32| number(&EffectiveKey::from_bytes(encode::boundary_v1(hash)));
                // Version 1 keys begin with an encoded number, so hashes fill only a part of the space of bytes.
                (number(&range.min).max(end(0)), number(&range.max).min(end(u32::MAX)))
            }
            // Hashes end at 3F…; the range of the last partition goes on to FF.
            KeyVersion::V2 => (number(&range.min), number(&range.max).min(LAST_HASH_V2)),
        };
        // None if no hash at all lies in the range.
        let middle = low + high.checked_sub(low)? / 2;
        let middle = EffectiveKey::from_bytes(middle.to_be_bytes().to_vec());
        // A range without a key between its bounds cannot be cut.
        (middle > range.min && middle < range.max).then_some(middle)
    }

    /// Cuts the key space into `count` ranges that expect the same number of key values, at the
    /// boundaries the service chooses.
    pub fn even_ranges(&self, count: u32) -> Vec<EpkRange> {
        let count = count.max(1);
        let mut ranges = Vec::with_capacity(count as usize);
        // Each range begins where the last one ended, so they cover the space without a gap.
        let mut min = EffectiveKey::MIN;
        for index in 1..count {
            let boundary = match self.version {
                KeyVersion::V1 => boundary_v1(index, count),
                KeyVersion::V2 => boundary_v2(index, count),
            };
            ranges.push(EpkRange::new(min, boundary.clone()));
            min = boundary;
        }
        // Up to `FF`, not to the last hash: clients expect the ranges to cover everything.
        ranges.push(EpkRange::new(min, EffectiveKey::max()));
        ranges
    }
}

/// The two highest bits of a version 2 hash are clear.
const LAST_HASH_V2: u128 = (1 << 126) - 1;

/// The boundary after this many of `count` equal parts of the 32-bit hashes. The remainder belongs to the last range,
/// as in the service.
fn boundary_v1(index: u32, count: u32) -> EffectiveKey {
    EffectiveKey::from_bytes(encode::boundary_v1(u32::MAX / count * index))
}

/// The same of the 126-bit hashes, in all 32 digits.
fn boundary_v2(index: u32, count: u32) -> EffectiveKey {
    let (index, count) = (u128::from(index), u128::from(count));
    let mut hash = LAST_HASH_V2 / count * index;
    // Some clients treat keys that differ only in trailing zero bytes as equal: never end in one.
    if hash.trailing_zeros() >= 8 {
        hash += 1;
    }
    EffectiveKey::from_bytes(hash.to_be_bytes().to_vec())
}

fn parse_paths(definition: &Object) -> Result<Vec<KeyPath>> {
    let Some(listed) = definition.get("paths").and_then(Value::as_array) else {
        return Err(Error::bad_request(
            "The input content is invalid because the required properties - 'paths; ' - are missing",
        ));
    };
    if listed.is_empty() {
        return Err(Error::bad_request("The partition key definition must have at least one path."));
    }
    if listed.len() > PATHS_MAX {
        return Err(Error::bad_request(format!(
            "Too many partition key paths ({}) specified. A maximum of {PATHS_MAX} is allowed.",
            listed.len()
        )));
    }
    let mut paths: Vec<KeyPath> = Vec::with_capacity(listed.len());
    for path in listed {
        let Some(text) = path.as_str() else {
            return Err(Error::bad_request("The partition key paths must be strings."));
        };
        let path = KeyPath::parse(text).map_err(|error| {
            Error::bad_request(format!(
                "The partition key component definition path '{text}' could not be accepted, failed near position '{}'. Partition key paths must contain only valid characters and not contain a trailing slash or wildcard character.",
                error.position
            ))
        })?;
        // The server assigns these, some anew with every write, but the key must be known before an item is
        // written.
        if SYSTEM_PATHS.contains(&path.segments()[0].as_ref()) {
            return Err(Error::bad_request(format!(
                "The partition key path '{text}' is invalid: system properties cannot be partition keys."
            )));
        }
        if paths.iter().any(|earlier| earlier.same_property(&path)) {
            return Err(Error::bad_request(format!(
                "The partition key path '{text}' is listed more than once."
            )));
        }
        paths.push(path);
    }
    Ok(paths)
}
