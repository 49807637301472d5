//! Telling systemd how the server is doing (`sd_notify`): ready, alive, stopping. Without `NOTIFY_SOCKET` nothing is sent.
//!
//! The protocol is a datagram of `NAME=value` lines. `WATCHDOG_USEC` says how often systemd wants to hear from a service
//! before it restarts it; the server answers twice as often, from a task among those that serve requests, so that a runtime
//! that is stuck falls silent.

use std::time::Duration;

/// A connection to the service manager, if there is one.
#[derive(Clone)]
pub(super) struct Notifier {
    #[cfg(target_os = "linux")]
    socket: Option<std::sync::Arc<(std::os::unix::net::UnixDatagram, std::os::unix::net::SocketAddr)>>,
}

impl Notifier {
    #[cfg(target_os = "linux")]
    pub(super) fn from_environment() -> Self {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::net::{SocketAddr, UnixDatagram};

        let open = || {
            let name = std::env::var_os("NOTIFY_SOCKET")?;
            // A name that starts with @ is in the abstract namespace.
            let address = match name.as_bytes() {
                [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
                _ => SocketAddr::from_pathname(&name),
            };
            Some(std::sync::Arc::new((UnixDatagram::unbound().ok()?, address.ok()?)))
        };
        Self { socket: open() }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn from_environment() -> Self {
        Self {}
    }

    pub(super) fn ready(&self) {
        self.send("READY=1\nSTATUS=Serving");
    }

    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Reports for as long as the future is polled; never if nobody asked.
    pub(super) async fn keep_alive(&self) {
        let microseconds = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        match microseconds.filter(|microseconds| *microseconds > 0) {
            None => std::future::pending().await,
            Some(microseconds) => {
                let mut times = tokio::time::interval(Duration::from_micros(microseconds) / 2);
                loop {
                    times.tick().await;
                    self.send("WATCHDOG=1");
                }
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn send(&self, state: &str) {
        // Ignore errors: nothing may be listening.
        if let Some((socket, address)) = self.socket.as_deref() {
            socket.send_to_addr(state.as_bytes(), address).ok();
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn send(&self, _: &str) {}
}
