//! One page of a query: items evaluated to rows, where the page ends and where the next one starts.
//!
//! `run.rs` is the state of a page, `shapes.rs` the three ways to fill one, `choice.rs` picks the access path,
//! `evaluate.rs` evaluates items, `answer.rs` and `covered.rs` answer from the index alone, `rows.rs` writes rows, and `position.rs`
//! encodes the continuation.
//!
//! Everything that is decided while a page is being read belongs here.

mod answer;
mod choice;
mod covered;
mod evaluate;
pub(super) mod evaluation_slots;
pub(super) mod position;
pub(super) mod rows;
pub(super) mod run;
mod shapes;
mod stop;
pub(super) mod udf;
