//! One request, end to end, as a list of named steps.
//!
//! 1. Web pages that may not ask are refused (`hosts`); our own surface goes to `admin`.
//! 2. What is asked is decided once, from method, path and headers (`operation`).
//! 3. Who asks is authenticated, and whether they may is looked up (`auth`, `rights`). A refusal costs nothing further.
//! 4. The body is read, within the budget of memory that all requests share (`memory`).
//! 5. A fault that an operator has injected may strike (`faults`).
//! 6. The database does it (`dispatch`), and the request is noted if its container's workload is recorded (`recorder`).
//! 7. The charge is settled, the request is counted, and the answer gets the headers that every answer has (`reply`).

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
use crate::admin::AdminState;
use crate::consistency::ConsistencyLevel;
use crate::dispatch::{BODY_BYTES_MAX, Call, origin};
use crate::faults::{FAULT_HEADER, Struck};
use crate::memory::MemoryPart;
use crate::operation::Verb;
use crate::options::GatewayOptions;
use crate::path::Path;
use crate::refusal::Refusal;
use crate::reply::{Common, Reply};
use crate::transport::{BodyError, ConnectionInfo, Handler, HangUp, HeldUntilSent, discard_body, read_body};
use crate::{admin, explorer, headers, memory, recorder, rights};

/// A client must have sent its body within this time.
const BODY_TIME_MAX: Duration = Duration::from_mins(1);

/// The version of the protocol that a client speaks which names none.
const DEFAULT_VERSION: &str = "2018-12-31";

/// Answers requests.
pub struct Gateway {
    database: Arc<Database>,
    options: GatewayOptions,
    admin: AdminState,
}

/// A request that came in direct mode.
pub(crate) struct DirectCall {
    pub parts: Parts,
    pub connection: ConnectionInfo,
    /// The replica that the client believes to talk to.
    pub replica: Replica,
    /// What came with it, or why nothing was kept of that.
    pub payload: Result<Bytes, BodyError>,
    /// The memory that the payload takes, where it was reserved before.
    pub held: Option<MemoryPart>,
}

/// A request on its way, and what its answer needs whether it succeeds or fails.
struct Exchange {
    parts: Parts,
    connection: ConnectionInfo,
    path: Path,
    activity_id: String,
    started: Instant,
    /// Where the request was addressed to, in direct mode.
    replica: Replica,
    /// Once it is decided.
    verb: Option<Verb>,
    receipt: Receipt,
    /// The injected fault that has hit the request.
    struck: Option<Struck>,
    /// Held until the client has taken the answer.
    answer_memory: Option<MemoryPart>,
}

impl Gateway {
    pub fn new(database: Arc<Database>, options: GatewayOptions) -> Self {
        Self { database, options, admin: AdminState::default() }
    }

    /// Answers one request, unless a web page sent it that may not.
    async fn answer<F>(&self, parts: Parts, connection: ConnectionInfo, body: F) -> Response<Full<Bytes>>
    where
        F: AsyncFnOnce() -> Result<Bytes, BodyError>,
    {
        let hosts = &self.options.hosts;
        if let Err(failure) = hosts.check(&parts) {
            tracing::warn!(%failure, "a request was refused");
            let activity_id = self.database.env().guid();
            return self.answer_page(&parts, &activity_id, Reply::auth_failure(&failure, &activity_id));
        }
        if hosts.is_preflight(&parts) {
            let activity_id = self.database.env().guid();
            let mut response = self.answer_page(&parts, &activity_id, Reply::new(StatusCode::NO_CONTENT));
            hosts.answer_preflight(&parts.headers, response.headers_mut());
            return response;
        }
        if !parts.headers.contains_key(http::header::ORIGIN) {
            return self.answer_accepted(parts, connection, body).await;
        }
        let asked = parts.headers.clone();
        let mut response = self.answer_accepted(parts, connection, body).await;
        hosts.mark(&asked, response.headers_mut());
        response
    }

    /// An answer that needs neither the database nor the caller's rights.
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

    /// `body` gives the request's bytes when they are wanted.
    async fn answer_accepted<F>(
        &self,
        parts: Parts,
        connection: ConnectionInfo,
        body: F,
    ) -> Response<Full<Bytes>>
    where
        F: AsyncFnOnce() -> Result<Bytes, BodyError>,
    {
        if explorer::is_visit(&parts) {
            return explorer::redirect();
        }
        if admin::is_ours(parts.uri.path()) {
            return admin::answer(&parts, &connection, &self.database, &self.options, &self.admin, body)
                .await;
        }
        let exchange = self.begin(parts, connection, Replica::default());
        self.answer_exchange(exchange, body).await
    }

    /// Answers a request that came in direct mode. No web page can send one.
    pub(crate) async fn answer_direct(&self, call: DirectCall) -> Response<Full<Bytes>> {
        let DirectCall { parts, connection, replica, payload, mut held } = call;
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

    async fn answer_exchange<F>(&self, mut exchange: Exchange, body: F) -> Response<Full<Bytes>>
    where
        F: AsyncFnOnce() -> Result<Bytes, BodyError>,
    {
        let outcome = self.run(&mut exchange, body).await;
        let reply = self.reply(&exchange, outcome);
        self.finish(exchange, reply)
    }

    /// Whether the sender of a request may do what it asks for: what comes with it is worth memory then.
    pub(crate) async fn may_send(&self, parts: &Parts) -> bool {
        let path = Path::of(&parts.uri);
        let Ok(verb) = Verb::decide(&parts.method, &path, &parts.headers) else { return false };
        rights::authorize(&self.database, &self.options, parts, verb, &path).await.is_ok()
    }

    /// Memory for a payload, once there is some.
    pub(crate) async fn hold_body(&self, bytes: u64) -> Option<MemoryPart> {
        self.options.memory.hold_body(bytes).await.ok()
    }

    /// The answer to a request that is none.
    pub(crate) fn refuse(&self, activity_id: &str, error: &Error) -> Response<Full<Bytes>> {
        let reply = Reply::error(error, activity_id, "");
        let (receipt, path, elapsed) = (Receipt::default(), Path::Unknown, Duration::ZERO);
        self.options.metrics.request(path.kind(), "unknown", reply.status.as_u16(), elapsed, receipt.charge);
        let version = DEFAULT_VERSION;
        reply.finish(&Common { activity_id, version, receipt: &receipt, path: &path, elapsed })
    }

    fn begin(&self, parts: Parts, connection: ConnectionInfo, replica: Replica) -> Exchange {
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
            parts,
            connection,
        }
    }

    /// The steps that may refuse, fail or succeed.
    async fn run<F>(&self, exchange: &mut Exchange, body: F) -> Result<Reply, Refusal>
    where
        F: AsyncFnOnce() -> Result<Bytes, BodyError>,
    {
        let verb = Verb::decide(&exchange.parts.method, &exchange.path, &exchange.parts.headers)?;
        exchange.verb = Some(verb);
        rights::authorize(&self.database, &self.options, &exchange.parts, verb, &exchange.path).await?;
        headers::check_version(&exchange.parts.headers)?;
        exchange.receipt = Receipt::open(request_context(&exchange.parts.headers)?);
        if let Some(moved) = self.check_replica(exchange) {
            return Ok(moved);
        }
        if exchange.path.is_metadata() {
            self.database.admit_metadata(&mut exchange.receipt)?;
        }
        let body = body().await.map_err(body_failure)?;
        let working = self.options.memory.hold_work(verb, body.len()).await?;
        let instead = self.strike(exchange, verb).await;
        let after_work = exchange.struck.as_ref().is_some_and(|struck| struck.after_work);
        if !after_work && let Some(reply) = instead {
            return Ok(reply);
        }
        let reply = self.dispatch(exchange, verb, body).await?;
        drop(working);
        let held = self.options.memory.hold_answer(reply.body.len());
        // What was written stays written: its answer is sent, counted or not.
        exchange.answer_memory = if verb.writes() { held.ok() } else { Some(held?) };
        // What was done stays done; only the answer is lost.
        Ok(instead.unwrap_or(reply))
    }

    /// What a client is told that addressed a replica which is no more: it then looks again where to go. A partition
    /// that is not known yet may have been made by another server a moment ago.
    fn check_replica(&self, exchange: &Exchange) -> Option<Reply> {
        let Replica { container: Some(addressed), range_id: Some(range_id) } = exchange.replica else {
            return None;
        };
        let at = exchange.path.container()?;
        let catalog = self.database.catalog();
        let container = catalog.container(&at.database, &at.container).ok()?;
        let (substatus, message) = if container.rid != addressed {
            (1000, "The requested resource is no longer available at the server: the container was replaced.")
        } else if container.former.iter().any(|former| former.range_id == range_id) {
            // Clients that have named a range look for its successors; those that have named a key look for its range
            // again, but only if they are told that it is being split: otherwise they give up.
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

    /// Lets an injected fault hit the request; answers what the client gets instead of the true answer.
    async fn strike(&self, exchange: &mut Exchange, verb: Verb) -> Option<Reply> {
        let struck =
            self.admin.faults.strike(&self.database, verb, &exchange.path, &exchange.parts.headers)?;
        if let Some(latency) = struck.latency {
            tokio::time::sleep(latency).await;
        }
        let instead = struck.reply(&exchange.activity_id, exchange.parts.uri.path());
        exchange.struck = Some(struck);
        instead
    }

    /// Has the database do it, and notes it where that is wanted.
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
        };
        let noted = recorder::shape(&call);
        let reply = call.dispatch(receipt).await;
        let reads_items =
            !verb.writes() && verb != Verb::PlanQuery && matches!(path, Path::Items(_) | Path::Item(..));
        let level = consistency.level_of(&parts.headers);
        if reads_items && level.is_ok_and(ConsistencyLevel::reads_cost_double) {
            receipt.add(receipt.charge);
        }
        if let Some(noted) = noted {
            recorder::note(noted, &self.database, receipt, &reply);
        }
        reply
    }

    /// The outcome as the client sees it.
    #[expect(clippy::unused_self, reason = "a step like the others")]
    fn reply(&self, exchange: &Exchange, outcome: Result<Reply, Refusal>) -> Reply {
        let (activity_id, path) = (exchange.activity_id.as_str(), exchange.parts.uri.path());
        match outcome {
            Ok(reply) => reply,
            Err(Refusal::Auth(failure)) => Reply::auth_failure(&failure, activity_id),
            Err(Refusal::Error(error)) => {
                if error.kind == ErrorKind::Internal {
                    tracing::error!(activity_id, %error, "internal error (this is a bug)");
                }
                Reply::error(&error, activity_id, path)
            }
        }
    }

    /// Settles the charge, counts the request, and adds what every answer has.
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
            ..
        } = exchange;
        if let Some(struck) = &struck {
            reply = reply.with(FAULT_HEADER, &struck.id);
        }
        if parts.method == Method::HEAD {
            reply.body = Bytes::new();
        }
        self.database.settle(&receipt);
        if receipt.served.len() > 1 && asks_one_range(&parts.headers, &receipt) {
            // The partition that a request ends at is the one that its client knows, or the last that took its place.
            let last = receipt.served.len() - 1;
            receipt.served.drain(..last);
        }
        let (status, elapsed) = (reply.status.as_u16(), monotonic::elapsed(started));
        let operation = verb.map_or("unknown", Verb::name);
        self.options.metrics.request(path.kind(), operation, status, elapsed, receipt.charge);
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
        // Held until the request is answered.
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

    /// With an activity id, like every other answer.
    fn after_panic(&self) -> Response<Full<Bytes>> {
        let activity_id = self.database.env().guid();
        tracing::error!(activity_id, "answered after a panic");
        self.refuse(&activity_id, &Error::internal("The request failed because of an internal error."))
    }
}

/// Whether a request names one range of keys, by its id or by a complete key. The .NET client cannot read a session token
/// of several ranges, and only asks for one at a time.
fn asks_one_range(headers: &HeaderMap, receipt: &Receipt) -> bool {
    let components = |container: &orrery_db::Container| container.definition.partition_key.paths().len();
    let whole_key = || {
        let key = headers::partition_key(headers).ok().flatten()?;
        receipt.container.as_deref().map(|container| key.0.len() == components(container))
    };
    headers::non_empty(headers, headers::RANGE_ID).is_some() || whole_key().unwrap_or(false)
}

/// What the request says about the budgets that pay for it.
fn request_context(headers: &HeaderMap) -> Result<RequestContext, Error> {
    let bucket = headers::throughput_bucket(headers)?;
    Ok(RequestContext { priority: headers::priority(headers), bucket, ..RequestContext::default() })
}

/// The length of a body as far as it is known before it is read. One that does not say may have any, whatever the
/// method.
fn announced_bytes(body: &impl http_body::Body) -> u64 {
    if body.is_end_stream() {
        0
    } else {
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
