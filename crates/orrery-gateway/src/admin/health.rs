//! Health and readiness, and the store's part of the metrics.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use orrery_db::{Database, Health};
use orrery_model::Object;
use orrery_model::value::Value;

use super::text;

/// Readiness: 503 with the reason if the store accepts no writes.
pub(super) fn health(database: &Database) -> Response<Full<Bytes>> {
    report(database, Object::new())
}

/// Health in detail, at the same path as in the vNext emulator: also the version, and how long the oldest write has
/// been waiting.
pub(super) fn status(database: &Database) -> Response<Full<Bytes>> {
    let mut object = Object::new();
    object.set("version", Value::from(env!("CARGO_PKG_VERSION")));
    object.set("timestampMs", Value::from(database.env().now_ms()));
    object.set("alive", Value::from(true));
    object.set("ready", Value::from(matches!(database.store_health(), Health::Ready)));
    object.set("oldestWriteWaitSeconds", Value::from(database.oldest_write_wait().as_secs_f64()));
    report(database, object)
}

fn report(database: &Database, mut object: Object) -> Response<Full<Bytes>> {
    let (status, state, reason) = match database.store_health() {
        // Load balancers take a server out on 503, although it still serves reads: writes go where they succeed.
        Health::Ready => (StatusCode::OK, "ready", None),
        Health::Impaired(reason) => (StatusCode::SERVICE_UNAVAILABLE, "impaired", Some(reason)),
        Health::Failed(reason) => (StatusCode::SERVICE_UNAVAILABLE, "failed", Some(reason)),
    };
    object.set("status", Value::from(state));
    object.set("store", Value::from(database.store_name()));
    if let Some(reason) = reason {
        let advice = match state {
            "failed" => "restart the server: it accepts no writes until then",
            _ => "the server recovers automatically once the cause is resolved",
        };
        object.set("reason", Value::from(reason.as_str()));
        object.set("advice", Value::from(advice));
    }
    // The line break is for people with curl.
    let body = format!("{}\n", Value::from(object).to_json());
    text(status, "application/json", body)
}

/// The store's part of the metrics.
pub(super) fn store_series(database: &Database) -> String {
    let state = match database.store_health() {
        Health::Ready => 0,
        Health::Impaired(_) => 1,
        Health::Failed(_) => 2,
    };
    let waited = database.oldest_write_wait().as_secs_f64();
    format!(
        "# HELP orrery_store_health 0 = ready, 1 = impaired (writes are rejected or stalled), 2 = failed\n\
         # TYPE orrery_store_health gauge\n\
         orrery_store_health {state}\n\
         # HELP orrery_store_oldest_write_wait_seconds How long the oldest write has been waiting\n\
         # TYPE orrery_store_oldest_write_wait_seconds gauge\n\
         # UNIT orrery_store_oldest_write_wait_seconds seconds\n\
         orrery_store_oldest_write_wait_seconds {waited}\n"
    )
}
