//! Requests to a Cosmos DB endpoint: another Orrery or the service itself, over HTTP or HTTPS, signed with an
//! account key.
//!
//! [`Client::ask`] is what most commands want: it keeps connections, waits where it is told to (429) and tries
//! again after faults that pass by themselves. Everything sent through it may therefore be sent twice, so
//! only requests that can be repeated belong here: reads, queries, upserts, creations whose conflict is looked at.

mod account;
mod connection;
pub(crate) mod feed;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use orrery_gateway::auth::{print_date, sign_request};
use orrery_model::env::Env;
use orrery_model::{Value, value};

use crate::failure::Failure;
pub(crate) use account::Account;
use connection::Pool;

/// Attempts after faults that pass by themselves, before a request is given up.
const ATTEMPTS_MAX: u32 = 8;
/// The first pause after such a fault; each further one is twice as long, up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LONGEST: Duration = Duration::from_secs(5);
/// How long a request is told to wait (429), all waits together, before it is given up.
const WAIT_MAX: Duration = Duration::from_mins(5);

/// A server and the key to it, with connections that are kept.
pub(crate) struct Client {
    account: Account,
    pool: Pool,
    /// Request units a second that may be used, on average.
    pace: Option<u32>,
    begun: OnceLock<Instant>,
    pub(crate) statistics: Statistics,
}

/// What has happened so far.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    /// Answers that told to wait.
    pub(crate) throttled: AtomicU64,
    /// Attempts after other faults.
    pub(crate) retried: AtomicU64,
    /// Request units, in hundredths.
    pub(crate) charge: AtomicU64,
}

/// What is asked. The path and the query are escaped already.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    method: Method,
    path: String,
    query: Option<String>,
    headers: HeaderMap,
    body: Bytes,
}

impl Request {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, Bytes::new())
    }

    pub(crate) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::new(Method::POST, path, body)
    }

    pub(crate) fn new(method: Method, path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method, path: path.into(), query: None, headers: HeaderMap::new(), body: body.into() }
    }

    /// Adds a header. Values that cannot be in a header are left out; those we send are numbers and ASCII.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    pub(crate) fn with_query(mut self, query: &str) -> Self {
        self.query = Some(query.to_owned());
        self
    }
}

/// What came back, whatever its status.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.header(name)?.trim().parse().ok()
    }

    pub(crate) fn substatus(&self) -> u32 {
        self.number("x-ms-substatus").unwrap_or(0)
    }

    /// Where the next page begins, if there is one.
    pub(crate) fn continuation(&self) -> Option<&str> {
        self.header("x-ms-continuation").filter(|token| !token.is_empty())
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The range that the request named was split or merged: the ranges must be read again.
    pub(crate) fn is_range_gone(&self) -> bool {
        self.status == 410 && self.substatus() == 1002
    }

    pub(crate) fn json(&self) -> Option<Value> {
        value::parse(&self.body).ok()
    }

    /// The server's reason, in one line.
    pub(crate) fn message(&self) -> String {
        let text = self.json().and_then(|body| Some(body.get("message")?.as_str()?.to_owned()));
        let text = text.unwrap_or_else(|| String::from_utf8_lossy(&self.body).chars().take(300).collect());
        // What follows names the request, which the caller knows.
        let text = text.split("\r\nActivityId").next().unwrap_or_default();
        let text = text.strip_prefix("Message: ").unwrap_or(text);
        let text =
            text.strip_prefix("{\"Errors\":[\"").and_then(|text| text.strip_suffix("\"]}")).unwrap_or(text);
        match text.trim() {
            "" => "no reason was given".to_owned(),
            text => text.replace(['\r', '\n'], " "),
        }
    }

    /// The answer, or a failure that says why the server refused.
    pub(crate) fn accepted(self) -> Result<Self, Failure> {
        if self.is_success() {
            return Ok(self);
        }
        Err(Failure::refused(format!("the server refused ({}): {}", self.status, self.message())))
    }
}

impl Client {
    /// `endpoint` is `http://host:port` or `https://host:port`; without a key the well-known one of emulators
    /// is used.
    pub(crate) fn new(endpoint: &str, key: Option<&str>) -> Result<Self, Failure> {
        Self::to(Account::new(endpoint, key)?)
    }

    pub(crate) fn to(account: Account) -> Result<Self, Failure> {
        let pool = Pool::new(&account)?;
        Ok(Self { account, pool, pace: None, begun: OnceLock::new(), statistics: Statistics::default() })
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Uses at most so many request units a second, on average.
    pub(crate) fn paced(mut self, request_units: Option<u32>) -> Self {
        self.pace = request_units;
        self
    }

    /// Waits until what was charged so far is allowed to be spent.
    async fn keep_pace(&self) {
        let Some(rate) = self.pace else { return };
        let hundredths = self.statistics.charge.load(Ordering::Relaxed);
        let begun = *self.begun.get_or_init(Instant::now);
        let until = begun + Duration::from_millis(hundredths.saturating_mul(10) / u64::from(rate));
        tokio::time::sleep_until(until.into()).await;
    }

    /// Sends a request and waits or tries again where that helps. A partition range that is gone (410/1002) is
    /// an answer: only the caller can ask for others.
    pub(crate) async fn ask(&self, env: &dyn Env, request: &Request) -> Result<Answer, Failure> {
        let mut waited = Duration::ZERO;
        let mut attempts = 0;
        loop {
            self.keep_pace().await;
            let outcome = self.send(env, request).await;
            let pause = match &outcome {
                Ok(answer) => match self.pause_after(answer, attempts) {
                    Some(Pause::Told(pause)) if waited + pause <= WAIT_MAX => {
                        waited += pause;
                        pause
                    }
                    None | Some(Pause::Told(_)) => return outcome.map_err(Failure::refused),
                    Some(Pause::Guessed(pause)) => {
                        attempts += 1;
                        pause
                    }
                },
                Err(error) if error.may_pass && attempts < ATTEMPTS_MAX => {
                    attempts += 1;
                    self.statistics.retried.fetch_add(1, Ordering::Relaxed);
                    backoff(attempts)
                }
                Err(_) => return outcome.map_err(Failure::refused),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// How long to wait before another attempt, if one makes sense.
    fn pause_after(&self, answer: &Answer, attempts: u32) -> Option<Pause> {
        match answer.status {
            429 => {
                self.statistics.throttled.fetch_add(1, Ordering::Relaxed);
                let told: Option<f64> = answer.number("x-ms-retry-after-ms");
                let told = told.filter(|told| told.is_finite()).unwrap_or(1000.0).clamp(1.0, 60_000.0);
                Some(Pause::Told(Duration::from_secs_f64(told / 1000.0)))
            }
            410 if answer.is_range_gone() => None,
            408 | 410 | 449 | 503 if attempts < ATTEMPTS_MAX => {
                self.statistics.retried.fetch_add(1, Ordering::Relaxed);
                Some(Pause::Guessed(backoff(attempts + 1)))
            }
            _ => None,
        }
    }

    /// Sends a request once.
    async fn send(&self, env: &dyn Env, request: &Request) -> Result<Answer, connection::Broken> {
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
            .map_err(|error| connection::Broken::ours(&error))?;
        built.headers_mut().extend(request.headers.clone());
        let answer = self.pool.send(built).await?;
        if let Some(charge) = answer.number::<f64>("x-ms-request-charge").filter(|charge| *charge > 0.0) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "above 0, and saturates"
            )]
            self.statistics.charge.fetch_add((charge * 100.0).round() as u64, Ordering::Relaxed);
        }
        Ok(answer)
    }

    /// Posts JSON and gives back the status and the body. For commands of one request, outside of a runtime.
    pub(crate) fn post(&self, env: &dyn Env, path: &str, body: &str) -> Result<(u16, String), Failure> {
        self.ask_blocking(env, &Request::post(path, body.to_owned()))
    }

    /// Asks for JSON and gives back the status and the body. The query is escaped already.
    pub(crate) fn get(
        &self,
        env: &dyn Env,
        path: &str,
        query: Option<&str>,
    ) -> Result<(u16, String), Failure> {
        let request = Request::get(path);
        let request = match query {
            Some(query) => request.with_query(query),
            None => request,
        };
        self.ask_blocking(env, &request)
    }

    /// Sends one request, without waits and further attempts.
    fn ask_blocking(&self, env: &dyn Env, request: &Request) -> Result<(u16, String), Failure> {
        let answer = block_on(async { self.send(env, request).await.map_err(Failure::refused) })?;
        Ok((answer.status, String::from_utf8_lossy(&answer.body).into_owned()))
    }
}

enum Pause {
    Told(Duration),
    Guessed(Duration),
}

fn backoff(attempt: u32) -> Duration {
    PAUSE_FIRST.saturating_mul(1 << attempt.min(10)).min(PAUSE_LONGEST)
}

/// Runs a future on a runtime of its own, for commands.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::internal(format!("the threads cannot be started: {error}")))?;
    runtime.block_on(future)
}

/// A path of segments, each escaped: `path(&["dbs", "a b", "colls"])` is `/dbs/a%20b/colls`.
pub(crate) fn path(segments: &[&str]) -> String {
    let mut out = String::new();
    for segment in segments {
        out.push('/');
        out.extend(percent_encoding::utf8_percent_encode(segment, percent_encoding::NON_ALPHANUMERIC));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped() {
        assert_eq!(path(&["dbs", "a b/c", "colls"]), "/dbs/a%20b%2Fc/colls");
    }

    #[test]
    fn reasons_are_one_line() {
        let answer = |body: &str| Answer {
            status: 400,
            headers: HeaderMap::new(),
            body: Bytes::from(body.to_owned()),
        };
        let wrapped =
            r#"{"code":"BadRequest","message":"Message: {\"Errors\":[\"Wrong.\"]}\r\nActivityId: 1"}"#;
        assert_eq!(answer(wrapped).message(), "Wrong.");
        assert_eq!(answer("").message(), "no reason was given");
        assert_eq!(answer("<html>\n</html>").message(), "<html> </html>");
    }
}
