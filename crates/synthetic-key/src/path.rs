//! Property paths as partition keys write them: `/date`, `/vehicle/vin`, `/"a/b"/c`. A name in
//! double quotes may hold a slash; names of array elements have no meaning here.

use std::fmt;

/// A path to a property of an item: one name or more.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(Vec<String>);

impl Path {
    /// Reads a path. A text without a leading slash is one name at the top.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a path is wanted, such as /date".to_owned());
        }
        let Some(mut rest) = text.strip_prefix('/') else {
            return if text.contains('/') {
                Err(format!("the path {text} must begin with a slash"))
            } else {
                Ok(Self(vec![text.to_owned()]))
            };
        };
        let mut names = Vec::new();
        loop {
            let (name, after) = if let Some(quoted) = rest.strip_prefix('"') {
                quoted.split_once('"').ok_or_else(|| format!("the path {text} has a quote without an end"))?
            } else {
                rest.split_at(rest.find('/').unwrap_or(rest.len()))
            };
            if name.is_empty() {
                return Err(format!("the path {text} has an empty name"));
            }
            names.push(name.to_owned());
            match after.strip_prefix('/') {
                Some(more) => rest = more,
                None if after.is_empty() => return Ok(Self(names)),
                None => return Err(format!("the path {text} has text after a quoted name")),
            }
        }
    }

    /// The names from the top of the item down.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.0 {
            if name.contains('/') {
                write!(f, "/\"{name}\"")?;
            } else {
                write!(f, "/{name}")?;
            }
        }
        Ok(())
    }
}
