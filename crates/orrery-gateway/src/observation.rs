//! What operators see of single requests in the log: slow ones (target `slow_request`), and an audit of changes to the
//! control plane and of refused authentication (target `audit`).
//!
//! Texts that clients chose are written in quotes, so that none can forge an entry. Clients can cause any number of these
//! entries, so each kind is limited to a few per second; what was left out is counted.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use orrery_db::{Database, Receipt};
use orrery_model::value;
use parking_lot::Mutex;

use crate::auth::AuthFailure;
use crate::operation::Verb;
use crate::path::Path;

/// Entries of one kind per second.
const PER_SECOND_MAX: u32 = 10;
/// Longer query texts are cut.
const QUERY_CHARS_MAX: usize = 4096;

/// What to observe, chosen by the operator.
#[derive(Clone, Debug, Default)]
pub struct ObservationOptions {
    /// Requests that take at least this long are logged.
    pub slow_request: Option<Duration>,
    /// The data directory, whose disk is part of the metrics.
    pub data_directory: Option<PathBuf>,
}

/// Writes the entries of a server.
#[derive(Default)]
pub(crate) struct Observer {
    slow: Limiter,
    refused: Limiter,
}

/// A request that has been answered.
pub(crate) struct Answered<'a> {
    pub activity_id: &'a str,
    pub operation: &'static str,
    pub path: &'a Path,
    pub status: u16,
    pub elapsed: Duration,
    pub receipt: &'a Receipt,
    /// The body of a query.
    pub query: Option<&'a Bytes>,
    /// How the query was executed.
    pub access: Option<&'a str>,
}

impl Observer {
    /// Logs a slow request.
    pub(crate) fn slow(&self, database: &Database, request: &Answered<'_>) {
        let Some(omitted) = self.slow.admit(database.env().now_ms()) else { return };
        let container = request.receipt.container.as_ref().map(|container| container.alt_path());
        tracing::warn!(
            target: "slow_request",
            activity_id = ?request.activity_id,
            operation = request.operation,
            resource = request.path.kind(),
            container = ?container.unwrap_or_default(),
            status = request.status,
            duration_ms = u64::try_from(request.elapsed.as_millis()).unwrap_or(u64::MAX),
            charge = %request.receipt.charge,
            partitions = request.receipt.served.len(),
            query = ?request.query.map(query_text).unwrap_or_default(),
            access = ?without_values(request.access.unwrap_or_default()),
            omitted,
            "slow request"
        );
    }

    /// Logs a request that was refused.
    pub(crate) fn refused(
        &self,
        database: &Database,
        peer: SocketAddr,
        activity_id: &str,
        path: &str,
        failure: &AuthFailure,
    ) {
        let Some(omitted) = self.refused.admit(database.env().now_ms()) else { return };
        let reason = reason(failure);
        tracing::warn!(target: "audit", %peer, ?activity_id, ?path, reason, omitted, "refused a request");
    }
}

/// Logs a change to the control plane, whether or not it succeeded.
pub(crate) fn control_plane(peer: SocketAddr, activity_id: &str, operation: &str, path: &str, status: u16) {
    tracing::info!(target: "audit", %peer, ?activity_id, operation, ?path, status, "changed the control plane");
}

/// Whether an operation changes resources other than items.
pub(crate) fn is_control_plane(verb: Verb, path: &Path) -> bool {
    // Procedures and deletions by partition key are `Execute`, and change only items.
    let is_data = matches!(path, Path::Items(_) | Path::Item(..)) || verb == Verb::Execute;
    verb.writes() && !is_data
}

/// The text of a query, without its parameters.
fn query_text(body: &Bytes) -> String {
    // Parameters stay out of the log: they are where applications put personal data.
    let parsed = value::parse(body).ok();
    let text = parsed.as_ref().and_then(|body| body.get("query")?.as_str()).unwrap_or_default();
    text.chars().take(QUERY_CHARS_MAX).collect()
}

/// The description of an access path with `?` in place of values, which may be those of parameters.
fn without_values(access: &str) -> String {
    let mut out = String::with_capacity(access.len());
    let mut rest = access.chars().peekable();
    // Digits inside a name are no value.
    let mut in_word = false;
    while let Some(char) = rest.next() {
        // A string literal, escaped quotes included.
        if char == '"' {
            while let Some(inner) = rest.next() {
                match inner {
                    '\\' => {
                        rest.next();
                    }
                    '"' => break,
                    _ => {}
                }
            }
            out.push('?');
        } else if !in_word && (char.is_ascii_digit() || char == '-') {
            while rest
                .next_if(|next| next.is_ascii_alphanumeric() || matches!(next, '.' | '+' | '-'))
                .is_some()
            {}
            out.push('?');
        } else {
            in_word = char.is_alphanumeric() || matches!(char, '/' | '_');
            out.push(char);
        }
    }
    out
}

/// Why authentication failed, in a word.
fn reason(failure: &AuthFailure) -> &'static str {
    match failure {
        AuthFailure::MissingHeader => "no authorization header",
        AuthFailure::Malformed(_) => "malformed authorization header",
        AuthFailure::SignatureMismatch { .. } => "wrong signature",
        AuthFailure::MissingDate | AuthFailure::InvalidDate => "no valid date",
        AuthFailure::OutsideWindow { .. } => "signature outside its time",
        AuthFailure::AadDisabled
        | AuthFailure::AadMalformed(_)
        | AuthFailure::AadSignature
        | AuthFailure::AadNotYetValid
        | AuthFailure::AadExpired
        | AuthFailure::AadOperation => "Entra token not accepted",
        AuthFailure::SasDisabled => "shared access signature not accepted",
        AuthFailure::ReadOnlyKey => "write with a read-only key",
        AuthFailure::ResourceTokenRights => "resource token without the right",
        AuthFailure::ResourceTokenExpired => "resource token expired",
        AuthFailure::HostNotAllowed { .. } => "host name not allowed",
        AuthFailure::OriginNotAllowed { .. } => "web page not allowed",
    }
}

/// Admits a few entries per second.
#[derive(Default)]
struct Limiter(Mutex<Window>);

#[derive(Default)]
struct Window {
    second: i64,
    admitted: u32,
    omitted: u64,
}

impl Limiter {
    /// How many entries were left out since the last one, if this one may be written.
    fn admit(&self, now_ms: i64) -> Option<u64> {
        let mut window = self.0.lock();
        let second = now_ms.div_euclid(1000);
        // Also after the clock was moved back.
        if window.second != second {
            window.second = second;
            window.admitted = 0;
        }
        // What is left out is counted in the next entry, so that the log says that it is incomplete.
        if window.admitted == PER_SECOND_MAX {
            window.omitted += 1;
            return None;
        }
        window.admitted += 1;
        Some(std::mem::take(&mut window.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_entries_per_second_and_the_number_of_the_others() {
        let limiter = Limiter::default();
        let admitted: Vec<_> = (0..30).map(|_| limiter.admit(1_999)).collect();
        assert_eq!(admitted.iter().flatten().count(), 10);
        assert_eq!(limiter.admit(2_000), Some(20));
        assert_eq!(limiter.admit(2_001), Some(0));
    }

    #[test]
    fn only_the_text_of_a_query_is_logged() {
        let body =
            br#"{"query":"SELECT * FROM c WHERE c.a = @a","parameters":[{"name":"@a","value":"secret"}]}"#;
        assert_eq!(query_text(&Bytes::from_static(body)), "SELECT * FROM c WHERE c.a = @a");
        let long = format!(r#"{{"query":"{}"}}"#, "é".repeat(10_000));
        assert_eq!(query_text(&Bytes::from(long)).chars().count(), QUERY_CHARS_MAX);
        assert_eq!(query_text(&Bytes::from_static(b"not json")), "");
    }

    #[test]
    fn values_are_left_out_of_access_paths() {
        for (access, expected) in [
            (r#"/secret = "hidden""#, "/secret = ?"),
            (r#"/a2 > -5 and <= 1.5e+3, /b = "x\"y" or true"#, "/a2 > ? and <= ?, /b = ? or true"),
            ("every item", "every item"),
        ] {
            assert_eq!(without_values(access), expected);
        }
    }

    #[test]
    fn items_are_not_the_control_plane() {
        for (verb, path, expected) in [
            (Verb::Create, "/dbs", true),
            (Verb::Replace, "/offers/x", true),
            (Verb::Delete, "/dbs/d/colls/c", true),
            (Verb::Create, "/dbs/d/colls/c/sprocs", true),
            (Verb::Execute, "/dbs/d/colls/c/sprocs/s", false),
            (Verb::Create, "/dbs/d/colls/c/docs", false),
            (Verb::Batch, "/dbs/d/colls/c/docs", false),
            (Verb::Read, "/dbs/d", false),
        ] {
            assert_eq!(is_control_plane(verb, &Path::parse(path)), expected, "{verb:?} {path}");
        }
    }
}
