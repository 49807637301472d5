//! A server on a free port of loopback, over the memory store or, where `ORRERY_TEST_STORE_URL` names a PostgreSQL
//! server, a schema of its own there, with four kinds of callers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures_util::FutureExt;
use orrery_db::{Database, MovableClock, Options, SystemEnv};
use orrery_env::Env;
use orrery_gateway::auth::{AccountKeys, AuthOptions, KeyHome, KeyRing, KeySource, MasterKey};
use orrery_gateway::direct::{DirectServer, GatewayV2};
use orrery_gateway::memory::MemoryBudget;
use orrery_gateway::metrics::Metrics;
use orrery_gateway::transport::certificate::TlsPolicy;
use orrery_gateway::transport::{Server, TransportOptions, bind, certificate};
use orrery_gateway::{
    AccountConsistency, CrossPartitionQueries, Gateway, GatewayOptions, HostPolicy, ObservationOptions,
    PortEndpoint,
};
use orrery_storage::{Memory, PartitionStore, Postgres, PostgresOptions};
use tokio::sync::oneshot;

pub struct TestServer {
    pub address: SocketAddr,
    pub primary: MasterKey,
    pub secondary: MasterKey,
    pub read_only: MasterKey,
    pub now_seconds: i64,
    pub direct: DirectPort,
    /// Where Gateway 2.0 is served, without TLS.
    pub gateway_v2: SocketAddr,
    /// Ends the server when it is dropped.
    _stop: oneshot::Sender<()>,
}

/// Where direct mode is served, and what to trust there.
pub struct DirectPort {
    pub address: SocketAddr,
    pub trust_pem: String,
}

async fn open_store() -> Arc<dyn PartitionStore> {
    if std::env::var("ORRERY_TEST_STORE_URL").is_ok_and(|url| !url.is_empty()) {
        let mut options = PostgresOptions::parse(&orrery_testing::fresh_store_url()).unwrap();
        // Many tests share the server at once.
        options.connections_max = 4;
        options.limits.snapshot_age_max = std::time::Duration::from_mins(1);
        return Arc::new(Postgres::open(options).await.unwrap());
    }
    Arc::new(Memory::new())
}

impl TestServer {
    pub async fn start() -> Self {
        Self::with_consistency(AccountConsistency::default()).await
    }

    pub async fn with_consistency(consistency: AccountConsistency) -> Self {
        Self::start_as(Arc::new(SystemEnv), consistency, None, None).await
    }

    /// A server that tells its clients to use another address.
    pub async fn advertising(url: &str) -> Self {
        let consistency = AccountConsistency::default();
        Self::start_as(Arc::new(SystemEnv), consistency, None, Some(url.to_owned())).await
    }

    /// A server whose clock and faults tests may control.
    pub async fn start_with_controls() -> Self {
        let clock = Arc::new(MovableClock::default());
        let consistency = AccountConsistency::default();
        Self::start_as(Arc::clone(&clock) as Arc<dyn Env>, consistency, Some(clock), None).await
    }

    async fn start_as(
        env: Arc<dyn Env>,
        consistency: AccountConsistency,
        clock: Option<Arc<MovableClock>>,
        advertised: Option<String>,
    ) -> Self {
        let now_seconds = env.now_seconds();
        let start_ms = env.now_ms();
        let database = Database::open(open_store().await, env, Options::default()).await.unwrap();
        let keys =
            [MasterKey::well_known(), MasterKey::from_bytes(&[2; 64]), MasterKey::from_bytes(&[3; 64])];
        let [primary, secondary, read_only] = keys;
        let direct_listener = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let direct_address = direct_listener.local_addr().unwrap();
        let gateway_v2_listener = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let gateway_v2 = gateway_v2_listener.local_addr().unwrap();
        // The clients of these tests check the certificate against the system's clock.
        let certificate =
            certificate::create(&["localhost".to_owned()], SystemEnv.now_seconds(), &TlsPolicy::default())
                .unwrap();
        let metrics = Arc::new(Metrics::new("test", start_ms));
        let keys = AccountKeys {
            primary: primary.clone(),
            secondary: Some(secondary.clone()),
            read_only: vec![read_only.clone()],
        };
        let options = GatewayOptions {
            memory: MemoryBudget::new(256 << 20),
            keys: Arc::new(KeyRing::new(keys, KeySource::WellKnown, KeyHome::Process)),
            auth: AuthOptions::default(),
            metrics: Arc::clone(&metrics),
            certificate: None,
            consistency,
            advertised,
            direct: Some(PortEndpoint { port: direct_address.port(), advertised: None }),
            gateway_v2: Some(PortEndpoint { port: gateway_v2.port(), advertised: None }),
            clock,
            cross_partition_queries: CrossPartitionQueries::default(),
            hosts: HostPolicy::new(Ipv4Addr::LOCALHOST.into(), &[], &["http://app.test:3000".to_owned()])
                .unwrap(),
            observation: ObservationOptions::default(),
        };
        let gateway = Arc::new(Gateway::new(database, options));
        let direct_server = DirectServer {
            gateway: Arc::clone(&gateway),
            tls: certificate.tls,
            options: TransportOptions::default(),
            connections_open: metrics.connections_open.clone(),
        };
        let gateway_v2_server = Server {
            handler: Arc::new(GatewayV2 { gateway: Arc::clone(&gateway) }),
            tls: None,
            options: TransportOptions::default(),
            connections_open: metrics.connections_open.clone(),
        };
        let server = Server {
            handler: gateway,
            tls: None,
            options: TransportOptions::default(),
            connections_open: metrics.connections_open.clone(),
        };
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        // The other side is dropped when the test ends.
        let stopped = stopped.map(|_| ()).shared();
        tokio::spawn(server.run(listener, stopped.clone()));
        tokio::spawn(direct_server.run(direct_listener, stopped.clone()));
        tokio::spawn(gateway_v2_server.run(gateway_v2_listener, stopped));
        let direct = DirectPort { address: direct_address, trust_pem: certificate.current.trust_pem() };
        Self { address, primary, secondary, read_only, now_seconds, direct, gateway_v2, _stop: stop }
    }
}
