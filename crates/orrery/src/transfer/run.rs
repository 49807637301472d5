//! Running a transfer: threads, signals, periodic checkpoints.

use std::pin::pin;
use std::time::Duration;

use super::outcome::Outcome;
use crate::failure::Failure;

/// How often the checkpoint is written.
pub(crate) const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// When no more input arrives for this long, incomplete batches are sent.
pub(crate) const BATCH_WAIT_MAX: Duration = Duration::from_millis(200);

/// Runs a command on a multi-threaded runtime. A thread still blocked on reading its input is abandoned at the end.
pub(crate) fn run_on_threads<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::internal(format!("the async runtime cannot start: {error}")))?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    result
}

/// Drives `work` to its end; meanwhile shows progress, saves checkpoints, and stops the transfer on a signal.
///
/// The work itself decides how to end once it is stopped, so that requests in flight are accounted for.
pub(crate) async fn supervise<T>(
    outcome: &Outcome,
    work: impl Future<Output = T>,
    progress: impl Future<Output = ()>,
    mut save: impl FnMut() -> Result<(), Failure>,
) -> T {
    let mut work = pin!(work);
    let mut progress = pin!(progress);
    let mut save_time = tokio::time::interval(SAVE_INTERVAL);
    let mut signal = pin!(stop_signal());
    let mut is_signalled = false;
    loop {
        tokio::select! {
            result = &mut work => return result,
            () = &mut progress => {}
            _ = save_time.tick() => {
                if let Err(failure) = save() {
                    outcome.stop_because(failure);
                }
            }
            // A future that has completed must not be polled again.
            () = &mut signal, if !is_signalled => {
                is_signalled = true;
                outcome.stop();
            }
        }
    }
}

async fn stop_signal() {
    // SIGTERM as well as Ctrl-C, because service managers send it.
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut terminate), Ok(mut interrupt)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
