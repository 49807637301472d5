//! Orrery's own API under `/_orrery`, separate from the wire protocol: health, metrics, the certificate, partitions.
//!
//! Health and the certificate need no authentication, nor do metrics on loopback. Everything else must be signed with
//! an account key like any request, and returns JSON.

mod advise;
mod checkpoints;
mod controls;
mod explain;
mod exposition;
mod health;
mod keys;
mod live;
mod partition_metrics;
mod process_metrics;
mod recordings;
mod server;
mod synthetic;

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use orrery_db::{Database, ThrottleCause, ThrottleEvent};
use orrery_env::monotonic;
use orrery_model::value::Value;
use orrery_model::{Error, Object, Result};

use self::exposition::Format;
use crate::auth::{AuthFailure, Principal, SignedRequest, authenticate};
use crate::explorer;
use crate::faults::Faults;
use crate::observation::{self, Observer};
use crate::options::GatewayOptions;
use crate::path::Path;
use crate::refusal::Refusal;
use crate::reply::{Common, Reply};
use crate::transport::{BodyError, ConnectionInfo};

/// Whether a path belongs to this API.
pub(crate) fn is_ours(path: &str) -> bool {
    path.starts_with("/_orrery")
        || path.starts_with("/_explorer")
        // The last three are the probes of the vNext emulator.
        || matches!(path, "/alive" | "/ready" | "/status")
}

/// State shared by the administrative requests of a server.
#[derive(Default)]
pub(crate) struct AdminState {
    pub(crate) faults: Faults,
    checkpoints: checkpoints::Checkpoints,
}

/// What administrative requests work on.
#[derive(Clone, Copy)]
pub(crate) struct AdminContext<'a> {
    pub(crate) database: &'a Arc<Database>,
    pub(crate) options: &'a GatewayOptions,
    pub(crate) state: &'a AdminState,
    pub(crate) observer: &'a Observer,
}

/// Handles a request below `/_orrery/` or `/_explorer/`.
pub(crate) async fn answer<F>(
    parts: &Parts,
    connection: &ConnectionInfo,
    context: AdminContext<'_>,
    body: F,
) -> Response<Full<Bytes>>
where
    F: AsyncFnOnce() -> std::result::Result<Bytes, BodyError>,
{
    let AdminContext { database, options, .. } = context;
    let path = parts.uri.path().trim_end_matches('/');
    let reads = parts.method == Method::GET || parts.method == Method::HEAD;
    match path {
        "/alive" if reads => text(StatusCode::OK, "application/json", "{\"status\":\"alive\"}\n"),
        "/_orrery/health" | "/ready" if reads => health::health(database),
        "/status" if reads => health::status(database),
        // A scraper on the same machine needs no key; from elsewhere the arm at the end asks for one.
        "/_orrery/metrics" if reads && connection.peer.ip().is_loopback() => {
            let format = Format::negotiate(&parts.headers);
            text(StatusCode::OK, format.content_type(), metrics_text(database, options, format).await)
        }
        // Where the vendor's emulator serves its certificate, so that scripts that fetch it work unchanged.
        "/_explorer/emulator.pem" if reads => match &options.certificate {
            Some(current) => text(StatusCode::OK, "application/x-pem-file", current.trust_pem()),
            None => text(StatusCode::NOT_FOUND, "text/plain", "This server has no certificate.\n"),
        },
        _ if explorer::is_asset(path) && reads => explorer::answer(path, &parts.headers),
        _ => signed(parts, connection, path, context, body).await,
    }
}

/// POST requests that change nothing.
const READS: [&str; 3] = ["/_orrery/explain", "/_orrery/explain-charge", "/_orrery/advise"];

/// The keys of the account, which read-only ones have no part in.
const KEYS: &str = "/_orrery/keys";

/// Whether a request is one for read-only keys too.
fn is_read(method: &Method, path: &str) -> bool {
    READS.contains(&path) || method == Method::GET && !path.starts_with(KEYS)
}

/// Requests that need an account key.
async fn signed<F>(
    parts: &Parts,
    connection: &ConnectionInfo,
    path: &str,
    context: AdminContext<'_>,
    body: F,
) -> Response<Full<Bytes>>
where
    F: AsyncFnOnce() -> std::result::Result<Bytes, BodyError>,
{
    let AdminContext { database, options, state, observer } = context;
    let started = monotonic::now();
    let activity_id = database.env().guid();
    let outcome = async {
        let now = options.signing_seconds(database);
        // Before the body is read, as for every other request.
        let principal = authenticate(&SignedRequest::of(parts), &options.keys.current(), options.auth, now)?;
        match principal {
            Principal::Master => {}
            Principal::ReadOnly if is_read(&parts.method, path) => {}
            Principal::ReadOnly => return Err(AuthFailure::ReadOnlyKey.into()),
            // Their rights are those of the wire protocol, and cover nothing here.
            Principal::Aad | Principal::ResourceToken(_) => {
                return Err(AuthFailure::ResourceTokenRights.into());
            }
        }
        let body = body().await.map_err(|error| Error::bad_request(error.to_string()))?;
        let query = parts.uri.query().unwrap_or_default();
        if path == "/_orrery/faults" || path.starts_with("/_orrery/faults/") {
            // The movable clock exists only with test controls.
            let is_allowed = options.clock.is_some();
            return controls::faults(database, &state.faults, is_allowed, &parts.method, path, &body)
                .map_err(Refusal::from);
        }
        if let Some(rest) = path.strip_prefix(KEYS) {
            let routed = keys::route(database, &options.keys, &parts.method, rest, &body).await;
            return routed.map_err(Refusal::from);
        }
        if let Some(rest) = path.strip_prefix("/_orrery/checkpoints") {
            let routed = state.checkpoints.route(database, &parts.method, rest, query).await;
            return routed.map_err(Refusal::from);
        }
        if path == "/_orrery/metrics" && parts.method == Method::GET {
            let format = Format::negotiate(&parts.headers);
            let mut reply = Reply::json(StatusCode::OK, metrics_text(database, options, format).await);
            reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
            return Ok(reply);
        }
        route(database, options, &parts.method, path, query, &body).await.map_err(Refusal::from)
    };
    let reply = match outcome.await {
        Ok(reply) => reply,
        Err(Refusal::Auth(failure)) => {
            observer.refused(database, connection.peer, &activity_id, path, &failure);
            Reply::auth_failure(&failure, &activity_id)
        }
        Err(Refusal::Error(error)) => Reply::error(&error, &activity_id, path),
    };
    // Reading the list of keys is not for read-only keys, but changes nothing either.
    if !is_read(&parts.method, path) && parts.method != Method::GET {
        let (method, status) = (parts.method.as_str(), reply.status.as_u16());
        observation::control_plane(connection.peer, &activity_id, method, path, status);
    }
    let receipt = orrery_db::Receipt::default();
    reply.finish(&Common {
        activity_id: &activity_id,
        version: "2018-12-31",
        receipt: &receipt,
        path: &Path::Unknown,
        elapsed: monotonic::elapsed(started),
    })
}

async fn route(
    database: &Arc<Database>,
    options: &GatewayOptions,
    method: &Method,
    path: &str,
    query: &str,
    body: &[u8],
) -> Result<Reply> {
    match (method, path) {
        (&Method::GET, "/_orrery/partitions") => list_partitions(database, query).await,
        (&Method::GET, "/_orrery/partitions/heat") => live::heat(database, query),
        (&Method::GET, "/_orrery/partitions/keys") => live::keys(database, query).await,
        (&Method::GET, "/_orrery/partitions/locate") => live::locate(database, query),
        (&Method::POST, "/_orrery/partitions/split") => controls::split(database, body).await,
        (&Method::POST, "/_orrery/partitions/merge") => controls::merge(database, body).await,
        (&Method::POST, "/_orrery/explain-charge") => controls::explain_charge(database, body).await,
        (&Method::GET | &Method::POST, "/_orrery/clock") => {
            controls::clock(database, options.clock.as_ref(), method, body)
        }
        (&Method::GET | &Method::POST, "/_orrery/explain") => {
            explain::explain(database, method, query, body).await
        }
        (&Method::GET, "/_orrery/server") => Ok(server::show(database, options)),
        (&Method::GET, "/_orrery/store") => server::store(database).await,
        (&Method::POST, "/_orrery/advise") => advise::advise(query, body).await,
        (&Method::GET, "/_orrery/synthetic") => synthetic::show(database, query),
        (&Method::POST, "/_orrery/synthetic") => synthetic::set(database, body).await,
        (&Method::GET, "/_orrery/repartition") => synthetic::repartition_status(database, query),
        (&Method::POST, "/_orrery/repartition") => synthetic::repartition(database, body).await,
        (&Method::POST, "/_orrery/repartition/abort") => synthetic::abort(database, body).await,
        (&Method::GET, "/_orrery/throttles") => {
            let events: Vec<Value> = database.throttle_events().iter().map(throttle_value).collect();
            Ok(Reply::json(StatusCode::OK, Value::from(events).to_json()))
        }
        _ if path.starts_with("/_orrery/recordings") => {
            recordings::route(database, method, path, query, body)
        }
        _ => Err(Error::new(orrery_model::ErrorKind::NotFound, "There is nothing here.")),
    }
}

/// An argument in a query string, unescaped.
fn query_argument(query: &str, name: &str) -> Option<String> {
    let pair = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    pair.map(|text| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned())
}

/// All containers with their partitions, or the one named by `?database=…&container=…`.
async fn list_partitions(database: &Arc<Database>, query: &str) -> Result<Reply> {
    let views = match (query_argument(query, "database"), query_argument(query, "container")) {
        (Some(name), Some(container)) => vec![database.container_view(&name, &container).await?],
        (None, None) => database.partition_views().await?,
        _ => return Err(Error::bad_request("Specify both the database and the container, or neither.")),
    };
    let views: Vec<Value> = views.iter().map(orrery_db::ContainerView::to_value).collect();
    Ok(Reply::json(StatusCode::OK, Value::from(views).to_json()))
}

/// The container that `?database=…&container=…` names.
fn place_in(query: &str) -> Result<(String, String)> {
    match (query_argument(query, "database"), query_argument(query, "container")) {
        (Some(name), Some(container)) => Ok((name, container)),
        _ => Err(Error::bad_request("Specify the database and the container.")),
    }
}

/// The server's metrics, with those of the process, the store, containers and partitions.
async fn metrics_text(database: &Arc<Database>, options: &GatewayOptions, format: Format) -> String {
    let own = options.metrics.encode();
    // The marker may only come at the very end.
    let head = own.strip_suffix("# EOF\n").unwrap_or(&own);
    let loads = database.partition_loads().await;
    let catalog = database.catalog();
    format.write(format!(
        "{head}{}{}{}{}",
        process_metrics::series(options.observation.data_directory.as_deref()),
        health::store_series(database),
        options.metrics.containers.series(|rid| catalog.container_by_rid(rid).is_some()),
        partition_metrics::series(&loads)
    ))
}

fn throttle_value(event: &ThrottleEvent) -> Value {
    let mut object = Object::new();
    object.set("atMs", Value::from(event.at_ms));
    if let Some(container) = &event.container {
        object.set("container", Value::from(container.as_str()));
        object.set("partition", Value::from(event.range_id.to_string()));
    }
    if let Some(key) = &event.key {
        object.set("partitionKey", Value::from(key.as_str()));
    }
    let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
    object.set("keySharePercent", number(event.key_share_percent));
    object.set("budgetPerSecond", number(event.budget_per_second));
    let cause = match event.cause {
        ThrottleCause::Budget => "the partition's budget for the second was spent".to_owned(),
        ThrottleCause::Priority => "the rest of the second was reserved for high priority".to_owned(),
        ThrottleCause::Metadata => "the account's budget for metadata was spent".to_owned(),
        ThrottleCause::AccountLimit => "too many changes of the account's resources".to_owned(),
        ThrottleCause::Bucket(number) => format!("the share of throughput bucket {number} was spent"),
    };
    object.set("cause", Value::from(cause.as_str()));
    object.set("retryAfterMs", number(u64::from(event.retry_after_ms)));
    object.set("wouldPassAtMs", Value::from(event.at_ms.saturating_add(event.retry_after_ms.into())));
    object.into()
}

fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
