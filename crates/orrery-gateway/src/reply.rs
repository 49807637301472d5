//! Responses: outcomes and errors as status, headers and body, in one place.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use orrery_db::{KeyUsage, MetadataPage, MetadataReply, Receipt, item_quota};
use orrery_model::rid::DatabaseRid;
use orrery_model::value::write_json_string;
use orrery_model::{Error, ErrorKind, Value};

use crate::auth::AuthFailure;
use crate::headers;
use crate::path::Path;
use crate::wire::binary_json;
use crate::wire::status::{refusal_status, wire_status};

/// The usual number of headers of a data plane response, so that the map need not grow.
const HEADERS_USUAL: usize = 32;
/// The usual size of their values in bytes.
const VALUES_BYTES_USUAL: usize = 512;

/// A response before the common headers are added.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// How a query was executed, for the log.
    pub access: Option<String>,
    /// The remaining capacity of the buffer shared by header values.
    room: BytesMut,
}

impl Reply {
    pub(crate) fn new(status: StatusCode) -> Self {
        let headers = HeaderMap::with_capacity(HEADERS_USUAL);
        Self {
            status,
            headers,
            body: Bytes::new(),
            access: None,
            room: BytesMut::with_capacity(VALUES_BYTES_USUAL),
        }
    }

    pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Self {
        let mut reply = Self::new(status);
        reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        reply.body = body.into();
        reply
    }

    /// Adds a header; an invalid value is a bug of ours and is omitted.
    pub(crate) fn with(mut self, name: &'static str, value: impl Display) -> Self {
        // Written once, into the shared buffer.
        let written = write!(self.room, "{value}").is_ok();
        // Splitting leaves the rest of the buffer to the next header; the value shares the memory.
        match HeaderValue::from_maybe_shared(self.room.split().freeze()) {
            Ok(value) if written => {
                self.headers.insert(HeaderName::from_static(name), value);
            }
            _ => tracing::error!(name, "a response header has an invalid value"),
        }
        self
    }

    /// Adds a header with a constant value.
    fn with_constant(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        self
    }

    pub(crate) fn with_etag(self, etag: &str) -> Self {
        self.with("etag", etag)
    }

    pub(crate) fn metadata(reply: &MetadataReply) -> Self {
        let status = if reply.created { StatusCode::CREATED } else { StatusCode::OK };
        Self::json(status, reply.value.to_json()).with_etag(&reply.etag)
    }

    /// A feed of resources under the property name of its kind.
    pub(crate) fn feed(property: &str, page: &MetadataPage) -> Self {
        let mut rows = Vec::with_capacity(page.resources.len() * 256);
        for (at, resource) in page.resources.iter().enumerate() {
            if at > 0 {
                rows.push(b',');
            }
            rows.extend_from_slice(resource.to_json().as_bytes());
        }
        Self::rows(&page.owner_rid, property, &rows, page.resources.len(), page.continuation.as_deref())
    }

    /// A feed whose rows are already JSON text, separated by commas.
    pub(crate) fn rows(
        owner_rid: &str,
        property: &str,
        rows: &[u8],
        count: usize,
        continuation: Option<&str>,
    ) -> Self {
        // One allocation: the envelope around the rows is shorter than that.
        let mut body = Vec::with_capacity(rows.len() + 96);
        let mut head = String::from("{\"_rid\":");
        write_json_string(owner_rid, &mut head);
        head.push(',');
        write_json_string(property, &mut head);
        head.push_str(":[");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(rows);
        body.extend_from_slice(format!("],\"_count\":{count}}}").as_bytes());
        let reply = Self::json(StatusCode::OK, body).with("x-ms-item-count", count);
        match continuation {
            Some(token) => reply.with(headers::CONTINUATION, token),
            None => reply,
        }
    }

    /// Converts the response to binary JSON. A body that is not JSON is unchanged.
    pub(crate) fn into_binary(mut self) -> Self {
        if let Ok(value) = orrery_model::value::parse(&self.body) {
            self.body = binary_json::encode(&value).into();
        }
        self
    }

    /// An error in the service's format.
    pub(crate) fn error(error: &Error, activity_id: &str, uri: &str) -> Self {
        let wire = wire_status(error.kind);
        // Two layouts, as in the service: errors of its backend look like this, those of its gateway are plain
        // text (`auth_failure`).
        let mut message = String::from("Message: ");
        if error.kind == ErrorKind::InvalidQuery {
            // The text is already the JSON list of errors.
            message.push_str(&error.message);
        } else {
            message.push_str("{\"Errors\":[");
            write_json_string(&error.message, &mut message);
            message.push_str("]}");
        }
        let message = format!(
            "{message}\r\nActivityId: {activity_id}, Request URI: {uri}, RequestStats: , SDK: Orrery"
        );
        let mut reply = error_body(wire.status, wire.substatus, wire.code, &message);
        if let ErrorKind::TooManyRequests { retry_after_ms } = error.kind {
            reply = reply.with("x-ms-retry-after-ms", retry_after_ms);
        }
        reply
    }

    /// The error for a query that the client must merge, with its plan: clients parse both as JSON.
    pub(crate) fn not_served(error: &Error, plan: &Value, activity_id: &str) -> Self {
        let wire = wire_status(error.kind);
        let mut body = orrery_model::Object::new();
        body.set("code", Value::from(wire.code));
        let message = format!("{}\r\nActivityId: {activity_id}, Orrery", error.message);
        body.set("message", Value::from(message));
        body.set("additionalErrorInfo", Value::from(plan.to_json()));
        let status = StatusCode::from_u16(wire.status).unwrap_or(StatusCode::BAD_REQUEST);
        Self::json(status, Value::from(body).to_json()).with(headers::SUBSTATUS, wire.substatus)
    }

    /// An error with this status, sub-status and code.
    pub(crate) fn failure(
        (status, substatus, code): (u16, u16, &str),
        text: &str,
        activity_id: &str,
        uri: &str,
    ) -> Self {
        let mut message = String::from("Message: {\"Errors\":[");
        write_json_string(text, &mut message);
        let message = format!(
            "{message}]}}\r\nActivityId: {activity_id}, Request URI: {uri}, RequestStats: , SDK: Orrery"
        );
        error_body(status, substatus, code, &message)
    }

    pub(crate) fn auth_failure(failure: &AuthFailure, activity_id: &str) -> Self {
        let message = format!("{failure}\r\nActivityId: {activity_id}, Orrery");
        let wire = refusal_status(failure);
        error_body(wire.status, wire.substatus, wire.code, &message)
    }

    /// Adds the common headers and builds the HTTP response.
    pub(crate) fn finish(mut self, common: &Common<'_>) -> Response<Full<Bytes>> {
        self = self
            .with(headers::ACTIVITY_ID, common.activity_id)
            .with(headers::REQUEST_CHARGE, common.receipt.charge)
            .with(headers::VERSION, common.version)
            .with("x-ms-request-duration-ms", in_milliseconds(common.elapsed))
            .with_constant("x-ms-gatewayversion", "version=2.14.0")
            .with_constant("x-ms-serviceversion", "version=2.14.0.0")
            .with_constant("x-ms-schemaversion", "1.19");
        self = with_owner(self, common);
        if let Some(log) = &common.receipt.script_log {
            // A log has line breaks, which a header cannot carry; clients decode it as a URL component.
            let escaped = percent_encoding::utf8_percent_encode(log, NOT_IN_COMPONENTS).to_string();
            self = self.with(headers::SCRIPT_LOG, escaped);
        }
        self = with_data_plane_headers(self, common.receipt);
        if let Some(usage) = common.receipt.key_usage {
            self = with_usage(self, usage);
        }
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// Milliseconds with three decimals, using integers: formatting a float would take longer than the rest of the header.
fn in_milliseconds(time: Duration) -> impl Display {
    let microseconds = time.as_micros();
    std::fmt::from_fn(move |formatter| {
        write!(formatter, "{}.{:03}", microseconds / 1000, microseconds % 1000)
    })
}

/// The properties of a request that its response headers need.
pub(crate) struct Common<'a> {
    pub activity_id: &'a str,
    pub version: &'a str,
    pub receipt: &'a Receipt,
    pub path: &'a Path,
    /// The duration; the Rust client includes it in its diagnostics.
    pub elapsed: Duration,
}

/// The owner of the resource, by name and by RID. The Java client derives resource names from it; several clients key
/// their sessions by its RID.
fn with_owner(reply: Reply, common: &Common<'_>) -> Reply {
    let container = common.receipt.container.as_ref();
    let (name, rid) = match (common.path, container) {
        (Path::Container(_), Some(container)) => {
            (format!("dbs/{}", container.database_id), Some(container.rid.database().to_string()))
        }
        (Path::Containers(_), Some(created)) => {
            (format!("dbs/{}", created.database_id), Some(created.rid.database().to_string()))
        }
        // A RID in place of the name is not looked up: clients that send one know the name.
        (Path::Containers(database) | Path::Users(database) | Path::User(database, _), _)
            if DatabaseRid::parse(database).is_none() =>
        {
            (format!("dbs/{database}"), None)
        }
        (Path::Permissions(database, user) | Path::Permission(database, user, _), _)
            if DatabaseRid::parse(database).is_none() =>
        {
            (format!("dbs/{database}/users/{user}"), None)
        }
        (path, Some(container)) if path.container().is_some() => {
            (container.alt_path(), Some(container.rid.to_string()))
        }
        _ => return reply,
    };
    let name = percent_encoding::utf8_percent_encode(&name, NOT_IN_HEADERS).to_string();
    let reply = reply.with("x-ms-alt-content-path", name);
    // The service returns the RID only if the resource was found (asserted by the Java client's suite).
    match rid.filter(|_| reply.status.as_u16() < 400 && reply.status != StatusCode::MULTI_STATUS) {
        Some(rid) => reply.with("x-ms-content-path", rid),
        None => reply,
    }
}

/// The LSNs of the partitions involved, from which clients build session tokens.
fn with_data_plane_headers(reply: Reply, receipt: &Receipt) -> Reply {
    let (Some(token), Some(first)) = (receipt.session_token(), receipt.served.first()) else { return reply };
    // One header for several partitions: the session token has each of them.
    let lsn = receipt.served.iter().map(|served| served.lsn).max().unwrap_or(first.lsn);
    let item_lsn = receipt.item_lsn.unwrap_or(lsn);
    let mut reply = reply.with(headers::SESSION_TOKEN, token);
    let (lsn, item_lsn) = (HeaderValue::from(lsn), HeaderValue::from(item_lsn));
    for name in [
        "lsn",
        "x-ms-cosmos-llsn",
        "x-ms-global-committed-lsn",
        "x-ms-quorum-acked-lsn",
        "x-ms-cosmos-quorum-acked-llsn",
    ] {
        reply.headers.insert(HeaderName::from_static(name), lsn.clone());
    }
    for name in ["x-ms-item-lsn", "x-ms-cosmos-item-llsn"] {
        reply.headers.insert(HeaderName::from_static(name), item_lsn.clone());
    }
    reply
        // One replica in one region has everything that it acknowledged: with other numbers, clients in direct
        // mode would send barriers.
        .with_constant("x-ms-number-of-read-regions", "0")
        .with_constant("x-ms-xp-role", "1")
        .with_constant("x-ms-current-write-quorum", "1")
        .with_constant("x-ms-current-replica-set-size", "1")
        .with(headers::RANGE_ID, first.range_id)
        .with("x-ms-cosmos-internal-partition-id", first.range_id)
}

/// The container's quota and the usage of the written logical partition; counting the whole container on every write
/// would be too expensive.
fn with_usage(reply: Reply, usage: KeyUsage) -> Reply {
    let kilobytes = usage.bytes.div_ceil(1024);
    reply.with(headers::RESOURCE_QUOTA, item_quota(usage.partition_bytes_max)).with(
        headers::RESOURCE_USAGE,
        format_args!(
            "documentSize=0;documentsSize={kilobytes};documentsCount={};collectionSize={kilobytes};",
            usage.items
        ),
    )
}

/// Names may contain characters that are not allowed in headers.
const NOT_IN_HEADERS: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS.add(b'%');

/// What `encodeURIComponent` escapes.
const NOT_IN_COMPONENTS: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

fn error_body(status: u16, substatus: u16, code: &str, message: &str) -> Reply {
    let mut body = orrery_model::Object::new();
    body.set("code", Value::from(code));
    body.set("message", Value::from(message));
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let reply = Reply::json(status, Value::from(body).to_json());
    match substatus {
        0 => reply,
        _ => reply.with(headers::SUBSTATUS, substatus),
    }
}
