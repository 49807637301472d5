//! What the index of a container holds.

use orrery_model::container::{IndexPath, IndexStep};
use orrery_storage::KeyRange;

use crate::catalog::Generation;
use crate::index::named_paths;
use crate::layout::stored::SYSTEM_PROPERTIES;

/// Whether the index has entries for items without this property.
pub(crate) fn knows_missing(generation: &Generation, path: &IndexPath) -> bool {
    named_paths(&generation.policy).any(|named| named.steps == path.0)
}

/// Whether every item has this property: an id and a timestamp.
pub(crate) fn is_everywhere(path: &IndexPath) -> bool {
    matches!(path.0.as_slice(), [IndexStep::Property(name)] if **name == *"id" || **name == *"_ts")
}

/// Whether values at this path have entries in the generation.
pub(crate) fn is_indexed(generation: &Generation, path: &IndexPath) -> bool {
    // System properties are not indexed, except for `_ts`.
    if let Some(IndexStep::Property(first)) = path.0.first()
        && **first != *"_ts"
        && SYSTEM_PROPERTIES.contains(&&**first)
    {
        return false;
    }
    let tree = &generation.tree;
    let place = path.0.iter().fold(tree.root(), |place, step| match step {
        IndexStep::Property(name) => tree.property(place, name),
        IndexStep::Element => tree.element(place),
    });
    tree.indexes(place)
}

/// Joins ranges, in the order of their starts, that overlap.
pub(crate) fn merge_overlapping(ranges: &mut Vec<KeyRange>) {
    ranges.dedup_by(|next, kept| {
        let overlaps = kept.end.as_ref().is_none_or(|end| next.start < *end);
        if overlaps && kept.end.is_some() && (next.end.is_none() || next.end > kept.end) {
            kept.end.clone_from(&next.end);
        }
        overlaps
    });
}
