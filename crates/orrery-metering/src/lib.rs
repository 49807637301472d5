//! Request units: what an operation costs ([`cost`]) and what a partition may spend in a second ([`Budget`]).
//!
//! Pure: the time is a parameter, so the same requests at the same times give the same charges and the same throttling,
//! in the server, in the advisor's forecasts and in the simulator.

mod budget;
pub mod cost;

pub use budget::{BURST_PER_SECOND, Budget, Priority, Throttled};
