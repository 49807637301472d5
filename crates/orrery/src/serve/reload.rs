//! Follows the user's certificate files, so that a renewed certificate needs no restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use orrery_gateway::transport::certificate::CurrentCertificate;

use crate::failure::Failure;

/// How often the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Starts to follow the files: reloads them when one of them changes and, on Unix, on SIGHUP.
pub(super) fn follow(
    current: Arc<CurrentCertificate>,
    certificate: PathBuf,
    key: PathBuf,
) -> Result<(), Failure> {
    let mut signal = HangUp::register()
        .map_err(|error| Failure::internal(format!("signals cannot be handled: {error}")))?;
    // Missing files are noted too, since they may appear later.
    let mut seen = (modified(&certificate), modified(&key));
    orrery_env::task::spawn("certificate files", async move {
        loop {
            let is_asked = tokio::select! {
                () = signal.next() => true,
                () = orrery_env::task::sleep(CHECK_INTERVAL) => false,
            };
            let now = (modified(&certificate), modified(&key));
            if !is_asked && now == seen {
                continue;
            }
            seen = now;
            match current.reload(&certificate, &key) {
                Ok(true) => tracing::info!("new connections get the new certificate"),
                Ok(false) => tracing::info!("the certificate has not changed"),
                // Half of a renewal may have been written: the next change or signal finds the rest.
                Err(error) => tracing::warn!(%error, "the previous certificate stays in use"),
            }
        }
    });
    Ok(())
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// SIGHUP, where there is one.
struct HangUp(#[cfg(unix)] tokio::signal::unix::Signal);

impl HangUp {
    #[cfg(unix)]
    fn register() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::hangup()).map(Self)
    }

    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "registering can fail on other systems")]
    fn register() -> std::io::Result<Self> {
        Ok(Self())
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
        #[cfg(not(unix))]
        std::future::pending::<()>().await;
    }
}
