//! The three ways to fill a page: streamed rows, sorted rows, or rows that need all items.
//!
//! The server keeps nothing between pages. A plain filter continues where the last page stopped reading; a sorted one
//! keeps only a page of rows in memory and continues after the last sort position; groups and distinct rows are
//! recomputed, and those of earlier pages skipped.

use std::sync::Arc;

use orrery_env::monotonic;
use orrery_model::rid::ItemRid;
use orrery_model::{Error, Result, Value};
use orrery_query::ast::Query;
use orrery_query::pipeline::{Options, Pipeline, ResumePoint, Shape};
use orrery_query::{Program, QueryRequest, order};
use orrery_storage::Key;

use super::position::{Position, StreamStart};
use super::rows::{KeptItems, Rows};
use super::run::Run;
use super::stop::PAGE_TIME_MAX;
use crate::items::areas::areas_at;
use crate::layout::{continuation, keys};
use crate::partition::Receipt;
use crate::query::PAGE_BYTES_MAX;
use crate::query::fetch::ahead::Extent;
use crate::query::fetch::reader::{Flow, Reader};
use crate::query::plan::access::{AccessPath, AccessPaths};

/// Items read after a full page to see whether another row follows.
const LOOK_AHEAD_ITEMS: usize = 64;

/// More distinct rows than this are not counted in the index: a page of them is found sooner by a scan.
const DISTINCT_ROWS_MAX: usize = 1000;
/// In a token, in place of an access path: distinct rows come in the order of their values.
const IN_VALUE_ORDER: u32 = 1;

/// A page and the start of the next one.
pub(crate) type Page = (Rows, Option<Position>);

/// What a token has around a position: a checksum, and the range where a client gets it as JSON.
const TOKEN_FRAME_BYTES: usize = 96;

impl Run<'_> {
    pub(crate) async fn page(
        &mut self,
        receipt: &mut Receipt,
        query: &Query,
        program: Arc<Program>,
        from: Option<Position>,
        paths: AccessPaths,
        request: &QueryRequest,
    ) -> Result<Page> {
        // A contradictory filter: no window is left, so nothing is read and the row of an aggregate is still made.
        if paths.is_empty {
            self.reader = Reader { windows: &[], ..self.reader };
        }
        match program.shape() {
            Shape::Stream => self.stream(receipt, program, from, paths).await,
            Shape::Sort => self.sort(receipt, program, from, paths, request.resume_filter.as_ref()).await,
            Shape::Once | Shape::Collect { .. } => {
                // The answer is a single row, so only a first page can have it.
                if from.is_none()
                    && let Some(output) = self.answer_by_index(receipt, query, &program, &paths).await?
                {
                    let mut rows = Rows::default();
                    rows.push(output, None, self.reader.container.rid)?;
                    return Ok((rows, None));
                }
                let is_ranked = query.order_by.as_ref().is_some_and(|order_by| order_by.rank);
                self.collect(receipt, program, from, paths, is_ranked).await
            }
        }
    }

    /// Streamed rows; the next page starts at the item where this one ends.
    async fn stream(
        &mut self,
        receipt: &mut Receipt,
        program: Arc<Program>,
        from: Option<Position>,
        paths: AccessPaths,
    ) -> Result<Page> {
        let start = match from {
            None => StreamStart::default(),
            Some(Position::Stream { key, skip_rows, passed, path, areas }) => {
                StreamStart { key, skip_rows, passed, path: Some(path), areas, by_insertion: false }
                    .in_generation(self.reader.container.index.serving.number)
            }
            Some(_) => return Err(continuation::invalid()),
        };
        let start = StreamStart { by_insertion: true, ..start };
        // Later pages follow the path of the first, or rows would come twice or not at all.
        let path = match start.path {
            None => self.choose(receipt, paths, None).await?,
            Some(None) => AccessPath::in_key_order(paths.points),
            Some(Some(number)) => {
                match paths.candidates.into_iter().find(|candidate| candidate.number() == number) {
                    Some(candidate) => AccessPath::of(candidate),
                    // The index no longer has it. Items by key or RID can be resumed without it, entries cannot.
                    None if start.areas.iter().all(|area| keys::is_rid(&area.key)) => {
                        AccessPath::in_key_order(paths.points)
                    }
                    None => return Err(continuation::invalid()),
                }
            }
        };
        self.take(&path);
        let (skip_rows, passed) = (start.skip_rows, start.passed);
        self.resumed_in = (skip_rows > 0).then(|| start.key.clone());
        let filter_holds = path.filter_holds();
        let documents_by_reference = self.returns_items;
        let bounds = Options {
            // One more row than fits means that there is a next page.
            page_rows: Some(self.rows_max.saturating_add(1)),
            page_bytes: Some(PAGE_BYTES_MAX),
            ..Options::default()
        };
        let options = Options { passed, skip_rows, filter_holds, documents_by_reference, ..bounds };
        let mut pipeline = Pipeline::new(program, options);
        let mut rows = Rows::default();
        let rid = self.reader.container.rid;
        let mut next = None;
        // LIMIT 0, or all rows were returned: nothing needs to be read.
        if pipeline.is_done() {
            return Ok((rows, None));
        }
        self.is_stream = true;
        let (mut looked_ahead, mut stopped) = (0, false);
        let mut passed_before = pipeline.passed();
        let (rows_max, started, number) = (self.rows_max, self.started, path.number());
        let extent = self.extent();
        let feed = self.feed(receipt, &mut pipeline, &path, (&start, extent), |pipeline, found, piece| {
            // OFFSET and LIMIT have counted all rows of this item, including those that do not fit.
            let position = |key: Key, skip_rows, passed| {
                let areas = areas_at(&start.areas, piece, &key);
                Position::Stream { key, skip_rows, passed, path: number, areas }
            };
            passed_before = pipeline.passed();
            let new = pipeline.take();
            let before = pipeline.passed() - new.len() as u64;
            for (passed, output) in (before..).zip(new) {
                let skip_rows = output.row;
                let item = documents_by_reference.then_some(&found.item);
                // The row does not fit: the next page starts inside this item, behind the rows that did.
                if rows.is_full(rows_max) || !rows.push(output, item, rid)? {
                    next = Some(position(found.mark.clone(), skip_rows, passed));
                    stopped = true;
                    return Ok(Flow::Stop);
                }
            }
            if pipeline.is_done() {
                return Ok(Flow::Stop);
            }
            // The rows are small as text, but more of this item would take too much memory.
            if let Some(row) = pipeline.cut_at() {
                next = Some(position(found.mark.clone(), row, pipeline.passed()));
                stopped = true;
                return Ok(Flow::Stop);
            }
            let is_full = rows.is_full(rows_max);
            let is_late = monotonic::elapsed(started) > PAGE_TIME_MAX;
            if is_full || is_late {
                let key = [found.mark.as_slice(), &[0]].concat();
                next = Some(position(key, 0, pipeline.passed()));
                // Looking ahead saves clients an empty last page.
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
            // The next page evaluates the item again with its full time. Its rows so far are dropped here.
            (Some(key), Some(piece)) if self.has_progress => {
                let areas = areas_at(&start.areas, &piece, &key);
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
        paths: AccessPaths,
        resume_filter: Option<&Value>,
    ) -> Result<Page> {
        // A client may send a position of its own in addition to a token: the later one counts.
        let filter = resume_point(resume_filter)?;
        let (token, passed, returned) = match from {
            None => (None, 0, 0),
            Some(Position::Sorted { point, passed }) => (Some(point), passed, 0),
            Some(Position::Counted { returned, .. }) => (None, 0, returned),
            Some(Position::Stream { .. }) => return Err(continuation::invalid()),
        };
        let resume: Vec<ResumePoint> = token.into_iter().chain(filter).collect();
        let sequence = paths.sequence.clone();
        let path = self.choose(receipt, paths, sequence).await?;
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
                AccessPath::Sequence(sequence) => {
                    self.feed_sequence(receipt, &mut pipeline, sequence, resume.first()).await?;
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
            // Long sort values would make the token too large for the client: count rows instead.
            let token_max = self.options.token_bytes_max.unwrap_or(4096);
            sorted
                .filter(|position| position.encode().len() * 4 / 3 + TOKEN_FRAME_BYTES <= token_max)
                .unwrap_or(counted)
        });
        Ok((rows, next))
    }

    /// Computes all rows and skips those of earlier pages.
    async fn collect(
        &mut self,
        receipt: &mut Receipt,
        program: Arc<Program>,
        from: Option<Position>,
        paths: AccessPaths,
        is_ranked: bool,
    ) -> Result<Page> {
        let (returned, from_path) = match from {
            None => (0, None),
            Some(Position::Counted { returned, path }) => (returned, Some(path)),
            Some(_) => return Err(continuation::invalid()),
        };
        let incremental = program.shape() == Shape::Collect { incremental: true };
        let in_value_order = from_path == Some(Some(IN_VALUE_ORDER));
        let mut number = in_value_order.then_some(IN_VALUE_ORDER);
        let reads = program.shape() != Shape::Once;
        // Ranked rows are a single page: clients that merge them read only the first page.
        let rows_max = if is_ranked { usize::MAX } else { self.rows_max };
        let mut pipeline = Pipeline::new(Arc::clone(&program), Options::default());
        if reads && !pipeline.is_done() {
            let may_cover = match from_path {
                // Which distinct rows a bound admits depends on their order.
                None => !incremental || program.rows_max().is_none(),
                // Groups come in the same order from a scan in key order.
                Some(None) => !incremental,
                Some(Some(_)) => in_value_order,
            };
            if let Some(cover) = paths.cover.as_ref().filter(|_| may_cover) {
                let distinct_max = if in_value_order { usize::MAX } else { DISTINCT_ROWS_MAX };
                if let Some(fed) = self.feed_values(receipt, &program, cover, distinct_max).await? {
                    let number = incremental.then_some(IN_VALUE_ORDER);
                    return self.collected(receipt, fed, returned, rows_max, number).await;
                }
            }
            let path = match from_path {
                // The first page, or one whose order does not come from the access path.
                None | Some(Some(IN_VALUE_ORDER)) => self.choose(receipt, paths, None).await?,
                // Rows are in the order of the access path, so later pages must use the same one.
                Some(None) => AccessPath::in_key_order(paths.points),
                Some(Some(number)) => {
                    let same = paths.candidates.into_iter().find(|candidate| candidate.number() == number);
                    AccessPath::of(same.ok_or_else(continuation::invalid)?)
                }
            };
            if path.filter_holds() {
                pipeline = Pipeline::new(program, Options { filter_holds: true, ..Options::default() });
            }
            self.take(&path);
            number = number.or_else(|| path.number());
            // Distinct rows stream like items; only this page and one more row are needed.
            let streams = incremental && !in_value_order;
            let enough = usize::try_from(returned).unwrap_or(usize::MAX).saturating_add(self.rows_max);
            let extent = if streams { self.extent() } else { Extent::Everything };
            let all = (&StreamStart::default(), extent);
            self.feed(receipt, &mut pipeline, &path, all, |pipeline, _, _| {
                let has_enough = streams && (pipeline.ready() > enough || pipeline.is_done());
                Ok(if has_enough { Flow::Stop } else { Flow::GoOn })
            })
            .await?;
        }
        self.collected(receipt, pipeline, returned, rows_max, number).await
    }

    /// The page of collected rows after those that were returned. `number` is the access path, or the order, that later
    /// pages have to follow.
    async fn collected(
        &mut self,
        receipt: &mut Receipt,
        mut pipeline: Pipeline,
        returned: u64,
        rows_max: usize,
        number: Option<u32>,
    ) -> Result<Page> {
        if receipt.served.is_empty() {
            self.touch(receipt).await?;
        }
        self.finish(&mut pipeline)?;
        let mut all = pipeline.take();
        if number == Some(IN_VALUE_ORDER) {
            all.sort_by(|a, b| order::compare(Some(&a.value), Some(&b.value)));
        }
        let all = all.into_iter().skip(usize::try_from(returned).unwrap_or(usize::MAX));
        let mut rows = Rows::default();
        let more = rows.fill(all, rows_max, None, self.reader.container.rid)?;
        let next = more.then(|| Position::Counted { returned: returned + rows.count as u64, path: number });
        Ok((rows, next))
    }
}

fn resume_point(filter: Option<&Value>) -> Result<Option<ResumePoint>> {
    let Some(filter) = filter else { return Ok(None) };
    let point = ResumePoint::parse(filter, |rid| ItemRid::parse(rid).map(ItemRid::ordinal));
    point.map(Some).ok_or_else(|| {
        Error::bad_request(
            "Invalid Resume Filter. It must have the sort values of a row, and may name its document.",
        )
    })
}
