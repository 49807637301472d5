//! Edges in order along one axis, so that those near a given edge are found without looking at all.

use super::space::Edge;

pub(super) struct SortedEdges<'e> {
    by_low: Vec<&'e Edge>,
    /// The widest extent of an edge along the axis.
    widest: f64,
}

impl<'e> SortedEdges<'e> {
    pub(super) fn new(edges: &'e [Edge]) -> Self {
        let mut by_low: Vec<&Edge> = edges.iter().collect();
        by_low.sort_unstable_by(|a, b| a.extent().0.total_cmp(&b.extent().0));
        let width = |edge: &Edge| edge.extent().1 - edge.extent().0;
        let widest = edges.iter().map(width).fold(0.0, f64::max);
        Self { by_low, widest }
    }

    /// The edges that may share a point with this one.
    pub(super) fn near(&self, edge: &Edge) -> impl Iterator<Item = &'e Edge> {
        let (low, high) = edge.extent();
        let first = self.by_low.partition_point(|other| other.extent().0 < low - self.widest);
        self.by_low[first..]
            .iter()
            .copied()
            .take_while(move |other| other.extent().0 <= high)
            .filter(move |other| edge.may_meet(other))
    }
}
