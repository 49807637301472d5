//! Stores of an older version are migrated atomically, by the first process that opens them.

use orrery_storage::PostgresError;

use super::*;
use crate::suite::{PARTITION, get, put};

/// What the migrations change: the storage settings of the large table.
const SETTINGS: &str = "SELECT array_to_string(c.reloptions, ' ') FROM pg_class c \
     JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'kv' AND n.nspname = $1";

const VERSION: &str = "SELECT value FROM meta WHERE name = 'schema_version'";

async fn connect() -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(&orrery_testing::store_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A store of version 1 with one entry in [`PARTITION`], and a connection with its schema in the search path.
async fn version_1() -> (String, tokio_postgres::Client) {
    let url = orrery_testing::fresh_store_url();
    let admin = connect().await;
    let extensions = admin.query("SELECT 1 FROM pg_extension WHERE extname = 'citus'", &[]).await.unwrap();
    let spread = if extensions.is_empty() {
        ""
    } else {
        "\nSELECT create_distributed_table('part', 'part', shard_count := 8, colocate_with := 'none');
         SELECT create_distributed_table('kv', 'part', colocate_with := 'part');
         SELECT create_reference_table('meta'); SELECT create_reference_table('member');"
    };
    let number = PARTITION.id.0;
    let fixture = include_str!("version-1.sql")
        .replace("-- :spread", spread)
        .replace(":schema", orrery_testing::schema_of(&url))
        .replace(":part", &number.to_string())
        .replace(":key", &format!("decode('{number:08x}', 'hex') || 'old'::bytea"));
    admin.batch_execute(&fixture).await.unwrap();
    (url, admin)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_store_is_migrated() {
    let (url, admin) = version_1().await;
    let schema = orrery_testing::schema_of(&url);
    let before = admin.query_one(SETTINGS, &[&schema]).await.unwrap().get::<_, Option<String>>(0);
    assert_eq!(before, None, "the fixture is not of version 1");
    let status = Postgres::status(&PostgresOptions::parse(&url).unwrap()).await.unwrap();
    assert!(status.schema_version == 1 && status.schema_version_known > 1, "{status:?}");
    // Several at once: one migrates, the others find it done.
    let openings = (0..4).map(|_| {
        let url = url.clone();
        tokio::spawn(
            async move { Postgres::initialise(&PostgresOptions::parse(&url).unwrap()).await.unwrap() },
        )
    });
    let mut found = Vec::new();
    for opening in openings.collect::<Vec<_>>() {
        let (before, after) = opening.await.unwrap();
        assert_eq!(after, status.schema_version_known);
        found.push(before);
    }
    found.sort_unstable();
    let newest = status.schema_version_known;
    assert_eq!(found, [1, newest, newest, newest]);
    assert_eq!(admin.query_one(VERSION, &[]).await.unwrap().get::<_, String>(0), newest.to_string());
    let after = admin.query_one(SETTINGS, &[&schema]).await.unwrap().get::<_, Option<String>>(0);
    assert!(after.is_some_and(|settings| settings.contains("autovacuum_vacuum_insert_scale_factor=0.05")));
    // The data is still there, and LSNs continue.
    let store = open(&url, Limits::COMMON);
    assert_eq!(get(&store, b"old").await.unwrap()[..], b"from version 1"[..]);
    assert_eq!(put(&store, b"new", b"value").await, 8);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_migrates_an_older_store() {
    let (url, admin) = version_1().await;
    let store = open(&url, Limits::COMMON);
    assert_eq!(get(&store, b"old").await.unwrap()[..], b"from version 1"[..]);
    assert_ne!(admin.query_one(VERSION, &[]).await.unwrap().get::<_, String>(0), "1");
    store.close().await.unwrap();
}

/// A user who may write but not change tables gets a clear error, and the store stays unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_migration_changes_nothing() {
    let (url, admin) = version_1().await;
    let schema = orrery_testing::schema_of(&url);
    let user = format!("writer_{schema}");
    admin
        .batch_execute(&format!(
            "CREATE ROLE {user} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {user}; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {user}"
        ))
        .await
        .unwrap();
    let poor = url.replacen("postgres@", &format!("{user}@"), 1);
    let error = Postgres::open(PostgresOptions::parse(&poor).unwrap()).await.err().expect("it is refused");
    assert!(matches!(error, PostgresError::MissingRight { .. }), "{error}");
    assert!(error.to_string().contains("orrery store init"), "{error}");
    assert_eq!(admin.query_one(VERSION, &[]).await.unwrap().get::<_, String>(0), "1");
    // Once a privileged user has migrated it, that user can serve.
    Postgres::initialise(&PostgresOptions::parse(&url).unwrap()).await.unwrap();
    let store = Postgres::open(PostgresOptions::parse(&poor).unwrap()).await.unwrap();
    let store: Arc<dyn PartitionStore> = Arc::new(store);
    assert_eq!(put(&store, b"new", b"value").await, 8);
    store.close().await.unwrap();
    admin.batch_execute(&format!("DROP OWNED BY {user}; DROP ROLE {user}")).await.unwrap();
}
