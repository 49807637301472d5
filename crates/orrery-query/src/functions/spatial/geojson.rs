//! Reading GeoJSON: which objects are shapes, and why the others are not.
//!
//! The reasons for a bad latitude and an open ring are the service's published words; the others
//! follow their pattern.

use orrery_model::Value;

use super::measure::{left_of_ring, planar_area};
use super::shape::{Kind, Location, Shape, locate_by_ring};
use super::sorted::SortedEdges;
use super::space::{Edge, Space};
use super::vector::Vector;

/// The documented limit of a polygon, and what a shape may have altogether.
const RING_POINTS_MAX: usize = 4096;
const SHAPE_POINTS_MAX: usize = 4 * RING_POINTS_MAX;

/// Why a value is not a shape. Rings are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Invalid {
    #[error("The input is not a GeoJSON object.")]
    NotAnObject,
    #[error("The GeoJSON type must be one of Point, LineString, Polygon and MultiPolygon.")]
    Type,
    #[error(
        "The {0} input is not valid because its coordinates are missing or are not nested as its type requires."
    )]
    Coordinates(&'static str),
    #[error("A position must be an array of two or three finite numbers.")]
    Position,
    #[error("Longitude values must be between -180 and 180 degrees.")]
    Longitude,
    #[error("Latitude values must be between -90 and 90 degrees.")]
    Latitude,
    #[error(
        "The LineString input is not valid because it does not have enough distinct points. A LineString must have at least two distinct points."
    )]
    ShortLine,
    #[error(
        "The Polygon input is not valid because the ring number {0} does not have enough points. Each ring of a polygon must contain at least four points."
    )]
    ShortRing(usize),
    #[error(
        "The Polygon input is not valid because the ring number {0} does not have enough distinct points. Each ring of a polygon must contain at least three distinct points."
    )]
    DegenerateRing(usize),
    #[error(
        "The Polygon input is not valid because the start and end points of the ring number {0} are not the same. Each ring of a polygon must have the same start and end points."
    )]
    OpenRing(usize),
    #[error(
        "The Polygon input is not valid because the ring number {0} has more than {RING_POINTS_MAX} points."
    )]
    LongRing(usize),
    #[error(
        "The Polygon input is not valid because the ring number {0} intersects itself or some other ring."
    )]
    CrossingRing(usize),
    #[error("The Polygon input is not valid because the ring number {0} is not inside the exterior ring.")]
    StrayRing(usize),
    #[error("An edge must not join two points that are opposite each other on the earth.")]
    OppositePoints,
    #[error("The input has more than {SHAPE_POINTS_MAX} points.")]
    TooManyPoints,
}

/// Reads and checks a shape.
pub(super) fn read(value: &Value, space: Space) -> Result<Shape, Invalid> {
    let object = value.as_object().ok_or(Invalid::NotAnObject)?;
    let mut shape = Shape { space, kind: Kind::Line, edges: Vec::new() };
    let coordinates = object.get("coordinates");
    match object.get("type").and_then(Value::as_str) {
        Some("Point") => {
            shape.kind = Kind::Point(position(coordinates.ok_or(Invalid::Coordinates("Point"))?, space)?);
        }
        Some("LineString") => read_line(list(coordinates, "LineString")?, &mut shape)?,
        Some("Polygon") => {
            let rings = read_polygon(list(coordinates, "Polygon")?, &mut shape)?;
            shape.kind = Kind::Region(vec![rings]);
        }
        Some("MultiPolygon") => {
            let polygons = list(coordinates, "MultiPolygon")?;
            if polygons.is_empty() {
                return Err(Invalid::Coordinates("MultiPolygon"));
            }
            // The client decides the length, so no more is reserved than is allowed.
            let mut region = Vec::with_capacity(polygons.len().min(SHAPE_POINTS_MAX));
            for polygon in polygons {
                region.push(read_polygon(list(Some(polygon), "MultiPolygon")?, &mut shape)?);
            }
            shape.kind = Kind::Region(region);
        }
        _ => return Err(Invalid::Type),
    }
    Ok(shape)
}

fn list<'v>(value: Option<&'v Value>, of: &'static str) -> Result<&'v [Value], Invalid> {
    value.and_then(Value::as_array).ok_or(Invalid::Coordinates(of))
}

fn position(value: &Value, space: Space) -> Result<Vector, Invalid> {
    let numbers =
        value.as_array().filter(|numbers| (2..=3).contains(&numbers.len())).ok_or(Invalid::Position)?;
    let mut coordinates = [0.0; 3];
    for (coordinate, number) in coordinates.iter_mut().zip(numbers) {
        *coordinate = number.as_number().ok_or(Invalid::Position)?.as_f64();
        if !coordinate.is_finite() {
            return Err(Invalid::Position);
        }
    }
    // A third number is a height, which plays no part.
    let [x, y, _] = coordinates;
    if space == Space::Sphere {
        if !(-90.0..=90.0).contains(&y) {
            return Err(Invalid::Latitude);
        }
        if !(-180.0..=180.0).contains(&x) {
            return Err(Invalid::Longitude);
        }
    }
    Ok(space.point(x, y))
}

/// The points of a line or ring, without repetitions.
fn path(values: &[Value], shape: &Shape) -> Result<Vec<Vector>, Invalid> {
    if values.len() + shape.edges.len() > SHAPE_POINTS_MAX {
        return Err(Invalid::TooManyPoints);
    }
    let mut points =
        values.iter().map(|value| position(value, shape.space)).collect::<Result<Vec<_>, _>>()?;
    points.dedup_by(|next, previous| shape.space.same(*next, *previous));
    let is_opposite = |pair: &[Vector]| (pair[0] + pair[1]).length() < 1e-9;
    if shape.space == Space::Sphere && points.windows(2).any(is_opposite) {
        return Err(Invalid::OppositePoints);
    }
    Ok(points)
}

fn read_line(values: &[Value], shape: &mut Shape) -> Result<(), Invalid> {
    let points = path(values, shape)?;
    if points.len() < 2 {
        return Err(Invalid::ShortLine);
    }
    shape.edges = points.windows(2).map(|pair| Edge::new(pair[0], pair[1])).collect();
    Ok(())
}

/// Appends the rings of a polygon to the edges of the shape and tells where they are.
fn read_polygon(rings: &[Value], shape: &mut Shape) -> Result<Vec<std::ops::Range<usize>>, Invalid> {
    if rings.is_empty() {
        return Err(Invalid::Coordinates("Polygon"));
    }
    let first_edge = shape.edges.len();
    let mut ranges = Vec::new();
    for (at, ring) in rings.iter().enumerate() {
        let points = ring_points(list(Some(ring), "Polygon")?, at + 1, shape)?;
        let points = oriented(points, at > 0, shape.space);
        let start = shape.edges.len();
        shape.edges.extend(points.windows(2).map(|pair| Edge::new(pair[0], pair[1])));
        if has_crossing(&shape.edges[first_edge..], start - first_edge, shape.space) {
            return Err(Invalid::CrossingRing(at + 1));
        }
        // Its edges cross no others, so one corner tells where the whole ring is.
        if let Some(shell) = ranges.first().cloned() {
            let corner = shape.edges[start].start;
            let shell: std::ops::Range<usize> = shell;
            if locate_by_ring(shape.space, &shape.edges[shell], corner) == Location::Outside {
                return Err(Invalid::StrayRing(at + 1));
            }
        }
        ranges.push(start..shape.edges.len());
    }
    Ok(ranges)
}

/// The points of a closed ring; the first is also the last.
fn ring_points(values: &[Value], number: usize, shape: &Shape) -> Result<Vec<Vector>, Invalid> {
    if values.len() > RING_POINTS_MAX {
        return Err(Invalid::LongRing(number));
    }
    let points = path(values, shape)?;
    let is_closed = points.len() > 1
        && points.first().zip(points.last()).is_some_and(|(first, last)| shape.space.same(*first, *last));
    match (values.len(), points.len()) {
        (0..=3, 0..=1) => Err(Invalid::ShortRing(number)),
        _ if !is_closed && points.len() > 1 => Err(Invalid::OpenRing(number)),
        (0..=3, _) => Err(Invalid::ShortRing(number)),
        // Three distinct points and the first again, not all on one line.
        (_, 0..=3) => Err(Invalid::DegenerateRing(number)),
        _ if points.iter().all(|point| shape.space.turn(points[0], points[1], *point) == 0) => {
            Err(Invalid::DegenerateRing(number))
        }
        _ => Ok(points),
    }
}

/// Turns a ring so that its polygon is on its left.
///
/// The outer ring of a geography says itself which side it means. A hole always means its smaller
/// side, and in the plane a polygon is what its outer ring encloses.
fn oriented(mut points: Vec<Vector>, is_hole: bool, space: Space) -> Vec<Vector> {
    use std::f64::consts::PI;

    let keeps_left = match space {
        Space::Sphere => !is_hole || left_of_ring(&points[1..]) > 2.0 * PI,
        Space::Plane => {
            let area = planar_area(points.windows(2).map(|pair| (pair[0], pair[1])));
            (area > 0.0) != is_hole
        }
    };
    if !keeps_left {
        points.reverse();
    }
    points
}

/// Whether a ring, the edges from `start` on, crosses itself or a ring before it.
fn has_crossing(edges: &[Edge], start: usize, space: Space) -> bool {
    let sorted = SortedEdges::new(edges);
    edges[start..].iter().any(|edge| sorted.near(edge).any(|other| space.cross(edge, other)))
}
