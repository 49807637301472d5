//! Executes a query over the items of a container: from the request to a page and its continuation, step by step.

use std::sync::Arc;

use orrery_env::monotonic;
use orrery_metering::cost;
use orrery_model::{Error, ErrorKind, Result};
use orrery_query::ast::{Direction, OrderItem, Query};
use orrery_query::context::Random;
use orrery_query::filter::{IndexCondition, index_condition};
use orrery_query::{QueryRequest, advice, printer};

use super::Queries;
use super::fetch::reader::{Reader, Timing};
use super::metrics::QueryMetrics;
use super::options::{ClientMerge, QueryOptions};
use super::page::position::Position;
use super::page::rows::{PAGE_ROWS_MAX, Rows};
use super::page::run::Run;
use super::page::udf::QueryFunctions;
use super::plan::access::{AccessPaths, access_paths};
use super::plan::client_merge;
use super::plan::client_plan::plan_in;
use super::plan::cover::Cover;
use super::plan::index_metrics::IndexMetrics;
use super::plan::points::Points;
use super::plan::windows::Windows;
use super::prepare::Prepared;
use crate::catalog::Container;
use crate::layout::continuation;
use crate::partition::{Overlay, Receipt};

/// The service's message for a query that its client has to merge.
const NOT_SERVED: &str = "The provided cross partition query can not be directly served by the gateway. This is a first chance (internal) exception that all newer clients will know how to handle gracefully. This exception is traced, but unless you see it bubble up as an exception (which only happens on older SDK clients), then you can safely ignore this message.";

/// Which part of the container a query visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// The number of logical partitions it was routed to, if known.
    pub keys: Option<usize>,
    /// Whether the container's synthetic key determined them.
    pub by_synthetic_key: bool,
}

/// A page of rows.
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
    pub index_metrics: Option<IndexMetrics>,
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

    /// Runs a query on a container, or on a script's view of it.
    pub(crate) async fn query_container(
        &self,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        options: &QueryOptions,
        request: &QueryRequest,
        overlay: Option<&Overlay>,
    ) -> Result<QueryPage> {
        let started = monotonic::now();
        let rows_max = options.page.count_max(100, PAGE_ROWS_MAX)?;
        let prepared = Prepared::of(request, &container.definition)?;
        // Which keys can match; everything below reads only those.
        let windows = Windows::find(container, options, &prepared.program)?;
        // Before anything is read: writes of other processes under a newer index may lack the
        // entries that this view looks for.
        self.check_index_view(container, &windows.ranges).await?;
        Self::refuse_what_clients_merge(container, options, request, &prepared, &windows)?;
        // The token must be of this query; a position that is not is a 400.
        let token = PageToken::of(self, container, request, &prepared.query);
        let from = token.open(options)?;
        let (random, timing) = (Random::new(self.env.random_u64()), Timing::default());
        let now_ms = self.env.now_ms();
        let functions = QueryFunctions::of(self, container, &prepared.query, now_ms)?;
        let program = &prepared.program;
        // A TOP or LIMIT below the page size also bounds how much is read ahead.
        let rows_wanted = program
            .rows_max()
            .map_or(rows_max, |rows| rows_max.min(usize::try_from(rows).unwrap_or(rows_max)));
        let key_definition = &container.definition.partition_key;
        let reader = Reader {
            timing: &timing,
            rows_wanted,
            database: self,
            container,
            overlay,
            session: options.session.as_ref(),
            windows: &windows.ranges,
            only: options.scope.partition_key.as_ref().filter(|key| key_definition.may_collide(key)),
        };
        let mut work = prepared.work;
        // JavaScript functions take time too.
        work.multiplies |= functions.is_some();
        let mut run = Run {
            reader,
            roots: program.roots(true).map(|roots| roots.into_iter().map(Box::from).collect()),
            returns_items: program.returns_documents(),
            kept: None,
            options,
            now_ms,
            functions: functions.as_ref(),
            random: &random,
            policies: &prepared.policies,
            started,
            rows_max,
            metrics: QueryMetrics {
                parse_time: prepared.parse_time,
                compile_time: prepared.compile_time,
                ..QueryMetrics::default()
            },
            resumed_in: None,
            work,
            text_bytes: request.text.len(),
            is_stream: false,
            has_progress: false,
            interrupted_at: None,
            interrupted_in: None,
            by_keys: windows.are_points,
            names_key: false,
            stands_for_entries: false,
        };
        let planning = monotonic::now();
        // The plan: what the filter implies, and which parts of that the index can answer.
        let condition =
            index_condition(prepared.as_indexed(request, container)?.as_ref(), &run.context(None));
        let paths = find_paths(container, options, &prepared, &condition, &windows);
        run.names_key = paths.candidates.iter().any(|candidate| candidate.names_key);
        run.metrics.plan_time = monotonic::elapsed(planning);
        let page = run.page(receipt, &prepared.query, Arc::clone(program), from, paths, request).await;
        let (rows, next) = match page {
            Ok(page) => page,
            Err(error) => {
                charge_failure(receipt, &run.metrics, timing.entries_read(), &error);
                return Err(error);
            }
        };
        let mut metrics = complete(run, &rows, &timing);
        metrics.total_time = monotonic::elapsed(started);
        charge_page(receipt, &metrics);
        let serving = &container.index.serving;
        let names_key = options.scope.partition_key.is_some();
        let index_metrics = options.index_metrics.then(|| {
            IndexMetrics::of(&prepared.query, &condition, serving, &container.definition, names_key)
        });
        Ok(QueryPage {
            routing: Routing {
                keys: windows.are_points.then_some(windows.ranges.len()),
                by_synthetic_key: windows.by_policy,
            },
            is_sorted: prepared.query.order_by.is_some(),
            count: rows.count,
            rows: rows.text,
            continuation: next.map(|position| token.seal(&position)),
            metrics,
            index_metrics,
            advice: if options.advice { advice::advice(&prepared.query) } else { Vec::new() },
        })
    }

    /// Rejects a query over several keys that its client has to merge.
    fn refuse_what_clients_merge(
        container: &Container,
        options: &QueryOptions,
        request: &QueryRequest,
        prepared: &Prepared,
        windows: &Windows,
    ) -> Result<()> {
        // One key, or none, lies in one partition: there is nothing to merge.
        let may_cross = !windows.are_points || windows.ranges.len() > 1;
        if options.client_merge == ClientMerge::Never || !may_cross {
            return Ok(());
        }
        // A closure, since planning costs as much as compiling and most requests end before it.
        let plan = |features| plan_in(container, &prepared.query, request, features);
        if client_merge::is_asked(options, prepared.program.collects_over_container(), plan)? {
            return Err(Error::new(ErrorKind::CrossPartitionQuery, NOT_SERVED));
        }
        Ok(())
    }
}

/// How the continuations of one query are sealed.
struct PageToken {
    secret: [u8; 32],
    /// A token belongs to one query text on one container; its parameters are the client's to repeat.
    text: String,
    /// A place in sort order belongs to the order alone: clients that resume a merge put a filter of their own in
    /// place of the one that the token was made with.
    order: Option<String>,
}

impl PageToken {
    fn of(queries: &Queries, container: &Container, request: &QueryRequest, query: &Query) -> Self {
        let rid = container.rid;
        let order = query.order_by.as_ref().map(|order| {
            let item = |item: &OrderItem| {
                let is_descending = item.direction == Some(Direction::Descending);
                format!("{} {is_descending}", printer::expression(&item.expr))
            };
            format!("order/{rid}/{:?}", order.items.iter().map(item).collect::<Vec<_>>())
        });
        let text = format!("query/{rid}/{}", request.text);
        Self { secret: queries.catalog.snapshot().secret, text, order }
    }

    /// Where the client wants to continue.
    fn open(&self, options: &QueryOptions) -> Result<Option<Position>> {
        let Some(token) = &options.page.continuation else { return Ok(None) };
        // The token does not say what it is for, so both scopes are tried: the wrong one fails its checksum.
        let in_order = self.order.as_ref().map(|scope| continuation::open(&self.secret, scope, token));
        let payload = match in_order {
            Some(Ok(payload)) => payload,
            _ => continuation::open(&self.secret, &self.text, token)?,
        };
        Position::decode(&payload).map(Some)
    }

    fn seal(&self, position: &Position) -> String {
        let scope = match (position, &self.order) {
            (Position::Sorted { .. }, Some(order)) => order,
            _ => &self.text,
        };
        continuation::seal(&self.secret, scope, &position.encode())
    }
}

/// The ways in which the index can answer the query, if it may be used.
fn find_paths(
    container: &Container,
    options: &QueryOptions,
    prepared: &Prepared,
    condition: &IndexCondition,
    windows: &Windows,
) -> AccessPaths {
    if options.without_index {
        return AccessPaths::default();
    }
    let (serving, definition) = (&container.index.serving, &container.definition);
    let (ranges, are_points) = (&windows.ranges, windows.are_points);
    let paths = access_paths(serving, definition, &prepared.query, condition, ranges, are_points);
    let points = Points::find(container, options, &prepared.program, ranges);
    let cover = Cover::find(container, &prepared.program, condition, ranges).filter(|_| points.is_none());
    AccessPaths { points, cover, ..paths }
}

/// The metrics of a finished page.
fn complete(run: Run<'_>, rows: &Rows, timing: &Timing) -> QueryMetrics {
    // A scan that replaces index entries is charged like the entries.
    let unread_entries = if run.stands_for_entries { run.metrics.items_read } else { 0 };
    QueryMetrics {
        output_items: rows.count as u64,
        output_bytes: rows.text.len() as u64,
        output_time: rows.time,
        index_time: timing.index_time(),
        load_time: timing.load_time(),
        entries_read: timing.entries_read() + unread_entries,
        ..run.metrics
    }
}

/// Charges a page.
fn charge_page(receipt: &mut Receipt, metrics: &QueryMetrics) {
    receipt.add(cost::query(&cost::QueryWork {
        partitions: receipt.served.len() as u64,
        index_entries: metrics.entries_read,
        items: metrics.items_read,
        item_bytes: metrics.bytes_read,
        output_bytes: metrics.output_bytes,
    }));
    receipt.add(cost::evaluation(metrics.steps, metrics.bytes_read));
}

/// A failed query is charged for evaluation beyond the usual; one that ran out of time or was cancelled is charged as
/// if it had succeeded so far.
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
