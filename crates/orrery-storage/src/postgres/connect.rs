//! Connects to a node that may have several hosts: a primary, which accepts writes, and its standbys.
//!
//! The client library tries one host after another and waits for each as long as it takes. A host without power never
//! replies, so after a moment the next one is tried concurrently, and the first that accepts writes is used. The host
//! that was used last comes first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, Socket};

use orrery_env::monotonic;

use super::options;

/// How long a host may be silent before the next one is tried as well.
const MOMENT: Duration = Duration::from_secs(1);
/// How long to wait for silent hosts once all others have refused: one of those may be promoted in the meantime.
const SILENCE_MAX: Duration = Duration::from_secs(2);

pub(super) struct Hosts {
    each: Vec<Config>,
    /// Index of the host that accepted writes last.
    good: AtomicUsize,
}

impl Hosts {
    pub(super) fn new(config: &Config) -> Self {
        Self { each: options::each_host(config), good: AtomicUsize::new(0) }
    }

    pub(super) async fn connect<T>(&self, tls: &T) -> Result<(Client, Connection<Socket, T::Stream>), Error>
    where
        T: MakeTlsConnect<Socket> + Clone,
    {
        let began = monotonic::now();
        let first = self.good.load(Ordering::Relaxed);
        // Round the ring from the host that worked last: normally the first attempt succeeds.
        let mut left = (0..self.each.len()).map(|at| (first + at) % self.each.len());
        let mut trying = FuturesUnordered::new();
        let mut failed: Option<Error> = None;
        let mut next = left.next();
        loop {
            // Earlier attempts continue; the first that accepts writes wins and the others are dropped.
            if let Some(at) = next.take() {
                let (config, tls) = (&self.each[at], tls.clone());
                trying.push(async move { (at, config.connect(tls).await) });
            }
            tokio::select! {
                Some((at, result)) = trying.next() => match result {
                    Ok(connected) => {
                        self.good.store(at, Ordering::Relaxed);
                        return Ok(connected);
                    }
                    Err(error) => {
                        // A server's own error says more than another host being unreachable.
                        let known = failed.take().filter(|known| known.as_db_error().is_some());
                        let error = known.unwrap_or(error);
                        // A refusal is final for this host, so the next one starts at once.
                        next = left.next();
                        if next.is_none() && trying.is_empty() {
                            return Err(error);
                        }
                        failed = Some(error);
                    }
                },
                // Silence: start the next host without giving this one up.
                () = orrery_env::task::sleep(MOMENT) => {
                    next = left.next();
                    if next.is_none() && monotonic::elapsed(began) >= SILENCE_MAX && let Some(error) = failed.take() {
                        return Err(error);
                    }
                }
            }
        }
    }
}
