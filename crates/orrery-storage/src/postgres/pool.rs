//! Connections. Each belongs to whoever has it; one that may hold an open transaction is never given back.
//!
//! One that breaks, or over which no answer comes, says that the others to the same node may be dead without knowing
//! it, as when a machine loses its power: those that nobody uses are closed, so that the next request connects anew and
//! finds out.

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

use super::connect::Hosts;
use super::fault::Fault;
use super::options::PostgresOptions;
use super::tls::Tls;
use crate::contract::BoxFuture;

/// How long to wait for a free connection or a new one.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether a node that could not be connected to is back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A connection that was given up after so long was waiting for an answer.
const SILENT_AFTER: Duration = Duration::from_secs(10);

pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The connections to one node.
pub(super) struct Node {
    hosts: Arc<Hosts>,
    pools: Arc<Pools>,
    /// Warnings that the server has sent over any of them.
    warnings: Arc<AtomicU64>,
    answer_patience: Duration,
}

struct Pools {
    requests: Pool,
    /// So many of the requests' connections may write at once. A commit may have to wait for a standby that is away;
    /// reads must not wait with it.
    writing: Arc<Semaphore>,
    /// Snapshots and duties hold theirs for long; they must not keep reads and writes waiting.
    snapshots: Pool,
    health: Mutex<Health>,
}

#[derive(Default)]
struct Health {
    /// It could not be connected to, and nobody has succeeded since.
    down: bool,
    /// Somebody looks whether it is back.
    watched: bool,
}

/// A connection that is closed when it is dropped, unless it is given back.
pub(super) struct Session {
    object: Option<Object>,
    /// Of one that writes.
    _permit: Option<OwnedSemaphorePermit>,
    pools: Arc<Pools>,
    warnings: Arc<AtomicU64>,
    answer_patience: Duration,
    taken: Instant,
    silent: AtomicBool,
}

/// Connects, and counts the server's warnings: a COMMIT whose wait for a standby was cancelled succeeds with one.
struct Attentive<T> {
    hosts: Arc<Hosts>,
    tls: T,
    warnings: Arc<AtomicU64>,
}

impl<T> Connect for Attentive<T>
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
            let task = tokio::spawn(async move {
                // In the order in which the server sent them: the warning is counted before COMMIT is answered.
                while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                    match message {
                        Ok(AsyncMessage::Notice(notice)) => {
                            if notice.parsed_severity() == Some(Severity::Warning) {
                                warnings.fetch_add(1, Ordering::AcqRel);
                                tracing::warn!(message = notice.message(), "the server warns");
                            }
                        }
                        Ok(_) => {}
                        Err(error) => {
                            tracing::debug!(%error, "a connection to the server has ended");
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
            let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let config = config.clone();
            let (hosts, warnings) = (Arc::clone(&hosts), Arc::clone(&warnings));
            let manager = match tls {
                Some(tls) => {
                    Manager::from_connect(config, Attentive { hosts, tls: tls.clone(), warnings }, recycling)
                }
                None => Manager::from_connect(config, Attentive { hosts, tls: NoTls, warnings }, recycling),
            };
            // The one used last first: few processes of the server then do the work, with their memory at hand.
            let builder = Pool::builder(manager).max_size(size).queue_mode(QueueMode::Lifo);
            builder
                .runtime(Runtime::Tokio1)
                .wait_timeout(Some(PATIENCE))
                .create_timeout(Some(PATIENCE))
                .build()
                .map_err(|error| format!("the pool of connections cannot be made: {error}"))
        };
        let (requests, snapshots) = (pool(options.connections_max)?, pool(options.connections_max)?);
        let writing = Arc::new(Semaphore::new(options.writing_max()));
        let pools = Arc::new(Pools { requests, writing, snapshots, health: Mutex::default() });
        Ok(Self { hosts, pools, warnings, answer_patience: options.answer_patience })
    }

    pub(super) async fn session(&self) -> Result<Session, Fault> {
        self.take(&self.pools.requests, None).await
    }

    /// A connection for a transaction that writes: some are left for those who read.
    pub(super) async fn writing_session(&self) -> Result<Session, Fault> {
        let turn = Arc::clone(&self.pools.writing).acquire_owned();
        let permit = match tokio::time::timeout(PATIENCE, turn).await {
            Ok(permit) => permit.ok(),
            Err(_) => return Err(PoolError::Timeout(TimeoutType::Wait).into()),
        };
        self.take(&self.pools.requests, permit).await
    }

    pub(super) async fn snapshot_session(&self) -> Result<Session, Fault> {
        self.take(&self.pools.snapshots, None).await
    }

    async fn take(&self, pool: &Pool, permit: Option<OwnedSemaphorePermit>) -> Result<Session, Fault> {
        match pool.get().await {
            Ok(object) => {
                self.pools.health.lock().down = false;
                Ok(self.session_of(object, permit))
            }
            Err(error) => {
                if matches!(error, PoolError::Backend(_) | PoolError::Timeout(TimeoutType::Create)) {
                    self.pools.is_down();
                }
                Err(error.into())
            }
        }
    }

    /// For a connection outside of the pools.
    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Whether it could not be connected to, and is not back yet.
    pub(super) fn is_down(&self) -> bool {
        self.pools.health.lock().down
    }

    /// The same with the error as it is.
    pub(super) async fn connect_once(&self) -> Result<Session, deadpool_postgres::PoolError> {
        Ok(self.session_of(self.pools.requests.get().await?, None))
    }

    fn session_of(&self, object: Object, permit: Option<OwnedSemaphorePermit>) -> Session {
        Session {
            object: Some(object),
            _permit: permit,
            pools: Arc::clone(&self.pools),
            warnings: Arc::clone(&self.warnings),
            answer_patience: self.answer_patience,
            taken: Instant::now(),
            silent: AtomicBool::new(false),
        }
    }

    pub(super) fn close(&self) {
        self.pools.requests.close();
        self.pools.snapshots.close();
    }
}

impl Pools {
    /// Notes that it cannot be connected to. It is looked for in the background, so that no request has to wait for a
    /// node that says nothing while another one can serve.
    fn is_down(self: &Arc<Self>) {
        let mut health = self.health.lock();
        health.down = true;
        if !health.watched {
            health.watched = true;
            drop(tokio::spawn(watch(Arc::downgrade(self))));
        }
    }
}

/// Until the node is back or of no interest any more.
async fn watch(pools: Weak<Pools>) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let Some(pool) = pools.upgrade().map(|pools| pools.requests.clone()) else { return };
        if pool.is_closed() {
            return;
        }
        let is_back = pool.get().await.is_ok();
        let Some(pools) = pools.upgrade() else { return };
        let mut health = pools.health.lock();
        health.down &= !is_back;
        if !health.down {
            health.watched = false;
            return;
        }
    }
}

impl Session {
    /// Gives the connection back: it is between transactions.
    pub(super) fn release(mut self) {
        drop(self.object.take());
    }

    /// How many warnings there were, over this connection and others of its node.
    pub(super) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Acquire)
    }

    /// Runs one prepared statement.
    pub(super) async fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Fault> {
        self.answered(self.query_patiently(sql, parameters)).await?
    }

    /// The same for one that may take as long as it needs.
    pub(super) async fn query_patiently(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Fault> {
        let statement = self.prepare_cached(sql).await?;
        let client: &tokio_postgres::Client = self;
        Ok(client.query(&statement, parameters).await?)
    }

    pub(super) async fn run(&self, sql: &str) -> Result<(), Fault> {
        self.answered(self.run_patiently(sql)).await?
    }

    pub(super) async fn run_patiently(&self, sql: &str) -> Result<(), Fault> {
        Ok(self.batch_execute(sql).await?)
    }

    /// The server has limits in time of its own, so that one that does not answer is as good as gone.
    pub(super) async fn answered<T>(&self, asking: impl Future<Output = T>) -> Result<T, Fault> {
        tokio::time::timeout(self.answer_patience, asking).await.map_err(|_| {
            self.silent.store(true, Ordering::Relaxed);
            Fault::Lost("the server did not answer in time".to_owned())
        })
    }
}

impl Deref for Session {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        self.object.as_ref().expect("it is there until it is given back")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            let silent = self.silent.load(Ordering::Relaxed) || self.taken.elapsed() >= SILENT_AFTER;
            if silent || object.is_closed() {
                self.pools.requests.retain(|_, _| false);
                self.pools.snapshots.retain(|_, _| false);
            }
            drop(Object::take(object));
        }
    }
}
