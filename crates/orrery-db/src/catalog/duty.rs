//! Duties: work that one process at a time performs when several share a store.

use std::time::Duration;

use orrery_env::monotonic;
use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::{Duty, PartitionStore};

use crate::failure::store_failure;

/// How long to wait for a duty that another process holds.
const DUTY_PATIENCE: Duration = Duration::from_secs(20);

/// Acquires a duty, waiting for its current holder. `None` = the store is not shared.
pub(crate) async fn take_duty(store: &dyn PartitionStore, name: &str) -> Result<Option<Box<dyn Duty>>> {
    let Some(coordination) = store.coordination() else { return Ok(None) };
    let began = monotonic::now();
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(duty) = coordination.try_duty(name).await.map_err(store_failure)? {
            return Ok(Some(duty));
        }
        // Bounded, because a client is waiting; it may retry.
        if monotonic::elapsed(began) > DUTY_PATIENCE {
            return Err(Error::new(
                ErrorKind::RetryWith,
                "Another server is already doing this. Please retry.",
            ));
        }
        orrery_env::task::sleep(pause).await;
        // Catalog changes take milliseconds, so the first attempts come soon.
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}
