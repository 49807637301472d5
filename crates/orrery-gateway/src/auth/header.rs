//! The authorization header: `type=…&ver=…&sig=…`, percent-encoded by most clients and raw from some.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::AuthFailure;

/// The four kinds of tokens, distinguished by `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Master,
    Resource,
    Aad,
    Sas,
}

impl Family {
    fn parse(text: &str) -> Option<Self> {
        let families =
            [("master", Self::Master), ("resource", Self::Resource), ("aad", Self::Aad), ("sas", Self::Sas)];
        families.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, family)| family)
    }

    /// The maximum length of a header of this kind, as received.
    fn header_bytes_max(self) -> usize {
        match self {
            Self::Master | Self::Sas => 1024,
            Self::Resource => 8192,
            Self::Aad => HEADER_BYTES_MAX,
        }
    }
}

/// Longer headers are not even decoded.
const HEADER_BYTES_MAX: usize = 16_384;

/// A parsed header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub family: Family,
    pub version: String,
    pub signature: String,
}

impl Token {
    pub fn parse(header: &[u8]) -> Result<Self, AuthFailure> {
        if header.len() > HEADER_BYTES_MAX {
            return Err(AuthFailure::Malformed("it is too long"));
        }
        let raw = std::str::from_utf8(header).map_err(|_| AuthFailure::Malformed("it is not text"))?.trim();
        // Python sends Entra tokens raw; all others encode them. `+` belongs to base64 and is never a space.
        let encoded = !raw.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("type="));
        let text = if encoded {
            percent_decode_str(raw)
                .decode_utf8()
                .map_err(|_| AuthFailure::Malformed("it does not decode to text"))?
        } else {
            Cow::Borrowed(raw)
        };

        // Every client writes the three parts in this order.
        let (family, rest) = text.split_once('&').ok_or(AuthFailure::Malformed("a part is missing"))?;
        let (version, signature) = rest.split_once('&').ok_or(AuthFailure::Malformed("a part is missing"))?;
        // A proxy that joins repeated headers writes a comma between them; the first one counts.
        let signature = signature.split_once(',').map_or(signature, |(first, _)| first);

        let family = Family::parse(value_of("type", family)?)
            .ok_or(AuthFailure::Malformed("the type is none of master, resource, aad and sas"))?;
        let token = Self {
            family,
            version: value_of("ver", version)?.to_owned(),
            signature: value_of("sig", signature)?.to_owned(),
        };
        // Entra tokens are long; the limit for signatures can only be applied once the type is known.
        if header.len() > family.header_bytes_max() {
            return Err(AuthFailure::Malformed("it is too long for its type"));
        }
        Ok(token)
    }
}

/// The value of a `key=value` part; further equals signs belong to the value.
fn value_of<'a>(key: &str, part: &'a str) -> Result<&'a str, AuthFailure> {
    match part.split_once('=') {
        Some((name, value)) if name.eq_ignore_ascii_case(key) && !value.is_empty() => Ok(value),
        _ => Err(AuthFailure::Malformed("a part is not of the form key=value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(Family, String, String), AuthFailure> {
        Token::parse(text.as_bytes()).map(|token| (token.family, token.version, token.signature))
    }

    #[test]
    fn encoded_and_raw_headers_mean_the_same() {
        let expected = (Family::Master, "1.0".to_owned(), "a/b+c==".to_owned());
        for text in [
            "type%3Dmaster%26ver%3D1.0%26sig%3Da%2Fb%2Bc%3D%3D",
            "type%3dmaster%26ver%3d1.0%26sig%3da%2fb%2bc%3d%3d",
            "type=master&ver=1.0&sig=a/b+c==",
            "TYPE=Master&VER=1.0&SIG=a/b+c==",
            "type%3Dmaster%26ver%3D1.0%26sig%3Da%2Fb+c%3D%3D",
            "type=master&ver=1.0&sig=a/b+c==,type=master&ver=1.0&sig=zzz",
        ] {
            assert_eq!(parse(text), Ok(expected.clone()), "{text}");
        }
        assert_eq!(
            parse("type=resource&ver=1&sig=abc;def==;"),
            Ok((Family::Resource, "1".to_owned(), "abc;def==;".to_owned()))
        );
    }

    #[test]
    fn a_raw_value_is_not_decoded_again() {
        assert_eq!(parse("type=aad&ver=1.0&sig=a%2Fb").unwrap().2, "a%2Fb");
    }

    #[test]
    fn malformed_headers_are_refused_with_their_substatus() {
        for text in [
            "",
            "Bearer abc",
            "type=master",
            "type=master&ver=1.0",
            "type=master&ver=1.0&sig=",
            "type=master&ver=1.0&sig=,x",
            "type=&ver=1.0&sig=x",
            "type=master&ver=&sig=x",
            "type=other&ver=1.0&sig=x",
            "kind=master&ver=1.0&sig=x",
            "type=master&version=1.0&sig=x",
            "type=master&ver=1.0&signature=x",
            "type=master&sig=x&ver=1.0",
            "master&1.0&x",
            "%ff%fe",
        ] {
            let failure = parse(text).unwrap_err();
            let wire = crate::wire::status::refusal_status(&failure);
            assert_eq!((wire.status, wire.substatus), (401, 5001), "{text}");
        }
        assert!(Token::parse(b"type=master&ver=1.0&sig=\xFF").is_err());
    }

    #[test]
    fn each_family_has_its_length() {
        for (family, max) in [("master", 1024), ("resource", 8192), ("aad", 16384), ("sas", 1024)] {
            let start = format!("type={family}&ver=1.0&sig=");
            let fitting = format!("{start}{}", "x".repeat(max - start.len()));
            assert!(parse(&fitting).is_ok(), "{family}");
            assert!(parse(&format!("{fitting}x")).is_err(), "{family}");
        }
    }
}
