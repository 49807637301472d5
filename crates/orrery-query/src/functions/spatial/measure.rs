//! Distances and areas, in metres on the ellipsoid or in the units of the plane.

use std::f64::consts::PI;
use std::ops::Range;

use super::ellipsoid;
use super::relate::intersects;
use super::shape::{Kind, Shape};
use super::space::{Edge, Space};
use super::vector::Vector;

/// How much longer than the shortest, as measured on a sphere, a way may be and still turn out the
/// shortest on the ellipsoid, which is flattened by a third of a percent.
const SPHERE_SLACK: f64 = 1.012;

/// The most ways measured on the ellipsoid, shortest on the sphere first.
const MEASURED_MAX: usize = 512;

/// The shortest way between two shapes; 0 if they touch.
pub(super) fn distance(left: &Shape, right: &Shape) -> f64 {
    if intersects(left, right) {
        return 0.0;
    }
    let space = left.space;
    if let (Kind::Point(left), Kind::Point(right)) = (&left.kind, &right.kind) {
        return between_points(space, *left, *right);
    }
    // Where two edges do not meet, the shortest way between them starts at an end of one.
    let mut ways = Vec::new();
    let mut shortest = f64::INFINITY;
    for (corners, edges) in [(left, &right.edges), (right, &left.edges)] {
        for corner in corners.vertices() {
            for edge in edges {
                if edge.distance_at_least(corner) > shortest * SPHERE_SLACK {
                    continue;
                }
                let length = (space.closest(edge, corner) - corner).length();
                if length <= shortest * SPHERE_SLACK {
                    shortest = shortest.min(length);
                    ways.push((length, corner, edge));
                }
            }
        }
    }
    if space == Space::Plane {
        return shortest;
    }
    // Some were noted before a shorter one was found.
    ways.retain(|(length, ..)| *length <= shortest * SPHERE_SLACK);
    ways.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let lengths = ways.iter().take(MEASURED_MAX).map(|(_, corner, edge)| to_edge(*corner, edge));
    lengths.fold(f64::INFINITY, f64::min)
}

fn between_points(space: Space, left: Vector, right: Vector) -> f64 {
    match space {
        Space::Sphere => ellipsoid::distance(left, right),
        Space::Plane => (left - right).length(),
    }
}

/// The distance on the ellipsoid from a point to an edge.
fn to_edge(point: Vector, edge: &Edge) -> f64 {
    // The nearest point of the ellipsoid is off that of the sphere by at most a small part of the
    // distance.
    const FOOT_SLACK: f64 = 0.02;

    let space = Space::Sphere;
    let length = edge.start.angle_to(edge.end);
    let foot = space.closest(edge, point);
    let at = space.fraction(edge, foot);
    let slack = if length > 0.0 { FOOT_SLACK * point.angle_to(foot) / length } else { 0.0 };
    let measure = |fraction: f64| ellipsoid::distance(point, space.at_fraction(edge, fraction));
    ellipsoid::minimum(measure, (at - slack).max(0.0), (at + slack).min(1.0))
}

/// The area of the polygons; points and lines have none.
pub(super) fn area(shape: &Shape) -> f64 {
    let Kind::Region(polygons) = &shape.kind else { return 0.0 };
    let ring = |ring: &Range<usize>| &shape.edges[ring.clone()];
    match shape.space {
        Space::Plane => {
            let signed = |edges: &[Edge]| planar_area(edges.iter().map(|edge| (edge.start, edge.end)));
            polygons.iter().flatten().map(|range| signed(ring(range))).sum()
        }
        Space::Sphere => {
            // Rings have their polygon on the left, and what a hole takes away is its right.
            let left = |range: &Range<usize>| left_of_ring(&densified(ring(range)));
            let polygon = |rings: &Vec<Range<usize>>| {
                let (shell, holes) = rings.split_first()?;
                Some(left(shell) - holes.iter().map(|hole| 4.0 * PI - left(hole)).sum::<f64>())
            };
            polygons.iter().filter_map(polygon).sum::<f64>() * ellipsoid::authalic_radius_squared()
        }
    }
}

/// Twice the sum of cross products, relative to the first point to keep digits.
pub(super) fn planar_area(edges: impl Iterator<Item = (Vector, Vector)>) -> f64 {
    let mut origin = None;
    let doubled: f64 = edges
        .map(|(start, end)| {
            let origin = *origin.get_or_insert(start);
            (start - origin).cross(end - origin).z
        })
        .sum();
    doubled / 2.0
}

/// The part of the unit sphere that lies left of a ring of directions, from 0 to 4π.
pub(super) fn left_of_ring(ring: &[Vector]) -> f64 {
    let Some((&first, rest)) = ring.split_first() else { return 0.0 };
    let triangle = |pair: &[Vector]| {
        let (b, c) = (pair[0], pair[1]);
        let volume = first.dot((b - first).cross(c - first));
        2.0 * volume.atan2(1.0 + first.dot(b) + b.dot(c) + c.dot(first))
    };
    rest.windows(2).map(triangle).sum::<f64>().rem_euclid(4.0 * PI)
}

/// The corners of a ring on the sphere of equal area, with points between them so that the arcs of
/// that sphere follow the edges.
fn densified(ring: &[Edge]) -> Vec<Vector> {
    const STEP: f64 = 0.1 * PI / 180.0;
    const POINTS_MAX: f64 = 20_000.0;

    let length = |edge: &Edge| edge.start.angle_to(edge.end);
    let step = STEP.max(ring.iter().map(length).sum::<f64>() / POINTS_MAX);
    let mut points = Vec::with_capacity(ring.len());
    for edge in ring {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a few thousand")]
        let count = (length(edge) / step).ceil().max(1.0) as u32;
        points.extend((0..count).map(|at| {
            ellipsoid::authalic(Space::Sphere.at_fraction(edge, f64::from(at) / f64::from(count)))
        }));
    }
    points
}
