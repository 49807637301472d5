//! Query plans: what clients need to run a query range by range and merge the results themselves.
//!
//! A plan says which ranges to query, with which text, and how to merge the rows: by sort order, by adding up
//! aggregates, regrouping, deduplicating, skipping and limiting.

mod features;
mod hybrid;
mod rewrite;

use orrery_model::partition_key::{EffectiveKey, PartitionKey, PartitionKeyDefinition, encode};
use orrery_model::{Object, Value};

pub use features::Features;
pub use hybrid::{Combination, FullTextTerms, HybridSearchInfo};

use crate::aggregate::Aggregate;
use crate::ast::{Direction, Query};
use crate::check;
use crate::compile::{ComputedProperty, Parameters, Settings};
use crate::context::Policies;
use crate::error::QueryError;
use crate::filter::{
    End, KeyRestriction, OrderedKeys, Verdict, key_restriction, keys_restriction, ordered_keys, verdict,
};
use crate::program::Program;

/// What a query is planned against.
#[derive(Clone, Copy)]
pub struct PlanRequest<'r> {
    pub parameters: &'r Parameters,
    /// Absent for resources that are not partitioned.
    pub definition: Option<&'r PartitionKeyDefinition>,
    pub policies: &'r Policies,
    pub computed: &'r [ComputedProperty],
    /// What the client can do with a plan.
    pub features: Features,
}

/// A query plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub info: PlanInfo,
    /// The keys the query is restricted to.
    pub restriction: KeyRestriction,
    pub ranges: Vec<QueryRange>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PlanInfo {
    Query(QueryInfo),
    Hybrid(HybridSearchInfo),
}

/// A range of effective keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRange {
    pub min: EffectiveKey,
    pub max: EffectiveKey,
    pub min_inclusive: bool,
    pub max_inclusive: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DistinctType {
    #[default]
    None,
    /// Equal rows come one after the other.
    Ordered,
    Unordered,
}

/// How a client merges the rows of all ranges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryInfo {
    pub distinct_type: DistinctType,
    pub top: Option<u64>,
    pub offset: Option<u64>,
    pub limit: Option<u64>,
    pub order_by: Vec<Direction>,
    pub order_by_expressions: Vec<String>,
    pub group_by_expressions: Vec<String>,
    pub group_by_aliases: Vec<String>,
    /// Only for `SELECT VALUE <aggregate>`.
    pub aggregates: Vec<Aggregate>,
    /// Each alias with its aggregate; none for a grouping key.
    pub group_by_alias_to_aggregate: Vec<(String, Option<Aggregate>)>,
    /// Empty: the original text is sent.
    pub rewritten_query: String,
    pub has_select_value: bool,
    /// The alias of a count over distinct rows; empty for VALUE.
    pub dcount_alias: Option<String>,
    pub has_non_streaming_order_by: bool,
    /// Whether a FROM subquery collects rows of all documents, which clients cannot merge: run range by range, the
    /// plan is right only where one range holds everything.
    pub requires_extended_plan: bool,
}

/// Plans a query text.
pub fn plan(text: &str, request: PlanRequest<'_>) -> Result<Plan, Vec<QueryError>> {
    let query = check::parse_with(text, request.parameters)?;
    plan_query(&query, request)
}

/// Plans a checked query.
pub fn plan_query(query: &Query, request: PlanRequest<'_>) -> Result<Plan, Vec<QueryError>> {
    plan_query_where(query, request, |program| match request.definition {
        Some(definition) => key_restriction(program, definition),
        None if program.reads_documents => KeyRestriction::All,
        None => KeyRestriction::None,
    })
}

/// Plans a query text for a container whose keys are ordered instead of hashed, and returns the keys it asks for; none
/// means all. Such containers existed once: their plans are still recorded, and tested.
pub fn plan_ordered(
    text: &str,
    request: PlanRequest<'_>,
    paths: Vec<Vec<Box<str>>>,
) -> Result<(Plan, Option<Vec<OrderedKeys>>), Vec<QueryError>> {
    let query = check::parse_with(text, request.parameters)?;
    let count = paths.len();
    let mut keys = None;
    let mut plan = plan_query_where(&query, request, |program| {
        keys = ordered_keys(program, paths);
        match &keys {
            Some(keys) if keys.is_empty() => KeyRestriction::None,
            _ => KeyRestriction::All,
        }
    })?;
    if let Some(keys) = keys.as_deref().filter(|keys| !keys.is_empty()) {
        plan.ranges = keys.iter().map(|keys| ordered_range(keys, count)).collect();
    }
    Ok((plan, keys))
}

fn ordered_range(keys: &OrderedKeys, path_count: usize) -> QueryRange {
    let effective = |ends: &[End]| {
        let mut bytes = Vec::new();
        for end in ends {
            match end {
                End::Part(part) => encode::write_ordered(part, &mut bytes),
                End::NumberMin => bytes.push(encode::ORDERED_NUMBER_MIN),
                End::NumberMax => bytes.push(encode::ORDERED_NUMBER_MAX),
                End::StringMax => bytes.push(encode::ORDERED_STRING_MAX),
            }
        }
        EffectiveKey::from_bytes(bytes)
    };
    let (min, max) = (effective(&keys.min), effective(&keys.max));
    // All keys that begin so belong to it.
    let is_prefix = keys.max_inclusive && keys.max.len() < path_count;
    QueryRange {
        min,
        max: if is_prefix { max.prefix_end() } else { max },
        min_inclusive: keys.min_inclusive,
        max_inclusive: keys.max_inclusive && !is_prefix,
    }
}

/// Plans a checked query whose keys the caller determines.
pub fn plan_query_where(
    query: &Query,
    request: PlanRequest<'_>,
    restrict: impl FnOnce(&Program) -> KeyRestriction,
) -> Result<Plan, Vec<QueryError>> {
    let settings =
        Settings { parameters: request.parameters, computed: request.computed, policies: request.policies };
    // The keys and the steps of the merge are derived from the compiled program.
    let program = Program::compile(query, settings)?;
    let mut restriction = restrict(&program);
    if !program.reads_documents && query.from.is_some() {
        // The rows depend on the text alone, yet every range is queried, as in the service's plan.
        restriction = KeyRestriction::All;
    }
    if query.from.is_some() {
        let paths = request.definition.map_or_else(Vec::new, |definition| {
            definition.paths().iter().map(|path| path.segments().to_vec()).collect()
        });
        // The whole filter is analysed: what nothing can satisfy visits no range, and if every alternative
        // fixes the first parts of the key, only those keys are visited.
        match verdict(&program, &paths) {
            Verdict::Never => restriction = KeyRestriction::None,
            Verdict::Keys(keys) => restriction = keys_restriction(keys),
            Verdict::Unknown => {}
        }
    }
    // A single logical partition applies OFFSET and LIMIT itself.
    let single_key = match (&restriction, request.definition) {
        (KeyRestriction::None, _) => true,
        (KeyRestriction::Keys(keys), Some(definition)) => keys.len() == 1 && definition.is_full(&keys[0]),
        _ => false,
    };
    let info = if program.rank.is_some() {
        PlanInfo::Hybrid(hybrid::info(query, &program, request.parameters))
    } else {
        let never = restriction == KeyRestriction::None;
        let target = rewrite::Target { program: &program, single_key, never, parameters: request.parameters };
        PlanInfo::Query(rewrite::info(query, &target)?)
    };
    // Last, because only the finished plan shows what it needs.
    request.features.check(&info)?;
    let ranges = ranges(&restriction, request.definition);
    Ok(Plan { info, restriction, ranges })
}

fn ranges(restriction: &KeyRestriction, definition: Option<&PartitionKeyDefinition>) -> Vec<QueryRange> {
    let point = |key: EffectiveKey| QueryRange {
        min: key.clone(),
        max: key,
        min_inclusive: true,
        max_inclusive: true,
    };
    let full = || QueryRange {
        min: EffectiveKey::MIN,
        max: EffectiveKey::max(),
        min_inclusive: true,
        max_inclusive: false,
    };
    match (restriction, definition) {
        (KeyRestriction::Keys(keys), Some(definition)) => {
            let range = |key: &PartitionKey| {
                let effective = definition.effective_key(key);
                if definition.is_full(key) {
                    // The point of a complete key; below, a prefix of a hierarchical key has a range of its
                    // own.
                    return point(effective);
                }
                let max = effective.prefix_end();
                QueryRange { min: effective, max, min_inclusive: true, max_inclusive: false }
            };
            let mut ranges: Vec<QueryRange> = keys.iter().map(range).collect();
            ranges.sort_by(|a, b| a.min.as_bytes().cmp(b.min.as_bytes()));
            // Distinct keys may share an effective key.
            ranges.dedup();
            ranges
        }
        // Clients need one range to send the query to, although no document matches.
        (KeyRestriction::None, _) => vec![point(EffectiveKey::MIN)],
        _ => vec![full()],
    }
}

impl Plan {
    /// The document clients get.
    pub fn to_value(&self) -> Value {
        let mut document = Object::new();
        document.set("partitionedQueryExecutionInfoVersion", 2.into());
        match &self.info {
            PlanInfo::Query(info) => document.set("queryInfo", info.to_value()),
            PlanInfo::Hybrid(info) => document.set("hybridSearchQueryInfo", info.to_value()),
        }
        let ranges: Vec<Value> = self.ranges.iter().map(QueryRange::to_value).collect();
        document.set("queryRanges", ranges.into());
        document.into()
    }
}

impl QueryRange {
    fn to_value(&self) -> Value {
        let mut range = Object::new();
        range.set("min", self.min.to_string().into());
        range.set("max", self.max.to_string().into());
        range.set("isMinInclusive", self.min_inclusive.into());
        range.set("isMaxInclusive", self.max_inclusive.into());
        range.into()
    }
}

impl QueryInfo {
    /// Whether rows of all ranges, one after the other, are the result as they are.
    pub fn is_plain(&self) -> bool {
        self.distinct_type == DistinctType::None
            && self.top.is_none()
            && self.offset.is_none()
            && self.limit.is_none()
            && self.order_by.is_empty()
            && self.group_by_expressions.is_empty()
            && self.group_by_aliases.is_empty()
            && self.aggregates.is_empty()
            && self.dcount_alias.is_none()
    }

    /// The `queryInfo` member, all fields present, in the order of the service.
    pub fn to_value(&self) -> Value {
        let mut info = Object::new();
        let distinct = match self.distinct_type {
            DistinctType::None => "None",
            DistinctType::Ordered => "Ordered",
            DistinctType::Unordered => "Unordered",
        };
        info.set("distinctType", distinct.into());
        for (name, count) in [("top", self.top), ("offset", self.offset), ("limit", self.limit)] {
            info.set(name, count_value(count));
        }
        info.set("orderBy", directions(&self.order_by));
        info.set("orderByExpressions", strings(&self.order_by_expressions));
        info.set("groupByExpressions", strings(&self.group_by_expressions));
        info.set("groupByAliases", strings(&self.group_by_aliases));
        let aggregates: Vec<Value> =
            self.aggregates.iter().map(|aggregate| aggregate.plan_name().into()).collect();
        info.set("aggregates", aggregates.into());
        let mut types = Object::new();
        for (alias, aggregate) in &self.group_by_alias_to_aggregate {
            types
                .set(alias.as_str(), aggregate.map_or(Value::Null, |aggregate| aggregate.plan_name().into()));
        }
        info.set("groupByAliasToAggregateType", types.into());
        info.set("rewrittenQuery", self.rewritten_query.as_str().into());
        info.set("hasSelectValue", self.has_select_value.into());
        let dcount = self.dcount_alias.as_ref().map_or(Value::Null, |alias| {
            let mut dcount = Object::new();
            dcount.set("dCountAlias", alias.as_str().into());
            dcount.into()
        });
        info.set("dCountInfo", dcount);
        info.set("hasNonStreamingOrderBy", self.has_non_streaming_order_by.into());
        info.into()
    }
}

fn count_value(count: Option<u64>) -> Value {
    count.and_then(|count| i64::try_from(count).ok()).map_or(Value::Null, Value::from)
}

fn strings(texts: &[String]) -> Value {
    texts.iter().map(|text| Value::from(text.as_str())).collect::<Vec<_>>().into()
}

fn directions(directions: &[Direction]) -> Value {
    let names = directions.iter().map(|direction| match direction {
        Direction::Ascending => Value::from("Ascending"),
        Direction::Descending => Value::from("Descending"),
    });
    names.collect::<Vec<_>>().into()
}
