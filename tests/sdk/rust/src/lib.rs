//! The ground the suite stands on: a client for the server named by
//! `ORRERY_ENDPOINT`, a database per test, and verdicts on results.
//!
//! Expectations come from the client's documentation and the public REST
//! reference; nothing here knows how the server works inside.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::models::{ContainerProperties, ItemResponse};
use azure_data_cosmos::options::{
    BinaryEncodingOptions, ConnectionPoolOptions, ContentResponseOnWrite, ItemWriteOptions, OperationOptions, Region,
    ServerCertificateValidation,
};
use azure_data_cosmos::{AccountEndpoint, AccountReference, CosmosClient, CosmosError, CosmosRuntime, RoutingStrategy};
use serde_json::Value;

/// The key that every emulator of the service publishes and accepts on loopback.
pub const EMULATOR_KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// The plain HTTP address of the server.
pub fn endpoint() -> String {
    std::env::var("ORRERY_ENDPOINT").expect("ORRERY_ENDPOINT is not set: start the suite with ./run").trim_end_matches('/').to_owned()
}

/// Whether items go over Gateway 2.0, which requires HTTP/2.
pub fn uses_gateway_v2() -> bool {
    std::env::var("ORRERY_SDK_MODE").is_ok_and(|mode| mode == "gateway-v2")
}

/// The same server through TLS, by host name.
pub fn secure_endpoint(host: &str) -> String {
    let address = endpoint();
    let port = address.rsplit(':').next().expect("the endpoint has a port");
    format!("https://{host}:{port}")
}

pub async fn try_client_at(address: &str, key: &str, binary: Option<bool>, http2: bool) -> Result<CosmosClient, CosmosError> {
    let pool = ConnectionPoolOptions::builder()
        .with_server_certificate_validation(ServerCertificateValidation::RequiredUnlessEmulator)
        .with_is_http2_allowed(http2)
        .build()
        .expect("the connection options are valid");
    let runtime = CosmosRuntime::builder().with_connection_pool(pool).build().await?;
    let mut builder = CosmosClient::builder().with_runtime(runtime);
    if let Some(enabled) = binary {
        builder = builder.with_binary_encoding_options(BinaryEncodingOptions::new().with_enabled(enabled));
    }
    let endpoint: AccountEndpoint = address.parse()?;
    let account = AccountReference::with_authentication_key(endpoint, key.to_owned());
    builder.build(account, RoutingStrategy::ProximityTo(Region::SOUTH_CENTRAL_US)).await
}

pub async fn client() -> CosmosClient {
    try_client_at(&endpoint(), EMULATOR_KEY, None, true).await.expect("the client connects")
}

pub fn unique_name(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{:x}-{count}", now.as_nanos())
}

/// Runs a test in a database of its own, and drops it afterwards.
pub async fn with_database<F>(test: impl FnOnce(DatabaseClient) -> F)
where
    F: Future<Output = ()>,
{
    with_database_of(&client().await, test).await;
}

pub async fn with_database_of<F>(client: &CosmosClient, test: impl FnOnce(DatabaseClient) -> F)
where
    F: Future<Output = ()>,
{
    let id = unique_name("rust");
    client.create_database(&id, None).await.expect("the database is created");
    test(client.database_client(&id)).await;
    client.database_client(&id).delete(None).await.expect("the database is dropped");
}

/// Runs a test in a container of its own.
pub async fn with_container<F>(properties: ContainerProperties, test: impl FnOnce(ContainerClient) -> F)
where
    F: Future<Output = ()>,
{
    with_database(async |database| {
        test(create(&database, properties).await).await;
    })
    .await;
}

/// Runs a test in a container keyed by `/pk`.
pub async fn with_items<F>(test: impl FnOnce(ContainerClient) -> F)
where
    F: Future<Output = ()>,
{
    with_container(ContainerProperties::new("items", "/pk".into()), test).await;
}

pub async fn create(database: &DatabaseClient, properties: ContainerProperties) -> ContainerClient {
    let id = properties.id.to_string();
    database.create_container(properties, None).await.expect("the container is created");
    database.container_client(&id, None).await.expect("the container is found")
}

/// Options that ask for the written item in the answer.
pub fn with_content() -> Option<ItemWriteOptions> {
    let mut operation = OperationOptions::default();
    operation.content_response_on_write = Some(ContentResponseOnWrite::Enabled);
    Some(ItemWriteOptions::default().with_operation_options(operation))
}

/// The status of a refusal: HTTP status and sub-status, 0 for none.
#[track_caller]
pub fn refusal<T>(result: Result<T, CosmosError>) -> (u16, u16) {
    match result {
        Ok(_) => panic!("the call succeeded, a refusal was expected"),
        Err(error) => {
            let status = error.status();
            assert!(error.is_from_wire(), "the client itself refused the call: {error}");
            let sub = status.sub_status().map_or(0, |code| code.value());
            (u16::from(status.status_code()), sub)
        }
    }
}

pub fn status(response: &ItemResponse) -> u16 {
    u16::from(response.status().status_code())
}

pub fn etag(response: &ItemResponse) -> String {
    response.headers().etag().expect("the answer has an etag").to_string()
}

pub fn body(response: ItemResponse) -> Value {
    response.into_model().expect("the answer has a JSON body")
}

/// The value with every number as a double: JSON does not tell 1 from 1.0.
pub fn doubles(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Array(items) => items.iter().map(doubles).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), doubles(member))).collect::<serde_json::Map<_, _>>().into()
        }
        other => other.clone(),
    }
}
