//! A client of the wire protocol: requests to another Orrery or to the service itself, over HTTP or HTTPS, signed with an
//! account key.
//!
//! Contains accounts, connections, requests, retries, reading containers, and the arguments that specify a server or a
//! container. What commands do with the responses is in `commands`.
//!
//! Most commands use [`Client::send`]: it reuses connections, honours the retry-after delay when throttled (429), and
//! retries transient failures with backoff. A request may therefore be sent twice, so use it only for idempotent
//! requests: reads, queries, upserts, and creates that accept a conflict. [`Client::send_blocking`] sends once.

mod account;
mod arguments;
mod connection;
mod feed;
mod items;
mod query;
mod request;
mod resources;
mod server;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orrery_env::{Env, monotonic};
use orrery_gateway::auth::{print_date, sign_request};

use crate::failure::Failure;
pub(crate) use account::Account;
pub(crate) use arguments::{ContainerArguments, ContainerOnServer, Remote, accepted_json, container_query};
use connection::{ConnectionPool, RequestError};
pub(crate) use feed::{ContainerPath, Lane, PageOutcome, PartitionRange, ascii_json, range_of};
pub(crate) use items::parse_partition_key;
pub(crate) use query::{QueryPages, QueryText};
pub(crate) use request::{Request, Response, path};
pub(crate) use resources::id_of;
pub(crate) use server::{ServerArguments, TrustArguments, announce};

/// Retries of one request after transient failures, not counting throttling.
const RETRIES_MAX: u32 = 8;
/// The first backoff; each one doubles, up to the longest.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_LONGEST: Duration = Duration::from_secs(5);
/// How long one request may wait because of throttling, all waits together.
const THROTTLED_TIME_MAX: Duration = Duration::from_mins(5);

/// A server, the key to it, and a pool of connections.
pub(crate) struct Client {
    account: Account,
    pool: ConnectionPool,
    /// Request units per second to stay below, on average.
    request_units_max: Option<u32>,
    begun: OnceLock<Instant>,
    /// Whether the server has answered at least once.
    has_answered: AtomicBool,
    pub(crate) statistics: Statistics,
}

/// Counters over the life of a client, for summaries.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    /// Responses with status 429.
    pub(crate) throttled: AtomicU64,
    /// Retries after other transient failures.
    pub(crate) retried: AtomicU64,
    /// Request units charged, in hundredths.
    pub(crate) charge: AtomicU64,
}

impl Client {
    pub(crate) fn new(account: Account) -> Result<Self, Failure> {
        let pool = ConnectionPool::new(&account)?;
        Ok(Self {
            account,
            pool,
            request_units_max: None,
            begun: OnceLock::new(),
            has_answered: AtomicBool::new(false),
            statistics: Statistics::default(),
        })
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Request units charged so far.
    #[expect(clippy::cast_precision_loss, reason = "hundredths, far below 2^53")]
    pub(crate) fn charge(&self) -> f64 {
        self.statistics.charge.load(Ordering::Relaxed) as f64 / 100.0
    }

    /// Limits the client to this many request units per second, on average.
    pub(crate) fn limited_to(mut self, request_units: Option<u32>) -> Self {
        self.request_units_max = request_units;
        self
    }

    /// Waits until the rate limit has room for what was charged so far.
    async fn wait_for_rate_limit(&self) {
        let Some(rate) = self.request_units_max else { return };
        let hundredths = self.statistics.charge.load(Ordering::Relaxed);
        let begun = *self.begun.get_or_init(monotonic::now);
        // At this rate a hundredth of a unit takes 10 ms divided by the rate.
        let until = begun + Duration::from_millis(hundredths.saturating_mul(10) / u64::from(rate));
        tokio::time::sleep_until(until.into()).await;
    }

    /// Sends a request, waiting and retrying where that helps. A partition range that is gone (410/1002) is returned,
    /// because only the caller knows which ranges replace it.
    pub(crate) async fn send(&self, env: &dyn Env, request: &Request) -> Result<Response, Failure> {
        let mut throttled_time = Duration::ZERO;
        let mut retries = 0;
        loop {
            self.wait_for_rate_limit().await;
            let outcome = self.send_once(env, request).await;
            let pause = match &outcome {
                Ok(response) => match self.retry_delay(response, retries) {
                    Some(RetryDelay::Throttled(pause)) if throttled_time + pause <= THROTTLED_TIME_MAX => {
                        throttled_time += pause;
                        pause
                    }
                    // The wait is too long or a retry cannot help, so the caller gets the response as it is.
                    None | Some(RetryDelay::Throttled(_)) => return outcome.map_err(Failure::refused),
                    Some(RetryDelay::Backoff(pause)) => {
                        retries += 1;
                        pause
                    }
                },
                // If the very first connection fails, the server is not running; one that has responded before may come
                // back.
                Err(error) if error.is_refused && !self.has_answered.load(Ordering::Relaxed) => {
                    let hint = if self.account.is_loopback() { "; `orrery serve` starts one" } else { "" };
                    return Err(Failure::refused(format!("{error}{hint}")));
                }
                Err(error) if error.is_transient && retries < RETRIES_MAX => {
                    retries += 1;
                    self.statistics.retried.fetch_add(1, Ordering::Relaxed);
                    backoff(retries)
                }
                Err(_) => return outcome.map_err(Failure::refused),
            };
            orrery_env::task::sleep(pause).await;
        }
    }

    /// How long to wait before the next attempt; none if retrying cannot help.
    fn retry_delay(&self, response: &Response, retries: u32) -> Option<RetryDelay> {
        match response.status {
            429 => {
                self.statistics.throttled.fetch_add(1, Ordering::Relaxed);
                let delay_ms: Option<f64> = response.number("x-ms-retry-after-ms");
                // No busy waiting, and no more than a minute at once, whatever the server says.
                let delay_ms =
                    delay_ms.filter(|delay| delay.is_finite()).unwrap_or(1000.0).clamp(1.0, 60_000.0);
                Some(RetryDelay::Throttled(Duration::from_secs_f64(delay_ms / 1000.0)))
            }
            410 if response.is_range_gone() => None,
            // Timeout, gone, retry with, unavailable: the protocol's transient errors.
            408 | 410 | 449 | 503 if retries < RETRIES_MAX => {
                self.statistics.retried.fetch_add(1, Ordering::Relaxed);
                Some(RetryDelay::Backoff(backoff(retries + 1)))
            }
            _ => None,
        }
    }

    async fn send_once(&self, env: &dyn Env, request: &Request) -> Result<Response, RequestError> {
        // Signed anew for each attempt, because the date is part of the signature.
        let date = print_date(env.now_seconds());
        let query = request.query.as_deref();
        let authorization =
            sign_request(&self.account.key, request.method.as_str(), &request.path, query, &date);
        let target = query.map_or_else(|| request.path.clone(), |query| format!("{}?{query}", request.path));
        let mut built = http::Request::builder()
            .method(&request.method)
            .uri(target)
            .header("host", &self.account.authority)
            .header("authorization", authorization)
            .header("x-ms-date", date)
            .header("x-ms-version", "2018-12-31");
        if !request.headers.contains_key("content-type") && !request.body.is_empty() {
            built = built.header("content-type", "application/json");
        }
        let mut built = built
            .body(http_body_util::Full::new(request.body.clone()))
            .map_err(|error| RequestError::unsendable(&error))?;
        built.headers_mut().extend(request.headers.clone());
        let response = self.pool.send(built).await?;
        self.has_answered.store(true, Ordering::Relaxed);
        if let Some(charge) = response.number::<f64>("x-ms-request-charge").filter(|charge| *charge > 0.0) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "above 0, and saturates"
            )]
            self.statistics.charge.fetch_add((charge * 100.0).round() as u64, Ordering::Relaxed);
        }
        Ok(response)
    }

    /// Sends a request once, without retries, outside of a runtime. For commands that consist of one request.
    pub(crate) fn send_blocking(&self, env: &dyn Env, request: &Request) -> Result<Response, Failure> {
        block_on(async { self.send_once(env, request).await.map_err(Failure::refused) })
    }
}

enum RetryDelay {
    /// The server specified the delay.
    Throttled(Duration),
    /// The server specified no delay; it grows with every attempt.
    Backoff(Duration),
}

fn backoff(attempt: u32) -> Duration {
    BACKOFF_FIRST.saturating_mul(1 << attempt.min(10)).min(BACKOFF_LONGEST)
}

/// Runs a future on a new single-threaded runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::internal(format!("the async runtime cannot start: {error}")))?;
    runtime.block_on(future)
}
