//! The query language: text to tree to plan to rows.
//!
//! Everything here is pure: no clock, no disk, no randomness of its own. A caller fetches documents
//! and feeds them to a [`pipeline`]; the current time is an argument.

pub mod context;
pub mod error;
pub mod functions;
pub mod operand;
