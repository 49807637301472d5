//! The WGS 84 ellipsoid: directions, geodesic distances and areas.

use std::f64::consts::{FRAC_PI_2, PI};

use super::vector::Vector;

/// Radius at the equator in metres, and flattening.
const EQUATOR: f64 = 6_378_137.0;
const FLATTENING: f64 = 1.0 / 298.257_223_563;
const POLE: f64 = EQUATOR * (1.0 - FLATTENING);
/// Square of the first eccentricity.
const ECCENTRICITY_SQUARED: f64 = FLATTENING * (2.0 - FLATTENING);

/// The direction from the centre of the earth to a place given in degrees.
pub(super) fn direction(longitude: f64, latitude: f64) -> Vector {
    // Sines and cosines of degrees are exact at the poles and on the meridians that matter.
    let (sin_longitude, cos_longitude) = sin_cos_degrees(longitude);
    let (sin_latitude, cos_latitude) = sin_cos_degrees(latitude);
    let place = Vector {
        x: cos_latitude * cos_longitude,
        y: cos_latitude * sin_longitude,
        // Maps give the angle of the vertical, which misses the centre of the flattened earth.
        z: sin_latitude * (1.0 - ECCENTRICITY_SQUARED),
    };
    place.unit().unwrap_or(place)
}

fn sin_cos_degrees(degrees: f64) -> (f64, f64) {
    match degrees {
        0.0 => (0.0, 1.0),
        90.0 => (1.0, 0.0),
        -90.0 => (-1.0, 0.0),
        180.0 | -180.0 => (0.0, -1.0),
        _ => degrees.to_radians().sin_cos(),
    }
}

/// The latitude of a direction, in radians, as maps give it.
fn latitude(place: Vector) -> f64 {
    place.z.atan2((1.0 - ECCENTRICITY_SQUARED) * place.x.hypot(place.y))
}

/// The length in metres of the shortest line on the ellipsoid between two directions.
pub(super) fn distance(from: Vector, to: Vector) -> f64 {
    vincenty(from, to).unwrap_or_else(|| distance_to_far_side(from, to))
}

/// Vincenty's inverse formula. It finds no answer for places nearly opposite each other.
fn vincenty(from: Vector, to: Vector) -> Option<f64> {
    const ITERATIONS_MAX: usize = 100;
    const CONVERGED: f64 = 1e-13;

    // The longitude between the two by their cross product: exact for close places.
    let across = from.x * to.y - from.y * to.x;
    let along = from.x * to.x + from.y * to.y;
    let longitude = if across == 0.0 && along == 0.0 { 0.0 } else { across.atan2(along) };
    let reduced = |place: Vector| ((1.0 - FLATTENING) * latitude(place).tan()).atan().sin_cos();
    let (sin_u1, cos_u1) = reduced(from);
    let (sin_u2, cos_u2) = reduced(to);

    // The longitude on an auxiliary sphere, improved until it changes no more.
    let mut lambda = longitude;
    for _ in 0..ITERATIONS_MAX {
        let (sin_lambda, cos_lambda) = lambda.sin_cos();
        let sin_sigma = (cos_u2 * sin_lambda).hypot(cos_u1 * sin_u2 - sin_u1 * cos_u2 * cos_lambda);
        if sin_sigma == 0.0 && cos_lambda > 0.0 {
            return Some(0.0);
        }
        let cos_sigma = sin_u1 * sin_u2 + cos_u1 * cos_u2 * cos_lambda;
        let sigma = sin_sigma.atan2(cos_sigma);
        let sin_alpha = if sin_sigma == 0.0 { 0.0 } else { cos_u1 * cos_u2 * sin_lambda / sin_sigma };
        let cos_alpha_squared = 1.0 - sin_alpha * sin_alpha;
        // Along the equator the term has no meaning and no weight.
        let cos_2_sigma_m = if cos_alpha_squared > 1e-15 {
            cos_sigma - 2.0 * sin_u1 * sin_u2 / cos_alpha_squared
        } else {
            0.0
        };
        let c = FLATTENING / 16.0 * cos_alpha_squared * (4.0 + FLATTENING * (4.0 - 3.0 * cos_alpha_squared));
        let m = cos_2_sigma_m;
        let previous = lambda;
        lambda = longitude
            + (1.0 - c)
                * FLATTENING
                * sin_alpha
                * (sigma + c * sin_sigma * (m + c * cos_sigma * (2.0 * m * m - 1.0)));
        // Nearly opposite places: the iteration does not converge.
        if lambda.abs() > PI {
            return None;
        }
        if (lambda - previous).abs() < CONVERGED {
            let u_squared = cos_alpha_squared * (EQUATOR * EQUATOR - POLE * POLE) / (POLE * POLE);
            let a = 1.0
                + u_squared / 16_384.0
                    * (4096.0 + u_squared * (-768.0 + u_squared * (320.0 - 175.0 * u_squared)));
            let b =
                u_squared / 1024.0 * (256.0 + u_squared * (-128.0 + u_squared * (74.0 - 47.0 * u_squared)));
            let correction = b
                * sin_sigma
                * (m + b / 4.0
                    * (cos_sigma * (2.0 * m * m - 1.0)
                        - b / 6.0 * m * (4.0 * sin_sigma * sin_sigma - 3.0) * (4.0 * m * m - 3.0)));
            return Some(POLE * a * (sigma - correction));
        }
    }
    None
}

/// The distance to a place on the far side of the earth.
///
/// Every way there crosses the circle a quarter of the earth away, so the shortest way is the
/// shortest over all points of that circle, and both halves are easy to measure.
fn distance_to_far_side(from: Vector, to: Vector) -> f64 {
    const SAMPLES: u32 = 72;

    // Any direction that is not nearly parallel to the first one.
    let helper = if from.z.abs() < 0.9 {
        Vector { x: 0.0, y: 0.0, z: 1.0 }
    } else {
        Vector { x: 1.0, y: 0.0, z: 0.0 }
    };
    let east = helper.cross(from).unit().unwrap_or(helper);
    let north = from.cross(east);
    let by_way_of = |azimuth: f64| {
        let (sin, cos) = azimuth.sin_cos();
        let middle = east * sin + north * cos;
        let half =
            |from: Vector, to: Vector| vincenty(from, to).unwrap_or_else(|| from.angle_to(to) * EQUATOR);
        half(from, middle) + half(middle, to)
    };
    // A coarse search around the circle, then the valley next to the best sample.
    let step = 2.0 * PI / f64::from(SAMPLES);
    let azimuths = (0..SAMPLES).map(|sample| f64::from(sample) * step);
    let best = azimuths.min_by(|a, b| by_way_of(*a).total_cmp(&by_way_of(*b))).unwrap_or(0.0);
    minimum(by_way_of, best - step, best + step)
}

/// The least value of a function with one valley in an interval, by golden sections.
pub(super) fn minimum(function: impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> f64 {
    const SECTION: f64 = 0.618_033_988_749_894_9;
    const ITERATIONS: usize = 36;

    // The least value may be at an end.
    let ends = function(low).min(function(high));
    let (mut left, mut right) = (high - SECTION * (high - low), low + SECTION * (high - low));
    let (mut at_left, mut at_right) = (function(left), function(right));
    for _ in 0..ITERATIONS {
        if at_left <= at_right {
            (high, right, at_right) = (right, left, at_left);
            left = high - SECTION * (high - low);
            at_left = function(left);
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = low + SECTION * (high - low);
            at_right = function(right);
        }
    }
    ends.min(at_left).min(at_right)
}

/// The direction on the sphere of equal area that a direction from the centre of the earth maps to.
pub(super) fn authalic(place: Vector) -> Vector {
    let sin_authalic = (area_below(latitude(place).sin()) / area_below(1.0)).clamp(-1.0, 1.0);
    let cos_authalic = (1.0 - sin_authalic * sin_authalic).sqrt();
    let off_axis = place.x.hypot(place.y);
    if off_axis == 0.0 {
        return Vector { x: 0.0, y: 0.0, z: FRAC_PI_2.copysign(place.z).sin() };
    }
    Vector { x: place.x / off_axis * cos_authalic, y: place.y / off_axis * cos_authalic, z: sin_authalic }
}

/// Square of the radius of the sphere that has the area of the ellipsoid.
pub(super) fn authalic_radius_squared() -> f64 {
    EQUATOR * EQUATOR * area_below(1.0) / 2.0
}

/// Area between the equator and a latitude, up to a constant factor.
fn area_below(sin_latitude: f64) -> f64 {
    let eccentricity = ECCENTRICITY_SQUARED.sqrt();
    let product = eccentricity * sin_latitude;
    (1.0 - ECCENTRICITY_SQUARED) * (sin_latitude / (1.0 - product * product) + product.atanh() / eccentricity)
}
