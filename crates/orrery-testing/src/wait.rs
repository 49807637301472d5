//! Waiting for a condition: the one place in the tests that sleeps, and only between two looks.

use std::time::Duration;

use orrery_env::monotonic;

/// The longest a test waits for something that should happen soon. Generous, because machines are busy.
pub const TIME_MAX: Duration = Duration::from_mins(2);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks until there is an answer.
///
/// # Panics
/// If there is none after [`TIME_MAX`].
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(TIME_MAX, what, look)
}

/// Looks until there is an answer.
///
/// # Panics
/// If there is none in time.
pub fn until_within<T>(time: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = monotonic::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(monotonic::elapsed(begun) < time, "timed out waiting for {what}");
        pause();
    }
}

/// [`until`] for what has to be awaited.
///
/// # Panics
/// If there is none after [`TIME_MAX`].
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = monotonic::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(monotonic::elapsed(begun) < TIME_MAX, "timed out waiting for {what}");
        pause_task().await;
    }
}

/// Waits until a condition holds.
///
/// # Panics
/// If it does not after [`TIME_MAX`].
pub async fn eventually_true(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    eventually(what, async || holds().await.then_some(())).await;
}

/// What a client does before it tries again.
pub fn pause() {
    orrery_env::task::sleep_thread(PAUSE);
}

/// [`pause`] for a task.
pub async fn pause_task() {
    orrery_env::task::sleep(PAUSE).await;
}
