//! Our own surface, out of the way of the wire protocol: health, metrics, the certificate.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use orrery_db::Database;

use crate::auth::{SignedRequest, authenticate};
use crate::service::GatewayOptions;
use crate::transport::ConnectionInfo;

/// Answers requests below `/_orrery/` and `/_explorer/`; others are not ours.
pub(crate) fn answer(
    parts: &Parts,
    connection: &ConnectionInfo,
    database: &Database,
    options: &GatewayOptions,
) -> Option<Response<Full<Bytes>>> {
    let path = parts.uri.path().trim_end_matches('/');
    if !path.starts_with("/_orrery") && !path.starts_with("/_explorer") {
        return None;
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Some(text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "Only GET is supported here.\n"));
    }
    Some(match path {
        "/_orrery/health" => {
            let body = format!("{{\"status\":\"ready\",\"store\":\"{}\"}}\n", database.store_name());
            text(StatusCode::OK, "application/json", body)
        }
        "/_orrery/metrics" if may_see_metrics(parts, connection, database, options) => {
            text(StatusCode::OK, METRICS_TYPE, options.metrics.encode())
        }
        "/_orrery/metrics" => text(
            StatusCode::UNAUTHORIZED,
            "text/plain",
            "Metrics are open on loopback; from elsewhere the request must be signed with an account key.\n",
        ),
        "/_explorer/emulator.pem" => match &options.certificate_pem {
            Some(pem) => text(StatusCode::OK, "application/x-pem-file", pem.clone()),
            None => text(StatusCode::NOT_FOUND, "text/plain", "This server has no certificate.\n"),
        },
        "/_explorer" | "/_explorer/index.html" => {
            text(StatusCode::NOT_FOUND, "text/plain", "This build has no explorer page.\n")
        }
        _ => text(StatusCode::NOT_FOUND, "text/plain", "There is nothing here.\n"),
    })
}

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn may_see_metrics(
    parts: &Parts,
    connection: &ConnectionInfo,
    database: &Database,
    options: &GatewayOptions,
) -> bool {
    let now = database.env().now_seconds();
    connection.peer.ip().is_loopback()
        || authenticate(&SignedRequest::of(parts), &options.keys, options.auth, now).is_ok()
}

fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
