//! Why a request has no ordinary answer: who asks may not, or what is asked fails.

use orrery_model::Error;

use crate::auth::AuthFailure;

/// Why there is no ordinary answer.
pub(crate) enum Refusal {
    Auth(AuthFailure),
    Error(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<AuthFailure> for Refusal {
    fn from(failure: AuthFailure) -> Self {
        Self::Auth(failure)
    }
}
