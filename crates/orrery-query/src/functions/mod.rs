//! The built-in scalar functions, as rows of tables: name, argument count, body and index use.
//!
//! One file or folder per family, its table at the top. A body gets the operands of its call, never expressions:
//! undefined is an absent operand, and a wrong type yields undefined rather than an error. Aggregates and subquery
//! operators are elsewhere, because they process many rows.

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
    /// The number of arguments; an end of [`UNBOUNDED`] means any number.
    pub arity: RangeInclusive<usize>,
    pub body: Body,
    pub index: IndexUse,
}

/// Computes a function from its operands, which are as many as the arity allows.
pub type Body = for<'a> fn(&Context<'_>, &[Operand<'a>]) -> Result<Operand<'a>, EvalError>;

/// The end of an arity without an upper bound.
pub const UNBOUNDED: usize = usize::MAX;

/// How the range index can serve a call on a property in a filter.
///
/// This describes the basic form. A case-insensitive flag turns `STARTSWITH` and `STRINGEQUALS` into an expanded scan,
/// a true partial flag removes the seek from `ARRAY_CONTAINS`, and `SUBSTRING` uses a scan only with a start of 0.
/// Spatial, vector and full-text indexes are not range indexes, so their functions have `None` here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexUse {
    /// Looks up exact values.
    Seek,
    /// Reads one contiguous range that contains exactly the matches.
    PreciseScan,
    /// Reads a somewhat larger range and filters it.
    ExpandedScan,
    /// Scans every distinct value of the path.
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

/// Finds a function by name, case-insensitively.
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

/// The result of a body.
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

/// A row whose body is a plain [`Body`].
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

/// Functions whose result does not depend on their arguments alone.
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
