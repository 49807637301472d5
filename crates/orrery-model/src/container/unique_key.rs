//! Unique keys: tuples of paths whose values may occur once in a logical partition.

use super::fields;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::value::{Object, Value};

const KEYS_MAX: usize = 10;
const PATHS_MAX: usize = 16;

/// The paths of one unique key.
pub type UniqueKey = Vec<KeyPath>;

/// The keys, or `None` if the container has no policy at all.
pub(super) fn parse(container: &Object) -> Result<Option<Vec<UniqueKey>>> {
    let Some(policy) = fields::optional_object(container, "uniqueKeyPolicy")? else { return Ok(None) };
    let listed = fields::array(policy, "uniqueKeys")?;
    if listed.len() > KEYS_MAX {
        return Err(Error::bad_request(format!(
            "The unique key policy has {} unique keys. A maximum of {KEYS_MAX} is allowed.",
            listed.len()
        )));
    }
    // An empty list is not the same as none: it is returned as it was sent.
    listed.iter().map(parse_key).collect::<Result<_>>().map(Some)
}

fn parse_key(entry: &Value) -> Result<UniqueKey> {
    let listed = fields::array(fields::object(entry, "uniqueKeys")?, "paths")?;
    if !(1..=PATHS_MAX).contains(&listed.len()) {
        return Err(Error::bad_request(format!(
            "A unique key has {} paths. It must have between 1 and {PATHS_MAX}.",
            listed.len()
        )));
    }
    let mut paths: UniqueKey = Vec::with_capacity(listed.len());
    for path in listed {
        let text = path.as_str().ok_or_else(|| fields::wrong_type("paths", "an array of strings"))?;
        let path = KeyPath::parse(text).map_err(|error| {
            Error::bad_request(format!(
                "The unique key path '{text}' could not be accepted, failed near position '{}'. Please ensure that the path is a valid path. Common errors include invalid characters or absence of quotes around labels.",
                error.position
            ))
        })?;
        if paths.iter().any(|earlier| earlier.same_property(&path)) {
            return Err(Error::bad_request(format!("The path '{text}' is repeated in a unique key.")));
        }
        paths.push(path);
    }
    Ok(paths)
}

/// Whether two policies are equivalent, regardless of quoting and order.
pub(super) fn same(first: &[UniqueKey], second: &[UniqueKey]) -> bool {
    let canonical = |keys: &[UniqueKey]| {
        let mut keys: Vec<Vec<_>> =
            // Names without their quotes: `/"a"` and `/a` are one property.
            keys.iter().map(|key| key.iter().map(|path| path.segments().to_vec()).collect()).collect();
        for key in &mut keys {
            key.sort();
        }
        keys.sort();
        keys
    };
    canonical(first) == canonical(second)
}
