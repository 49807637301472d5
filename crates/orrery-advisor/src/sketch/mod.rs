//! Bounded summaries of unbounded data: how many distinct keys there are, and which are the largest.

mod distinct;
mod frequent;

pub use distinct::{DISTINCT_ERROR, Distinct};
pub use frequent::{Entry, Frequent};
