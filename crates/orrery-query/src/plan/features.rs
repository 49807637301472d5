//! The plan features that a client supports, as listed in its request.

use super::{DistinctType, PlanInfo};
use crate::aggregate::Aggregate;
use crate::error::QueryError;

macro_rules! features {
    ($($constant:ident $name:literal $bit:literal),* $(,)?) => {
        impl Features {
            $(const $constant: Self = Self(1 << $bit);)*
        }
        const NAMES: &[(&str, Features)] = &[$(($name, Features::$constant)),*];
    };
}

/// A set of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(u32);

features! {
    AGGREGATE "Aggregate" 0,
    DISTINCT "Distinct" 1,
    GROUP_BY "GroupBy" 2,
    MULTIPLE_ORDER_BY "MultipleOrderBy" 3,
    MULTIPLE_AGGREGATES "MultipleAggregates" 4,
    OFFSET_AND_LIMIT "OffsetAndLimit" 5,
    ORDER_BY "OrderBy" 6,
    TOP "Top" 7,
    NON_VALUE_AGGREGATE "NonValueAggregate" 8,
    DCOUNT "DCount" 9,
    NON_STREAMING_ORDER_BY "NonStreamingOrderBy" 10,
    COUNT_IF "CountIf" 11,
    HYBRID_SEARCH "HybridSearch" 12,
    WEIGHTED_RANK_FUSION "WeightedRankFusion" 13,
    LIST_AND_SET_AGGREGATE "ListAndSetAggregate" 14,
}

impl Features {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(u32::MAX);

    /// Parses the list in a request: comma-separated names, optionally with spaces. Unknown names are ignored.
    pub fn parse(list: &str) -> Self {
        let found = list.split(',').filter_map(|name| NAMES.iter().find(|(known, _)| *known == name.trim()));
        Self(found.fold(0, |bits, (_, feature)| bits | feature.0))
    }

    fn with(self, feature: Self, needed: bool) -> Self {
        if needed { Self(self.0 | feature.0) } else { self }
    }

    /// Rejects a plan that needs other features.
    pub(super) fn check(self, info: &PlanInfo) -> Result<(), Vec<QueryError>> {
        let needed = needed(info);
        let missing =
            NAMES.iter().filter(|(_, feature)| needed.0 & feature.0 != 0 && self.0 & feature.0 == 0);
        let lines: Vec<String> = missing
            .map(|(name, _)| format!("Query contained {name}, which the calling client does not support."))
            .collect();
        if lines.is_empty() {
            return Ok(());
        }
        Err(vec![QueryError::text(format!(
            "Query contains 1 or more unsupported features. Upgrade your SDK to a version that does support the requested features: {}",
            lines.join("\n")
        ))])
    }
}

/// The features a client must have for this plan.
fn needed(info: &PlanInfo) -> Features {
    let info = match info {
        PlanInfo::Query(info) => info,
        PlanInfo::Hybrid(info) => {
            return Features::HYBRID_SEARCH
                .with(Features::WEIGHTED_RANK_FUSION, !info.component_weights.is_empty());
        }
    };
    let by_alias: Vec<Aggregate> =
        info.group_by_alias_to_aggregate.iter().filter_map(|(_, aggregate)| *aggregate).collect();
    let all: Vec<Aggregate> = info.aggregates.iter().chain(&by_alias).copied().collect();
    let has = |wanted: &[Aggregate]| all.iter().any(|aggregate| wanted.contains(aggregate));
    let grouped = !info.group_by_expressions.is_empty();
    Features::NONE
        .with(Features::AGGREGATE, !all.is_empty())
        // `SELECT COUNT(1) AS n`: an aggregate in an object, not grouped.
        .with(Features::NON_VALUE_AGGREGATE, !by_alias.is_empty() && !grouped)
        .with(Features::MULTIPLE_AGGREGATES, all.len() > 1)
        .with(Features::COUNT_IF, has(&[Aggregate::CountIf]))
        .with(Features::LIST_AND_SET_AGGREGATE, has(&[Aggregate::MakeList, Aggregate::MakeSet]))
        .with(Features::GROUP_BY, grouped)
        .with(Features::DISTINCT, info.distinct_type != DistinctType::None)
        .with(Features::DCOUNT, info.dcount_alias.is_some())
        // Clients announce a single sort key and several of them separately.
        .with(Features::ORDER_BY, info.order_by.len() == 1)
        .with(Features::MULTIPLE_ORDER_BY, info.order_by.len() > 1)
        .with(Features::NON_STREAMING_ORDER_BY, info.has_non_streaming_order_by)
        .with(Features::TOP, info.top.is_some())
        .with(Features::OFFSET_AND_LIMIT, info.offset.is_some() || info.limit.is_some())
}
