//! The operating system's clock and randomness, and a clock that an operator can move, for tests.

use std::cell::RefCell;

use parking_lot::Mutex;

use crate::Env;

/// Time and randomness of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEnv;

impl Env for SystemEnv {
    fn now_ms(&self) -> i64 {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // A clock before 1970 is not set; the epoch is as good a time as any.
        since_epoch.map_or(0, |elapsed| i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        // Every request needs a few dozen bytes, and a system call costs more than everything done with them, so each
        // thread fetches many at once. No byte is returned twice, and returned bytes are erased.
        if bytes.len() <= FROM_STOCK_MAX {
            STOCK.with_borrow_mut(|stock| stock.take(bytes));
        } else {
            fill_from_system(bytes);
        }
    }
}

/// Longer requests go to the system.
const FROM_STOCK_MAX: usize = 64;

fn fill_from_system(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system gives randomness");
}

/// Buffered random bytes.
struct Stock {
    bytes: [u8; 512],
    used: usize,
}

impl Stock {
    fn take(&mut self, wanted: &mut [u8]) {
        // A rest that is too short is thrown away: mixing two batches would gain nothing.
        if self.bytes.len() - self.used < wanted.len() {
            fill_from_system(&mut self.bytes);
            self.used = 0;
        }
        let given = &mut self.bytes[self.used..self.used + wanted.len()];
        wanted.copy_from_slice(given);
        // A later read of this memory must not reveal ids and keys that were given out.
        given.fill(0);
        self.used += wanted.len();
    }
}

thread_local! {
    static STOCK: RefCell<Stock> = const { RefCell::new(Stock { bytes: [0; 512], used: 512 }) };
}

/// The system's clock, shifted by an offset or stopped. It drives expiry, budgets, autoscale, bursts and token
/// lifetimes; signature dates are still checked against the system's clock.
#[derive(Debug, Default)]
pub struct MovableClock {
    state: Mutex<ClockState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClockState {
    offset_ms: i64,
    frozen_at_ms: Option<i64>,
}

/// The state of a movable clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    pub now_ms: i64,
    /// Its offset from the system's clock.
    pub offset_ms: i64,
    pub frozen: bool,
}

impl MovableClock {
    pub fn read(&self) -> ClockReading {
        let state = *self.state.lock();
        let system_ms = SystemEnv.now_ms();
        let now_ms = state.frozen_at_ms.unwrap_or(system_ms.saturating_add(state.offset_ms));
        ClockReading { now_ms, offset_ms: now_ms - system_ms, frozen: state.frozen_at_ms.is_some() }
    }

    /// Sets the offset from the system's clock.
    pub fn set_offset(&self, offset_ms: i64) {
        let mut state = self.state.lock();
        state.offset_ms = offset_ms;
        // A stopped clock moves as well: otherwise the change would show only once it runs again.
        if state.frozen_at_ms.is_some() {
            state.frozen_at_ms = Some(SystemEnv.now_ms().saturating_add(offset_ms));
        }
    }

    /// Stops the clock, or resumes it from its current time.
    pub fn freeze(&self, frozen: bool) {
        // Before locking, because reading the time takes the lock too.
        let now_ms = self.now_ms();
        let mut state = self.state.lock();
        // The clock goes on from where it stood, not from where it would be if it had never stopped.
        state.offset_ms = now_ms.saturating_sub(SystemEnv.now_ms());
        state.frozen_at_ms = frozen.then_some(now_ms);
    }

    /// Moves the clock forwards or backwards.
    pub fn advance(&self, milliseconds: i64) {
        let mut state = self.state.lock();
        state.offset_ms = state.offset_ms.saturating_add(milliseconds);
        state.frozen_at_ms = state.frozen_at_ms.map(|at| at.saturating_add(milliseconds));
    }
}

impl Env for MovableClock {
    fn now_ms(&self) -> i64 {
        self.read().now_ms
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemEnv.fill_random(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_are_never_given_out_twice() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..2000 {
            assert!(seen.insert(SystemEnv.random_u64()));
            let mut bytes = [0; 100];
            SystemEnv.fill_random(&mut bytes);
            assert!(seen.insert(u64::from_le_bytes(*bytes.first_chunk().unwrap())));
        }
        let mut bytes = [0; 64];
        SystemEnv.fill_random(&mut bytes);
        assert_ne!(bytes, [0; 64]);
    }

    #[test]
    fn the_clock_can_be_moved_stopped_and_let_go() {
        let clock = MovableClock::default();
        assert!(clock.read().offset_ms.abs() < 1000 && !clock.read().frozen);
        clock.set_offset(3_600_000);
        assert!((clock.now_ms() - SystemEnv.now_ms() - 3_600_000).abs() < 1000);
        clock.freeze(true);
        let at = clock.now_ms();
        assert_eq!(clock.now_ms(), at);
        clock.advance(250);
        assert_eq!((clock.now_ms(), clock.read().frozen), (at + 250, true));
        clock.freeze(false);
        assert!((clock.now_ms() - at - 250).abs() < 1000);
        clock.set_offset(0);
        assert!(clock.read().offset_ms.abs() < 1000);
    }
}
