//! A valid shape, ready to be related to others.

use std::ops::Range;

use super::space::{Edge, Space};
use super::vector::Vector;

#[derive(Debug)]
pub(super) struct Shape {
    pub(super) space: Space,
    pub(super) kind: Kind,
    /// All edges: of the line, or of all rings one after the other.
    pub(super) edges: Vec<Edge>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Point(Vector),
    Line,
    /// Polygons, each a list of rings, each a range of edges. Every ring has its polygon on the left.
    Region(Vec<Vec<Range<usize>>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Inside,
    Boundary,
    Outside,
}

impl Shape {
    /// The points that edges start and end at, each once.
    pub(super) fn vertices(&self) -> impl Iterator<Item = Vector> {
        let alone = match self.kind {
            Kind::Point(point) => Some(point),
            // No edge starts at the end of a line.
            Kind::Line => self.edges.last().map(|edge| edge.end),
            Kind::Region(_) => None,
        };
        self.edges.iter().map(|edge| edge.start).chain(alone)
    }

    /// One point of every connected piece of the boundary.
    pub(super) fn representatives(&self) -> Vec<Vector> {
        match &self.kind {
            Kind::Point(point) => vec![*point],
            Kind::Line => self.edges.first().map(|edge| edge.start).into_iter().collect(),
            Kind::Region(polygons) => {
                polygons.iter().flatten().map(|ring| self.edges[ring.start].start).collect()
            }
        }
    }

    /// Where a point lies relative to the area; a point or line has none, so it is never inside.
    pub(super) fn locate(&self, point: Vector) -> Location {
        let Kind::Region(polygons) = &self.kind else { return Location::Outside };
        let mut location = Location::Outside;
        for rings in polygons {
            match self.locate_in_polygon(rings, point) {
                Location::Inside => return Location::Inside,
                Location::Boundary => location = Location::Boundary,
                Location::Outside => {}
            }
        }
        location
    }

    fn locate_in_polygon(&self, rings: &[Range<usize>], point: Vector) -> Location {
        let mut location = Location::Inside;
        for ring in rings {
            match locate_by_ring(self.space, &self.edges[ring.clone()], point) {
                Location::Outside => return Location::Outside,
                Location::Boundary => location = Location::Boundary,
                Location::Inside => {}
            }
        }
        location
    }
}

/// Whether a point is left of a ring.
///
/// From a point on some edge of the ring it is known which side is left. A path from there to the
/// point in question changes sides with every other edge it crosses. A path that comes too close to
/// a corner to say is given up for another.
pub(super) fn locate_by_ring(space: Space, ring: &[Edge], point: Vector) -> Location {
    /// Where on an edge paths start; odd numbers make it unlikely to hit two corners in a row.
    const STARTS: [f64; 3] = [0.4871, 0.2937, 0.7213];
    const EDGES_TRIED_MAX: usize = 16;

    if ring.iter().any(|edge| space.is_on(point, edge)) {
        return Location::Boundary;
    }
    let step = (ring.len() / EDGES_TRIED_MAX).max(1);
    for start in STARTS {
        for from in (0..ring.len()).step_by(step) {
            if let Some(is_left) = is_left_from(space, ring, point, from, start) {
                return if is_left { Location::Inside } else { Location::Outside };
            }
        }
    }
    // Only a ring without area has no edge to start from.
    Location::Outside
}

fn is_left_from(space: Space, ring: &[Edge], point: Vector, from: usize, start: f64) -> Option<bool> {
    let edge = &ring[from];
    let turn = space.turn(edge.start, edge.end, point);
    let origin = space.at_fraction(edge, start);
    // Opposite points of the earth have no shortest path between them.
    let has_path = space == Space::Plane || (point + origin).length() > 1e-6;
    if turn == 0 || !has_path {
        return None;
    }
    let path = Edge::new(point, origin);
    let mut is_left = turn > 0;
    for (at, other) in ring.iter().enumerate() {
        // The path begins on this edge.
        if at == from || !path.may_meet(other) {
            continue;
        }
        if space.cross(&path, other) {
            is_left = !is_left;
        } else if space.is_on(other.start, &path)
            || space.is_on(other.end, &path)
            || space.is_on(origin, other)
        {
            return None;
        }
    }
    Some(is_left)
}
