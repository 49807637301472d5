//! Adds the synthetic key to items before they are written.

use bytes::Bytes;
use orrery_env::Env;
use orrery_model::partition_key::{KeyPart, PartitionKey};
use orrery_model::value::write_json_string;
use orrery_model::{Error, Object, Result, Value};
use synthetic_key::{Item, Path, Property};

use crate::catalog::{EnvRandom, Properties, SyntheticPolicy, parts, refused};

/// How to handle an item without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A new random key may be generated.
    Made,
    /// The item already exists: a new random key would not find it.
    Found,
}

impl SyntheticPolicy {
    /// Adds the missing parts of the key: to the parsed value and, at the end, to the text. The key in the request
    /// counts as the item's own. The result must follow from the item's properties.
    pub(crate) fn fill(
        &self,
        value: &mut Value,
        text: Bytes,
        named: Option<&PartitionKey>,
        missing: Missing,
        env: &dyn Env,
    ) -> Result<Bytes> {
        let paths = self.definition.key_paths();
        let given = named.map_or(&[][..], |key| key.parts());
        // The request's key fills in what the item lacks, so that both together determine the rest.
        let item = Given { item: Properties(value), paths: &paths, parts: given };
        let absent = |path: &&Path| item.property(path) == Property::Missing;
        if missing == Missing::Found && self.definition.is_random() && paths.iter().any(absent) {
            return Err(Error::bad_request(
                "The item has no partition key, and its container generates random keys: specify the key of the item to replace.",
            ));
        }
        let key = self.definition.key_of(&item, &mut EnvRandom(env)).map_err(|error| refused(&error))?;
        let mut added: Vec<(&Path, Value)> = Vec::new();
        // Only what is missing is added; what the item says is checked against the definition by `key_of`.
        for (path, part) in paths.iter().zip(parts(&key)) {
            if Properties(value).property(path) == Property::Missing {
                added.push((
                    path,
                    PartitionKey(vec![part]).to_value().as_array().expect("an array")[0].clone(),
                ));
            }
        }
        // The version tells readers which strategy built the key.
        if let Some(path) = self.definition.version_property()
            && Properties(value).property(path) == Property::Missing
        {
            added.push((path, Value::from(i64::from(key.version))));
        }
        let mut text = text;
        // The key is complete by now, so the item may change.
        for (path, part) in added {
            text = place(value, &text, path, part)?;
        }
        Ok(text)
    }
}

/// An item together with the key from the request.
struct Given<'a> {
    item: Properties<'a>,
    paths: &'a [&'a Path],
    parts: &'a [KeyPart],
}

impl Item for Given<'_> {
    fn property(&self, path: &Path) -> Property<'_> {
        let own = self.item.property(path);
        if own != Property::Missing {
            return own;
        }
        let place = self.paths.iter().position(|key| *key == path);
        match place.and_then(|place| self.parts.get(place)) {
            None | Some(KeyPart::Undefined) => Property::Missing,
            Some(KeyPart::Null) => Property::Null,
            Some(KeyPart::Bool(flag)) => Property::Bool(*flag),
            Some(KeyPart::Number(number)) => Property::Number(*number),
            Some(KeyPart::String(text)) => Property::Text(text),
        }
    }
}

/// Adds a property to an item. A new top-level property leaves the client's text unchanged.
fn place(item: &mut Value, text: &[u8], path: &Path, value: Value) -> Result<Bytes> {
    let refused = || {
        Error::bad_request(format!(
            "The key cannot be added to the item at {path}: its parent is not an object."
        ))
    };
    let (first, rest) = path.names().split_first().expect("a path has a name");
    let top = item.as_object_mut().ok_or_else(refused)?;
    // The new property lies inside an existing object, so the text is printed anew.
    if top.contains(first) {
        let (last, above) = path.names().split_last().expect("a path has a name");
        let mut object = top;
        for name in above {
            if !object.contains(name) {
                object.set(name.as_str(), Value::Object(Object::new()));
            }
            object = object.get_mut(name).and_then(Value::as_object_mut).ok_or_else(refused)?;
        }
        object.set(last.as_str(), value);
        return Ok(Bytes::from(item.to_exact_json()));
    }
    let nested = rest.iter().rev().fold(value, |inner, name| {
        let mut object = Object::new();
        object.set(name.as_str(), inner);
        object.into()
    });
    // The client's text stays as it is, with one more member at its end.
    let mut out = String::with_capacity(text.len() + 64);
    let body = text.strip_suffix(b"}").and_then(|body| std::str::from_utf8(body).ok());
    out.push_str(body.ok_or_else(|| Error::internal("an item's text does not end as an object"))?);
    if !top.is_empty() {
        out.push(',');
    }
    write_json_string(first, &mut out);
    out.push(':');
    out.push_str(&nested.to_exact_json());
    out.push('}');
    top.set(first.as_str(), nested);
    Ok(out.into())
}
