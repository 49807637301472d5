use crate::wire::status::refusal_status;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;

const DATE: &str = "Thu, 27 Apr 2017 00:51:12 GMT";
const NOW: i64 = 1_493_254_272;

fn request<'a>(method: &'a str, path: &'a str, authorization: &'a str, date: &'a str) -> SignedRequest<'a> {
    SignedRequest {
        method,
        path,
        query: None,
        authorization: Some(authorization.as_bytes()),
        x_ms_date: Some(date.as_bytes()),
        date: None,
    }
}

fn well_known() -> AccountKeys {
    AccountKeys::new(MasterKey::well_known())
}

fn other_key(seed: u8) -> MasterKey {
    MasterKey::from_bytes(&[seed; 64])
}

fn status_of(failure: &AuthFailure) -> (u16, u16, &'static str) {
    let wire = refusal_status(failure);
    (wire.status, wire.substatus, wire.code)
}

fn numbers(failure: &AuthFailure) -> (u16, u16) {
    let wire = refusal_status(failure);
    (wire.status, wire.substatus)
}

#[test]
fn published_signatures_are_accepted_and_made() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../tests/data/auth-signatures.json")).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 17);
    for case in cases {
        let text = |name: &str| case[name].as_str().unwrap();
        let key = match text("key") {
            "emulator" => MasterKey::well_known(),
            key => MasterKey::parse(key).unwrap(),
        };
        let (method, path, date) =
            (text("method"), text("path"), case["headers"]["x-ms-date"].as_str().unwrap());
        let target = ResourceLink::of(path, None);
        let payload = string_to_sign(method, &target.resource_type, &target.link, date.as_bytes(), b"");
        assert_eq!(payload, text("stringToSign"), "{path}");
        assert_eq!(sign_request(&key, method, path, None, date), text("authorization"), "{path}");

        let now = parse_date(date.as_bytes()).unwrap();
        let header = text("authorization");
        let lower_hex = header.replace("%3D", "%3d").replace("%2F", "%2f").replace("%2B", "%2b");
        for header in [header, &lower_hex] {
            let asked = request(method, path, header, date);
            let keys = AccountKeys::new(key.clone());
            let answer = authenticate(&asked, &keys, AuthOptions::default(), now);
            assert_eq!(answer, Ok(Principal::Master), "{path}");
        }
    }
}

#[test]
fn every_key_gives_its_principal() {
    let keys = AccountKeys {
        primary: other_key(1),
        secondary: Some(other_key(2)),
        read_only: vec![other_key(3), other_key(4)],
    };
    for (seed, expected) in
        [(1, Principal::Master), (2, Principal::Master), (3, Principal::ReadOnly), (4, Principal::ReadOnly)]
    {
        let header = sign_request(&other_key(seed), "GET", "/dbs/a", None, DATE);
        let asked = request("GET", "/dbs/a", &header, DATE);
        assert_eq!(authenticate(&asked, &keys, AuthOptions::default(), NOW), Ok(expected));
    }
    let header = sign_request(&other_key(5), "GET", "/dbs/a", None, DATE);
    let asked = request("GET", "/dbs/a", &header, DATE);
    let failure = authenticate(&asked, &keys, AuthOptions::default(), NOW).unwrap_err();
    assert_eq!(status_of(&failure), (401, 0, "Unauthorized"));
    let message = failure.to_string();
    let payload = "get\ndbs\ndbs/a\nthu, 27 apr 2017 00:51:12 gmt\n\n";
    assert!(message.starts_with("The input authorization token can't serve the request."), "{message}");
    assert!(message.ends_with(&format!("to sign: '{payload}'")), "{message}");
}

#[test]
fn a_signature_is_for_one_request_only() {
    let header = sign_request(&MasterKey::well_known(), "GET", "/dbs/a", None, DATE);
    for (method, path, date) in [
        ("DELETE", "/dbs/a", DATE),
        ("GET", "/dbs/b", DATE),
        ("GET", "/dbs/A", DATE),
        ("GET", "/dbs", DATE),
        ("GET", "/dbs/a", "Thu, 27 Apr 2017 00:51:13 GMT"),
    ] {
        let asked = request(method, path, &header, date);
        let answer = authenticate(&asked, &well_known(), AuthOptions::default(), NOW);
        assert!(matches!(answer, Err(AuthFailure::SignatureMismatch { .. })), "{method} {path}");
    }
}

#[test]
fn damaged_signatures_are_refused() {
    let whole = sign_request(&MasterKey::well_known(), "GET", "/dbs/a", None, DATE);
    let decoded = percent_encoding::percent_decode_str(&whole).decode_utf8().unwrap().into_owned();
    for header in [
        decoded.trim_end_matches('=').to_owned(),
        decoded[..decoded.len() - 5].to_owned(),
        format!("{decoded}AAAA"),
        "type=master&ver=1.0&sig=AA==".to_owned(),
        "type=master&ver=1.0&sig=!".to_owned(),
    ] {
        let asked = request("GET", "/dbs/a", &header, DATE);
        let answer = authenticate(&asked, &well_known(), AuthOptions::default(), NOW);
        assert!(matches!(answer, Err(AuthFailure::SignatureMismatch { .. })), "{header}");
    }
}

#[test]
fn dates_are_needed_and_checked() {
    let header = sign_request(&MasterKey::well_known(), "GET", "/", None, DATE);
    let asked = request("GET", "/", &header, DATE);
    for (offset, allowed) in [(0, true), (-900, true), (-901, false), (1800, true), (1801, false)] {
        let answer = authenticate(&asked, &well_known(), AuthOptions::default(), NOW + offset);
        assert_eq!(answer.is_ok(), allowed, "{offset}");
        if let Err(failure) = answer {
            assert_eq!(status_of(&failure), (403, 0, "Forbidden"));
            assert!(failure.to_string().contains("not valid at the current time"), "{failure}");
            assert!(failure.to_string().contains("Thu, 27 Apr 2017 00:36:12 GMT"), "{failure}");
        }
        let lax = AuthOptions { check_clock: false, ..AuthOptions::default() };
        assert!(authenticate(&asked, &well_known(), lax, NOW + offset * 1000).is_ok());
    }

    let missing = SignedRequest { x_ms_date: None, ..asked };
    let answer = authenticate(&missing, &well_known(), AuthOptions::default(), NOW);
    assert_eq!(answer, Err(AuthFailure::MissingDate));
    let invalid = SignedRequest { x_ms_date: Some(b"tomorrow"), ..asked };
    let answer = authenticate(&invalid, &well_known(), AuthOptions::default(), NOW);
    assert_eq!(answer, Err(AuthFailure::InvalidDate));
}

#[test]
fn the_plain_date_header_is_signed_on_the_fifth_line() {
    let key = MasterKey::well_known();
    let text = string_to_sign("GET", "dbs", "dbs/a", b"", DATE.as_bytes());
    assert_eq!(text, "get\ndbs\ndbs/a\n\nthu, 27 apr 2017 00:51:12 gmt\n");
    let header = format!("type=master&ver=1.0&sig={}", key.sign(text.as_bytes()));
    let asked = SignedRequest {
        x_ms_date: None,
        date: Some(DATE.as_bytes()),
        ..request("GET", "/dbs/a", &header, DATE)
    };
    assert!(authenticate(&asked, &well_known(), AuthOptions::default(), NOW).is_ok());
    // With both, x-ms-date wins and the plain one is not signed.
    let header = sign_request(&key, "GET", "/dbs/a", None, DATE);
    let asked = SignedRequest { date: Some(b"whatever"), ..request("GET", "/dbs/a", &header, DATE) };
    assert!(authenticate(&asked, &well_known(), AuthOptions::default(), NOW).is_ok());
}

#[test]
fn a_missing_header_is_its_own_failure() {
    let asked = SignedRequest { authorization: None, ..request("GET", "/", "", DATE) };
    let failure = authenticate(&asked, &well_known(), AuthOptions::default(), NOW).unwrap_err();
    assert_eq!(numbers(&failure), (401, 5000));
    assert_eq!(
        failure.to_string(),
        "Required Header authorization is missing. Ensure a valid Authorization token is passed."
    );
}

#[test]
fn resource_tokens_are_handed_on_and_sas_is_refused() {
    let asked = request("GET", "/", "type%3Dresource%26ver%3D1%26sig%3Dabc%3D%3D%3Bdef%3B", DATE);
    let answer = authenticate(&asked, &well_known(), AuthOptions::default(), NOW);
    assert_eq!(answer, Ok(Principal::ResourceToken("abc==;def;".to_owned())));
    let asked = request("GET", "/", "type=sas&ver=1.0&sig=a;b", DATE);
    let failure = authenticate(&asked, &well_known(), AuthOptions::default(), NOW).unwrap_err();
    assert_eq!(numbers(&failure), (401, 5012));
}

fn entra_token(claims: &str, key_text: &str) -> String {
    let header = r#"{"typ":"JWT","alg":"RS256","x5t":"CosmosEmulatorPrimaryMaster","kid":"CosmosEmulatorPrimaryMaster"}"#;
    format!(
        "{}.{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(claims),
        URL_SAFE_NO_PAD.encode(key_text)
    )
}

#[test]
fn emulator_tokens_are_checked() {
    let claims = |nbf: i64, exp: i64| {
        format!(
            r#"{{"aud":"https://localhost.localhost","iss":"https://sts.fake-issuer.net/7b1999a1-dfd7-440e-8204-00170979b984","iat":{nbf},"nbf":{nbf},"exp":{exp},"oid":"96313034-4739-43cb-93cd-74193adbe5b6","scp":"user_impersonation"}}"#
        )
    };
    let good = entra_token(&claims(NOW - 60, NOW + 3600), WELL_KNOWN_KEY);
    let check = |token: &str, options: AuthOptions| {
        let raw = format!("type=aad&ver=1.0&sig={token}");
        let encoded =
            percent_encoding::utf8_percent_encode(&raw, percent_encoding::NON_ALPHANUMERIC).to_string();
        let answers = [raw, encoded]
            .map(|header| authenticate(&request("GET", "/", &header, DATE), &well_known(), options, NOW));
        assert_eq!(answers[0], answers[1]);
        answers[0].clone().map_err(|failure| numbers(&failure))
    };
    let options = AuthOptions::default();
    assert_eq!(check(&good, options), Ok(Principal::Aad));
    assert_eq!(check(&good, AuthOptions { accept_emulator_tokens: false, ..options }), Err((401, 5002)));

    let wrong_key = entra_token(&claims(NOW - 60, NOW + 3600), other_key(9).reveal());
    for (token, substatus) in [
        (wrong_key.as_str(), 5004),
        (&entra_token(&claims(NOW + 301, NOW + 3600), WELL_KNOWN_KEY), 5005),
        (&entra_token(&claims(NOW - 3600, NOW), WELL_KNOWN_KEY), 5006),
        (&entra_token("{}", WELL_KNOWN_KEY), 5003),
        (&entra_token("[1]", WELL_KNOWN_KEY), 5003),
        ("a.b", 5003),
        ("a.b.c.d", 5003),
        ("!.!.!", 5003),
    ] {
        assert_eq!(check(token, options), Err((401, substatus)), "{substatus}");
    }
    // A clock a little behind the issuer's is fine.
    assert!(check(&entra_token(&claims(NOW + 299, NOW + 3600), WELL_KNOWN_KEY), options).is_ok());
}
