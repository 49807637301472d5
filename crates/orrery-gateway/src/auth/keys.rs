//! One key of the account, and the signatures made with it.
//!
//! Signatures are compared in constant time. Which keys are valid is the business of `ring`, where they come from that of
//! the binary (`serve/keys.rs`).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use orrery_env::Env;
use sha2::Sha256;

use super::Principal;

/// The key that every emulator accepts. It is public: anyone who can reach the port can use it.
pub const WELL_KNOWN_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// Signatures have 32 bytes; anything longer than this is invalid.
const SIGNATURE_BYTES_MAX: usize = 64;

/// The length of a decoded key.
const KEY_BYTES: usize = 64;

/// One key: base64 text of 64 bytes. Neither printed by `Debug` nor ever logged.
#[derive(Clone)]
pub struct MasterKey {
    text: String,
    /// Keyed once, cloned per signature: half the cost of a short HMAC is the key setup.
    mac: Hmac<Sha256>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("a key must be base64 text")]
    NotBase64,
    #[error("a key must decode to 64 bytes, but this one has {0}")]
    Length(usize),
}

impl MasterKey {
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let text = text.trim();
        let bytes = STANDARD.decode(text).map_err(|_| InvalidKey::NotBase64)?;
        let bytes =
            <&[u8; KEY_BYTES]>::try_from(bytes.as_slice()).map_err(|_| InvalidKey::Length(bytes.len()))?;
        Ok(Self::from_bytes(bytes))
    }

    /// The key of these bytes, for instance random ones.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        let mac = Hmac::new_from_slice(bytes).expect("an HMAC takes keys of any length");
        Self { text: STANDARD.encode(bytes), mac }
    }

    /// A new random key.
    pub fn generate(env: &dyn Env) -> Self {
        let mut bytes = [0; KEY_BYTES];
        env.fill_random(&mut bytes);
        Self::from_bytes(&bytes)
    }

    pub fn well_known() -> Self {
        Self::parse(WELL_KNOWN_KEY).expect("the constant is a key")
    }

    /// The base64 text, for the connection string. Not for logs.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    pub fn is_well_known(&self) -> bool {
        self.text == WELL_KNOWN_KEY
    }

    /// The base64 signature of a text.
    pub fn sign(&self, payload: &[u8]) -> String {
        let mut mac = self.mac.clone();
        mac.update(payload);
        STANDARD.encode(mac.finalize().into_bytes())
    }

    /// Verifies a signature of the text, in constant time.
    fn verify(&self, payload: &[u8], signature: &[u8]) -> bool {
        let mut mac = self.mac.clone();
        mac.update(payload);
        mac.verify_slice(signature).is_ok()
    }

    /// Whether `segment` is the third part of an emulator token made with this key: the base64url form of
    /// the key's *text*.
    pub(super) fn matches_token_segment(&self, segment: &str) -> bool {
        let expected = URL_SAFE_NO_PAD.encode(&self.text);
        equal_in_constant_time(expected.as_bytes(), segment.trim_end_matches('=').as_bytes())
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MasterKey(…)")
    }
}

/// All keys of the account.
#[derive(Clone, Debug)]
pub struct AccountKeys {
    pub primary: MasterKey,
    pub secondary: Option<MasterKey>,
    /// The service has up to two; the number is not limited here.
    pub read_only: Vec<MasterKey>,
}

impl AccountKeys {
    pub fn new(primary: MasterKey) -> Self {
        Self { primary, secondary: None, read_only: Vec::new() }
    }

    /// The keys with full access.
    pub(super) fn full(&self) -> impl Iterator<Item = &MasterKey> {
        std::iter::once(&self.primary).chain(&self.secondary)
    }

    /// The kind of key that produced this signature.
    pub(super) fn verify(&self, payload: &[u8], signature: &str) -> Option<Principal> {
        // Compared as decoded bytes: encodings may differ, and a case-insensitive comparison of the text, like the
        // service's, would accept forgeries.
        let mut bytes = [0; SIGNATURE_BYTES_MAX];
        let length = STANDARD.decode_slice(signature, &mut bytes).ok()?;
        let signature = &bytes[..length];
        if self.full().any(|key| key.verify(payload, signature)) {
            return Some(Principal::Master);
        }
        let read_only = self.read_only.iter().any(|key| key.verify(payload, signature));
        read_only.then_some(Principal::ReadOnly)
    }
}

/// Constant time with respect to the bytes, but not the length.
fn equal_in_constant_time(left: &[u8], right: &[u8]) -> bool {
    // The black box keeps the compiler from leaving the loop at the first difference.
    let difference = left.iter().zip(right).fold(0, |sum, (a, b)| std::hint::black_box(sum | (a ^ b)));
    left.len() == right.len() && difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_64_bytes_of_base64() {
        assert!(MasterKey::parse(WELL_KNOWN_KEY).unwrap().is_well_known());
        assert_eq!(MasterKey::parse(&format!(" {WELL_KNOWN_KEY}\n")).unwrap().reveal(), WELL_KNOWN_KEY);
        assert_eq!(MasterKey::parse("not base64!").unwrap_err(), InvalidKey::NotBase64);
        assert_eq!(MasterKey::parse("AAAA").unwrap_err(), InvalidKey::Length(3));
        assert_eq!(MasterKey::parse("").unwrap_err(), InvalidKey::Length(0));
    }

    #[test]
    fn debug_output_has_no_key() {
        let keys = AccountKeys::new(MasterKey::well_known());
        assert!(!format!("{keys:?}").contains("C2y6"));
    }

    #[test]
    fn constant_time_equality_is_equality() {
        for (left, right) in [("", ""), ("abc", "abc"), ("abc", "abd"), ("abc", "ab"), ("", "a")] {
            assert_eq!(equal_in_constant_time(left.as_bytes(), right.as_bytes()), left == right);
        }
    }
}
