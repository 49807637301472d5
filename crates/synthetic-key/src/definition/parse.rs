//! Parses a definition from JSON. Unknown fields are errors: a misspelt field would silently change
//! keys.

use crate::{
    Case, DateFormat, Definition, DefinitionError, Epoch, Level, Maker, NumberFormat, PARTS_MAX, Part, Path,
    SUFFIXES_MAX, Source, Strategy, Suffix, SuffixKind, Treatment, VERSIONS_MAX, ValueFormat,
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

type Result<T> = std::result::Result<T, DefinitionError>;

const PART_FIELDS: [&str; 10] =
    ["path", "was", "text", "date", "epoch", "number", "case", "missing", "null", "nonScalar"];
const MADE_FIELDS: [&str; 8] =
    ["kind", "parts", "separator", "escape", "suffix", "missing", "null", "nonScalar"];

fn fault<T>(at: impl Into<String>, message: impl Into<String>) -> Result<T> {
    Err(DefinitionError { at: at.into(), message: message.into() })
}

pub(crate) fn definition(source: &Value) -> Result<Definition> {
    let fields = object(source, "definition")?;
    // First: another format may give every other field another meaning.
    if fields.get("format").and_then(Value::as_u64) != Some(1) {
        return fault("format", "must be 1");
    }
    let property = path(fields.get("property"), "property")?.unwrap_or_else(default_property);
    let version_property = path(fields.get("versionProperty"), "versionProperty")?;
    let mut strategies = Vec::new();
    if let Some(versions) = fields.get("versions") {
        known(fields, &["format", "property", "versionProperty", "versions"], "definition")?;
        let versions = array(versions, "versions")?;
        if versions.is_empty() || versions.len() > VERSIONS_MAX {
            return fault("versions", format!("must be 1 to {VERSIONS_MAX}"));
        }
        for (index, version) in versions.iter().enumerate() {
            let at = format!("versions[{index}]");
            let mut fields = object(version, &at)?.clone();
            let number = whole(fields.get("version"), &format!("{at}.version"), 1, u32::MAX)?;
            let Some(number) = number else { return fault(format!("{at}.version"), "is required") };
            let retired = flag(fields.get("retired"), &format!("{at}.retired"))?;
            // What is left are the strategy's own fields, so that `known` finds misspelt ones among them.
            fields.retain(|name, _| name != "version" && name != "retired");
            strategies.push(Strategy { version: number, retired, levels: levels(&fields, &property, &at)? });
        }
        // The numbers decide which version is newest, not the order in the text.
        strategies.sort_by_key(|strategy| strategy.version);
        if strategies.windows(2).any(|pair| pair[0].version == pair[1].version) {
            return fault("versions", "two versions have the same number");
        }
        if strategies.last().is_some_and(|last| last.retired) {
            return fault("versions", "the newest version is retired, so no key can be built");
        }
    } else {
        let mut fields = fields.clone();
        fields.retain(|name, _| !["format", "property", "versionProperty"].contains(&name.as_str()));
        strategies.push(Strategy {
            version: 1,
            retired: false,
            levels: levels(&fields, &property, "definition")?,
        });
    }
    let paths =
        |strategy: &Strategy| strategy.levels.iter().map(|level| level.property.clone()).collect::<Vec<_>>();
    // The paths of a container's partition key never change.
    if strategies.windows(2).any(|pair| paths(&pair[0]) != paths(&pair[1])) {
        return fault("versions", "all versions must store their keys under the same properties");
    }
    for target in strategies.iter().flat_map(paths) {
        if version_property.as_ref() == Some(&target) {
            return fault("versionProperty", "must not be the key's own property");
        }
    }
    // Before the check for circles, which a name of another version may close.
    share_names(&mut strategies);
    let definition = Definition { source: source.clone(), version_property, strategies };
    no_circles(&definition)?;
    Ok(definition)
}

/// Makes every part look up its property under all names that any version declares for it.
fn share_names(strategies: &mut [Strategy]) {
    let mut classes: Vec<BTreeSet<Path>> = Vec::new();
    for part in parts(strategies) {
        if let Source::Property(names) = &part.source {
            // Each class holds the names of one property. A part that shares a name with several classes joins
            // them.
            let mut class: BTreeSet<Path> = names.iter().cloned().collect();
            classes.retain(|other| {
                let apart = other.is_disjoint(&class);
                if !apart {
                    class.extend(other.iter().cloned());
                }
                apart
            });
            classes.push(class);
        }
    }
    for part in parts(strategies) {
        if let Source::Property(names) = &mut part.source {
            let class = classes.iter().find(|class| class.contains(&names[0]));
            for name in class.into_iter().flatten() {
                // The part's own path stays first: messages name the property by it.
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
    }
}

fn parts(strategies: &mut [Strategy]) -> impl Iterator<Item = &mut Part> {
    strategies.iter_mut().flat_map(|strategy| &mut strategy.levels).flat_map(|level| match &mut level.maker {
        Maker::Existing { .. } => Vec::new(),
        Maker::Made { parts, suffix, .. } => {
            let mut all: Vec<&mut Part> = parts.iter_mut().collect();
            if let Some(Suffix { kind: SuffixKind::Precalculated { of }, .. }) = suffix {
                all.extend(of);
            }
            all
        }
    })
}

/// A key must not depend on itself.
fn no_circles(definition: &Definition) -> Result<()> {
    let mut strategies = definition.strategies.clone();
    let targets: Vec<Path> = strategies
        .iter()
        .flat_map(|strategy| &strategy.levels)
        .filter(|level| matches!(level.maker, Maker::Made { .. }))
        .map(|level| level.property.clone())
        .collect();
    for part in parts(&mut strategies) {
        if let Source::Property(names) = &part.source
            && let Some(name) = names.iter().find(|name| targets.contains(name))
        {
            return fault("parts", format!("{name} is the key itself"));
        }
    }
    Ok(())
}

fn levels(fields: &Map<String, Value>, property: &Path, at: &str) -> Result<Vec<Level>> {
    let kind = text(fields.get("kind"), &format!("{at}.kind"))?;
    if kind != Some("hierarchical") {
        if kind == Some("property") {
            return fault(
                format!("{at}.kind"),
                "a plain property is only allowed as a level of a hierarchical key",
            );
        }
        return Ok(vec![Level { property: property.clone(), maker: maker(fields, at)? }]);
    }
    known(fields, &["kind", "levels"], at)?;
    let inner = match fields.get("levels") {
        Some(levels) => array(levels, &format!("{at}.levels"))?,
        None => return fault(format!("{at}.levels"), "is required"),
    };
    // Container partition keys have at most three paths.
    if !(2..=3).contains(&inner.len()) {
        return fault(format!("{at}.levels"), "must have two or three elements");
    }
    let mut levels: Vec<Level> = Vec::new();
    for (index, level) in inner.iter().enumerate() {
        let at = format!("{at}.levels[{index}]");
        let fields = object(level, &at)?;
        let level = if text(fields.get("kind"), &format!("{at}.kind"))? == Some("property") {
            known(fields, &["kind", "path", "null"], &at)?;
            let Some(property) = path(fields.get("path"), &format!("{at}.path"))? else {
                return fault(format!("{at}.path"), "is required");
            };
            let keep_null = match text(fields.get("null"), &format!("{at}.null"))? {
                None | Some("error") => false,
                Some("keep") => true,
                Some(_) => return fault(format!("{at}.null"), "must be error or keep"),
            };
            Level { property, maker: Maker::Existing { keep_null } }
        } else {
            let Some(property) = path(fields.get("property"), &format!("{at}.property"))? else {
                return fault(format!("{at}.property"), "is required");
            };
            let mut fields = fields.clone();
            fields.retain(|name, _| name != "property");
            Level { property, maker: maker(&fields, &at)? }
        };
        if levels.iter().any(|other| other.property == level.property) {
            return fault(at, "two levels have the same property");
        }
        levels.push(level);
    }
    Ok(levels)
}

fn maker(fields: &Map<String, Value>, at: &str) -> Result<Maker> {
    known(fields, &MADE_FIELDS, at)?;
    let kind = text(fields.get("kind"), &format!("{at}.kind"))?;
    let separator = text(fields.get("separator"), &format!("{at}.separator"))?.unwrap_or("-").to_owned();
    let escape = flag(fields.get("escape"), &format!("{at}.escape"))?;
    // The strategy's treatments are the defaults of its parts.
    let defaults = Treatments::read(fields, at, &Treatments::default())?;
    let parts = part_list(fields.get("parts"), &format!("{at}.parts"), &defaults)?;
    let suffix = match kind {
        Some("concatenate") if fields.contains_key("suffix") => {
            return fault(format!("{at}.suffix"), "is not allowed for a concatenation");
        }
        Some("concatenate") => None,
        Some("randomSuffix") => Some(suffix(fields, at, &defaults, false)?),
        Some("precalculatedSuffix") => Some(suffix(fields, at, &defaults, true)?),
        _ => {
            let kinds = "concatenate, randomSuffix, precalculatedSuffix or hierarchical";
            return fault(format!("{at}.kind"), format!("must be {kinds}"));
        }
    };
    // Without parts there can still be a suffix alone; without either there is no key.
    if parts.is_empty() && suffix.is_none() {
        return fault(format!("{at}.parts"), "at least one part is required");
    }
    let escaped =
        if escape { Some(escaped_characters(&separator, suffix.as_ref(), &parts, at)?) } else { None };
    Ok(Maker::Made { parts, separator, escaped, suffix })
}

/// The characters to percent-encode, after checking that this leaves no ambiguity.
fn escaped_characters(separator: &str, suffix: Option<&Suffix>, parts: &[Part], at: &str) -> Result<String> {
    let suffix_separator = suffix.map_or(separator, |suffix| &suffix.separator);
    let ambiguous = |text: &str| {
        // Letters and digits occur in escape sequences, `%` and `~` in their marks.
        text.is_empty() || text.contains(|c: char| c.is_ascii_alphanumeric() || "%~".contains(c))
    };
    if ambiguous(separator) || ambiguous(suffix_separator) {
        let message = "with escape, separators must not be empty or contain letters, digits, % or ~";
        return fault(format!("{at}.separator"), message);
    }
    // `a` and no `b` would give the same key as no `a` and `b`.
    let skips = |part: &Part| [&part.missing, &part.null, &part.non_scalar].contains(&&Treatment::Skip);
    if parts.iter().any(skips) {
        return fault(format!("{at}.escape"), "with escape, no part may be skipped");
    }
    Ok(format!("%{separator}{suffix_separator}"))
}

fn suffix(fields: &Map<String, Value>, at: &str, defaults: &Treatments, hashed: bool) -> Result<Suffix> {
    let at = format!("{at}.suffix");
    let Some(suffix) = fields.get("suffix") else { return fault(at, "is required") };
    let fields = object(suffix, &at)?;
    known(fields, &["count", "first", "separator", "of", "hash"], &at)?;
    let Some(count) = whole(fields.get("count"), &format!("{at}.count"), 1, SUFFIXES_MAX)? else {
        return fault(format!("{at}.count"), "is required");
    };
    let first = whole(fields.get("first"), &format!("{at}.first"), 0, 1_000_000_000)?.unwrap_or(1);
    let separator = text(fields.get("separator"), &format!("{at}.separator"))?.unwrap_or(".").to_owned();
    let of = part_list(fields.get("of"), &format!("{at}.of"), defaults)?;
    // A pre-calculated suffix needs properties to hash, a random one must not name any.
    if hashed == of.is_empty() {
        let message = if hashed {
            "at least one property is required"
        } else {
            "a random suffix is not computed from properties"
        };
        return fault(format!("{at}.of"), message);
    }
    let hash = text(fields.get("hash"), &format!("{at}.hash"))?;
    if hash.is_some_and(|hash| !hashed || hash != "murmur3-x86-32") {
        return fault(format!("{at}.hash"), "must be murmur3-x86-32, for a pre-calculated suffix");
    }
    let kind = if hashed { SuffixKind::Precalculated { of } } else { SuffixKind::Random };
    Ok(Suffix { first, count, separator, kind })
}

#[derive(Clone)]
struct Treatments {
    missing: Treatment,
    null: Treatment,
    non_scalar: Treatment,
}

impl Default for Treatments {
    fn default() -> Self {
        Self { missing: Treatment::Error, null: Treatment::Error, non_scalar: Treatment::Error }
    }
}

impl Treatments {
    fn read(fields: &Map<String, Value>, at: &str, defaults: &Self) -> Result<Self> {
        let one = |name: &str, default: &Treatment| match fields.get(name) {
            None => Ok(default.clone()),
            Some(Value::String(text)) if text == "error" => Ok(Treatment::Error),
            Some(Value::String(text)) if text == "skip" => Ok(Treatment::Skip),
            Some(Value::Object(inner))
                if inner.len() == 1 && inner.get("text").is_some_and(Value::is_string) =>
            {
                Ok(Treatment::Text(inner["text"].as_str().unwrap_or_default().to_owned()))
            }
            Some(_) => fault(format!("{at}.{name}"), "must be error, skip or {\"text\": …}"),
        };
        Ok(Self {
            missing: one("missing", &defaults.missing)?,
            null: one("null", &defaults.null)?,
            non_scalar: one("nonScalar", &defaults.non_scalar)?,
        })
    }
}

fn part_list(list: Option<&Value>, at: &str, defaults: &Treatments) -> Result<Vec<Part>> {
    let Some(list) = list else { return Ok(Vec::new()) };
    let list = array(list, at)?;
    if list.len() > PARTS_MAX {
        return fault(at, format!("at most {PARTS_MAX} are allowed"));
    }
    list.iter().enumerate().map(|(index, value)| part(value, &format!("{at}[{index}]"), defaults)).collect()
}

fn part(value: &Value, at: &str, defaults: &Treatments) -> Result<Part> {
    let shorthand;
    let fields = if let Value::String(text) = value {
        // A bare string is a path, and is read like the longer form.
        shorthand = Map::from_iter([("path".to_owned(), Value::String(text.clone()))]);
        &shorthand
    } else {
        object(value, at)?
    };
    known(fields, &PART_FIELDS, at)?;
    let Treatments { missing, null, non_scalar } = Treatments::read(fields, at, defaults)?;
    let source = if let Some(fixed) = text(fields.get("text"), &format!("{at}.text"))? {
        if fields.len() > 1 {
            return fault(at, "a fixed text must not have other fields");
        }
        Source::Text(fixed.to_owned())
    } else {
        let Some(own) = path(fields.get("path"), &format!("{at}.path"))? else {
            return fault(format!("{at}.path"), "is required");
        };
        // The current name first, then the earlier ones.
        let mut names = vec![own];
        if let Some(was) = fields.get("was") {
            let at = format!("{at}.was");
            for earlier in array(was, &at)? {
                names.extend(path(Some(earlier), &at)?);
            }
            if names.len() > PARTS_MAX {
                return fault(at, format!("at most {PARTS_MAX} are allowed"));
            }
        }
        Source::Property(names)
    };
    let case = match text(fields.get("case"), &format!("{at}.case"))? {
        None => Case::Kept,
        Some("lower") => Case::Lower,
        Some("upper") => Case::Upper,
        Some(_) => return fault(format!("{at}.case"), "must be lower or upper"),
    };
    Ok(Part { source, format: format_of(fields, at)?, case, missing, null, non_scalar })
}

fn format_of(fields: &Map<String, Value>, at: &str) -> Result<ValueFormat> {
    let unit = match text(fields.get("date"), &format!("{at}.date"))? {
        None => None,
        Some("year") => Some(DateFormat::Year),
        Some("month") => Some(DateFormat::Month),
        Some("week") => Some(DateFormat::Week),
        Some("day") => Some(DateFormat::Day),
        Some("hour") => Some(DateFormat::Hour),
        Some("minute") => Some(DateFormat::Minute),
        Some(_) => return fault(format!("{at}.date"), "must be year, month, week, day, hour or minute"),
    };
    let epoch = match text(fields.get("epoch"), &format!("{at}.epoch"))? {
        None => None,
        Some("seconds") => Some(Epoch::Seconds),
        Some("milliseconds") => Some(Epoch::Milliseconds),
        Some(_) => return fault(format!("{at}.epoch"), "must be seconds or milliseconds"),
    };
    match (unit, fields.get("number")) {
        (Some(_), Some(_)) => fault(format!("{at}.number"), "a part must not be both a date and a number"),
        (Some(unit), None) => Ok(ValueFormat::Date { unit, epoch }),
        (None, _) if epoch.is_some() => fault(format!("{at}.epoch"), "is only allowed with date"),
        (None, Some(number)) => {
            let at = format!("{at}.number");
            let fields = object(number, &at)?;
            known(fields, &["decimals", "width", "bucket"], &at)?;
            let small = |name: &str, max: u32| -> Result<Option<u8>> {
                let found = whole(fields.get(name), &format!("{at}.{name}"), 0, max)?;
                Ok(found.map(|found| u8::try_from(found).expect("the bound is small")))
            };
            Ok(ValueFormat::Number(NumberFormat {
                decimals: small("decimals", 15)?,
                width: small("width", 32)?.unwrap_or(0),
                bucket: whole(fields.get("bucket"), &format!("{at}.bucket"), 1, 1_000_000_000)?,
            }))
        }
        (None, None) => Ok(ValueFormat::Plain),
    }
}

fn default_property() -> Path {
    Path::parse("/partitionKey").expect("a path")
}

fn known(fields: &Map<String, Value>, names: &[&str], at: &str) -> Result<()> {
    match fields.keys().find(|name| !names.contains(&name.as_str())) {
        Some(unknown) => fault(format!("{at}.{unknown}"), "is not a known field"),
        None => Ok(()),
    }
}

fn object<'a>(value: &'a Value, at: &str) -> Result<&'a Map<String, Value>> {
    value.as_object().map_or_else(|| fault(at, "must be an object"), Ok)
}

fn array<'a>(value: &'a Value, at: &str) -> Result<&'a Vec<Value>> {
    value.as_array().map_or_else(|| fault(at, "must be an array"), Ok)
}

fn text<'a>(value: Option<&'a Value>, at: &str) -> Result<Option<&'a str>> {
    match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => fault(at, "must be a string"),
    }
}

fn flag(value: Option<&Value>, at: &str) -> Result<bool> {
    match value {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => fault(at, "must be true or false"),
    }
}

fn whole(value: Option<&Value>, at: &str, min: u32, max: u32) -> Result<Option<u32>> {
    let Some(value) = value else { return Ok(None) };
    match value.as_f64() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range")]
        // `4.0` is whole too: some clients write all numbers so.
        Some(number) if number.fract() == 0.0 && (f64::from(min)..=f64::from(max)).contains(&number) => {
            Ok(Some(number as u32))
        }
        _ => fault(at, format!("must be a whole number from {min} to {max}")),
    }
}

fn path(value: Option<&Value>, at: &str) -> Result<Option<Path>> {
    text(value, at)?.map(Path::parse).transpose().or_else(|message| fault(at, message))
}
