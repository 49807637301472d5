//! The resource type and resource link of a request path, as covered by signatures.
//!
//! An even number of segments is a resource, an odd number a feed of its owner. Names are signed decoded and with their
//! case; RIDs are signed alone and in lower case. Keywords are recognised by position, so a database called `colls`
//! works.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;

/// The second and third line of the signed text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceLink {
    /// In lower case.
    pub resource_type: String,
    pub link: String,
    /// Other links that a client may have signed for the same path: a database whose *name* looks like a
    /// RID is signed as a name by its client, and a keyword in upper case may be signed in lower case.
    pub alternatives: Vec<String>,
}

impl ResourceLink {
    /// `path` and `query` as received, still percent-encoded.
    pub fn of(path: &str, query: Option<&str>) -> Self {
        let mut segments = segments_of(path);
        // An id with a `?` in it that the client did not encode.
        if let ([_, _, _, _, keyword, id], Some(rest)) = (segments.as_mut_slice(), query)
            && keyword.eq_ignore_ascii_case("docs")
        {
            let id = id.to_mut();
            id.push('?');
            id.push_str(&percent_decode_str(rest).decode_utf8_lossy());
        }
        if segments.first().is_some_and(|first| first.eq_ignore_ascii_case("addresses")) {
            // Address resolution signs the link it resolves. A `+` in it belongs to a RID.
            let resolved = query.into_iter().flat_map(|query| query.split('&')).find_map(|pair| {
                let (name, value) = pair.split_once('=')?;
                let name = percent_decode_str(name).decode_utf8_lossy();
                name.eq_ignore_ascii_case("$resolveFor")
                    .then(|| percent_decode_str(value).decode_utf8_lossy())
            });
            if let Some(link) = resolved {
                return Self::of_segments(&segments_of(&link));
            }
        }
        Self::of_segments(&segments)
    }

    fn of_segments(segments: &[Cow<'_, str>]) -> Self {
        // `…/operations/partitionkeydelete` is signed with the link of its container.
        let segments = match segments {
            [rest @ .., keyword, _verb]
                if rest.len().is_multiple_of(2) && keyword.eq_ignore_ascii_case("operations") =>
            {
                rest
            }
            all => all,
        };
        // Keywords and names alternate: an even number ends with a name, an odd one with the keyword of a feed,
        // whose owner is signed.
        let names_resource = segments.len().is_multiple_of(2);
        let (resource_type, owner) = match segments {
            [] => return Self::default(),
            [.., keyword, _id] if names_resource => (keyword, segments),
            [owner @ .., keyword] => (keyword, owner),
        };
        let resource_type = resource_type.to_lowercase();
        let last_id = || owner.last().map(|id| id.to_lowercase()).unwrap_or_default();
        let joined = joined(owner);

        // Offers have no owner in their path; their RID alone is signed, in lower case.
        if segments[0].eq_ignore_ascii_case("offers") {
            return Self { resource_type, link: last_id(), alternatives: Vec::new() };
        }
        let mut alternatives = Vec::new();
        let keyword_places = || owner.iter().step_by(2);
        if keyword_places().any(|keyword| keyword.bytes().any(|byte| byte.is_ascii_uppercase())) {
            let lowered: Vec<String> = owner
                .iter()
                .enumerate()
                .map(|(at, text)| if at % 2 == 0 { text.to_lowercase() } else { text.clone().into_owned() })
                .collect();
            alternatives.push(lowered.join("/"));
        }
        let by_rid = segments[0].eq_ignore_ascii_case("dbs")
            && segments.get(1).is_some_and(|database| is_database_rid(database));
        // A path of RIDs is signed as the last RID alone, in lower case.
        let link = if by_rid {
            alternatives.push(joined);
            last_id()
        } else {
            joined
        };
        Self { resource_type, link, alternatives }
    }
}

/// Whether the text after `dbs/` is a RID: base64 of exactly four bytes, with `-` for `/`.
pub fn is_database_rid(text: &str) -> bool {
    text.len() == 8 && STANDARD.decode(text.replace('-', "/")).is_ok_and(|bytes| bytes.len() == 4)
}

/// Decoded segments without the empty ones: Python ends paths with a slash, .NET and Java begin some with two.
fn segments_of(path: &str) -> Vec<Cow<'_, str>> {
    let mut segments = Vec::with_capacity(6);
    let texts = path.split('/').filter(|segment| !segment.is_empty());
    segments.extend(texts.map(|segment| percent_decode_str(segment).decode_utf8_lossy()));
    segments
}

fn joined(segments: &[Cow<'_, str>]) -> String {
    let mut link = String::with_capacity(segments.iter().map(|segment| segment.len() + 1).sum());
    for (at, segment) in segments.iter().enumerate() {
        if at > 0 {
            link.push('/');
        }
        link.push_str(segment);
    }
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, query: Option<&str>, resource_type: &str, link: &str) {
        let target = ResourceLink::of(path, query);
        assert_eq!((target.resource_type.as_str(), target.link.as_str()), (resource_type, link), "{path}");
    }

    /// The table of the protocol reference.
    #[test]
    fn paths_have_their_type_and_link() {
        for (path, resource_type, link) in [
            ("/", "", ""),
            ("", "", ""),
            ("/dbs", "dbs", ""),
            ("/dbs/", "dbs", ""),
            ("/dbs/Db1", "dbs", "dbs/Db1"),
            ("/dbs/Db1/colls", "colls", "dbs/Db1"),
            ("/dbs/Db1/colls/", "colls", "dbs/Db1"),
            ("/dbs/Db1/colls/C1/", "colls", "dbs/Db1/colls/C1"),
            ("/dbs/Db1/colls/C1/docs", "docs", "dbs/Db1/colls/C1"),
            ("//dbs//Db1/colls/C1/docs/x/", "docs", "dbs/Db1/colls/C1/docs/x"),
            ("/dbs/Db1/colls/C1/pkranges/", "pkranges", "dbs/Db1/colls/C1"),
            ("/dbs/Db1/colls/C1/sprocs", "sprocs", "dbs/Db1/colls/C1"),
            ("/dbs/Db1/colls/C1/triggers", "triggers", "dbs/Db1/colls/C1"),
            ("/dbs/Db1/colls/C1/udfs", "udfs", "dbs/Db1/colls/C1"),
            ("/dbs/Db1/colls/C1/conflicts", "conflicts", "dbs/Db1/colls/C1"),
            ("/dbs/Db1/colls/C1/sprocs/S", "sprocs", "dbs/Db1/colls/C1/sprocs/S"),
            ("/dbs/Db1/users", "users", "dbs/Db1"),
            ("/dbs/Db1/users/U", "users", "dbs/Db1/users/U"),
            ("/dbs/Db1/users/U/permissions", "permissions", "dbs/Db1/users/U"),
            ("/dbs/Db1/users/U/permissions/P", "permissions", "dbs/Db1/users/U/permissions/P"),
            ("/dbs/Db1/clientencryptionkeys", "clientencryptionkeys", "dbs/Db1"),
            ("/dbs/Db1/clientencryptionkeys/K", "clientencryptionkeys", "dbs/Db1/clientencryptionkeys/K"),
            ("/offers", "offers", ""),
            ("/offers/", "offers", ""),
            ("/offers/Ab0d", "offers", "ab0d"),
            ("/dbs/Db1/colls/C1/operations/partitionkeydelete", "colls", "dbs/Db1/colls/C1"),
            ("/dbs/Db1/colls/C1/operations/partitionkeydelete/", "colls", "dbs/Db1/colls/C1"),
            // Not keywords in these places.
            ("/dbs/colls/colls/docs/docs/operations", "docs", "dbs/colls/colls/docs/docs/operations"),
            ("/dbs/operations/colls/x", "colls", "dbs/operations/colls/x"),
            ("/dbs/Db1/colls/C1/docs/a%2Fb%20c%25", "docs", "dbs/Db1/colls/C1/docs/a/b c%"),
            ("/dbs/Db1/colls/C1/docs/%2F", "docs", "dbs/Db1/colls/C1/docs//"),
            ("/dbs/Db1/colls/C1/DOCS", "docs", "dbs/Db1/colls/C1"),
        ] {
            check(path, None, resource_type, link);
        }
    }

    #[test]
    fn rid_paths_sign_the_last_rid_in_lower_case() {
        for (path, resource_type, link) in [
            ("/dbs/hLEEAA==", "dbs", "hleeaa=="),
            ("/dbs/hLEEAA==/colls", "colls", "hleeaa=="),
            ("/dbs/hLEEAA%3D%3D/colls/hLEEAI1YjgA%3D/pkranges/", "pkranges", "hleeai1yjga="),
            ("/dbs/hLEEAA==/colls/hLEEAI1YjgA=/docs", "docs", "hleeai1yjga="),
            ("/dbs/hL-EAA==/users/X", "users", "x"),
        ] {
            check(path, None, resource_type, link);
        }
        for name in ["hLEEAA=", "hLEEAI1YjgA=", "hLEEAAAA", "h_EEAA==", "abcdefgh", ""] {
            assert!(!is_database_rid(name), "{name}");
        }
    }

    #[test]
    fn a_name_that_looks_like_a_rid_may_be_signed_as_a_name() {
        let target = ResourceLink::of("/dbs/hLEEAA==/colls/Items", None);
        assert_eq!(target.link, "items");
        assert_eq!(target.alternatives, ["dbs/hLEEAA==/colls/Items"]);
    }

    #[test]
    fn keywords_in_upper_case_may_be_signed_either_way() {
        let target = ResourceLink::of("/DBS/Db1/Colls/C1", None);
        assert_eq!((target.resource_type.as_str(), target.link.as_str()), ("colls", "DBS/Db1/Colls/C1"));
        assert_eq!(target.alternatives, ["dbs/Db1/colls/C1"]);
    }

    #[test]
    fn address_resolution_signs_what_it_asks_about() {
        let query =
            "$resolveFor=dbs%2fhLEEAA%3d%3d%2fcolls%2fhLEEAI1Y%2bgA%3d%2fdocs&$filter=protocol eq rntbd";
        check("//addresses/", Some(query), "docs", "hleeai1y+ga=");
        check("/addresses", Some("%24resolveFor=dbs%2FDb1%2Fcolls%2FC1%2Fdocs"), "docs", "dbs/Db1/colls/C1");
        check("/addresses", Some("$filter=x"), "addresses", "");
        check("/addresses", None, "addresses", "");
    }
}
