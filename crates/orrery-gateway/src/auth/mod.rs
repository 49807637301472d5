//! Authentication: checks the authorization header against the keys of the account.
//!
//! Checking is a pure function of the request, the keys and the time; `ring` holds the keys and replaces them. What a
//! principal *may do* is decided where operations are known: read-only keys, Entra tokens and resource tokens are only
//! identified here. The contents of resource tokens are not checked.

mod date;
mod entra;
mod failure;
mod header;
mod keys;
mod link;
mod ring;

pub use date::{DateWindow, parse_date, print_date};
pub use failure::AuthFailure;
pub use header::{Family, Token};
pub use keys::{AccountKeys, InvalidKey, MasterKey, WELL_KNOWN_KEY};
pub use link::{ResourceLink, is_database_rid};
pub use ring::{KeyHome, KeyKind, KeyRing, KeySource, RotationError, store_key};

/// The principal of a valid authorization header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// The primary or secondary key: everything.
    Master,
    /// A read-only key: reads and queries.
    ReadOnly,
    /// An Entra ID token: the data plane.
    Aad,
    /// A resource token. The text is its `sig` part, which the database verifies.
    ResourceToken(String),
}

/// Which checks apply.
#[derive(Clone, Copy, Debug)]
pub struct AuthOptions {
    /// Reject signatures whose date is too far from now. Off for machines whose clocks drift.
    pub check_clock: bool,
    /// Accept the unsigned Entra tokens that test suites create for emulators: they contain the account key.
    pub accept_emulator_tokens: bool,
}

impl Default for AuthOptions {
    fn default() -> Self {
        Self { check_clock: true, accept_emulator_tokens: true }
    }
}

/// The parts of a request that a signature covers. Path and query are as received, still encoded.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub authorization: Option<&'a [u8]>,
    pub x_ms_date: Option<&'a [u8]>,
    pub date: Option<&'a [u8]>,
}

impl<'a> SignedRequest<'a> {
    pub fn of(request: &'a http::request::Parts) -> Self {
        let header = |name: &str| request.headers.get(name).map(http::HeaderValue::as_bytes);
        Self {
            method: request.method.as_str(),
            path: request.uri.path(),
            query: request.uri.query(),
            authorization: header("authorization"),
            x_ms_date: header("x-ms-date"),
            date: header("date"),
        }
    }

    /// The dates on the fourth and fifth line of the signed text: `x-ms-date` takes precedence over `date`.
    fn signed_dates(&self) -> (&'a [u8], &'a [u8]) {
        match (self.x_ms_date, self.date) {
            (Some(date), _) => (date, b""),
            (None, Some(date)) => (b"", date),
            (None, None) => (b"", b""),
        }
    }
}

/// Checks the authorization header of a request against the keys of the account.
pub fn authenticate(
    request: &SignedRequest<'_>,
    keys: &AccountKeys,
    options: AuthOptions,
    now_seconds: i64,
) -> Result<Principal, AuthFailure> {
    let header = request.authorization.ok_or(AuthFailure::MissingHeader)?;
    let token = Token::parse(header)?;
    match token.family {
        Family::Master => verify_master(request, &token.signature, keys, options, now_seconds),
        // Verified by the database, which has the secret and the permission.
        Family::Resource => Ok(Principal::ResourceToken(token.signature)),
        Family::Aad if options.accept_emulator_tokens => {
            entra::verify(&token.signature, keys, now_seconds).map(|()| Principal::Aad)
        }
        Family::Aad => Err(AuthFailure::AadDisabled),
        Family::Sas => Err(AuthFailure::SasDisabled),
    }
}

fn verify_master(
    request: &SignedRequest<'_>,
    signature: &str,
    keys: &AccountKeys,
    options: AuthOptions,
    now_seconds: i64,
) -> Result<Principal, AuthFailure> {
    let (x_ms_date, date) = request.signed_dates();
    let date_text = if x_ms_date.is_empty() { date } else { x_ms_date };
    if date_text.is_empty() {
        return Err(AuthFailure::MissingDate);
    }
    let signed_at = parse_date(date_text).ok_or(AuthFailure::InvalidDate)?;

    // What a client signs does not always follow from the URL alone; the alternatives are tried only if the usual
    // text fails.
    let target = ResourceLink::of(request.path, request.query);
    let text = |link: &str| string_to_sign(request.method, &target.resource_type, link, x_ms_date, date);
    let payload = text(&target.link);
    let principal = keys
        .verify(payload.as_bytes(), signature)
        .or_else(|| target.alternatives.iter().find_map(|link| keys.verify(text(link).as_bytes(), signature)))
        .ok_or(AuthFailure::SignatureMismatch { payload })?;

    // The window is checked last, so that a client that cannot sign learns nothing about our clock.
    if options.check_clock {
        DateWindow::of(signed_at).check(now_seconds)?;
    }
    Ok(principal)
}

/// The five lines that a master key signs, each ended by a newline.
pub fn string_to_sign(
    method: &str,
    resource_type: &str,
    link: &str,
    x_ms_date: &[u8],
    date: &[u8],
) -> String {
    let mut text = String::with_capacity(
        method.len() + resource_type.len() + link.len() + x_ms_date.len() + date.len() + 5,
    );
    // Lower case everywhere but in the link, whose names are case-sensitive. The last of the two date lines is
    // usually empty, but its line break counts.
    push_lower(&mut text, method);
    push_lower(&mut text, resource_type);
    text.push_str(link);
    text.push('\n');
    push_lower(&mut text, &String::from_utf8_lossy(x_ms_date));
    push_lower(&mut text, &String::from_utf8_lossy(date));
    text
}

/// Appends a line in lower case.
fn push_lower(text: &mut String, line: &str) {
    // Nearly always, and then nothing is allocated.
    if line.is_ascii() {
        let start = text.len();
        text.push_str(line);
        text[start..].make_ascii_lowercase();
    } else {
        text.push_str(&line.to_lowercase());
    }
    text.push('\n');
}

/// The authorization header for a client that has the key, for our own client commands.
pub fn sign_request(key: &MasterKey, method: &str, path: &str, query: Option<&str>, date: &str) -> String {
    let target = ResourceLink::of(path, query);
    let text = string_to_sign(method, &target.resource_type, &target.link, date.as_bytes(), b"");
    let signature = key.sign(text.as_bytes());
    // Base64 has `+`, `/` and `=`, which mean something else in a query-like header.
    let escaped = percent_encoding::utf8_percent_encode(&signature, percent_encoding::NON_ALPHANUMERIC);
    format!("type%3Dmaster%26ver%3D1.0%26sig%3D{escaped}")
}

#[cfg(test)]
mod tests;
