//! Paths of an indexing policy: `/a/b/?`, `/a/*`, `/a/[]/b/?`, `/a/[]/{x, y/z}/?`.

use std::fmt;

use crate::error::{Error, Result};
use crate::path::{self, InvalidPath, Segment};

/// One step down an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IndexStep {
    Property(Box<str>),
    /// Any element of an array: `[]`.
    Element,
}

/// The path of a property inside items; array elements count individually.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexPath(pub Vec<IndexStep>);

impl fmt::Display for IndexPath {
    /// In the format of indexing policies: `/a/[]/b`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for step in &self.0 {
            text.push('/');
            match step {
                IndexStep::Property(name) => path::push_segment(name, &mut text),
                IndexStep::Element => text.push_str("[]"),
            }
        }
        formatter.write_str(&text)
    }
}

/// Which values below its steps a path covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathEnd {
    /// Everything at and below: `/*`.
    Subtree,
    /// The scalar at this position: `/?`.
    Scalar,
}

/// A path of the included or excluded list: which entries of an [`IndexPath`] it turns on or off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyPath {
    text: Box<str>,
    pub steps: Vec<IndexStep>,
    pub end: PathEnd,
    /// The members of a tuple path, relative to `steps`; empty for ordinary paths.
    pub tuple: Vec<Vec<TupleStep>>,
}

/// One step of a tuple member: a property, or an element at a fixed place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TupleStep {
    Property(Box<str>),
    Index(u32),
}

impl PolicyPath {
    /// Parses a path of the included or excluded list.
    pub fn parse(text: &str) -> Result<Self> {
        Self::read(text).map_err(|error| refused(text, error))
    }

    /// The path of everything.
    pub fn root() -> Self {
        Self { text: "/*".into(), steps: Vec::new(), end: PathEnd::Subtree, tuple: Vec::new() }
    }

    pub fn is_root(&self) -> bool {
        self.steps.is_empty() && self.end == PathEnd::Subtree
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn read(text: &str) -> Result<Self, InvalidPath> {
        // Early policies wrote the root as "/", and some clients still do.
        if text == "/" {
            return Ok(Self { text: text.into(), ..Self::root() });
        }
        // `/a/[]/{x, y}/?`: several properties of the same element, indexed together.
        if let Some(tuple) = text.strip_suffix("}/?")
            && let Some((prefix, members)) = tuple.rsplit_once("/[]/{")
        {
            let mut steps = if prefix.is_empty() { Vec::new() } else { read_steps(prefix)? };
            // There can be only one array: the members are properties of its elements.
            if steps.contains(&IndexStep::Element) {
                return Err(InvalidPath { position: prefix.len() });
            }
            steps.push(IndexStep::Element);
            let members = members.split(',').map(|member| tuple_member(member.trim()));
            let tuple = members.collect::<Option<Vec<_>>>();
            let tuple = tuple.ok_or(InvalidPath { position: prefix.len() + 5 })?;
            return Ok(Self { text: text.into(), steps, end: PathEnd::Scalar, tuple });
        }
        let (prefix, end) = match (text.strip_suffix("/?"), text.strip_suffix("/*")) {
            (Some(prefix), _) => (prefix, PathEnd::Scalar),
            (None, Some(prefix)) => (prefix, PathEnd::Subtree),
            // Every path of these lists says whether it means a value or all below it.
            (None, None) => return Err(InvalidPath { position: text.len() }),
        };
        let steps = match (prefix, end) {
            // `/*`, the root.
            ("", PathEnd::Subtree) => Vec::new(),
            _ => read_steps(prefix)?,
        };
        Ok(Self { text: text.into(), steps, end, tuple: Vec::new() })
    }

    /// The precision with which this path matches the value at `steps`, if it does: by depth, then scalar paths before
    /// subtrees. More precise paths win.
    pub fn precision(&self, steps: &[IndexStep]) -> Option<(usize, PathEnd)> {
        let applies = match self.end {
            PathEnd::Subtree => steps.starts_with(&self.steps),
            PathEnd::Scalar => self.tuple.is_empty() && steps == self.steps,
        };
        // A tuple compares by depth first; of its second halves, a subtree is the lesser (`PathEnd`).
        applies.then_some((self.steps.len(), self.end))
    }
}

impl fmt::Display for PolicyPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Parses a path of a composite index: properties, at most one `[]`, the end `/?` implied.
pub(super) fn parse_composite(text: &str) -> Result<Vec<IndexStep>> {
    let steps = read_steps(text.strip_suffix("/?").unwrap_or(text)).map_err(|error| refused(text, error))?;
    if steps.iter().filter(|step| **step == IndexStep::Element).count() > 1 {
        return Err(refused(text, InvalidPath { position: text.rfind("[]").unwrap_or(0) }));
    }
    Ok(steps)
}

fn refused(text: &str, error: InvalidPath) -> Error {
    Error::bad_request(format!(
        "The indexing path '{text}' could not be accepted, failed near position '{}'. Please ensure that the path is a valid path. Common errors include invalid characters or absence of quotes around labels.",
        error.position
    ))
}

fn read_steps(text: &str) -> Result<Vec<IndexStep>, InvalidPath> {
    if text.ends_with('/') {
        return Err(InvalidPath { position: text.len() });
    }
    let steps = path::split(text)?.into_iter().map(|segment| match segment {
        Segment { text, quoted: true } => Ok(IndexStep::Property(text)),
        Segment { text, .. } if text.as_ref() == "[]" => Ok(IndexStep::Element),
        // Unquoted, these have a meaning of their own, and it does not fit here.
        Segment { text: label, .. } if label.contains(['*', '?', '[', ']', '{', '}', '"', '\'', '\\']) => {
            Err(InvalidPath { position: text.find(label.as_ref()).unwrap_or(0) })
        }
        Segment { text, .. } => Ok(IndexStep::Property(text)),
    });
    steps.collect()
}

/// `x`, `y/z`, `name/[1]/first`: no leading slash, no `[]`.
fn tuple_member(text: &str) -> Option<Vec<TupleStep>> {
    // Members are written without the leading slash.
    let segments = path::split(&format!("/{text}")).ok()?;
    if text.ends_with('/') {
        return None;
    }
    let steps = segments.into_iter().map(|segment| {
        if segment.quoted {
            return Some(TupleStep::Property(segment.text));
        }
        if let Some(index) = segment.text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return index.parse().ok().map(TupleStep::Index);
        }
        let plain = !segment.text.contains(['*', '?', '[', ']', '{', '}', '"', '\'', '\\']);
        plain.then_some(TupleStep::Property(segment.text))
    });
    steps.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(names: &[&str]) -> Vec<IndexStep> {
        let step = |name: &&str| {
            if *name == "[]" { IndexStep::Element } else { IndexStep::Property((*name).into()) }
        };
        names.iter().map(step).collect()
    }

    #[test]
    fn every_form_is_read() {
        for (text, names, end) in [
            ("/*", &[][..], PathEnd::Subtree),
            ("/", &[], PathEnd::Subtree),
            ("/a/?", &["a"], PathEnd::Scalar),
            ("/a/b/*", &["a", "b"], PathEnd::Subtree),
            ("/\"_etag\"/?", &["_etag"], PathEnd::Scalar),
            ("/a/[]/b/?", &["a", "[]", "b"], PathEnd::Scalar),
        ] {
            let path = PolicyPath::parse(text).unwrap();
            assert_eq!((path.steps, path.end), (steps(names), end), "{text}");
        }
        let quoted = PolicyPath::parse("/\"a/b\"/'[]'/*").unwrap();
        assert_eq!(quoted.steps, ["a/b", "[]"].map(|name| IndexStep::Property(name.into())));
        let tuple = PolicyPath::parse("/a/[]/{x, y/z, name/[1]/first}/?").unwrap();
        assert_eq!(tuple.steps, steps(&["a", "[]"]));
        assert_eq!(tuple.tuple.len(), 3);
        assert_eq!(tuple.tuple[2][1], TupleStep::Index(1));
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "a/?",
            "/a",
            "/a/",
            "/a/b",
            "//?",
            "/?",
            "/a*/?",
            "/*/a/?",
            "/a/?/b/*",
            "/a/[1]/?",
            "/a/[]/b/[]/{x}/?",
            "/a/[]/{x/[]}/?",
            "/a/[]/{}/?",
        ] {
            let error = PolicyPath::parse(text).unwrap_err();
            assert!(error.message.contains("Please ensure that the path is a valid path"), "{text}");
        }
        let error = PolicyPath::parse("/expiration").unwrap_err();
        assert!(error.message.starts_with(
            "The indexing path '/expiration' could not be accepted, failed near position '11'."
        ));
    }

    #[test]
    fn composite_paths_end_implicitly() {
        assert_eq!(parse_composite("/a/\"b c\"").unwrap(), steps(&["a", "b c"]));
        assert_eq!(parse_composite("/a/[]/b/?").unwrap(), steps(&["a", "[]", "b"]));
        for text in ["/*", "/a/*", "a", "/a/[]/b/[]/c", ""] {
            assert!(parse_composite(text).is_err(), "{text}");
        }
    }

    #[test]
    fn deeper_and_scalar_paths_are_more_precise() {
        let path = |text: &str| PolicyPath::parse(text).unwrap();
        let at = steps(&["a", "b"]);
        let precision = |text: &str| path(text).precision(&at);
        assert!(precision("/*") < precision("/a/*"));
        assert!(precision("/a/b/*") < precision("/a/b/?"));
        assert_eq!(precision("/a/?"), None);
        assert_eq!(precision("/c/*"), None);
    }
}
