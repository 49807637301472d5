//! The monotonic clock for durations and deadlines.
//!
//! Normally it is the system's. A test may stop it and advance it manually: the whole process then uses that time, so
//! that deadlines pass when the test says, not when the machine is slow.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

static STOPPED: AtomicBool = AtomicBool::new(false);
static MOVED_NANOS: AtomicU64 = AtomicU64::new(0);
static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// The current time.
pub fn now() -> Instant {
    // Relaxed: every measurement reads this, and a test stops the clock before it starts what it observes.
    if STOPPED.load(Ordering::Relaxed) {
        return *ORIGIN.get_or_init(Instant::now) + Duration::from_nanos(MOVED_NANOS.load(Ordering::Acquire));
    }
    Instant::now()
}

/// The present moment on the clock of the Tokio runtime, for deadlines that its timers wait for. A test stops it with
/// the runtime.
pub fn timer_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// The time elapsed since an instant.
pub fn elapsed(since: Instant) -> Duration {
    // An instant of the running clock may be ahead of one that was just stopped by another thread.
    now().saturating_duration_since(since)
}

/// Stops the clock for the whole process; from then on only [`advance`] moves it. For tests that have their process to
/// themselves.
pub fn stop() {
    let moment = now();
    let origin = *ORIGIN.get_or_init(|| moment);
    let since = u64::try_from(moment.saturating_duration_since(origin).as_nanos()).unwrap_or(u64::MAX);
    // Begins at the present, so that instants taken before remain in the past. Never goes back if it was stopped
    // already.
    MOVED_NANOS.fetch_max(since, Ordering::AcqRel);
    STOPPED.store(true, Ordering::Release);
}

/// Advances a stopped clock.
pub fn advance(time: Duration) {
    assert!(STOPPED.load(Ordering::Acquire), "only a stopped clock can be moved");
    MOVED_NANOS.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_moves_by_hand_and_never_back() {
        let before = now();
        stop();
        let stopped = now();
        assert!(stopped >= before);
        assert_eq!(now(), stopped);
        advance(Duration::from_secs(30));
        assert_eq!(elapsed(stopped), Duration::from_secs(30));
        stop();
        assert_eq!(elapsed(stopped), Duration::from_secs(30));
    }
}
