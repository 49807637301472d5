//! The two kinds of space and their predicates on points and edges.
//!
//! Coordinates carry rounding errors, so a turn that is smaller than they could make counts as none
//! and a point that close to an edge is on it: on the earth that is some nanometres.

use super::ellipsoid;
use super::vector::Vector;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Points are unit vectors, edges the shorter arcs of great circles.
    Sphere,
    /// Points have no third coordinate, edges are straight.
    Plane,
}

/// An edge and a bounding ball, which excludes most pairs of edges cheaply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) start: Vector,
    pub(super) end: Vector,
    middle: Vector,
    radius: f64,
    radius_squared_widened: f64,
}

/// Picks one coordinate.
pub(super) type Axis = fn(&Vector) -> f64;

/// A few units in the last place of a coordinate.
const ROUNDING: f64 = 2e-15;

impl Edge {
    pub(super) fn new(start: Vector, end: Vector) -> Self {
        // The ball over the chord holds the arc too, because an arc of up to a half circle rises no
        // further from its chord than half the chord's length.
        let (middle, radius) = ((start + end) * 0.5, (end - start).length() * 0.5);
        // Widened by far more than rounding: the ball only saves work.
        let widened = radius * (1.0 + 1e-9) + (start.length() + end.length()) * 1e-13;
        Self { start, end, middle, radius, radius_squared_widened: widened * widened }
    }

    /// A distance that no point of the edge is closer than.
    pub(super) fn distance_at_least(&self, point: Vector) -> f64 {
        (point - self.middle).length() - self.radius
    }

    /// The range along an axis within which the edge lies, a little widened for rounding.
    pub(super) fn extent(&self, axis: Axis) -> (f64, f64) {
        let middle = axis(&self.middle);
        let reach = self.radius * (1.0 + 1e-9) + middle.abs() * 1e-14 + 1e-15;
        (middle - reach, middle + reach)
    }

    fn may_hold(&self, point: Vector) -> bool {
        let gap = point - self.middle;
        gap.dot(gap) <= self.radius_squared_widened
    }

    pub(super) fn may_meet(&self, other: &Self) -> bool {
        let reach = self.radius + other.radius;
        let gap = self.middle - other.middle;
        // Widened by far more than rounding: this only saves work.
        gap.length() <= reach * (1.0 + 1e-9) + self.middle.length() * 1e-13
    }
}

impl Space {
    /// A point from coordinates as GeoJSON gives them.
    pub(super) fn point(self, x: f64, y: f64) -> Vector {
        match self {
            Self::Sphere => ellipsoid::direction(x, y),
            Self::Plane => Vector { x, y, z: 0.0 },
        }
    }

    /// How far apart two points may be by rounding alone.
    fn tolerance(self, points: [Vector; 3]) -> f64 {
        match self {
            Self::Sphere => ROUNDING,
            Self::Plane => {
                let largest = |at: f64, point: &Vector| at.max(point.x.abs()).max(point.y.abs());
                ROUNDING * points.iter().fold(f64::MIN_POSITIVE, largest)
            }
        }
    }

    pub(super) fn same(self, left: Vector, right: Vector) -> bool {
        (left - right).length() <= self.tolerance([left, right, left])
    }

    /// 1 if `c` lies left of the line from `a` to `b`, -1 if right, 0 if on it.
    pub(super) fn turn(self, a: Vector, b: Vector, c: Vector) -> i8 {
        let (along, aside) = (b - a, c - a);
        let up = match self {
            Self::Sphere => a,
            Self::Plane => Vector { x: 0.0, y: 0.0, z: 1.0 },
        };
        let turn = up.dot(along.cross(aside));
        let tolerance = self.tolerance([a, b, c]) * (along.length() + aside.length());
        if turn.abs() <= tolerance {
            0
        } else if turn > 0.0 {
            1
        } else {
            -1
        }
    }

    pub(super) fn is_on(self, point: Vector, edge: &Edge) -> bool {
        if !edge.may_hold(point) {
            return false;
        }
        let (start, end) = (edge.start, edge.end);
        if self.same(point, start) || self.same(point, end) {
            return true;
        }
        // The great circle goes on behind the earth, the edge does not.
        self.turn(start, end, point) == 0
            && (point - start).dot(end - start) > 0.0
            && (point - end).dot(start - end) > 0.0
            && (self == Self::Plane || point.dot(start + end) > 0.0)
    }

    /// Whether two edges cross at one point that is inside both.
    pub(super) fn cross(self, one: &Edge, other: &Edge) -> bool {
        let side = self.turn(one.start, one.end, other.start);
        side != 0
            && self.turn(one.start, one.end, other.end) == -side
            && self.turn(other.start, other.end, one.start) == -side
            && self.turn(other.start, other.end, one.end) == side
    }

    /// Whether two edges share a point.
    pub(super) fn touch(self, one: &Edge, other: &Edge) -> bool {
        one.may_meet(other)
            && (self.cross(one, other)
                || self.is_on(one.start, other)
                || self.is_on(one.end, other)
                || self.is_on(other.start, one)
                || self.is_on(other.end, one))
    }

    /// How far along an edge a point on it lies, from 0 to 1.
    pub(super) fn fraction(self, edge: &Edge, point: Vector) -> f64 {
        let (part, whole) = match self {
            Self::Sphere => (edge.start.angle_to(point), edge.start.angle_to(edge.end)),
            Self::Plane => {
                let along = edge.end - edge.start;
                ((point - edge.start).dot(along), along.dot(along))
            }
        };
        if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The point at a fraction of an edge.
    pub(super) fn at_fraction(self, edge: &Edge, fraction: f64) -> Vector {
        match self {
            Self::Plane => edge.start + (edge.end - edge.start) * fraction,
            Self::Sphere => {
                let angle = edge.start.angle_to(edge.end);
                // Short arcs: the sines cancel, and the chord is as good.
                let (from, to) = if angle < 1e-7 {
                    (1.0 - fraction, fraction)
                } else {
                    (((1.0 - fraction) * angle).sin(), (fraction * angle).sin())
                };
                (edge.start * from + edge.end * to).unit().unwrap_or(edge.start)
            }
        }
    }

    /// The point of an edge that is closest to a point, as on a sphere or in the plane.
    pub(super) fn closest(self, edge: &Edge, point: Vector) -> Vector {
        let along = edge.end - edge.start;
        let foot = match self {
            Self::Plane => {
                let squared = along.dot(along);
                let fraction = if squared > 0.0 { (point - edge.start).dot(along) / squared } else { 0.0 };
                return edge.start + along * fraction.clamp(0.0, 1.0);
            }
            // The start times the chord is the axis of the circle, without the cancellation that
            // multiplying two nearly equal directions has.
            Self::Sphere => edge
                .start
                .cross(along)
                .unit()
                .and_then(|axis| (point - axis * point.dot(axis)).unit().map(|foot| (axis, foot))),
        };
        if let Some((axis, foot)) = foot {
            let after_start = axis.dot(edge.start.cross(foot)) >= 0.0;
            let before_end = axis.dot(foot.cross(edge.end)) >= 0.0;
            if after_start && before_end {
                return foot;
            }
        }
        let to_start = (point - edge.start).length();
        if to_start <= (point - edge.end).length() { edge.start } else { edge.end }
    }
}
