//! Effective keys as values: ordered byte strings, written in upper-case hex, and ranges of them.

use std::fmt;

use crate::error::{Error, Result};

/// Where a key value lies in a container's key space. Byte order is key order; the empty key is
/// the minimum, `FF` lies after everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EffectiveKey(Vec<u8>);

impl EffectiveKey {
    /// Below every key.
    pub const MIN: Self = Self(Vec::new());

    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Above every key.
    pub fn max() -> Self {
        Self(vec![0xFF])
    }

    /// Longest text accepted: three hashes of 16 bytes and room for suffixes, or a version 1 key
    /// of several strings.
    pub const HEX_CHARACTERS_MAX: usize = 2048;

    /// Reads hex digits of either case.
    pub fn parse(hex: &str) -> Result<Self> {
        let invalid = || Error::bad_request("One of the input values is invalid.");
        if hex.len() > Self::HEX_CHARACTERS_MAX || !hex.len().is_multiple_of(2) {
            return Err(invalid());
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or_else(invalid);
        let (pairs, _) = hex.as_bytes().as_chunks::<2>();
        let bytes = pairs
            .iter()
            .map(|[high, low]| u8::try_from(digit(*high)? << 4 | digit(*low)?).map_err(|_| invalid()));
        bytes.collect::<Result<_>>().map(Self)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The end of the keys that begin with this one. A component never begins with `FF`.
    #[must_use]
    pub fn prefix_end(&self) -> Self {
        let mut bytes = Vec::with_capacity(self.0.len() + 1);
        bytes.extend_from_slice(&self.0);
        // Not the next key of the same length: in a hierarchy longer keys follow this one, and all of them belong
        // to it.
        bytes.push(0xFF);
        Self(bytes)
    }
}

impl fmt::Display for EffectiveKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02X}"))
    }
}

/// Keys from `min` up to but without `max`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EpkRange {
    pub min: EffectiveKey,
    pub max: EffectiveKey,
}

impl EpkRange {
    pub const fn new(min: EffectiveKey, max: EffectiveKey) -> Self {
        Self { min, max }
    }

    /// All keys: `""` to `FF`.
    pub fn full() -> Self {
        Self { min: EffectiveKey::MIN, max: EffectiveKey::max() }
    }

    pub fn is_full(&self) -> bool {
        self.min.as_bytes().is_empty() && self.max.as_bytes() == [0xFF]
    }

    /// The one key `key`, and for hierarchical keys whatever it is a prefix of.
    pub fn point(key: EffectiveKey) -> Self {
        let max = key.prefix_end();
        Self { min: key, max }
    }

    /// Reads the two bounds as hexadecimal texts.
    pub fn parse(min: &str, max: &str) -> Result<Self> {
        let range = Self { min: EffectiveKey::parse(min)?, max: EffectiveKey::parse(max)? };
        // An empty range is allowed, and finds nothing.
        if range.min > range.max {
            return Err(Error::bad_request("One of the input values is invalid."));
        }
        Ok(range)
    }

    pub fn is_empty(&self) -> bool {
        self.min >= self.max
    }

    pub fn contains(&self, key: &EffectiveKey) -> bool {
        self.min <= *key && *key < self.max
    }

    /// Whether every key of `other` is in this range.
    pub fn covers(&self, other: &Self) -> bool {
        other.is_empty() || self.min <= other.min && other.max <= self.max
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        self.intersect(other).is_some()
    }

    /// The keys in both ranges, if there are any.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let min = (&self.min).max(&other.min);
        let max = (&self.max).min(&other.max);
        // Neighbours touch without sharing a key, because `max` is exclusive.
        (min < max).then(|| Self { min: min.clone(), max: max.clone() })
    }

    /// The two halves on either side of `at`, if it lies strictly inside.
    pub fn split_at(&self, at: &EffectiveKey) -> Option<(Self, Self)> {
        (self.min < *at && *at < self.max)
            .then(|| (Self::new(self.min.clone(), at.clone()), Self::new(at.clone(), self.max.clone())))
    }
}

impl fmt::Display for EpkRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[{}, {})", self.min, self.max)
    }
}
