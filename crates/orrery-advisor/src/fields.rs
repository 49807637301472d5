//! Extracts what the advisor needs from an item (scalars at some paths, size, index terms) from its JSON text in one pass,
//! without building a tree.

use std::borrow::Cow;
use std::fmt;

use orrery_metering::cost;
use orrery_model::KeyPart;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// System properties, which are neither stored with the item nor charged.
const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

/// A scalar, or its absence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'a> {
    /// Missing, or an array or object, which no key value can have.
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    Text(&'a str),
}

impl Part<'_> {
    /// Copies the scalar into a component of a partition key.
    pub fn to_key_part(self) -> KeyPart {
        match self {
            Self::Undefined => KeyPart::Undefined,
            Self::Null => KeyPart::Null,
            Self::Bool(flag) => KeyPart::Bool(flag),
            Self::Number(number) => KeyPart::Number(number),
            Self::Text(text) => KeyPart::String(text.into()),
        }
    }

    /// Borrows a component of a partition key.
    pub fn of(part: &KeyPart) -> Part<'_> {
        match part {
            KeyPart::Undefined => Part::Undefined,
            KeyPart::Null => Part::Null,
            KeyPart::Bool(flag) => Part::Bool(*flag),
            KeyPart::Number(number) => Part::Number(*number),
            KeyPart::String(text) => Part::Text(text),
        }
    }
}

/// Provides a scalar for each slot.
pub trait Values {
    fn part(&self, slot: usize) -> Part<'_>;
}

impl Values for [KeyPart] {
    fn part(&self, slot: usize) -> Part<'_> {
        self.get(slot).map_or(Part::Undefined, Part::of)
    }
}

/// The extracted paths, each with its slot.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    /// In text form: `/address/city`.
    names: Vec<String>,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    slot: Option<usize>,
    children: Vec<(Box<str>, usize)>,
}

impl Paths {
    /// Without any paths.
    pub fn new() -> Self {
        Self { names: Vec::new(), nodes: vec![Node::default()] }
    }

    /// The slot of a path, assigned on first use. A path is `/name`, `/name/inner` …
    pub fn slot(&mut self, path: &str) -> usize {
        if let Some(slot) = self.find(path) {
            return slot;
        }
        let mut at = 0;
        for segment in segments(path) {
            let found = self.nodes[at].children.iter().find(|(name, _)| **name == *segment);
            at = if let Some((_, child)) = found {
                *child
            } else {
                self.nodes.push(Node::default());
                let child = self.nodes.len() - 1;
                self.nodes[at].children.push((segment.into(), child));
                child
            };
        }
        let slot = self.names.len();
        self.names.push(path.to_owned());
        self.nodes[at].slot = Some(slot);
        slot
    }

    /// The slot of a path that is already known.
    pub fn find(&self, path: &str) -> Option<usize> {
        self.find_names(segments(path))
    }

    /// The slot of a path by its names.
    pub fn find_names<'n>(&self, names: impl Iterator<Item = &'n str>) -> Option<usize> {
        let mut at = 0;
        for segment in names {
            let found = self.nodes[at].children.iter().find(|(name, _)| **name == *segment);
            at = found?.1;
        }
        self.nodes[at].slot
    }

    /// The path of a slot.
    pub fn name(&self, slot: usize) -> &str {
        &self.names[slot]
    }

    /// Number of slots.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no path.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// The property names of a path, without quotes.
pub fn segments(path: &str) -> impl Iterator<Item = &str> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(|part| part.strip_prefix('"').and_then(|part| part.strip_suffix('"')).unwrap_or(part))
}

#[derive(Clone, Copy, Debug, Default)]
enum Found {
    #[default]
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    Text(usize, usize),
}

/// The fields of one item. Reused for every item.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    found: Vec<Found>,
    text: String,
    /// Stored size of the item.
    pub bytes: usize,
    /// Charged index terms under the default policy: all scalars except the id.
    pub terms: usize,
}

impl Values for Fields {
    fn part(&self, slot: usize) -> Part<'_> {
        match self.found.get(slot) {
            None | Some(Found::Undefined) => Part::Undefined,
            Some(Found::Null) => Part::Null,
            Some(Found::Bool(flag)) => Part::Bool(*flag),
            Some(Found::Number(number)) => Part::Number(*number),
            Some(Found::Text(start, end)) => Part::Text(&self.text[*start..*end]),
        }
    }
}

impl Fields {
    /// Reads one JSON object.
    pub fn read(&mut self, paths: &Paths, json: &[u8]) -> Result<(), serde_json::Error> {
        self.found.clear();
        self.found.resize(paths.len(), Found::Undefined);
        self.text.clear();
        self.terms = 0;
        // System properties are subtracted when they are found.
        self.bytes = json.len();
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        Root(Walk { paths, fields: self, node: Some(0), depth: 0 }).deserialize(&mut deserializer)?;
        deserializer.end()
    }

    /// All values, to keep.
    pub fn to_parts(&self) -> Box<[KeyPart]> {
        (0..self.found.len()).map(|slot| self.part(slot).to_key_part()).collect()
    }
}

struct Walk<'a> {
    paths: &'a Paths,
    fields: &'a mut Fields,
    /// The node in the tree of paths, if a path leads here.
    node: Option<usize>,
    depth: usize,
}

impl Walk<'_> {
    fn set(&mut self, found: Found) {
        self.set_with_terms(found, 1);
    }

    fn set_with_terms(&mut self, found: Found, terms: usize) {
        self.fields.terms += terms;
        if let Some(slot) = self.node.and_then(|node| self.paths.nodes[node].slot) {
            self.fields.found[slot] = found;
        }
    }

    fn members<'de, A: MapAccess<'de>>(self, mut access: A, is_root: bool) -> Result<(), A::Error> {
        let Self { paths, fields, node, depth } = self;
        if depth > orrery_model::value::NESTING_MAX {
            return Err(serde::de::Error::custom("the nesting is deeper than allowed"));
        }
        while let Some(name) = access.next_key_seed(Name)? {
            let child = node.and_then(|node| {
                let children = &paths.nodes[node].children;
                children.iter().find(|(known, _)| **known == *name).map(|(_, child)| *child)
            });
            if is_root && name.starts_with('_') && SYSTEM_PROPERTIES.contains(&&*name) {
                let raw: &RawValue = access.next_value()?;
                // Two quotes, a colon and a comma.
                let taken = name.len() + raw.get().len() + 4;
                fields.bytes = fields.bytes.saturating_sub(taken);
                // A key may be made of a system property, such as `_ts`.
                if child.is_some() {
                    let terms = fields.terms;
                    let walk = Walk { paths, fields: &mut *fields, node: child, depth: depth + 1 };
                    // Cannot fail: the same text has just been parsed.
                    walk.deserialize(&mut serde_json::Deserializer::from_str(raw.get())).ok();
                    fields.terms = terms;
                }
                continue;
            }
            let terms = fields.terms;
            access.next_value_seed(Walk { paths, fields: &mut *fields, node: child, depth: depth + 1 })?;
            // The index entry of the id is not charged.
            if is_root && name == "id" {
                fields.terms = terms;
            }
        }
        Ok(())
    }
}

/// A member's name, borrowed where it has no escapes.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

struct Root<'a>(Walk<'a>);

impl<'de> DeserializeSeed<'de> for Root<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Root<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an item, which is a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<(), A::Error> {
        self.0.members(access, true)
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(mut self) -> Result<(), E> {
        self.set(Found::Null);
        Ok(())
    }

    fn visit_bool<E>(mut self, flag: bool) -> Result<(), E> {
        self.set(Found::Bool(flag));
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "items hold doubles")]
    fn visit_i64<E>(mut self, number: i64) -> Result<(), E> {
        self.set(Found::Number(number as f64));
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "items hold doubles")]
    fn visit_u64<E>(mut self, number: u64) -> Result<(), E> {
        self.set(Found::Number(number as f64));
        Ok(())
    }

    fn visit_f64<E>(mut self, number: f64) -> Result<(), E> {
        self.set(Found::Number(number));
        Ok(())
    }

    fn visit_str<E>(mut self, text: &str) -> Result<(), E> {
        let wanted = self.node.is_some_and(|node| self.paths.nodes[node].slot.is_some());
        let start = self.fields.text.len();
        // Only texts that a path asks for are copied.
        if wanted {
            self.fields.text.push_str(text);
        }
        let end = self.fields.text.len();
        self.set_with_terms(Found::Text(start, end), cost::string_terms(text.len()));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Self { paths, fields, depth, .. } = self;
        if depth > orrery_model::value::NESTING_MAX {
            while access.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        while access
            .next_element_seed(Walk { paths, fields: &mut *fields, node: None, depth: depth + 1 })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<(), A::Error> {
        self.members(access, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_read_in_one_pass() {
        let mut paths = Paths::new();
        let slots = ["/id", "/a/b", "/n", "/missing", "/tags", "/_ts", "/a"].map(|path| paths.slot(path));
        assert_eq!(paths.slot("/a/b"), slots[1]);
        let mut fields = Fields::default();
        let json = br#"{"id":"x\n","a":{"b":true,"c":[1,2]},"n":1.5,"tags":["u"],"z":null}"#;
        fields.read(&paths, json).unwrap();
        let parts: Vec<Part<'_>> = slots.iter().map(|slot| fields.part(*slot)).collect();
        let undefined = Part::Undefined;
        assert_eq!(
            parts,
            [
                Part::Text("x\n"),
                Part::Bool(true),
                Part::Number(1.5),
                undefined,
                undefined,
                undefined,
                undefined
            ]
        );
        assert_eq!((fields.bytes, fields.terms), (json.len(), 6));
        // System properties are not stored with the item.
        let json =
            br#"{"id":"1","_rid":"abc","_self":"dbs/","_etag":"\"0\"","_attachments":"a/","_ts":1533776523}"#;
        fields.read(&paths, json).unwrap();
        assert_eq!(fields.part(slots[5]), Part::Number(1_533_776_523.0));
        assert_eq!((fields.bytes, fields.terms), (br#"{"id":"1"}"#.len(), 0));
        assert!(fields.read(&paths, b"[1]").is_err() && fields.read(&paths, b"{\"a\":}").is_err());
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(4000), "]".repeat(4000));
        assert!(
            fields.read(&paths, deep.as_bytes()).is_ok() || fields.read(&paths, deep.as_bytes()).is_err()
        );
    }
}
