//! What a query finds in the sample, independently of the partition key: the entries of each condition that an index
//! can answer, the items that match the whole filter, and the resulting rows.
//!
//! The filter and the rows are evaluated by the query crate itself, so correlated conditions are handled, and
//! functions, joins and groups behave as on the server.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use orrery_model::Value;
use orrery_model::container::{IndexPath, IndexStep};
use orrery_query::context::{Context, Policies, Random};
use orrery_query::filter::{IndexCondition, Test};
use orrery_query::pipeline::{Options, Pipeline, Row, Shape};
use orrery_query::{EvalError, Program};

use crate::analysis::Sampled;
use crate::replay::Replay;
use crate::terms::{Selected, Terms};
use crate::workload::QueryInstance;

/// The maximum number of documents evaluated per operation; further instances reuse the results of others.
const EVALUATIONS_MAX: usize = 400_000;
/// The number of matches whose rows are built, to measure their size.
const ROWS_MEASURED: usize = 64;
/// The maximum number of matches that are grouped.
const GROUPED_MAX: usize = 20_000;
/// System properties, of which only the timestamp is indexed.
const NOT_INDEXED: [&str; 4] = ["_rid", "_self", "_etag", "_attachments"];

/// A condition that the index can answer.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub struct Way {
    pub selected: Selected,
    /// The property, unless there are several.
    pub path: Option<IndexPath>,
    /// Single values, so that the entries of one key can be found among those of others.
    pub is_point: bool,
    /// One value.
    pub is_equal: bool,
    pub is_selective: bool,
    /// An item may have several entries.
    pub repeats: bool,
    /// Every entry is a match.
    pub is_exact: bool,
    /// Bytes of a value in the index.
    pub value_bytes: usize,
}

/// The rows of a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowSize {
    /// Rows are whole items.
    Items,
    /// Bytes of a row.
    Bytes(f64),
}

/// The result of one query with its parameters.
#[derive(Clone, Debug)]
pub struct Found {
    pub ways: Vec<Way>,
    /// The filter is never satisfied.
    pub is_empty: bool,
    /// Matching items with their rows, in the order of the sample.
    pub rows: Vec<(u32, u32)>,
    pub row_size: RowSize,
    /// Groups or distinct rows of all matches.
    pub collected: f64,
    /// The items by the property that rows are sorted by, in its order; only those that the filter's condition on the
    /// same property leaves.
    pub order: Option<Order>,
    /// Whether the parameters come from one of the matches.
    pub has_source: bool,
}

/// The index in the order of a query.
#[derive(Clone, Debug)]
pub struct Order {
    pub path: IndexPath,
    pub is_forward: bool,
    pub items: Vec<u32>,
    /// The condition whose entries these are.
    pub way: Option<usize>,
    /// Items without the property, which are not in the index.
    pub lacking: Vec<u32>,
}

/// The results of a replay's queries.
#[derive(Debug, Default)]
pub struct Matching {
    found: Vec<Option<Arc<Found>>>,
    /// Why an operation could not be estimated, by its index.
    pub failures: HashMap<usize, String>,
    /// The sizes of the uniform sample and of all data.
    pub uniform: usize,
    pub total: f64,
}

impl Matching {
    /// Evaluates the queries of a replay on its sampled items.
    pub fn new(replay: &Replay, uniform: usize, total: f64) -> Self {
        let items = &replay.items[..uniform.min(replay.items.len())];
        // Only the paths that some query uses are indexed.
        let mut paths: BTreeSet<IndexPath> = BTreeSet::new();
        for instance in &replay.instances {
            paths.extend(instance.condition.paths().into_iter().cloned());
            paths.extend(instance.order.iter().map(|(path, _)| path.clone()));
        }
        let finder = Finder { terms: Terms::new(items, &paths), items, now_ms: replay.end_ms() };
        // Some could not be prepared; others fail while they are evaluated.
        let failures = replay.not_estimated.iter().map(|(at, reason)| (*at, reason.clone())).collect();
        let mut matching = Self { uniform: items.len(), total, failures, ..Self::default() };
        matching.found.resize(replay.instances.len(), None);
        let mut spent: HashMap<usize, (usize, Vec<Arc<Found>>)> = HashMap::new();
        for request in &replay.requests {
            let operation = request.operation;
            let Some(shape) = &replay.operations[operation].query else { continue };
            if matching.found.get(request.instance).is_none_or(Option::is_some) {
                continue;
            }
            if matching.failures.contains_key(&operation) {
                continue;
            }
            let (evaluated, known) = spent.entry(operation).or_default();
            // Enough was evaluated: other instances of the same query stand in for the rest.
            if *evaluated > EVALUATIONS_MAX && !known.is_empty() {
                let other = Arc::clone(&known[request.instance % known.len()]);
                matching.found[request.instance] = Some(other);
                continue;
            }
            let instance = &replay.instances[request.instance];
            let found = if shape.is_ranked() {
                Err("rows ranked by texts or vectors are not estimated".to_owned())
            } else {
                finder.find(instance, evaluated).map_err(|error| error.to_string())
            };
            match found {
                Ok(found) => {
                    let found = Arc::new(found);
                    known.push(Arc::clone(&found));
                    matching.found[request.instance] = Some(found);
                }
                Err(reason) => {
                    matching.failures.insert(operation, reason);
                }
            }
        }
        matching
    }

    /// The result of an instance; none if it could not be evaluated.
    pub fn of(&self, instance: usize) -> Option<&Arc<Found>> {
        self.found.get(instance).and_then(Option::as_ref)
    }

    /// Whether every item of the data is in the sample.
    pub fn is_whole(&self) -> bool {
        self.total <= self.uniform as f64
    }

    /// How many items each sampled match represents. If the query's parameters were taken from one of them, that one
    /// was not found by chance.
    pub fn each(&self, sampled: usize, has_source: bool) -> f64 {
        if sampled == 0 || self.uniform < 2 || self.is_whole() {
            return 1.0;
        }
        let (sampled, uniform) = (sampled as f64, self.uniform as f64);
        if has_source {
            // The item that the parameters came from was certain to be found, so only the others stand for
            // more.
            (1.0 + (sampled - 1.0) * (self.total - 1.0) / (uniform - 1.0)) / sampled
        } else {
            self.total / uniform
        }
    }
}

struct Finder<'a> {
    terms: Terms,
    items: &'a [Sampled],
    now_ms: i64,
}

impl Finder<'_> {
    /// Evaluates one query; `evaluated` counts the work.
    fn find(&self, instance: &QueryInstance, evaluated: &mut usize) -> Result<Found, EvalError> {
        let condition = &instance.condition;
        let ways: Vec<Way> = match condition {
            IndexCondition::All | IndexCondition::None => Vec::new(),
            IndexCondition::And(parts) => parts.iter().filter_map(|part| self.way(part, false)).collect(),
            part => self.way(part, true).into_iter().collect(),
        };
        // Selecting entries takes a fraction of the time of evaluating documents.
        *evaluated += ways.iter().map(|way| way.selected.items.len()).sum::<usize>() / 8 + 1;
        let rows = self.rows(instance, &ways, evaluated)?;
        let (row_size, collected) = self.output(instance, &rows, evaluated)?;
        let has_source = instance.source.is_some_and(|source| rows.iter().any(|(at, _)| *at == source));
        let order = self.order(instance, &ways);
        let is_empty = *condition == IndexCondition::None;
        Ok(Found { ways, is_empty, rows, row_size, collected, order, has_source })
    }

    fn way(&self, condition: &IndexCondition, is_whole: bool) -> Option<Way> {
        match condition {
            // A single exact condition without others: its entries are the matches.
            IndexCondition::Term { path, test, exact } => self.term(path, test, is_whole && *exact),
            IndexCondition::Or(parts) => {
                let parts: Vec<Way> =
                    parts.iter().map(|part| self.way(part, false)).collect::<Option<_>>()?;
                let mut items: Vec<u32> = Vec::new();
                for part in &parts {
                    items.extend(&part.selected.items);
                }
                Some(Way {
                    path: None,
                    is_point: false,
                    is_equal: false,
                    is_selective: parts.iter().all(|part| part.is_selective),
                    repeats: true,
                    is_exact: false,
                    value_bytes: parts.iter().map(|part| part.value_bytes).max().unwrap_or(8),
                    selected: Selected { items, ranges: parts.iter().map(|part| part.selected.ranges).sum() },
                })
            }
            // One of several conjunctive conditions is enough to find the items.
            IndexCondition::And(parts) => {
                let parts = parts.iter().filter_map(|part| self.way(part, false));
                parts.min_by_key(|part| (!part.is_selective, part.repeats))
            }
            IndexCondition::All | IndexCondition::None => None,
        }
    }

    fn term(&self, path: &IndexPath, test: &Test, is_exact: bool) -> Option<Way> {
        if matches!(path.0.first(), Some(IndexStep::Property(name)) if NOT_INDEXED.contains(&&**name)) {
            return None;
        }
        let in_array = path.0.contains(&IndexStep::Element);
        let value_bytes = match test {
            Test::Equal(Value::String(text)) => text.len(),
            _ => 8,
        };
        Some(Way {
            selected: self.terms.select(path, test)?,
            path: Some(path.clone()),
            is_point: matches!(test, Test::Equal(_) | Test::In(_)),
            is_equal: matches!(test, Test::Equal(_)),
            is_selective: !matches!(test, Test::NotEqual(_) | Test::StringScan | Test::Type(_)),
            // One array may have several values that fit.
            repeats: in_array && !matches!(test, Test::Equal(_)),
            is_exact: is_exact && !in_array && !matches!(test, Test::StringScan),
            value_bytes,
        })
    }

    /// The items that match, with their number of rows.
    fn rows(
        &self,
        instance: &QueryInstance,
        ways: &[Way],
        evaluated: &mut usize,
    ) -> Result<Vec<(u32, u32)>, EvalError> {
        if instance.condition == IndexCondition::None {
            return Ok(Vec::new());
        }
        // Every match satisfies each of the conditions.
        let fewest = ways.iter().min_by_key(|way| way.selected.items.len());
        let places: Vec<u32> = match fewest {
            Some(way) => {
                let mut places = way.selected.items.clone();
                places.sort_unstable();
                places.dedup();
                places
            }
            None => (0..u32::try_from(self.items.len()).unwrap_or(u32::MAX)).collect(),
        };
        *evaluated += places.len();
        // Without a filter every item matches once.
        if !instance.has_filter && matches!(instance.matches.shape(), Shape::Stream) && ways.is_empty() {
            return Ok(places.into_iter().map(|at| (at, 1)).collect());
        }
        let mut pipeline = Pipeline::new(Arc::clone(&instance.matches), Options::default());
        let mut rows = Vec::new();
        for at in places {
            self.feed(&mut pipeline, at)?;
            let count = pipeline.take().len();
            if count > 0 {
                rows.push((at, u32::try_from(count).unwrap_or(u32::MAX)));
            }
        }
        Ok(rows)
    }

    /// The size of rows, and the number of groups or distinct rows.
    fn output(
        &self,
        instance: &QueryInstance,
        rows: &[(u32, u32)],
        evaluated: &mut usize,
    ) -> Result<(RowSize, f64), EvalError> {
        let program: &Arc<Program> = &instance.unlimited;
        if program.returns_documents() {
            return Ok((RowSize::Items, 0.0));
        }
        let collects = matches!(program.shape(), Shape::Collect { .. });
        let most = if collects { GROUPED_MAX } else { ROWS_MEASURED };
        // A part of the matches is enough to measure their size.
        let step = rows.len().div_ceil(most).max(1);
        let mut pipeline = Pipeline::new(Arc::clone(program), Options::default());
        for (at, _) in rows.iter().step_by(step) {
            *evaluated += 1;
            self.feed(&mut pipeline, *at)?;
        }
        let (policies, random) = (Policies::default(), Random::new(1));
        pipeline.finish(&Context::new(self.now_ms, &random, &policies))?;
        let made = pipeline.take();
        let bytes: usize = made.iter().map(|output| output.value.to_json().len() + 1).sum();
        let each = bytes as f64 / (made.len() as f64).max(1.0);
        Ok((RowSize::Bytes(each), made.len() as f64))
    }

    fn feed(&self, pipeline: &mut Pipeline, at: u32) -> Result<(), EvalError> {
        let item = &self.items[at as usize];
        let Some(document) = &item.document else { return Ok(()) };
        let (policies, random) = (Policies::default(), Random::new(item.ordinal));
        let row = Row { document, ordinal: item.ordinal, text_bytes: item.bytes as usize };
        pipeline.feed(row, &Context::new(self.now_ms, &random, &policies))
    }

    fn order(&self, instance: &QueryInstance, ways: &[Way]) -> Option<Order> {
        let (path, direction) = instance.order.clone()?;
        let is_everywhere =
            matches!(path.0.as_slice(), [IndexStep::Property(name)] if matches!(&**name, "id" | "_ts"));
        let is_complete = is_everywhere || instance.condition.implies_defined(&path);
        let is_forward = direction == orrery_query::ast::Direction::Ascending;
        // Items without the property come first, and may be missing from the index.
        if is_forward && !is_complete && instance.has_filter {
            return None;
        }
        // One range of the same property has its entries in order.
        let is_part = |way: &Way| way.path.as_ref() == Some(&path) && way.selected.ranges == 1;
        let way = ways.iter().position(is_part);
        let mut items = match way {
            Some(way) => ways[way].selected.items.clone(),
            None => self.terms.all(&path)?.items,
        };
        let mut lacking = Vec::new();
        if !is_complete {
            let mut has = vec![false; self.items.len()];
            for at in &items {
                has[*at as usize] = true;
            }
            lacking = (0u32..).zip(&has).filter(|(_, has)| !**has).map(|(at, _)| at).collect();
        }
        if !is_forward {
            items.reverse();
        }
        Some(Order { path, is_forward, items, way, lacking })
    }
}
