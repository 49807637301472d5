//! A bounded pool of script slots.
//!
//! A script that exceeded its time limit will probably do so again. If its calls took every slot, all other scripts
//! would wait for one time limit after another. So for a minute its calls are limited to a few slots. A thread that
//! cannot be stopped keeps its slot until it ends.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orrery_env::monotonic;
use orrery_model::rid::ContainerRid;
use orrery_model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a script counts as slow after a timeout.
const SLOW_FOR: Duration = Duration::from_mins(1);
/// The maximum number of slow scripts remembered; the oldest are dropped first.
const SLOW_MAX: usize = 1000;
/// How long a script waits for a slot.
const WAIT_MAX: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct ScriptSlots {
    all: Arc<Semaphore>,
    /// The slots available to slow scripts.
    slow: Arc<Semaphore>,
    stopped: Mutex<HashMap<ScriptText, Instant>>,
}

/// A script of a container, by the hash of its text: another text under the same name is another script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ScriptText(u64);

impl ScriptText {
    pub(super) fn of(container: ContainerRid, source: &str) -> Self {
        // By text, so that a corrected script is not punished for its predecessor.
        let mut hasher = DefaultHasher::new();
        (container.to_string(), source).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// A slot for one script, released on drop.
pub(super) struct ScriptSlot {
    _place: OwnedSemaphorePermit,
    _slow: Option<OwnedSemaphorePermit>,
}

impl ScriptSlots {
    pub(super) fn new(count: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(count)),
            slow: Arc::new(Semaphore::new((count / 4).max(1))),
            stopped: Mutex::default(),
        }
    }

    /// Waits for a slot.
    pub(super) async fn enter(&self, script: ScriptText) -> Result<ScriptSlot> {
        tokio::time::timeout(WAIT_MAX, self.wait(script)).await.unwrap_or_else(|_| Err(too_many()))
    }

    async fn wait(&self, script: ScriptText) -> Result<ScriptSlot> {
        let acquire = async |places: &Arc<Semaphore>| {
            let permit = Arc::clone(places).acquire_owned().await;
            permit.map_err(|_| Error::internal("Scripts are no longer run."))
        };
        let place = acquire(&self.all).await?;
        // Checked only now, because other calls may have timed out while this one waited.
        if !self.is_slow(script) {
            return Ok(ScriptSlot { _place: place, _slow: None });
        }
        // Given back while it waits for its turn among the slow ones, or they would hold slots that others could use.
        drop(place);
        let slow = acquire(&self.slow).await?;
        // In this order everywhere: whoever holds a slow slot waits for a normal one, never the other way round.
        Ok(ScriptSlot { _place: acquire(&self.all).await?, _slow: Some(slow) })
    }

    fn is_slow(&self, script: ScriptText) -> bool {
        self.stopped.lock().get(&script).is_some_and(|stopped| monotonic::elapsed(*stopped) < SLOW_FOR)
    }

    /// Records that a script timed out.
    pub(super) fn was_stopped(&self, script: ScriptText) {
        let mut stopped = self.stopped.lock();
        if stopped.len() >= SLOW_MAX && !stopped.contains_key(&script) {
            // Bounded: first what has expired, then the oldest.
            stopped.retain(|_, at| monotonic::elapsed(*at) < SLOW_FOR);
            let oldest = stopped.iter().min_by_key(|(_, at)| **at).map(|(script, _)| *script);
            if let Some(oldest) = oldest.filter(|_| stopped.len() >= SLOW_MAX) {
                stopped.remove(&oldest);
            }
        }
        stopped.insert(script, monotonic::now());
    }
}

fn too_many() -> Error {
    Error::new(
        ErrorKind::TooManyRequests { retry_after_ms: 1000 },
        "Too many scripts are running. Please retry after the given time.",
    )
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn slow_scripts_leave_places_to_others() {
        let places = ScriptSlots::new(8);
        let (slow, other) = (ScriptText(1), ScriptText(2));
        places.was_stopped(slow);
        let held = [places.enter(slow).await.unwrap(), places.enter(slow).await.unwrap()];
        let mut third = Box::pin(places.enter(slow));
        assert!((&mut third).now_or_never().is_none());
        let others: Vec<ScriptSlot> =
            futures_util::future::try_join_all((0..6).map(|_| places.enter(other))).await.unwrap();
        drop(held);
        third.await.unwrap();
        drop(others);
    }

    #[test]
    fn few_are_remembered() {
        let places = ScriptSlots::new(8);
        for script in 0..=SLOW_MAX as u64 {
            places.was_stopped(ScriptText(script));
        }
        assert_eq!(places.stopped.lock().len(), SLOW_MAX);
        assert!(places.is_slow(ScriptText(SLOW_MAX as u64)));
    }
}
