//! Running a query over the items of a container, one page at a time.
//!
//! The server keeps nothing between pages. A plain filter goes on where the last page stopped reading; a sorted
//! one keeps only a page of rows in memory and goes on after the last sort position; groups and distinct
//! rows are made again and counted off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_model::partition_key::EpkRange;
use orrery_model::rid::ItemRid;
use orrery_model::session::SessionToken;
use orrery_model::{Error, Result};
use orrery_query::context::{Context, Policies, Random, Work};
use orrery_query::pipeline::{Options, Output, Pipeline, ResumePoint, Row, Shape};
use orrery_query::{EvalError, Program};
use orrery_storage::{Key, ReadRequest, Scan};

use super::position::Position;
use super::request::{QueryRequest, policies};
use crate::catalog::{Container, Partition};
use crate::items::feed::FeedScope;
use crate::items::point::decode;
use crate::items::{document_value, keys};
use crate::metadata::PageRequest;
use crate::{Database, Trace, continuation, cost};

/// Bytes of rows in one page.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// Rows in a page when the server may decide.
const PAGE_ROWS_MAX: usize = 1000;
/// Items fetched from the store at once; between two fetches other requests get their turn.
const SCAN_ENTRIES: usize = 256;
/// A page that has read for so long ends early, if its shape allows that.
const PAGE_TIME_MAX: Duration = Duration::from_secs(2);
/// A query that cannot end early fails after so long.
const QUERY_TIME_MAX: Duration = Duration::from_mins(1);
/// Rows of work that one fetched page of items may cause by its joins.
const WORK_ROWS_MAX: u64 = 50_000_000;

/// How a client wants its query to be run.
#[derive(Clone, Debug, Default)]
pub struct QueryOptions {
    pub intended_rid: Option<String>,
    pub session: Option<SessionToken>,
    pub scope: FeedScope,
    pub page: PageRequest,
    /// Whether the query may visit more than one logical partition.
    pub cross_partition: bool,
    /// The longest continuation token that the client takes, in bytes.
    pub token_bytes_max: Option<usize>,
}

/// Rows of a query.
#[derive(Debug, Default)]
pub struct QueryPage {
    /// The rows' JSON texts, separated by commas.
    pub rows: Vec<u8>,
    pub count: usize,
    pub continuation: Option<String>,
    /// Whether rows are sorted, with ties in the order of their RIDs.
    pub is_sorted: bool,
}

impl Database {
    pub async fn query_items(
        &self,
        trace: &mut Trace,
        (database, container): (&str, &str),
        options: &QueryOptions,
        request: &QueryRequest,
    ) -> Result<QueryPage> {
        let container = self.item_container(trace, database, container, options.intended_rid.as_deref())?;
        let rows_max = options.page.count_max(100, PAGE_ROWS_MAX)?;
        let query = request.query()?;
        let program = request.program(&query, &container.definition)?;
        let range = options.scope.range(&container)?;
        let secret = self.catalog.snapshot().secret;
        let token_scope = token_scope(&container, request);
        let from = match &options.page.continuation {
            None => None,
            Some(token) => Some(Position::decode(&continuation::open(&secret, &token_scope, token)?)?),
        };
        let policies = policies(&container.definition);
        let random = Random::new(self.env.random_u64());
        let mut run = Run {
            database: self,
            container: &container,
            options,
            range,
            now_ms: self.env.now_ms(),
            random: &random,
            policies: &policies,
            started: Instant::now(),
            rows_max,
            items_read: 0,
            bytes_read: 0,
        };
        let (outputs, next) = match program.shape() {
            Shape::Stream => run.stream(trace, program, from).await?,
            Shape::Sort => run.sort(trace, program, from, request.resume_filter.as_ref()).await?,
            Shape::Once | Shape::Collect { .. } => {
                let is_ranked = query.order_by.as_ref().is_some_and(|order_by| order_by.rank);
                run.collect(trace, program, from, is_ranked).await?
            }
        };
        let is_sorted = query.order_by.is_some();
        let mut page = QueryPage { is_sorted, ..QueryPage::default() };
        for output in &outputs {
            if page.count > 0 {
                page.rows.push(b',');
            }
            page.rows.extend_from_slice(output.value.to_json().as_bytes());
            page.count += 1;
        }
        trace.add(cost::query(trace.served.len(), run.items_read, run.bytes_read, page.rows.len()));
        page.continuation =
            next.map(|position| continuation::seal(&secret, &token_scope, &position.encode()));
        Ok(page)
    }
}

/// A token belongs to one query text on one container; its parameters are the client's to repeat.
fn token_scope(container: &Container, request: &QueryRequest) -> String {
    format!("query/{}/{}", container.rid, request.text)
}

/// One page of one query.
struct Run<'a> {
    database: &'a Database,
    container: &'a Arc<Container>,
    options: &'a QueryOptions,
    range: EpkRange,
    now_ms: i64,
    random: &'a Random,
    policies: &'a Policies,
    started: Instant,
    rows_max: usize,
    items_read: u64,
    bytes_read: u64,
}

/// What the reader of items says after each one.
enum Flow {
    GoOn,
    Stop,
}

impl Run<'_> {
    /// Rows as the items come; the next page begins at the item where this one ends.
    async fn stream(
        &mut self,
        trace: &mut Trace,
        program: Arc<Program>,
        from: Option<Position>,
    ) -> Result<(Vec<Output>, Option<Position>)> {
        let (start, skip_rows, passed) = match from {
            None => (Key::new(), 0, 0),
            Some(Position::Stream { key, skip_rows, passed }) => (key, skip_rows, passed),
            Some(_) => return Err(continuation::invalid()),
        };
        let mut pipeline = Pipeline::new(program, Options { passed, skip_rows, ..Options::default() });
        let mut outputs: Vec<Output> = Vec::new();
        let mut next = None;
        let mut bytes = 0;
        let (rows_max, started) = (self.rows_max, self.started);
        if !pipeline.is_done() {
            self.feed(trace, &mut pipeline, start, |pipeline, key| {
                // The window has counted all rows of this item, also those that do not fit the page.
                let new = pipeline.take();
                let before = pipeline.passed() - new.len() as u64;
                for (counted, output) in (before..).zip(new) {
                    if outputs.len() >= rows_max || bytes >= PAGE_BYTES_MAX {
                        let skip_rows = output.row;
                        next = Some(Position::Stream { key: key.clone(), skip_rows, passed: counted });
                        return Flow::Stop;
                    }
                    bytes += output.value.to_json().len();
                    outputs.push(output);
                }
                if pipeline.is_done() {
                    return Flow::Stop;
                }
                if outputs.len() >= rows_max || bytes >= PAGE_BYTES_MAX || started.elapsed() > PAGE_TIME_MAX {
                    let key = [key.as_slice(), &[0]].concat();
                    next = Some(Position::Stream { key, skip_rows: 0, passed: pipeline.passed() });
                    return Flow::Stop;
                }
                Flow::GoOn
            })
            .await?;
        }
        Ok((outputs, next))
    }

    /// All items are read; only one page of rows is kept.
    async fn sort(
        &mut self,
        trace: &mut Trace,
        program: Arc<Program>,
        from: Option<Position>,
        resume_filter: Option<&orrery_model::Value>,
    ) -> Result<(Vec<Output>, Option<Position>)> {
        let (resume, passed, returned) = match from {
            None => (Self::resume_point(resume_filter)?, 0, 0),
            Some(Position::Sorted { point, passed }) => (Some(point), passed, 0),
            Some(Position::Counted { returned }) => (Self::resume_point(resume_filter)?, 0, returned),
            Some(Position::Stream { .. }) => return Err(continuation::invalid()),
        };
        let skipped = usize::try_from(returned).unwrap_or(usize::MAX);
        let page_rows = Some(self.rows_max.saturating_add(skipped));
        let mut pipeline =
            Pipeline::new(program, Options { passed, page_rows, resume, ..Options::default() });
        if !pipeline.is_done() {
            self.feed(trace, &mut pipeline, Key::new(), |_, _| Flow::GoOn).await?;
        }
        let context = self.context(None);
        pipeline.finish(&context).map_err(evaluation_failure)?;
        let all = pipeline.take();
        let total = all.len();
        let mut outputs = Vec::new();
        let mut bytes = 0;
        for output in all.into_iter().skip(skipped) {
            if outputs.len() >= self.rows_max || bytes >= PAGE_BYTES_MAX {
                break;
            }
            bytes += output.value.to_json().len();
            outputs.push(output);
        }
        let cut = total - skipped.min(total) - outputs.len();
        let next = (cut > 0 || pipeline.has_more()).then(|| {
            let counted = Position::Counted { returned: returned + outputs.len() as u64 };
            let last = outputs.last().and_then(|output| output.position.clone());
            let sorted = last.filter(|_| returned == 0).map(|point| Position::Sorted {
                point: ResumePoint { exclude: true, ..point },
                passed: pipeline.passed() - cut as u64,
            });
            // Long sort values would make a token that the client refuses: count rows instead.
            let token_max = self.options.token_bytes_max.unwrap_or(4096);
            sorted.filter(|position| position.encode().len() * 4 / 3 + 32 <= token_max).unwrap_or(counted)
        });
        Ok((outputs, next))
    }

    /// All items are read, all rows made, and those of earlier pages left out.
    async fn collect(
        &mut self,
        trace: &mut Trace,
        program: Arc<Program>,
        from: Option<Position>,
        is_ranked: bool,
    ) -> Result<(Vec<Output>, Option<Position>)> {
        let returned = match from {
            None => 0,
            Some(Position::Counted { returned }) => returned,
            Some(_) => return Err(continuation::invalid()),
        };

        let reads = program.shape() != Shape::Once;
        let mut pipeline = Pipeline::new(program, Options::default());
        if reads && !pipeline.is_done() {
            self.feed(trace, &mut pipeline, Key::new(), |_, _| Flow::GoOn).await?;
        } else if let Some(partition) = self.container.partitions_in(&self.range).next() {
            let nothing = ReadRequest::Get(Vec::new());
            self.database.read_partition(trace, partition, self.options.session.as_ref(), nothing).await?;
        }
        let context = self.context(None);
        pipeline.finish(&context).map_err(evaluation_failure)?;
        let all = pipeline.take();
        let mut outputs: Vec<Output> = Vec::new();
        let mut bytes = 0;
        let mut more = false;
        // Ranked rows come in one page: clients that merge them look at the first page only.
        let rows_max = if is_ranked { usize::MAX } else { self.rows_max };
        for output in all.into_iter().skip(usize::try_from(returned).unwrap_or(usize::MAX)) {
            if outputs.len() >= rows_max || bytes >= PAGE_BYTES_MAX {
                more = true;
                break;
            }
            bytes += output.value.to_json().len();
            outputs.push(output);
        }
        let next = more.then(|| Position::Counted { returned: returned + outputs.len() as u64 });
        Ok((outputs, next))
    }

    fn resume_point(filter: Option<&orrery_model::Value>) -> Result<Option<ResumePoint>> {
        let Some(filter) = filter else { return Ok(None) };
        let point = ResumePoint::parse(filter, |rid| ItemRid::parse(rid).map(ItemRid::ordinal));
        point.map(Some).ok_or_else(|| Error::bad_request("The query's resumeFilter is malformed."))
    }

    fn context<'c>(&'c self, work: Option<&'c Work>) -> Context<'c> {
        Context { work, ..Context::new(self.now_ms, self.random, self.policies) }
    }

    /// Reads the items in range from `start` on and feeds them, until `after_each` has enough.
    async fn feed(
        &mut self,
        trace: &mut Trace,
        pipeline: &mut Pipeline,
        start: Key,
        mut after_each: impl FnMut(&mut Pipeline, &Key) -> Flow,
    ) -> Result<()> {
        let partitions: Vec<Partition> = self.container.partitions_in(&self.range).cloned().collect();
        for partition in &partitions {
            let own = partition.range.intersect(&self.range).expect("it overlaps");
            let mut range = keys::items_in(&own);
            range.start = range.start.max(start.clone());
            while !range.is_empty() {
                let scan = Scan::forward(range.clone(), SCAN_ENTRIES);
                let session = self.options.session.as_ref();
                let page =
                    self.database.read_partition(trace, partition, session, ReadRequest::Scan(scan)).await?;
                let work = Work::new(WORK_ROWS_MAX);
                for entry in &page.entries {
                    let item = decode(&entry.value)?;
                    let Some((effective, _)) = keys::parse_item(&entry.key) else { continue };
                    if !self.database.is_visible(self.container, partition, &effective, &item) {
                        continue;
                    }
                    let document = document_value(&item, self.container.rid)?;
                    self.items_read += 1;
                    self.bytes_read += item.body.len() as u64;
                    let context = self.context(Some(&work));
                    pipeline
                        .feed(Row { document: &document, ordinal: item.ordinal }, &context)
                        .map_err(evaluation_failure)?;
                    if let Flow::Stop = after_each(pipeline, &entry.key) {
                        return Ok(());
                    }
                }
                if self.started.elapsed() > QUERY_TIME_MAX {
                    return Err(Error::new(
                        orrery_model::ErrorKind::Timeout,
                        "The query took longer than a request may take.",
                    ));
                }
                match page.entries.last() {
                    Some(last) if page.more => range.start = [last.key.as_slice(), &[0]].concat(),
                    _ => break,
                }
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is used as a function of the error")]
fn evaluation_failure(error: EvalError) -> Error {
    Error::bad_request(error.to_string())
}
