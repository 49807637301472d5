//! Stop signals: the first one lets requests in flight finish, for a bounded time; a second one stops at once.
//!
//! They are handled on a separate thread, so that they work even if every worker thread is busy.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::failure::Failure;

/// How long closing the store may take after the requests have ended. Acknowledged writes are in the journal, so giving up
/// only makes the next start slower.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(20);

/// Starts listening. The receiver resolves on the first signal. From then on the process exits after `drain` plus the
/// time to close the store, even if something hangs.
pub(super) fn listen(drain: Duration) -> Result<oneshot::Receiver<()>, Failure> {
    let unusable = |error: std::io::Error| Failure::internal(format!("signals cannot be handled: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unusable)?;
    let signals = {
        // Signals are registered with the runtime of their own thread, which has nothing else to do.
        let _entered = runtime.enter();
        StopSignals::register().map_err(unusable)?
    };
    let (stop, stopped) = oneshot::channel();
    let follow = move || runtime.block_on(signals.follow(stop, drain));
    orrery_env::task::thread("orrery-signals", follow).map_err(unusable)?;
    Ok(stopped)
}

/// SIGTERM and SIGINT, or Ctrl-C where there are none.
struct StopSignals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl StopSignals {
    #[cfg(unix)]
    fn register() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "registering can fail on other systems")]
    fn register() -> std::io::Result<Self> {
        Ok(Self {})
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        #[cfg(not(unix))]
        tokio::signal::ctrl_c().await.ok();
    }

    async fn follow(mut self, stop: oneshot::Sender<()>, drain: Duration) {
        self.next().await;
        tracing::info!("stopping: waiting for requests in flight");
        // The server may have stopped already; ignore a closed channel.
        stop.send(()).ok();
        // From here on nothing may keep the process alive beyond this time.
        tokio::select! {
            () = self.next() => {
                tracing::warn!("stopped at once by a second signal");
                std::process::exit(1);
            }
            () = orrery_env::task::sleep(drain + CLOSE_TIME_MAX) => {
                tracing::error!("closing the store took too long; the next start recovers from the journal");
                std::process::exit(3);
            }
        }
    }
}
