//! ST_INTERSECTS and ST_WITHIN: relations between two shapes, decided edge by edge.

use super::shape::{Kind, Location, Shape};
use super::sorted::SortedEdges;
use super::space::{Edge, Space};
use super::vector::Vector;

/// Whether two shapes share at least one point.
pub(super) fn intersects(left: &Shape, right: &Shape) -> bool {
    match (&left.kind, &right.kind) {
        (Kind::Point(left_point), Kind::Point(right_point)) => left.space.same(*left_point, *right_point),
        (Kind::Point(point), _) => meets_point(right, *point),
        (_, Kind::Point(point)) => meets_point(left, *point),
        _ => {
            // Shapes whose boundaries are apart can only lie one in the other.
            have_contact(left, right)
                || left.representatives().into_iter().any(|point| right.locate(point) != Location::Outside)
                || right.representatives().into_iter().any(|point| left.locate(point) != Location::Outside)
        }
    }
}

fn have_contact(left: &Shape, right: &Shape) -> bool {
    let others = SortedEdges::new(&right.edges);
    left.edges.iter().any(|edge| others.near(edge).any(|other| left.space.touch(edge, other)))
}

fn meets_point(shape: &Shape, point: Vector) -> bool {
    shape.edges.iter().any(|edge| shape.space.is_on(point, edge)) || shape.locate(point) == Location::Inside
}

/// Whether the inner shape lies in the outer one, not only on its boundary.
pub(super) fn within(inner: &Shape, outer: &Shape) -> bool {
    let space = inner.space;
    match (&inner.kind, &outer.kind) {
        (Kind::Point(point), Kind::Point(other)) => space.same(*point, *other),
        (Kind::Point(point), Kind::Line) => is_inside_line(outer, *point),
        (Kind::Point(point), Kind::Region(_)) => outer.locate(*point) == Location::Inside,
        (Kind::Line, Kind::Line) => {
            middles(inner, outer).all(|middle| outer.edges.iter().any(|edge| space.is_on(middle, edge)))
        }
        (Kind::Line, Kind::Region(_)) => line_within_region(inner, outer),
        (Kind::Region(_), Kind::Region(_)) => region_within_region(inner, outer),
        (Kind::Line | Kind::Region(_), Kind::Point(_)) | (Kind::Region(_), Kind::Line) => false,
    }
}

/// Whether a point is on a line and is not one of its two ends; a closed line has no ends.
fn is_inside_line(line: &Shape, point: Vector) -> bool {
    let space = line.space;
    let (Some(first), Some(last)) = (line.edges.first(), line.edges.last()) else { return false };
    let is_closed = space.same(first.start, last.end);
    let is_end = space.same(point, first.start) || space.same(point, last.end);
    line.edges.iter().any(|edge| space.is_on(point, edge)) && (is_closed || !is_end)
}

/// What the edges of two shapes have to do with each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contact {
    Apart,
    Touching,
    Crossing,
}

fn contact(left: &Shape, right: &Shape) -> Contact {
    let mut contact = Contact::Apart;
    let others = SortedEdges::new(&right.edges);
    for edge in &left.edges {
        for other in others.near(edge) {
            if left.space.cross(edge, other) {
                return Contact::Crossing;
            }
            if contact == Contact::Apart && left.space.touch(edge, other) {
                contact = Contact::Touching;
            }
        }
    }
    contact
}

fn line_within_region(line: &Shape, region: &Shape) -> bool {
    match contact(line, region) {
        Contact::Crossing => false,
        Contact::Apart => {
            line.representatives().into_iter().all(|point| region.locate(point) == Location::Inside)
        }
        Contact::Touching => {
            // Between two corners of the other shape a piece is on one side of it, so its middle decides.
            let locations: Vec<Location> =
                middles(line, region).map(|middle| region.locate(middle)).collect();
            !locations.contains(&Location::Outside) && locations.contains(&Location::Inside)
        }
    }
}

fn region_within_region(inner: &Shape, outer: &Shape) -> bool {
    match contact(inner, outer) {
        Contact::Crossing => false,
        // The inner boundary has to lie inside the outer area, and no outer boundary, such as that
        // of a hole, inside the inner area.
        Contact::Apart => {
            inner.representatives().into_iter().all(|point| outer.locate(point) == Location::Inside)
                && outer.representatives().into_iter().all(|point| inner.locate(point) == Location::Outside)
        }
        Contact::Touching => {
            let corners = SortedEdges::new(&outer.edges);
            let inner_edges_fit = inner.edges.iter().all(|edge| {
                pieces(inner.space, edge, &corners).into_iter().all(|middle| match outer.locate(middle) {
                    Location::Inside => true,
                    Location::Boundary => runs_along(outer, edge, middle),
                    Location::Outside => false,
                })
            });
            // Nor may the outer boundary, that of a hole for example, run through the inner area.
            inner_edges_fit && middles(outer, inner).all(|middle| inner.locate(middle) != Location::Inside)
        }
    }
}

/// Whether the boundary that shares a point with an edge has its area on the same side of it.
fn runs_along(outer: &Shape, edge: &Edge, point: Vector) -> bool {
    outer
        .edges
        .iter()
        .filter(|other| outer.space.is_on(point, other))
        .any(|other| (edge.end - edge.start).dot(other.end - other.start) > 0.0)
}

/// The middles of all pieces into which the boundary of one shape is cut by the corners of another.
fn middles(of: &Shape, by: &Shape) -> impl Iterator<Item = Vector> {
    let corners = SortedEdges::new(&by.edges);
    of.edges.iter().flat_map(move |edge| pieces(of.space, edge, &corners))
}

fn pieces(space: Space, edge: &Edge, others: &SortedEdges<'_>) -> Vec<Vector> {
    let mut cuts = vec![0.0, 1.0];
    for other in others.near(edge) {
        for corner in [other.start, other.end] {
            if space.is_on(corner, edge) {
                cuts.push(space.fraction(edge, corner));
            }
        }
    }
    cuts.sort_unstable_by(f64::total_cmp);
    // Cuts that differ by rounding leave no piece between them.
    cuts.dedup_by(|next, previous| *next - *previous < 1e-9);
    cuts.windows(2).map(|cut| space.at_fraction(edge, f64::midpoint(cut[0], cut[1]))).collect()
}
