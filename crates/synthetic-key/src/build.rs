//! Builds, validates and enumerates keys.

use crate::{
    Case, Component, Definition, Item, KEY_BYTES_MAX, KEYS_MAX, Key, KeyError, Level, Maker, Part, Path,
    Property, Randomness, Source, Strategy, Suffix, SuffixKind, Treatment, ValueFormat, date, murmur3,
    number,
};
use serde_json::{Map, Value};
use std::fmt::Write;

/// Separates the texts of several hashed properties.
const HASHED_SEPARATOR: char = '\u{1F}';

impl Definition {
    /// The key that this item gets if it is written now. An existing key in the item is ignored: see
    /// [`Definition::key_of`].
    pub fn apply(&self, item: &impl Item, random: &mut impl Randomness) -> Result<Key, KeyError> {
        // An item that names its version keeps it, so that a rewrite does not move it to another key.
        let strategy = self.recorded_version(item)?.unwrap_or_else(|| self.current());
        let components =
            strategy.levels.iter().map(|level| level.make(item, random)).collect::<Result<_, _>>()?;
        Ok(Key { version: strategy.version, components })
    }

    /// The key of an item: its existing one, if a recorded version can produce it, with missing components
    /// built now. An item with a key that no version produces is rejected.
    pub fn key_of(&self, item: &impl Item, random: &mut impl Randomness) -> Result<Key, KeyError> {
        if let Some(strategy) = self.recorded_version(item)? {
            return strategy.complete(item, random);
        }
        // An item without any built component is new. It gets the current version: an older one might fit as well, but
        // would never be retired.
        let made = |level: &&Level| matches!(level.maker, Maker::Made { .. });
        if self.current().levels.iter().filter(made).all(|level| level.is_absent(item)) {
            return self.current().complete(item, random);
        }
        let mut first_error = None;
        // An existing component decides: the newest version that could have built it is taken for its own.
        for strategy in self.live() {
            match strategy.complete(item, random) {
                Ok(key) => return Ok(key),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        // The error of the newest version is the most useful one.
        Err(first_error.expect("the newest version is in use"))
    }

    /// Stores the key in the item, under the definition's properties, unless it is there already. Also stores the
    /// version if the definition has a property for it.
    pub fn insert_into(&self, item: &mut Value, random: &mut impl Randomness) -> Result<Key, KeyError> {
        let key = self.key_of(item, random)?;
        for (level, component) in self.current().levels.iter().zip(&key.components) {
            place(item, &level.property, component.to_json())?;
        }
        if let Some(path) = &self.version_property {
            place(item, path, Value::from(key.version))?;
        }
        Ok(key)
    }

    /// The keys that a read of items with these properties must visit, newest version first, without duplicates. A
    /// property that the filter does not specify may have any value: if the key depends on it, the read must fan out,
    /// which is [`KeyError::Undetermined`]; a missing hashed property yields all suffixes. Hierarchical keys may be
    /// truncated to the determined levels.
    pub fn keys_for(&self, filter: &impl Item) -> Result<Vec<Key>, KeyError> {
        // A filter that names the version needs only the keys of that one.
        let told = self.recorded_version(filter)?;
        let mut keys: Vec<Key> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for strategy in
            self.live().filter(|strategy| told.is_none_or(|told| told.version == strategy.version))
        {
            for components in strategy.possible(filter)? {
                let key = Key { version: strategy.version, components };
                // Two versions may yield the same key, for example after a rename only.
                if seen.insert(key.to_json().to_string()) {
                    keys.push(key);
                }
                if keys.len() > KEYS_MAX {
                    return Err(KeyError::TooMany);
                }
            }
        }
        Ok(keys)
    }

    /// The versions in use, newest first.
    fn live(&self) -> impl Iterator<Item = &Strategy> {
        self.strategies.iter().rev().filter(|strategy| !strategy.retired)
    }

    /// The version recorded in the item.
    fn recorded_version(&self, item: &impl Item) -> Result<Option<&Strategy>, KeyError> {
        let Some(path) = &self.version_property else { return Ok(None) };
        let unknown = |found: String| Err(KeyError::Version { path: path.to_string(), found });
        match item.property(path) {
            Property::Missing => Ok(None),
            Property::Number(number) => {
                // A retired version is unknown here: retiring it states that no item has it.
                let strategy = self.live().find(|strategy| {
                    Property::Number(f64::from(strategy.version)) == Property::Number(number)
                });
                strategy.map_or_else(
                    || unknown(number::plain(number).unwrap_or_default()),
                    |found| Ok(Some(found)),
                )
            }
            _ => unknown("something other than a number".to_owned()),
        }
    }
}

impl Strategy {
    fn complete(&self, item: &impl Item, random: &mut impl Randomness) -> Result<Key, KeyError> {
        let components =
            self.levels.iter().map(|level| level.take_or_make(item, random)).collect::<Result<_, _>>()?;
        Ok(Key { version: self.version, components })
    }

    /// Every key that items matching this filter may have, truncated before the first undetermined level.
    fn possible(&self, filter: &impl Item) -> Result<Vec<Vec<Component>>, KeyError> {
        // Starts with one key without components, and multiplies it by the choices of each level.
        let mut keys = vec![Vec::new()];
        for (index, level) in self.levels.iter().enumerate() {
            let choices = match level.choices(filter) {
                // A prefix of levels is still a useful window; without the first level there is none.
                Err(KeyError::Undetermined { .. }) if index > 0 => break,
                other => other?,
            };
            // Checked before the product is built: three levels of suffixes could be billions.
            if keys.len().saturating_mul(choices.len()) > KEYS_MAX {
                return Err(KeyError::TooMany);
            }
            keys = keys
                .iter()
                .flat_map(|key: &Vec<Component>| {
                    choices.iter().map(move |choice| key.iter().chain([choice]).cloned().collect())
                })
                .collect();
        }
        Ok(keys)
    }
}

impl Level {
    fn is_absent(&self, item: &impl Item) -> bool {
        item.property(&self.property) == Property::Missing
    }

    fn make(&self, item: &impl Item, random: &mut impl Randomness) -> Result<Component, KeyError> {
        match &self.maker {
            Maker::Existing { keep_null } => existing(item, &self.property, *keep_null),
            Maker::Made { suffix, .. } => {
                let base = self.maker.base(item)?;
                let text = match suffix {
                    None => base,
                    Some(suffix) => match &suffix.kind {
                        SuffixKind::Random => suffix.write(base, random.below(suffix.count)),
                        SuffixKind::Precalculated { of } => {
                            suffix.write(base, hashed(of, item)? % suffix.count)
                        }
                    },
                };
                bounded(text)
            }
        }
    }

    /// The item's existing component, if this level can produce it, or a new one.
    fn take_or_make(&self, item: &impl Item, random: &mut impl Randomness) -> Result<Component, KeyError> {
        // Nothing to compare with: an absent component is built, and a plain property is the component.
        if self.is_absent(item) || matches!(self.maker, Maker::Existing { .. }) {
            return self.make(item, random);
        }
        let found = item.property(&self.property);
        let expected = match &self.maker {
            Maker::Made { suffix: Some(suffix @ Suffix { kind: SuffixKind::Random, .. }), .. } => {
                let base = self.maker.base(item)?;
                // A random suffix cannot be computed again, so the existing text is checked for its form: the base
                // that belongs to this item, and a number in range.
                let prefix =
                    if base.is_empty() { String::new() } else { format!("{base}{}", suffix.separator) };
                if let Property::Text(text) = found
                    && let Some(number) =
                        text.strip_prefix(&prefix).and_then(|number| number.parse::<u32>().ok())
                    && (suffix.first..suffix.first + suffix.count).contains(&number)
                    // `parse` also accepts a plus sign and leading zeros, which the builder never writes and
                    // readers would not look for.
                    && text.len() == prefix.len() + number.to_string().len()
                {
                    return bounded(text.to_owned());
                }
                format!("\"{prefix}{}\" to \"{prefix}{}\"", suffix.first, suffix.first + suffix.count - 1)
            }
            // Everything else is a function of the item: build it and compare.
            _ => match self.make(item, random)? {
                Component::Text(text) if found == Property::Text(&text) => return Ok(Component::Text(text)),
                other => other.to_json().to_string(),
            },
        };
        Err(KeyError::Contradiction { path: self.property.to_string(), found: describe(found), expected })
    }

    /// The components that items matching this filter may have.
    fn choices(&self, filter: &impl Item) -> Result<Vec<Component>, KeyError> {
        let undetermined = |path: &Path| KeyError::Undetermined { path: path.to_string() };
        let (parts, suffix) = match &self.maker {
            Maker::Existing { keep_null } => {
                if self.is_absent(filter) {
                    return Err(undetermined(&self.property));
                }
                return Ok(vec![existing(filter, &self.property, *keep_null)?]);
            }
            Maker::Made { parts, suffix, .. } => (parts, suffix),
        };
        // Absent from a filter means any value, unlike in an item, where it means none.
        if let Some(part) = parts.iter().find(|part| part.is_absent(filter)) {
            return Err(undetermined(part.path().expect("fixed texts are never absent")));
        }
        match suffix {
            Some(suffix) => {
                let drawn = match &suffix.kind {
                    // All that is hashed is known: one suffix. Otherwise, and for random ones, any of them.
                    SuffixKind::Precalculated { of } if !of.iter().any(|part| part.is_absent(filter)) => {
                        let number = hashed(of, filter)? % suffix.count;
                        number..number + 1
                    }
                    _ => 0..suffix.count,
                };
                let base = self.maker.base(filter)?;
                drawn.map(|number| bounded(suffix.write(base.clone(), number))).collect()
            }
            None => Ok(vec![bounded(self.maker.base(filter)?)?]),
        }
    }
}

impl Maker {
    /// The parts joined, without a suffix.
    fn base(&self, item: &impl Item) -> Result<String, KeyError> {
        let Self::Made { parts, separator, escaped, .. } = self else {
            unreachable!("only made levels have parts")
        };
        join(parts, item, separator, |base, text| match escaped {
            None => base.push_str(&text.text),
            Some(escaped) => {
                // `%` is escaped in ordinary text, so this marker cannot be confused with a property's value.
                if text.substitute {
                    base.push_str("%~");
                }
                escape_into(base, &text.text, escaped);
            }
        })
    }
}

impl Suffix {
    fn write(&self, mut base: String, drawn: u32) -> String {
        if !base.is_empty() {
            base.push_str(&self.separator);
        }
        write!(base, "{}", self.first + drawn).expect("writing to a text does not fail");
        base
    }
}

struct PartText {
    text: String,
    /// The text that replaces a property without one.
    substitute: bool,
}

impl Part {
    fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Text(_) => None,
            Source::Property(names) => names.first(),
        }
    }

    fn missing_error(&self) -> KeyError {
        KeyError::Missing { path: self.path().map(ToString::to_string).unwrap_or_default() }
    }

    /// The property under any of its names. If the item has several of them, the values must agree: otherwise a read by
    /// one name would compute another key.
    fn property<'a>(&self, item: &'a impl Item) -> Result<Property<'a>, KeyError> {
        let Source::Property(names) = &self.source else { return Ok(Property::Missing) };
        let mut found = Property::Missing;
        for name in names {
            match item.property(name) {
                Property::Missing => {}
                other if found == Property::Missing => found = other,
                other if found == other => {}
                _ => return Err(KeyError::Ambiguous { path: names[0].to_string() }),
            }
        }
        Ok(found)
    }

    fn is_absent(&self, item: &impl Item) -> bool {
        matches!(self.source, Source::Property(_)) && self.property(item) == Ok(Property::Missing)
    }

    /// The text of this part, or `None` if it is skipped.
    fn text(&self, item: &impl Item) -> Result<Option<PartText>, KeyError> {
        if let Source::Text(fixed) = &self.source {
            return Ok(Some(PartText { text: fixed.clone(), substitute: false }));
        }
        let path = || self.path().map(ToString::to_string).unwrap_or_default();
        let format_error = |message| KeyError::Format { path: path(), message };
        let property = self.property(item)?;
        let (treatment, error) = match property {
            Property::Missing => (&self.missing, self.missing_error()),
            Property::Null => (&self.null, KeyError::Null { path: path() }),
            Property::NonScalar => (&self.non_scalar, KeyError::NonScalar { path: path() }),
            Property::Bool(_) | Property::Number(_) | Property::Text(_) => {
                let mut text = match (self.format, property) {
                    (ValueFormat::Date { unit, epoch }, _) => {
                        date::formatted(property, unit, epoch).map_err(format_error)?
                    }
                    (ValueFormat::Number(format), Property::Number(number)) => {
                        number::formatted(number, format).map_err(format_error)?
                    }
                    (ValueFormat::Number(_), _) => return Err(format_error("expected a number".to_owned())),
                    (ValueFormat::Plain, Property::Number(number)) => {
                        number::plain(number).map_err(format_error)?
                    }
                    (ValueFormat::Plain, Property::Text(text)) => text.to_owned(),
                    // Only booleans are left.
                    (ValueFormat::Plain, _) => (property == Property::Bool(true)).to_string(),
                };
                // ASCII letters only: other letters fold differently between versions of Unicode, and so between
                // clients.
                match self.case {
                    Case::Kept => {}
                    Case::Lower => text.make_ascii_lowercase(),
                    Case::Upper => text.make_ascii_uppercase(),
                }
                return Ok(Some(PartText { text, substitute: false }));
            }
        };
        match treatment {
            Treatment::Error => Err(error),
            Treatment::Skip => Ok(None),
            Treatment::Text(text) => Ok(Some(PartText { text: text.clone(), substitute: true })),
        }
    }
}

fn hashed(of: &[Part], item: &impl Item) -> Result<u32, KeyError> {
    let separator = HASHED_SEPARATOR.encode_utf8(&mut [0; 4]).to_owned();
    let input = join(of, item, &separator, |input, text| input.push_str(&text.text))?;
    Ok(murmur3::x86_32(input.as_bytes(), 0))
}

/// Joins the texts of an item's parts. Fails if all parts were skipped: all such items would get the same key or suffix.
fn join(
    parts: &[Part],
    item: &impl Item,
    separator: &str,
    mut push: impl FnMut(&mut String, &PartText),
) -> Result<String, KeyError> {
    let mut joined = String::new();
    let mut empty = true;
    for part in parts {
        // A part that is skipped leaves no separator behind.
        let Some(text) = part.text(item)? else { continue };
        if !empty {
            joined.push_str(separator);
        }
        empty = false;
        push(&mut joined, &text);
    }
    match parts.first() {
        Some(part) if empty => Err(part.missing_error()),
        _ => Ok(joined),
    }
}

fn escape_into(out: &mut String, text: &str, escaped: &str) {
    for character in text.chars() {
        if escaped.contains(character) {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                write!(out, "%{byte:02X}").expect("writing to a text does not fail");
            }
        } else {
            out.push(character);
        }
    }
}

fn bounded(text: String) -> Result<Component, KeyError> {
    if text.len() > KEY_BYTES_MAX { Err(KeyError::TooLong) } else { Ok(Component::Text(text)) }
}

fn existing(item: &impl Item, path: &Path, keep_null: bool) -> Result<Component, KeyError> {
    let named = || path.to_string();
    match item.property(path) {
        Property::Missing => Err(KeyError::Missing { path: named() }),
        Property::Null if keep_null => Ok(Component::Null),
        Property::Null => Err(KeyError::Null { path: named() }),
        Property::NonScalar => Err(KeyError::NonScalar { path: named() }),
        Property::Bool(flag) => Ok(Component::Bool(flag)),
        Property::Number(number) if number.is_finite() => Ok(Component::Number(number)),
        Property::Number(_) => {
            Err(KeyError::Format { path: named(), message: "the number is not finite".to_owned() })
        }
        Property::Text(text) => bounded(text.to_owned()),
    }
}

fn describe(found: Property<'_>) -> String {
    match found {
        Property::Missing => "missing".to_owned(),
        Property::Null => "null".to_owned(),
        Property::Bool(flag) => flag.to_string(),
        Property::Number(number) => number::plain(number).unwrap_or_else(|_| "a number".to_owned()),
        // Truncate long values: the message goes to logs and responses.
        Property::Text(text) => Value::String(text.chars().take(100).collect()).to_string(),
        Property::NonScalar => "an object or array".to_owned(),
    }
}

/// Stores a value under a path, creating the objects on the way.
fn place(item: &mut Value, path: &Path, value: Value) -> Result<(), KeyError> {
    let refused =
        || KeyError::Place { path: path.to_string(), message: "its parent is not an object".to_owned() };
    let (last, above) = path.names().split_last().expect("a path has a name");
    let mut object = item.as_object_mut().ok_or_else(refused)?;
    for name in above {
        // Only what is missing is created; a parent that is something else is refused, not replaced.
        let inner = object.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
        object = inner.as_object_mut().ok_or_else(refused)?;
    }
    object.insert(last.clone(), value);
    Ok(())
}
