//! Running a query over the items of a container, one page at a time.
//!
//! The server keeps nothing between pages. A plain filter goes on where the last page stopped reading; a sorted
//! one keeps only a page of rows in memory and goes on after the last sort position; groups and distinct
//! rows are made again and counted off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_model::partition_key::{EpkRange, PartitionKeyDefinition};
use orrery_model::rid::ItemRid;
use orrery_model::session::SessionToken;
use orrery_model::{Error, ErrorKind, Result, Value};
use orrery_query::ast::Query;
use orrery_query::context::{Context, Policies, Random, Work};
use orrery_query::filter::{KeyRestriction, key_restriction};
use orrery_query::pipeline::{Options, Output, Pipeline, ResumePoint, ResumeValue, Row, Shape};
use orrery_query::{EvalError, Program};
use orrery_storage::{Direction, Key, KeyRange, ReadRequest};

use super::access::{self, Candidate, Offers, Sequence, SequenceBy};
use super::metrics::QueryMetrics;
use super::position::{Area, Position};
use super::reader::{Flow, Found, Reader, sequence_from};
use super::request::{QueryRequest, policies};
use super::shortcut;
use crate::catalog::{Container, Partition};
use crate::index::encode;
use crate::items::document_value;
use crate::items::feed::FeedScope;
use crate::metadata::PageRequest;
use crate::{Database, Trace, continuation, cost};

/// Bytes of rows in one page.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// Rows in a page when the server may decide.
const PAGE_ROWS_MAX: usize = 1000;
/// A page that has read for so long ends early, if its shape allows that.
const PAGE_TIME_MAX: Duration = Duration::from_secs(2);
/// A query that cannot end early fails after so long.
const QUERY_TIME_MAX: Duration = Duration::from_mins(1);
/// Rows of work that the joins of one fetch of items may cause.
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
    /// Go through all items, whatever the index offers: for comparing the two.
    pub without_index: bool,
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
    pub metrics: QueryMetrics,
}

impl Database {
    pub async fn query_items(
        &self,
        trace: &mut Trace,
        at: (&str, &str),
        options: &QueryOptions,
        request: &QueryRequest,
    ) -> Result<QueryPage> {
        let mut attempt = 0;
        loop {
            match self.query_items_once(trace, at, options, request).await {
                Err(error) if self.may_read_again(&error, at, &options.scope, &mut attempt).await => {}
                result => return result,
            }
        }
    }

    async fn query_items_once(
        &self,
        trace: &mut Trace,
        (database, container): (&str, &str),
        options: &QueryOptions,
        request: &QueryRequest,
    ) -> Result<QueryPage> {
        let started = Instant::now();
        let container = self.item_container(trace, database, container, options.intended_rid.as_deref())?;
        let rows_max = options.page.count_max(100, PAGE_ROWS_MAX)?;
        let query = request.query()?;
        let program = request.program(&query, &container.definition)?;
        let compiled = started.elapsed();
        let windows = Windows::find(&container, options, &program)?;
        let secret = self.catalog.snapshot().secret;
        let token_scope = token_scope(&container, request);
        let from = match &options.page.continuation {
            None => None,
            Some(token) => Some(Position::decode(&continuation::open(&secret, &token_scope, token)?)?),
        };
        let policies = policies(&container.definition);
        let random = Random::new(self.env.random_u64());
        let definition = &container.definition.partition_key;
        let reader = Reader {
            database: self,
            container: &container,
            session: options.session.as_ref(),
            windows: &windows.ranges,
            only: options.scope.partition_key.as_ref().filter(|key| definition.may_collide(key)),
        };
        let mut run = Run {
            reader,
            options,
            now_ms: self.env.now_ms(),
            random: &random,
            policies: &policies,
            started,
            rows_max,
            metrics: QueryMetrics { compile_time: compiled, ..QueryMetrics::default() },
            resumed_in: None,
        };
        let offers = if options.without_index {
            Offers::default()
        } else {
            access::offers(
                &container.index.serving,
                &container.definition,
                &query,
                &program,
                &windows.ranges,
                windows.are_points,
                &run.context(None),
            )
        };
        let (outputs, next) = run.page(trace, &query, program, from, offers, request).await?;
        let mut page = QueryPage { is_sorted: query.order_by.is_some(), ..QueryPage::default() };
        for output in &outputs {
            if page.count > 0 {
                page.rows.push(b',');
            }
            page.rows.extend_from_slice(output.value.to_json().as_bytes());
            page.count += 1;
        }
        let metrics = &mut run.metrics;
        (metrics.output_items, metrics.output_bytes) = (page.count as u64, page.rows.len() as u64);
        metrics.total_time = started.elapsed();
        trace.add(cost::query(trace.served.len(), metrics.items_read, metrics.bytes_read, page.rows.len()));
        page.continuation =
            next.map(|position| continuation::seal(&secret, &token_scope, &position.encode()));
        page.metrics = run.metrics;
        Ok(page)
    }
}

/// A token belongs to one query text on one container; its parameters are the client's to repeat.
fn token_scope(container: &Container, request: &QueryRequest) -> String {
    format!("query/{}/{}", container.rid, request.text)
}

/// The keys that can match, by the request's scope and by the filter.
struct Windows {
    ranges: Vec<EpkRange>,
    /// Each is a single, complete key.
    are_points: bool,
}

impl Windows {
    fn find(container: &Container, options: &QueryOptions, program: &Program) -> Result<Self> {
        let definition = &container.definition.partition_key;
        let scope = options.scope.range(container)?;
        let restriction = key_restriction(program, definition);
        check_crossing(options, definition, &restriction)?;
        let scope_is_point = options.scope.partition_key.as_ref().is_some_and(|key| definition.is_full(key));
        let mut windows = match &restriction {
            KeyRestriction::All => Self { ranges: vec![scope.clone()], are_points: scope_is_point },
            KeyRestriction::None => Self { ranges: Vec::new(), are_points: true },
            KeyRestriction::Keys(keys) => {
                let ranges = keys.iter().map(|key| definition.prefix_range(key));
                let mut ranges: Vec<EpkRange> = ranges.filter_map(|range| range.intersect(&scope)).collect();
                ranges.sort_by(|a, b| a.min.cmp(&b.min));
                ranges.dedup();
                Self { ranges, are_points: scope_is_point || keys.iter().all(|key| definition.is_full(key)) }
            }
        };
        windows.ranges.retain(|range| !range.is_empty());
        Ok(windows)
    }
}

/// Refuses a query that would have to visit several keys without being allowed to.
fn check_crossing(
    options: &QueryOptions,
    definition: &PartitionKeyDefinition,
    restriction: &KeyRestriction,
) -> Result<()> {
    let scope = &options.scope;
    let is_scoped = scope.partition_key.is_some() || scope.range_id.is_some() || scope.window.is_some();
    let names_one_key = match restriction {
        KeyRestriction::None => true,
        KeyRestriction::Keys(keys) => keys.len() == 1 && definition.is_full(&keys[0]),
        KeyRestriction::All => false,
    };
    if options.cross_partition || is_scoped || names_one_key {
        return Ok(());
    }
    Err(Error::bad_request(
        "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
    ))
}

/// One page of one query.
struct Run<'a> {
    reader: Reader<'a>,
    options: &'a QueryOptions,
    now_ms: i64,
    random: &'a Random,
    policies: &'a Policies,
    started: Instant,
    rows_max: usize,
    metrics: QueryMetrics,
    /// The item that the page begins inside of, until the first item is there.
    resumed_in: Option<Key>,
}

/// The rows of a page and where the next one begins.
type PageRows = (Vec<Output>, Option<Position>);

/// How the items of a page are found.
enum Path {
    /// All items, in key order.
    Items,
    /// Items by index entries, in the order of the entries.
    Entries(Candidate),
    /// Items by a set of index entries that may name one several times; in key order.
    Set(Candidate),
    /// Items in the order of the query.
    Sequence(Sequence),
}

impl Path {
    fn number(&self) -> Option<u32> {
        match self {
            Self::Entries(candidate) | Self::Set(candidate) => Some(candidate.number()),
            Self::Items | Self::Sequence(_) => None,
        }
    }
}

impl Run<'_> {
    async fn page(
        &mut self,
        trace: &mut Trace,
        query: &Query,
        program: Arc<Program>,
        from: Option<Position>,
        offers: Offers,
        request: &QueryRequest,
    ) -> Result<PageRows> {
        if offers.is_empty {
            self.reader = Reader { windows: &[], ..self.reader };
        }
        match program.shape() {
            Shape::Stream => self.stream(trace, program, from, offers).await,
            Shape::Sort => self.sort(trace, program, from, offers, request.resume_filter.as_ref()).await,
            Shape::Once | Shape::Collect { .. } => {
                if from.is_none()
                    && let Some(output) = self.count_by_index(trace, query, &offers).await?
                {
                    return Ok((vec![output], None));
                }
                let is_ranked = query.order_by.as_ref().is_some_and(|order_by| order_by.rank);
                self.collect(trace, program, from, offers, is_ranked).await
            }
        }
    }

    /// Rows as the items come; the next page begins at the item where this one ends.
    async fn stream(
        &mut self,
        trace: &mut Trace,
        program: Arc<Program>,
        from: Option<Position>,
        offers: Offers,
    ) -> Result<PageRows> {
        let start = match from {
            None => StreamStart::default(),
            Some(Position::Stream { key, skip_rows, passed, path, areas }) => {
                StreamStart { key, skip_rows, passed, path: Some(path), areas }
                    .in_generation(self.reader.container.index.serving.number)
            }
            Some(_) => return Err(continuation::invalid()),
        };
        let path = match start.path {
            None => self.choose(trace, offers.candidates, None).await?,
            Some(None) => Path::Items,
            Some(Some(number)) => {
                match offers.candidates.into_iter().find(|offer| offer.number() == number) {
                    Some(candidate) => path_of(candidate),
                    // The index no longer has it. Items in key order can be found without, entries cannot.
                    None if start.areas.is_empty() => Path::Items,
                    None => return Err(continuation::invalid()),
                }
            }
        };
        self.metrics.note(&path.label());
        let (skip_rows, passed) = (start.skip_rows, start.passed);
        self.resumed_in = (skip_rows > 0).then(|| start.key.clone());
        let mut pipeline = Pipeline::new(program, Options { passed, skip_rows, ..Options::default() });
        let mut outputs: Vec<Output> = Vec::new();
        let mut next = None;
        if pipeline.is_done() {
            return Ok((outputs, None));
        }
        let mut bytes = 0;
        let (rows_max, started, number) = (self.rows_max, self.started, path.number());
        let by_entries = matches!(path, Path::Entries(..));
        let feed = self.feed(trace, &mut pipeline, &path, &start, |pipeline, found, partition| {
            // The window has counted all rows of this item, also those that do not fit the page.
            let position = |key: Key, skip_rows, passed| {
                let areas = start.areas_at(by_entries, partition, &key);
                Position::Stream { key, skip_rows, passed, path: number, areas }
            };
            let new = pipeline.take();
            let before = pipeline.passed() - new.len() as u64;
            for (passed, output) in (before..).zip(new) {
                if outputs.len() >= rows_max || bytes >= PAGE_BYTES_MAX {
                    let (key, skip_rows) = (found.mark.clone(), output.row);
                    next = Some(position(key, skip_rows, passed));
                    return Flow::Stop;
                }
                bytes += output.value.to_json().len();
                outputs.push(output);
            }
            if pipeline.is_done() {
                return Flow::Stop;
            }
            if outputs.len() >= rows_max || bytes >= PAGE_BYTES_MAX || started.elapsed() > PAGE_TIME_MAX {
                let key = [found.mark.as_slice(), &[0]].concat();
                let passed = pipeline.passed();
                next = Some(position(key, 0, passed));
                return Flow::Stop;
            }
            Flow::GoOn
        });
        feed.await?;
        Ok((outputs, next))
    }

    /// Only one page of rows is kept, and if the index has the order only a page of items is read.
    async fn sort(
        &mut self,
        trace: &mut Trace,
        program: Arc<Program>,
        from: Option<Position>,
        offers: Offers,
        resume_filter: Option<&Value>,
    ) -> Result<PageRows> {
        let (resume, passed, returned) = match from {
            None => (resume_point(resume_filter)?, 0, 0),
            Some(Position::Sorted { point, passed }) => (Some(point), passed, 0),
            Some(Position::Counted { returned }) => (resume_point(resume_filter)?, 0, returned),
            Some(Position::Stream { .. }) => return Err(continuation::invalid()),
        };
        let path = self.choose(trace, offers.candidates, offers.sequence).await?;
        self.metrics.note(&path.label());
        let skipped = usize::try_from(returned).unwrap_or(usize::MAX);
        let page_rows = Some(self.rows_max.saturating_add(skipped));
        let options = Options { passed, page_rows, resume: resume.clone(), ..Options::default() };
        let mut pipeline = Pipeline::new(program, options);
        if !pipeline.is_done() {
            match &path {
                Path::Sequence(sequence) => {
                    self.feed_sequence(trace, &mut pipeline, sequence, resume.as_ref()).await?;
                }
                path => {
                    self.feed(trace, &mut pipeline, path, &StreamStart::default(), |_, _, _| Flow::GoOn)
                        .await?;
                }
            }
        }
        pipeline.finish(&self.context(None)).map_err(evaluation_failure)?;
        let all = pipeline.take();
        let total = all.len();
        let (outputs, _) = cut_page(all.into_iter().skip(skipped), self.rows_max);
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

    /// All rows are made, and those of earlier pages left out.
    async fn collect(
        &mut self,
        trace: &mut Trace,
        program: Arc<Program>,
        from: Option<Position>,
        offers: Offers,
        is_ranked: bool,
    ) -> Result<PageRows> {
        let returned = match from {
            None => 0,
            Some(Position::Counted { returned }) => returned,
            Some(_) => return Err(continuation::invalid()),
        };
        let reads = program.shape() != Shape::Once;
        let mut pipeline = Pipeline::new(program, Options::default());
        if reads && !pipeline.is_done() {
            let path = self.choose(trace, offers.candidates, None).await?;
            self.metrics.note(&path.label());
            self.feed(trace, &mut pipeline, &path, &StreamStart::default(), |_, _, _| Flow::GoOn).await?;
        }
        if trace.served.is_empty() {
            self.touch(trace).await?;
        }
        pipeline.finish(&self.context(None)).map_err(evaluation_failure)?;
        // Ranked rows come in one page: clients that merge them look at the first page only.
        let rows_max = if is_ranked { usize::MAX } else { self.rows_max };
        let all = pipeline.take().into_iter().skip(usize::try_from(returned).unwrap_or(usize::MAX));
        let (outputs, more) = cut_page(all, rows_max);
        let next = more.then(|| Position::Counted { returned: returned + outputs.len() as u64 });
        Ok((outputs, next))
    }

    /// A query that reads no items still answers with the session of a partition.
    async fn touch(&self, trace: &mut Trace) -> Result<()> {
        let range = self.options.scope.range(self.reader.container)?;
        if let Some(partition) = self.reader.container.partitions_in(&range).next() {
            let nothing = ReadRequest::Get(Vec::new());
            self.reader.database.read_partition(trace, partition, self.reader.session, nothing).await?;
        }
        Ok(())
    }

    /// Answers `COUNT` from the index alone, where that is exact.
    async fn count_by_index(
        &mut self,
        trace: &mut Trace,
        query: &Query,
        offers: &Offers,
    ) -> Result<Option<Output>> {
        let container = self.reader.container;
        // Expired and purged items still have entries, and so have those of other keys in the same place.
        let entries_are_items = container.definition.default_ttl.is_none()
            && self.reader.database.purges.is_idle()
            && self.reader.only.is_none();
        let [candidate] = offers.candidates.as_slice() else { return Ok(None) };
        let Some(shape) = shortcut::count_of_filter(query)
            .filter(|_| entries_are_items && candidate.is_exact && !candidate.repeats && candidate.is_narrow)
        else {
            return Ok(None);
        };
        let mut count = 0;
        for partition in self.reader.partitions() {
            count += self.reader.count_entries(trace, &partition, candidate).await?;
        }
        self.metrics.note(&format!("count of {}", candidate.label));
        Ok(Some(Output { value: shape.value(count), input: 0, row: 0, position: None, passed: 1 }))
    }

    /// Chooses the access path: the index order, the candidate with the fewest entries, or all items.
    async fn choose(
        &mut self,
        trace: &mut Trace,
        candidates: Vec<Candidate>,
        sequence: Option<Sequence>,
    ) -> Result<Path> {
        let Some(partition) = self.reader.partitions().into_iter().next() else { return Ok(Path::Items) };
        let mut best: Option<(usize, Candidate)> = None;
        let several = candidates.len() > 1 || sequence.is_some();
        for candidate in candidates {
            let needs_probe = several || !candidate.is_selective || !candidate.is_narrow;
            let probed =
                if needs_probe { self.reader.probe(trace, &partition, &candidate).await? } else { 0 };
            let many = needs_probe && Reader::is_many(probed);
            if many && !(candidate.is_selective && candidate.is_narrow) {
                continue;
            }
            if best.as_ref().is_none_or(|(fewest, ..)| probed < *fewest) {
                best = Some((probed, candidate));
            }
        }
        Ok(match (best, sequence) {
            (Some((_, candidate)), None) => path_of(candidate),
            (Some((probed, candidate)), Some(sequence)) => {
                if Reader::is_many(probed) {
                    Path::Sequence(sequence)
                } else {
                    path_of(candidate)
                }
            }
            (None, Some(sequence)) => Path::Sequence(sequence),
            (None, None) => Path::Items,
        })
    }

    pub(super) fn context<'c>(&'c self, work: Option<&'c Work>) -> Context<'c> {
        Context { work, ..Context::new(self.now_ms, self.random, self.policies) }
    }

    /// Reads items along the path and feeds them, until `after_each` has enough.
    async fn feed(
        &mut self,
        trace: &mut Trace,
        pipeline: &mut Pipeline,
        path: &Path,
        start: &StreamStart,
        mut after_each: impl FnMut(&mut Pipeline, &Found, &Partition) -> Flow,
    ) -> Result<()> {
        let partitions = self.reader.partitions();
        if partitions.is_empty() {
            self.touch(trace).await?;
        }
        for partition in &partitions {
            // Entries are ordered inside one partition; where the last page stopped holds for the partition it
            // was in, and for what that has been split into since.
            let resumed = match start.areas.first() {
                None => &start.key,
                Some(current) if partition.range.max <= current.min => continue,
                Some(_) => start
                    .areas
                    .iter()
                    .find(|area| area.covers(&partition.range))
                    .map_or(&NO_KEY, |area| &area.key),
            };
            let candidate = match path {
                Path::Entries(candidate) => Some(candidate),
                _ => None,
            };
            let mut item_set = None;
            if let Path::Set(candidate) = path {
                let set = self.reader.item_set(trace, partition, candidate).await?;
                item_set = set.map(|set| set.into_iter().filter(|key| key >= resumed).collect::<Vec<Key>>());
            }
            let ranges = match (candidate, &item_set) {
                (_, Some(_)) => Vec::new(),
                (Some(candidate), None) => ranges_from(&candidate.ranges, resumed),
                (None, None) => self.reader.item_ranges(partition, resumed),
            };
            for keys in item_set.unwrap_or_default().chunks(256) {
                let items = self.reader.load(trace, partition, keys.to_vec()).await?;
                let found = keys.iter().zip(items).filter_map(|(key, item)| {
                    Some(Found { item: item?, mark: key.clone(), run: Vec::new() })
                });
                let flow = self
                    .feed_batch(pipeline, found, |pipeline, found| after_each(pipeline, found, partition))?;
                if flow != Flow::GoOn {
                    return Ok(());
                }
                tokio::task::yield_now().await;
            }
            for mut range in ranges {
                while !range.is_empty() {
                    let found = match candidate {
                        Some(_) => {
                            let direction = Direction::Forward;
                            self.reader.fetch_entries(trace, partition, &mut range, direction, None).await?
                        }
                        None => self.reader.fetch_items(trace, partition, &mut range).await?,
                    };
                    let found = found.into_iter();
                    let flow = self.feed_batch(pipeline, found, |pipeline, found| {
                        after_each(pipeline, found, partition)
                    })?;
                    if flow != Flow::GoOn {
                        return Ok(());
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
        Ok(())
    }

    /// Reads items in the order of the query, of each partition only as many as can be in the page.
    async fn feed_sequence(
        &mut self,
        trace: &mut Trace,
        pipeline: &mut Pipeline,
        sequence: &Sequence,
        resume: Option<&ResumePoint>,
    ) -> Result<()> {
        let encoded = resume.and_then(|point| sequence.encode(point));
        let only_undefined = sequence.lacks_undefined
            && resume.is_some_and(|point| point.values.first() == Some(&ResumeValue::Undefined));
        let partitions = self.reader.partitions();
        let is_alone = partitions.len() == 1;
        for partition in &partitions {
            let mut range = sequence_from(sequence, encoded.as_deref());
            if only_undefined {
                range.end = Some(range.start.clone());
            }
            // An item whose rows come too late for the page ends the partition, once the run of equal values
            // is over: ties are ordered by what the index does not know. A lone partition can stop even
            // earlier, as soon as the page is full.
            let lost_before = pipeline.rows_lost();
            let mut last_run: Option<Vec<u8>> = None;
            let mut settled = false;
            while !range.is_empty() && !settled {
                let composite = sequence.composite();
                let found = self
                    .reader
                    .fetch_entries(trace, partition, &mut range, sequence.direction, composite)
                    .await?;
                let flow = self.feed_batch_until(pipeline, found.into_iter(), |pipeline, found| {
                    let is_new_run = last_run.as_ref() != Some(&found.run);
                    let is_over = pipeline.rows_lost() > lost_before || is_alone && pipeline.is_settled();
                    if is_new_run && last_run.is_some() && is_over {
                        return false;
                    }
                    last_run = Some(found.run.clone());
                    true
                })?;
                settled = flow == Flow::Stop;
                tokio::task::yield_now().await;
            }
            if sequence.lacks_undefined && !settled {
                self.feed_without(trace, pipeline, partition, sequence).await?;
            }
        }
        if trace.served.is_empty() {
            self.touch(trace).await?;
        }
        Ok(())
    }

    /// Feeds the items that lack the property of a sequence.
    async fn feed_without(
        &mut self,
        trace: &mut Trace,
        pipeline: &mut Pipeline,
        partition: &Partition,
        sequence: &Sequence,
    ) -> Result<()> {
        let SequenceBy::Path(path) = &sequence.by else { return Ok(()) };
        let names: Vec<&str> = path
            .0
            .iter()
            .filter_map(|step| match step {
                orrery_query::filter::PathStep::Name(name) => Some(&**name),
                orrery_query::filter::PathStep::Element => None,
            })
            .collect();
        for mut range in self.reader.item_ranges(partition, &NO_KEY) {
            while !range.is_empty() {
                let found = self.reader.fetch_items(trace, partition, &mut range).await?;
                let mut without = Vec::new();
                for found in found {
                    let value = document_value(&found.item, self.reader.container.rid)?;
                    if value.at_path(&names).is_none() {
                        without.push(found);
                    }
                }
                self.feed_batch(pipeline, without.into_iter(), |_, _| Flow::GoOn)?;
                self.check_time()?;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    fn feed_batch(
        &mut self,
        pipeline: &mut Pipeline,
        found: impl Iterator<Item = Found>,
        mut after_each: impl FnMut(&mut Pipeline, &Found) -> Flow,
    ) -> Result<Flow> {
        let work = Work::new(WORK_ROWS_MAX);
        for found in found {
            self.feed_one(pipeline, &found, &work)?;
            let flow = after_each(pipeline, &found);
            if flow != Flow::GoOn {
                return Ok(flow);
            }
        }
        self.check_time()?;
        Ok(Flow::GoOn)
    }

    /// Feeds items as long as `before_each` lets them pass.
    fn feed_batch_until(
        &mut self,
        pipeline: &mut Pipeline,
        found: impl Iterator<Item = Found>,
        mut before_each: impl FnMut(&mut Pipeline, &Found) -> bool,
    ) -> Result<Flow> {
        let work = Work::new(WORK_ROWS_MAX);
        for found in found {
            if !before_each(pipeline, &found) {
                return Ok(Flow::Stop);
            }
            self.feed_one(pipeline, &found, &work)?;
        }
        self.check_time()?;
        Ok(Flow::GoOn)
    }

    fn feed_one(&mut self, pipeline: &mut Pipeline, found: &Found, work: &Work) -> Result<()> {
        if self.resumed_in.take().is_some_and(|key| key != found.mark) {
            pipeline.forget_skipped_rows();
        }
        let document = document_value(&found.item, self.reader.container.rid)?;
        self.metrics.items_read += 1;
        self.metrics.bytes_read += found.item.body.len() as u64;
        let row = Row { document: &document, ordinal: found.item.ordinal };
        pipeline.feed(row, &self.context(Some(work))).map_err(evaluation_failure)
    }

    fn check_time(&self) -> Result<()> {
        if self.started.elapsed() > QUERY_TIME_MAX {
            Err(Error::new(ErrorKind::Timeout, "The query took longer than a request may take."))
        } else {
            Ok(())
        }
    }
}

/// Where a stream goes on.
#[derive(Default)]
struct StreamStart {
    key: Key,
    skip_rows: u32,
    passed: u64,
    /// The access path of the earlier pages; `None` = this is the first.
    path: Option<Option<u32>>,
    areas: Vec<Area>,
}

impl StreamStart {
    /// The same place in the index as it is now: its generation may have changed since the last page.
    fn in_generation(mut self, generation: u32) -> Self {
        if !self.areas.is_empty() {
            self.key = encode::in_generation(self.key, generation);
        }
        for area in &mut self.areas {
            area.key = encode::in_generation(std::mem::take(&mut area.key), generation);
        }
        self
    }

    /// The areas of a page that ends at this key: its own partition, and what is left of the larger ones.
    fn areas_at(&self, by_entries: bool, partition: &Partition, key: &Key) -> Vec<Area> {
        if !by_entries {
            return Vec::new();
        }
        let range = &partition.range;
        let own = Area { min: range.min.clone(), max: range.max.clone(), key: key.clone() };
        let larger = self.areas.iter().filter(|area| area.max > range.max).cloned();
        std::iter::once(own).chain(larger).collect()
    }
}

static NO_KEY: Key = Key::new();

impl Path {
    fn label(&self) -> String {
        match self {
            Self::Items => "all items".to_owned(),
            Self::Entries(candidate) | Self::Set(candidate) => candidate.label.clone(),
            Self::Sequence(sequence) => sequence.label.clone(),
        }
    }
}

fn path_of(candidate: Candidate) -> Path {
    if candidate.repeats { Path::Set(candidate) } else { Path::Entries(candidate) }
}

/// The parts of the ranges from `start` on.
fn ranges_from(ranges: &[KeyRange], start: &Key) -> Vec<KeyRange> {
    let rest = ranges
        .iter()
        .map(|range| KeyRange { start: range.start.clone().max(start.clone()), end: range.end.clone() });
    rest.filter(|range| !range.is_empty()).collect()
}

/// The rows that fit a page, and whether some were left.
fn cut_page(all: impl Iterator<Item = Output>, rows_max: usize) -> (Vec<Output>, bool) {
    let mut outputs: Vec<Output> = Vec::new();
    let mut bytes = 0;
    for output in all {
        if outputs.len() >= rows_max || bytes >= PAGE_BYTES_MAX {
            return (outputs, true);
        }
        bytes += output.value.to_json().len();
        outputs.push(output);
    }
    (outputs, false)
}

fn resume_point(filter: Option<&Value>) -> Result<Option<ResumePoint>> {
    let Some(filter) = filter else { return Ok(None) };
    let point = ResumePoint::parse(filter, |rid| ItemRid::parse(rid).map(ItemRid::ordinal));
    point.map(Some).ok_or_else(|| Error::bad_request("The query's resumeFilter is malformed."))
}

#[expect(clippy::needless_pass_by_value, reason = "it is used as a function of the error")]
fn evaluation_failure(error: EvalError) -> Error {
    Error::bad_request(error.to_string())
}
