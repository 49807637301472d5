//! Why authentication failed. The status codes are in `wire/status.rs`.

use super::date::DateWindow;
use super::print_date;

/// An authentication failure. The message is for the client; it never contains a key or the signature that was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthFailure {
    #[error("Required Header authorization is missing. Ensure a valid Authorization token is passed.")]
    MissingHeader,
    #[error("The authorization header is malformed or too long: {0}.")]
    Malformed(&'static str),
    #[error(
        "The input authorization token can't serve the request. Please check that the expected payload is \
         built as per the protocol, and check the key being used. Server used the following payload to \
         sign: '{payload}'"
    )]
    SignatureMismatch { payload: String },
    #[error("The date is missing: a request must carry x-ms-date or date.")]
    MissingDate,
    #[error("The date of the request is not a valid RFC 1123 date.")]
    InvalidDate,
    #[error(
        "The authorization token is not valid at the current time. Please create another token and retry \
         (token start time: {}, token expiry time: {}, current server time: {}).",
        print_date(window.start), print_date(window.expiry), print_date(*now)
    )]
    OutsideWindow { window: DateWindow, now: i64 },
    #[error("Microsoft Entra tokens are not accepted by this account.")]
    AadDisabled,
    #[error("The Microsoft Entra token is malformed: {0}.")]
    AadMalformed(&'static str),
    #[error("The signature of the Microsoft Entra token is not valid.")]
    AadSignature,
    #[error("The Microsoft Entra token is not yet valid.")]
    AadNotYetValid,
    #[error("The Microsoft Entra token has expired.")]
    AadExpired,
    #[error("Shared access signatures are not accepted by this account.")]
    SasDisabled,
    #[error("This operation is not supported with a Microsoft Entra token; use an account key.")]
    AadOperation,
    #[error("The operation needs write access, but the request is signed with a read-only key.")]
    ReadOnlyKey,
    #[error("Insufficient permissions provided in the authorization header for the corresponding request.")]
    ResourceTokenRights,
    #[error("The resource token has expired. Please get a new token and retry.")]
    ResourceTokenExpired,
    #[error(
        "The host '{host}' is not one that this server answers to. If it should, start the server with \
         --allowed-hosts {host} (or ORRERY_ALLOWED_HOSTS)."
    )]
    HostNotAllowed { host: String },
    #[error(
        "Requests of web pages from {origin} are not accepted. To allow an origin, start the server with \
         --allowed-origins (or ORRERY_ALLOWED_ORIGINS)."
    )]
    OriginNotAllowed { origin: String },
}
