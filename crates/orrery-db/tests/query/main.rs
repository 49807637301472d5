//! Queries over containers, at length: the cases of the language and random queries, each with the index and
//! without, in pages of several sizes, over one key, all partitions and range by range.

#![allow(clippy::disallowed_methods, reason = "a test is not replayed")]
#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    reason = "a test binary has no outside, and shares its world with others"
)]
#![allow(clippy::pedantic, reason = "tests may be blunt")]

#[path = "../suite/common/mod.rs"]
#[allow(unused_imports, reason = "the other tests use them")]
mod common;

#[path = "../../../orrery-query/tests/common/merging.rs"]
mod merging;

mod cases;
mod changes;
mod computed;
mod covered;
mod equivalence;
mod fairness;
mod metrics;
mod order;
mod paths;
mod points;
mod ranges;
mod refusals;
mod run;
