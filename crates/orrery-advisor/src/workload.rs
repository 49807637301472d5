//! Parses a workload: operations with rates from a small file, or a server's recording.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orrery_model::container::{IndexPath, IndexStep};
use orrery_model::value::{self, Value};
use orrery_query::ast::{Direction, Expr, ExprKind, Literal, Query, Selection, Span};
use orrery_query::check::{self, indexes};
use orrery_query::compile::Settings;
use orrery_query::context::{Context, Policies, Random as QueryRandom};
use orrery_query::filter::{IndexCondition, Test, index_condition};
use orrery_query::{Program, QueryError, shortcut};
use serde::Deserialize;

use crate::analysis::Documents;
use crate::fields::{Paths, segments};
use crate::random::Random;
use orrery_model::KeyPart;

/// Most operations of a workload, and most requests taken from a recording.
const OPERATIONS_MAX: usize = 1000;
/// Most requests taken from a recording.
pub const RECORDED_MAX: usize = 200_000;

/// Why a workload cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    #[error("the workload is not valid: {0}")]
    Invalid(String),
    #[error("the query of operation {name} is not valid: {reason}")]
    Query { name: String, reason: String },
}

/// The operations that a workload may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperationKind {
    Create,
    Upsert,
    Replace,
    Patch,
    Delete,
    Read,
    Query,
    Batch,
}

impl OperationKind {
    /// The name in workload files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Upsert => "upsert",
            Self::Replace => "replace",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Read => "read",
            Self::Query => "query",
            Self::Batch => "batch",
        }
    }

    /// Whether the operation changes items.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Query)
    }
}

/// Where the value of a query's parameter comes from.
#[derive(Clone, Debug)]
pub enum Parameter {
    /// The property of an item in the data.
    Path(usize),
    Value(Value),
}

/// One kind of request.
#[derive(Clone, Debug)]
pub struct Operation {
    pub name: String,
    pub kind: OperationKind,
    pub per_second: f64,
    /// The properties that the client knows of the item, in addition to its id.
    pub knows: Vec<usize>,
    pub query: Option<QueryShape>,
    /// How many items a batch writes.
    pub items: u32,
    /// The properties that the items of a batch share.
    pub together: Vec<usize>,
    /// Only for items of the last part of the data.
    pub recent: bool,
}

/// A query whose parameters are not bound yet.
#[derive(Clone, Debug)]
pub struct QueryShape {
    pub text: String,
    pub query: Query,
    pub parameters: Vec<(String, Parameter)>,
    /// Number of rows it returns, if the author specified it.
    pub rows: Option<f64>,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub at_ms: i64,
    pub operation: usize,
    pub id: Option<String>,
    pub key: Vec<KeyPart>,
    pub parameters: Vec<(String, Value)>,
}

/// The operations of a container with their rates.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    pub operations: Vec<Operation>,
    /// The individual requests, if they were recorded.
    pub recorded: Vec<RecordedRequest>,
    /// The partition key of the container that was recorded.
    pub key_paths: Vec<String>,
    pub throughput: Option<u32>,
    /// Retention of items in days.
    pub retention_days: Option<f64>,
    /// Requests that were dropped because the recording was full.
    pub dropped: u64,
}

/// An equality condition of a filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub slot: usize,
    pub values: Vec<KeyPart>,
}

/// A query with bound parameters.
#[derive(Clone, Debug)]
pub struct QueryInstance {
    /// The properties that the filter fixes.
    pub conditions: Vec<Condition>,
    /// The condition for an index.
    pub condition: IndexCondition,
    pub has_filter: bool,
    pub program: Arc<Program>,
    /// The same sources and filter, with a small row for each match.
    pub matches: Arc<Program>,
    /// The same rows without their order and without a limit.
    pub unlimited: Arc<Program>,
    /// The only property that rows are sorted by.
    pub order: Option<(IndexPath, Direction)>,
    /// Only the number of matches is needed.
    pub counts: bool,
    /// Only the minimum or maximum of this property is needed.
    pub extreme: Option<IndexPath>,
    /// Rows that OFFSET passes over.
    pub skipped: u64,
    /// The number of rows, if the author specified it.
    pub rows: Option<f64>,
    /// The sampled item whose values are the parameters.
    pub source: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileForm {
    operations: Vec<OperationForm>,
    throughput: Option<u32>,
    retention_days: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OperationForm {
    name: Option<String>,
    operation: OperationKind,
    per_second: f64,
    #[serde(default)]
    knows: Vec<String>,
    query: Option<String>,
    /// `@name`: `/path` of an item, or `{"value": …}`.
    #[serde(default)]
    parameters: BTreeMap<String, serde_json::Value>,
    rows: Option<f64>,
    items: Option<u32>,
    #[serde(default)]
    together: Vec<String>,
    #[serde(default)]
    recent: bool,
}

/// A variation of a workload: its rates times these factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    pub reads: f64,
    pub writes: f64,
}

impl Default for Rates {
    fn default() -> Self {
        Self { reads: 1.0, writes: 1.0 }
    }
}

impl Workload {
    /// Multiplies the rates of reads and writes. Recorded requests are repeated or left out.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    pub fn scale(&mut self, rates: Rates, seed: u64) {
        if rates == Rates::default() {
            return;
        }
        let factor = |kind: OperationKind| if kind.writes() { rates.writes } else { rates.reads };
        for operation in &mut self.operations {
            operation.per_second *= factor(operation.kind);
        }
        let mut random = Random::new(seed);
        let mut recorded = Vec::new();
        for request in std::mem::take(&mut self.recorded) {
            let wanted = factor(self.operations[request.operation].kind);
            // A factor of 2.3 repeats each request twice, and three of ten once more.
            let times = wanted.floor() as usize + usize::from(random.unit() < wanted.fract());
            recorded.extend(std::iter::repeat_n(request, times));
        }
        if recorded.len() > RECORDED_MAX {
            self.dropped += (recorded.len() - RECORDED_MAX) as u64;
            recorded.truncate(RECORDED_MAX);
        }
        self.recorded = recorded;
    }

    /// Parses a workload file or a recording; assigns slots to the paths it uses.
    pub fn parse(text: &str, paths: &mut Paths) -> Result<Self, WorkloadError> {
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        // A recording begins with a line of its own.
        let is_recording = value::parse(first.as_bytes()).is_ok_and(|line| line.get("recording").is_some());
        let workload =
            if is_recording { Self::parse_recording(text, paths)? } else { Self::parse_file(text, paths)? };
        // The slots are needed before the items are read.
        for operation in &workload.operations {
            operation.register(paths)?;
        }
        Ok(workload)
    }

    fn parse_file(text: &str, paths: &mut Paths) -> Result<Self, WorkloadError> {
        let form: FileForm =
            serde_json::from_str(text).map_err(|error| WorkloadError::Invalid(error.to_string()))?;
        if form.operations.len() > OPERATIONS_MAX {
            return Err(WorkloadError::Invalid(format!("more than {OPERATIONS_MAX} operations")));
        }
        let operations = form.operations.into_iter().enumerate();
        let operations = operations.map(|(at, form)| form.read(at, paths)).collect::<Result<_, _>>()?;
        let retention_days = form.retention_days.filter(|days| days.is_finite() && *days > 0.0);
        Ok(Self { operations, throughput: form.throughput, retention_days, ..Self::default() })
    }

    fn parse_recording(text: &str, paths: &mut Paths) -> Result<Self, WorkloadError> {
        let invalid =
            |line: usize, reason: &str| WorkloadError::Invalid(format!("line {}: {reason}", line + 1));
        let mut workload = Self::default();
        let mut known: BTreeMap<(OperationKind, String), usize> = BTreeMap::new();
        let mut slots = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let line = value::parse(line.as_bytes()).map_err(|error| invalid(number, &error.to_string()))?;
            if line.get("recording").is_some() {
                let listed = line.get("partitionKey").and_then(Value::as_array).unwrap_or(&[]);
                workload.key_paths = listed.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                slots = workload.key_paths.iter().map(|path| paths.slot(path)).collect();
                let throughput = line.get("throughput").and_then(Value::as_i64);
                workload.throughput = throughput.and_then(|throughput| u32::try_from(throughput).ok());
                let dropped = line.get("dropped").and_then(Value::as_i64);
                workload.dropped = dropped.and_then(|dropped| u64::try_from(dropped).ok()).unwrap_or(0);
                continue;
            }
            // A throttled request was retried, and the retry is in the recording as well.
            if line.get("status").and_then(Value::as_i64) == Some(429) {
                continue;
            }
            if workload.recorded.len() >= RECORDED_MAX {
                workload.dropped += 1;
                continue;
            }
            let name = line
                .get("operation")
                .and_then(Value::as_str)
                .ok_or_else(|| invalid(number, "no operation"))?;
            let kind = serde_json::from_value::<OperationKind>(serde_json::Value::from(name))
                .map_err(|_| invalid(number, "an unknown operation"))?;
            let text = line.get("query").and_then(Value::as_str).unwrap_or_default();
            let operation = if let Some(known) = known.get(&(kind, text.to_owned())) {
                *known
            } else {
                if workload.operations.len() >= OPERATIONS_MAX {
                    workload.dropped += 1;
                    continue;
                }
                let index = workload.operations.len();
                let name = if text.is_empty() { kind.name().to_owned() } else { text.to_owned() };
                let query = (kind == OperationKind::Query).then(|| QueryShape::parse(text)).transpose();
                let query = query.map_err(|reason| WorkloadError::Query { name: name.clone(), reason })?;
                workload.operations.push(Operation {
                    name,
                    kind,
                    per_second: 0.0,
                    // The key of each request was recorded, so the client knew its properties.
                    knows: slots.clone(),
                    query,
                    items: 1,
                    together: slots.clone(),
                    recent: false,
                });
                known.insert((kind, text.to_owned()), index);
                index
            };
            let items = line.get("items").and_then(Value::as_i64).and_then(|items| u32::try_from(items).ok());
            if let Some(items) = items {
                let operation = &mut workload.operations[operation];
                // The largest batch stands for all of them.
                operation.items = operation.items.max(items.clamp(1, 100));
            }
            let parameters = line.get("parameters").and_then(Value::as_array).unwrap_or(&[]).iter();
            let parameters = parameters.filter_map(|parameter| {
                let name = parameter.get("name").and_then(Value::as_str)?;
                Some((name.to_owned(), parameter.get("value")?.clone()))
            });
            workload.recorded.push(RecordedRequest {
                at_ms: line.get("atMs").and_then(Value::as_i64).ok_or_else(|| invalid(number, "no time"))?,
                operation,
                id: line.get("id").and_then(Value::as_str).map(str::to_owned),
                key: line
                    .get("key")
                    .and_then(Value::as_array)
                    .unwrap_or(&[])
                    .iter()
                    .map(|value| KeyPart::of(Some(value)))
                    .collect(),
                parameters: parameters.collect(),
            });
        }
        workload.recorded.sort_by_key(|request| request.at_ms);
        workload.set_rates();
        Ok(workload)
    }

    #[expect(clippy::cast_precision_loss, reason = "rates")]
    fn set_rates(&mut self) {
        let (Some(first), Some(last)) = (self.recorded.first(), self.recorded.last()) else { return };
        let seconds = ((last.at_ms - first.at_ms) as f64 / 1000.0).max(1.0);
        for request in &self.recorded {
            self.operations[request.operation].per_second += 1.0 / seconds;
        }
    }

    /// The properties that queries read, apart from the paths with slots.
    pub fn documents(&self, paths: &Paths) -> Documents {
        let mut names: BTreeSet<String> = BTreeSet::new();
        let queries = self.operations.iter().filter_map(|operation| operation.query.as_ref());
        let mut has_queries = false;
        for shape in queries {
            has_queries = true;
            // Parameters take their values from items, too.
            let sources = shape.parameters.iter().filter_map(|(_, source)| match source {
                Parameter::Path(slot) => segments(paths.name(*slot)).next(),
                Parameter::Value(_) => None,
            });
            names.extend(sources.map(str::to_owned));
            let Ok(programs) = shape.programs(&shape.placeholders()) else { continue };
            for program in [&programs.whole, &programs.matches, &programs.unlimited] {
                match program.roots(true) {
                    Some(roots) => names.extend(roots.into_iter().map(str::to_owned)),
                    // One query that needs whole documents decides.
                    None => return Documents::Whole,
                }
            }
        }
        if has_queries { Documents::Members(names.into_iter().collect()) } else { Documents::Nothing }
    }

    /// Items created per second.
    pub fn creates_per_second(&self) -> f64 {
        let creating = self
            .operations
            .iter()
            .filter(|operation| matches!(operation.kind, OperationKind::Create | OperationKind::Batch));
        creating.map(|operation| operation.per_second * f64::from(operation.items)).sum()
    }
}

impl OperationForm {
    fn read(self, at: usize, paths: &mut Paths) -> Result<Operation, WorkloadError> {
        let name = self.name.clone().or_else(|| self.query.clone());
        let name = name.unwrap_or_else(|| format!("{} {}", self.operation.name(), at + 1));
        let invalid = |reason: &str| WorkloadError::Invalid(format!("operation {name}: {reason}"));
        if !self.per_second.is_finite() || self.per_second < 0.0 || self.per_second > 1e7 {
            return Err(invalid("perSecond must be between 0 and 10 million"));
        }
        if (self.operation == OperationKind::Query) != self.query.is_some() {
            return Err(invalid("\"query\" is required for queries and not allowed elsewhere"));
        }
        let query = self.query.as_deref().map(QueryShape::parse).transpose();
        let mut query = query.map_err(|reason| WorkloadError::Query { name: name.clone(), reason })?;
        if let Some(query) = &mut query {
            query.rows = self.rows;
            for (parameter, source) in self.parameters {
                let source = match &source {
                    serde_json::Value::String(path) if path.starts_with('/') => {
                        Parameter::Path(paths.slot(path))
                    }
                    serde_json::Value::Object(object) if object.contains_key("value") => {
                        let text = object["value"].to_string();
                        Parameter::Value(
                            value::parse(text.as_bytes()).map_err(|error| invalid(&error.to_string()))?,
                        )
                    }
                    _ => return Err(invalid("a parameter must be the path of a property or {\"value\": …}")),
                };
                query.parameters.push((parameter, source));
            }
        }
        if self.operation == OperationKind::Batch && self.together.is_empty() {
            return Err(invalid("a batch needs \"together\": the properties that its items share"));
        }
        Ok(Operation {
            kind: self.operation,
            per_second: self.per_second,
            knows: self.knows.iter().map(|path| paths.slot(path)).collect(),
            query,
            // A batch of one item would be none.
            items: self
                .items
                .unwrap_or(if self.operation == OperationKind::Batch { 2 } else { 1 })
                .clamp(1, 100),
            together: self.together.iter().map(|path| paths.slot(path)).collect(),
            recent: self.recent,
            name,
        })
    }
}

impl Operation {
    /// Assigns slots to the properties that the filter uses, independent of the parameters.
    fn register(&self, paths: &mut Paths) -> Result<(), WorkloadError> {
        let Some(shape) = &self.query else { return Ok(()) };
        let programs = shape.programs(&shape.placeholders());
        let programs = programs.map_err(|reason| WorkloadError::Query { name: self.name.clone(), reason })?;
        for path in condition_of(&programs.whole).paths() {
            if let Some(path) = plain_path(&path.0) {
                paths.slot(&path);
            }
        }
        Ok(())
    }
}

/// A query in the forms that are evaluated.
struct Programs {
    whole: Program,
    matches: Program,
    unlimited: Program,
}

impl QueryShape {
    fn parse(text: &str) -> Result<Self, String> {
        let query = check::parse(text).map_err(|errors| first_of(&errors))?;
        Ok(Self { text: text.to_owned(), query, parameters: Vec::new(), rows: None })
    }

    /// Placeholder values for all parameters, to determine what the query reads.
    pub fn placeholders(&self) -> Vec<(String, Value)> {
        let mut parameters: Vec<(String, Value)> = Vec::new();
        for (name, source) in &self.parameters {
            let value = match source {
                Parameter::Path(_) => Value::from("x"),
                Parameter::Value(value) => value.clone(),
            };
            parameters.push((name.clone(), value));
        }
        // A recording's parameters come with each request.
        for word in self.text.split(|c: char| !(c.is_alphanumeric() || c == '@' || c == '_')) {
            if word.starts_with('@') && !parameters.iter().any(|(name, _)| name == word) {
                parameters.push((word.to_owned(), Value::from("x")));
            }
        }
        // The counts of TOP, OFFSET and LIMIT must be numbers.
        if self.programs(&parameters).is_err() {
            let numbers: Vec<_> = parameters.iter().map(|(name, _)| (name.clone(), Value::from(1))).collect();
            if self.programs(&numbers).is_ok() {
                return numbers;
            }
        }
        parameters
    }

    fn programs(&self, parameters: &[(String, Value)]) -> Result<Programs, String> {
        let policies = Policies::default();
        let settings = Settings { parameters, computed: &[], policies: &policies };
        let compile = |query: &Query| Program::compile(query, settings).map_err(|errors| first_of(&errors));
        let whole = compile(&self.query)?;
        let mut unlimited = self.query.clone();
        (unlimited.select.top, unlimited.offset_limit) = (None, None);
        let is_grouped = !unlimited.group_by.is_empty();
        if !is_grouped {
            unlimited.order_by = None;
        }
        let mut matches = self.query.clone();
        // A small row for each match, whatever the query selects.
        (matches.select.top, matches.offset_limit, matches.order_by) = (None, None, None);
        matches.select.distinct = false;
        matches.group_by.clear();
        let one = Expr { kind: ExprKind::Literal(Literal::Bool(true)), span: Span::default() };
        matches.select.selection = Selection::Value(one);
        Ok(Programs { whole, matches: compile(&matches)?, unlimited: compile(&unlimited)? })
    }

    /// The query with these parameters.
    pub fn instance(&self, parameters: &[(String, Value)], paths: &Paths) -> Result<QueryInstance, String> {
        let programs = self.programs(parameters)?;
        let condition = condition_of(&programs.whole);
        let mut instance = QueryInstance {
            conditions: Vec::new(),
            has_filter: self.query.filter.is_some(),
            order: self.order(),
            counts: shortcut::count_of_filter(&self.query).is_some(),
            extreme: shortcut::extreme_of(&self.query).and_then(|extreme| named_path(&extreme.path)),
            program: Arc::new(programs.whole),
            matches: Arc::new(programs.matches),
            unlimited: Arc::new(programs.unlimited),
            skipped: self.skipped(parameters),
            rows: self.rows,
            source: None,
            condition: IndexCondition::All,
        };
        instance.add(&condition, paths);
        instance.condition = condition;
        Ok(instance)
    }

    /// Rows that OFFSET passes over.
    fn skipped(&self, parameters: &[(String, Value)]) -> u64 {
        use orrery_query::ast::CountValue;
        let offset = self.query.offset_limit.as_ref().map(|window| &window.offset.value);
        match offset {
            Some(CountValue::Literal(rows)) => *rows,
            Some(CountValue::Parameter(name)) => {
                let value = parameters.iter().find(|(known, _)| **known == **name);
                let rows = value.and_then(|(_, value)| value.as_i64());
                rows.and_then(|rows| u64::try_from(rows).ok()).unwrap_or(0)
            }
            Some(CountValue::NotInteger(_)) | None => 0,
        }
    }

    /// The property whose index provides the sort order, if any.
    fn order(&self) -> Option<(IndexPath, Direction)> {
        let query = &self.query;
        let sources = query.from.as_ref().map_or(0, |from| from.sources.len());
        if sources != 1 || query.select.distinct || !query.group_by.is_empty() {
            return None;
        }
        let mut paths = indexes::order_paths(query)?;
        if paths.len() != 1 {
            return None;
        }
        let (path, direction) = paths.pop()?;
        Some((named_path(&path)?, direction))
    }

    /// Why the query reads all items, if it does: the index answers no part of its filter and provides no order.
    pub fn scan(&self) -> Option<String> {
        let instance = self.instance(&self.placeholders(), &Paths::new()).ok()?;
        let is_answered = instance.condition != IndexCondition::All
            || instance.order.is_some()
            || instance.counts
            || instance.extreme.is_some();
        if is_answered || self.named_rows().is_some() {
            return None;
        }
        Some(if self.query.filter.is_some() {
            "the index answers no part of its filter".to_owned()
        } else {
            "it has no filter".to_owned()
        })
    }

    /// A number of rows after which a query without a filter stops.
    fn named_rows(&self) -> Option<()> {
        let is_limited = self.query.select.top.is_some() || self.query.offset_limit.is_some();
        (self.query.filter.is_none() && is_limited && self.query.order_by.is_none()).then_some(())
    }

    /// Whether rows are ranked by full-text or vector scores, which is not modelled.
    pub fn is_ranked(&self) -> bool {
        self.query.order_by.as_ref().is_some_and(|order_by| order_by.rank)
    }
}

/// The condition that an index answers for a query.
fn condition_of(program: &Program) -> IndexCondition {
    let (policies, random) = (Policies::default(), QueryRandom::new(1));
    index_condition(program, &Context::new(0, &random, &policies))
}

/// Reads `/a/b` as property names.
fn named_path(text: &str) -> Option<IndexPath> {
    let steps = segments(text).map(|name| (name != "[]").then(|| IndexStep::Property(name.into())));
    steps.collect::<Option<Vec<_>>>().filter(|steps| !steps.is_empty()).map(IndexPath)
}

impl QueryInstance {
    fn add(&mut self, condition: &IndexCondition, paths: &Paths) {
        match condition {
            IndexCondition::And(parts) => parts.iter().for_each(|part| self.add(part, paths)),
            IndexCondition::Or(parts) => {
                // An OR over one property is a list of values; any other OR fixes nothing.
                let mut inner = Self { conditions: Vec::new(), ..self.clone() };
                for part in parts {
                    inner.add(part, paths);
                }
                let slot = inner.conditions.first().map(|condition| condition.slot);
                let same = inner.conditions.iter().all(|condition| Some(condition.slot) == slot);
                if let Some(slot) = slot.filter(|_| same && inner.conditions.len() == parts.len()) {
                    let values =
                        inner.conditions.into_iter().flat_map(|condition| condition.values).collect();
                    self.conditions.push(Condition { slot, values });
                }
            }
            IndexCondition::Term { path, test, .. } => {
                let slot = plain_path(&path.0).and_then(|path| paths.find(&path));
                let values = match test {
                    Test::Equal(value) => vec![KeyPart::of(Some(value))],
                    Test::In(values) => values.iter().map(|value| KeyPart::of(Some(value))).collect(),
                    _ => return,
                };
                if let Some(slot) = slot {
                    self.conditions.push(Condition { slot, values });
                }
            }
            IndexCondition::All | IndexCondition::None => {}
        }
    }
}

fn first_of(errors: &[QueryError]) -> String {
    errors.first().map_or_else(|| "unknown".to_owned(), |error| error.message.clone())
}

/// The path in the item, unless it goes through arrays.
fn plain_path(steps: &[IndexStep]) -> Option<String> {
    let mut path = String::new();
    for step in steps {
        let IndexStep::Property(name) = step else { return None };
        path.push('/');
        path.push_str(name);
    }
    (!path.is_empty()).then_some(path)
}

/// The value of a property of the data, as a query's parameter.
pub fn parameter_value(part: &KeyPart) -> Option<Value> {
    match part {
        KeyPart::Undefined => None,
        KeyPart::Null => Some(Value::Null),
        KeyPart::Bool(flag) => Some(Value::Bool(*flag)),
        KeyPart::Number(number) => Some(Value::from(*number)),
        KeyPart::String(text) => Some(Value::String(text.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_operations_and_known_properties() {
        let mut paths = Paths::new();
        let text = r#"{"throughput":12000,"operations":[
            {"operation":"create","perSecond":500},
            {"operation":"read","perSecond":20,"knows":["/deviceId"]},
            {"operation":"query","perSecond":5,"query":"SELECT TOP 5 * FROM c WHERE c.deviceId = @d AND c.at > @t AND c.kind IN ('a','b')","parameters":{"@d":"/deviceId","@t":{"value":7}}},
            {"operation":"batch","perSecond":2,"items":4,"together":["/orderId"]}]}"#;
        let workload = Workload::parse(text, &mut paths).unwrap();
        assert_eq!(workload.throughput, Some(12_000));
        assert!((workload.creates_per_second() - 508.0).abs() < 1e-9);
        for path in ["/deviceId", "/at", "/kind", "/orderId"] {
            assert!(paths.find(path).is_some(), "{path}");
        }
        let shape = workload.operations[2].query.as_ref().unwrap();
        let parameters = [("@d".to_owned(), Value::from("x1")), ("@t".to_owned(), Value::from(7))];
        let instance = shape.instance(&parameters, &paths).unwrap();
        let device = Condition { slot: paths.find("/deviceId").unwrap(), values: vec![KeyPart::from("x1")] };
        let kinds = vec![KeyPart::from("a"), KeyPart::from("b")];
        let kind = Condition { slot: paths.find("/kind").unwrap(), values: kinds };
        assert_eq!(instance.conditions, [device, kind]);
        assert_eq!(instance.program.rows_max(), Some(5));
        assert_eq!(instance.unlimited.rows_max(), None);
        let names: Vec<String> = ["at", "deviceId", "kind"].map(str::to_owned).to_vec();
        assert_eq!(workload.documents(&paths), Documents::Members(names));
    }

    #[test]
    fn invalid_workloads_are_rejected() {
        for text in [
            "{",
            r#"{"operations":[{"operation":"fly","perSecond":1}]}"#,
            r#"{"operations":[{"operation":"create","perSecond":-1}]}"#,
            r#"{"operations":[{"operation":"query","perSecond":1}]}"#,
            r#"{"operations":[{"operation":"query","perSecond":1,"query":"SELEC"}]}"#,
            r#"{"operations":[{"operation":"create","perSecond":1,"rate":2}]}"#,
            r#"{"operations":[{"operation":"batch","perSecond":1}]}"#,
        ] {
            assert!(Workload::parse(text, &mut Paths::new()).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_of_reads_and_writes_vary() {
        let mut text = "{\"recording\":1,\"partitionKey\":[\"/pk\"]}\n".to_owned();
        for number in 0..1000 {
            let operation = if number % 2 == 0 { "read" } else { "create" };
            text += &format!(
                "{{\"atMs\":{},\"operation\":\"{operation}\",\"id\":\"{number}\",\"key\":[1]}}\n",
                number * 10
            );
        }
        let mut workload = Workload::parse(&text, &mut Paths::new()).unwrap();
        workload.scale(Rates { reads: 2.5, writes: 0.5 }, 1);
        let count = |kind| {
            let of = |request: &&RecordedRequest| workload.operations[request.operation].kind == kind;
            workload.recorded.iter().filter(of).count()
        };
        assert!((1200..1300).contains(&count(OperationKind::Read)), "{}", count(OperationKind::Read));
        assert!((200..300).contains(&count(OperationKind::Create)), "{}", count(OperationKind::Create));
        assert!(workload.recorded.is_sorted_by_key(|request| request.at_ms));
        let rate =
            |kind| workload.operations.iter().find(|operation| operation.kind == kind).unwrap().per_second;
        assert!((rate(OperationKind::Read) / rate(OperationKind::Create) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_recording_gives_requests_and_their_rates() {
        let mut paths = Paths::new();
        let text = concat!(
            r#"{"recording":1,"partitionKey":["/pk"],"throughput":4000,"dropped":3}"#,
            "\n",
            r#"{"atMs":1000,"operation":"read","id":"a","key":["k"],"status":200,"charge":1}"#,
            "\n",
            r#"{"atMs":6000,"operation":"query","query":"SELECT * FROM c WHERE c.x = @x","parameters":[{"name":"@x","value":5}],"status":200,"charge":3}"#,
            "\n",
            r#"{"atMs":11000,"operation":"read","id":"b","key":["k"],"status":200,"charge":1}"#,
            "\n"
        );
        let workload = Workload::parse(text, &mut paths).unwrap();
        assert_eq!((workload.operations.len(), workload.recorded.len(), workload.dropped), (2, 3, 3));
        assert!((workload.operations[0].per_second - 0.2).abs() < 1e-9);
        assert_eq!(workload.operations[0].knows, [paths.find("/pk").unwrap()]);
        assert!(paths.find("/x").is_some());
    }
}
