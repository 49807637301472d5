//! The known properties of definitions. An unknown name would be stored without effect, so a typo like `defaultTTL`
//! would look like success: such names are rejected, with a suggestion.

use crate::edit_distance::edit_distance;
use crate::error::{Error, Result};
use crate::value::{Object, Value};

/// What is allowed at a position of a definition.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Validated elsewhere, or of any form.
    Any,
    /// An object with these members. Other types are rejected elsewhere.
    Members(&'static [(&'static str, Shape)]),
    /// An array of these.
    Each(&'static Shape),
    /// Known but unsupported: the error message.
    Undone(&'static str),
}

/// Rejects members that are not in the shape. Null is always accepted.
pub(crate) fn check(value: &Value, shape: Shape, owner: &str) -> Result<()> {
    match (shape, value) {
        (_, Value::Null) => Ok(()),
        (Shape::Undone(why), _) => Err(Error::not_implemented(why)),
        (Shape::Members(members), Value::Object(object)) => check_members(object, members, owner),
        (Shape::Each(shape), Value::Array(items)) => {
            items.iter().try_for_each(|item| check(item, *shape, owner))
        }
        (Shape::Any | Shape::Members(_) | Shape::Each(_), _) => Ok(()),
    }
}

fn check_members(object: &Object, members: &[(&str, Shape)], owner: &str) -> Result<()> {
    for (name, value) in object.iter() {
        let known = members.iter().find(|(known, _)| *known == name);
        match known {
            Some((_, shape)) => check(value, *shape, name)?,
            // Typed clients write properties that they do not use as null.
            None if matches!(value, Value::Null) => {}
            None => return Err(unknown(name, members, owner)),
        }
    }
    Ok(())
}

fn unknown(name: &str, members: &[(&str, Shape)], owner: &str) -> Error {
    let candidates = members.iter().map(|(known, _)| (distance(name, known), *known));
    // About a quarter of the letters may differ; beyond that it is another word, and a guess would mislead.
    let meant = candidates.min().filter(|(distance, known)| *distance <= 1 + known.len() / 4);
    // The name may be valid one level deeper.
    let below = members.iter().find(|(_, shape)| match shape {
        Shape::Members(inner) => inner.iter().any(|(known, _)| *known == name),
        Shape::Any | Shape::Each(_) | Shape::Undone(_) => false,
    });
    let meant =
        // An exact name in the wrong place says more than a similar name in the right one.
        below.map(|(known, _)| format!("{known}.{name}")).or(meant.map(|(_, known)| known.to_owned()));
    let hint = meant.map_or_else(String::new, |meant| format!(" Did you mean '{meant}'?"));
    Error::bad_request(format!(
        "The input content is invalid because {owner} has an unknown property '{name}'.{hint} A server that is started with --lenient ignores such properties."
    ))
}

/// The case-insensitive edit distance of two names.
fn distance(one: &str, other: &str) -> usize {
    let lower = |text: &str| text.chars().map(|letter| letter.to_ascii_lowercase()).collect::<Vec<_>>();
    edit_distance(&lower(one), &lower(other), usize::MAX).unwrap_or(usize::MAX)
}
