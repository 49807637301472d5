//! Parses resource paths. Keywords are recognised by position, so that a database may be called `colls`.

use std::borrow::Cow;

use http::Uri;
use orrery_db::ScriptKind;
use percent_encoding::percent_decode_str;

/// A container, identified by two segments, each a name or a RID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPath {
    pub database: String,
    pub container: String,
}

impl ContainerPath {
    pub fn pair(&self) -> (&str, &str) {
        (&self.database, &self.container)
    }
}

/// A resource or a feed of resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    Account,
    Databases,
    Database(String),
    Containers(String),
    Container(ContainerPath),
    Items(ContainerPath),
    Item(ContainerPath, String),
    Ranges(ContainerPath),
    Scripts(ContainerPath, ScriptKind),
    Script(ContainerPath, ScriptKind, String),
    Conflicts(ContainerPath),
    Conflict(ContainerPath, String),
    PartitionKeyDelete(ContainerPath),
    /// Of an item: one, or all.
    Attachments(ContainerPath),
    Users(String),
    User(String, String),
    Permissions(String, String),
    Permission(String, String, String),
    EncryptionKeys(String),
    EncryptionKey(String, String),
    Offers,
    Offer(String),
    /// Where the partitions of a container, or of the account itself, are served in direct mode.
    Addresses(Option<ContainerPath>),
    /// Starts like a resource path but is invalid.
    Malformed,
    Unknown,
}

impl Path {
    /// Parses a URL. No client sends a query string with an item, but one does not encode a `?` in an item's id: the
    /// rest then belongs to the id.
    pub fn of(uri: &Uri) -> Self {
        match (Self::parse(uri.path()), uri.query()) {
            (Self::Item(at, id), Some(rest)) => match percent_decode_str(rest).decode_utf8() {
                Ok(rest) => Self::Item(at, format!("{id}?{rest}")),
                Err(_) => Self::Unknown,
            },
            // The container is in the query (`$resolveFor=dbs/…/colls/…/docs`), not in the path.
            (Self::Addresses(_), Some(query)) => {
                let resolved = query_value(query, "$resolveFor").map(|link| Self::parse(&link));
                Self::Addresses(resolved.and_then(|path| path.container().cloned()))
            }
            (path, _) => path,
        }
    }

    /// Parses a URL path. Empty segments are skipped; each segment is decoded once.
    pub fn parse(path: &str) -> Self {
        let mut segments: Vec<Cow<'_, str>> = Vec::with_capacity(6);
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            match percent_decode_str(segment).decode_utf8() {
                Ok(text) => segments.push(text),
                Err(_) => return Self::Unknown,
            }
        }
        // Names are at the odd positions, keywords at the even ones: only the latter are compared.
        let keyword = |at: usize| {
            let known =
                |segment: &Cow<'_, str>| KEYWORDS.iter().find(|word| segment.eq_ignore_ascii_case(word));
            segments.get(at).and_then(known).copied().unwrap_or_default()
        };
        let text =
            |at: usize| segments.get(at).map(|segment| segment.as_ref().to_owned()).unwrap_or_default();
        let (first, third, fifth) = (keyword(0), keyword(2), keyword(4));
        match (first, segments.len()) {
            ("", 0) => Self::Account,
            ("addresses", 1) => Self::Addresses(None),
            ("offers", 1) => Self::Offers,
            ("offers", 2) => Self::Offer(text(1)),
            // The service answers 400 here, and 404 for other paths that it does not know.
            ("offers", _) => Self::Malformed,
            ("dbs", 1) => Self::Databases,
            ("dbs", 2) => Self::Database(text(1)),
            ("dbs", count) => match (third, count) {
                ("colls", 3) => Self::Containers(text(1)),
                // Four segments or more: the rest is parsed below the container.
                ("colls", _) => {
                    let at = ContainerPath { database: text(1), container: text(3) };
                    below_container(at, fifth, &segments)
                }
                ("users", 3) => Self::Users(text(1)),
                ("users", 4) => Self::User(text(1), text(3)),
                ("users", 5) if fifth == "permissions" => Self::Permissions(text(1), text(3)),
                ("users", 6) if fifth == "permissions" => Self::Permission(text(1), text(3), text(5)),
                ("clientencryptionkeys", 3) => Self::EncryptionKeys(text(1)),
                ("clientencryptionkeys", 4) => Self::EncryptionKey(text(1), text(3)),
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }

    /// The container in the path, if any.
    pub fn container(&self) -> Option<&ContainerPath> {
        match self {
            Self::Container(at)
            | Self::Items(at)
            | Self::Item(at, _)
            | Self::Ranges(at)
            | Self::Scripts(at, _)
            | Self::Script(at, ..)
            | Self::Conflicts(at)
            | Self::Conflict(at, _)
            | Self::PartitionKeyDelete(at)
            | Self::Attachments(at)
            | Self::Addresses(Some(at)) => Some(at),
            _ => None,
        }
    }

    /// The database segment of the path, if any.
    pub fn database(&self) -> Option<&str> {
        match self {
            Self::Database(database)
            | Self::Containers(database)
            | Self::Users(database)
            | Self::User(database, _)
            | Self::Permissions(database, _)
            | Self::Permission(database, ..)
            | Self::EncryptionKeys(database)
            | Self::EncryptionKey(database, _) => Some(database),
            path => path.container().map(|at| at.database.as_str()),
        }
    }

    /// A feed takes POST to create and GET to list; a resource takes the other verbs.
    pub fn is_feed(&self) -> bool {
        matches!(
            self,
            Self::Databases
                | Self::Containers(_)
                | Self::Items(_)
                | Self::Ranges(_)
                | Self::Scripts(..)
                | Self::Conflicts(_)
                | Self::Users(_)
                | Self::Permissions(..)
                | Self::EncryptionKeys(_)
                | Self::Offers
                | Self::Addresses(_)
        )
    }

    /// Whether this is a metadata request, charged to the account's budget.
    pub fn is_metadata(&self) -> bool {
        // The service serves these from its metadata partition, with a rate limit per account that no throughput
        // raises.
        matches!(
            self,
            Self::Databases
                | Self::Database(_)
                | Self::Containers(_)
                | Self::Container(_)
                | Self::Ranges(_)
                | Self::Users(_)
                | Self::User(..)
                | Self::Permissions(..)
                | Self::Permission(..)
                | Self::Offers
                | Self::Offer(_)
        )
    }

    /// The kind of resource, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Databases | Self::Database(_) => "database",
            Self::Containers(_) | Self::Container(_) => "container",
            Self::Items(_) | Self::Item(..) => "item",
            Self::Ranges(_) => "range",
            Self::Scripts(..) | Self::Script(..) => "script",
            Self::Conflicts(_) | Self::Conflict(..) => "conflict",
            Self::PartitionKeyDelete(_) => "partition_key",
            Self::Attachments(_) => "attachment",
            Self::Users(_) | Self::User(..) => "user",
            Self::Permissions(..) | Self::Permission(..) => "permission",
            Self::EncryptionKeys(_) | Self::EncryptionKey(..) => "encryption_key",
            Self::Offers | Self::Offer(_) => "offer",
            Self::Addresses(_) => "address",
            Self::Malformed | Self::Unknown => "unknown",
        }
    }
}

/// The value of a name in the query of a URL. A `+` belongs to a RID.
pub(crate) fn query_value<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    query.split('&').find_map(|pair| {
        // Not form encoding, in which a `+` would be a space.
        let (found, value) = pair.split_once('=')?;
        let found = percent_decode_str(found).decode_utf8().ok()?;
        found.eq_ignore_ascii_case(name).then(|| percent_decode_str(value).decode_utf8().ok())?
    })
}

/// All path keywords, most frequent first.
const KEYWORDS: [&str; 14] = [
    "dbs",
    "colls",
    "docs",
    "pkranges",
    "sprocs",
    "triggers",
    "udfs",
    "conflicts",
    "operations",
    "users",
    "permissions",
    "clientencryptionkeys",
    "offers",
    "addresses",
];

fn below_container(at: ContainerPath, keyword: &str, segments: &[Cow<'_, str>]) -> Path {
    let script = match keyword {
        "sprocs" => Some(ScriptKind::StoredProcedure),
        "triggers" => Some(ScriptKind::Trigger),
        "udfs" => Some(ScriptKind::Function),
        _ => None,
    };
    // Only called where the count of segments has been matched.
    let id = || segments[5].as_ref().to_owned();
    match (keyword, script, segments.len()) {
        (_, _, 4) => Path::Container(at),
        ("docs", _, 5) => Path::Items(at),
        ("docs", _, 6) => Path::Item(at, id()),
        ("docs", _, 7 | 8) if segments[6].eq_ignore_ascii_case("attachments") => Path::Attachments(at),
        ("pkranges", _, 5) => Path::Ranges(at),
        (_, Some(kind), 5) => Path::Scripts(at, kind),
        (_, Some(kind), 6) => Path::Script(at, kind, id()),
        ("conflicts", _, 5) => Path::Conflicts(at),
        ("conflicts", _, 6) => Path::Conflict(at, id()),
        ("operations", _, 6) if segments[5].eq_ignore_ascii_case("partitionkeydelete") => {
            Path::PartitionKeyDelete(at)
        }
        _ => Path::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(database: &str, container: &str) -> ContainerPath {
        ContainerPath { database: database.to_owned(), container: container.to_owned() }
    }

    #[test]
    fn paths_are_read_by_position() {
        let check = |path: &str, expected: Path| assert_eq!(Path::parse(path), expected, "{path}");
        check("/", Path::Account);
        check("", Path::Account);
        check("/dbs", Path::Databases);
        check("/dbs/colls/", Path::Database("colls".into()));
        check("/dbs/colls/colls/dbs", Path::Container(at("colls", "dbs")));
        check("/dbs/d/colls/c/docs/", Path::Items(at("d", "c")));
        check("/DBS/d/Colls/c/Docs/a%2Fb%20c", Path::Item(at("d", "c"), "a/b c".into()));
        check("/dbs/d/colls/c/pkranges", Path::Ranges(at("d", "c")));
        check("/dbs/d/colls/c/sprocs/s", Path::Script(at("d", "c"), ScriptKind::StoredProcedure, "s".into()));
        check("/dbs/d/colls/c/operations/partitionkeydelete", Path::PartitionKeyDelete(at("d", "c")));
        check("/dbs/d/users/u/permissions/p", Path::Permission("d".into(), "u".into(), "p".into()));
        check("//addresses/", Path::Addresses(None));
        check("/offers/Ab0d", Path::Offer("Ab0d".into()));
        check("/dbs/d/colls/c/docs/1/attachments/a", Path::Attachments(at("d", "c")));
        check("/dbs/d/colls/c/nothing", Path::Unknown);
        check("/dbs/%FF", Path::Unknown);
        check("/else", Path::Unknown);
    }
}
