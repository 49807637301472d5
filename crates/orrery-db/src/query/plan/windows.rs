//! The part of the key space that a query has to visit, given its scope and filter.

use orrery_model::partition_key::{EpkRange, PartitionKeyDefinition};
use orrery_model::{Error, Result};
use orrery_query::Program;
use orrery_query::filter::KeyRestriction;

use super::synthetic_routing;
use crate::catalog::Container;
use crate::query::options::QueryOptions;

/// The windows of keys that can match.
pub(crate) struct Windows {
    pub(crate) ranges: Vec<EpkRange>,
    /// Each is a single, complete key.
    pub(crate) are_points: bool,
    /// Determined by the container's synthetic key.
    pub(crate) by_policy: bool,
}

impl Windows {
    pub(crate) fn find(container: &Container, options: &QueryOptions, program: &Program) -> Result<Self> {
        let definition = &container.definition.partition_key;
        // What the request names: a key, a range or a window.
        let scope = options.scope.range(container)?;
        // What the filter says about the key.
        let routed = synthetic_routing::restriction(container, program);
        let restriction = &routed.restriction;
        check_crossing(options, definition, restriction)?;
        let scope_is_point = options.scope.partition_key.as_ref().is_some_and(|key| definition.is_full(key));
        let mut windows = match restriction {
            KeyRestriction::All => (vec![scope.clone()], scope_is_point),
            KeyRestriction::None => (Vec::new(), true),
            KeyRestriction::Keys(keys) => {
                let ranges = keys.iter().map(|key| definition.prefix_range(key));
                // A key outside the scope has no matches in it.
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

/// Rejects a query over several keys if cross-partition queries are not enabled.
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
