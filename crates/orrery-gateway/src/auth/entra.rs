//! Entra ID tokens as the official test suites create them for emulators.
//!
//! There is no issuer: the third segment of the token is not a signature but the account key itself, base64url-encoded.
//! A client that knows the key could sign with it directly, so accepting these tokens weakens nothing. Tokens of a real
//! issuer are rejected, because they cannot be verified here.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::{AccountKeys, AuthFailure};

/// How far the clock of the token's issuer may be ahead of ours.
const SKEW_SECONDS: f64 = 300.0;

/// The claims that are checked. Times are seconds since the epoch; some libraries write them as decimals.
#[derive(Deserialize)]
struct Claims {
    nbf: Option<f64>,
    exp: f64,
}

pub(super) fn verify(token: &str, keys: &AccountKeys, now_seconds: i64) -> Result<(), AuthFailure> {
    // Four at most, so that a fourth segment makes the pattern below fail.
    let segments: Vec<&str> = token.splitn(4, '.').collect();
    let [header, claims, signature] = segments[..] else {
        return Err(AuthFailure::AadMalformed("it does not have three segments"));
    };
    let decode = |segment: &str| {
        let segment = segment.trim_end_matches('=');
        URL_SAFE_NO_PAD.decode(segment).map_err(|_| AuthFailure::AadMalformed("a segment is not base64url"))
    };
    // The algorithm and key in the header are irrelevant here; it only has to be an object.
    serde_json::from_slice::<serde_json::Map<_, _>>(&decode(header)?)
        .map_err(|_| AuthFailure::AadMalformed("its header is not a JSON object"))?;
    let claims: Claims = serde_json::from_slice(&decode(claims)?)
        .map_err(|_| AuthFailure::AadMalformed("its claims cannot be read"))?;

    // Only full keys: a read-only one must not become a token that writes.
    if !keys.full().any(|key| key.matches_token_segment(signature)) {
        return Err(AuthFailure::AadSignature);
    }
    #[expect(clippy::cast_precision_loss, reason = "seconds since the epoch are far below 2^53")]
    let now = now_seconds as f64;
    if claims.nbf.is_some_and(|start| start > now + SKEW_SECONDS) {
        return Err(AuthFailure::AadNotYetValid);
    }
    if claims.exp <= now {
        return Err(AuthFailure::AadExpired);
    }
    Ok(())
}
