//! What the tests of the database share: a clock that only they move, randomness that a seed repeats, and
//! databases on both stores of this process.

pub mod env;
pub mod faulty;
pub mod raw;
pub mod script;

use std::sync::Arc;

use bytes::Bytes;
use orrery_db::{BatchKind, BatchOperation, Database, FeedScope, ItemOptions, Options, PageRequest, Receipt};
use orrery_model::offer::Throughput;
use orrery_model::partition_key::PartitionKey;
use orrery_model::{Result, Value};
use orrery_storage::{Embedded, EmbeddedOptions, Memory, PartitionStore, Postgres, PostgresOptions};
use tempfile::TempDir;

pub use env::TestEnv;
pub use script::{Script, check};

/// The database and the container that most tests work in.
pub const DATABASE: &str = "db";
pub const CONTAINER: &str = "items";
pub const PLACE: (&str, &str) = (DATABASE, CONTAINER);

/// A partition key definition with one path, as most clients send it.
pub const BY_PK: &str = r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}"#;

/// Which store a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Memory,
    Embedded,
}

pub const ENGINES: [Engine; 2] = [Engine::Memory, Engine::Embedded];

/// A running database and what it runs on.
pub struct World {
    pub env: Arc<TestEnv>,
    pub database: Arc<Database>,
    pub store: Arc<dyn PartitionStore>,
    options: Options,
    directory: Option<TempDir>,
}

/// Background work is done when a test asks for it.
pub fn quiet_options() -> Options {
    Options { sweep_interval_ms: 24 * 3_600_000, ..Options::default() }
}

impl World {
    pub async fn memory() -> Self {
        Self::open(Engine::Memory, quiet_options()).await
    }

    /// A database whose containers have this many partitions.
    pub async fn with_partitions(engine: Engine, count: u32) -> Self {
        Self::open(engine, Options { partitions_at_creation: Some(count), ..quiet_options() }).await
    }

    pub async fn open(engine: Engine, options: Options) -> Self {
        let directory = (engine == Engine::Embedded).then(|| TempDir::new().unwrap());
        let store: Arc<dyn PartitionStore> = match &directory {
            None => open_transient().await,
            Some(directory) => Arc::new(open_embedded(directory)),
        };
        Self::start(store, options, directory).await
    }

    /// A database on a store that the test keeps a hand on.
    pub async fn on(store: Arc<dyn PartitionStore>, options: Options) -> Self {
        Self::start(store, options, None).await
    }

    /// One of several databases on a PostgreSQL store, each with randomness of its own.
    pub async fn on_postgres(url: &str, options: Options, seed: u64) -> Self {
        let (store, env) = (open_postgres(url).await, Arc::new(TestEnv::new(seed)));
        let database = Database::open(Arc::clone(&store), env.clone(), options.clone()).await.unwrap();
        Self { env, database, store, options, directory: None }
    }

    async fn start(store: Arc<dyn PartitionStore>, options: Options, directory: Option<TempDir>) -> Self {
        let env = Arc::new(TestEnv::new(7));
        let database = Database::open(Arc::clone(&store), env.clone(), options.clone()).await.unwrap();
        Self { env, database, store, options, directory }
    }

    /// Ends the database and opens it again in the same store. The memory store itself lives on.
    pub async fn restart(self) -> Self {
        self.restart_with(|_| ()).await
    }

    pub async fn restart_with(self, change: impl FnOnce(&mut Options)) -> Self {
        let Self { env, database, store, mut options, directory } = self;
        change(&mut options);
        let store: Arc<dyn PartitionStore> = match &directory {
            None => store,
            Some(directory) => {
                database.close().await.unwrap();
                drop((database, store));
                Arc::new(open_embedded(directory))
            }
        };
        let database = Database::open(Arc::clone(&store), env.clone(), options.clone()).await.unwrap();
        Self { env, database, store, options, directory }
    }

    /// Makes the container of most tests, with this partition key and whatever else is given.
    pub async fn create_container(&self, members: &str) -> Value {
        let mut receipt = Receipt::default();
        let body = format!(r#"{{"id":"{DATABASE}"}}"#);
        // A test may make a second container in the same database.
        drop(self.database.create_database(&mut receipt, body.as_bytes(), None).await);
        self.create_named(CONTAINER, members, None).await.unwrap()
    }

    pub async fn create_named(
        &self,
        id: &str,
        members: &str,
        throughput: Option<Throughput>,
    ) -> Result<Value> {
        let body = format!(r#"{{"id":"{id}",{members}}}"#);
        let mut receipt = Receipt::default();
        let reply =
            self.database.create_container(&mut receipt, DATABASE, body.as_bytes(), throughput).await?;
        Ok(reply.value)
    }

    /// Replaces the definition of the container of most tests.
    pub async fn replace_container(&self, members: &str) -> Result<Value> {
        let body = format!(r#"{{"id":"{CONTAINER}",{members}}}"#);
        let mut receipt = Receipt::default();
        let reply = self.database.replace_container(&mut receipt, PLACE, body.as_bytes(), None).await?;
        Ok(reply.value)
    }

    /// Creates an item whose key is its own `pk`.
    pub async fn create(&self, body: &str) -> Value {
        let mut receipt = Receipt::default();
        let body = Bytes::copy_from_slice(body.as_bytes());
        let reply = self.database.create_item(&mut receipt, PLACE, &ItemOptions::default(), &body).await;
        parse(&reply.unwrap().document())
    }

    /// All items of a scope, in pages of this size, by the read feed.
    /// Writes a version of an item of two properties, whether it is there or not.
    pub async fn write_version(&self, pk: &str, id: &str, version: u32) {
        let body = Bytes::from(format!(r#"{{"id":"{id}","pk":"{pk}","version":{version}}}"#));
        let options = with_key(&format!(r#"["{pk}"]"#));
        self.database.upsert_item(&mut Receipt::default(), PLACE, &options, &body).await.unwrap();
    }

    pub async fn delete(&self, pk: &str, id: &str) {
        let options = with_key(&format!(r#"["{pk}"]"#));
        self.database
            .delete_item(&mut Receipt::default(), (DATABASE, CONTAINER, id), &options)
            .await
            .unwrap();
    }

    pub async fn delete_key(&self, pk: &str) {
        let options = with_key(&format!(r#"["{pk}"]"#));
        self.database.delete_by_partition_key(&mut Receipt::default(), PLACE, &options).await.unwrap();
    }

    pub async fn feed(&self, scope: &FeedScope, page_size: i64) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        let mut continuation = None;
        loop {
            let page = self.feed_page(scope, page_size, continuation).await?;
            assert!(page.0.len() <= usize::try_from(page_size).unwrap_or(usize::MAX));
            items.extend(page.0);
            continuation = page.1;
            if continuation.is_none() {
                return Ok(items);
            }
        }
    }

    pub async fn feed_page(
        &self,
        scope: &FeedScope,
        page_size: i64,
        continuation: Option<String>,
    ) -> Result<(Vec<Value>, Option<String>)> {
        let request = PageRequest { items_max: Some(page_size), continuation };
        let mut receipt = Receipt::default();
        let page = self.database.read_items(&mut receipt, PLACE, None, scope, None, &request).await?;
        let text = [b"[", page.documents.as_slice(), b"]"].concat();
        let items = parse(&text).as_array().unwrap().to_vec();
        assert_eq!(items.len(), page.count);
        Ok((items, page.continuation))
    }

    /// Items and bytes of all partitions together.
    pub async fn usage(&self) -> (u64, u64) {
        let usages = self.database.container_usage(DATABASE, CONTAINER).await.unwrap();
        usages.iter().fold((0, 0), |(items, bytes), (_, usage)| (items + usage.items, bytes + usage.bytes))
    }
}

/// The memory store or, where `ORRERY_TEST_STORE_URL` names a PostgreSQL server, a schema of its own there.
async fn open_transient() -> Arc<dyn PartitionStore> {
    if is_on_postgres() {
        return open_postgres(&orrery_testing::fresh_store_url()).await;
    }
    Arc::new(Memory::new())
}

pub fn is_on_postgres() -> bool {
    std::env::var("ORRERY_TEST_STORE_URL").is_ok_and(|url| !url.is_empty())
}

pub async fn open_postgres(url: &str) -> Arc<dyn PartitionStore> {
    let mut options = PostgresOptions::parse(url).unwrap();
    options.connections_max = 8;
    // On a busy machine five seconds are too few for a script of 500 writes; what the age is for has its own test.
    options.limits.snapshot_age_max = std::time::Duration::from_mins(1);
    Arc::new(Postgres::open(options).await.unwrap())
}

fn open_embedded(directory: &TempDir) -> Embedded {
    Embedded::open(directory.path(), EmbeddedOptions::default()).unwrap()
}

pub fn parse(text: &[u8]) -> Value {
    orrery_model::value::parse(text).unwrap()
}

pub fn key(header: &str) -> PartitionKey {
    PartitionKey::parse_json(header.as_bytes()).unwrap()
}

/// The options of a request with this partition key header.
pub fn with_key(header: &str) -> ItemOptions {
    ItemOptions { partition_key: Some(key(header)), ..ItemOptions::default() }
}

/// The ids of items or rows, in order.
/// One operation of a batch, without conditions.
pub fn operation(kind: BatchKind, id: &str, body: Option<&str>) -> BatchOperation {
    BatchOperation {
        kind,
        id: Some(id.to_owned()),
        body: body.map(|body| Bytes::copy_from_slice(body.as_bytes())),
        if_match: None,
        if_none_match: None,
        partition_key: None,
    }
}

pub fn ids(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item.get("id").and_then(Value::as_str).unwrap()).collect()
}

/// The whole container.
pub fn everything() -> FeedScope {
    FeedScope::default()
}

/// The item without what the server adds.
pub fn user_part(item: &Value) -> Value {
    let mut item = item.clone();
    let object = item.as_object_mut().unwrap();
    for name in ["_rid", "_self", "_etag", "_attachments", "_ts"] {
        assert!(object.remove(name).is_some(), "the item lacks {name}");
    }
    item
}
