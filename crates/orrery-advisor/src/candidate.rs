//! A candidate: one way to partition items. Plain properties and hierarchies are partition keys as they are; everything
//! else is a definition of the `synthetic-key` crate. Keys of simple definitions are built here by a faster path, which a
//! test compares with the crate; for others the crate itself is used.

use orrery_model::{Value, murmur3};
use serde_json::json;
use synthetic_key::{Definition, Item, Maker, Path, Property, Source, SuffixKind, Treatment, ValueFormat};

use crate::fields::{Part, Paths, Values};
use crate::moment::Pace;
use crate::random::{Random, mix};

/// The kinds of keys, ordered by the effort they mean for applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Property,
    Hierarchical,
    Concatenated,
    PrecalculatedSuffix,
    RandomSuffix,
}

impl Kind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Property => "property",
            Self::Hierarchical => "hierarchical",
            Self::Concatenated => "concatenate",
            Self::PrecalculatedSuffix => "precalculatedSuffix",
            Self::RandomSuffix => "randomSuffix",
        }
    }
}

/// A partition key to be evaluated.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The displayed name: `/deviceId`, `/date + 1…400 by /VIN`.
    pub name: String,
    pub kind: Kind,
    /// The definition of a synthetic key; `None` for plain properties.
    pub definition: Option<Definition>,
    /// The paths of the container's partition key.
    pub key_paths: Vec<String>,
    /// Suffix count.
    pub suffixes: Option<u32>,
    levels: Vec<Recipe>,
    slots: Vec<usize>,
}

/// How one level of the key is built.
#[derive(Clone, Debug)]
enum Recipe {
    Property(usize),
    Made {
        parts: Vec<usize>,
        separator: String,
        suffix: Option<SuffixRecipe>,
    },
    /// The level with this index, built by the definition.
    Defined(usize),
}

#[derive(Clone, Debug)]
struct SuffixRecipe {
    separator: String,
    first: u32,
    count: u32,
    /// The properties that are hashed; none for a random suffix.
    of: Vec<usize>,
}

/// The position of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placed {
    /// The hash of the first level, which determines the partition in a new container.
    pub place: u128,
    /// Identifies the full key, including all levels.
    pub hash: u64,
    /// Bytes that inserting the key adds to the item.
    pub added_bytes: u32,
}

/// The keys that a read must visit.
#[derive(Clone, Debug, PartialEq)]
pub enum Visit {
    /// These full keys.
    Keys(Vec<Placed>),
    /// All keys whose first level is one of these.
    Prefixes(Vec<u128>),
    Everywhere,
}

/// Text for a property without a value, in definitions built here.
const NOTHING: &str = "none";
/// The first level's 126 bits.
const PLACE: u128 = (1 << 126) - 1;
/// Bound on the keys that a read is assumed to visit.
const KEYS_MAX: usize = 10_000;

/// A buffer that is reused for every key.
#[derive(Clone, Debug, Default)]
pub struct Scratch(Vec<u8>);

impl Candidate {
    /// A plain property.
    pub fn property(path: &str, paths: &mut Paths) -> Self {
        Self {
            name: path.to_owned(),
            kind: Kind::Property,
            definition: None,
            key_paths: vec![path.to_owned()],
            suffixes: None,
            levels: vec![Recipe::Property(paths.slot(path))],
            slots: vec![paths.slot(path)],
        }
    }

    /// Two or three properties as levels.
    pub fn hierarchical(levels: &[&str], paths: &mut Paths) -> Self {
        Self {
            name: levels.join(" then "),
            kind: Kind::Hierarchical,
            definition: None,
            key_paths: levels.iter().map(|path| (*path).to_owned()).collect(),
            suffixes: None,
            levels: levels.iter().map(|path| Recipe::Property(paths.slot(path))).collect(),
            slots: levels.iter().map(|path| paths.slot(path)).collect(),
        }
    }

    /// Properties joined by a dash. A time may be truncated to a unit: `("/at", Some("day"))`.
    pub fn concatenated(parts: &[(&str, Option<&str>)], paths: &mut Paths) -> Self {
        let source = json!({ "format": 1, "kind": "concatenate", "parts": json_parts(parts), "missing": {"text": NOTHING}, "null": {"text": NOTHING}, "nonScalar": {"text": NOTHING} });
        Self::own(&source, paths)
    }

    /// Properties with a random suffix.
    pub fn random_suffix(parts: &[(&str, Option<&str>)], count: u32, paths: &mut Paths) -> Self {
        let source = json!({ "format": 1, "kind": "randomSuffix", "parts": json_parts(parts), "suffix": {"count": count}, "missing": {"text": NOTHING}, "null": {"text": NOTHING}, "nonScalar": {"text": NOTHING} });
        Self::own(&source, paths)
    }

    /// Properties with a suffix computed from the hash of another property.
    pub fn precalculated_suffix(
        parts: &[(&str, Option<&str>)],
        of: &str,
        count: u32,
        paths: &mut Paths,
    ) -> Self {
        let source = json!({ "format": 1, "kind": "precalculatedSuffix", "parts": json_parts(parts), "suffix": {"of": [of], "count": count}, "missing": {"text": NOTHING}, "null": {"text": NOTHING}, "nonScalar": {"text": NOTHING} });
        Self::own(&source, paths)
    }

    fn own(source: &serde_json::Value, paths: &mut Paths) -> Self {
        let definition = Definition::from_json(source).expect("definitions built here are valid");
        Self::defined(definition, paths)
    }

    /// A candidate with an arbitrary definition.
    pub fn defined(definition: Definition, paths: &mut Paths) -> Self {
        let mut levels = Vec::new();
        let mut suffixes = None;
        let mut used: Vec<usize> = Vec::new();
        let mut kind = Kind::Concatenated;
        let mut names = Vec::new();
        for (number, level) in definition.current().levels.iter().enumerate() {
            match &level.maker {
                Maker::Existing { .. } => {
                    let path = level.property.to_string();
                    levels.push(Recipe::Property(paths.slot(&path)));
                    used.push(paths.slot(&path));
                    names.push(path);
                }
                Maker::Made { parts, separator, escaped, suffix } => {
                    // Whether the faster path builds the same key. Everything else is left to the definition.
                    let mut plain = escaped.is_none();
                    let mut slots_of = |parts: &[synthetic_key::Part]| -> Vec<usize> {
                        let slots = parts.iter().filter_map(|part| {
                            let is_plain = part.format == ValueFormat::Plain
                                && part.case == synthetic_key::Case::Kept
                                && [&part.missing, &part.null, &part.non_scalar]
                                    .iter()
                                    .all(|treatment| **treatment == Treatment::Text(NOTHING.to_owned()));
                            let Source::Property(names) = &part.source else {
                                plain = false;
                                return None;
                            };
                            plain &= is_plain && names.len() == 1;
                            names.iter().map(|name| paths.slot(&name.to_string())).last()
                        });
                        let slots: Vec<usize> = slots.collect();
                        used.extend_from_slice(&slots);
                        slots
                    };
                    let slots = slots_of(parts);
                    let recipe = suffix.as_ref().map(|suffix| SuffixRecipe {
                        separator: suffix.separator.clone(),
                        first: suffix.first,
                        count: suffix.count,
                        of: match &suffix.kind {
                            SuffixKind::Random => Vec::new(),
                            SuffixKind::Precalculated { of } => slots_of(of),
                        },
                    });
                    // Several sources of a suffix are joined by the definition in its own way.
                    plain &= recipe.as_ref().is_none_or(|suffix| suffix.of.len() <= 1) && !slots.is_empty();
                    let mut name = parts.iter().map(describe_part).collect::<Vec<_>>().join(" + ");
                    if let Some(suffix) = suffix {
                        suffixes = Some(suffix.count);
                        let last = u64::from(suffix.first) + u64::from(suffix.count) - 1;
                        name += &format!(" + {}…{last}", suffix.first);
                        kind = Kind::RandomSuffix;
                        if let SuffixKind::Precalculated { of } = &suffix.kind {
                            kind = Kind::PrecalculatedSuffix;
                            name += &format!(
                                " by {}",
                                of.iter().map(describe_part).collect::<Vec<_>>().join(" and ")
                            );
                        }
                    }
                    names.push(name);
                    levels.push(if plain {
                        Recipe::Made { parts: slots, separator: separator.clone(), suffix: recipe }
                    } else {
                        Recipe::Defined(number)
                    });
                }
            }
        }
        if levels.len() > 1 {
            kind = Kind::Hierarchical;
        }
        let key_paths = definition.key_paths().iter().map(ToString::to_string).collect();
        Self {
            name: names.join(" then "),
            kind,
            definition: Some(definition),
            key_paths,
            suffixes,
            levels,
            slots: used,
        }
    }

    /// The properties that the key depends on.
    pub fn slots(&self) -> &[usize] {
        &self.slots
    }

    /// The properties whose hash is the suffix; none for a random one.
    pub fn suffix_sources(&self) -> Vec<usize> {
        let of = |level: &Recipe| match level {
            Recipe::Made { suffix: Some(suffix), .. } => suffix.of.clone(),
            Recipe::Property(_) | Recipe::Made { .. } | Recipe::Defined(_) => Vec::new(),
        };
        self.levels.iter().flat_map(of).collect()
    }

    /// The properties that the first level of the key depends on.
    pub fn first_level(&self) -> Vec<usize> {
        match self.levels.first() {
            Some(Recipe::Property(slot)) => vec![*slot],
            Some(Recipe::Made { parts, .. }) => parts.clone(),
            Some(Recipe::Defined(_)) | None => self.slots.clone(),
        }
    }

    /// Whether the key has several levels, so that partitions can split within one first-level value.
    pub fn is_hierarchical(&self) -> bool {
        self.levels.len() > 1
    }

    /// Whether the first level only follows the clock.
    pub fn begins_with(&self, paces: &[Pace]) -> bool {
        let is_time = |slot: &usize| paces.get(*slot).copied().unwrap_or_default().follows();
        match self.levels.first() {
            Some(Recipe::Property(slot)) => is_time(slot),
            Some(Recipe::Made { parts, suffix: None, .. }) => parts.iter().all(is_time),
            _ => false,
        }
    }

    /// The partition key definition of a container with this key.
    pub fn partition_key(&self) -> serde_json::Value {
        let kind = if self.is_hierarchical() { "MultiHash" } else { "Hash" };
        json!({ "paths": self.key_paths, "kind": kind, "version": 2 })
    }

    /// The key of an item.
    #[inline]
    pub fn place<V: Values + ?Sized>(
        &self,
        paths: &Paths,
        values: &V,
        random: &mut Random,
        scratch: &mut Scratch,
    ) -> Placed {
        let mut placed = Placed { place: 0, hash: 0, added_bytes: 0 };
        for (number, level) in self.levels.iter().enumerate() {
            scratch.0.clear();
            self.write_level(level, paths, values, random, &mut scratch.0, &mut placed.added_bytes);
            placed.add_level(number, &scratch.0);
        }
        placed
    }

    /// The key of an item as JSON, for display.
    pub fn text<V: Values + ?Sized>(&self, paths: &Paths, values: &V, random: &mut Random) -> String {
        let levels = self.levels.iter().map(|level| {
            let mut bytes = Vec::new();
            self.write_level(level, paths, values, random, &mut bytes, &mut 0);
            // The encoded form begins with the type; see `push_component`.
            match (bytes.first(), level) {
                (Some(0x08), _) => {
                    let text = String::from_utf8_lossy(&bytes[1..bytes.len() - 1]).into_owned();
                    Value::from(text).to_json()
                }
                (Some(0x05), Recipe::Property(slot)) => match values.part(*slot) {
                    Part::Number(number) => Value::from(number).to_json(),
                    _ => String::new(),
                },
                (Some(0x01), _) => "null".to_owned(),
                (Some(0x02), _) => "false".to_owned(),
                (Some(0x03), _) => "true".to_owned(),
                _ => "{}".to_owned(),
            }
        });
        format!("[{}]", levels.collect::<Vec<_>>().join(","))
    }

    #[inline]
    fn write_level<V: Values + ?Sized>(
        &self,
        level: &Recipe,
        paths: &Paths,
        values: &V,
        random: &mut Random,
        out: &mut Vec<u8>,
        added: &mut u32,
    ) {
        match level {
            Recipe::Property(slot) => push_component(values.part(*slot), out),
            Recipe::Made { parts, separator, suffix } => {
                out.push(0x08);
                push_base(parts, separator, values, out);
                if let Some(suffix) = suffix {
                    let number = match suffix.of.first() {
                        None => u32::try_from(random.below(suffix.count.into())).unwrap_or(0),
                        Some(slot) => {
                            // Hashed in place, and then cut off again.
                            let start = out.len();
                            push_text(values.part(*slot), out);
                            let number = synthetic_key::murmur3::x86_32(&out[start..], 0) % suffix.count;
                            out.truncate(start);
                            number
                        }
                    };
                    suffix.push(number, out);
                }
                // With the byte of the type, 17 bytes more than the text: the name and the quotes of the
                // property.
                *added += u32::try_from(out.len() + 16).unwrap_or(u32::MAX);
                out.push(0xFF);
            }
            Recipe::Defined(number) => {
                let made = self.definition.as_ref().and_then(|definition| {
                    let item = ItemView { paths, values };
                    let mut draw = |bound: u32| u32::try_from(random.below(bound.into())).unwrap_or(0);
                    definition.apply(&item, &mut draw).ok()?.components.into_iter().nth(*number)
                });
                match made {
                    Some(synthetic_key::Component::Text(text)) => {
                        *added += u32::try_from(text.len() + 17).unwrap_or(u32::MAX);
                        push_component(Part::Text(&text), out);
                    }
                    // A definition that cannot be applied to the item gives no key.
                    _ => push_component(Part::Undefined, out),
                }
            }
        }
    }

    /// The keys that a read with these known properties must visit; unknown properties are undefined.
    pub fn visit<V: Values + ?Sized>(&self, paths: &Paths, known: &V) -> Visit {
        let mut prefixes = vec![Placed { place: 0, hash: 0, added_bytes: 0 }];
        for (number, level) in self.levels.iter().enumerate() {
            let Some(choices) = self.choices(number, level, paths, known) else {
                // Without the first level any partition may have the item; after it, those with the prefix.
                if number == 0 {
                    return Visit::Everywhere;
                }
                return Visit::Prefixes(prefixes.iter().map(|prefix| prefix.place).collect());
            };
            // Too many keys to list: such a read fans out.
            if prefixes.len().saturating_mul(choices.len()) > KEYS_MAX {
                return Visit::Everywhere;
            }
            // Every choice of this level with every prefix so far.
            prefixes = prefixes
                .iter()
                .flat_map(|prefix| {
                    choices.iter().map(move |choice| {
                        let mut placed = *prefix;
                        placed.add_level(number, choice);
                        placed
                    })
                })
                .collect();
        }
        Visit::Keys(prefixes)
    }

    /// All values that one level can have, in hashed form.
    fn choices<V: Values + ?Sized>(
        &self,
        number: usize,
        level: &Recipe,
        paths: &Paths,
        known: &V,
    ) -> Option<Vec<Vec<u8>>> {
        // What a read does not know is undefined, so a missing value cannot be told from an unknown one.
        let has = |slot: &usize| known.part(*slot) != Part::Undefined;
        match level {
            Recipe::Property(slot) => has(slot).then(|| {
                let mut bytes = Vec::new();
                push_component(known.part(*slot), &mut bytes);
                vec![bytes]
            }),
            Recipe::Made { parts, separator, suffix } => {
                if !parts.iter().all(has) {
                    return None;
                }
                let mut base = vec![0x08];
                push_base(parts, separator, known, &mut base);
                let numbers = match suffix {
                    None => {
                        base.push(0xFF);
                        return Some(vec![base]);
                    }
                    // The suffix is not known, so every number has to be visited.
                    Some(suffix) if suffix.of.is_empty() || !suffix.of.iter().all(has) => {
                        if suffix.count as usize > KEYS_MAX {
                            return None;
                        }
                        0..suffix.count
                    }
                    Some(suffix) => {
                        let mut text = Vec::new();
                        push_text(known.part(suffix.of[0]), &mut text);
                        let number = synthetic_key::murmur3::x86_32(&text, 0) % suffix.count;
                        number..number + 1
                    }
                };
                let suffix = suffix.as_ref()?;
                let keys = numbers.map(|number| {
                    let mut key = base.clone();
                    suffix.push(number, &mut key);
                    key.push(0xFF);
                    key
                });
                Some(keys.collect())
            }
            Recipe::Defined(_) => {
                let definition = self.definition.as_ref()?;
                let keys = definition.keys_for(&ItemView { paths, values: known }).ok()?;
                let mut choices: Vec<Vec<u8>> = Vec::new();
                // The library lists whole keys; this level needs its part of each, once.
                for key in keys.into_iter().take(KEYS_MAX) {
                    let Some(synthetic_key::Component::Text(text)) = key.components.into_iter().nth(number)
                    else {
                        return None;
                    };
                    let mut bytes = Vec::new();
                    push_component(Part::Text(&text), &mut bytes);
                    if !choices.contains(&bytes) {
                        choices.push(bytes);
                    }
                }
                Some(choices)
            }
        }
    }
}

impl SuffixRecipe {
    fn push(&self, number: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.separator.as_bytes());
        push_integer(u64::from(self.first) + u64::from(number), out);
    }
}

impl Placed {
    #[inline]
    fn add_level(&mut self, number: usize, hashed: &[u8]) {
        let hash = murmur3::x64_128(hashed, 0);
        #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
        let low = hash as u64;
        if number == 0 {
            self.place = hash & PLACE;
            self.hash = low;
        } else {
            // The rotation keeps equal levels from cancelling each other out.
            self.hash = mix(self.hash ^ low.rotate_left(17));
        }
    }
}

/// Adapts items to the key library.
struct ItemView<'a, V: ?Sized> {
    paths: &'a Paths,
    values: &'a V,
}

impl<V: Values + ?Sized> Item for ItemView<'_, V> {
    fn property(&self, path: &Path) -> Property<'_> {
        let slot = self.paths.find_names(path.names().iter().map(String::as_str));
        match slot.map_or(Part::Undefined, |slot| self.values.part(slot)) {
            Part::Undefined => Property::Missing,
            Part::Null => Property::Null,
            Part::Bool(flag) => Property::Bool(flag),
            Part::Number(number) => Property::Number(number),
            Part::Text(text) => Property::Text(text),
        }
    }
}

fn describe_part(part: &synthetic_key::Part) -> String {
    let name = match &part.source {
        Source::Text(text) => format!("\"{text}\""),
        Source::Property(names) => names.first().map(ToString::to_string).unwrap_or_default(),
    };
    match part.format {
        ValueFormat::Date { unit, .. } => format!("{name} by {}", format!("{unit:?}").to_lowercase()),
        ValueFormat::Plain | ValueFormat::Number(_) => name,
    }
}

fn json_parts(parts: &[(&str, Option<&str>)]) -> serde_json::Value {
    let part = |(path, unit): &(&str, Option<&str>)| match unit {
        None => json!(path),
        Some(unit) => json!({ "path": path, "date": unit }),
    };
    parts.iter().map(part).collect()
}

/// Encodes a component for version 2 of the hash.
#[inline]
fn push_component(part: Part<'_>, out: &mut Vec<u8>) {
    match part {
        Part::Undefined => out.push(0x00),
        Part::Null => out.push(0x01),
        Part::Bool(false) => out.push(0x02),
        Part::Bool(true) => out.push(0x03),
        Part::Number(number) => {
            out.push(0x05);
            out.extend_from_slice(&number.to_bits().to_le_bytes());
        }
        Part::Text(text) => {
            out.push(0x08);
            out.extend_from_slice(text.as_bytes());
            out.push(0xFF);
        }
    }
}

#[inline]
fn push_base<V: Values + ?Sized>(parts: &[usize], separator: &str, values: &V, out: &mut Vec<u8>) {
    for (at, slot) in parts.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(separator.as_bytes());
        }
        push_text(values.part(*slot), out);
    }
}

/// A scalar as the key library writes it into a key.
#[inline]
fn push_text(part: Part<'_>, out: &mut Vec<u8>) {
    match part {
        Part::Undefined | Part::Null => out.extend_from_slice(NOTHING.as_bytes()),
        Part::Bool(flag) => out.extend_from_slice(if flag { b"true" } else { b"false" }),
        // The common case, without building a value.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, positive and exact"
        )]
        Part::Number(number) if number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number) => {
            push_integer(number as u64, out);
        }
        Part::Number(number) => out.extend_from_slice(Value::from(number).to_json().as_bytes()),
        Part::Text(text) => out.extend_from_slice(text.as_bytes()),
    }
}

fn push_integer(mut number: u64, out: &mut Vec<u8>) {
    let start = out.len();
    loop {
        out.push(b'0' + u8::try_from(number % 10).unwrap_or(0));
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out[start..].reverse();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Fields;
    use orrery_model::{KeyPart, PartitionKey, PartitionKeyDefinition};

    fn effective(definition: &PartitionKeyDefinition, key: &str) -> u128 {
        let key = PartitionKey::parse_json(key.as_bytes()).unwrap();
        let bytes = definition.effective_key(&key).as_bytes()[..16].to_vec();
        u128::from_be_bytes(bytes.try_into().unwrap())
    }

    /// The fast path must produce the same keys as the library, on the partition where the server puts them.
    #[test]
    fn keys_match_the_library_and_the_server() {
        let mut paths = Paths::new();
        let candidates = [
            Candidate::property("/vin", &mut paths),
            Candidate::property("/n", &mut paths),
            Candidate::property("/flag", &mut paths),
            Candidate::property("/missing", &mut paths),
            Candidate::hierarchical(&["/date", "/vin"], &mut paths),
            Candidate::concatenated(&[("/vin", None), ("/n", None)], &mut paths),
            Candidate::concatenated(&[("/missing", None), ("/x", None), ("/flag", None)], &mut paths),
            Candidate::concatenated(&[("/vin", None), ("/at", Some("day"))], &mut paths),
            Candidate::precalculated_suffix(&[("/date", None)], "/vin", 400, &mut paths),
            Candidate::precalculated_suffix(&[("/date", None)], "/n", 7, &mut paths),
            Candidate::random_suffix(&[("/date", None)], 400, &mut paths),
        ];
        let definition = PartitionKeyDefinition::with_paths(&["/key"]).unwrap();
        for number in 0..200 {
            let json = format!(
                r#"{{"id":"{number}","vin":"V{}","n":{},"x":{}.25,"flag":{},"date":"2018-08-{:02}","at":"2018-08-09T12:00:00Z"}}"#,
                number * 7919,
                number * 3,
                number,
                number % 2 == 0,
                number % 28 + 1
            );
            let mut fields = Fields::default();
            fields.read(&paths, json.as_bytes()).unwrap();
            let item: serde_json::Value = serde_json::from_str(&json).unwrap();
            for candidate in &candidates {
                let mut random = Random::new(number);
                let mut same = random.clone();
                let placed = candidate.place(&paths, &fields, &mut random.clone(), &mut Scratch::default());
                let text = candidate.text(&paths, &fields, &mut random);
                if let Some(defined) = &candidate.definition {
                    let mut draw = |bound: u32| u32::try_from(same.below(bound.into())).unwrap();
                    let key = defined.apply(&item, &mut draw).unwrap();
                    assert_eq!(text, key.to_json().to_string(), "{}", candidate.name);
                }
                let first = if candidate.is_hierarchical() {
                    format!("{}]", text.split(',').next().unwrap())
                } else {
                    text.clone()
                };
                assert_eq!(placed.place, effective(&definition, &first), "{} {text}", candidate.name);
                // A read that knows everything finds the item; with a random suffix it must visit all of them.
                match candidate.visit(&paths, &fields) {
                    Visit::Keys(keys) => {
                        assert!(keys.iter().any(|key| (key.place, key.hash) == (placed.place, placed.hash)));
                        let count = if candidate.kind == Kind::RandomSuffix { 400 } else { 1 };
                        assert_eq!(keys.len(), count);
                    }
                    Visit::Everywhere => {
                        assert!(["/missing", "/missing + /x + /flag"].contains(&candidate.name.as_str()));
                    }
                    Visit::Prefixes(_) => panic!("all levels are known"),
                }
            }
        }
    }

    #[test]
    fn reads_visit_all_possible_keys() {
        let mut paths = Paths::new();
        let hierarchical = Candidate::hierarchical(&["/tenant", "/user"], &mut paths);
        let suffixed = Candidate::precalculated_suffix(&[("/date", None)], "/vin", 8, &mut paths);
        let mut known = vec![KeyPart::Undefined; paths.len()];
        assert_eq!(hierarchical.visit(&paths, &known[..]), Visit::Everywhere);
        known[paths.find("/tenant").unwrap()] = KeyPart::from("a");
        assert!(
            matches!(hierarchical.visit(&paths, &known[..]), Visit::Prefixes(places) if places.len() == 1)
        );
        known[paths.find("/user").unwrap()] = KeyPart::from("u");
        assert!(matches!(hierarchical.visit(&paths, &known[..]), Visit::Keys(keys) if keys.len() == 1));
        known[paths.find("/date").unwrap()] = KeyPart::from("2018-08-09");
        assert!(matches!(suffixed.visit(&paths, &known[..]), Visit::Keys(keys) if keys.len() == 8));
        known[paths.find("/vin").unwrap()] = KeyPart::from("V1");
        assert!(matches!(suffixed.visit(&paths, &known[..]), Visit::Keys(keys) if keys.len() == 1));
        assert_eq!(suffixed.name, "/date + 1…8 by /vin");
        assert_eq!(hierarchical.partition_key()["kind"], "MultiHash");
    }
}
