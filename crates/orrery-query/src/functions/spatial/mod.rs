//! Spatial functions over GeoJSON points, lines, polygons and multi-polygons.
//!
//! In a geography container coordinates are longitude and latitude on WGS 84. An edge is the arc in
//! which the plane through both ends and the centre of the earth cuts the ellipsoid, so that shapes
//! can be related as on a sphere; distances and areas are those of the ellipsoid. In a geometry
//! container everything is planar. The relations need only two predicates, the turn of three points
//! and whether a point is on an edge, and are written once for both.

mod ellipsoid;
mod geojson;
mod measure;
mod relate;
mod shape;
mod sorted;
mod space;
mod vector;

use std::cell::RefCell;
use std::rc::Rc;

use orrery_model::{Object, Value};

use self::shape::Shape;
use self::space::Space;
use super::arguments::value;
use super::{Evaluated, Function, row_in_context};
use crate::context::Context;
use crate::error::EvalError;
use crate::operand::{Operand, owned};
use crate::order;

pub(super) static FUNCTIONS: &[Function] = &[
    row_in_context!("ST_AREA", 1..=1, None, area),
    row_in_context!("ST_DISTANCE", 2..=2, None, distance),
    row_in_context!("ST_INTERSECTS", 2..=2, None, intersects),
    row_in_context!("ST_ISVALID", 1..=1, None, is_valid),
    row_in_context!("ST_ISVALIDDETAILED", 1..=1, None, is_valid_detailed),
    row_in_context!("ST_WITHIN", 2..=2, None, within),
];

fn space(context: &Context<'_>) -> Space {
    if context.policies.planar_geometry { Space::Plane } else { Space::Sphere }
}

/// The shape of an argument; undefined if it is not a valid one.
fn shape(
    context: &Context<'_>,
    arguments: &[Operand<'_>],
    at: usize,
) -> Result<Option<Rc<Shape>>, EvalError> {
    let (Some(value), space) = (value(arguments, at), space(context)) else { return Ok(None) };
    count_reading(context, value)?;
    Ok(KEPT.with_borrow_mut(|kept| {
        let known = kept.iter().find(|(known, shape)| shape.space == space && known == value);
        if let Some((_, shape)) = known {
            return Some(Rc::clone(shape));
        }
        let shape = Rc::new(geojson::read(value, space).ok()?);
        if shape.edges.len() >= KEPT_EDGES_MIN {
            // The one that was read first makes room.
            kept.truncate(KEPT_SHAPES - 1);
            kept.insert(0, (value.clone(), Rc::clone(&shape)));
        }
        Some(shape)
    }))
}

/// Every coordinate is read, and every edge is checked against its neighbours.
fn count_reading(context: &Context<'_>, value: &Value) -> Result<(), EvalError> {
    context.steps(order::bytes(value) as u64 / 4)
}

/// From how many edges on a shape is kept, and how many of them a thread keeps.
const KEPT_EDGES_MIN: usize = 32;
const KEPT_SHAPES: usize = 4;

thread_local! {
    /// Large shapes read last, the latest first. A query repeats its constant for every item, and
    /// checking a large polygon costs far more than recognising it.
    static KEPT: RefCell<Vec<(Value, Rc<Shape>)>> = const { RefCell::new(Vec::new()) };
}

/// Computes something of two valid shapes. Each edge of one may have to be compared with each of the other; a shape
/// has few enough that this needs no interruption.
fn of_two<'a, T: Into<Value>>(
    context: &Context<'_>,
    arguments: &[Operand<'_>],
    compute: fn(&Shape, &Shape) -> T,
) -> Evaluated<'a> {
    let shapes = shape(context, arguments, 0)?.zip(shape(context, arguments, 1)?);
    if let Some((left, right)) = &shapes {
        context.steps((left.edges.len() as u64 * right.edges.len() as u64) / 16)?;
    }
    Ok(shapes.and_then(|(left, right)| owned(compute(&left, &right))))
}

fn distance<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    of_two(context, arguments, measure::distance)
}

fn intersects<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    of_two(context, arguments, relate::intersects)
}

fn within<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    of_two(context, arguments, relate::within)
}

fn area<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    Ok(shape(context, arguments, 0)?.and_then(|shape| owned(measure::area(&shape))))
}

fn is_valid<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    let Some(shape) = value(arguments, 0) else { return Ok(None) };
    count_reading(context, shape)?;
    Ok(owned(geojson::read(shape, space(context)).is_ok()))
}

fn is_valid_detailed<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    let Some(shape) = value(arguments, 0) else { return Ok(None) };
    count_reading(context, shape)?;
    let mut detail = Object::new();
    match geojson::read(shape, space(context)) {
        Ok(_) => detail.set("valid", true.into()),
        Err(reason) => {
            detail.set("valid", false.into());
            detail.set("reason", reason.to_string().into());
        }
    }
    Ok(owned(detail))
}
