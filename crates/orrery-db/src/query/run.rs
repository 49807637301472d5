//! One page of a query: rows as items come, rows in order, or rows that need all items.
//!
//! The server keeps nothing between pages. A plain filter goes on where the last page stopped reading; a sorted
//! one keeps only a page of rows in memory and goes on after the last sort position; groups and distinct
//! rows are made again and counted off.

use std::sync::Arc;
use std::time::Instant;

use orrery_model::rid::ItemRid;
use orrery_model::{Error, ErrorKind, Result, Value};
use orrery_query::ast::Query;
use orrery_query::context::{Context, Policies, Random, UdfCaller, Work};
use orrery_query::pipeline::{Options, Pipeline, ResumePoint, Shape};
use orrery_query::{EvalError, Program};
use orrery_storage::{Key, ReadRequest};

use super::access::{Candidate, Offers, Sequence};
use super::ahead::Extent;
use super::choice::path_of;
use super::execute::QueryOptions;
use super::feed::StreamStart;
use super::functions::QueryFunctions;
use super::metrics::QueryMetrics;
use super::points::Points;
use super::position::Position;
use super::reader::{Flow, Reader};
use super::request::QueryRequest;
use super::rows::{KeptItems, Rows};
use super::stop::PAGE_TIME_MAX;
use crate::catalog::Partition;
use crate::layout::continuation;
use crate::partition::Receipt;

/// Bytes of rows in one page.
pub(super) const PAGE_BYTES_MAX: usize = 4 << 20;
/// Rows in a page when the server may decide.
pub(super) const PAGE_ROWS_MAX: usize = 1000;
/// Items that are looked at after a full page, to see whether another row follows.
const LOOK_AHEAD_ITEMS: usize = 64;

/// One page of one query.
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub(super) struct Run<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) options: &'a QueryOptions,
    pub(super) now_ms: i64,
    pub(super) random: &'a Random,
    pub(super) policies: &'a Policies,
    pub(super) started: Instant,
    pub(super) rows_max: usize,
    pub(super) metrics: QueryMetrics,
    /// The item that the page begins inside of, until the first item is there.
    pub(super) resumed_in: Option<Key>,
    /// Whether the rows of one item may be many: the query joins, or has subqueries.
    pub(super) multiplies: bool,
    /// Whether it calls functions whose work may grow with the square of a text.
    pub(super) squares: bool,
    /// The length of the query's text.
    pub(super) text_bytes: usize,
    /// Whether the page can end at any item.
    pub(super) is_stream: bool,
    /// Whether an item of this page is done.
    pub(super) has_progress: bool,
    /// The item whose evaluation ran out of time, and its partition.
    pub(super) interrupted_at: Option<Key>,
    pub(super) interrupted_in: Option<Partition>,
    pub(super) functions: Option<&'a QueryFunctions>,
    /// The properties of items that the program looks at; `None` = all.
    pub(super) roots: Option<Vec<Box<str>>>,
    /// Whether rows are whole items: then the program makes no values of them.
    pub(super) returns_items: bool,
    /// The items whose rows are being sorted, if rows are whole items.
    pub(super) kept: Option<KeptItems>,
    /// The windows are keys that the filter names.
    pub(super) by_keys: bool,
    /// Whether the filter also says which key the items have.
    pub(super) names_key: bool,
    /// Whether each item stands for an index entry that would have led to it: to scan a key's items is cheaper than
    /// following its entries, but what is paid for is the same.
    pub(super) stands_for_entries: bool,
}

/// A page and where the next one begins.
pub(super) type Page = (Rows, Option<Position>);

/// How the items of a page are found.
pub(super) enum Path {
    /// All items, in key order.
    Items,
    /// Items by index entries, in the order of the entries.
    Entries(Candidate),
    /// Items by a set of index entries that may name one several times; in key order.
    Set(Candidate),
    /// Items that the filter names; in key order.
    Points(Points),
    /// Items in the order of the query.
    Sequence(Sequence),
}

impl Path {
    fn number(&self) -> Option<u32> {
        match self {
            Self::Entries(candidate) | Self::Set(candidate) => Some(candidate.number()),
            Self::Items | Self::Points(_) | Self::Sequence(_) => None,
        }
    }

    /// Whether every item on it matches, so that the filter need not be evaluated.
    fn filter_holds(&self) -> bool {
        matches!(self, Self::Points(points) if points.is_exact)
    }

    /// All items of the windows in key order, or only those that the filter names.
    fn in_key_order(points: Option<Points>) -> Self {
        points.map_or(Self::Items, Self::Points)
    }
}

impl Run<'_> {
    pub(super) async fn page(
        &mut self,
        receipt: &mut Receipt,
        query: &Query,
        program: Arc<Program>,
        from: Option<Position>,
        offers: Offers,
        request: &QueryRequest,
    ) -> Result<Page> {
        if offers.is_empty {
            self.reader = Reader { windows: &[], ..self.reader };
        }
        match program.shape() {
            Shape::Stream => self.stream(receipt, program, from, offers).await,
            Shape::Sort => self.sort(receipt, program, from, offers, request.resume_filter.as_ref()).await,
            Shape::Once | Shape::Collect { .. } => {
                if from.is_none()
                    && let Some(output) = self.answer_by_index(receipt, query, &program, &offers).await?
                {
                    let mut rows = Rows::default();
                    rows.push(output, None, self.reader.container.rid)?;
                    return Ok((rows, None));
                }
                let is_ranked = query.order_by.as_ref().is_some_and(|order_by| order_by.rank);
                self.collect(receipt, program, from, offers, is_ranked).await
            }
        }
    }

    /// Rows as the items come; the next page begins at the item where this one ends.
    async fn stream(
        &mut self,
        receipt: &mut Receipt,
        program: Arc<Program>,
        from: Option<Position>,
        offers: Offers,
    ) -> Result<Page> {
        let start = match from {
            None => StreamStart::default(),
            Some(Position::Stream { key, skip_rows, passed, path, areas }) => {
                StreamStart { key, skip_rows, passed, path: Some(path), areas }
                    .in_generation(self.reader.container.index.serving.number)
            }
            Some(_) => return Err(continuation::invalid()),
        };
        let path = match start.path {
            None => self.choose(receipt, offers, None).await?,
            Some(None) => Path::in_key_order(offers.points),
            Some(Some(number)) => {
                match offers.candidates.into_iter().find(|offer| offer.number() == number) {
                    Some(candidate) => path_of(candidate),
                    // The index no longer has it. Items in key order can be found without, entries cannot.
                    None if start.areas.is_empty() => Path::in_key_order(offers.points),
                    None => return Err(continuation::invalid()),
                }
            }
        };
        self.take(&path);
        let (skip_rows, passed) = (start.skip_rows, start.passed);
        self.resumed_in = (skip_rows > 0).then(|| start.key.clone());
        let filter_holds = path.filter_holds();
        let documents_by_reference = self.returns_items;
        let options =
            Options { passed, skip_rows, filter_holds, documents_by_reference, ..Options::default() };
        let mut pipeline = Pipeline::new(program, options);
        let mut rows = Rows::default();
        let rid = self.reader.container.rid;
        let mut next = None;
        if pipeline.is_done() {
            return Ok((rows, None));
        }
        self.is_stream = true;
        let (mut looked_ahead, mut stopped) = (0, false);
        let mut passed_before = pipeline.passed();
        let (rows_max, started, number) = (self.rows_max, self.started, path.number());
        let by_entries = matches!(path, Path::Entries(..));
        let extent = self.extent();
        let feed =
            self.feed(receipt, &mut pipeline, &path, (&start, extent), |pipeline, found, partition| {
                // The window has counted all rows of this item, also those that do not fit the page.
                let position = |key: Key, skip_rows, passed| {
                    let areas = start.areas_at(by_entries, partition, &key);
                    Position::Stream { key, skip_rows, passed, path: number, areas }
                };
                passed_before = pipeline.passed();
                let new = pipeline.take();
                let before = pipeline.passed() - new.len() as u64;
                for (passed, output) in (before..).zip(new) {
                    if rows.is_full(rows_max) {
                        let (key, skip_rows) = (found.mark.clone(), output.row);
                        next = Some(position(key, skip_rows, passed));
                        stopped = true;
                        return Ok(Flow::Stop);
                    }
                    rows.push(output, documents_by_reference.then_some(&found.item), rid)?;
                }
                if pipeline.is_done() {
                    return Ok(Flow::Stop);
                }
                let is_full = rows.is_full(rows_max);
                let is_late = started.elapsed() > PAGE_TIME_MAX;
                if is_full || is_late {
                    let key = [found.mark.as_slice(), &[0]].concat();
                    next = Some(position(key, 0, pipeline.passed()));
                    // A look at what follows spares clients an empty last page.
                    if is_late || looked_ahead == LOOK_AHEAD_ITEMS {
                        stopped = true;
                        return Ok(Flow::Stop);
                    }
                    looked_ahead += 1;
                }
                Ok(Flow::GoOn)
            });
        let fed = feed.await;
        match (self.interrupted_at.take(), self.interrupted_in.take()) {
            // The item is evaluated again by the next page, whose time it has for itself. What it gave already is left
            // out here.
            (Some(key), Some(partition)) if self.has_progress => {
                let areas = start.areas_at(by_entries, &partition, &key);
                let (skip_rows, passed) = (0, passed_before);
                return Ok((rows, Some(Position::Stream { key, skip_rows, passed, path: number, areas })));
            }
            _ => fed?,
        }
        Ok((rows, next.filter(|_| stopped)))
    }

    /// Only one page of rows is kept, and if the index has the order only a page of items is read.
    async fn sort(
        &mut self,
        receipt: &mut Receipt,
        program: Arc<Program>,
        from: Option<Position>,
        offers: Offers,
        resume_filter: Option<&Value>,
    ) -> Result<Page> {
        let (resume, passed, returned) = match from {
            None => (resume_point(resume_filter)?, 0, 0),
            Some(Position::Sorted { point, passed }) => (Some(point), passed, 0),
            Some(Position::Counted { returned, .. }) => (resume_point(resume_filter)?, 0, returned),
            Some(Position::Stream { .. }) => return Err(continuation::invalid()),
        };
        let sequence = offers.sequence.clone();
        let path = self.choose(receipt, offers, sequence).await?;
        self.take(&path);
        let skipped = usize::try_from(returned).unwrap_or(usize::MAX);
        let page_rows = Some(self.rows_max.saturating_add(skipped));
        let (resume_at, filter_holds) = (resume.clone(), path.filter_holds());
        let documents_by_reference = self.returns_items;
        self.kept = documents_by_reference.then(KeptItems::default);
        let resume_options = Options { passed, page_rows, resume: resume_at, ..Options::default() };
        let options = Options { filter_holds, documents_by_reference, ..resume_options };
        let mut pipeline = Pipeline::new(program, options);
        if !pipeline.is_done() {
            match &path {
                Path::Sequence(sequence) => {
                    self.feed_sequence(receipt, &mut pipeline, sequence, resume.as_ref()).await?;
                }
                path => {
                    let all = (&StreamStart::default(), Extent::Everything);
                    self.feed(receipt, &mut pipeline, path, all, |_, _, _| Ok(Flow::GoOn)).await?;
                }
            }
        }
        self.finish(&mut pipeline)?;
        let all = pipeline.take();
        let total = all.len();
        let (mut rows, rid) = (Rows::default(), self.reader.container.rid);
        rows.fill(all.into_iter().skip(skipped), self.rows_max, self.kept.as_ref(), rid)?;
        let cut = total - skipped.min(total) - rows.count;
        let next = (cut > 0 || pipeline.has_more()).then(|| {
            let counted = Position::Counted { returned: returned + rows.count as u64, path: None };
            let sorted = rows.last.clone().filter(|_| returned == 0).map(|point| Position::Sorted {
                point: ResumePoint { exclude: true, ..point },
                passed: pipeline.passed() - cut as u64,
            });
            // Long sort values would make a token that the client refuses: count rows instead.
            let token_max = self.options.token_bytes_max.unwrap_or(4096);
            sorted.filter(|position| position.encode().len() * 4 / 3 + 32 <= token_max).unwrap_or(counted)
        });
        Ok((rows, next))
    }

    /// All rows are made, and those of earlier pages left out.
    async fn collect(
        &mut self,
        receipt: &mut Receipt,
        program: Arc<Program>,
        from: Option<Position>,
        offers: Offers,
        is_ranked: bool,
    ) -> Result<Page> {
        let (returned, from_path) = match from {
            None => (0, None),
            Some(Position::Counted { returned, path }) => (returned, Some(path)),
            Some(_) => return Err(continuation::invalid()),
        };
        let incremental = program.shape() == Shape::Collect { incremental: true };
        let mut number = None;
        let reads = program.shape() != Shape::Once;
        let mut pipeline = Pipeline::new(Arc::clone(&program), Options::default());
        if reads && !pipeline.is_done() {
            let path = match from_path {
                // The first page.
                None => self.choose(receipt, offers, None).await?,
                // Rows come in the order of the access path, so later pages must take the same.
                Some(None) => Path::in_key_order(offers.points),
                Some(Some(number)) => {
                    let same = offers.candidates.into_iter().find(|candidate| candidate.number() == number);
                    path_of(same.ok_or_else(continuation::invalid)?)
                }
            };
            if path.filter_holds() {
                pipeline = Pipeline::new(program, Options { filter_holds: true, ..Options::default() });
            }
            self.take(&path);
            number = path.number();
            // Distinct rows come as items do; no more are needed than this page and a sign of the next.
            let enough = usize::try_from(returned).unwrap_or(usize::MAX).saturating_add(self.rows_max);
            let extent = if incremental { self.extent() } else { Extent::Everything };
            let all = (&StreamStart::default(), extent);
            self.feed(receipt, &mut pipeline, &path, all, |pipeline, _, _| {
                let has_enough = incremental && (pipeline.ready() > enough || pipeline.is_done());
                Ok(if has_enough { Flow::Stop } else { Flow::GoOn })
            })
            .await?;
        }
        if receipt.served.is_empty() {
            self.touch(receipt).await?;
        }
        self.finish(&mut pipeline)?;
        // Ranked rows come in one page: clients that merge them look at the first page only.
        let rows_max = if is_ranked { usize::MAX } else { self.rows_max };
        let all = pipeline.take().into_iter().skip(usize::try_from(returned).unwrap_or(usize::MAX));
        let mut rows = Rows::default();
        let more = rows.fill(all, rows_max, None, self.reader.container.rid)?;
        let next = more.then(|| Position::Counted { returned: returned + rows.count as u64, path: number });
        Ok((rows, next))
    }

    /// Notes the path that is taken.
    fn take(&mut self, path: &Path) {
        self.metrics.note(&path.label());
        self.stands_for_entries = self.names_key && matches!(path, Path::Items);
    }

    /// How far a page will read that may end at any item.
    fn extent(&self) -> Extent {
        if self.by_keys { Extent::SmallPlaces } else { Extent::Unknown }
    }

    /// A query that reads no items still answers with the session of a partition.
    pub(super) async fn touch(&self, receipt: &mut Receipt) -> Result<()> {
        let range = self.options.scope.range(self.reader.container)?;
        if let Some(partition) = self.reader.container.partitions_in(&range).next() {
            let nothing = ReadRequest::Get(Vec::new());
            self.reader.database.read_partition(receipt, partition, self.reader.session, nothing).await?;
        }
        Ok(())
    }

    pub(super) fn context<'c>(&'c self, work: Option<&'c Work<'c>>) -> Context<'c> {
        let udf = self.functions.map(|functions| functions as &dyn UdfCaller);
        Context { work, udf, ..Context::new(self.now_ms, self.random, self.policies) }
    }
}

fn resume_point(filter: Option<&Value>) -> Result<Option<ResumePoint>> {
    let Some(filter) = filter else { return Ok(None) };
    let point = ResumePoint::parse(filter, |rid| ItemRid::parse(rid).map(ItemRid::ordinal));
    point.map(Some).ok_or_else(|| Error::bad_request("The query's resumeFilter is malformed."))
}

pub(super) fn evaluation_failure(error: EvalError) -> Error {
    match error {
        EvalError::UdfTimedOut => crate::failure::script_timed_out(),
        EvalError::TimedOut | EvalError::Cancelled => {
            Error::new(ErrorKind::Timeout, "The query took longer than a request may take.")
        }
        error => Error::bad_request(error.to_string()),
    }
}
