//! The built-in scalar functions, as rows of tables: name, argument count, body and index use.
//!
//! One file or folder per family, its table at the top. A body gets the operands of its call, never
//! expressions: undefined is an absent operand, and a wrong type makes the result undefined rather
//! than an error. Aggregates and subquery operators are not here, because they see many rows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use crate::context::Context;
use crate::error::EvalError;
use crate::operand::Operand;

mod arguments;
mod array;
mod conditional;
mod datetime;
mod fulltext;
mod integer;
mod internal;
mod item;
mod math;
mod set;
mod spatial;
mod string;
mod typecheck;
mod vector;

#[cfg(test)]
mod tests;

pub use fulltext::{Analyzer, Bm25};

/// One built-in function.
#[derive(Debug)]
pub struct Function {
    /// The canonical name in capitals; calls may use any case.
    pub name: &'static str,
    /// How many arguments a call may have; an end of [`UNBOUNDED`] means any number.
    pub arity: RangeInclusive<usize>,
    pub body: Body,
    pub index: IndexUse,
}

/// Computes a function from its operands, which are as many as the arity allows.
pub type Body = for<'a> fn(&Context<'_>, &[Operand<'a>]) -> Result<Operand<'a>, EvalError>;

/// The end of an arity without an upper bound.
pub const UNBOUNDED: usize = usize::MAX;

/// What the range index can do for a call over a property in a filter.
///
/// The row speaks of the plain form. A case-insensitive flag turns `STARTSWITH` and `STRINGEQUALS`
/// into an expanded scan, a true partial flag takes the seek from `ARRAY_CONTAINS`, and `SUBSTRING`
/// keeps its scan only for a start of 0. Spatial, vector and full-text indexes are not range
/// indexes, so their functions say `None` here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexUse {
    /// Looks up exact values.
    Seek,
    /// Reads one contiguous range that holds the matches and nothing else.
    PreciseScan,
    /// Reads a somewhat larger range and filters it.
    ExpandedScan,
    /// Walks every distinct value of the path.
    FullIndexScan,
    /// Documents have to be loaded.
    None,
}

/// The tables of all families.
pub static FAMILIES: &[&[Function]] = &[
    array::FUNCTIONS,
    conditional::FUNCTIONS,
    datetime::FUNCTIONS,
    fulltext::FUNCTIONS,
    integer::FUNCTIONS,
    internal::FUNCTIONS,
    item::FUNCTIONS,
    math::FUNCTIONS,
    set::FUNCTIONS,
    spatial::FUNCTIONS,
    string::FUNCTIONS,
    typecheck::FUNCTIONS,
    vector::FUNCTIONS,
];

/// Every built-in scalar function, family by family.
pub fn all() -> impl Iterator<Item = &'static Function> {
    FAMILIES.iter().copied().flatten()
}

/// Finds a function by name, whatever the case it is written in.
pub fn lookup(name: &str) -> Option<&'static Function> {
    /// No name is longer; a longer word needs no search.
    const NAME_BYTES_MAX: usize = 32;
    static BY_NAME: OnceLock<HashMap<&'static [u8], &'static Function>> = OnceLock::new();

    let mut buffer = [0u8; NAME_BYTES_MAX];
    let capitals = buffer.get_mut(..name.len())?;
    capitals.copy_from_slice(name.as_bytes());
    capitals.make_ascii_uppercase();
    let by_name = BY_NAME.get_or_init(|| {
        let mut by_name: HashMap<_, _> = all().map(|row| (row.name.as_bytes(), row)).collect();
        for (spelling, name) in internal::SPELLINGS {
            if let Some(row) = by_name.get(name.as_bytes()).copied() {
                by_name.insert(spelling.as_bytes(), row);
            }
        }
        by_name
    });
    by_name.get(&*capitals).copied()
}

/// What a body gives back.
type Evaluated<'a> = Result<Operand<'a>, EvalError>;

/// A row whose body needs nothing but its arguments: `fn(&[Operand]) -> Option<impl Into<Value>>`.
macro_rules! row {
    ($name:literal, $arity:expr, $index:ident, $body:expr) => {
        $crate::functions::Function {
            name: $name,
            arity: $arity,
            body: |_, arguments| Ok($crate::functions::computed($body(arguments))),
            index: $crate::functions::IndexUse::$index,
        }
    };
}
use row;

/// A row whose body is a [`Body`] as it stands.
macro_rules! row_in_context {
    ($name:literal, $arity:expr, $index:ident, $body:expr) => {
        $crate::functions::Function {
            name: $name,
            arity: $arity,
            body: $body,
            index: $crate::functions::IndexUse::$index,
        }
    };
}
use row_in_context;

/// Functions whose result is not a matter of their arguments alone.
pub(crate) const NOT_DETERMINISTIC: [&str; 9] = [
    "GETCURRENTDATETIME",
    "GETCURRENTTIMESTAMP",
    "GETCURRENTTICKS",
    "GETCURRENTDATETIMESTATIC",
    "GETCURRENTTIMESTAMPSTATIC",
    "GETCURRENTTICKSSTATIC",
    "NOW",
    "AGO",
    "RAND",
];

fn computed<'a>(value: Option<impl Into<orrery_model::Value>>) -> Operand<'a> {
    value.map(|value| Cow::Owned(value.into()))
}
