//! Edges in order along one axis, so that those near a given edge are found without looking at all.

use super::space::{Axis, Edge};

pub(super) struct SortedEdges<'e> {
    axis: Axis,
    by_low: Vec<&'e Edge>,
    /// The widest extent of an edge along the axis.
    widest: f64,
}

impl<'e> SortedEdges<'e> {
    pub(super) fn new(edges: &'e [Edge]) -> Self {
        // The axis along which the edges spread most tells them apart best: near the middle of the
        // map, for one, all have nearly the same first coordinate.
        let axes: [Axis; 3] = [|point| point.x, |point| point.y, |point| point.z];
        let spread = |axis: &Axis| {
            let at = edges.iter().map(|edge| axis(&edge.start));
            let range = at.fold((f64::MAX, f64::MIN), |(low, high), at| (low.min(at), high.max(at)));
            range.1 - range.0
        };
        let axis = axes.into_iter().max_by(|a, b| spread(a).total_cmp(&spread(b))).unwrap_or(axes[0]);
        let mut by_low: Vec<&Edge> = edges.iter().collect();
        by_low.sort_unstable_by(|a, b| a.extent(axis).0.total_cmp(&b.extent(axis).0));
        let width = |edge: &Edge| edge.extent(axis).1 - edge.extent(axis).0;
        let widest = edges.iter().map(width).fold(0.0, f64::max);
        Self { axis, by_low, widest }
    }

    /// The edges that may share a point with this one.
    pub(super) fn near(&self, edge: &Edge) -> impl Iterator<Item = &'e Edge> {
        let axis = self.axis;
        let (low, high) = edge.extent(axis);
        // No edge that begins before this reaches as far as the given one.
        let first = self.by_low.partition_point(|other| other.extent(axis).0 < low - self.widest);
        self.by_low[first..]
            .iter()
            .copied()
            .take_while(move |other| other.extent(axis).0 <= high)
            .filter(move |other| edge.may_meet(other))
    }
}
