//! Running a query over the items of a container: from the request to a page and its continuation.

use std::sync::Arc;
use std::time::Instant;

use orrery_model::partition_key::{EpkRange, PartitionKeyDefinition};
use orrery_model::session::SessionToken;
use orrery_model::{Error, ErrorKind, Result, Value};
use orrery_query::ast::Query;
use orrery_query::context::Random;
use orrery_query::filter::{KeyRestriction, index_condition};
use orrery_query::plan::Features;
use orrery_query::{Context, Program};

use orrery_metering::cost;

use super::access::Offers;
use super::client_merge::ClientMerge;
use super::functions::QueryFunctions;
use super::index_metrics::index_metrics;
use super::metrics::QueryMetrics;
use super::plan::plan_in;
use super::points::Points;
use super::position::Position;
use super::reader::{Reader, Timing};
use super::request::{QueryRequest, policies};
use super::rows::Rows;
use super::run::{PAGE_ROWS_MAX, Run};
use super::stop::Cancellation;
use super::{Queries, access, client_merge};
use crate::catalog::Container;
use crate::items::feed::FeedScope;
use crate::layout::continuation;
use crate::layout::page_request::PageRequest;
use crate::partition::{Overlay, Receipt};

/// What the service says of a query that its client has to merge.
const NOT_SERVED: &str = "The provided cross partition query can not be directly served by the gateway. This is a first chance (internal) exception that all newer clients will know how to handle gracefully. This exception is traced, but unless you see it bubble up as an exception (which only happens on older SDK clients), then you can safely ignore this message.";

/// How a client wants its query to be run.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a header of its own")]
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
    /// Tell which indexes the query uses and which would help it.
    pub index_metrics: bool,
    /// Give advice on filters that an index serves badly.
    pub advice: bool,
    /// Which queries over several keys the client is asked to merge.
    pub client_merge: ClientMerge,
    /// Ends the query when nobody waits for it any more.
    pub cancellation: Option<Cancellation>,
    /// Count the entries of index candidates also where there is nothing to choose, for an explanation.
    pub probe_all: bool,
}

/// Where a query looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// The logical partitions it was sent to, if that was decided one by one.
    pub keys: Option<usize>,
    /// Whether the container's synthetic key decided it.
    pub by_synthetic_key: bool,
}

/// Rows of a query.
#[derive(Debug, Default)]
pub struct QueryPage {
    pub routing: Routing,
    /// The rows' JSON texts, separated by commas.
    pub rows: Vec<u8>,
    pub count: usize,
    pub continuation: Option<String>,
    /// Whether rows are sorted, with ties in the order of their RIDs.
    pub is_sorted: bool,
    pub metrics: QueryMetrics,
    /// Which indexes the query uses and which would help it, if that was asked.
    pub index_metrics: Option<Value>,
    /// The ids of advice, if that was asked, with the function that each is about.
    pub advice: Vec<(&'static str, &'static str)>,
}

impl Queries {
    pub async fn query_items(
        &self,
        receipt: &mut Receipt,
        at: (&str, &str),
        options: &QueryOptions,
        request: &QueryRequest,
    ) -> Result<QueryPage> {
        let mut attempt = 0;
        loop {
            match self.query_items_once(receipt, at, options, request).await {
                Err(error) if self.may_read_again(&error, at, &options.scope, &mut attempt).await => {}
                result => return result,
            }
        }
    }

    async fn query_items_once(
        &self,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
        options: &QueryOptions,
        request: &QueryRequest,
    ) -> Result<QueryPage> {
        let container = self.item_container(receipt, database, container, options.intended_rid.as_deref())?;
        self.query_container(receipt, &container, options, request, None).await
    }

    /// Runs a query on a container as it is, or as a script sees it.
    pub(crate) async fn query_container(
        &self,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        options: &QueryOptions,
        request: &QueryRequest,
        overlay: Option<&Overlay>,
    ) -> Result<QueryPage> {
        let started = Instant::now();
        let rows_max = options.page.count_max(100, PAGE_ROWS_MAX)?;
        let query = request.query()?;
        let parse_time = started.elapsed();
        let program = request.program(&query, &container.definition)?;
        let compile_time = started.elapsed().saturating_sub(parse_time);
        let windows = Windows::find(container, options, &program)?;
        self.check_index_view(container, &windows.ranges).await?;
        let may_cross = !windows.are_points || windows.ranges.len() > 1;
        if options.client_merge != ClientMerge::Never && may_cross {
            let plan = || plan_in(container, &query, request, Features::ALL);
            let (random, policies) = (Random::new(0), policies(&container.definition));
            let context = Context::new(self.env.now_ms(), &random, &policies);
            if client_merge::is_asked(options, &query, plan, || index_condition(&program, &context))? {
                return Err(Error::new(ErrorKind::CrossPartitionQuery, NOT_SERVED));
            }
        }
        let secret = self.catalog.snapshot().secret;
        let token_scope = token_scope(container, request);
        let from = match &options.page.continuation {
            None => None,
            Some(token) => Some(Position::decode(&continuation::open(&secret, &token_scope, token)?)?),
        };
        let policies = policies(&container.definition);
        let random = Random::new(self.env.random_u64());
        let definition = &container.definition.partition_key;
        let timing = Timing::default();
        let wanted = program
            .rows_max()
            .map_or(rows_max, |rows| rows_max.min(usize::try_from(rows).unwrap_or(rows_max)));
        let reader = Reader {
            timing: &timing,
            rows_wanted: wanted,
            database: self,
            container,
            overlay,
            session: options.session.as_ref(),
            windows: &windows.ranges,
            only: options.scope.partition_key.as_ref().filter(|key| definition.may_collide(key)),
        };
        let now_ms = self.env.now_ms();
        let functions = QueryFunctions::of(self, container, &query, now_ms)?;
        let roots = program.roots(true).map(|roots| roots.into_iter().map(Box::from).collect());
        let mut run = Run {
            reader,
            roots,
            returns_items: program.returns_documents(),
            kept: None,
            options,
            now_ms,
            functions: functions.as_ref(),
            random: &random,
            policies: &policies,
            started,
            rows_max,
            metrics: QueryMetrics { parse_time, compile_time, ..QueryMetrics::default() },
            resumed_in: None,
            // Functions in JavaScript take their time too.
            multiplies: functions.is_some() || multiplies(&query, &request.text),
            squares: squares(&request.text),
            text_bytes: request.text.len(),
            is_stream: false,
            has_progress: false,
            interrupted_at: None,
            interrupted_in: None,
            by_keys: windows.are_points,
            names_key: false,
            stands_for_entries: false,
        };
        let planning = Instant::now();
        let condition = index_condition(&program, &run.context(None));
        let serving = &container.index.serving;
        let offers = if options.without_index {
            Offers::default()
        } else {
            let (ranges, are_points) = (&windows.ranges, windows.are_points);
            let offers =
                access::offers(serving, &container.definition, &query, &condition, ranges, are_points);
            Offers { points: Points::find(container, options, &program, ranges), ..offers }
        };
        run.names_key = offers.candidates.iter().any(|candidate| candidate.names_key);
        run.metrics.plan_time = planning.elapsed();
        let page = run.page(receipt, &query, program, from, offers, request).await;
        let (Rows { text: rows, count, time: output_time, .. }, next) = match page {
            Ok(page) => page,
            Err(error) => {
                charge_failure(receipt, &run.metrics, timing.entries_read(), &error);
                return Err(error);
            }
        };
        let mut page = QueryPage { is_sorted: query.order_by.is_some(), rows, count, ..QueryPage::default() };
        let metrics = &mut run.metrics;
        (metrics.output_items, metrics.output_bytes) = (page.count as u64, page.rows.len() as u64);
        metrics.output_time = output_time;
        (metrics.index_time, metrics.load_time) = (timing.index_time(), timing.load_time());
        let unread_entries = if run.stands_for_entries { metrics.items_read } else { 0 };
        metrics.entries_read = timing.entries_read() + unread_entries;
        if options.index_metrics {
            page.index_metrics = Some(index_metrics(&query, &condition, serving, &container.definition));
        }
        if options.advice {
            page.advice =
                orrery_query::advice::advice(&query).into_iter().map(|id| (id, advised(id))).collect();
        }
        metrics.total_time = started.elapsed();
        page.routing = Routing {
            keys: windows.are_points.then_some(windows.ranges.len()),
            by_synthetic_key: windows.by_policy,
        };
        receipt.add(cost::query(&cost::QueryWork {
            partitions: receipt.served.len() as u64,
            index_entries: metrics.entries_read,
            items: metrics.items_read,
            item_bytes: metrics.bytes_read,
            output_bytes: metrics.output_bytes,
        }));
        receipt.add(cost::evaluation(metrics.steps, metrics.bytes_read));
        page.continuation =
            next.map(|position| continuation::seal(&secret, &token_scope, &position.encode()));
        page.metrics = run.metrics;
        Ok(page)
    }
}

/// A query that fails is paid for as far as its evaluation went beyond what is usual; one that ran out of time, or
/// whose client has gone, as if it had succeeded so far.
fn charge_failure(receipt: &mut Receipt, metrics: &QueryMetrics, index_entries: u64, error: &Error) {
    receipt.add(cost::evaluation(metrics.steps, metrics.bytes_read));
    if error.kind == ErrorKind::Timeout {
        receipt.add(cost::query(&cost::QueryWork {
            partitions: receipt.served.len() as u64,
            index_entries,
            items: metrics.items_read,
            item_bytes: metrics.bytes_read,
            output_bytes: 0,
        }));
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
    /// Found by the container's synthetic key.
    by_policy: bool,
}

impl Windows {
    fn find(container: &Container, options: &QueryOptions, program: &Program) -> Result<Self> {
        let definition = &container.definition.partition_key;
        let scope = options.scope.range(container)?;
        let routed = crate::query::synthetic_routing::restriction(container, program);
        let restriction = &routed.restriction;
        check_crossing(options, definition, restriction)?;
        let scope_is_point = options.scope.partition_key.as_ref().is_some_and(|key| definition.is_full(key));
        let mut windows = match restriction {
            KeyRestriction::All => (vec![scope.clone()], scope_is_point),
            KeyRestriction::None => (Vec::new(), true),
            KeyRestriction::Keys(keys) => {
                let ranges = keys.iter().map(|key| definition.prefix_range(key));
                let mut ranges: Vec<EpkRange> = ranges.filter_map(|range| range.intersect(&scope)).collect();
                ranges.sort_by(|a, b| a.min.cmp(&b.min));
                ranges.dedup();
                (ranges, scope_is_point || keys.iter().all(|key| definition.is_full(key)))
            }
        };
        windows.0.retain(|range| !range.is_empty());
        let (ranges, are_points) = windows;
        Ok(Self { ranges, are_points, by_policy: routed.by_policy })
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

/// Whether one item may make much work: by a join, or by a subquery, which is a second SELECT.
fn multiplies(query: &Query, text: &str) -> bool {
    let joins = query.from.as_ref().is_some_and(|from| from.sources.len() > 1);
    joins || text.to_ascii_uppercase().matches("SELECT").count() > 1
}

/// Whether the text calls functions whose work may grow with the square of what they look at.
fn squares(text: &str) -> bool {
    let capitals = text.to_ascii_uppercase();
    ["REGEXMATCH", "FULLTEXT", "ST_", "ARRAY_CONTAINS_A"].iter().any(|name| capitals.contains(name))
}

/// The function that a piece of advice is about.
fn advised(id: &str) -> &'static str {
    match id {
        "QA1000" => "ARRAY_CONTAINS",
        "QA1002" => "CONTAINS",
        "QA1003" => "STARTSWITH",
        "QA1004" => "ENDSWITH",
        "QA1006" => "LOWER",
        "QA1007" => "GetCurrentDateTime",
        "QA1008" => "GetCurrentTicks",
        "QA1009" => "GetCurrentTimestamp",
        _ => "",
    }
}
