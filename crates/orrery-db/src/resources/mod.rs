//! Resources: databases, containers, users, permissions, offers, encryption keys and scripts.
//!
//! Every change is one catalog change, durable before the response.
//!
//! Only reading and changing catalog records belongs here. Long-running, resumable work is in `lifecycle`.

mod containers;
mod databases;
mod encryption_keys;
mod metadata;
mod offers;
mod permissions;
mod recordings;
mod resource_token;
mod scripts;
mod synthetic;
mod users;

use std::sync::Arc;

use crate::scripts::Scripts;

pub use containers::RangesPage;
pub(crate) use containers::Usage;
pub use metadata::{MetadataReply, ResourceFeed};
pub use offers::OfferReply;
pub use permissions::PermissionReply;
pub use recordings::{RECORDED_REQUESTS_MAX, Recordings};
pub use resource_token::{Access, Grant, Wish};

/// The layers below, with the resources that describe them.
pub struct Resources {
    pub(crate) running: Arc<Scripts>,
    pub(crate) recordings: Recordings,
}

layer!(Resources { running: Scripts });

impl Resources {
    pub(crate) fn new(running: Arc<Scripts>) -> Self {
        Self { running, recordings: Recordings::default() }
    }
}
