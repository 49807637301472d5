//! What a definition says, after it was read.

use crate::{DefinitionError, Path};
use serde_json::Value;

/// A definition of a synthetic key: where the key is stored, and the strategies, by version, that
/// made or make it.
///
/// # The JSON
///
/// ```json
/// { "format": 1, "property": "/partitionKey", "versionProperty": "/keyVersion",
///   "versions": [ { "version": 1, "kind": "…", … }, { "version": 2, "kind": "…", … } ] }
/// ```
///
/// `format` is 1. `property` (default `/partitionKey`) is where the key is stored. A definition with
/// one strategy may carry its fields beside `format` instead of in `versions`; that is version 1.
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
/// Unicode). Without a format a text stands as it is, a number as ECMAScript prints it, a boolean as
/// `true` or `false`.
///
/// `missing`, `null` and `nonScalar`, on a part or on the strategy for all its parts, say what
/// becomes of a property that is absent, null, or an object or array: `"error"` (the default),
/// `"skip"` (the part and its separator are left out) or `{"text": "none"}`.
///
/// `"escape": true` keeps different parts from giving the same key: `%` and every character of the
/// separators are written as `%` and two hexadecimal digits per byte, and a text that stands for an
/// absent property follows `%~`. Then nothing may be skipped, and separators are punctuation.
///
/// A *suffix* is `count` (1 to 100,000), `first` (default 1) and `separator` (default `.`). With
/// `of`, a list of parts, it is `first + hash mod count`, where `hash` is MurmurHash3 x86 32-bit,
/// seed 0, of the UTF-8 text of the parts, joined by U+001F if there are several. Without, it is
/// drawn at random.
///
/// # Versions
///
/// Items are keyed by the version with the highest number. Reads visit the keys of every version
/// that is not `"retired": true`, newest first, unless the item or filter names its version under
/// `versionProperty`. So 400 suffixes become 800 by adding a version: items of both are found, and
/// when none is left of the first it is retired. A renamed property is declared with `was`: its
/// value is then looked for under all names, in every version; an item that has it under several
/// names must have the same value there.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    pub(crate) source: Value,
    pub(crate) version_property: Option<Path>,
    /// In ascending order of their number; never empty.
    pub(crate) strategies: Vec<Strategy>,
}

impl Definition {
    /// Reads and checks a definition.
    pub fn from_json(source: &Value) -> Result<Self, DefinitionError> {
        crate::parse::definition(source)
    }

    /// The definition as it was given.
    pub fn to_json(&self) -> &Value {
        &self.source
    }

    /// The paths of the container's partition key, one per level.
    pub fn key_paths(&self) -> Vec<&Path> {
        self.current().levels.iter().map(|level| &level.property).collect()
    }

    /// The strategy that makes new keys.
    pub fn current(&self) -> &Strategy {
        self.strategies.last().expect("a definition has a strategy")
    }

    /// All recorded strategies, oldest first.
    pub fn strategies(&self) -> &[Strategy] {
        &self.strategies
    }

    /// Where items say which version made their key.
    pub fn version_property(&self) -> Option<&Path> {
        self.version_property.as_ref()
    }

    /// Every property that decides about a key, in any version in use, under each of its names.
    pub fn source_paths(&self) -> Vec<&Path> {
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

    /// Whether the current strategy draws a part of the key at random.
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
    /// No item has a key of this version any more.
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

/// How a component comes about.
#[derive(Clone, Debug, PartialEq)]
pub enum Maker {
    /// The property as it is.
    Existing { keep_null: bool },
    /// Text made of parts, with a suffix or without.
    Made {
        parts: Vec<Part>,
        separator: String,
        /// The characters that are written as bytes in hexadecimal; nothing if the key is not escaped.
        escaped: Option<String>,
        suffix: Option<Suffix>,
    },
}

/// What follows the parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Suffix {
    pub first: u32,
    pub count: u32,
    pub separator: String,
    pub kind: SuffixKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SuffixKind {
    Random,
    /// From the hash of these parts.
    Precalculated {
        of: Vec<Part>,
    },
}

/// One piece of text.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub source: Source,
    pub format: ValueFormat,
    pub case: Case,
    pub missing: Treatment,
    pub null: Treatment,
    pub non_scalar: Treatment,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Text(String),
    /// The property's path, and behind it its other names.
    Property(Vec<Path>),
}

/// What becomes of a property that has no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Treatment {
    Error,
    Skip,
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Kept,
    Lower,
    Upper,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueFormat {
    Plain,
    Date { unit: DateFormat, epoch: Option<Epoch> },
    Number(NumberFormat),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateFormat {
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epoch {
    Seconds,
    Milliseconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberFormat {
    pub decimals: Option<u8>,
    /// Digits before the point, filled up with zeros; 0 for as many as there are.
    pub width: u8,
    /// Rounded down to a multiple of this first.
    pub bucket: Option<u32>,
}
