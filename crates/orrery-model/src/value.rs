//! JSON values, and the one place where JSON text is parsed.
//!
//! Property order is preserved because clients see it again. Numbers keep the difference between
//! a 64-bit integer and a double only for the functions that ask (`IS_INTEGER`, `INTADD`, …); they
//! compare and hash as doubles otherwise. `undefined` is not a JSON value and so is not one here:
//! the query evaluator represents it by absence.

mod breaks;
mod plain;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

pub use breaks::escape_breaks;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The maximum nesting depth of an item, as in the service.
pub const NESTING_MAX: usize = 128;

/// A JSON value.
#[derive(Clone, Debug, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(Box<str>),
    Array(Vec<Value>),
    Object(Object),
}

/// A JSON number: an integer that fits 64 bits, or a double.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Int(i64),
    Double(f64),
}

/// A JSON object: members in the order they were written, names unique.
#[derive(Clone, Debug, Default)]
pub struct Object(Vec<(Box<str>, Value)>);

/// Why a text is not a valid JSON value.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseError {
    #[error("{0}")]
    Syntax(String),
    #[error("the nesting is deeper than {NESTING_MAX} levels")]
    TooDeep,
}

/// Parses one JSON text. Duplicate names: the last one wins, in the place of the first.
pub fn parse(text: &[u8]) -> Result<Value, ParseError> {
    parse_by(text, ValueSeed { depth: 0 })
}

/// Parses a text that was an acceptable object when it was written, with only those of its members whose names are in
/// the list. The others are skipped, which takes a fraction of the time.
pub fn parse_members<S: AsRef<str>>(text: &[u8], names: &[S]) -> Result<Value, ParseError> {
    parse_by(text, MembersSeed { names })
}

/// The same for a text in the form of [`Value::to_json`], which is not read further than to the last of the names.
pub fn parse_plain_members<S: AsRef<str>>(text: &[u8], names: &[S]) -> Result<Value, ParseError> {
    match plain::members(text, names) {
        Some(members) => Ok(Value::Object(Object::from_members(members))),
        None => parse_members(text, names),
    }
}

fn parse_by<'de, S>(text: &'de [u8], seed: S) -> Result<Value, ParseError>
where
    S: DeserializeSeed<'de, Value = Value>,
{
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    // serde_json's own limit is one level short of the service's, so the depth is counted here.
    deserializer.disable_recursion_limit();
    let value = seed.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| {
        let text = error.to_string();
        // serde carries errors only as text, so ours is recognised by it.
        if text.contains(TOO_DEEP) { ParseError::TooDeep } else { ParseError::Syntax(text) }
    })
}

const TOO_DEEP: &str = "nesting deeper than allowed";

#[derive(Clone, Copy)]
struct ValueSeed {
    depth: usize,
}

impl ValueSeed {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        // Also what keeps this recursion, and those over the value later, off the end of the stack.
        if self.depth >= NESTING_MAX {
            return Err(E::custom(TOO_DEEP));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(Number::Int(value)))
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "integers beyond 63 bits are doubles, as the service holds them"
    )]
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        let number = i64::try_from(value).map_or(Number::Double(value as f64), Number::Int);
        Ok(Value::Number(number))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(Number::Double(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value.into_boxed_str()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let seed = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(seed)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let seed = self.deeper()?;
        let mut members: Vec<(Box<str>, Value)> = Vec::new();
        while let Some(name) = access.next_key::<Box<str>>()? {
            members.push((name, access.next_value_seed(seed)?));
        }
        Ok(Value::Object(Object::from_members(members)))
    }
}

/// Some members of an object.
struct MembersSeed<'n, S> {
    names: &'n [S],
}

impl<'de, S: AsRef<str>> DeserializeSeed<'de> for MembersSeed<'_, S> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: AsRef<str>> Visitor<'de> for MembersSeed<'_, S> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        // The object itself is the first level.
        let seed = ValueSeed { depth: 1 };
        let mut members: Vec<(Box<str>, Value)> = Vec::with_capacity(self.names.len());
        while let Some(name) = access.next_key_seed(NameSeed { names: self.names })? {
            match name {
                Some(name) => members.push((name.into(), access.next_value_seed(seed)?)),
                None => {
                    // Read past without building anything.
                    access.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(Object::from_members(members)))
    }
}

/// A member's name, if it is in the list.
struct NameSeed<'n, S> {
    names: &'n [S],
}

impl<'de, 'n, S: AsRef<str>> DeserializeSeed<'de> for NameSeed<'n, S> {
    type Value = Option<&'n str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'n, S: AsRef<str>> Visitor<'_> for NameSeed<'n, S> {
    type Value = Option<&'n str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        // Compared within the text: a name that is not wanted is never allocated.
        Ok(self.names.iter().map(AsRef::as_ref).find(|wanted| *wanted == name))
    }
}

impl Value {
    /// The member `name`, if this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Object(object) => object.get(name),
            _ => None,
        }
    }

    /// Walks property names through objects only, as partition and unique key paths do.
    pub fn at_path<S: AsRef<str>>(&self, path: &[S]) -> Option<&Value> {
        path.iter().try_fold(self, |value, name| value.get(name.as_ref()))
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<Number> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The number as an integer, if it is one.
    pub fn as_i64(&self) -> Option<i64> {
        self.as_number().and_then(Number::as_i64)
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Compact JSON text.
    pub fn to_json(&self) -> String {
        let mut text = String::with_capacity(128);
        self.write_json(&mut text);
        text
    }

    /// Compact JSON text that round-trips exactly: minus zero, which is a separate partition key, keeps its sign.
    pub fn to_exact_json(&self) -> String {
        let mut text = String::with_capacity(128);
        self.write(&mut text, Number::write_exact_json);
        text
    }

    /// Appends compact JSON text. Integral doubles print without a fraction, others in the
    /// shortest form that reads back the same, as the service prints query results.
    pub fn write_json(&self, out: &mut String) {
        self.write(out, Number::write_json);
    }

    fn write(&self, out: &mut String, write_number: fn(Number, &mut String)) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Number(number) => write_number(*number, out),
            Self::String(text) => write_json_string(text, out),
            Self::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out, write_number);
                }
                out.push(']');
            }
            Self::Object(object) => {
                out.push('{');
                for (index, (name, value)) in object.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_json_string(name, out);
                    out.push(':');
                    value.write(out, write_number);
                }
                out.push('}');
            }
        }
    }
}

/// Appends a JSON string literal.
pub fn write_json_string(text: &str, out: &mut String) {
    out.reserve(text.len() + 2);
    out.push('"');
    let mut start = 0;
    // Byte by byte: all that is escaped is ASCII, and most texts are long and have none of it.
    for (at, &byte) in text.as_bytes().iter().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[start..at]);
        start = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0C => out.push_str("\\f"),
            // The control characters without a short form.
            other => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.push_str("\\u00");
                out.push(char::from(HEX[usize::from(other >> 4)]));
                out.push(char::from(HEX[usize::from(other & 15)]));
            }
        }
    }
    out.push_str(&text[start..]);
    out.push('"');
}

/// Deep equality: numbers by value, arrays in order, objects by name whatever the order.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Number(a), Self::Number(b)) => a == b,
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Array(a), Self::Array(b)) => a == b,
            (Self::Object(a), Self::Object(b)) => a == b,
            _ => false,
        }
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        /// Fewer members than this are searched for one by one.
        const SEARCHED_MAX: usize = 16;
        if self.len() != other.len() {
            return false;
        }
        // Objects that are alike usually have the same order.
        if self.0.iter().zip(&other.0).all(|(one, two)| one.0 == two.0) {
            return self.0.iter().zip(&other.0).all(|(one, two)| one.1 == two.1);
        }
        if self.len() <= SEARCHED_MAX {
            return self.iter().all(|(name, value)| other.get(name) == Some(value));
        }
        // An item may have a hundred thousand members: comparing all pairs would take minutes.
        let members: HashMap<&str, &Value> = other.iter().collect();
        self.iter().all(|(name, value)| members.get(name).copied() == Some(value))
    }
}

impl Number {
    #[expect(
        clippy::cast_precision_loss,
        reason = "items hold doubles; beyond 2^53 precision is lost as documented"
    )]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Double(value) => value,
        }
    }

    /// The integer this number is exactly, if any.
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            // A little below 2^63, above which the cast would saturate.
            Self::Double(value) if value.fract() == 0.0 && value.abs() < 9.2e18 => Some(value as i64),
            Self::Double(_) => None,
        }
    }

    fn write_json(self, out: &mut String) {
        match self {
            Self::Int(value) => {
                use fmt::Write;
                write!(out, "{value}").expect("a String accepts every write");
            }
            // The shortest digits that read back the same, laid out as JavaScript does.
            Self::Double(value) => out.push_str(ryu_js::Buffer::new().format(value)),
        }
    }

    fn write_exact_json(self, out: &mut String) {
        match self {
            // The JavaScript form of -0 is 0.
            Self::Double(value) if value == 0.0 && value.is_sign_negative() => out.push_str("-0.0"),
            _ => self.write_json(out),
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            // Exactly: as doubles, neighbours beyond 2^53 would be equal.
            (Self::Int(a), Self::Int(b)) => a == b,
            _ => self.as_f64() == other.as_f64(),
        }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            _ => self.as_f64().partial_cmp(&other.as_f64()),
        }
    }
}

impl Object {
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds an object from members in order; of equal names the last value wins.
    pub fn from_members(members: Vec<(Box<str>, Value)>) -> Self {
        // Small objects, nearly all of them, are checked pairwise without allocating.
        let repeated = if members.len() <= 24 {
            members
                .iter()
                .enumerate()
                .any(|(at, (name, _))| members[..at].iter().any(|(earlier, _)| earlier == name))
        } else {
            let mut seen = std::collections::HashSet::with_capacity(members.len());
            members.iter().any(|(name, _)| !seen.insert(name.as_ref()))
        };
        if !repeated {
            return Self(members);
        }
        // Repeated names are rare, so only now is anything built to resolve them.
        let mut places: std::collections::HashMap<Box<str>, usize> = std::collections::HashMap::new();
        let mut unique: Vec<(Box<str>, Value)> = Vec::with_capacity(members.len());
        for (name, value) in members {
            if let Some(&place) = places.get(&name) {
                unique[place].1 = value;
            } else {
                places.insert(name.clone(), unique.len());
                unique.push((name, value));
            }
        }
        Self(unique)
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| key.as_ref() == name).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|(key, _)| key.as_ref() == name).map(|(_, value)| value)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets a member, in place if it exists, at the end if not.
    pub fn set(&mut self, name: impl Into<Box<str>>, value: Value) {
        let name = name.into();
        // An existing member keeps its place: clients see the order again.
        match self.get_mut(&name) {
            Some(existing) => *existing = value,
            None => self.0.push((name, value)),
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(key, _)| key.as_ref() == name)?;
        Some(self.0.remove(at).1)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    pub fn into_members(self) -> Vec<(Box<str>, Value)> {
        self.0
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text.into_boxed_str())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Number(Number::Int(value))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Number(Number::Double(value))
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::Array(items)
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Self::Object(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> String {
        parse(text.as_bytes()).unwrap().to_json()
    }

    #[test]
    fn values_keep_order_and_print_compactly() {
        assert_eq!(
            round_trip(r#" {"b": 1, "a": [true, null, "x\n"], "c": 1.50} "#),
            r#"{"b":1,"a":[true,null,"x\n"],"c":1.5}"#
        );
        assert_eq!(round_trip("1.0"), "1");
        assert_eq!(round_trip("1e300"), "1e+300");
        assert_eq!(round_trip("-0.0"), "0");
        assert_eq!(
            parse(br#"{"a":[-0.0,-0,0.0,1.50]}"#).unwrap().to_exact_json(),
            r#"{"a":[-0.0,-0.0,0,1.5]}"#
        );
        assert_eq!(round_trip(r#""\u0001é\u007f""#), "\"\\u0001é\u{7f}\"");
    }

    /// Skipping members gives the same result as parsing all of them.
    #[test]
    fn some_members_are_those_of_the_whole_object() {
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        let text = format!(
            r#" {{"a":1,"b":{{"a":[2,{{"c":"}}\\\""}}]}},"\u0063":"é","a":{{"x":-0.0}},"d":{deep},"e f":null}} "#
        );
        let whole = parse(text.as_bytes()).unwrap();
        let all = ["a", "b", "c", "d", "e f", "absent", "x"];
        for names in [&all[..], &["c"], &["a", "d"], &["absent"], &[]] {
            let some = parse_members(text.as_bytes(), names).unwrap();
            for name in names {
                assert_eq!(some.get(name), whole.get(name), "{name}");
            }
            let known = names.iter().filter(|name| whole.get(name).is_some()).count();
            assert_eq!(some.as_object().unwrap().len(), known);
        }
        assert!(parse_members(b"{\"a\":1", &["a"]).is_err());
        assert!(parse_members(b"[1]", &["a"]).is_err());
    }

    #[test]
    fn the_last_of_repeated_names_wins_in_the_first_place() {
        assert_eq!(round_trip(r#"{"a":1,"b":2,"a":3}"#), r#"{"a":3,"b":2}"#);
        let many: Vec<_> = (0..40).map(|n| format!("\"k{}\":{n}", n % 30)).collect();
        let value = parse(format!("{{{}}}", many.join(",")).as_bytes()).unwrap();
        assert_eq!(value.as_object().unwrap().len(), 30);
        assert_eq!(value.get("k3"), Some(&Value::from(33)));
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(nested(NESTING_MAX).as_bytes()).is_ok());
        assert_eq!(parse(nested(NESTING_MAX + 1).as_bytes()), Err(ParseError::TooDeep));
        assert_eq!(parse(nested(200_000).as_bytes()), Err(ParseError::TooDeep));
    }

    #[test]
    fn equality_is_deep_and_numeric() {
        assert_eq!(parse(br#"{"a":1,"b":[1.0]}"#).unwrap(), parse(br#"{"b":[1],"a":1e0}"#).unwrap());
        assert_ne!(parse(b"[1,2]").unwrap(), parse(b"[2,1]").unwrap());
    }

    #[test]
    fn bad_text_is_an_error() {
        for text in ["", "{", "{\"a\":}", "nul", "1 2", "\"\\ud800\"", "[1,]", "1e999", "\u{1}"] {
            assert!(matches!(parse(text.as_bytes()), Err(ParseError::Syntax(_))), "{text}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }
}
