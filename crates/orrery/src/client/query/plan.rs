//! The plan of a query over several partitions, as the server's planner returns it.

use orrery_env::SystemEnv;
use orrery_model::Value;
use orrery_model::partition_key::EpkRange;
use serde::Deserialize;

use super::QueryText;
use crate::client::{Client, ContainerPath};
use crate::failure::Failure;

/// The features that `merge` supports; the planner rejects queries that need more.
const FEATURES: &str = "Aggregate,CompositeAggregate,CountIf,DCount,Distinct,GroupBy,ListAndSetAggregate,\
    MultipleAggregates,MultipleOrderBy,NonStreamingOrderBy,NonValueAggregate,OffsetAndLimit,OrderBy,Top";

/// The query for each partition, and how to merge the results.
#[derive(Debug)]
pub(super) struct QueryPlan {
    /// The query for each partition.
    pub(super) query: QueryText,
    pub(super) info: QueryInfo,
    pub(super) ranges: Vec<EpkRange>,
}

/// The planner's description of the merge. Absent members have no part in it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct QueryInfo {
    pub(super) distinct_type: Option<String>,
    pub(super) top: Option<u64>,
    pub(super) offset: Option<u64>,
    pub(super) limit: Option<u64>,
    pub(super) order_by: Vec<SortOrder>,
    pub(super) group_by_expressions: Vec<String>,
    pub(super) group_by_aliases: Vec<String>,
    pub(super) aggregates: Vec<String>,
    pub(super) group_by_alias_to_aggregate_type: serde_json::Map<String, serde_json::Value>,
    pub(super) rewritten_query: Option<String>,
    pub(super) has_select_value: bool,
    pub(super) d_count_info: Option<DistinctCount>,
    pub(super) has_non_streaming_order_by: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum SortOrder {
    Ascending,
    Descending,
}

/// The query counts distinct rows.
#[derive(Debug, Deserialize)]
pub(super) struct DistinctCount {
    #[serde(rename = "dCountAlias", default)]
    pub(super) alias: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    query_info: Option<QueryInfo>,
    query_ranges: Vec<Range>,
}

#[derive(Deserialize)]
struct Range {
    min: String,
    max: String,
    #[serde(rename = "isMaxInclusive", default)]
    is_max_inclusive: bool,
}

impl QueryInfo {
    pub(super) fn is_distinct(&self) -> bool {
        self.distinct_type.as_deref().is_some_and(|kind| kind != "None")
    }

    /// Whether rows carry groups, or partial aggregates that form a single group.
    pub(super) fn is_grouped(&self) -> bool {
        !self.group_by_expressions.is_empty() || !self.group_by_alias_to_aggregate_type.is_empty()
    }

    /// The name of the aggregate behind an output property; none for a group key.
    pub(super) fn aggregate_of(&self, alias: &str) -> Option<&str> {
        self.group_by_alias_to_aggregate_type.get(alias)?.as_str()
    }
}

impl QueryPlan {
    pub(super) async fn request(
        client: &Client,
        container: &ContainerPath,
        query: &QueryText,
    ) -> Result<Self, Failure> {
        let request = query
            .request(container)
            .with("x-ms-cosmos-is-query-plan-request", "True")
            .with("x-ms-cosmos-supported-query-features", FEATURES);
        let response = client.send(&SystemEnv, &request).await?.accepted()?;
        let answer: Answer = serde_json::from_slice(&response.body).map_err(|error| {
            Failure::refused(format!("the server returned a query plan that cannot be parsed: {error}"))
        })?;
        // The plan of a ranked search has another form, which is not merged here.
        let Some(info) = answer.query_info else {
            return Err(Failure::refused(
                "this server leaves the ranking of full-text and hybrid searches over several partitions to the SDKs; \
                 restrict the query to one partition key",
            ));
        };
        let ranges = answer.query_ranges.iter().map(Range::parse).collect::<Option<Vec<_>>>();
        let ranges = ranges.ok_or_else(|| {
            Failure::refused("the server returned a query plan with ranges that cannot be parsed")
        })?;
        // An empty text means that the query is sent unchanged.
        let text = match info.rewritten_query.as_deref() {
            None | Some("") => query.text.clone(),
            // Stands for the condition under which a range resumes; here every range is read from its start.
            Some(text) => text.replace("{documentdb-formattableorderbyquery-filter}", "true"),
        };
        Ok(Self { query: QueryText { text, parameters: query.parameters.clone() }, info, ranges })
    }
}

impl Range {
    /// The range of a single key is inclusive at both ends: it ends after everything that begins with that key.
    fn parse(&self) -> Option<EpkRange> {
        let max = if self.is_max_inclusive { format!("{}FF", self.max) } else { self.max.clone() };
        EpkRange::parse(&self.min, &max).ok()
    }
}

/// The member `item` of a partial value; none if it is undefined.
pub(super) fn item(value: &Value) -> Option<&Value> {
    value.get("item")
}
