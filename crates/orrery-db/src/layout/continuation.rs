//! Continuation tokens. The server keeps nothing between pages, so the token carries the whole position, in terms
//! (keys, ids) that survive splits and restarts, and a keyed checksum of this account, bound to the purpose of the
//! token.
//!
//! Layout before base64url: 8 bytes of HMAC-SHA256 over scope and payload, then the payload.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use orrery_model::{Error, Result};
use sha2::Sha256;

const CHECK_BYTES: usize = 8;
/// Longer tokens are not decoded at all.
const TOKEN_CHARACTERS_MAX: usize = 16 * 1024;

/// Seals a token for this scope.
pub(crate) fn seal(secret: &[u8; 32], scope: &str, payload: &[u8]) -> String {
    let mut bytes = checksum(secret, scope, payload).to_vec();
    bytes.extend_from_slice(payload);
    let token = URL_SAFE_NO_PAD.encode(bytes);
    debug_assert!(
        token.len() > TOKEN_CHARACTERS_MAX
            || open(secret, scope, &token).is_ok_and(|opened| opened == payload),
        "a token must open to what was sealed"
    );
    token
}

/// Opens a token that was sealed for this scope.
pub(crate) fn open(secret: &[u8; 32], scope: &str, token: &str) -> Result<Vec<u8>> {
    // A length that no token of ours has is refused before any work is done.
    let bytes = (token.len() <= TOKEN_CHARACTERS_MAX).then(|| URL_SAFE_NO_PAD.decode(token).ok()).flatten();
    let bytes = bytes.filter(|bytes| bytes.len() >= CHECK_BYTES).ok_or_else(invalid)?;
    let (check, payload) = bytes.split_at(CHECK_BYTES);
    if check != checksum(secret, scope, payload) {
        return Err(invalid());
    }
    Ok(payload.to_vec())
}

pub(crate) fn invalid() -> Error {
    Error::bad_request("Invalid Continuation Token")
}

fn checksum(secret: &[u8; 32], scope: &str, payload: &[u8]) -> [u8; CHECK_BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    // The length separates scope and payload, so that no other pair has the same input.
    mac.update(&(scope.len() as u64).to_be_bytes());
    mac.update(scope.as_bytes());
    mac.update(payload);
    let whole = mac.finalize().into_bytes();
    *whole.first_chunk().expect("the checksum is a part of the digest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_bound_to_scope_and_account() {
        let token = seal(&[1; 32], "docs", b"position");
        assert_eq!(open(&[1; 32], "docs", &token).unwrap(), b"position");
        assert!(open(&[2; 32], "docs", &token).is_err());
        assert!(open(&[1; 32], "colls", &token).is_err());
        for bad in ["", "!", "AAAA", &token[1..], &format!("{token}A")] {
            assert_eq!(
                open(&[1; 32], "docs", bad).unwrap_err().message,
                "Invalid Continuation Token",
                "{bad}"
            );
        }
    }

    /// No token opens but those that were sealed.
    #[test]
    fn fuzz_continuation_tokens() {
        let payloads: [&[u8]; 3] = [b"", b"position", &[0xFF; 300]];
        let tokens: Vec<String> = payloads.iter().map(|payload| seal(&[1; 32], "docs", payload)).collect();
        let seeds: Vec<Vec<u8>> = tokens.iter().map(|token| token.clone().into_bytes()).collect();
        orrery_testing::fuzz::fuzz("continuation tokens", &seeds, |input| {
            let Ok(token) = std::str::from_utf8(input) else { return };
            if let Ok(payload) = open(&[1; 32], "docs", token) {
                assert!(tokens.iter().any(|sealed| sealed == token), "{token} opens to {payload:?}");
            }
        });
    }
}
