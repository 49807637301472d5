//! The parsed form of a synthetic key definition: versions, levels, parts and suffixes as data.
//!
//! `parse` builds it from JSON and rejects what it does not know, so the types here only hold valid definitions. Building
//! keys from them is in `build`.

mod parse;

use crate::{DefinitionError, Path};
use serde_json::Value;

/// A definition of a synthetic key: where the key is stored, and the strategies, by version, that build it.
///
/// # The JSON
///
/// ```json
/// { "format": 1, "property": "/partitionKey", "versionProperty": "/keyVersion",
///   "versions": [ { "version": 1, "kind": "…", … }, { "version": 2, "kind": "…", … } ] }
/// ```
///
/// `format` is 1. `property` (default `/partitionKey`) is where the key is stored. A definition with
/// one strategy may have its fields next to `format` instead of in `versions`; that is version 1.
///
/// | kind | fields | key |
/// |---|---|---|
/// | `concatenate` | `parts`, `separator` (default `-`) | `abc-123-2018` |
/// | `randomSuffix` | `parts`, `separator`, `suffix` | `2018-08-09.1` … `2018-08-09.400` |
/// | `precalculatedSuffix` | `parts`, `separator`, `suffix` with `of` | `2018-08-09.112` |
/// | `hierarchical` | `levels`: two or three, each with `property` and one of the kinds above, or `{"kind": "property", "path": "/tenant"}` for a property as it is | `["contoso", "2018-08-09.7"]` |
///
/// A *part* is a path (`"/date"`), a fixed text (`{"text": "v1"}`) or an object with `path` and:
/// `was` (earlier names of the property, see below); `date` (`year`, `month`, `week`, `day`, `hour`,
/// `minute`) with `epoch` (`seconds`, `milliseconds`) where the property is a number; `number` with
/// `decimals`, `width` (zeros before it) and `bucket` (rounded down to a multiple); `case` (`lower`,
/// `upper`; ASCII letters only, since other letters fold differently from version to version of
/// Unicode). Without a format a string is used as it is, a number as ECMAScript prints it, a boolean
/// as `true` or `false`.
///
/// `missing`, `null` and `nonScalar`, on a part or on the strategy for all its parts, say how a
/// property is handled that is absent, null, or an object or array: `"error"` (the default),
/// `"skip"` (the part and its separator are omitted) or `{"text": "none"}`.
///
/// `"escape": true` prevents different parts from producing the same key: `%` and every character of
/// the separators are written as `%` and two hexadecimal digits per byte, and a text that replaces an
/// absent property follows `%~`. Nothing may be skipped then, and separators must be punctuation.
///
/// A *suffix* is `count` (1 to 100,000), `first` (default 1) and `separator` (default `.`). With
/// `of`, a list of parts, it is `first + hash mod count`, where `hash` is MurmurHash3 x86 32-bit,
/// seed 0, of the UTF-8 text of the parts, joined by U+001F if there are several. Without `of`, it is
/// random.
///
/// # Versions
///
/// New items use the version with the highest number. Reads visit the keys of every version that is
/// not `"retired": true`, newest first, unless the item or filter specifies its version under
/// `versionProperty`. So 400 suffixes become 800 by adding a version: items of both are found, and
/// once none of the first is left, it is retired. A renamed property is declared with `was`: its
/// value is then looked up under all names, in every version; an item that has it under several
/// names must have the same value under each.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    pub(crate) source: Value,
    pub(crate) version_property: Option<Path>,
    /// In ascending order of version numbers; never empty.
    pub(crate) strategies: Vec<Strategy>,
}

impl Definition {
    /// Parses and validates a definition.
    pub fn from_json(source: &Value) -> Result<Self, DefinitionError> {
        parse::definition(source)
    }

    /// The definition's original JSON.
    pub fn to_json(&self) -> &Value {
        &self.source
    }

    /// The paths of the container's partition key, one per level.
    pub fn key_paths(&self) -> Vec<&Path> {
        self.current().levels.iter().map(|level| &level.property).collect()
    }

    /// The strategy that builds new keys.
    pub fn current(&self) -> &Strategy {
        self.strategies.last().expect("a definition has a strategy")
    }

    /// All recorded strategies, oldest first.
    pub fn strategies(&self) -> &[Strategy] {
        &self.strategies
    }

    /// The property in which items record the version of their key.
    pub fn version_property(&self) -> Option<&Path> {
        self.version_property.as_ref()
    }

    /// Every property that a key depends on, in any version in use, under each of its names.
    pub fn source_paths(&self) -> Vec<&Path> {
        // A change of the recorded version changes the key as well.
        let mut paths: Vec<&Path> = self.version_property.iter().collect();
        for level in
            self.strategies.iter().filter(|strategy| !strategy.retired).flat_map(|strategy| &strategy.levels)
        {
            match &level.maker {
                Maker::Existing { .. } => paths.push(&level.property),
                Maker::Made { parts, suffix, .. } => {
                    let hashed = match suffix {
                        Some(Suffix { kind: SuffixKind::Precalculated { of }, .. }) => of.as_slice(),
                        _ => &[],
                    };
                    for part in parts.iter().chain(hashed) {
                        if let Source::Property(names) = &part.source {
                            paths.extend(names);
                        }
                    }
                }
            }
        }
        paths.sort();
        paths.dedup();
        paths
    }

    /// Whether the current strategy has a random suffix.
    pub fn is_random(&self) -> bool {
        self.current().levels.iter().any(|level| {
            matches!(&level.maker, Maker::Made { suffix: Some(Suffix { kind: SuffixKind::Random, .. }), .. })
        })
    }
}

/// One recorded version.
#[derive(Clone, Debug, PartialEq)]
pub struct Strategy {
    pub version: u32,
    /// No item has a key of this version, so reads skip it.
    pub retired: bool,
    /// One level for plain keys, two or three for hierarchical ones.
    pub levels: Vec<Level>,
}

/// One component of the key.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Where the component is stored in the item.
    pub property: Path,
    pub maker: Maker,
}

/// How a component is built.
#[derive(Clone, Debug, PartialEq)]
pub enum Maker {
    /// A plain property.
    Existing { keep_null: bool },
    /// Text built from parts, with or without a suffix.
    Made {
        parts: Vec<Part>,
        separator: String,
        /// The characters that are percent-encoded; empty if the key is not escaped.
        escaped: Option<String>,
        suffix: Option<Suffix>,
    },
}

/// What is appended to the parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Suffix {
    pub first: u32,
    pub count: u32,
    pub separator: String,
    pub kind: SuffixKind,
}

/// How a suffix is chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum SuffixKind {
    Random,
    /// Computed from the hash of these parts.
    Precalculated {
        of: Vec<Part>,
    },
}

/// One part of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub source: Source,
    pub format: ValueFormat,
    pub case: Case,
    pub missing: Treatment,
    pub null: Treatment,
    pub non_scalar: Treatment,
}

/// Where the text of a part comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Text(String),
    /// The property's path, followed by its other names.
    Property(Vec<Path>),
}

/// How a property without a text is handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Treatment {
    Error,
    Skip,
    Text(String),
}

/// Case folding of ASCII letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Kept,
    Lower,
    Upper,
}

/// How a scalar is formatted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueFormat {
    Plain,
    Date { unit: DateFormat, epoch: Option<Epoch> },
    Number(NumberFormat),
}

/// The unit to which a date is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateFormat {
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
}

/// The unit of a numeric time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epoch {
    Seconds,
    Milliseconds,
}

/// How a number is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberFormat {
    pub decimals: Option<u8>,
    /// Minimum number of digits before the decimal point, padded with zeros; 0 = no padding.
    pub width: u8,
    /// Round down to a multiple of this first.
    pub bucket: Option<u32>,
}
