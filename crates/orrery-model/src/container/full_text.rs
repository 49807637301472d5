//! The full-text policy of a container: which paths hold text, in which language.

use super::fields;
use super::indexing::IndexingPolicy;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::value::{Object, Value};

/// Supported languages.
pub const LANGUAGES: [&str; 7] = ["en-US", "de-DE", "es-ES", "fr-FR", "it-IT", "pt-BR", "pt-PT"];
/// The same by their Windows codes, which some clients send.
const CODES: [(&str, &str); 7] = [
    ("1033", "en-US"),
    ("1031", "de-DE"),
    ("3082", "es-ES"),
    ("1036", "fr-FR"),
    ("1040", "it-IT"),
    ("1046", "pt-BR"),
    ("2070", "pt-PT"),
];
const PATHS_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullTextPolicy {
    pub default_language: Option<Box<str>>,
    pub paths: Vec<FullTextPath>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullTextPath {
    pub path: KeyPath,
    /// The path's own language, or the policy's.
    pub language: Box<str>,
}

pub(super) fn parse(container: &Object) -> Result<Option<FullTextPolicy>> {
    let Some(policy) = fields::optional_object(container, "fullTextPolicy")? else { return Ok(None) };
    let default_language = fields::optional_str(policy, "defaultLanguage")?.map(language).transpose()?;
    let listed = fields::array(policy, "fullTextPaths")?;
    if listed.len() > PATHS_MAX {
        return Err(Error::bad_request(format!("The Full Text Policy has more than {PATHS_MAX} paths.")));
    }
    let mut paths: Vec<FullTextPath> = Vec::with_capacity(listed.len());
    for entry in listed {
        let entry = fields::object(entry, "fullTextPaths")?;
        // The language is checked before the path, as in the service.
        let own = fields::optional_str(entry, "language")?.map(language).transpose()?;
        let text = fields::required_str(entry, "path")?;
        let path = KeyPath::parse(text).map_err(|_| {
            Error::bad_request(format!("The Full Text Policy contains an invalid Path: {text}"))
        })?;
        if paths.iter().any(|earlier| earlier.path.same_property(&path)) {
            return Err(Error::bad_request(format!("Duplicate Path :{text} found in Full Text Policy.")));
        }
        let language = own.or_else(|| default_language.clone()).ok_or_else(|| {
            Error::bad_request("Language needs to specified for the path in the Full text policy.")
        })?;
        paths.push(FullTextPath { path, language });
    }
    Ok(Some(FullTextPolicy { default_language, paths }))
}

/// Every full-text index needs its path in the policy.
pub(super) fn check_indexes(indexing: &IndexingPolicy, policy: Option<&FullTextPolicy>) -> Result<()> {
    let declared = |path: &KeyPath| {
        policy.is_some_and(|policy| policy.paths.iter().any(|own| own.path.same_property(path)))
    };
    match indexing.full_text.iter().find(|path| !declared(path)) {
        None => Ok(()),
        Some(path) => Err(Error::bad_request(format!(
            "The path of the Full Text Index {path} does not match the path specified in the Full Text Policy"
        ))),
    }
}

fn language(name: &str) -> Result<Box<str>> {
    if LANGUAGES.contains(&name) {
        return Ok(name.into());
    }
    // From here on each language has one name.
    if let Some((_, language)) = CODES.iter().find(|(code, _)| *code == name) {
        return Ok((*language).into());
    }
    let supported: Vec<_> = LANGUAGES.iter().map(|language| Value::from(*language).to_json()).collect();
    Err(Error::bad_request(format!(
        "The Full Text Policy contains an unsupported language {name}. Supported languages are: {}.",
        supported.join(", ")
    )))
}
