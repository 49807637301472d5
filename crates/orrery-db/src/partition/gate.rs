//! Coordinates writes to a logical partition while scripts run on it.
//!
//! Scripts read a snapshot and commit only if there was no write since, so this is not needed for correctness. But
//! concurrent scripts on one key would keep aborting each other. So the scripts of this process take turns, and one
//! that lost to ordinary writes blocks these during its next attempt: every script finishes after a bounded number of
//! attempts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use orrery_model::partition_key::EffectiveKey;
use orrery_model::rid::ContainerRid;
use orrery_model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, watch};

/// The maximum number of scripts waiting on one key.
const WAITING_MAX: usize = 1000;
/// How long a script waits for its turn.
const TURN_TIME_MAX: Duration = Duration::from_mins(1);

type GateKey = (ContainerRid, EffectiveKey);

/// Keys with running scripts.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    gates: Mutex<HashMap<GateKey, Arc<Gate>>>,
    /// How many of them block writers: nearly always zero, which writers check first.
    closed: AtomicUsize,
}

#[derive(Debug, Default)]
struct Gate {
    turns: Arc<tokio::sync::Mutex<()>>,
    users: AtomicUsize,
    is_closed: watch::Sender<bool>,
}

/// A script's turn on a key.
pub(crate) struct Turn<'a> {
    entry: Entry<'a>,
    _guard: OwnedMutexGuard<()>,
    closes: bool,
}

/// Counts the users of a gate, which is removed with the last one.
struct Entry<'a> {
    gates: &'a Gates,
    gate: Arc<Gate>,
    place: GateKey,
}

impl Gates {
    /// Waits for a script's turn on a key, in FIFO order.
    pub(crate) async fn enter(&self, container: ContainerRid, effective: &EffectiveKey) -> Result<Turn<'_>> {
        let place = (container, effective.clone());
        let gate = {
            let mut gates = self.gates.lock();
            let gate = Arc::clone(gates.entry(place.clone()).or_default());
            // Counted under the map's lock, so that the last user cannot remove the gate in between.
            gate.users.fetch_add(1, Ordering::AcqRel);
            gate
        };
        // From here on a return or a cancellation counts the user out again.
        let entry = Entry { gates: self, gate, place };
        if entry.gate.users.load(Ordering::Acquire) > WAITING_MAX {
            return Err(too_many());
        }
        // A fair mutex: waiters get it in the order in which they came.
        let turns = Arc::clone(&entry.gate.turns);
        let guard = tokio::time::timeout(TURN_TIME_MAX, turns.lock_owned()).await.map_err(|_| too_many())?;
        Ok(Turn { entry, _guard: guard, closes: false })
    }

    /// Admits an ordinary write, at once unless a script has exclusive use of the key.
    pub(crate) async fn pass(&self, container: ContainerRid, effective: &EffectiveKey) {
        if self.closed.load(Ordering::Acquire) == 0 {
            return;
        }
        let gate = self.gates.lock().get(&(container, effective.clone())).cloned();
        if let Some(gate) = gate {
            // An error means that the gate is gone and thus open.
            drop(gate.is_closed.subscribe().wait_for(|is_closed| !is_closed).await);
        }
    }
}

impl Turn<'_> {
    /// Blocks ordinary writes to the key until the turn is over.
    pub(crate) fn close(&mut self) {
        if !self.closes {
            self.closes = true;
            // Raised before the gate closes: a writer that reads 0 was admitted before.
            self.entry.gates.closed.fetch_add(1, Ordering::AcqRel);
            self.entry.gate.is_closed.send_replace(true);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.closes {
            // Opened before the count falls, so that no writer waits at a gate that is no longer counted.
            self.entry.gate.is_closed.send_replace(false);
            self.entry.gates.closed.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut gates = self.gates.gates.lock();
        if self.gate.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            gates.remove(&self.place);
        }
    }
}

fn too_many() -> Error {
    Error::new(
        ErrorKind::TooManyRequests { retry_after_ms: 100 },
        "Too many scripts are waiting for this partition key value. Please retry after the given time.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_model::rid::DatabaseRid;

    #[tokio::test]
    async fn scripts_take_turns_and_may_keep_writers_out() {
        let gates = Gates::default();
        let container = ContainerRid::new(DatabaseRid(1), 1);
        let key = EffectiveKey::from_bytes(vec![1]);
        let mut first = gates.enter(container, &key).await.unwrap();
        gates.pass(container, &key).await;
        first.close();
        let other = EffectiveKey::from_bytes(vec![2]);
        gates.pass(container, &other).await;
        let blocked = tokio::time::timeout(Duration::from_millis(20), gates.pass(container, &key)).await;
        assert!(blocked.is_err());
        let blocked = tokio::time::timeout(Duration::from_millis(20), gates.enter(container, &key)).await;
        assert!(blocked.is_err());
        drop(first);
        gates.pass(container, &key).await;
        drop(gates.enter(container, &key).await.unwrap());
        assert!(gates.gates.lock().is_empty());
    }
}
