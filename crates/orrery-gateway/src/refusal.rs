//! Why a request failed: authentication, authorisation, or the operation itself.

use orrery_model::Error;

use crate::auth::AuthFailure;

/// Any failure that becomes an error response.
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
