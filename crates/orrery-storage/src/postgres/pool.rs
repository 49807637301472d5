//! Connections. Each belongs to whoever has it; one that may hold an open transaction is never given back.

use std::ops::Deref;
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::{Config, NoTls, Row, types::ToSql};

use super::fault::Fault;
use super::options::PostgresOptions;
use super::tls::Tls;

/// How long to wait for a free connection or a new one.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The connections to one node.
pub(super) struct Node {
    requests: Pool,
    /// Snapshots and duties hold theirs for long; they must not keep reads and writes waiting.
    snapshots: Pool,
}

/// A connection that is closed when it is dropped, unless it is given back.
pub(super) struct Session(Option<Object>);

impl Node {
    pub(super) fn new(config: &Config, options: &PostgresOptions, tls: Option<&Tls>) -> Result<Self, String> {
        let pool = |size: usize| {
            let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let manager = match tls {
                Some(tls) => Manager::from_config(config.clone(), tls.clone(), recycling),
                None => Manager::from_config(config.clone(), NoTls, recycling),
            };
            let builder = Pool::builder(manager).max_size(size).runtime(Runtime::Tokio1);
            builder
                .wait_timeout(Some(PATIENCE))
                .create_timeout(Some(PATIENCE))
                .build()
                .map_err(|error| format!("the pool of connections cannot be made: {error}"))
        };
        Ok(Self { requests: pool(options.connections_max)?, snapshots: pool(options.connections_max)? })
    }

    pub(super) async fn session(&self) -> Result<Session, Fault> {
        Ok(Session(Some(self.requests.get().await?)))
    }

    pub(super) async fn snapshot_session(&self) -> Result<Session, Fault> {
        Ok(Session(Some(self.snapshots.get().await?)))
    }

    /// The same with the error as it is.
    pub(super) async fn connect_once(&self) -> Result<Session, deadpool_postgres::PoolError> {
        Ok(Session(Some(self.requests.get().await?)))
    }

    pub(super) fn close(&self) {
        self.requests.close();
        self.snapshots.close();
    }
}

impl Session {
    /// Gives the connection back: it is between transactions.
    pub(super) fn release(mut self) {
        drop(self.0.take());
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
        self.0.as_ref().expect("it is there until it is given back")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}
