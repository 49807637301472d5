//! Queries that the index answers alone: one property decides all of their rows, and its values are in the index.

use orrery_model::container::{IndexPath, IndexStep};
use orrery_model::partition_key::EpkRange;
use orrery_query::Program;
use orrery_query::filter::{IndexCondition, Test};
use orrery_storage::KeyRange;

use super::indexed::{is_everywhere, is_indexed, knows_missing, merge_overlapping};
use crate::catalog::Container;
use crate::layout::index_entry;

/// The entries that give the rows of a query.
#[derive(Clone, Debug)]
pub(crate) struct Cover {
    /// The names that lead to the property; none if the query only depends on the number of items.
    pub path: Vec<Box<str>>,
    /// The entries with all values that can match, disjoint and in order.
    pub ranges: Vec<KeyRange>,
    /// Whether items without the property count although they have no entries.
    pub lacks_undefined: bool,
    pub label: String,
}

impl Cover {
    /// The cover of a query, if it has one. Parts of a partition have none: entries of other keys lie in between.
    pub(crate) fn find(
        container: &Container,
        program: &Program,
        condition: &IndexCondition,
        windows: &[EpkRange],
    ) -> Option<Self> {
        let visited = |range: &&EpkRange| windows.iter().any(|window| window.overlaps(range));
        let is_whole = |range: &EpkRange| windows.iter().any(|window| window.covers(range));
        if !container.partitions.iter().map(|partition| &partition.range).filter(visited).all(is_whole) {
            return None;
        }
        let names = program.covering_path()?;
        let path: Vec<Box<str>> = names.iter().copied().map(Box::from).collect();
        // No property matters: the counters of the logical partitions suffice.
        if path.is_empty() {
            let label = "number of items".to_owned();
            return Some(Self { path, ranges: Vec::new(), lacks_undefined: true, label });
        }
        let (generation, definition) = (&container.index.serving, &container.definition);
        // A computed property is not what the items have at its path.
        let is_computed = definition.computed_properties.iter().any(|computed| *computed.name == *path[0]);
        let indexed = IndexPath(path.iter().cloned().map(IndexStep::Property).collect());
        if is_computed || !generation.tree.is_enabled() || !is_indexed(generation, &indexed) {
            return None;
        }
        let narrowed = narrowed(generation.number, condition, &indexed);
        // A filter on the property excludes the items without it, since a comparison with undefined does not hold.
        let is_complete =
            narrowed.is_some() || is_everywhere(&indexed) || knows_missing(generation, &indexed);
        let all = || vec![index_entry::path_range(generation.number, &indexed)];
        Some(Self {
            ranges: narrowed.unwrap_or_else(all),
            lacks_undefined: !is_complete,
            label: format!("values of {indexed}"),
            path,
        })
    }
}

/// The entries that satisfy the filter, as far as it says something about the values.
fn narrowed(generation: u32, condition: &IndexCondition, path: &IndexPath) -> Option<Vec<KeyRange>> {
    let (_, mut ranges) = ranked_ranges(generation, condition, path)?;
    ranges.sort_by(|a, b| a.start.cmp(&b.start));
    merge_overlapping(&mut ranges);
    Some(ranges)
}

/// The ranges of a condition, with the rank of the test that they come from: the lower, the fewer values it selects.
fn ranked_ranges(
    generation: u32,
    condition: &IndexCondition,
    path: &IndexPath,
) -> Option<(u8, Vec<KeyRange>)> {
    match condition {
        IndexCondition::Term { path: own, test, .. } if own == path => {
            Some((rank(test), index_entry::ranges(generation, path, test)?))
        }
        IndexCondition::All | IndexCondition::None | IndexCondition::Term { .. } => None,
        // One of them is enough: the whole filter is evaluated on each value.
        IndexCondition::And(parts) => {
            let each = parts.iter().filter_map(|part| ranked_ranges(generation, part, path));
            each.min_by_key(|(rank, _)| *rank)
        }
        IndexCondition::Or(parts) => {
            // Every alternative must be on this property, or values that match by another one would be left out.
            let each = parts.iter().map(|part| ranked_ranges(generation, part, path));
            let each = each.collect::<Option<Vec<_>>>()?;
            let rank = each.iter().map(|(rank, _)| *rank).max()?;
            Some((rank, each.into_iter().flat_map(|(_, ranges)| ranges).collect()))
        }
    }
}

fn rank(test: &Test) -> u8 {
    match test {
        Test::Equal(_) => 0,
        Test::In(_) => 1,
        Test::Prefix(_) => 2,
        Test::Range { .. } => 3,
        Test::NotEqual(_) | Test::StringScan | Test::Type(_) => 4,
    }
}
