//! Connections whose client has not authenticated yet.
//!
//! Anyone can open connections, so the number of unauthenticated ones is limited. A new connection beyond the limit
//! evicts the oldest: clients authenticate with their first request, within milliseconds, so a client that merely holds
//! connections open evicts its own.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::AbortHandle;
use parking_lot::Mutex;

pub(super) struct Lobby {
    places_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The oldest first, by number.
    waiting: VecDeque<(u64, AbortHandle)>,
    next: u64,
}

/// A place in the lobby, released on drop.
pub(super) struct LobbyPlace {
    lobby: Arc<Lobby>,
    number: u64,
}

impl Lobby {
    pub(super) fn new(places_max: usize) -> Arc<Self> {
        Arc::new(Self { places_max: places_max.max(1), state: Mutex::default() })
    }

    /// Reserves a place for a new connection; `handle` aborts it if the place is needed.
    pub(super) fn enter(self: &Arc<Self>, handle: AbortHandle) -> LobbyPlace {
        let mut state = self.state.lock();
        // The front has waited longest, hence is the least likely to authenticate.
        let evicted = if state.waiting.len() >= self.places_max { state.waiting.pop_front() } else { None };
        let number = state.next;
        state.next += 1;
        state.waiting.push_back((number, handle));
        // Released first: the evicted task takes this lock when it ends.
        drop(state);
        if let Some((_, handle)) = evicted {
            handle.abort();
        }
        LobbyPlace { lobby: Arc::clone(self), number }
    }
}

impl Drop for LobbyPlace {
    fn drop(&mut self) {
        let mut state = self.lobby.state.lock();
        // Numbers only grow, so the queue is sorted. A place that was evicted is no longer in it.
        if let Ok(at) = state.waiting.binary_search_by_key(&self.number, |(number, _)| *number) {
            state.waiting.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lobby_ends_its_oldest_connection() {
        let lobby = Lobby::new(2);
        let handles: Vec<AbortHandle> = (0..4).map(|_| AbortHandle::new_pair().0).collect();
        let mut places: Vec<LobbyPlace> =
            handles.iter().take(2).map(|handle| lobby.enter(handle.clone())).collect();
        assert!(handles.iter().all(|handle| !handle.is_aborted()));
        // The first authenticates and leaves, so the third has room.
        drop(places.remove(0));
        places.push(lobby.enter(handles[2].clone()));
        assert!(handles.iter().all(|handle| !handle.is_aborted()));
        places.push(lobby.enter(handles[3].clone()));
        let aborted: Vec<bool> = handles.iter().map(AbortHandle::is_aborted).collect();
        assert_eq!(aborted, [false, true, false, false]);
    }
}
