//! Property paths in the syntax of partition keys: `/date`, `/vehicle/vin`, `/"a/b"/c`. A name in
//! double quotes may contain a slash. Array elements cannot be addressed.

use std::fmt;

/// A path to a property of an item: one name or more.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(Vec<String>);

impl Path {
    /// Parses a path. A text without a leading slash is a top-level name.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("expected a path such as /date".to_owned());
        }
        let Some(mut rest) = text.strip_prefix('/') else {
            return if text.contains('/') {
                Err(format!("the path {text} must start with a slash"))
            } else {
                Ok(Self(vec![text.to_owned()]))
            };
        };
        let mut names = Vec::new();
        loop {
            let (name, after) = if let Some(quoted) = rest.strip_prefix('"') {
                // A name ends with the next quote: there are no escapes.
                quoted.split_once('"').ok_or_else(|| format!("the path {text} has an unterminated quote"))?
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

    /// The names, outermost first.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.0 {
            // Quoted only where it would otherwise be read as two names.
            if name.contains('/') {
                write!(f, "/\"{name}\"")?;
            } else {
                write!(f, "/{name}")?;
            }
        }
        Ok(())
    }
}
