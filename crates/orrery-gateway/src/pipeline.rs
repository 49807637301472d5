//! One request, end to end, as a list of named steps.
//!
//! 1. Foreign hosts and web pages are rejected (`hosts`); Orrery's own API goes to `admin`.
//! 2. The operation is determined once, from method, path and headers (`operation`).
//! 3. The request is authenticated and authorised (`auth`, `rights`). The body of a rejected request is not read.
//! 4. The body is read, within the shared memory budget (`memory`).
//! 5. A fault injection rule may apply (`faults`).
//! 6. The database executes it (`dispatch`), and it is recorded if its container's workload is being recorded
//!    (`recorder`).
//! 7. The charge is settled, the request is counted, and the common response headers are added (`reply`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use orrery_db::{Database, Receipt, RequestContext};
use orrery_env::monotonic;
use orrery_model::{Error, ErrorKind};

use crate::addresses::Replica;
use crate::admin::{AdminContext, AdminState};
use crate::consistency::ConsistencyLevel;
use crate::dispatch::{BODY_BYTES_MAX, Call, origin};
use crate::faults::{FAULT_HEADER, Struck};
use crate::memory::MemoryPart;
use crate::observation::{self, Answered, Observer};
use crate::operation::Verb;
use crate::options::GatewayOptions;
use crate::path::Path;
use crate::refusal::Refusal;
use crate::reply::{Common, Reply};
use crate::transport::{BodyError, ConnectionInfo, Handler, HangUp, HeldUntilSent, discard_body, read_body};
use crate::{admin, explorer, headers, memory, recorder, rights};

/// A client must have sent its body within this time.
const BODY_TIME_MAX: Duration = Duration::from_mins(1);

/// The API version assumed if a client sends none.
const DEFAULT_VERSION: &str = "2018-12-31";

/// Handles requests: the entry point of the gateway.
pub struct Gateway {
    database: Arc<Database>,
    options: GatewayOptions,
    admin: AdminState,
    observer: Observer,
}

/// A request that came in direct mode.
pub(crate) struct DirectCall {
    pub parts: Parts,
    pub connection: ConnectionInfo,
    /// The replica that the client addressed.
    pub replica: Replica,
    /// The payload, or why it was dropped.
    pub payload: Result<Bytes, BodyError>,
    /// Memory already reserved for the payload.
    pub held: Option<MemoryPart>,
}

/// A request in progress, with what its response needs whether it succeeds or fails.
struct Exchange {
    parts: Parts,
    connection: ConnectionInfo,
    path: Path,
    activity_id: String,
    started: Instant,
    /// The addressed replica, in direct mode.
    replica: Replica,
    /// Set once it is known.
    verb: Option<Verb>,
    receipt: Receipt,
    /// The injected fault that applies to the request.
    struck: Option<Struck>,
    /// Held until the client has read the response.
    answer_memory: Option<MemoryPart>,
    /// The body of a query, for the log of slow requests.
    query: Option<Bytes>,
}

impl Gateway {
    pub fn new(database: Arc<Database>, options: GatewayOptions) -> Self {
        Self { database, options, admin: AdminState::default(), observer: Observer::default() }
    }

    /// Handles one request; rejects those of foreign web pages.
    async fn answer<F>(&self, parts: Parts, connection: ConnectionInfo, body: F) -> Response<Full<Bytes>>
    where
        F: AsyncFnOnce() -> Result<Bytes, BodyError>,
    {
        // Before authentication: a web page on a developer's machine could sign with the key that everyone knows.
        if let Some(refused) = self.refuse_foreign(&parts, connection.peer) {
            return refused;
        }
        let hosts = &self.options.hosts;
        // Browsers send a preflight without credentials, so it is answered before authentication.
        if hosts.is_preflight(&parts) {
            let activity_id = self.database.env().guid();
            let mut response = self.answer_page(&parts, &activity_id, Reply::new(StatusCode::NO_CONTENT));
            hosts.answer_preflight(&parts.headers, response.headers_mut());
            return response;
        }
        // Only browsers send an origin; requests of SDKs skip the copy of their headers.
        if !parts.headers.contains_key(http::header::ORIGIN) {
            return self.answer_accepted(parts, connection, body).await;
        }
        let asked = parts.headers.clone();
        let mut response = self.answer_accepted(parts, connection, body).await;
        hosts.mark(&asked, response.headers_mut());
        response
    }

    /// The response to a request with a foreign host name, or of a foreign web page.
    pub(crate) fn refuse_foreign(&self, parts: &Parts, peer: SocketAddr) -> Option<Response<Full<Bytes>>> {
        let failure = self.options.hosts.check(parts).err()?;
        let activity_id = self.database.env().guid();
        self.observer.refused(&self.database, peer, &activity_id, parts.uri.path(), &failure);
        Some(self.answer_page(parts, &activity_id, Reply::auth_failure(&failure, &activity_id)))
    }

    /// A response that needs neither the database nor authorisation.
    fn answer_page(&self, parts: &Parts, activity_id: &str, mut reply: Reply) -> Response<Full<Bytes>> {
        if parts.method == Method::HEAD {
            reply.body = Bytes::new();
        }
        let path = Path::of(&parts.uri);
        let (receipt, elapsed) = (Receipt::default(), Duration::ZERO);
        let version = headers::text(&parts.headers, headers::VERSION).unwrap_or(DEFAULT_VERSION);
        self.options.metrics.request(path.kind(), "unknown", reply.status.as_u16(), elapsed, receipt.charge);
        reply.finish(&Common { activity_id, version, receipt: &receipt, path: &path, elapsed })
    }

    /// `body` yields the request's bytes on demand.
    async fn answer_accepted<F>(
        &self,
        parts: Parts,
        connection: ConnectionInfo,
        body: F,
    ) -> Response<Full<Bytes>>
    where
        F: AsyncFnOnce() -> Result<Bytes, BodyError>,
    {
        // The root serves two kinds of visitors: clients read the account document there, people want the page.
        if explorer::is_visit(&parts) {
            return explorer::redirect();
        }
        if admin::is_ours(parts.uri.path()) {
            let context = AdminContext {
                database: &self.database,
                options: &self.options,
                state: &self.admin,
                observer: &self.observer,
            };
            return admin::answer(&parts, &connection, context, body).await;
        }
        let exchange = self.begin(parts, connection, Replica::default());
        self.answer_exchange(exchange, body).await
    }

    /// Handles a request in direct mode, which no web page can send.
    pub(crate) async fn answer_direct(&self, call: DirectCall) -> Response<Full<Bytes>> {
        let DirectCall { parts, connection, replica, payload, mut held } = call;
        // Small payloads arrive without a reservation; it is made here, where the request is known to be
        // authorised.
        let body = async || {
            let payload = payload?;
            if held.is_none() {
                let part = self.options.memory.hold_body(payload.len() as u64).await;
                held = Some(part.map_err(|_| BodyError::NoMemory)?);
            }
            Ok(payload)
        };
        let exchange = self.begin(parts, connection, replica);
        self.answer_exchange(exchange, body).await
    }

    /// Handles a request of Gateway 2.0. Its `payload` is read once the request is authorised.
    pub(crate) async fn answer_framed<F>(
        &self,
        parts: Parts,
        connection: ConnectionInfo,
        payload: F,
    ) -> Response<Full<Bytes>>
    where
        F: AsyncFnOnce() -> Result<Bytes, BodyError>,
    {
        let exchange = self.begin(parts, connection, Replica::default());
        self.answer_exchange(exchange, payload).await
    }

    async fn answer_exchange<F>(&self, mut exchange: Exchange, body: F) -> Response<Full<Bytes>>
    where
        F: AsyncFnOnce() -> Result<Bytes, BodyError>,
    {
        let outcome = self.run(&mut exchange, body).await;
        let reply = self.reply(&exchange, outcome);
        self.finish(exchange, reply)
    }

    /// Whether a request is authorised, and its payload therefore worth reserving memory for.
    pub(crate) async fn may_send(&self, parts: &Parts) -> bool {
        let path = Path::of(&parts.uri);
        // Only decides about memory: the pipeline authorises the request again when it runs.
        let Ok(verb) = Verb::decide(&parts.method, &path, &parts.headers) else { return false };
        rights::authorize(&self.database, &self.options, parts, verb, &path).await.is_ok()
    }

    /// Waits for memory for a payload.
    pub(crate) async fn hold_body(&self, bytes: u64) -> Option<MemoryPart> {
        self.options.memory.hold_body(bytes).await.ok()
    }

    /// The response to a malformed request.
    pub(crate) fn refuse(&self, activity_id: &str, error: &Error) -> Response<Full<Bytes>> {
        let reply = Reply::error(error, activity_id, "");
        let (receipt, path, elapsed) = (Receipt::default(), Path::Unknown, Duration::ZERO);
        self.options.metrics.request(path.kind(), "unknown", reply.status.as_u16(), elapsed, receipt.charge);
        let version = DEFAULT_VERSION;
        reply.finish(&Common { activity_id, version, receipt: &receipt, path: &path, elapsed })
    }

    fn begin(&self, parts: Parts, connection: ConnectionInfo, replica: Replica) -> Exchange {
        // A client may choose the id, so that its log and ours name the request alike.
        let activity_id = headers::non_empty(&parts.headers, headers::ACTIVITY_ID).map(str::to_owned);
        Exchange {
            started: monotonic::now(),
            path: Path::of(&parts.uri),
            activity_id: activity_id.unwrap_or_else(|| self.database.env().guid()),
            replica,
            verb: None,
            receipt: Receipt::default(),
            struck: None,
            answer_memory: None,
            query: None,
            parts,
            connection,
        }
    }

    /// The steps that can fail.
    async fn run<F>(&self, exchange: &mut Exchange, body: F) -> Result<Reply, Refusal>
    where
        F: AsyncFnOnce() -> Result<Bytes, BodyError>,
    {
        let verb = Verb::decide(&exchange.parts.method, &exchange.path, &exchange.parts.headers)?;
        exchange.verb = Some(verb);
        // Before every other check, so that a caller without rights learns nothing from the errors below.
        rights::authorize(&self.database, &self.options, &exchange.parts, verb, &exchange.path).await?;
        headers::check_version(&exchange.parts.headers)?;
        // Priority and throughput bucket must be known before the first admission.
        exchange.receipt = Receipt::open(request_context(&exchange.parts.headers)?);
        // A request that will be sent again elsewhere is charged nothing here.
        if let Some(moved) = self.check_replica(exchange) {
            return Ok(moved);
        }
        if exchange.path.is_metadata() {
            self.database.admit_metadata(&mut exchange.receipt)?;
        }
        // Only now: clients without rights cannot make the server read, or hold, anything.
        let body = body().await.map_err(body_failure)?;
        // The body is held already; working memory has a pool of its own, so waiting here cannot deadlock.
        let working = self.options.memory.hold_work(verb, body.len()).await?;
        let instead = self.strike(exchange, verb).await;
        // A rule replaces either the work, or only the response to it: the latter tests what a client does about a
        // write that was committed without its knowledge.
        let after_work = exchange.struck.as_ref().is_some_and(|struck| struck.after_work);
        if !after_work && let Some(reply) = instead {
            return Ok(reply);
        }
        exchange.query = (verb == Verb::Query).then(|| body.clone());
        let reply = self.dispatch(exchange, verb, body).await?;
        // Only the response takes memory from here on, and it is counted in its own pool.
        drop(working);
        let held = self.options.memory.hold_answer(reply.body.len());
        // The write is committed, so send its response even without reserved memory.
        exchange.answer_memory = if verb.writes() { held.ok() } else { Some(held?) };
        // The work is done; only the response is lost.
        Ok(instead.unwrap_or(reply))
    }

    /// The error for a stale replica address, which makes the client refresh its routing. An unknown partition may just
    /// have been created by another server.
    fn check_replica(&self, exchange: &Exchange) -> Option<Reply> {
        let Replica { container: Some(addressed), range_id: Some(range_id) } = exchange.replica else {
            return None;
        };
        let at = exchange.path.container()?;
        let catalog = self.database.catalog();
        // A container that is gone altogether is reported by the operation itself.
        let container = catalog.container(&at.database, &at.container).ok()?;
        // RIDs are never reused: another one under the same name means that the container was recreated.
        let (substatus, message) = if container.rid != addressed {
            (1000, "The requested resource is no longer available at the server: the container was replaced.")
        } else if container.former.iter().any(|former| former.range_id == range_id) {
            // Clients that named a range look for its successors; those that named a key look up its range again, but
            // only on the sub-status for a split in progress: otherwise they give up.
            let names_range = exchange.parts.headers.contains_key(headers::RANGE_ID);
            let substatus = if names_range { 1002 } else { 1007 };
            (
                substatus,
                "The requested resource is no longer available at the server: the partition was split or merged.",
            )
        } else {
            return None;
        };
        let uri = exchange.parts.uri.path();
        Some(Reply::failure((410, substatus, "Gone"), message, &exchange.activity_id, uri))
    }

    /// Applies a fault rule; returns the response that replaces the real one.
    async fn strike(&self, exchange: &mut Exchange, verb: Verb) -> Option<Reply> {
        let struck =
            self.admin.faults.strike(&self.database, verb, &exchange.path, &exchange.parts.headers)?;
        if let Some(latency) = struck.latency {
            // The delay applies also to requests that then succeed.
            orrery_env::task::sleep(latency).await;
        }
        let instead = struck.reply(&exchange.activity_id, exchange.parts.uri.path());
        exchange.struck = Some(struck);
        instead
    }

    /// Executes the request, and records it if its container is being recorded.
    async fn dispatch(&self, exchange: &mut Exchange, verb: Verb, body: Bytes) -> Result<Reply, Error> {
        let Exchange { parts, path, receipt, .. } = exchange;
        let consistency = self.options.consistency;
        let call = Call {
            database: &self.database,
            parts,
            verb,
            path,
            body,
            connection: exchange.connection,
            cross_partition_queries: self.options.cross_partition_queries,
            activity_id: &exchange.activity_id,
            consistency,
            memory: &self.options.memory,
            advertised: self.options.advertised.as_deref(),
            direct: self.options.direct.as_ref(),
            gateway_v2: self.options.gateway_v2.as_ref(),
        };
        // Before the work, which consumes the call.
        let noted = recorder::shape(&call);
        let reply = call.dispatch(receipt).await;
        let reads_items =
            !verb.writes() && verb != Verb::PlanQuery && matches!(path, Path::Items(_) | Path::Item(..));
        // Batches are not doubled here, because only the reads among their operations cost double; they do it
        // themselves.
        let level = consistency.level_of(&parts.headers);
        if reads_items && level.is_ok_and(ConsistencyLevel::reads_cost_double) {
            receipt.add(receipt.charge);
        }
        if let Some(noted) = noted {
            recorder::note(noted, &self.database, receipt, &reply);
        }
        reply
    }

    /// Converts the outcome into a response.
    fn reply(&self, exchange: &Exchange, outcome: Result<Reply, Refusal>) -> Reply {
        let (activity_id, path) = (exchange.activity_id.as_str(), exchange.parts.uri.path());
        match outcome {
            Ok(reply) => reply,
            Err(Refusal::Auth(failure)) => {
                let peer = exchange.connection.peer;
                self.observer.refused(&self.database, peer, activity_id, path, &failure);
                Reply::auth_failure(&failure, activity_id)
            }
            Err(Refusal::Error(error)) => {
                if error.kind == ErrorKind::Internal {
                    tracing::error!(activity_id, %error, "internal error (this is a bug)");
                }
                Reply::error(&error, activity_id, path)
            }
        }
    }

    /// Settles the charge, counts the request, and adds the common headers.
    fn finish(&self, exchange: Exchange, mut reply: Reply) -> Response<Full<Bytes>> {
        let Exchange {
            parts,
            connection,
            path,
            activity_id,
            started,
            verb,
            mut receipt,
            struck,
            answer_memory,
            query,
            ..
        } = exchange;
        if let Some(struck) = &struck {
            reply = reply.with(FAULT_HEADER, &struck.id);
        }
        if parts.method == Method::HEAD {
            reply.body = Bytes::new();
        }
        // Errors are charged too: what they cost is in the receipt, whatever the outcome.
        self.database.settle(&receipt);
        if receipt.served.len() > 1 && asks_one_range(&parts.headers, &receipt) {
            // The partition that served the request: the one the client addressed, or the last one that replaced it.
            let last = receipt.served.len() - 1;
            receipt.served.drain(..last);
        }
        let (status, elapsed) = (reply.status.as_u16(), monotonic::elapsed(started));
        let operation = verb.map_or("unknown", Verb::name);
        self.options.metrics.request(path.kind(), operation, status, elapsed, receipt.charge);
        if let Some(container) = &receipt.container {
            self.options.metrics.containers.request(container, status, receipt.charge);
        }
        // Until here: what the client takes to read the response is not the server's time.
        if self.options.observation.slow_request.is_some_and(|least| elapsed >= least) {
            let (query, access) = (query.as_ref(), reply.access.as_deref());
            let activity_id = &activity_id;
            let (path, receipt) = (&path, &receipt);
            let answered = Answered { activity_id, operation, path, status, elapsed, receipt, query, access };
            self.observer.slow(&self.database, &answered);
        }
        if verb.is_some_and(|verb| observation::is_control_plane(verb, &path)) {
            observation::control_plane(connection.peer, &activity_id, operation, parts.uri.path(), status);
        }
        tracing::debug!(activity_id, operation, resource = path.kind(), status, charge = %receipt.charge, "answered");
        // Absolute, with the address that the client used.
        if let Some(origin) = origin(&parts, &connection).filter(|_| parts.uri.path().is_ascii()) {
            reply = reply.with("content-location", format_args!("{origin}{}", parts.uri.path()));
        }
        let version = headers::text(&parts.headers, headers::VERSION).unwrap_or(DEFAULT_VERSION);
        let mut response = reply.finish(&Common {
            activity_id: &activity_id,
            version,
            receipt: &receipt,
            path: &path,
            elapsed,
        });
        if let Some(held) = answer_memory.filter(MemoryPart::holds) {
            response.extensions_mut().insert(HeldUntilSent(Arc::new(held)));
        }
        if struck.is_some_and(|struck| struck.drops_connection) {
            response.extensions_mut().insert(HangUp);
        }
        response
    }
}

impl Handler for Gateway {
    async fn handle(&self, request: Request<Incoming>, connection: ConnectionInfo) -> Response<Full<Bytes>> {
        let (parts, incoming) = request.into_parts();
        let announced = announced_bytes(&incoming);
        // Held until the request completes.
        let mut held = None;
        let body = async || {
            let Ok(part) = self.options.memory.hold_body(announced).await else {
                discard_body(incoming, BODY_TIME_MAX).await;
                return Err(BodyError::NoMemory);
            };
            held = Some(part);
            read_body(incoming, BODY_BYTES_MAX, BODY_TIME_MAX).await
        };
        self.answer(parts, connection, body).await
    }

    /// With an activity id, like every other response.
    fn after_panic(&self) -> Response<Full<Bytes>> {
        let activity_id = self.database.env().guid();
        tracing::error!(activity_id, "a request panicked");
        self.refuse(&activity_id, &Error::internal("The request failed because of an internal error."))
    }
}

/// Whether a request targets a single range, by id or by a complete key. The .NET client cannot parse a session token
/// of several ranges, and only targets one at a time.
fn asks_one_range(headers: &HeaderMap, receipt: &Receipt) -> bool {
    // A prefix of a hierarchical key may cover several ranges.
    let components = |container: &orrery_db::Container| container.definition.partition_key.paths().len();
    let whole_key = || {
        let key = headers::partition_key(headers).ok().flatten()?;
        receipt.container.as_deref().map(|container| key.0.len() == components(container))
    };
    headers::non_empty(headers, headers::RANGE_ID).is_some() || whole_key().unwrap_or(false)
}

/// The request's attributes for admission: priority and throughput bucket.
fn request_context(headers: &HeaderMap) -> Result<RequestContext, Error> {
    let bucket = headers::throughput_bucket(headers)?;
    Ok(RequestContext { priority: headers::priority(headers), bucket, ..RequestContext::default() })
}

/// The announced length of a body. Without one it may have any length, whatever the method.
fn announced_bytes(body: &impl http_body::Body) -> u64 {
    if body.is_end_stream() {
        0
    } else {
        // A chunked body announces nothing: assume the largest that is allowed.
        body.size_hint().upper().unwrap_or(u64::MAX).min(BODY_BYTES_MAX as u64)
    }
}

fn body_failure(failure: BodyError) -> Error {
    match failure {
        BodyError::TooLarge => Error::new(ErrorKind::TooLarge, "Request size is too large"),
        BodyError::NoMemory => memory::no_memory(),
        BodyError::TimedOut => Error::new(ErrorKind::Timeout, "The request body did not arrive in time."),
        BodyError::Broken(detail) => {
            Error::bad_request(format!("The request body could not be read: {detail}."))
        }
    }
}
