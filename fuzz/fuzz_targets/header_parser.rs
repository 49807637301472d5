//! Headers and paths that are looked at before anyone is known: the authorization header, the date, the
//! partition key header and the path that a signature covers. Input: one byte that chooses, then the text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use orrery_gateway::auth::{
    AccountKeys, AuthOptions, MasterKey, ResourceLink, SignedRequest, Token, authenticate, parse_date,
    print_date,
};
use orrery_model::partition_key::PartitionKey;

fuzz_target!(|input: &[u8]| {
    let Some((choice, text)) = input.split_first() else { return };
    match choice % 4 {
        0 => {
            if let Ok(token) = Token::parse(text) {
                assert!(!token.signature.is_empty() && !token.signature.contains(','));
            }
            let request = SignedRequest {
                method: "GET",
                path: "/dbs/a",
                query: None,
                authorization: Some(text),
                x_ms_date: Some(b"Thu, 27 Apr 2017 00:51:12 GMT"),
                date: None,
            };
            let keys = AccountKeys::new(MasterKey::from_bytes(&[7; 64]));
            let _refused_or_not = authenticate(&request, &keys, AuthOptions::default(), 1_493_254_272);
        }
        1 => {
            if let Some(seconds) = parse_date(text) {
                assert_eq!(parse_date(print_date(seconds).as_bytes()), Some(seconds));
            }
        }
        2 => {
            if let Ok(key) = PartitionKey::parse_json(text) {
                let again = PartitionKey::parse_json(key.to_json().as_bytes()).expect("our own text");
                assert_eq!(key, again);
            }
        }
        _ => {
            if let Ok(text) = std::str::from_utf8(text) {
                let (path, query) =
                    text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
                let link = ResourceLink::of(path, query);
                assert!(!link.resource_type.chars().any(|c| c.is_ascii_uppercase()));
            }
        }
    }
});
