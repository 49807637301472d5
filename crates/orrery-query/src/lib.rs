//! The query language: text to tree to plan to rows.
//!
//! Everything here is pure: no clock, no disk, no randomness of its own. A caller fetches documents
//! and feeds them to a [`pipeline`]; the current time is an argument.

pub mod advice;
pub mod aggregate;
pub mod ast;
pub mod check;
pub mod choice;
pub mod compile;
pub mod computed;
pub mod condition;
pub mod context;
mod covering;
pub mod error;
mod eval;
pub mod filter;
pub mod formula;
pub mod functions;
mod hash;
pub mod lexer;
pub mod like;
pub mod limits;
pub mod operand;
mod operator;
pub mod order;
mod parameters;
pub mod parser;
pub mod pipeline;
pub mod plan;
pub mod printer;
pub mod program;
pub mod request;
mod roots;
pub mod shortcut;

pub use condition::{Condition, parse_condition};
pub use context::Context;
pub use error::{EvalError, QueryError};
pub use pipeline::Pipeline;
pub use program::Program;
pub use request::QueryRequest;
