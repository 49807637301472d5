//! Kinds of errors as clients see them: status, substatus and the `code` of the body.

use orrery_model::ErrorKind;

/// How one kind travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireStatus {
    pub status: u16,
    /// 0 = no header.
    pub substatus: u16,
    pub code: &'static str,
}

/// The table.
pub fn wire_status(kind: ErrorKind) -> WireStatus {
    let (status, substatus, code) = match kind {
        ErrorKind::BadRequest | ErrorKind::InvalidQuery => (400, 0, "BadRequest"),
        ErrorKind::Script { substatus } => (400, substatus, "BadRequest"),
        ErrorKind::PartitionKeyMismatch => (400, 1001, "BadRequest"),
        ErrorKind::CrossPartitionQuery => (400, 1004, "BadRequest"),
        ErrorKind::ContainerRecreated => (400, 1024, "BadRequest"),
        ErrorKind::Unauthorized => (401, 0, "Unauthorized"),
        ErrorKind::Forbidden => (403, 0, "Forbidden"),
        ErrorKind::QuotaExceeded => (403, 1005, "Forbidden"),
        ErrorKind::LogicalPartitionFull => (403, 1014, "Forbidden"),
        ErrorKind::NotFound => (404, 0, "NotFound"),
        ErrorKind::OwnerNotFound => (404, 1003, "NotFound"),
        ErrorKind::ReadSessionNotAvailable => (404, 1002, "NotFound"),
        ErrorKind::MethodNotAllowed => (405, 0, "MethodNotAllowed"),
        ErrorKind::Timeout => (408, 0, "RequestTimeout"),
        ErrorKind::Conflict => (409, 0, "Conflict"),
        ErrorKind::KeyHashCollision => (409, 3302, "Conflict"),
        ErrorKind::PartitionGone => (410, 1002, "Gone"),
        ErrorKind::PartitionSplitting => (410, 1007, "Gone"),
        ErrorKind::PreconditionFailed => (412, 0, "PreconditionFailed"),
        ErrorKind::TooLarge => (413, 0, "RequestEntityTooLarge"),
        ErrorKind::Locked => (423, 0, "Locked"),
        ErrorKind::TooManyRequests { .. } => (429, 3200, "429"),
        ErrorKind::RetryWith => (449, 0, "RetryWith"),
        ErrorKind::Internal => (500, 0, "InternalServerError"),
        ErrorKind::NotImplemented => (501, 0, "NotImplemented"),
        ErrorKind::Unavailable => (503, 0, "ServiceUnavailable"),
        ErrorKind::StorageFull => (507, 0, "InsufficientStorage"),
    };
    WireStatus { status, substatus, code }
}
