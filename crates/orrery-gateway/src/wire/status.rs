//! The table of status codes: status, sub-status and the body's `code` of every kind of error, authentication failure
//! and injected fault.

use orrery_model::ErrorKind;

use crate::auth::AuthFailure;

/// The wire form of one kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireStatus {
    pub status: u16,
    /// 0 = no header.
    pub substatus: u16,
    pub code: &'static str,
}

/// The wire form of a database error.
pub fn wire_status(kind: ErrorKind) -> WireStatus {
    let (status, substatus, code) = match kind {
        ErrorKind::BadRequest | ErrorKind::InvalidQuery => (400, 0, "BadRequest"),
        ErrorKind::Script { code } => (400, code, "BadRequest"),
        ErrorKind::PartitionKeyMismatch => (400, 1001, "BadRequest"),
        // Clients that see this sub-status ask for a plan and merge the partitions themselves.
        ErrorKind::CrossPartitionQuery => (400, 1004, "BadRequest"),
        ErrorKind::ContainerRecreated => (400, 1024, "BadRequest"),
        ErrorKind::Unauthorized => (401, 0, "Unauthorized"),
        ErrorKind::Forbidden => (403, 0, "Forbidden"),
        ErrorKind::QuotaExceeded => (403, 1005, "Forbidden"),
        ErrorKind::LogicalPartitionFull => (403, 1014, "Forbidden"),
        ErrorKind::NotFound => (404, 0, "NotFound"),
        // Not the resource itself is missing, but what should contain it.
        ErrorKind::OwnerNotFound => (404, 1003, "NotFound"),
        // Clients retry this 404, because another replica might be further.
        ErrorKind::ReadSessionNotAvailable => (404, 1002, "NotFound"),
        ErrorKind::UnsupportedOperation => (405, 0, "MethodNotAllowed"),
        ErrorKind::Timeout => (408, 0, "RequestTimeout"),
        ErrorKind::Conflict => (409, 0, "Conflict"),
        ErrorKind::KeyHashCollision => (409, 3302, "Conflict"),
        // On 410 clients refresh what the sub-status names, the container or its ranges, and try again.
        ErrorKind::NameCacheStale => (410, 1000, "Gone"),
        ErrorKind::PartitionGone => (410, 1002, "Gone"),
        ErrorKind::PartitionSplitting => (410, 1007, "Gone"),
        ErrorKind::PreconditionFailed => (412, 0, "PreconditionFailed"),
        ErrorKind::TooLarge => (413, 0, "RequestEntityTooLarge"),
        ErrorKind::Locked => (423, 0, "Locked"),
        // The service's code for throttled requests is the number itself.
        ErrorKind::TooManyRequests { .. } => (429, 3200, "429"),
        ErrorKind::RetryWith => (449, 0, "RetryWith"),
        ErrorKind::Internal => (500, 0, "InternalServerError"),
        ErrorKind::NotImplemented => (501, 0, "NotImplemented"),
        ErrorKind::Unavailable => (503, 0, "ServiceUnavailable"),
        // Not a status of the service: none of its own says that only freed space helps.
        ErrorKind::StorageFull => (507, 0, "InsufficientStorage"),
    };
    WireStatus { status, substatus, code }
}

/// The wire form of an authentication or authorisation failure.
pub fn refusal_status(failure: &AuthFailure) -> WireStatus {
    let (status, substatus) = match failure {
        AuthFailure::SignatureMismatch { .. } | AuthFailure::MissingDate | AuthFailure::InvalidDate => {
            (401, 0)
        }
        AuthFailure::MissingHeader => (401, 5000),
        AuthFailure::Malformed(_) => (401, 5001),
        AuthFailure::AadDisabled => (401, 5002),
        AuthFailure::AadMalformed(_) => (401, 5003),
        AuthFailure::AadSignature => (401, 5004),
        AuthFailure::AadNotYetValid => (401, 5005),
        AuthFailure::AadExpired => (401, 5006),
        AuthFailure::SasDisabled => (401, 5012),
        AuthFailure::AadOperation => (403, 5300),
        AuthFailure::OutsideWindow { .. }
        | AuthFailure::ReadOnlyKey
        | AuthFailure::ResourceTokenRights
        | AuthFailure::ResourceTokenExpired
        | AuthFailure::HostNotAllowed { .. }
        | AuthFailure::OriginNotAllowed { .. } => (403, 0),
    };
    WireStatus { status, substatus, code: if status == 403 { "Forbidden" } else { "Unauthorized" } }
}

/// The errors that a fault rule can inject, in their usual wire form.
pub fn injectable() -> [WireStatus; 6] {
    [
        ErrorKind::Timeout,
        ErrorKind::PartitionGone,
        ErrorKind::TooManyRequests { retry_after_ms: 0 },
        ErrorKind::RetryWith,
        ErrorKind::Internal,
        ErrorKind::Unavailable,
    ]
    .map(wire_status)
}
