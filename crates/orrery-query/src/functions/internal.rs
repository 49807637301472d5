//! Functions that the service plans but does not document.
//!
//! Queries that use one are accepted, as in the service, but evaluating it is a clear error: its semantics are unknown, except those of HASH.

use super::arguments::{integer, optional, value};
use super::{Evaluated, Function, IndexUse, row_in_context};
use crate::context::Context;
use crate::error::EvalError;
use crate::hash::{Hash, Narrow};
use crate::operand::{Operand, owned};
use crate::order;

macro_rules! undocumented {
    ($name:literal, $arity:expr) => {
        Function {
            name: $name,
            arity: $arity,
            body: |_, _| {
                let message = concat!(
                    "The function ",
                    $name,
                    " is not documented by the service and cannot be evaluated here."
                );
                Err(EvalError::Message(message.to_owned()))
            },
            index: IndexUse::None,
        }
    };
}

pub(super) static FUNCTIONS: &[Function] = &[
    row_in_context!("HASH", 1..=3, None, hash),
    undocumented!("REGEXEXTRACT", 2..=4),
    undocumented!("REGEXEXTRACTALL", 2..=4),
    undocumented!("REGEXREPLACE", 3..=4),
    undocumented!("REGEXREPLACEALL", 3..=4),
    undocumented!("_COMPARE_BSON_BINARYDATA", 2..=2),
    undocumented!("_COMPARE_OBJECTS", 2..=2),
    undocumented!("_M_ABS", 1..=1),
    undocumented!("_M_ACOS", 1..=1),
    undocumented!("_M_ASIN", 1..=1),
    undocumented!("_M_ATAN", 1..=1),
    undocumented!("_M_ATAN2", 2..=2),
    undocumented!("_M_CEIL", 1..=1),
    undocumented!("_M_CONVERT", 2..=2),
    undocumented!("_M_COS", 1..=1),
    undocumented!("_M_DEGREESTORADIANS", 1..=1),
    undocumented!("_M_DIVIDE", 2..=2),
    undocumented!("_M_EVAL_EQ", 2..=3),
    undocumented!("_M_EVAL_GT", 2..=3),
    undocumented!("_M_EVAL_GTE", 2..=3),
    undocumented!("_M_EVAL_IN", 2..=3),
    undocumented!("_M_EVAL_LT", 2..=3),
    undocumented!("_M_EVAL_LTE", 2..=3),
    undocumented!("_M_EVAL_NEQ", 2..=3),
    undocumented!("_M_EVAL_NIN", 2..=3),
    undocumented!("_M_EVAL_REGEX", 3..=4),
    undocumented!("_M_EXP", 1..=1),
    undocumented!("_M_FLOOR", 1..=1),
    undocumented!("_M_LN", 1..=1),
    undocumented!("_M_LOG10", 1..=1),
    undocumented!("_M_MOD", 2..=2),
    undocumented!("_M_MULTIPLY", 2..=2),
    undocumented!("_M_POW", 2..=2),
    undocumented!("_M_RADIANSTODEGREES", 1..=1),
    undocumented!("_M_SIN", 1..=1),
    undocumented!("_M_SQRT", 1..=1),
    undocumented!("_M_TAN", 1..=1),
    undocumented!("_M_TOBOOL", 1..=1),
    undocumented!("_M_TODATE", 1..=1),
    undocumented!("_M_TODOUBLE", 1..=1),
    undocumented!("_M_TOINT", 1..=1),
    undocumented!("_M_TOLONG", 1..=1),
    undocumented!("_M_TOOBJECTID", 1..=1),
    undocumented!("_M_TOSTRING", 1..=1),
    undocumented!("_OBJECTTOARRAY", 1..=1),
    undocumented!("_PROXY_PROJECTION", 3..=4),
    undocumented!("_REGEX_MATCH", 2..=4),
    undocumented!("_ST_DISTANCE", 2..=2),
    undocumented!("_ST_INTERSECTS", 2..=2),
    undocumented!("_ST_WITHIN", 2..=2),
    undocumented!("_TRY_ARRAY_CONTAINS", 2..=3),
];

/// The hash of a value, undefined included, from a seed, as the remainder of a division. The last two arguments are literals.
fn hash<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    let (Some(modulo), Some(seed)) = (optional(arguments, 1, integer), optional(arguments, 2, integer))
    else {
        return Ok(None);
    };
    let seed = seed.unwrap_or(0);
    let hash = match value(arguments, 0) {
        Some(value) => {
            context.steps(order::bytes(value) as u64 / 4)?;
            Narrow::value(value, seed.cast_unsigned()).cast_signed()
        }
        None => seed,
    };
    Ok(match modulo {
        // There is no remainder for a modulo of 0, which the binder rejects, and for the lowest integer
        // modulo -1.
        Some(modulo) => hash.checked_rem(modulo).and_then(owned),
        None => owned(hash),
    })
}

/// Other spellings of functions, which the service accepts too.
pub(super) static SPELLINGS: &[(&str, &str)] = &[
    ("ARRAYAVG", "ARRAY_AVG"),
    ("ARRAYCONCAT", "ARRAY_CONCAT"),
    ("ARRAYCONTAINS", "ARRAY_CONTAINS"),
    ("ARRAYCONTAINSALL", "ARRAY_CONTAINS_ALL"),
    ("ARRAYCONTAINSANY", "ARRAY_CONTAINS_ANY"),
    ("ARRAYLENGTH", "ARRAY_LENGTH"),
    ("ARRAYMAX", "ARRAY_MAX"),
    ("ARRAYMEDIAN", "ARRAY_MEDIAN"),
    ("ARRAYMIN", "ARRAY_MIN"),
    ("ARRAYSLICE", "ARRAY_SLICE"),
    ("ARRAYSUM", "ARRAY_SUM"),
    ("CONTAINSALLCI", "CONTAINS_ALL_CI"),
    ("CONTAINSALLCS", "CONTAINS_ALL_CS"),
    ("CONTAINSANYCI", "CONTAINS_ANY_CI"),
    ("CONTAINSANYCS", "CONTAINS_ANY_CS"),
    ("FULLTEXT_CONTAINS", "FULLTEXTCONTAINS"),
    ("INDEXOF", "INDEX_OF"),
    ("ISARRAY", "IS_ARRAY"),
    ("ISBOOL", "IS_BOOL"),
    ("ISBOOLEAN", "IS_BOOL"),
    ("ISDATETIME", "IS_DATETIME"),
    ("ISDEFINED", "IS_DEFINED"),
    ("ISFINITENUMBER", "IS_FINITE_NUMBER"),
    ("ISINTEGER", "IS_INTEGER"),
    ("ISNULL", "IS_NULL"),
    ("ISNUMBER", "IS_NUMBER"),
    ("ISOBJECT", "IS_OBJECT"),
    ("ISPRIMITIVE", "IS_PRIMITIVE"),
    ("ISSTRING", "IS_STRING"),
    ("IS_BOOLEAN", "IS_BOOL"),
    ("SET_DIFFERENCE", "SETDIFFERENCE"),
    ("SET_EQUAL", "SETEQUAL"),
    ("SET_INTERSECT", "SETINTERSECT"),
    ("SET_UNION", "SETUNION"),
    ("STRING_EQUALS", "STRINGEQUALS"),
    ("STRING_JOIN", "STRINGJOIN"),
    ("STRING_SPLIT", "STRINGSPLIT"),
    ("STRING_TO_ARRAY", "STRINGTOARRAY"),
    ("STRING_TO_BOOLEAN", "STRINGTOBOOLEAN"),
    ("STRING_TO_NULL", "STRINGTONULL"),
    ("STRING_TO_NUMBER", "STRINGTONUMBER"),
    ("STRING_TO_OBJECT", "STRINGTOOBJECT"),
    ("TO_STRING", "TOSTRING"),
    // The score that a plan's component queries ask for.
    ("_VECTORSCORE", "VECTORDISTANCE"),
];
