//! Threads and tasks, each with a name for logs, debuggers and the watchdog.
//!
//! One place to start them means one place to count them, and to run them in a fixed order when a run is replayed.

use std::future::Future;
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

/// Starts a thread of the operating system. For work that blocks for as long as the process lives.
pub fn thread<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).spawn(work)
}

/// Starts a task on the current Tokio runtime. `name` says what it is for.
pub fn spawn<F>(name: &'static str, work: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // The stable builder has no names; kept in the signature so that call sites say what they start.
    let _: &str = name;
    tokio::spawn(work)
}

/// Starts a task that ends with the set it is in.
pub fn spawn_in<F>(tasks: &mut tokio::task::JoinSet<F::Output>, name: &'static str, work: F)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let _: &str = name;
    tasks.spawn(work);
}

/// Waits on the clock of the Tokio runtime, which tests can pause.
pub async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Makes this thread wait, for commands that have nothing else to do.
pub fn sleep_thread(time: Duration) {
    std::thread::sleep(time);
}

/// Runs work that blocks, or that takes long, on a thread of the runtime's pool.
pub fn run_blocking<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    let _: &str = name;
    tokio::task::spawn_blocking(work)
}
