//! Connections. Each belongs to whoever has it; one that may hold an open transaction is never given back.

use std::future::poll_fn;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use deadpool_postgres::{
    ClientWrapper, Connect, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
    TimeoutType,
};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_postgres::error::Severity;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, Row, Socket, types::ToSql};

use super::fault::Fault;
use super::options::PostgresOptions;
use super::tls::Tls;
use crate::contract::BoxFuture;

/// How long to wait for a free connection or a new one.
const PATIENCE: Duration = Duration::from_secs(5);
/// A node that refused a connection is not asked again for so long if another one can serve.
const DOWN_FOR: Duration = Duration::from_secs(2);

pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The connections to one node.
pub(super) struct Node {
    config: Config,
    requests: Pool,
    /// Snapshots and duties hold theirs for long; they must not keep reads and writes waiting.
    snapshots: Pool,
    /// Warnings that the server has sent over any of them.
    warnings: Arc<AtomicU64>,
    /// When it last could not be connected to.
    down_since: Mutex<Option<Instant>>,
}

/// A connection that is closed when it is dropped, unless it is given back.
pub(super) struct Session {
    object: Option<Object>,
    warnings: Arc<AtomicU64>,
}

/// Connects, and counts the server's warnings: a COMMIT whose wait for a standby was cancelled succeeds with one.
struct Attentive<T> {
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
    fn connect(&self, config: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        let (config, tls, warnings) = (config.clone(), self.tls.clone(), Arc::clone(&self.warnings));
        Box::pin(async move {
            let (client, mut connection) = config.connect(tls).await?;
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
        let pool = |size: usize| {
            let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let config = config.clone();
            let warnings = Arc::clone(&warnings);
            let manager = match tls {
                Some(tls) => {
                    Manager::from_connect(config, Attentive { tls: tls.clone(), warnings }, recycling)
                }
                None => Manager::from_connect(config, Attentive { tls: NoTls, warnings }, recycling),
            };
            let builder = Pool::builder(manager).max_size(size).runtime(Runtime::Tokio1);
            builder
                .wait_timeout(Some(PATIENCE))
                .create_timeout(Some(PATIENCE))
                .build()
                .map_err(|error| format!("the pool of connections cannot be made: {error}"))
        };
        let (requests, snapshots) = (pool(options.connections_max)?, pool(options.connections_max)?);
        Ok(Self { config: config.clone(), requests, snapshots, warnings, down_since: Mutex::default() })
    }

    pub(super) async fn session(&self) -> Result<Session, Fault> {
        self.take(&self.requests).await
    }

    pub(super) async fn snapshot_session(&self) -> Result<Session, Fault> {
        self.take(&self.snapshots).await
    }

    async fn take(&self, pool: &Pool) -> Result<Session, Fault> {
        match pool.get().await {
            Ok(object) => {
                *self.down_since.lock() = None;
                Ok(self.session_of(object))
            }
            Err(error) => {
                if matches!(error, PoolError::Backend(_) | PoolError::Timeout(TimeoutType::Create)) {
                    *self.down_since.lock() = Some(Instant::now());
                }
                Err(error.into())
            }
        }
    }

    /// For a connection outside of the pools.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Whether it could not be connected to a moment ago.
    pub(super) fn is_down(&self) -> bool {
        self.down_since.lock().is_some_and(|since| since.elapsed() < DOWN_FOR)
    }

    /// The same with the error as it is.
    pub(super) async fn connect_once(&self) -> Result<Session, deadpool_postgres::PoolError> {
        Ok(self.session_of(self.requests.get().await?))
    }

    fn session_of(&self, object: Object) -> Session {
        Session { object: Some(object), warnings: Arc::clone(&self.warnings) }
    }

    pub(super) fn close(&self) {
        self.requests.close();
        self.snapshots.close();
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
        let statement = self.prepare_cached(sql).await?;
        let client: &tokio_postgres::Client = self;
        Ok(client.query(&statement, parameters).await?)
    }

    pub(super) async fn run(&self, sql: &str) -> Result<(), Fault> {
        Ok(self.batch_execute(sql).await?)
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
            drop(Object::take(object));
        }
    }
}
