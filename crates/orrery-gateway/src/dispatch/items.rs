//! Item requests: points, feeds, queries, batches and change feeds, from headers and body to a call of the database and
//! back to a reply.
//!
//! Each function reads the headers of its operation, makes one call, and maps the result. What the wire formats look like
//! is in `wire`; what the operations do is the database's business.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use orrery_db::{
    BatchKind, BatchOperation, BatchOutcome, BatchResult, Cancellation, ChangeMode, ChangeRequest,
    ChangeStart, Database, Effect, FeedScope, GoneRanges, ItemOptions, ItemReply, QueryOptions, QueryPage,
    QueryRequest, Receipt, Triggers,
};
use orrery_model::partition_key::PartitionKey;
use orrery_model::session::SessionToken;
use orrery_model::value::write_json_string;
use orrery_model::{Error, ErrorKind, Result};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{BODY_BYTES_MAX, Call};
use crate::headers::{self, JsonFormat};
use crate::operation::{Verb, method_not_allowed};
use crate::path::ContainerPath;
use crate::reply::Reply;
use crate::wire::batch_json::{self, ParsedOperation};
use crate::wire::binary_json;
use crate::wire::continuation;
use crate::wire::hybrid_row::{self, ResultRow, RowOperation};
use crate::wire::query_metrics;
use crate::wire::status::wire_status;

const BATCH_OPERATIONS_MAX: usize = 1000;

impl Call<'_> {
    pub(super) async fn items(&self, receipt: &mut Receipt, at: &ContainerPath) -> Result<Reply> {
        match self.verb {
            Verb::Create => {
                let options = self.item_options()?;
                let item =
                    self.database.create_item(receipt, at.pair(), &options, &self.item_text()?).await?;
                self.item_reply(&item)
            }
            Verb::Upsert => {
                let options = self.item_options()?;
                let item =
                    self.database.upsert_item(receipt, at.pair(), &options, &self.item_text()?).await?;
                self.item_reply(&item)
            }
            Verb::Batch => self.batch(receipt, at).await,
            // Feeds are text unless binary is requested explicitly.
            Verb::List => match headers::demanded_format(&self.parts.headers)? {
                Some(JsonFormat::Binary) => Ok(self.list_items(receipt, at).await?.into_binary()),
                Some(JsonFormat::Text) | None => self.list_items(receipt, at).await,
            },
            Verb::Query => {
                let format = self.answer_format()?;
                self.query_items(receipt, at).await.map(|reply| in_format(reply, format))
            }
            Verb::PlanQuery => self.plan_query(receipt, at),
            _ => Err(method_not_allowed()),
        }
    }

    pub(super) async fn item(&self, receipt: &mut Receipt, at: &ContainerPath, id: &str) -> Result<Reply> {
        let options = self.item_options()?;
        let place = (at.database.as_str(), at.container.as_str(), id);
        let item = match self.verb {
            Verb::Read => {
                let read = self.database.read_item(receipt, place, &options).await;
                read.map_err(|error| self.missing_container(at, error))?
            }
            Verb::Replace => self.database.replace_item(receipt, place, &options, &self.item_text()?).await?,
            Verb::Patch => self.database.patch_item(receipt, place, &options, &self.item_text()?).await?,
            Verb::Delete => self.database.delete_item(receipt, place, &options).await?,
            _ => return Err(method_not_allowed()),
        };
        self.item_reply(&item)
    }

    pub(super) async fn partition_key_delete(
        &self,
        receipt: &mut Receipt,
        at: &ContainerPath,
    ) -> Result<Reply> {
        if self.verb != Verb::Execute {
            return Err(method_not_allowed());
        }
        self.database.delete_by_partition_key(receipt, at.pair(), &self.item_options()?).await?;
        Ok(Reply::new(StatusCode::OK))
    }

    pub(super) fn item_options(&self) -> Result<ItemOptions> {
        self.check_item_headers()?;
        let headers = &self.parts.headers;
        Ok(ItemOptions {
            partition_key: headers::partition_key(headers)?,
            session: self.session()?,
            if_match: headers::owned(headers, "if-match"),
            if_none_match: headers::owned(headers, "if-none-match"),
            intended_rid: headers::owned(headers, headers::INTENDED_RID),
            triggers: self.triggers(),
        })
    }

    fn session(&self) -> Result<Option<SessionToken>> {
        self.consistency.session_of(&self.parts.headers)
    }

    /// The triggers to run before and after a write.
    fn triggers(&self) -> Option<Triggers> {
        let named = |name| headers::owned(&self.parts.headers, name);
        let (pre, post) = (named(headers::PRE_TRIGGER), named(headers::POST_TRIGGER));
        let any = pre.is_some() || post.is_some();
        // Copies of the headers are made only for scripts that can read them.
        any.then(|| Triggers { pre, post, headers: self.script_headers() })
    }

    /// Headers that would change the outcome must not be ignored.
    fn check_item_headers(&self) -> Result<()> {
        let check = |name, allowed: &[&str]| match self.header(name) {
            Some(text) if !allowed.iter().any(|word| word.eq_ignore_ascii_case(text)) => {
                Err(headers::invalid(name, text))
            }
            _ => Ok(()),
        };
        if let Some(directive) = self.header(headers::INDEXING_DIRECTIVE) {
            batch_json::check_directive(directive)?;
        }
        check(headers::PRIORITY_LEVEL, &["High", "Low"])
    }

    /// The body as JSON text, decoded from binary JSON if necessary.
    fn item_text(&self) -> Result<Bytes> {
        json_text(&self.body)
    }

    /// Whether the client wants the item back after a write.
    fn wants_content(&self) -> bool {
        match self.header(headers::CONTENT_RESPONSE) {
            Some(text) => !text.eq_ignore_ascii_case("false"),
            None => !self.header("prefer").is_some_and(|text| text.eq_ignore_ascii_case("return=minimal")),
        }
    }

    /// For an item read, the service's gateway does not report a missing container, only a missing database
    /// (`CosmosNotFoundTests` of the .NET client; the Java client finds out by other means).
    fn missing_container(&self, at: &ContainerPath, error: Error) -> Error {
        if error.kind == ErrorKind::OwnerNotFound && self.database.catalog().database(&at.database).is_ok() {
            return Error { kind: ErrorKind::NotFound, ..error };
        }
        error
    }

    /// The response format for single items and queries.
    fn answer_format(&self) -> Result<JsonFormat> {
        let headers = &self.parts.headers;
        Ok(headers::demanded_format(headers)?.unwrap_or_else(|| headers::accepted_format(headers)))
    }

    fn item_reply(&self, item: &ItemReply) -> Result<Reply> {
        let format = self.answer_format()?;
        let (status, content) = match item.effect {
            Effect::Created => (StatusCode::CREATED, self.wants_content()),
            Effect::Replaced => (StatusCode::OK, self.wants_content()),
            Effect::Read => (StatusCode::OK, true),
            Effect::NotModified => (StatusCode::NOT_MODIFIED, false),
            Effect::Deleted => return Ok(Reply::new(StatusCode::NO_CONTENT)),
        };
        let reply = if content { Reply::json(status, item.document()) } else { Reply::new(status) };
        Ok(in_format(reply.with_etag(&item.etag), format))
    }

    pub(super) fn scope(&self) -> Result<FeedScope> {
        let headers = &self.parts.headers;
        Ok(FeedScope {
            partition_key: headers::partition_key(headers)?,
            range_id: headers::range_id(headers)?,
            window: headers::window(headers)?,
            gone_ranges: GoneRanges::Refused,
        })
    }

    async fn list_items(&self, receipt: &mut Receipt, at: &ContainerPath) -> Result<Reply> {
        // The change feed shares method and path with the list of items.
        if let Some(feed) = self.header("a-im") {
            return self.change_feed(receipt, at, feed).await;
        }
        let session = self.session()?;
        let page = self.page()?;
        let intended = self.header(headers::INTENDED_RID);
        let scope = self.scope()?;
        let feed =
            self.database.read_items(receipt, at.pair(), intended, &scope, session.as_ref(), &page).await?;
        let rid = receipt.container.as_ref().map(|container| container.rid.to_string()).unwrap_or_default();
        Ok(Reply::rows(&rid, "Documents", &feed.documents, feed.count, feed.continuation.as_deref()))
    }

    async fn change_feed(&self, receipt: &mut Receipt, at: &ContainerPath, feed: &str) -> Result<Reply> {
        let mode = match feed.to_ascii_lowercase().as_str() {
            "incremental feed" => ChangeMode::LatestVersions,
            "full-fidelity feed" | "incremental full-fidelity feed" => ChangeMode::AllVersions,
            _ => return Err(headers::invalid("a-im", feed)),
        };
        let start = match self.header("if-none-match") {
            None => ChangeStart::Beginning,
            Some("*") => ChangeStart::Now,
            Some(etag) => {
                // Each page's etag is the position after it. Some clients send it without its quotes.
                let position = etag.trim_matches('"').parse();
                ChangeStart::After(position.map_err(|_| headers::invalid("if-none-match", etag))?)
            }
        };
        let modified_since = match self.header("if-modified-since") {
            None => None,
            Some(text) => {
                // One client writes the time zone as `UTC`.
                let date = text.replace("UTC", "GMT");
                let seconds = crate::auth::parse_date(date.as_bytes());
                Some(seconds.ok_or_else(|| headers::invalid("if-modified-since", text))?)
            }
        };
        let request = ChangeRequest {
            mode,
            scope: self.scope()?,
            start,
            modified_since,
            session: self.session()?,
            page: self.page()?,
            envelope: self.header(headers::CHANGE_FEED_FORMAT).is_some(),
            previous_images: reads_previous_images(self.client()),
        };
        let page = self
            .database
            .read_changes(receipt, at.pair(), self.header(headers::INTENDED_RID), &request)
            .await?;
        if page.count == 0 {
            // One client reads the count without checking that it exists.
            return Ok(Reply::new(StatusCode::NOT_MODIFIED).with_etag(&page.etag).with("x-ms-item-count", 0));
        }
        let rid = receipt.container.as_ref().map(|container| container.rid.to_string()).unwrap_or_default();
        Ok(Reply::rows(&rid, "Documents", &page.documents, page.count, None).with_etag(&page.etag))
    }

    /// The name of the client that sent the request.
    fn client(&self) -> Option<&str> {
        self.header("x-ms-useragent").or_else(|| self.header("user-agent"))
    }

    async fn query_items(&self, receipt: &mut Receipt, at: &ContainerPath) -> Result<Reply> {
        let headers = &self.parts.headers;
        let token_kb = token_limit_kb(headers)?;
        let mut page = self.page()?;
        // Browsers do not let a page choose its user agent.
        let client = self.client();
        let mut scope = self.scope()?;
        // Unwrapped first: whether the query continues decides how ranges that are gone are treated.
        page.continuation = page.continuation.and_then(|sent| continuation::read(sent, &scope));
        scope.gone_ranges =
            match (self.cross_partition_queries.serves_gone_ranges(client), &page.continuation) {
                (false, _) => GoneRanges::Refused,
                // The client asks its ranges one after another. An error at the last one makes it refresh them; an
                // error at an earlier one would make it ask the later ones twice.
                (true, None) => GoneRanges::RefusedIfLast,
                (true, Some(_)) => GoneRanges::Served,
            };
        // The form of the next token depends on the scope, which the options take.
        let named = scope.clone();
        let options = QueryOptions {
            client_merge: self
                .cross_partition_queries
                .client_merge(client, self.header(headers::QUERY_FEATURES)),
            intended_rid: headers::owned(headers, headers::INTENDED_RID),
            session: self.session()?,
            scope,
            page,
            cross_partition: headers::flag(headers, headers::ENABLE_CROSS_PARTITION),
            token_bytes_max: token_kb.map(|limit| limit.saturating_mul(1024)),
            index_metrics: headers::flag(headers, headers::POPULATE_INDEX_METRICS)
                || headers::flag(headers, headers::POPULATE_INDEX_METRICS_V2),
            advice: headers::flag(headers, headers::POPULATE_QUERY_ADVICE),
            memory: Some(self.memory.query_state()),
            ..QueryOptions::default()
        };
        let mut page = match watched_query(self.database, receipt, at, options, self.query()?).await {
            // As in the service, the refusal carries the plan: a client that merges reads it from the error.
            Err(error) if error.kind == ErrorKind::CrossPartitionQuery => {
                let plan = self.database.plan_query(receipt, at.pair(), &self.query()?, None)?;
                return Ok(Reply::not_served(&error, &plan, self.activity_id));
            }
            page => page?,
        };
        let rid = receipt.container.as_ref().map(|container| container.rid.to_string()).unwrap_or_default();
        let token = page.continuation.as_deref().map(|token| continuation::write(token, &named));
        let mut reply = Reply::rows(&rid, "Documents", &page.rows, page.count, token.as_deref());
        if headers::flag(headers, headers::POPULATE_QUERY_METRICS) {
            reply = reply.with("x-ms-documentdb-query-metrics", query_metrics::to_header(&page.metrics));
        }
        reply = self.with_query_hints(reply, &page);
        reply.access = Some(std::mem::take(&mut page.metrics.access));
        // The result is complete: the client need not plan.
        if headers::flag(headers, headers::OPTIMISTIC_DIRECT) {
            reply = reply.with("x-ms-cosmos-query-requiresdistribution", "false");
        }
        // Clients that merge sorted pages read from this header in which order rows of equal rank come.
        if !page.is_sorted {
            return Ok(reply);
        }
        Ok(reply.with(
            "x-ms-cosmos-query-execution-info",
            "{\"reverseRidEnabled\":false,\"reverseIndexScan\":false}",
        ))
    }

    /// Index metrics and query advice, if the client requests them.
    fn with_query_hints(&self, reply: Reply, page: &QueryPage) -> Reply {
        let escape = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let reply = match &page.index_metrics {
            None => reply,
            Some(metrics) => {
                // The newer header wins where a client sends both.
                let coded = if headers::flag(&self.parts.headers, headers::POPULATE_INDEX_METRICS_V2) {
                    escape(&metrics.to_value().to_json())
                } else {
                    STANDARD.encode(metrics.to_older_value().to_json())
                };
                reply.with("x-ms-cosmos-index-utilization", coded)
            }
        };
        if page.advice.is_empty() {
            return reply;
        }
        let entry =
            |(id, function): &(&str, &str)| format!("{{\"Id\":\"{id}\",\"Params\":[\"{function}\"]}}");
        let entries: Vec<String> = page.advice.iter().map(entry).collect();
        reply.with("x-ms-cosmos-query-advice", escape(&format!("[{}]", entries.join(","))))
    }

    /// The query in the body; old clients send its bare text.
    pub(crate) fn query(&self) -> Result<QueryRequest> {
        let content_type = self.header("content-type").unwrap_or_default();
        if content_type.to_ascii_lowercase().starts_with("application/sql") {
            QueryRequest::from_text(&self.body)
        } else {
            QueryRequest::parse(&self.body)
        }
    }

    fn plan_query(&self, receipt: &mut Receipt, at: &ContainerPath) -> Result<Reply> {
        let features = self.header(headers::QUERY_FEATURES).unwrap_or_default();
        let plan = self.database.plan_query(receipt, at.pair(), &self.query()?, Some(features))?;
        Ok(Reply::json(StatusCode::OK, plan.to_json()))
    }

    /// The operations of a bulk request, which are independent; none if the request is a transaction.
    pub(crate) fn bulk_operations(&self) -> Option<Vec<BatchOperation>> {
        // Errors are ignored: only the recorder asks, and the request itself reports them.
        let has_key = headers::partition_key(&self.parts.headers).ok()?.is_some();
        if self.is_atomic(has_key) {
            return None;
        }
        Some(self.batch_operations().ok()?.into_iter().map(|parsed| parsed.operation).collect())
    }

    fn batch_operations(&self) -> Result<Vec<ParsedOperation>> {
        if hybrid_row::is_hybrid_row(&self.body) {
            parse_rows(&self.body)
        } else {
            batch_json::parse(&json_text(&self.body)?)
        }
    }

    /// Whether a batch is a transaction. Clients that omit the header are detected by the partition key header, which
    /// only transactions have.
    fn is_atomic(&self, has_key: bool) -> bool {
        match self.header(headers::BATCH_ATOMIC) {
            Some(_) => headers::flag(&self.parts.headers, headers::BATCH_ATOMIC),
            None => has_key,
        }
    }

    async fn batch(&self, receipt: &mut Receipt, at: &ContainerPath) -> Result<Reply> {
        let options = self.item_options()?;
        let is_row = hybrid_row::is_hybrid_row(&self.body);
        let parsed = self.batch_operations()?;
        // Only this layer needs to know who wants its item back; the database returns all.
        let minimal: Vec<bool> = parsed.iter().map(|operation| operation.minimal).collect();
        let operations: Vec<BatchOperation> = parsed.into_iter().map(|parsed| parsed.operation).collect();
        let results = if self.is_atomic(options.partition_key.is_some()) {
            self.database.execute_batch(receipt, at.pair(), &options, &operations).await?
        } else {
            let goes_on = self
                .header(headers::BATCH_CONTINUE)
                // Without the header, an operation that fails does not stop the others.
                .is_none_or(|_| headers::flag(&self.parts.headers, headers::BATCH_CONTINUE));
            self.database.execute_bulk(receipt, at.pair(), &options, &operations, goes_on).await?
        };
        // Only the reads among the operations cost double at the two strongest levels.
        let mut results = results;
        if self.consistency.level_of(&self.parts.headers)?.reads_cost_double() {
            for result in &mut results {
                if matches!(&result.outcome, BatchOutcome::Done(item) if item.effect == Effect::Read) {
                    receipt.add(result.charge);
                    result.charge += result.charge;
                }
            }
        }
        let wants_content = self.wants_content();
        let rows: Vec<WireResult> = results
            .iter()
            .zip(&minimal)
            .map(|(result, minimal)| WireResult::new(result, wants_content && !minimal))
            .collect();
        // Not modified is neither failure nor success (`BatchSinglePartitionKeyTests` of the .NET client expects 207).
        let differs = rows.iter().any(|row| row.status >= 300);
        let status = if differs { StatusCode::MULTI_STATUS } else { StatusCode::OK };
        // The response has the format of the request.
        if is_row {
            let mut reply = Reply::new(status);
            reply.body = hybrid_row::encode_results(rows.iter().map(WireResult::row)).into();
            return Ok(reply.with("content-type", "application/octet-stream"));
        }
        let mut body = String::with_capacity(256 * rows.len());
        body.push('[');
        for (at, row) in rows.iter().enumerate() {
            if at > 0 {
                body.push(',');
            }
            row.write_json(&mut body);
        }
        body.push(']');
        Ok(Reply::json(status, body))
    }
}

/// Whether a client expects the item that a delete has ended. The suite of the .NET SDK does; those of the Java and Rust
/// SDKs expect that there is none.
fn reads_previous_images(client: Option<&str>) -> bool {
    client.is_some_and(|client| client.starts_with("cosmos-netstandard-sdk/"))
}

/// The maximum size of a continuation token, in kilobytes.
fn token_limit_kb(sent: &http::HeaderMap) -> Result<Option<usize>> {
    let Some(limit) = headers::number(sent, headers::TOKEN_LIMIT)? else { return Ok(None) };
    let refused = |text: &str| Err(Error::bad_request(text));
    match usize::try_from(limit) {
        Ok(0) => refused(
            "The continuation token limit specified is not large enough. Please increase it to continue the query.",
        ),
        Ok(limit) => Ok(Some(limit)),
        Err(_) => {
            refused("Please pass in a valid continuation token size limit which must be a positive integer.")
        }
    }
}

/// Runs a query in a separate task. Evaluating it may keep its thread busy, and the connection task must notice
/// meanwhile if the client disconnects: the query is then cancelled and charged for the work done.
async fn watched_query(
    database: &Arc<Database>,
    receipt: &mut Receipt,
    at: &ContainerPath,
    mut options: QueryOptions,
    request: QueryRequest,
) -> Result<QueryPage> {
    /// Cancels the query on drop.
    struct Leaving(Cancellation);

    impl Drop for Leaving {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }

    // Dropped with this future, which the connection drops when the client disconnects. The task itself goes on,
    // and notices.
    let leaving = Leaving(Cancellation::default());
    let cancellation = leaving.0.clone();
    options.cancellation = Some(cancellation.clone());
    let (database, at, mut own) = (Arc::clone(database), at.clone(), std::mem::take(receipt));
    let task = orrery_env::task::spawn("query", async move {
        let outcome = tokio::select! {
            // In this order: a query that finished and was cancelled at the same time counts as finished.
            biased;
            outcome = database.query_items(&mut own, at.pair(), &options, &request) => Some(outcome),
            () = cancellation.cancelled() => None,
        };
        // Nobody is left to settle the receipt.
        if cancellation.is_cancelled() {
            database.settle(&own);
        }
        (own, outcome)
    });
    let (own, outcome) = match task.await {
        Ok(done) => done,
        // A panic inside the query fails the request like any other, with its 500 and its log entry.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => return Err(Error::internal(format!("The query was cancelled: {error}."))),
    };
    *receipt = own;
    outcome.unwrap_or_else(|| Err(Error::new(ErrorKind::Timeout, "The query was abandoned.")))
}

fn in_format(reply: Reply, format: JsonFormat) -> Reply {
    match format {
        JsonFormat::Binary if reply.status.is_success() => reply.into_binary(),
        JsonFormat::Binary | JsonFormat::Text => reply,
    }
}

fn json_text(body: &Bytes) -> Result<Bytes> {
    // Shares the bytes; nothing is copied for text.
    if !binary_json::is_binary(body) {
        return Ok(body.clone());
    }
    let text = binary_json::decode(body, BODY_BYTES_MAX).map_err(|error| match error {
        binary_json::BinaryJsonError::TooLarge(_) => {
            Error::new(ErrorKind::TooLarge, "Request size is too large")
        }
        error => Error::bad_request(format!(
            "The input content is invalid because its binary JSON cannot be read: {error}."
        )),
    })?;
    Ok(Bytes::from(text))
}

fn parse_rows(body: &Bytes) -> Result<Vec<ParsedOperation>> {
    let rows = hybrid_row::decode_batch(body, BATCH_OPERATIONS_MAX).map_err(|error| {
        Error::bad_request(format!("The input content is invalid because the batch cannot be read: {error}."))
    })?;
    rows.into_iter()
        .map(|row| {
            // Checked like the fields of a JSON batch, with the same errors.
            row.indexing_directive.map(batch_json::check_directive).transpose()?;
            if row.time_to_live_seconds.is_some() {
                return Err(batch_json::lifetime_beside_item());
            }
            let partition_key = row.partition_key.map(|text| PartitionKey::parse_json(text.as_bytes()));
            // A slice of the request's own memory, unless it has to be decoded.
            let resource_body = row.resource_body.map(|bytes| json_text(&body.slice_ref(bytes)));
            Ok(ParsedOperation {
                operation: BatchOperation {
                    kind: match row.operation {
                        RowOperation::Create => BatchKind::Create,
                        RowOperation::Upsert => BatchKind::Upsert,
                        RowOperation::Read => BatchKind::Read,
                        RowOperation::Replace => BatchKind::Replace,
                        RowOperation::Delete => BatchKind::Delete,
                        RowOperation::Patch => BatchKind::Patch,
                    },
                    id: row.id.map(str::to_owned),
                    body: resource_body.transpose()?,
                    if_match: row.if_match.map(str::to_owned),
                    if_none_match: row.if_none_match.map(str::to_owned),
                    partition_key: partition_key.transpose()?,
                },
                minimal: row.minimal_return,
            })
        })
        .collect()
}

/// One operation's result in wire format.
struct WireResult {
    status: u16,
    substatus: u16,
    etag: Option<String>,
    body: Option<Bytes>,
    charge: f64,
    retry_after_ms: Option<u32>,
    message: Option<String>,
}

impl WireResult {
    fn new(result: &BatchResult, wants_content: bool) -> Self {
        let mut row = Self {
            // Failed dependency: another operation of the transaction failed, so this one was not carried out.
            status: 424,
            substatus: 0,
            etag: None,
            body: None,
            charge: result.charge.as_f64(),
            retry_after_ms: None,
            message: None,
        };
        match &result.outcome {
            BatchOutcome::FailedDependency => {}
            BatchOutcome::Failed(error) => {
                let wire = wire_status(error.kind);
                (row.status, row.substatus) = (wire.status, wire.substatus);
                row.message = Some(error.message.clone());
                if let ErrorKind::TooManyRequests { retry_after_ms } = error.kind {
                    row.retry_after_ms = Some(retry_after_ms);
                }
            }
            BatchOutcome::Done(item) => {
                let (status, content) = match item.effect {
                    Effect::Created => (201, wants_content),
                    Effect::Replaced => (200, wants_content),
                    Effect::Read => (200, true),
                    Effect::NotModified => (304, false),
                    Effect::Deleted => (204, false),
                };
                row.status = status;
                if item.effect != Effect::Deleted {
                    row.etag = Some(item.etag.clone());
                }
                row.body = content.then(|| item.document());
            }
        }
        row
    }

    fn row(&self) -> ResultRow<'_> {
        ResultRow {
            status: self.status,
            substatus: self.substatus,
            etag: self.etag.as_deref(),
            resource_body: self.body.as_deref(),
            retry_after_ms: self.retry_after_ms,
            request_charge: Some(self.charge),
        }
    }

    fn write_json(&self, out: &mut String) {
        use std::fmt::Write;
        let mut write = |arguments: std::fmt::Arguments<'_>| {
            out.write_fmt(arguments).expect("a String accepts every write");
        };
        write(format_args!("{{\"statusCode\":{},\"requestCharge\":{}", self.status, self.charge));
        if self.substatus != 0 {
            write(format_args!(",\"subStatusCode\":{}", self.substatus));
        }
        if let Some(retry_after_ms) = self.retry_after_ms {
            write(format_args!(",\"retryAfterMilliseconds\":{retry_after_ms}"));
        }
        for (name, text) in [("eTag", &self.etag), ("message", &self.message)] {
            if let Some(text) = text {
                out.push_str(",\"");
                out.push_str(name);
                out.push_str("\":");
                write_json_string(text, out);
            }
        }
        if let Some(body) = &self.body {
            out.push_str(",\"resourceBody\":");
            // A stored item is UTF-8; anything else would make the whole response unreadable.
            out.push_str(std::str::from_utf8(body).unwrap_or("null"));
        }
        out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One create of `{"id":"a","pk":"x"}` (the first vector of the batch rows) with a sparse int32 field behind it.
    fn batch_with(path_token: u8, number: i32) -> Bytes {
        let mut row = vec![0x81, 0x70, 0x54, 0xE1, 0x7F, 0x43, 0, 0, 0, 0, 2, 0, 0, 0];
        let item = br#"{"id":"a","pk":"x"}"#;
        row.push(u8::try_from(item.len()).unwrap());
        row.extend_from_slice(item);
        row.extend_from_slice(&[7, path_token]);
        row.extend_from_slice(&number.to_le_bytes());
        let mut stream = vec![0x81, 0xF0, 0xD8, 0xFF, 0x7F, 1, 10, 0, 0, 0, 0x81, 0xF1, 0xD8, 0xFF, 0x7F];
        stream.extend_from_slice(&u32::try_from(row.len()).unwrap().to_le_bytes());
        stream.extend_from_slice(&crc32fast::hash(&row).to_le_bytes());
        stream.extend_from_slice(&row);
        stream.into()
    }

    #[test]
    fn a_lifetime_beside_the_item_is_refused() {
        let refused = parse_rows(&batch_with(11, 60)).err().unwrap();
        assert_eq!(refused.kind, ErrorKind::NotImplemented, "{refused}");
    }
}
