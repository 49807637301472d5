//! Spatial functions: published values, shapes with known answers, and laws that hold for all.

use orrery_model::{Number, Value, value};
use proptest::prelude::*;

use super::{call, check, check_with};
use crate::context::Policies;

fn point(longitude: f64, latitude: f64) -> String {
    format!(r#"{{"type":"Point","coordinates":[{longitude},{latitude}]}}"#)
}

fn line(points: &str) -> String {
    format!(r#"{{"type":"LineString","coordinates":[{points}]}}"#)
}

fn polygon(rings: &str) -> String {
    format!(r#"{{"type":"Polygon","coordinates":[{rings}]}}"#)
}

/// A counter-clockwise box.
fn ring(west: f64, south: f64, east: f64, north: f64) -> String {
    format!("[[{west},{south}],[{east},{south}],[{east},{north}],[{west},{north}],[{west},{south}]]")
}

fn square(west: f64, south: f64, east: f64, north: f64) -> String {
    polygon(&ring(west, south, east, north))
}

fn number(name: &str, arguments: &[&str]) -> f64 {
    let arguments: Vec<Value> = arguments.iter().map(|text| value::parse(text.as_bytes()).unwrap()).collect();
    call(name, &arguments).unwrap().and_then(|value| value.as_number()).map(Number::as_f64).unwrap()
}

fn boolean(name: &str, left: &str, right: &str) -> bool {
    let arguments = [left, right].map(|text| value::parse(text.as_bytes()).unwrap());
    call(name, &arguments).unwrap().and_then(|value| value.as_bool()).unwrap()
}

#[track_caller]
fn close(actual: f64, expected: f64, relative: f64) {
    assert!((actual - expected).abs() <= relative * expected.abs(), "{actual} is not {expected}");
}

/// Lengths from the GeographicLib reference implementation.
#[test]
fn distances_between_points() {
    for (from, to, expected) in [
        ((0.0, 0.0), (1.0, 0.0), 111_319.490_793_273_57),
        ((0.0, 0.0), (0.0, 1.0), 110_574.388_557_798_78),
        ((0.0, 0.0), (0.0, 90.0), 10_001_965.729_312_724),
        ((0.0, -90.0), (0.0, 90.0), 20_003_931.458_625_447),
        ((0.0, 0.0), (180.0, 0.0), 20_003_931.458_625_447),
        ((0.0, 0.0), (179.5, 0.5), 19_936_288.578_965_314),
        ((0.0, 30.0), (179.9, -29.9), 19_992_090.302_326_925),
        ((179.9, 10.0), (-179.9, 10.0), 21_927.872_477_937_37),
        (
            (-122.128_268_223_046_72, 47.639_802_393_357_18),
            (-122.117_581_139_535_35, 47.669_010_870_061_31),
            3_345.269_740_375_134_5,
        ),
        (
            (-96.843_686_647_659_94, 46.812_977_943_146_63),
            (-122.117_581_139_535_35, 47.669_010_870_061_31),
            1_907_438.342_008_790_7,
        ),
    ] {
        let (from, to): ((f64, f64), (f64, f64)) = (from, to);
        let actual = number("ST_DISTANCE", &[&point(from.0, from.1), &point(to.0, to.1)]);
        close(actual, expected, 1e-9);
    }
    assert!(number("ST_DISTANCE", &[&point(10.0, 20.0), &point(10.0, 20.0)]) == 0.0);
    // Metres apart, where differences of coordinates lose digits.
    close(number("ST_DISTANCE", &[&point(10.0, 0.0), &point(10.000_01, 0.0)]), 1.113_194_907_9, 1e-6);
}

#[test]
fn distances_between_shapes() {
    // North of the middle of an edge along the equator: the length of half a degree of meridian.
    let equator = line("[-1,0],[1,0]");
    close(number("ST_DISTANCE", &[&point(0.0, 0.5), &equator]), 55_287.152_003_450_48, 1e-6);
    close(number("ST_DISTANCE", &[&equator, &point(0.0, 0.5)]), 55_287.152_003_450_48, 1e-6);
    // Beyond the end of the edge the end counts.
    close(number("ST_DISTANCE", &[&point(2.0, 0.0), &equator]), 111_319.490_8, 1e-8);
    assert!(number("ST_DISTANCE", &[&point(0.5, 0.5), &square(0.0, 0.0, 1.0, 1.0)]) == 0.0);
    assert!(number("ST_DISTANCE", &[&square(0.0, 0.0, 1.0, 1.0), &square(1.0, 0.0, 2.0, 1.0)]) == 0.0);
    let apart = number("ST_DISTANCE", &[&square(0.0, -1.0, 1.0, 1.0), &square(2.0, -1.0, 3.0, 1.0)]);
    // The sides are meridians, closest at their northern ends.
    close(apart, number("ST_DISTANCE", &[&point(1.0, 1.0), &point(2.0, 1.0)]), 1e-9);
    // Across the date line.
    let east = number("ST_DISTANCE", &[&point(179.0, 0.0), &square(-179.0, -1.0, -178.0, 1.0)]);
    close(east, 2.0 * 111_319.490_793_273_57, 1e-9);
}

/// Areas from the GeographicLib reference implementation, whose edges are geodesics.
#[test]
fn areas() {
    close(number("ST_AREA", &[&square(31.8, -5.0, 32.0, -4.7)]), 735_970_283.052_261_4, 1e-7);
    assert!(number("ST_AREA", &[&point(1.0, 2.0)]) == 0.0);
    assert!(number("ST_AREA", &[&line("[0,0],[1,1]")]) == 0.0);
    let earth = 510_065_621_724_088.44;
    close(number("ST_AREA", &[&polygon("[[0,0],[90,0],[0,90],[0,0]]")]), earth / 8.0, 1e-9);
    // Clockwise: everything else.
    let inverse = polygon("[[31.8,-5],[31.8,-4.7],[32,-4.7],[32,-5],[31.8,-5]]");
    close(number("ST_AREA", &[&inverse]), earth - 735_970_283.05, 1e-9);
    // A hole takes its area away, whichever way it runs.
    let hole = ring(0.25, 0.25, 0.75, 0.75);
    let with_hole = polygon(&format!("{},{hole}", ring(0.0, 0.0, 1.0, 1.0)));
    let reversed = polygon(&format!(
        "{},[[0.25,0.25],[0.25,0.75],[0.75,0.75],[0.75,0.25],[0.25,0.25]]",
        ring(0.0, 0.0, 1.0, 1.0)
    ));
    let expected = number("ST_AREA", &[&square(0.0, 0.0, 1.0, 1.0)]) - number("ST_AREA", &[&polygon(&hole)]);
    close(number("ST_AREA", &[&with_hole]), expected, 1e-9);
    close(number("ST_AREA", &[&reversed]), expected, 1e-9);
    let both = format!(
        r#"{{"type":"MultiPolygon","coordinates":[[{}],[{}]]}}"#,
        ring(0.0, 0.0, 1.0, 1.0),
        ring(5.0, 0.0, 6.0, 1.0)
    );
    close(number("ST_AREA", &[&both]), 2.0 * number("ST_AREA", &[&square(0.0, 0.0, 1.0, 1.0)]), 1e-9);
}

#[test]
fn points_in_polygons() {
    let unit = square(0.0, 0.0, 1.0, 1.0);
    let within =
        |longitude, latitude, polygon: &str| boolean("ST_WITHIN", &point(longitude, latitude), polygon);
    assert!(within(0.5, 0.5, &unit));
    assert!(!within(1.5, 0.5, &unit));
    // The boundary belongs to the polygon but is not within it.
    for (longitude, latitude) in [(0.0, 0.0), (0.0, 0.5), (0.5, 0.0)] {
        assert!(!within(longitude, latitude, &unit));
        assert!(boolean("ST_INTERSECTS", &point(longitude, latitude), &unit));
    }
    // Edges are arcs: north of the equator they bulge to the pole.
    let wide = square(-45.0, 0.0, 45.0, 45.0);
    assert!(within(0.0, 50.0, &wide));
    assert!(!within(0.0, 56.0, &wide));
    // Around the pole, and across the date line.
    let cap = polygon("[[0,60],[90,60],[180,60],[-90,60],[0,60]]");
    assert!(within(45.0, 89.0, &cap));
    assert!(within(12.0, 90.0, &cap));
    assert!(!within(45.0, 30.0, &cap));
    let date_line = square(179.0, -1.0, -179.0, 1.0);
    assert!(within(180.0, 0.0, &date_line));
    assert!(within(-179.5, 0.5, &date_line));
    assert!(!within(0.0, 0.0, &date_line));
    // A clockwise ring means the outside.
    let inverse = polygon("[[0,0],[0,1],[1,1],[1,0],[0,0]]");
    assert!(!within(0.5, 0.5, &inverse));
    assert!(within(-120.0, 40.0, &inverse));
    // A hole, touched and filled.
    let holed = polygon(&format!("{},{}", ring(0.0, 0.0, 4.0, 4.0), ring(1.0, 1.0, 2.0, 2.0)));
    assert!(!within(1.5, 1.5, &holed));
    assert!(within(3.0, 3.0, &holed));
    assert!(!boolean("ST_INTERSECTS", &point(1.5, 1.5), &holed));
    assert!(boolean("ST_INTERSECTS", &point(1.0, 1.0), &holed));
}

#[test]
fn relations_of_lines_and_polygons() {
    let unit = square(0.0, 0.0, 1.0, 1.0);
    let holed = polygon(&format!("{},{}", ring(0.0, 0.0, 4.0, 4.0), ring(1.0, 1.0, 2.0, 2.0)));
    for (inner, outer, expected) in [
        (square(0.25, 0.25, 0.75, 0.75), unit.clone(), true),
        (unit.clone(), square(0.25, 0.25, 0.75, 0.75), false),
        (unit.clone(), unit.clone(), true),
        (unit.clone(), square(0.0, 0.0, 2.0, 2.0), true),
        (square(0.0, 0.0, 2.0, 2.0), unit.clone(), false),
        (unit.clone(), square(1.0, 0.0, 2.0, 1.0), false),
        (square(0.5, 0.5, 1.5, 1.5), unit.clone(), false),
        (square(0.5, 0.5, 2.5, 2.5), holed.clone(), false),
        (square(1.0, 1.0, 2.0, 2.0), holed.clone(), false),
        (square(1.25, 1.25, 1.75, 1.75), holed.clone(), false),
        (square(2.5, 2.5, 3.5, 3.5), holed.clone(), true),
        (square(2.0, 2.0, 3.5, 3.5), holed.clone(), true),
        (holed.clone(), square(-1.0, -1.0, 5.0, 5.0), true),
        (holed.clone(), holed.clone(), true),
        (square(0.0, 0.0, 4.0, 4.0), holed.clone(), false),
        (line("[0.2,0.2],[0.8,0.8]"), unit.clone(), true),
        (line("[0.2,0.2],[1.8,0.8]"), unit.clone(), false),
        (line("[0,0],[0.5,0.5],[1,0]"), unit.clone(), true),
        (line("[0,0],[1,0]"), unit.clone(), false),
        (line("[0.5,3],[3.5,3]"), holed.clone(), true),
        (line("[0.5,1.5],[3.5,1.5]"), holed.clone(), false),
        (line("[1,1],[2,2]"), holed.clone(), false),
        (line("[0,0],[0,1]"), line("[0,-1],[0,2]"), true),
        (line("[0,0],[0,1]"), line("[0,0],[0,0.5],[0,2]"), true),
        (line("[0,0],[0,3]"), line("[0,-1],[0,2]"), false),
        (point(0.0, 0.5), line("[0,0],[0,1]"), true),
        (point(0.0, 0.0), line("[0,0],[0,1]"), false),
        (point(0.0, 0.0), point(0.0, 0.0), true),
        (unit.clone(), point(0.5, 0.5), false),
        (unit.clone(), line("[0,0],[1,1]"), false),
    ] {
        assert_eq!(boolean("ST_WITHIN", &inner, &outer), expected, "{inner} in {outer}");
        if expected {
            assert!(boolean("ST_INTERSECTS", &inner, &outer), "{inner} and {outer}");
        }
    }
    for (left, right, expected) in [
        (square(0.5, 0.5, 1.5, 1.5), unit.clone(), true),
        (square(1.0, 0.0, 2.0, 1.0), unit.clone(), true),
        (square(1.0, 1.0, 2.0, 2.0), unit.clone(), true),
        (square(5.0, 5.0, 6.0, 6.0), unit.clone(), false),
        (square(1.25, 1.25, 1.75, 1.75), holed.clone(), false),
        (line("[-1,0.5],[2,0.5]"), unit.clone(), true),
        (line("[-1,-1],[2,-1]"), unit.clone(), false),
        (line("[0,0],[1,1]"), line("[0,1],[1,0]"), true),
        (line("[0,0],[1,1]"), line("[1,1],[2,0]"), true),
        (line("[0,0],[1,1]"), line("[0,1],[0.1,0.9]"), false),
        (point(180.0, 10.0), point(-180.0, 10.0), true),
        (point(0.0, 90.0), point(77.0, 90.0), true),
    ] {
        assert_eq!(boolean("ST_INTERSECTS", &left, &right), expected, "{left} and {right}");
        assert_eq!(boolean("ST_INTERSECTS", &right, &left), expected, "{right} and {left}");
    }
}

#[test]
fn validity() {
    let detail = |shape: &str, reason: &str| {
        let expected = if reason.is_empty() {
            r#"{"valid":true}"#.to_owned()
        } else {
            format!(r#"{{"valid":false,"reason":"{reason}"}}"#)
        };
        check("ST_ISVALIDDETAILED", &format!("[{shape}]"), &expected);
        check("ST_ISVALID", &format!("[{shape}]"), if reason.is_empty() { "true" } else { "false" });
        if !reason.is_empty() {
            check("ST_AREA", &format!("[{shape}]"), "undefined");
            check("ST_DISTANCE", &format!("[{shape},{}]", point(0.0, 0.0)), "undefined");
            check("ST_WITHIN", &format!("[{},{shape}]", point(0.0, 0.0)), "undefined");
        }
    };
    detail(&point(-84.388_761_943_453_23, 33.756_827_843_063_48), "");
    detail(
        &point(133.756_827_843_063_5, -184.388_761_943_453_23),
        "Latitude values must be between -90 and 90 degrees.",
    );
    detail(&point(180.5, 0.0), "Longitude values must be between -180 and 180 degrees.");
    detail(
        &polygon("[[31.8,-5],[31.8,-4.7],[32,-4.7],[32,-5]]"),
        "The Polygon input is not valid because the start and end points of the ring number 1 are not the same. \
         Each ring of a polygon must have the same start and end points.",
    );
    detail(
        &polygon("[[0,0],[1,0],[0,0]]"),
        "The Polygon input is not valid because the ring number 1 does not have enough points. Each ring of a \
         polygon must contain at least four points.",
    );
    detail(
        &polygon("[[0,0],[1,0],[1,0],[0,0]]"),
        "The Polygon input is not valid because the ring number 1 does not have enough distinct points. Each ring \
         of a polygon must contain at least three distinct points.",
    );
    detail(
        &polygon("[[0,0],[0,1],[0,2],[0,0]]"),
        "The Polygon input is not valid because the ring number 1 does not have enough distinct points. Each ring \
         of a polygon must contain at least three distinct points.",
    );
    detail(
        &polygon("[[0,0],[1,1],[1,0],[0,1],[0,0]]"),
        "The Polygon input is not valid because the ring number 1 intersects itself or some other ring.",
    );
    detail(
        &polygon(&format!("{},{}", ring(0.0, 0.0, 1.0, 1.0), ring(0.5, 0.5, 1.5, 0.75))),
        "The Polygon input is not valid because the ring number 2 intersects itself or some other ring.",
    );
    detail(
        &polygon(&format!("{},{}", ring(0.0, 0.0, 1.0, 1.0), ring(5.0, 5.0, 6.0, 6.0))),
        "The Polygon input is not valid because the ring number 2 is not inside the exterior ring.",
    );
    detail(
        &line("[0,0]"),
        "The LineString input is not valid because it does not have enough distinct points. A LineString must have \
         at least two distinct points.",
    );
    detail(&line("[0,0],[1,1]"), "");
    detail("5", "The input is not a GeoJSON object.");
    detail("null", "The input is not a GeoJSON object.");
    detail("{}", "The GeoJSON type must be one of Point, LineString, Polygon and MultiPolygon.");
    detail(
        r#"{"type":"Point","coordinates":["1",2]}"#,
        "A position must be an array of two or three finite numbers.",
    );
    detail(r#"{"type":"Point","coordinates":[1,2,300]}"#, "");
    check("ST_ISVALID", "[undefined]", "undefined");
    check("ST_ISVALIDDETAILED", "[undefined]", "undefined");
    let many: Vec<String> = (0..4096)
        .map(|at| f64::from(at) / 4096.0 * std::f64::consts::TAU)
        .map(|angle| format!("[{},{}]", angle.cos(), angle.sin()))
        .collect();
    detail(
        &polygon(&format!("[{},{}]", many.join(","), many[0])),
        "The Polygon input is not valid because the ring number 1 has more than 4096 points.",
    );
    detail(&polygon(&format!("[{},{}]", many[1..].join(","), many[1])), "");
}

#[test]
fn planar_geometry() {
    let policies = Policies { planar_geometry: true, ..Policies::default() };
    let check = |name: &str, arguments: &[&str], expected: &str| {
        check_with(&policies, name, &format!("[{}]", arguments.join(",")), expected);
    };
    let big = square(0.0, 0.0, 1000.0, 1000.0);
    let clockwise = polygon("[[0,0],[0,1000],[1000,1000],[1000,0],[0,0]]");
    check("ST_ISVALID", &[&point(1e6, -1e6)], "true");
    check("ST_DISTANCE", &[&point(0.0, 0.0), &point(300.0, 400.0)], "500");
    check("ST_DISTANCE", &[&point(500.0, 1300.0), &big], "300");
    check("ST_AREA", &[&big], "1000000");
    check("ST_AREA", &[&clockwise], "1000000");
    check("ST_WITHIN", &[&point(500.0, 500.0), &big], "true");
    check("ST_WITHIN", &[&point(500.0, 500.0), &clockwise], "true");
    check("ST_WITHIN", &[&point(500.0, 1500.0), &clockwise], "false");
    check("ST_INTERSECTS", &[&line("[-100,500],[1100,500]"), &big], "true");
    let hole = polygon(&format!("{},{}", ring(0.0, 0.0, 10.0, 10.0), ring(2.0, 2.0, 4.0, 4.0)));
    check("ST_AREA", &[&hole], "96");
    check("ST_WITHIN", &[&point(3.0, 3.0), &hole], "false");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Distance is symmetric, and zero only for the same place.
    #[test]
    fn distance_is_symmetric(
        a in (-180.0..180.0f64, -90.0..90.0f64),
        b in (-180.0..180.0f64, -90.0..90.0f64),
    ) {
        let (a, b) = (point(a.0, a.1), point(b.0, b.1));
        let there = number("ST_DISTANCE", &[&a, &b]);
        let back = number("ST_DISTANCE", &[&b, &a]);
        prop_assert!((there - back).abs() <= 1e-9 * there.max(1.0), "{there} {back}");
        prop_assert!(there <= 20_003_932.0);
    }

    /// A place is on one side of a ring or the other, so inside the polygon or inside its inverse.
    #[test]
    fn a_polygon_and_its_inverse_share_the_earth(
        centre in (-180.0..180.0f64, -80.0..80.0f64),
        place in (-180.0..180.0f64, -90.0..90.0f64),
        radii in proptest::collection::vec(1.0..9.0f64, 3..12),
    ) {
        let corners: Vec<String> = radii.iter().enumerate().map(|(at, radius)| {
            #[expect(clippy::cast_precision_loss, reason = "a dozen corners")]
            let angle = at as f64 / radii.len() as f64 * std::f64::consts::TAU;
            let longitude = (centre.0 + radius * angle.cos() + 540.0) % 360.0 - 180.0;
            format!("[{},{}]", longitude, centre.1 + radius * angle.sin())
        }).collect();
        let ring = |corners: Vec<String>| polygon(&format!("[{},{}]", corners.join(","), corners[0]));
        let straight = ring(corners.clone());
        let inverse = ring(corners.into_iter().rev().collect());
        let place = point(place.0, place.1);
        let inside = boolean("ST_WITHIN", &place, &straight);
        prop_assert_eq!(inside, !boolean("ST_WITHIN", &place, &inverse));
        let earth = number("ST_AREA", &[&straight]) + number("ST_AREA", &[&inverse]);
        prop_assert!((earth - 510_065_621_724_088.44).abs() < 1e-6 * earth, "{earth}");
        // A place outside is as far as the boundary, one inside touches.
        prop_assert_eq!(number("ST_DISTANCE", &[&place, &straight]) == 0.0, boolean("ST_INTERSECTS", &place, &straight));
    }
}
