//! Paths as partition keys, unique keys and indexing policies write them: `/a/"b c"/[]/?`.
//!
//! Splitting follows the clients (`tests/data/path-parser.json`): unquoted segments are trimmed, quoted ones are taken
//! as they stand, and a quote after a backslash does not end its segment. The caller interprets the segments (`*`, `?`,
//! `[]` are special only without quotes).

use std::fmt;

use crate::value::Value;

/// Longest path text accepted anywhere.
pub const PATH_BYTES_MAX: usize = 4096;

/// The path of one property through objects, without wildcards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyPath {
    text: Box<str>,
    segments: Vec<Box<str>>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub text: Box<str>,
    /// Whether the segment was quoted, which takes the meaning from `*`, `?` and `[]`.
    pub quoted: bool,
}

/// The byte position at which parsing a path failed, for error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the path is malformed near position {position}")]
pub struct InvalidPath {
    pub position: usize,
}

/// Appends a name as policies write it: quoted unless it is letters, digits and underscores.
pub fn push_segment(name: &str, path: &mut String) {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain {
        path.push_str(name);
    } else {
        path.push('"');
        // Backslashes first, or those added for the quotes would be doubled.
        path.push_str(&name.replace('\\', "\\\\").replace('"', "\\\""));
        path.push('"');
    }
}

/// Splits a path into its segments. A single trailing slash is ignored.
pub fn split(path: &str) -> Result<Vec<Segment>, InvalidPath> {
    // Paths are kept in the catalog and compared with every item.
    if path.len() > PATH_BYTES_MAX {
        return Err(InvalidPath { position: PATH_BYTES_MAX });
    }
    let mut segments = Vec::new();
    let mut at = 0;
    while at < path.len() {
        if !path[at..].starts_with('/') {
            return Err(InvalidPath { position: at });
        }
        at += 1;
        // The single trailing slash.
        if at == path.len() {
            break;
        }
        let (segment, end) = next_segment(path, at)?;
        segments.push(segment);
        at = end;
    }
    if segments.is_empty() { Err(InvalidPath { position: path.len() }) } else { Ok(segments) }
}

fn next_segment(path: &str, start: usize) -> Result<(Segment, usize), InvalidPath> {
    let quote = path[start..].chars().next().filter(|first| matches!(first, '"' | '\''));
    if let Some(quote) = quote {
        let content = start + 1;
        let mut end = content;
        loop {
            let Some(found) = path[end..].find(quote) else {
                return Err(InvalidPath { position: path.len() });
            };
            end += found;
            // A quote after a backslash belongs to the name.
            if end == content || path.as_bytes()[end - 1] != b'\\' {
                break;
            }
            end += 1;
        }
        if end == content {
            return Err(InvalidPath { position: start });
        }
        return Ok((Segment { text: path[content..end].into(), quoted: true }, end + 1));
    }
    let end = path[start..].find('/').map_or(path.len(), |found| start + found);
    let text = path[start..end].trim();
    if text.is_empty() {
        return Err(InvalidPath { position: start });
    }
    Ok((Segment { text: text.into(), quoted: false }, end))
}

impl KeyPath {
    /// Parses a path without wildcards and without a trailing slash.
    pub fn parse(text: &str) -> Result<Self, InvalidPath> {
        let segments = split(text)?;
        if text.len() > 1 && text.ends_with('/') {
            return Err(InvalidPath { position: text.len() - 1 });
        }
        let wildcard = segments.iter().find(|segment| {
            // Within quotes all of these are ordinary characters.
            let invalid = |c: char| c.is_whitespace() || "*?[]{}\"'".contains(c);
            !segment.quoted && segment.text.contains(invalid)
        });
        if let Some(wildcard) = wildcard {
            let position = text.find(wildcard.text.as_ref()).unwrap_or(0);
            return Err(InvalidPath { position });
        }
        Ok(Self { text: text.into(), segments: segments.into_iter().map(|segment| segment.text).collect() })
    }

    /// A path of one property.
    pub fn property(name: &str) -> Self {
        Self { text: format!("/{name}").into(), segments: vec![name.into()] }
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The same property as [`push_segment`] writes it: `/"a"` becomes `/a`.
    pub fn canonical(&self) -> String {
        let mut text = String::new();
        for segment in &self.segments {
            text.push('/');
            push_segment(segment, &mut text);
        }
        text
    }

    pub fn segments(&self) -> &[Box<str>] {
        &self.segments
    }

    /// The value at this path in an item. Arrays are not entered.
    pub fn value_in<'a>(&self, item: &'a Value) -> Option<&'a Value> {
        item.at_path(&self.segments)
    }

    /// Whether both paths name the same property, however they are quoted.
    pub fn same_property(&self, other: &Self) -> bool {
        self.segments == other.segments
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_paths_refuse_wildcards_and_loose_ends() {
        for path in
            ["", "/", "a", "/a/", "/a/*", "/a/?", "/[]/b", "//a", "/a//b", "/\"a", "/\"a\"b", "/\"\"", "/ /"]
        {
            assert!(KeyPath::parse(path).is_err(), "{path}");
        }
        assert!(KeyPath::parse(&format!("/{}", "a".repeat(PATH_BYTES_MAX))).is_err());
    }

    #[test]
    fn quotes_do_not_change_the_property() {
        let plain = KeyPath::parse("/a/b").unwrap();
        assert!(plain.same_property(&KeyPath::parse("/\"a\"/'b'").unwrap()));
        assert_eq!(KeyPath::parse("/\"*\"").unwrap().segments(), [Box::from("*")]);
    }
}
