//! One request, end to end: who asks, for what, and the answer.

mod items;
mod resources;
mod scripts;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use orrery_db::{Access, ClientMerge, Database, MovableClock, SystemEnv, Trace};
use orrery_model::env::Env;
use orrery_model::{Error, ErrorKind};

use crate::admin;
use crate::auth::{AccountKeys, AuthFailure, AuthOptions, Principal, SignedRequest, authenticate};
use crate::consistency::{AccountConsistency, ConsistencyLevel};
use crate::faults::{FAULT_HEADER, Faults, Struck};
use crate::headers;
use crate::metrics::Metrics;
use crate::operation::Verb;
use crate::path::Path;
use crate::recording;
use crate::reply::{Common, Reply};
use crate::transport::{BodyError, ConnectionInfo, Handler, HangUp, read_body};

/// The largest request body: an item, or a whole batch.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// A client must have sent its body within this time.
const BODY_TIME_MAX: Duration = Duration::from_mins(1);

/// What the gateway needs besides the database.
pub struct GatewayOptions {
    pub keys: AccountKeys,
    pub auth: AuthOptions,
    pub metrics: Arc<Metrics>,
    /// The server's certificate, for download.
    pub certificate_pem: Option<String>,
    /// What the account promises its readers.
    pub consistency: AccountConsistency,
    /// A clock that operators may move; only for tests.
    pub clock: Option<Arc<MovableClock>>,
    pub cross_partition_queries: CrossPartitionQueries,
}

/// Who merges the rows of queries over several keys that are sorted, grouped, counted or cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrossPartitionQueries {
    /// The server, for everybody.
    Merge,
    /// The server; but clients that are known to ask for a plan are told to, where their merge is sure to be right.
    #[default]
    Auto,
    /// The client, always, as with the service.
    Plan,
}

impl CrossPartitionQueries {
    /// Whether a client is known to plan and merge when it is told to, and to need no more than that. The Python
    /// client is: its tests expect it to have asked for the ranges by then.
    pub(crate) fn follows(self, user_agent: Option<&str>) -> bool {
        self == Self::Auto && user_agent.is_some_and(|agent| agent.starts_with("azsdk-python-cosmos"))
    }

    pub(crate) fn client_merge(self, follows: bool) -> ClientMerge {
        match self {
            Self::Plan => ClientMerge::Always,
            Self::Auto if follows => ClientMerge::WhereSure,
            Self::Auto | Self::Merge => ClientMerge::Never,
        }
    }
}

impl GatewayOptions {
    /// The time that dates of signatures are compared with: clients do not follow a clock that was moved.
    pub(crate) fn signing_seconds(&self, database: &Database) -> i64 {
        if self.clock.is_some() { SystemEnv.now_seconds() } else { database.env().now_seconds() }
    }
}

/// Answers requests.
pub struct Gateway {
    database: Arc<Database>,
    options: GatewayOptions,
    faults: Faults,
}

/// A request whose caller is known and whose body is read.
pub(crate) struct Call<'a> {
    pub database: &'a Arc<Database>,
    pub parts: &'a Parts,
    pub verb: Verb,
    pub path: &'a Path,
    pub body: Bytes,
    pub connection: ConnectionInfo,
    pub cross_partition_queries: CrossPartitionQueries,
    pub activity_id: &'a str,
    pub consistency: AccountConsistency,
}

/// Why there is no ordinary answer.
pub(crate) enum Refusal {
    Auth(AuthFailure),
    Error(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<AuthFailure> for Refusal {
    fn from(failure: AuthFailure) -> Self {
        Self::Auth(failure)
    }
}

impl Gateway {
    pub fn new(database: Arc<Database>, options: GatewayOptions) -> Self {
        Self { database, options, faults: Faults::default() }
    }

    /// Answers one request; `body` gives its bytes when they are wanted.
    async fn answer<F>(&self, parts: Parts, connection: ConnectionInfo, body: F) -> Response<Full<Bytes>>
    where
        F: AsyncFnOnce() -> Result<Bytes, BodyError>,
    {
        let started = Instant::now();
        if admin::is_ours(parts.uri.path()) {
            return admin::answer(&parts, &connection, &self.database, &self.options, &self.faults, body)
                .await;
        }
        let activity_id = headers::non_empty(&parts.headers, headers::ACTIVITY_ID).map(str::to_owned);
        let activity_id = activity_id.unwrap_or_else(|| self.database.env().guid());
        let path = Path::of(&parts.uri);
        let mut trace = Trace::for_request(headers::priority(&parts.headers), None);
        let mut verb_name = "unknown";
        let mut struck: Option<Struck> = None;
        let outcome = async {
            let verb = Verb::decide(&parts.method, &path, &parts.headers)?;
            verb_name = verb.name();
            self.authorize(&parts, verb, &path)?;
            trace.bucket = headers::throughput_bucket(&parts.headers)?;
            if path.is_metadata() {
                self.database.admit_metadata(&mut trace)?;
            }
            let body = body().await.map_err(body_failure)?;
            let consistency = self.options.consistency;
            struck = self.faults.strike(&self.database, verb, &path, &parts.headers);
            if let Some(latency) = struck.as_ref().and_then(|struck| struck.latency) {
                tokio::time::sleep(latency).await;
            }
            let instead = struck.as_ref().and_then(|struck| struck.reply(&activity_id, parts.uri.path()));
            let after_work = struck.as_ref().is_some_and(|struck| struck.after_work);
            if !after_work && let Some(reply) = instead {
                return Ok(reply);
            }
            let call = Call {
                database: &self.database,
                parts: &parts,
                verb,
                path: &path,
                body,
                connection,
                cross_partition_queries: self.options.cross_partition_queries,
                activity_id: &activity_id,
                consistency,
            };
            let noted = recording::shape(&call);
            let reply = call.dispatch(&mut trace).await;
            let reads_items =
                !verb.writes() && verb != Verb::PlanQuery && matches!(path, Path::Items(_) | Path::Item(..));
            if reads_items
                && consistency.level_of(&parts.headers).is_ok_and(ConsistencyLevel::reads_cost_double)
            {
                trace.add(trace.charge);
            }
            if let Some(noted) = noted {
                recording::note(noted, &self.database, &trace, &reply);
            }
            let reply = reply.map_err(Refusal::from);
            // What was done stays done; only the answer is lost.
            match instead {
                Some(instead) if reply.is_ok() => Ok(instead),
                _ => reply,
            }
        };
        let reply = match outcome.await {
            Ok(reply) => reply,
            Err(Refusal::Auth(failure)) => Reply::auth_failure(&failure, &activity_id),
            Err(Refusal::Error(error)) => {
                if error.kind == ErrorKind::Internal {
                    tracing::error!(activity_id, %error, "a request failed by a fault of ours");
                }
                Reply::error(&error, &activity_id, parts.uri.path())
            }
        };
        let mut reply = reply;
        if let Some(struck) = &struck {
            reply = reply.with(FAULT_HEADER, &struck.id);
        }
        if parts.method == Method::HEAD {
            reply.body = Bytes::new();
        }
        self.database.settle(&trace);
        let status = reply.status.as_u16();
        let elapsed = started.elapsed();
        self.options.metrics.request(path.kind(), verb_name, status, elapsed, trace.charge);
        tracing::debug!(activity_id, operation = verb_name, resource = path.kind(), status, charge = %trace.charge, "answered");
        let version = headers::text(&parts.headers, headers::VERSION).unwrap_or("2018-12-31");
        // Absolute, with the address that the client used.
        if let Some(origin) = origin(&parts, &connection).filter(|_| parts.uri.path().is_ascii()) {
            reply = reply.with("content-location", format_args!("{origin}{}", parts.uri.path()));
        }
        let mut response =
            reply.finish(&Common { activity_id: &activity_id, version, trace: &trace, path: &path, elapsed });
        if struck.is_some_and(|struck| struck.drops_connection) {
            response.extensions_mut().insert(HangUp);
        }
        response
    }

    /// Who asks, and whether they may.
    fn authorize(&self, parts: &Parts, verb: Verb, path: &Path) -> Result<(), Refusal> {
        let now = self.options.signing_seconds(&self.database);
        let signed = SignedRequest::of(parts);
        match authenticate(&signed, &self.options.keys, self.options.auth, now)? {
            Principal::ReadOnly if verb.writes() || has_tokens(path) => Err(AuthFailure::ReadOnlyKey.into()),
            Principal::Aad if verb.writes() && !is_data(verb, path) => Err(AuthFailure::AadOperation.into()),
            Principal::Master | Principal::ReadOnly | Principal::Aad => Ok(()),
            Principal::ResourceToken(signature) => {
                let grant = self.database.open_resource_token(&signature)?;
                if *path == Path::Account {
                    return Ok(());
                }
                let Some(at) = path.container() else { return Err(AuthFailure::ResourceTokenRights.into()) };
                let key = headers::partition_key(&parts.headers)?;
                let access = Access {
                    database: &at.database,
                    container: &at.container,
                    child: match path {
                        Path::Item(_, id) => Some(("docs", id)),
                        Path::Script(_, kind, id) => Some((kind.keyword(), id)),
                        _ => None,
                    },
                    writes: verb.writes(),
                    is_routing: matches!(path, Path::Container(_) | Path::Ranges(_))
                        || verb == Verb::PlanQuery,
                    partition_key: key.as_ref(),
                };
                Ok(self.database.check_grant(&grant, &access)?)
            }
        }
    }
}

/// Scheme and host as the client named them: HTTP/2 has the host in the URL, HTTP/1.1 in a header.
fn origin(parts: &Parts, connection: &ConnectionInfo) -> Option<String> {
    let host = parts.uri.authority().map(http::uri::Authority::as_str);
    let host = host.or_else(|| headers::non_empty(&parts.headers, "host"))?;
    let scheme = if connection.tls { "https" } else { "http" };
    Some(format!("{scheme}://{host}"))
}

/// What read-only keys may not even read: whoever has a token of a permission can write with it.
fn has_tokens(path: &Path) -> bool {
    matches!(path, Path::Permissions(..) | Path::Permission(..))
}

/// What Entra tokens may change: items, and what scripts do to them.
fn is_data(verb: Verb, path: &Path) -> bool {
    matches!(path, Path::Items(_) | Path::Item(..) | Path::PartitionKeyDelete(_))
        || verb == Verb::Execute && matches!(path, Path::Script(..))
}

impl Handler for Gateway {
    async fn handle(&self, request: Request<Incoming>, connection: ConnectionInfo) -> Response<Full<Bytes>> {
        let (parts, incoming) = request.into_parts();
        let body = async || read_body(incoming, BODY_BYTES_MAX, BODY_TIME_MAX).await;
        self.answer(parts, connection, body).await
    }
}

fn body_failure(failure: BodyError) -> Error {
    match failure {
        BodyError::TooLarge => Error::new(ErrorKind::TooLarge, "Request size is too large"),
        BodyError::TimedOut => Error::new(ErrorKind::Timeout, "The request body did not arrive in time."),
        BodyError::Broken(detail) => {
            Error::bad_request(format!("The request body could not be read: {detail}."))
        }
    }
}
