//! Index keys: `20`, generation (u32), path (8 bytes of hash), value, effective key, id.
//!
//! A path is identified by a 64-bit hash of its steps instead of a number from a catalog, so any gateway can write
//! without a lookup. Two paths with the same hash only produce candidates that the filter drops.
//!
//! A value starts with its type, in the order of the query language, followed by an order-preserving form: numbers as
//! doubles with flipped bits, strings escaped and terminated by `00 00`. Long strings are truncated and end with `00
//! 01` instead, so candidates must be verified. Arrays and objects are hashed. The entry's value is the item's ordinal,
//! so that ties can be ordered without loading items.

use std::sync::LazyLock;

use orrery_model::Value;
use orrery_model::container::{IndexPath, IndexStep};
use orrery_model::partition_key::EffectiveKey;
use orrery_query::filter::{Bound, Test, TypeTest};
use orrery_query::order;
use orrery_storage::{Key, KeyRange};

use orrery_metering::cost;

use super::keys;

const INDEX: u8 = 0x20;
const COMPOSITE: u8 = 0x24;
/// 2^53: larger integers are rounded.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;
/// The maximum length of a string in the key.
const STRING_BYTES_MAX: usize = 128;
/// The same in composite entries, which have up to eight values.
const COMPOSITE_STRING_BYTES_MAX: usize = 32;

const UNDEFINED: u8 = 0x01;
const NULL: u8 = 0x02;
const FALSE: u8 = 0x03;
const TRUE: u8 = 0x04;
const NUMBER: u8 = 0x05;
const STRING: u8 = 0x06;
const ARRAY: u8 = 0x07;
const OBJECT: u8 = 0x08;

/// The hash of a path, built step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathHash(u64);

impl PathHash {
    pub(crate) const ROOT: Self = Self(0xCBF2_9CE4_8422_2325);

    // These bytes cannot occur in UTF-8, so the property "a/b" differs from b in a, and array elements differ from
    // properties.
    pub(crate) fn property(self, name: &str) -> Self {
        self.bytes(&[0xFE]).bytes(name.as_bytes())
    }

    pub(crate) fn element(self) -> Self {
        self.bytes(&[0xFF])
    }

    pub(crate) fn of(path: &IndexPath) -> Self {
        path.0.iter().fold(Self::ROOT, |hash, step| match step {
            IndexStep::Property(name) => hash.property(name),
            IndexStep::Element => hash.element(),
        })
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        // FNV-1a: a few instructions per byte, and names are short.
        Self(bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)))
    }

    fn finish(self) -> [u8; 8] {
        // FNV's high bits mix slowly; one more multiplication spreads them.
        (self.0 ^ self.0 >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
    }
}

/// The part of an entry's key before its effective key.
pub(crate) fn term(generation: u32, path: PathHash, value: &Value) -> Key {
    let mut key = Key::new();
    push_term(&mut key, generation, path, Some(value));
    key
}

/// The same for an item that lacks the property.
pub(crate) fn undefined_term(generation: u32, path: PathHash) -> Key {
    let mut key = Key::new();
    push_term(&mut key, generation, path, None);
    key
}

/// Appends a term of a value, or of an item that lacks the property.
pub(crate) fn push_term(key: &mut Key, generation: u32, path: PathHash, value: Option<&Value>) {
    push_path(key, generation, path);
    push_value(key, value);
}

/// The part of a composite entry's key before its effective key. Descending parts are inverted.
pub(crate) fn composite_term<'v>(
    generation: u32,
    number: u32,
    values: impl Iterator<Item = (Option<&'v Value>, bool)>,
) -> Key {
    let mut key = Key::new();
    push_composite_term(&mut key, generation, number, values);
    key
}

pub(crate) fn push_composite_term<'v>(
    key: &mut Key,
    generation: u32,
    number: u32,
    values: impl Iterator<Item = (Option<&'v Value>, bool)>,
) {
    key.push(COMPOSITE);
    key.extend_from_slice(&generation.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    for (value, descending) in values {
        let start = key.len();
        // Cut shorter than in single entries, so that eight values fit into a key.
        push_value_cut(key, value, COMPOSITE_STRING_BYTES_MAX);
        if descending {
            // Inverted bytes sort the other way round, which gives each path its own direction in one index.
            key[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
}

/// The number of terms charged for an entry: those of the serving generation, except for `id` and `_ts`, which every
/// item has whatever the policy and which are included in the charge for its size, and those that only record the
/// presence of an array or object.
pub(crate) fn charged_terms(key: &[u8], serving: u32) -> usize {
    // A generation that is still being built is not charged.
    if key.get(1..5) != Some(&serving.to_be_bytes()) {
        return 0;
    }
    if key.first() == Some(&COMPOSITE) {
        return 1;
    }
    let is_free = || FREE_PATHS.iter().any(|path| key.get(5..13) == Some(path));
    if key.first() != Some(&INDEX) || is_free() {
        return 0;
    }
    match key.get(13) {
        Some(&STRING) => cost::string_terms(text_length(&key[14..], cost::STRING_BYTES_MAX).unwrap_or(0)),
        Some(NULL..=NUMBER) => 1,
        _ => 0,
    }
}

/// Every item has these, whatever the policy.
static FREE_PATHS: LazyLock<[[u8; 8]; 2]> =
    LazyLock::new(|| ["_ts", "id"].map(|name| PathHash::ROOT.property(name).finish()));

/// All entries of a generation.
pub(crate) fn generation_ranges(generation: u32) -> [KeyRange; 2] {
    [INDEX, COMPOSITE].map(|prefix| {
        let mut key = vec![prefix];
        key.extend_from_slice(&generation.to_be_bytes());
        KeyRange::prefix(&key)
    })
}

/// The same entry's key in another generation.
pub(crate) fn in_generation(mut key: Key, generation: u32) -> Key {
    if !matches!(key.first(), Some(&(INDEX | COMPOSITE))) {
        return key;
    }
    if let Some(place) = key.get_mut(1..5) {
        place.copy_from_slice(&generation.to_be_bytes());
    }
    key
}

fn path_prefix(generation: u32, path: PathHash) -> Key {
    let mut key = Key::with_capacity(13);
    push_path(&mut key, generation, path);
    key
}

fn push_path(key: &mut Key, generation: u32, path: PathHash) {
    key.push(INDEX);
    key.extend_from_slice(&generation.to_be_bytes());
    key.extend_from_slice(&path.finish());
}

fn push_value(key: &mut Key, value: Option<&Value>) {
    push_value_cut(key, value, STRING_BYTES_MAX);
}

fn push_value_cut(key: &mut Key, value: Option<&Value>, string_bytes_max: usize) {
    match value {
        None => key.push(UNDEFINED),
        Some(Value::Null) => key.push(NULL),
        Some(Value::Bool(false)) => key.push(FALSE),
        Some(Value::Bool(true)) => key.push(TRUE),
        Some(Value::Number(number)) => {
            key.push(NUMBER);
            key.extend_from_slice(&ordered_bits(number.as_f64()).to_be_bytes());
        }
        Some(Value::String(text)) => {
            key.push(STRING);
            // The byte after the terminating zero tells whether the text goes on.
            let cut = text.len() > string_bytes_max;
            // Cut before escaping, at any byte: the key need not be valid UTF-8.
            keys::push_escaped(key, &text.as_bytes()[..text.len().min(string_bytes_max)]);
            key.extend_from_slice(&[0, u8::from(cut)]);
        }
        Some(value @ (Value::Array(_) | Value::Object(_))) => {
            key.push(if matches!(value, Value::Array(_)) { ARRAY } else { OBJECT });
            // No order among arrays or objects is needed, only equality.
            key.extend_from_slice(&order::hash(value).to_be_bytes());
        }
    }
}

/// Bits whose unsigned order is the order of the doubles. Minus zero equals zero.
fn ordered_bits(number: f64) -> u64 {
    let bits = (number + 0.0).to_bits();
    // Positive numbers get the sign bit, so that they sort above negative ones, whose bits are all flipped.
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// The length of the encoded value at the front, if valid.
fn value_length(bytes: &[u8]) -> Option<usize> {
    match *bytes.first()? {
        UNDEFINED | NULL | FALSE | TRUE => Some(1),
        NUMBER => Some(9),
        ARRAY | OBJECT => Some(17),
        // The type and the terminator.
        STRING => Some(text_length(&bytes[1..], usize::MAX)? + 3),
        _ => None,
    }
}

/// The length of an escaped string up to its terminator; may stop early once `enough` bytes were seen.
fn text_length(bytes: &[u8], enough: usize) -> Option<usize> {
    let mut at = 0;
    while at < enough {
        at += bytes.get(at..)?.iter().position(|byte| *byte == 0)?;
        // `00 FF` is an escaped zero, anything else the end.
        match bytes.get(at + 1)? {
            0xFF => at += 2,
            _ => return Some(at),
        }
    }
    Some(at)
}

/// The value that the entries of a run have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RunValue {
    /// The items lack the property.
    Undefined,
    Exactly(Value),
    /// The items may have different values, or the entry does not tell which.
    Unknown,
}

/// How many bytes of a path index entry's key are its path and value. Entries that share them are a run.
pub(crate) fn run_length(key: &[u8]) -> usize {
    key.get(13..).and_then(value_length).map_or(key.len(), |length| 13 + length)
}

/// The value of a run, given the beginning that its keys share.
pub(crate) fn run_value(beginning: &[u8]) -> RunValue {
    let exactly = |value: Option<Value>| value.map_or(RunValue::Unknown, RunValue::Exactly);
    let encoded = beginning.get(13..).unwrap_or_default();
    match encoded {
        [UNDEFINED] => RunValue::Undefined,
        [NULL] => RunValue::Exactly(Value::Null),
        [FALSE] => RunValue::Exactly(Value::Bool(false)),
        [TRUE] => RunValue::Exactly(Value::Bool(true)),
        // The encoding stands for several values.
        [NUMBER | STRING, ..] if !is_distinct(encoded) => RunValue::Unknown,
        [NUMBER, bits @ ..] => exactly(bits.try_into().ok().map(|bits| number(u64::from_be_bytes(bits)))),
        [STRING, text @ .., 0, _] => exactly(unescaped(text).map(|text| Value::String(text.into()))),
        _ => RunValue::Unknown,
    }
}

/// The number with these ordered bits, whose magnitude is below 2^53.
#[expect(clippy::cast_possible_truncation, reason = "an integer of this size is exact")]
fn number(bits: u64) -> Value {
    let number = f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits });
    if number.fract() == 0.0 { Value::from(number as i64) } else { Value::from(number) }
}

/// A string without its escapes.
fn unescaped(bytes: &[u8]) -> Option<String> {
    let mut text = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(&byte) = rest.next() {
        text.push(byte);
        // Only an escaped zero may follow.
        if byte == 0 && rest.next() != Some(&0xFF) {
            return None;
        }
    }
    String::from_utf8(text).ok()
}

/// The parts of a path index entry: the encoded value, and the key of the item it is about.
pub(crate) fn parse_entry(key: &[u8]) -> Option<(&[u8], Key)> {
    let rest = key.get(13..)?;
    let (value, place) = rest.split_at_checked(value_length(rest)?)?;
    Some((value, keys::item_at(place)))
}

/// The length of the prefix of a composite entry's key that follows the order of the values, and the item's key.
/// Entries with the same prefix may be in any order.
pub(crate) fn parse_composite_entry(key: &[u8], descending: &[bool]) -> Option<(usize, Key)> {
    // After the kind, the generation and the number.
    let mut at = 9;
    let mut ordered = None;
    for &descending in descending {
        let mut rest = key.get(at..)?.to_vec();
        if descending {
            for byte in &mut rest {
                *byte = !*byte;
            }
        }
        let length = value_length(&rest)?;
        at += length;
        // Behind a value that was cut or rounded, the order of entries says nothing about the values.
        if ordered.is_none() && !is_distinct(rest.get(..length)?) {
            ordered = Some(at);
        }
    }
    Some((ordered.unwrap_or(at), keys::item_at(key.get(at..)?)))
}

/// The composite entries that begin with these values and whose next one, if bounds are given, lies between them.
pub(crate) fn composite_between(
    generation: u32,
    number: u32,
    equal: &[(Option<&Value>, bool)],
    next: Option<(Option<&Bound>, Option<&Bound>, bool)>,
) -> Option<KeyRange> {
    let prefix = composite_term(generation, number, equal.iter().copied());
    let Some((low, high, descending)) = next else { return Some(KeyRange::prefix(&prefix)) };
    let (first, last) = type_of_bounds(low.or(high).map(|bound| &bound.value)?)?;
    let turned = |bytes: &[u8]| -> Key {
        let turn = |byte: &u8| if descending { !*byte } else { *byte };
        prefix.iter().copied().chain(bytes.iter().map(turn)).collect()
    };
    let encoded = |bound: &Bound| {
        let mut key = Key::new();
        push_value_cut(&mut key, Some(&bound.value), COMPOSITE_STRING_BYTES_MAX);
        // A truncated or rounded value may represent values on the other side of the bound.
        let is_open = !bound.inclusive && is_distinct(&key);
        (KeyRange::prefix(&turned(&key)), is_open)
    };
    // For inverted values the upper bound comes first.
    let (from, to, from_type, to_type) =
        if descending { (high, low, last, first) } else { (low, high, first, last) };
    let start = match from.map(encoded) {
        None => turned(&[from_type]),
        // An exclusive bound with an exact encoding: begin behind all of its entries.
        Some((range, true)) => range.end?,
        Some((range, false)) => range.start,
    };
    let end = match to.map(encoded) {
        None => KeyRange::prefix(&turned(&[to_type])).end?,
        Some((range, true)) => range.start,
        Some((range, false)) => range.end?,
    };
    Some(KeyRange::new(start, end))
}

/// The common prefix of all composite entries that may have these values.
pub(crate) fn composite_run(generation: u32, number: u32, values: &[(Option<&Value>, bool)]) -> Key {
    // The values up to the first inexact one, and that one: behind it the entries have no common beginning.
    let distinct = values.iter().take_while(|(value, _)| {
        let mut encoded = Key::new();
        push_value_cut(&mut encoded, *value, COMPOSITE_STRING_BYTES_MAX);
        is_distinct(&encoded)
    });
    let count = (distinct.count() + 1).min(values.len());
    composite_term(generation, number, values[..count].iter().copied())
}

/// Whether the encoding is exact: the string was not truncated, the integer not rounded.
pub(crate) fn is_distinct(encoded: &[u8]) -> bool {
    match encoded {
        [STRING, .., last] => *last == 0,
        [NUMBER, bits @ ..] => {
            let bits = bits.try_into().map_or(0, u64::from_be_bytes);
            let (least, most) = (ordered_bits(-EXACT_INTEGER_MAX), ordered_bits(EXACT_INTEGER_MAX));
            bits > least && bits < most
        }
        _ => true,
    }
}

/// Whether no other value has the same entry.
fn is_encoded_exactly(value: &Value) -> bool {
    let mut encoded = Key::new();
    push_value(&mut encoded, Some(value));
    is_distinct(&encoded)
}

/// The generation that an index entry belongs to, if the key is one.
pub(crate) fn generation_of(key: &[u8]) -> Option<u32> {
    let number = key.strip_prefix(&[INDEX]).or_else(|| key.strip_prefix(&[COMPOSITE]))?;
    number.first_chunk().copied().map(u32::from_be_bytes)
}

/// The key of the item that an index entry is about, if the key is one. `composite` tells which values of a
/// composite index, given by generation and number, are inverted.
pub(crate) fn item_of_index_key(
    key: &[u8],
    composite: impl FnOnce(u32, u32) -> Option<Vec<bool>>,
) -> Option<Key> {
    let number = |at: usize| key.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    match *key.first()? {
        INDEX => parse_entry(key).map(|(_, item)| item),
        COMPOSITE => parse_composite_entry(key, &composite(number(1)?, number(5)?)?).map(|(_, item)| item),
        _ => None,
    }
}

/// The ranges of entries that a test selects, disjoint and in order, or `None` if the index cannot tell.
pub(crate) fn ranges(generation: u32, path: &IndexPath, test: &Test) -> Option<Vec<KeyRange>> {
    let prefix = path_prefix(generation, PathHash::of(path));
    let with = |suffix: &[u8]| [prefix.as_slice(), suffix].concat();
    let types = |first: u8, last: u8| KeyRange::new(with(&[first]), with(&[last + 1]));
    let exact = |value: &Value| {
        let mut key = prefix.clone();
        push_value(&mut key, Some(value));
        KeyRange::prefix(&key)
    };
    Some(match test {
        Test::Equal(value) => vec![exact(value)],
        // In order and without duplicates, since an item must not be found twice.
        Test::In(values) => {
            let mut ranges: Vec<KeyRange> = values.iter().map(exact).collect();
            ranges.sort_by(|a, b| a.start.cmp(&b.start));
            ranges.dedup();
            ranges
        }
        Test::NotEqual(value) => {
            let without = exact(value);
            let all = types(NULL, OBJECT);
            let before = KeyRange { start: all.start, end: Some(without.start.clone()) };
            // A truncated string or a rounded integer represents many: those that differ must not be lost.
            let after_start = if is_encoded_exactly(value) { without.end? } else { without.start };
            vec![before, KeyRange { start: after_start, end: all.end }]
        }
        Test::Range { low, high } => vec![between(&prefix, low.as_ref(), high.as_ref())?],
        Test::Prefix(text) => {
            let mut key = with(&[STRING]);
            keys::push_escaped(&mut key, &text.as_bytes()[..text.len().min(STRING_BYTES_MAX)]);
            vec![KeyRange::prefix(&key)]
        }
        Test::StringScan => vec![types(STRING, STRING)],
        Test::Type(test) => match test {
            TypeTest::Defined => vec![types(NULL, OBJECT)],
            TypeTest::Null => vec![types(NULL, NULL)],
            TypeTest::Bool => vec![types(FALSE, TRUE)],
            TypeTest::Number => vec![types(NUMBER, NUMBER)],
            TypeTest::String => vec![types(STRING, STRING)],
            TypeTest::Array => vec![types(ARRAY, ARRAY)],
            TypeTest::Object => vec![types(OBJECT, OBJECT)],
            TypeTest::Primitive => vec![types(NULL, STRING)],
            TypeTest::NotDefined => return None,
        },
    })
}

/// Whether every entry that the test selects satisfies it: nothing was truncated or rounded.
pub(crate) fn is_exact(test: &Test) -> bool {
    let plain = |value: &Value| match value {
        Value::Number(number) => number.as_f64().abs() < EXACT_INTEGER_MAX,
        Value::String(text) => text.len() < STRING_BYTES_MAX,
        Value::Null | Value::Bool(_) => true,
        Value::Array(_) | Value::Object(_) => false,
    };
    match test {
        Test::Equal(value) | Test::NotEqual(value) => plain(value),
        Test::In(values) => values.iter().all(plain),
        Test::Range { low, high } => [low, high].into_iter().flatten().all(|bound| plain(&bound.value)),
        Test::Prefix(text) => text.len() < STRING_BYTES_MAX,
        Test::StringScan => false,
        Test::Type(_) => true,
    }
}

/// The first and last of the types that compare with a value.
fn type_of_bounds(value: &Value) -> Option<(u8, u8)> {
    Some(match value {
        Value::Null => (NULL, NULL),
        Value::Bool(_) => (FALSE, TRUE),
        Value::Number(_) => (NUMBER, NUMBER),
        Value::String(_) => (STRING, STRING),
        Value::Array(_) | Value::Object(_) => return None,
    })
}

/// The entries between two bounds of one type.
fn between(prefix: &[u8], low: Option<&Bound>, high: Option<&Bound>) -> Option<KeyRange> {
    let (first, last) = type_of_bounds(low.or(high).map(|bound| &bound.value)?)?;
    let encoded = |bound: &Bound| {
        let mut key = prefix.to_vec();
        push_value(&mut key, Some(&bound.value));
        KeyRange::prefix(&key)
    };
    let start = match low {
        None => [prefix, &[first]].concat(),
        // Exclude items with this exact value, unless a truncated string represents longer ones too.
        Some(bound) if !bound.inclusive && is_encoded_exactly(&bound.value) => encoded(bound).end?,
        Some(bound) => encoded(bound).start,
    };
    let end = match high {
        None => [prefix, &[last + 1]].concat(),
        Some(bound) if !bound.inclusive && is_encoded_exactly(&bound.value) => encoded(bound).start,
        Some(bound) => encoded(bound).end?,
    };
    Some(KeyRange::new(start, end))
}

/// The scalar values of a path, and its arrays and objects.
pub(crate) fn scalars_and_others(generation: u32, path: &IndexPath) -> [KeyRange; 2] {
    let prefix = path_prefix(generation, PathHash::of(path));
    let with = |suffix: u8| [prefix.as_slice(), &[suffix]].concat();
    [KeyRange::new(with(NULL), with(STRING + 1)), KeyRange::new(with(ARRAY), with(OBJECT + 1))]
}

/// All values of a path, for sorting by it.
pub(crate) fn path_range(generation: u32, path: &IndexPath) -> KeyRange {
    KeyRange::prefix(&path_prefix(generation, PathHash::of(path)))
}

/// Narrows a range of one exact value to one logical partition.
pub(crate) fn within(range: &KeyRange, effective: &EffectiveKey) -> KeyRange {
    let mut key = range.start.clone();
    keys::push_effective_key(&mut key, effective);
    KeyRange::prefix(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an entry tells about its value is what the value was, or nothing.
    #[test]
    fn runs_tell_their_value() {
        let path = PathHash::of(&path(&["a", "b"]));
        let long = format!("{:?}", "x".repeat(STRING_BYTES_MAX));
        let longer = format!("{:?}", "x".repeat(STRING_BYTES_MAX + 1));
        for (text, is_known) in [
            ("null", true),
            ("true", true),
            ("false", true),
            ("0", true),
            ("7", true),
            ("-3", true),
            ("0.1", true),
            ("-2.5e-7", true),
            ("9007199254740991", true),
            ("9007199254740993", false),
            ("1e300", false),
            (r#""""#, true),
            (r#""abc""#, true),
            (r#""\u0000a\u0000\u0001é""#, true),
            (&long, true),
            (&longer, false),
            ("[1]", false),
            ("{}", false),
        ] {
            let value = value(text);
            let mut key = term(7, path, &value);
            let length = key.len();
            let expected = if is_known { RunValue::Exactly(value) } else { RunValue::Unknown };
            assert_eq!(run_value(&key), expected, "{text}");
            key.extend_from_slice(b"\x11\x22\0\0id");
            assert_eq!(run_length(&key), length, "{text}");
        }
        assert_eq!(run_value(&undefined_term(7, path)), RunValue::Undefined);
        assert_eq!(run_value(b"short"), RunValue::Unknown);
        assert_eq!(run_length(b"short"), 5);
    }

    fn path(names: &[&str]) -> IndexPath {
        IndexPath(names.iter().map(|name| IndexStep::Property((*name).into())).collect())
    }

    fn value(text: &str) -> Value {
        orrery_model::value::parse(text.as_bytes()).unwrap()
    }

    fn encoded(text: &str) -> Key {
        term(1, PathHash::of(&path(&["a"])), &value(text))
    }

    fn entry(mut term: Key, effective: &EffectiveKey, id: &str) -> Key {
        keys::push_place(&mut term, effective, id);
        term
    }

    #[test]
    fn entries_sort_like_the_language() {
        let ordered = [
            "null",
            "false",
            "true",
            "-1e300",
            "-2.5",
            "-1",
            "0",
            "1e-300",
            "1",
            "1.5",
            "2",
            "1e300",
            "\"\"",
            "\"\\u0000\"",
            "\"A\"",
            "\"a\"",
            "\"a\\u0000\"",
            "\"aa\"",
            "\"b\"",
            "\"é\"",
            "[1]",
            "{}",
        ];
        for (lower, upper) in ordered.iter().zip(&ordered[1..]) {
            assert!(encoded(lower) < encoded(upper), "{lower} {upper}");
        }
        assert_eq!(encoded("-0.0"), encoded("0"));
    }

    #[test]
    fn ranges_hold_what_the_test_says() {
        let effective = EffectiveKey::parse("05C1").unwrap();
        let holds = |test: &Test, text: &str| {
            let key = entry(encoded(text), &effective, "id");
            ranges(1, &path(&["a"]), test)
                .unwrap()
                .iter()
                .any(|range| key >= range.start && Some(&key) < range.end.as_ref())
        };
        let bound = |text: &str, inclusive| Some(Bound { value: value(text), inclusive });
        let above = Test::Range { low: bound("5", false), high: None };
        assert!(
            !holds(&above, "5") && holds(&above, "5.1") && !holds(&above, "\"x\"") && !holds(&above, "true")
        );
        let between = Test::Range { low: bound("\"b\"", true), high: bound("\"d\"", false) };
        assert!(holds(&between, "\"b\"") && holds(&between, "\"cz\"") && !holds(&between, "\"d\""));
        assert!(holds(&Test::Prefix("ab".into()), "\"abc\"") && !holds(&Test::Prefix("ab".into()), "\"b\""));
        let not = Test::NotEqual(value("1"));
        assert!(holds(&not, "2") && holds(&not, "\"1\"") && holds(&not, "{}") && !holds(&not, "1"));
        assert!(holds(&Test::Type(TypeTest::Defined), "null"));
        // Two integers that are the same double.
        let (rounded, other) = ("9007199254740992", "9007199254740993");
        assert!(holds(&Test::NotEqual(value(rounded)), other));
        assert!(holds(&Test::Range { low: bound(rounded, false), high: None }, other));
        assert!(holds(&Test::Range { low: None, high: bound(other, false) }, rounded));
        let long = format!("\"{}\"", "x".repeat(200));
        assert!(holds(&Test::Equal(value(&long)), &long));
        assert!(holds(
            &Test::Range { low: Some(Bound { value: value(&long), inclusive: false }), high: None },
            &format!("\"{}y\"", "x".repeat(200))
        ));
    }

    #[test]
    fn entries_lead_back_to_their_items() {
        let effective = EffectiveKey::parse("0500FF").unwrap();
        for text in ["null", "1.5", "\"a\\u0000b\"", "[1,2]"] {
            let key = entry(encoded(text), &effective, "the id");
            let (_, item) = parse_entry(&key).unwrap();
            assert_eq!(item, keys::item(&effective, "the id"), "{text}");
        }
        let (one, text) = (value("1"), value("\"x\""));
        let term = composite_term(1, 0, [(Some(&one), true), (Some(&text), false), (None, true)].into_iter());
        let key = entry(term, &effective, "id");
        assert_eq!(
            parse_composite_entry(&key, &[true, false, true]).unwrap().1,
            keys::item(&effective, "id")
        );
    }

    /// Decoding arbitrary bytes must not panic, and the entry of any value leads to its item.
    #[test]
    fn fuzz_index_keys() {
        let item = keys::item(&EffectiveKey::parse("0A0B").unwrap(), "id");
        let path = PathHash::of(&path(&["a"]));
        let texts = ["null", "true", "-0.5e300", "9007199254740993", "\"text\\u0000\"", "[1]", "{\"a\":1}"];
        let mut seeds: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        for text in texts {
            let mut entry = term(3, path, &value(text));
            entry.extend_from_slice(&item[1..]);
            seeds.push(entry);
            let values = [(Some(&value(text)), true), (None, false)];
            let mut entry = composite_term(3, 7, values.into_iter());
            entry.extend_from_slice(&item[1..]);
            seeds.push(entry);
        }
        orrery_testing::fuzz::fuzz("index keys", &seeds, |input| {
            // Nothing is known of these; they must not panic.
            drop(item_of_index_key(input, |_, _| Some(vec![true, false])));
            let _read = (generation_of(input), charged_terms(input, 3), is_distinct(input));
            let Ok(value) = orrery_model::value::parse(input) else { return };
            let mut entry = term(3, path, &value);
            entry.extend_from_slice(&item[1..]);
            assert_eq!(parse_entry(&entry).map(|(_, item)| item).as_ref(), Some(&item), "{value:?}");
            for descending in [false, true] {
                let values = [(Some(&value), descending), (None, !descending)];
                let mut entry = composite_term(3, 7, values.into_iter());
                entry.extend_from_slice(&item[1..]);
                let parsed = parse_composite_entry(&entry, &[descending, !descending]);
                assert_eq!(parsed.map(|(_, item)| item).as_ref(), Some(&item), "{value:?}");
            }
        });
    }
}
