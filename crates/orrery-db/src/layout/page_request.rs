//! The page size and continuation that a client requests.

use orrery_model::{Error, Result};

/// The requested page of a feed.
#[derive(Clone, Debug, Default)]
pub struct PageRequest {
    /// As the client sent it: -1 lets the server decide.
    pub items_max: Option<i64>,
    pub continuation: Option<String>,
}

impl PageRequest {
    /// The maximum number of entries of this page.
    pub fn count_max(&self, default: usize, limit: usize) -> Result<usize> {
        match self.items_max {
            // Some clients send 0 for the server's default.
            None | Some(0) => Ok(default),
            Some(-1) => Ok(limit),
            Some(count) => match usize::try_from(count) {
                Ok(count) => Ok(count),
                Err(_) => Err(Error::bad_request(format!(
                    "One of the input values is invalid. x-ms-max-item-count must be -1, 0 or positive, not {count}."
                ))),
            },
        }
    }
}
