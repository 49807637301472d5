//! The statements sent to the server: how many, with which plans, within which limits. Checked in the server's log.

use std::time::{Duration, Instant};

use orrery_storage::{
    CommitError, Decision, Direction, Entry, KeyRange, PartitionId, PartitionRef, ReadRequest, Scan,
    Snapshot, StoreError, Tally, TallyBy, Want, WriteSet,
};
use orrery_testing::{Server, wait};

use super::*;
use crate::suite::{PARTITION, op, put, run};

/// Logs every statement with its plan.
const TALKATIVE: &str = "options=-c%20log_statement%3Dall%20-c%20session_preload_libraries%3Dauto_explain%20\
     -c%20auto_explain.log_min_duration%3D0%20-c%20auto_explain.log_analyze%3Don%20-c%20auto_explain.log_timing%3Doff";

struct Watched {
    server: Server,
    store: Arc<dyn PartitionStore>,
}

impl Watched {
    async fn open() -> Self {
        let server = Server::start();
        let url = format!("{}?schema=watched&{TALKATIVE}", server.url());
        let store = Postgres::open(PostgresOptions::parse(&url).unwrap()).await.unwrap();
        let store: Arc<dyn PartitionStore> = Arc::new(store);
        store.create(PARTITION.id, 0).await.unwrap();
        Self { server, store }
    }

    /// What the server logged during the work.
    async fn log_of(&self, work: impl Future<Output = ()>) -> String {
        let before = self.server.log().len();
        work.await;
        // The server process writes the log before it replies.
        self.server.log()[before..].to_owned()
    }
}

/// Statements that the store sends by itself, once after opening and once per connection.
const BACKGROUND: [&str; 5] = ["LISTEN ", "SHOW ", " member", "epoch < 0", "xffffffff"];

/// The statements in the log, without their parameters.
fn statements(log: &str) -> Vec<&str> {
    let said = |line: &'_ str| -> Option<usize> {
        let marks = ["LOG:  execute ", "LOG:  statement: "];
        marks.iter().find_map(|mark| line.find(mark).map(|at| at + mark.len()))
    };
    let all = log.lines().filter_map(|line| said(line).map(|at| &line[at..]));
    all.filter(|text| !BACKGROUND.iter().any(|own| text.contains(own))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_one_statement_and_writes_a_few() {
    let watched = Watched::open().await;
    let store = &watched.store;
    put(store, b"key", b"value").await;
    let get = |keys: &[&[u8]]| ReadRequest::Get(keys.iter().map(|key| key.to_vec()).collect());
    // Run once first, so that the statements are prepared.
    store.read(PARTITION, get(&[b"key"])).await.unwrap();
    let log = watched
        .log_of(async {
            for _ in 0..10 {
                let page = store.read(PARTITION, get(&[b"key"])).await.unwrap();
                assert_eq!((page.lsn, page.values[0].as_deref()), (1, Some(&b"value"[..])));
            }
        })
        .await;
    let said = statements(&log);
    assert_eq!(said.len(), 10, "a point read is one statement: {said:#?}");
    // The same for several keys and for a page.
    let scan = |want: Want| ReadRequest::Scan(Scan { want, ..Scan::forward(KeyRange::all(), 100) });
    let requests = [get(&[b"key", b"other"]), scan(Want::Keys), scan(Want::KeysAndValues)];
    for request in requests {
        store.read(PARTITION, request.clone()).await.unwrap();
        let log = watched.log_of(async { drop(store.read(PARTITION, request).await.unwrap()) }).await;
        assert_eq!(statements(&log).len(), 1, "{:#?}", statements(&log));
    }
    // The same for a count and for reads from several partitions.
    let tally =
        |by| ReadRequest::Tally(Tally { range: KeyRange::all(), by, entries_max: 100, runs_max: 100 });
    for by in [TallyBy::Range, TallyBy::Beginning(|key| key.len().min(1))] {
        store.read(PARTITION, tally(by)).await.unwrap();
        let log = watched.log_of(async { drop(store.read(PARTITION, tally(by)).await.unwrap()) }).await;
        assert_eq!(statements(&log).len(), 1, "{:#?}", statements(&log));
    }
    let other = PartitionRef { id: PartitionId(PARTITION.id.0 + 1), epoch: 0 };
    store.create(other.id, 0).await.unwrap();
    let reads = || vec![(PARTITION, get(&[b"key"])), (other, get(&[b"key"])), (other, scan(Want::Keys))];
    store.read_each(reads()).await;
    let log = watched
        .log_of(async {
            let pages = store.read_each(reads()).await;
            let values: Vec<_> = pages.into_iter().map(|page| page.unwrap().values.len()).collect();
            assert_eq!(values, [1, 1, 0]);
        })
        .await;
    assert_eq!(statements(&log).len(), 1, "{:#?}", statements(&log));
    // A write: BEGIN, lock and LSN, read; then write and COMMIT.
    let change = || {
        op(&[b"key"], |view, _| {
            let mut writes = WriteSet::default();
            writes.put(b"key".to_vec(), [&view.get(b"key").unwrap()[..], b"+"].concat());
            Decision::Write(writes, ())
        })
    };
    run(store, change()).await.unwrap();
    let log = watched.log_of(async { assert_eq!(run(store, change()).await.unwrap().lsn, 3) }).await;
    let said = statements(&log);
    let verbs: Vec<&str> = said
        .iter()
        .map(|text| text.rsplit_once(": ").map_or(*text, |(_, sql)| sql))
        .map(|sql| sql.split_whitespace().next().unwrap_or_default())
        .collect();
    assert_eq!(verbs, ["BEGIN", "UPDATE", "SELECT", "INSERT", "COMMIT"], "{said:#?}");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_use_the_primary_key_and_key_scans_only_the_index() {
    let watched = Watched::open().await;
    let store = &watched.store;
    let entries = (0..2000_u32)
        .map(|number| Entry { key: number.to_be_bytes().to_vec(), value: vec![7; 600].into() })
        .collect();
    let log = watched.log_of(async { store.bulk_load(PARTITION, entries).await.unwrap() }).await;
    assert!(statements(&log).iter().any(|text| text.contains("COPY kv")), "{:#?}", statements(&log));
    let (admin, connection) =
        tokio_postgres::connect(watched.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let middle = KeyRange::new(500_u32.to_be_bytes().to_vec(), 900_u32.to_be_bytes().to_vec());
    for direction in [Direction::Forward, Direction::Backward] {
        for (want, plan) in [(Want::Keys, "Index Only Scan"), (Want::KeysAndValues, "Index Scan")] {
            let scan = Scan { want, direction, ..Scan::forward(middle.clone(), 100) };
            let began = Instant::now();
            let log = loop {
                // An index-only scan works for pages that a vacuum has marked as all-visible.
                admin.batch_execute("VACUUM watched.kv").await.unwrap();
                let log = watched
                    .log_of(async {
                        let page = store.read(PARTITION, ReadRequest::Scan(scan.clone())).await.unwrap();
                        assert_eq!((page.entries.len(), page.more), (100, true));
                    })
                    .await;
                if want == Want::KeysAndValues || log.contains("Heap Fetches: 0") {
                    break log;
                }
                assert!(began.elapsed() < Duration::from_secs(30), "{log}");
            };
            let way = if direction == Direction::Forward { " using" } else { " Backward using" };
            assert!(log.contains(&format!("{plan}{way} kv_pkey on kv")), "{want:?} {direction:?}:\n{log}");
            assert!(!log.contains("Seq Scan") && !log.contains("Bitmap"), "{log}");
            // Neither reads beyond the page.
            let read = log.lines().find(|line| line.contains("on kv")).unwrap();
            assert!(read.contains("rows=101 loops=1"), "{read}");
        }
    }
    // Several reads in one statement are looked up one by one.
    let scan = |direction| {
        let scan = Scan { want: Want::Keys, direction, ..Scan::forward(middle.clone(), 10) };
        (PARTITION, ReadRequest::Scan(scan))
    };
    let get = ReadRequest::Get((500_u32..520).map(|number| number.to_be_bytes().to_vec()).collect());
    let reads = vec![scan(Direction::Forward), scan(Direction::Backward), (PARTITION, get)];
    let log = watched
        .log_of(async {
            for (page, count) in store.read_each(reads).await.into_iter().zip([10, 10, 20]) {
                let page = page.unwrap();
                assert_eq!(page.entries.len() + page.values.into_iter().flatten().count(), count);
            }
        })
        .await;
    assert!(log.contains("Backward using kv_pkey on kv"), "{log}");
    assert!(!log.contains("Seq Scan on kv") && !log.contains("Bitmap"), "{log}");
    let read = op(&[b"new"], |view, _| {
        let mut writes = WriteSet::default();
        writes.put(b"new".to_vec(), b"value".to_vec());
        writes.delete(500_u32.to_be_bytes().to_vec());
        Decision::Write(writes, view.get(b"new").is_some())
    });
    let log = watched.log_of(async { assert!(!run(store, read).await.unwrap().out) }).await;
    assert!(log.contains("using kv_pkey on kv") && log.contains("using part_pkey on part"), "{log}");
    assert!(!log.contains("Seq Scan") && !log.contains("Bitmap"), "{log}");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_are_repeatable_and_expire() {
    let server = Server::start();
    let url = format!("{}?schema=aged&{TALKATIVE}", server.url());
    let mut options = PostgresOptions::parse(&url).unwrap();
    options.limits.snapshot_age_max = Duration::from_millis(1500);
    let store: Arc<dyn PartitionStore> = Arc::new(Postgres::open(options).await.unwrap());
    store.create(PARTITION.id, 0).await.unwrap();
    put(&store, b"key", b"before").await;
    let get = || ReadRequest::Get(vec![b"key".to_vec()]);
    let snapshot: Box<dyn Snapshot> = store.snapshot(PARTITION).await.unwrap();
    put(&store, b"key", b"after").await;
    match snapshot.read(get()).await {
        Ok(page) => assert_eq!((page.lsn, page.values[0].as_deref()), (1, Some(&b"before"[..]))),
        // The machine was too busy.
        Err(error) => assert_eq!(error, StoreError::SnapshotExpired),
    }
    assert!(server.log().contains("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"));
    wait::eventually_true("the snapshot to grow old", async || snapshot.read(get()).await.is_err()).await;
    assert_eq!(snapshot.read(get()).await.unwrap_err(), StoreError::SnapshotExpired);
    // Its transaction has ended, so it does not hold back vacuum, although the snapshot still exists.
    let (admin, connection) = tokio_postgres::connect(server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
    wait::eventually_true("the end of its transaction", async || {
        admin.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    drop(snapshot);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_are_bounded() {
    let url = orrery_testing::fresh_store_url();
    let mut options = PostgresOptions::parse(&url).unwrap();
    options.commit_timeout = Duration::from_millis(1);
    let store: Arc<dyn PartitionStore> = Arc::new(Postgres::open(options).await.unwrap());
    store.create(PARTITION.id, 0).await.unwrap();
    let (mut admin, connection) =
        tokio_postgres::connect(&orrery_testing::store_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    // Another transaction holds the partition's row lock.
    let schema = url.rsplit("schema=").next().unwrap();
    let holder = admin.transaction().await.unwrap();
    let hold = format!("SELECT 1 FROM {schema}.part WHERE part = {} FOR UPDATE", PARTITION.id.0);
    holder.execute(&hold, &[]).await.unwrap();
    let increment = op(&[], |_, _| Decision::Reject(()));
    let error = run(&store, increment).await.unwrap_err();
    assert!(matches!(&error, CommitError::Unavailable(text) if text.contains("lock timeout")), "{error}");
    // Reads do not wait for writers.
    store.read(PARTITION, ReadRequest::Get(Vec::new())).await.unwrap();
    holder.rollback().await.unwrap();
    put(&store, b"key", b"value").await;
    store.close().await.unwrap();
}

/// The server cancels a statement that exceeds its timeout: the write is refused and rolled back, and the next one
/// finds everything unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_timeout_changes_nothing() {
    let server = Server::start();
    let url = format!("{}?schema=slow&options=-c%20statement_timeout%3D700", server.url());
    let mut options = PostgresOptions::parse(&url).unwrap();
    options.commit_timeout = Duration::from_millis(1);
    let store: Arc<dyn PartitionStore> = Arc::new(Postgres::open(options).await.unwrap());
    store.create(PARTITION.id, 0).await.unwrap();
    put(&store, b"key", b"before").await;
    let (admin, connection) = tokio_postgres::connect(server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    admin
        .batch_execute(
            "CREATE FUNCTION slow.linger() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_sleep(3600); RETURN NULL; END $$; \
             CREATE TRIGGER linger AFTER INSERT ON slow.kv EXECUTE FUNCTION slow.linger()",
        )
        .await
        .unwrap();
    let write = || {
        op(&[b"key"], |_, _| {
            let mut writes = WriteSet::default();
            writes.put(b"key".to_vec(), b"after".to_vec());
            writes.put(b"other".to_vec(), b"after".to_vec());
            Decision::Write(writes, ())
        })
    };
    let error = run(&store, write()).await.unwrap_err();
    assert!(
        matches!(&error, CommitError::Unavailable(text) if text.contains("statement timeout")),
        "{error}"
    );
    admin.batch_execute("DROP TRIGGER linger ON slow.kv").await.unwrap();
    let keys = vec![b"key".to_vec(), b"other".to_vec()];
    let page = store.read(PARTITION, ReadRequest::Get(keys)).await.unwrap();
    assert_eq!((page.lsn, page.values[0].as_deref(), &page.values[1]), (1, Some(&b"before"[..]), &None));
    assert_eq!(run(&store, write()).await.unwrap().lsn, 2);
    store.close().await.unwrap();
}

/// Entries that are most likely new are inserted without an upsert check. If one does exist, it is overwritten as usual,
/// and the write is counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_plain_insert_is_retried_as_an_upsert() {
    let watched = Watched::open().await;
    let store = &watched.store;
    let write = |from: u8, value: &'static [u8]| {
        op(&[], move |_, _| {
            let mut writes = WriteSet::default();
            for number in from..from + 20 {
                writes.put(vec![number], value);
            }
            Decision::Write(writes, ())
        })
    };
    let log = watched.log_of(async { assert_eq!(run(store, write(0, b"one")).await.unwrap().lsn, 1) }).await;
    let plain = |text: &&str| text.contains("INSERT INTO kv") && !text.contains("ON CONFLICT");
    assert!(statements(&log).iter().any(plain), "{log}");
    // Half of these exist but were not read.
    let log = watched.log_of(async { assert_eq!(run(store, write(10, b"two")).await.unwrap().lsn, 2) }).await;
    assert!(log.contains("duplicate key"), "the test no longer exercises this case: {log}");
    // For a while only upserts are used.
    let log = watched.log_of(async { assert_eq!(run(store, write(10, b"six")).await.unwrap().lsn, 3) }).await;
    assert!(!log.contains("duplicate key"), "{log}");
    let keys = (0..30_u8).map(|number| vec![number]).collect();
    let page = store.read(PARTITION, ReadRequest::Get(keys)).await.unwrap();
    let expected: Vec<&[u8]> = (0..30).map(|number| if number < 10 { &b"one"[..] } else { b"six" }).collect();
    assert_eq!(page.values.iter().map(|value| &value.as_ref().unwrap()[..]).collect::<Vec<_>>(), expected);
    store.close().await.unwrap();
}
