//! Connection pools, per node.
//!
//! A connection that may have an open transaction is never returned to the pool; dropping its session closes it.
//!
//! A connection that breaks or times out suggests that the others to the same node are dead too, for example because
//! the machine lost power. All idle connections to the node are then closed, so that the next request reconnects and
//! finds out, instead of timing out on one stale connection after another.

use std::future::poll_fn;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use deadpool::managed::QueueMode;
use deadpool_postgres::{
    ClientWrapper, Connect, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
    TimeoutType,
};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_postgres::error::Severity;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, Row, Socket, types::ToSql};

use orrery_env::{monotonic, task};

use super::connect::Hosts;
use super::options::PostgresOptions;
use super::server_error::ServerError;
use super::tls::Tls;
use crate::contract::BoxFuture;

/// How long to wait for a free connection or a new one.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// How often an unreachable node is probed.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// A session dropped after this long was waiting for a reply.
const SILENT_AFTER: Duration = Duration::from_secs(10);

pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// One server and the connections to it.
pub(super) struct Node {
    hosts: Arc<Hosts>,
    pools: Arc<Pools>,
    /// Warnings received over any of its connections.
    warnings: Arc<AtomicU64>,
    reply_timeout: Duration,
}

struct Pools {
    requests: Pool,
    /// Bounds how many of the request connections write concurrently. Commits may block on a standby that is down, and
    /// must not take the connections that reads need.
    writing: Arc<Semaphore>,
    /// Snapshots and duties hold connections for long, so they have a pool of their own.
    snapshots: Pool,
    health: Mutex<Reachability>,
}

#[derive(Default)]
struct Reachability {
    /// Connecting failed and has not succeeded since.
    down: bool,
    /// A task is probing the node.
    watched: bool,
}

/// A connection that is closed when dropped, unless [`Session::release`] returns it to its pool.
pub(super) struct Session {
    object: Option<Object>,
    /// Held by sessions that write.
    _permit: Option<OwnedSemaphorePermit>,
    pools: Arc<Pools>,
    warnings: Arc<AtomicU64>,
    reply_timeout: Duration,
    taken: Instant,
    silent: AtomicBool,
}

/// A connector that counts the server's warnings: a COMMIT whose wait for a standby was cancelled succeeds with one.
struct WarningCounter<T> {
    hosts: Arc<Hosts>,
    tls: T,
    warnings: Arc<AtomicU64>,
}

impl<T> Connect for WarningCounter<T>
where
    T: MakeTlsConnect<Socket> + Clone + Sync + Send + 'static,
    T::Stream: Sync + Send,
    T::TlsConnect: Sync + Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        let warnings = Arc::clone(&self.warnings);
        Box::pin(async move {
            let (client, mut connection) = self.hosts.connect(&self.tls).await?;
            let task = task::spawn("database connection", async move {
                // Messages arrive in server order, so the warning is counted before the reply to COMMIT is seen.
                while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                    match message {
                        Ok(AsyncMessage::Notice(notice)) => {
                            if notice.parsed_severity() == Some(Severity::Warning) {
                                warnings.fetch_add(1, Ordering::AcqRel);
                                tracing::warn!(message = notice.message(), "warning from the server");
                            }
                        }
                        Ok(_) => {}
                        Err(error) => {
                            tracing::debug!(%error, "a connection to the server was lost");
                            return;
                        }
                    }
                }
            });
            Ok((client, task))
        })
    }
}

impl Node {
    pub(super) fn new(config: &Config, options: &PostgresOptions, tls: Option<&Tls>) -> Result<Self, String> {
        let warnings = Arc::new(AtomicU64::new(0));
        let hosts = Arc::new(Hosts::new(config));
        let pool = |size: usize| {
            // Fast: no test query when a connection is reused. A dead one costs the request a retry, a test would
            // cost every request a round trip.
            let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let config = config.clone();
            let (hosts, warnings) = (Arc::clone(&hosts), Arc::clone(&warnings));
            let manager = match tls {
                Some(tls) => Manager::from_connect(
                    config,
                    WarningCounter { hosts, tls: tls.clone(), warnings },
                    recycling,
                ),
                None => {
                    Manager::from_connect(config, WarningCounter { hosts, tls: NoTls, warnings }, recycling)
                }
            };
            // LIFO: few server processes then do all the work, and their caches stay warm.
            let builder = Pool::builder(manager).max_size(size).queue_mode(QueueMode::Lifo);
            builder
                .runtime(Runtime::Tokio1)
                .wait_timeout(Some(CONNECTION_TIMEOUT))
                .create_timeout(Some(CONNECTION_TIMEOUT))
                .build()
                .map_err(|error| format!("cannot create the connection pool: {error}"))
        };
        let (requests, snapshots) = (pool(options.connections_max)?, pool(options.connections_max)?);
        let writing = Arc::new(Semaphore::new(options.writing_max()));
        let pools = Arc::new(Pools { requests, writing, snapshots, health: Mutex::default() });
        Ok(Self { hosts, pools, warnings, reply_timeout: options.reply_timeout })
    }

    pub(super) async fn session(&self) -> Result<Session, ServerError> {
        self.take(&self.pools.requests, None).await
    }

    /// A connection for a transaction that writes; some connections stay reserved for reads.
    pub(super) async fn writing_session(&self) -> Result<Session, ServerError> {
        let turn = Arc::clone(&self.pools.writing).acquire_owned();
        let permit = match tokio::time::timeout(CONNECTION_TIMEOUT, turn).await {
            // The semaphore is never closed, so `ok()` always has a permit.
            Ok(permit) => permit.ok(),
            Err(_) => return Err(PoolError::Timeout(TimeoutType::Wait).into()),
        };
        self.take(&self.pools.requests, permit).await
    }

    pub(super) async fn snapshot_session(&self) -> Result<Session, ServerError> {
        self.take(&self.pools.snapshots, None).await
    }

    async fn take(&self, pool: &Pool, permit: Option<OwnedSemaphorePermit>) -> Result<Session, ServerError> {
        match pool.get().await {
            Ok(object) => {
                // A connection counts as proof that the node is reachable; requests need not
                // wait for the probe to find out.
                self.pools.health.lock().down = false;
                Ok(self.session_of(object, permit))
            }
            Err(error) => {
                // Waiting too long for a free connection says that the pool is busy, not that the node is down.
                if matches!(error, PoolError::Backend(_) | PoolError::Timeout(TimeoutType::Create)) {
                    self.pools.mark_down();
                }
                Err(error.into())
            }
        }
    }

    /// For connections outside the pools.
    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Whether the node is unreachable at present.
    pub(super) fn is_down(&self) -> bool {
        self.pools.health.lock().down
    }

    /// Like [`Node::session`], but with the pool's own error and without marking the node as down.
    pub(super) async fn connect_once(&self) -> Result<Session, deadpool_postgres::PoolError> {
        Ok(self.session_of(self.pools.requests.get().await?, None))
    }

    fn session_of(&self, object: Object, permit: Option<OwnedSemaphorePermit>) -> Session {
        Session {
            object: Some(object),
            _permit: permit,
            pools: Arc::clone(&self.pools),
            warnings: Arc::clone(&self.warnings),
            reply_timeout: self.reply_timeout,
            taken: monotonic::now(),
            silent: AtomicBool::new(false),
        }
    }

    pub(super) fn close(&self) {
        self.pools.requests.close();
        self.pools.snapshots.close();
    }
}

impl Pools {
    /// Marks the node as unreachable and probes it in the background, so that no request waits for a silent node while
    /// another one can serve it.
    fn mark_down(self: &Arc<Self>) {
        // One probe per node, however many requests find it down at the same time.
        let mut health = self.health.lock();
        health.down = true;
        if !health.watched {
            health.watched = true;
            drop(task::spawn("probe a node", watch(Arc::downgrade(self))));
        }
    }
}

/// Probes the node until it is reachable or its pools are closed.
async fn watch(pools: Weak<Pools>) {
    loop {
        task::sleep(PROBE_INTERVAL).await;
        // The store has been dropped.
        let Some(pool) = pools.upgrade().map(|pools| pools.requests.clone()) else { return };
        if pool.is_closed() {
            return;
        }
        // No strong reference is held during the attempt, so that closing the store does not wait for it.
        let is_back = pool.get().await.is_ok();
        let Some(pools) = pools.upgrade() else { return };
        let mut health = pools.health.lock();
        // A request may have succeeded during the attempt; never turn its verdict back.
        health.down &= !is_back;
        if !health.down {
            health.watched = false;
            return;
        }
    }
}

impl Session {
    /// Returns the connection to its pool. Only valid between transactions.
    pub(super) fn release(mut self) {
        // Dropping the pooled object puts the connection back; `Drop` below then finds nothing to close.
        drop(self.object.take());
    }

    /// Warnings counted so far, over all connections to the node.
    pub(super) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Acquire)
    }

    /// Runs one prepared statement with a timeout.
    pub(super) async fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, ServerError> {
        self.within_timeout(self.query_untimed(sql, parameters)).await?
    }

    /// Like [`Session::query`], without a timeout.
    pub(super) async fn query_untimed(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, ServerError> {
        let statement = self.prepare_cached(sql).await?;
        let client: &tokio_postgres::Client = self;
        Ok(client.query(&statement, parameters).await?)
    }

    pub(super) async fn run(&self, sql: &str) -> Result<(), ServerError> {
        self.within_timeout(self.run_untimed(sql)).await?
    }

    pub(super) async fn run_untimed(&self, sql: &str) -> Result<(), ServerError> {
        Ok(self.batch_execute(sql).await?)
    }

    /// Applies the reply timeout. The server has shorter timeouts of its own, so one that does not reply counts as lost.
    pub(super) async fn within_timeout<T>(&self, reply: impl Future<Output = T>) -> Result<T, ServerError> {
        tokio::time::timeout(self.reply_timeout, reply).await.map_err(|_| {
            self.silent.store(true, Ordering::Relaxed);
            ServerError::Lost("the server did not reply in time".to_owned())
        })
    }
}

impl Deref for Session {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        self.object.as_ref().expect("a session has its connection until it is released")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            // Not released: the request failed or was cancelled, so the connection may be in a transaction and is closed.
            let silent =
                self.silent.load(Ordering::Relaxed) || monotonic::elapsed(self.taken) >= SILENT_AFTER;
            if silent || object.is_closed() {
                self.pools.requests.retain(|_, _| false);
                self.pools.snapshots.retain(|_, _| false);
            }
            // Taken out of the pool, so that dropping it closes the connection and the server rolls back.
            drop(Object::take(object));
        }
    }
}
