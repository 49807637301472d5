//! Routing when the owner of a partition is unreachable.
//!
//! The cluster is one PostgreSQL server behind several proxies: any node answers for any partition, as on Citus, and
//! each path can be closed or made silent separately. Tables and a function stand in for the Citus metadata. `citus.rs`
//! runs the same against a real cluster.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orrery_storage::{Entry, KeyRange, PartitionId, ReadRequest, Scan, commit};
use orrery_testing::Server;
use orrery_testing::proxy::Proxy;
use orrery_testing::wait::eventually_true;

use super::*;
use crate::suite::outage::{increment, place, through};

/// Partitions with even ids are on the first worker, the others on the second.
struct Cluster {
    database: String,
    coordinator: Proxy,
    workers: [Proxy; 2],
}

const ON_FIRST: PartitionId = PartitionId(2);
const ON_SECOND: PartitionId = PartitionId(3);

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    tokio::task::block_in_place(|| SERVER.get_or_init(Server::start))
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Cluster {
    async fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server = server();
        let database = format!("cluster{}", COUNT.fetch_add(1, Ordering::Relaxed));
        connect(server.url()).await.batch_execute(&format!("CREATE DATABASE {database}")).await.unwrap();
        let direct = format!("{}/{database}", server.url().strip_suffix("/postgres").unwrap());
        Postgres::initialise(&PostgresOptions::parse(&direct).unwrap()).await.unwrap();
        let socket = server.directory().join(".s.PGSQL.5432");
        let coordinator = Proxy::start(socket.clone()).await;
        let workers = [Proxy::start(socket.clone()).await, Proxy::start(socket).await];
        let node =
            |id: usize, port: u16| format!("({id}, {id}, '127.0.0.1', {port}, 'primary', true, true, true)");
        let sql = format!(
            "SET allow_system_table_mods = on;
             INSERT INTO pg_extension VALUES (99999, 'citus', 10, 'public'::regnamespace, false, '0', NULL, NULL);
             CREATE TABLE orrery.pg_dist_node (nodeid int, groupid int, nodename text, nodeport int,
               noderole text, isactive bool, hasmetadata bool, metadatasynced bool);
             INSERT INTO orrery.pg_dist_node VALUES {}, {}, {};
             CREATE TABLE orrery.pg_dist_placement (shardid bigint, groupid int, shardstate int);
             INSERT INTO orrery.pg_dist_placement VALUES (0, 1, 1), (1, 2, 1);
             CREATE FUNCTION orrery.get_shard_id_for_distribution_column(text, int) RETURNS bigint
               LANGUAGE sql AS 'SELECT ($2 & 1)::bigint';",
            node(0, coordinator.port()),
            node(1, workers[0].port()),
            node(2, workers[1].port()),
        );
        connect(&direct).await.batch_execute(&sql).await.unwrap();
        Self { database, coordinator, workers }
    }

    async fn open(&self) -> Arc<dyn PartitionStore> {
        let url = format!("postgres://postgres@127.0.0.1:{}/{}", self.coordinator.port(), self.database);
        let mut options = PostgresOptions::parse(&url).unwrap();
        options.connections_max = 6;
        // Short, so that a silent node is detected soon, but longer than any request takes.
        options.reply_timeout = Duration::from_secs(3);
        Arc::new(Postgres::open(options).await.unwrap())
    }

    async fn open_two(&self) -> [Arc<dyn PartitionStore>; 2] {
        let stores = [self.open().await, self.open().await];
        for id in [ON_FIRST, ON_SECOND] {
            stores[0].create(id, 0).await.unwrap();
        }
        stores
    }
}

/// Performs every operation on a partition.
async fn use_partition(store: &dyn PartitionStore, id: PartitionId) {
    store.create(id, 0).await.unwrap();
    let done = commit(store, place(id), increment()).await.unwrap();
    let get = || ReadRequest::Get(vec![b"count".to_vec()]);
    let page = store.read(place(id), get()).await.unwrap();
    assert_eq!(page.values[0].as_deref().unwrap(), done.out.to_be_bytes());
    let snapshot = store.snapshot(place(id)).await.unwrap();
    assert_eq!(snapshot.read(get()).await.unwrap().values[0].as_deref().unwrap(), done.out.to_be_bytes());
    let loaded = Entry { key: b"loaded".to_vec(), value: b"value".to_vec().into() };
    store.bulk_load(place(id), vec![loaded]).await.unwrap();
    let range = || KeyRange::new(b"loaded".to_vec(), b"loaded~".to_vec());
    let page = store.read(place(id), ReadRequest::Scan(Scan::forward(range(), 5))).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    assert_eq!(store.delete_range(place(id), range(), 5).await.unwrap(), 1);
    assert!(store.size_bytes(id).await.unwrap() > 0);
    assert_eq!(store.wait_lsn(id, 0, Duration::ZERO).await.unwrap(), done.lsn);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_only_to_the_owner() {
    let cluster = Cluster::start().await;
    let store = cluster.open().await;
    // The store also listens to the catalog partition, which is on the first worker too.
    use_partition(&*store, ON_FIRST).await;
    assert!(cluster.workers[0].passed() > 0);
    assert_eq!(cluster.workers[1].passed(), 0, "the second worker has nothing to do with it");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_whose_owner_refuses_is_served_through_the_coordinator() {
    let cluster = Cluster::start().await;
    cluster.workers[1].close().await;
    let store = cluster.open().await;
    use_partition(&*store, ON_FIRST).await;
    use_partition(&*store, ON_SECOND).await;
    assert_eq!(cluster.workers[1].passed(), 0);
    // Once it is reachable again, it is used again.
    cluster.workers[1].open().await;
    eventually_true("the way back to the owner", async || {
        commit(&*store, place(ON_SECOND), increment()).await.unwrap();
        cluster.workers[1].passed() > 0
    })
    .await;
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_outage_fails_no_request() {
    let cluster = Cluster::start().await;
    let stores = cluster.open_two().await;
    let report = through(&stores, &[ON_FIRST, ON_SECOND], async || {
        for _ in 0..3 {
            cluster.workers[1].close().await;
            let number = async || stores[0].wait_lsn(ON_SECOND, 0, Duration::ZERO).await.unwrap();
            let before = number().await;
            eventually_true("a way round", async || number().await > before + 20).await;
            cluster.workers[1].open().await;
            let before = cluster.workers[1].passed();
            eventually_true("the way back", async || cluster.workers[1].passed() > before).await;
        }
    })
    .await;
    report.report("an owner was away");
    report.assert_no_failures();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_serve_their_partitions_without_the_coordinator() {
    let cluster = Cluster::start().await;
    let stores = cluster.open_two().await;
    let report = through(&stores, &[ON_FIRST, ON_SECOND], async || {
        cluster.coordinator.close().await;
        // Longer than a bypass lasts, and with partitions that were not routed before.
        for id in [4, 5] {
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(1) {
                use_partition(&*stores[0], PartitionId(id)).await;
            }
        }
        // One worker is down too: the other one serves its partitions.
        cluster.workers[1].close().await;
        use_partition(&*stores[1], PartitionId(7)).await;
        cluster.workers[1].open().await;
        cluster.coordinator.open().await;
    })
    .await;
    report.report("the coordinator was away");
    report.assert_no_failures();
    assert!(stores[0].coordination().unwrap().try_duty("work").await.unwrap().is_some());
}

/// A machine without power does not even refuse connections. Both tests run concurrently because they take long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_machines_are_detected_and_bypassed() {
    tokio::join!(a_silent_owner(), a_silent_host_is_skipped());
}

async fn a_silent_owner() {
    let cluster = Cluster::start().await;
    let stores = cluster.open_two().await;
    for store in &stores {
        use_partition(&**store, ON_SECOND).await;
    }
    cluster.workers[1].silence();
    // Over connections that existed before.
    let read = |store: &Arc<dyn PartitionStore>| {
        let store = Arc::clone(store);
        async move { store.read(place(ON_SECOND), ReadRequest::Get(vec![b"count".to_vec()])).await.unwrap() }
    };
    let (one, other) = tokio::join!(read(&stores[0]), read(&stores[1]));
    for page in [one, other] {
        assert_eq!(page.values[0].as_deref().unwrap(), 2_u64.to_be_bytes());
    }
    // From now on no request waits for it, although routes are refreshed now and then.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        commit(&*stores[0], place(ON_SECOND), increment()).await.unwrap();
    }
    cluster.workers[1].open().await;
    let before = cluster.workers[1].passed();
    eventually_true("the way back", async || {
        commit(&*stores[0], place(ON_SECOND), increment()).await.unwrap();
        cluster.workers[1].passed() > before
    })
    .await;
}

/// Several hosts in the URL: a primary without power does not block access to the one that took over.
async fn a_silent_host_is_skipped() {
    let socket = server().directory().join(".s.PGSQL.5432");
    let hosts = [Proxy::start(socket.clone()).await, Proxy::start(socket).await];
    connect(server().url()).await.batch_execute("CREATE DATABASE hosts").await.unwrap();
    let url =
        format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/hosts", hosts[0].port(), hosts[1].port());
    let open = async || {
        let mut options = PostgresOptions::parse(&url).unwrap();
        options.reply_timeout = Duration::from_secs(3);
        let store: Arc<dyn PartitionStore> = Arc::new(Postgres::open(options).await.unwrap());
        store
    };
    let store = open().await;
    use_partition(&*store, ON_FIRST).await;
    assert_eq!(hosts[1].passed(), 0);
    hosts[0].silence();
    use_partition(&*store, ON_FIRST).await;
    assert!(hosts[1].passed() > 0);
    // A gateway that starts now finds it as well.
    let late = open().await;
    use_partition(&*late, ON_FIRST).await;
    // If neither replies, the error comes within a bounded time.
    hosts[1].silence();
    let error = late.read(place(ON_FIRST), ReadRequest::Get(Vec::new())).await.unwrap_err();
    assert!(error.to_string().contains("in time"), "{error}");
    hosts[0].open().await;
    eventually_true("a host that answers", async || {
        late.read(place(ON_FIRST), ReadRequest::Get(Vec::new())).await.is_ok()
    })
    .await;
    commit(&*late, place(ON_FIRST), increment()).await.unwrap();
}
