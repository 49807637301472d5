//! The same exchanges over direct mode: a request is sent as the frame that a client in direct mode would send, and the
//! tokens of the response are read as the headers that they stand for. Identifiers come from a table of the protocol, not
//! from the server's own sources.
//!
//! What clients never send over direct mode (everything but items and calls of stored procedures), or what no token can
//! say, goes over HTTP.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use orrery_model::Value;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::{Request, Response};
use crate::server::DirectPort;

/// Request headers and the tokens that stand for them.
const REQUEST_TOKENS: &[(&str, &str)] = &[
    ("authorization", "AuthorizationToken"),
    ("x-ms-date", "Date"),
    ("x-ms-max-item-count", "PageSize"),
    ("x-ms-session-token", "SessionToken"),
    ("x-ms-continuation", "ContinuationToken"),
    ("x-ms-indexing-directive", "IndexingDirective"),
    ("if-match", "Match"),
    ("if-none-match", "Match"),
    ("x-ms-documentdb-pre-trigger-include", "PreTriggerInclude"),
    ("x-ms-documentdb-post-trigger-include", "PostTriggerInclude"),
    ("x-ms-consistency-level", "ConsistencyLevel"),
    ("x-ms-version", "ClientVersion"),
    ("x-ms-documentdb-partitionkey", "PartitionKey"),
    ("x-ms-documentdb-partitionkeyrangeid", "PartitionKeyRangeId"),
    ("x-ms-documentdb-script-enable-logging", "EnableLogging"),
    ("a-im", "A_IM"),
    ("x-ms-documentdb-populatequerymetrics", "PopulateQueryMetrics"),
    ("x-ms-documentdb-responsecontinuationtokenlimitinkb", "ResponseContinuationTokenLimitInKb"),
    ("if-modified-since", "IfModifiedSince"),
    ("x-ms-start-epk", "StartEpk"),
    ("x-ms-end-epk", "EndEpk"),
    ("x-ms-read-key-type", "ReadFeedKeyType"),
    ("x-ms-cosmos-batch-atomic", "IsBatchAtomic"),
    ("x-ms-cosmos-batch-continue-on-error", "ShouldBatchContinueOnError"),
    ("prefer", "ReturnPreference"),
    ("x-ms-cosmos-intended-collection-rid", "IntendedCollectionRid"),
    ("x-ms-cosmos-populateindexmetrics", "PopulateIndexMetrics"),
    ("x-ms-cosmos-changefeed-wire-format-version", "ChangeFeedWireFormatVersion"),
    ("x-ms-cosmos-priority-level", "PriorityLevel"),
    ("x-ms-cosmos-throughput-bucket", "ThroughputBucket"),
];

/// What the kind of operation says and no token does.
const IMPLIED: &[&str] = &[
    "x-ms-documentdb-is-upsert",
    "x-ms-documentdb-isquery",
    "x-ms-cosmos-is-batch-request",
    "content-type",
    "x-ms-activity-id",
    "x-ms-documentdb-query-enablecrosspartition",
];

/// Response tokens and the headers that they stand for.
const RESPONSE_TOKENS: &[(&str, &str)] = &[
    ("ContinuationToken", "x-ms-continuation"),
    ("ETag", "etag"),
    ("RetryAfterMilliseconds", "x-ms-retry-after-ms"),
    ("StorageMaxResoureQuota", "x-ms-resource-quota"),
    ("StorageResourceQuotaUsage", "x-ms-resource-usage"),
    ("SchemaVersion", "x-ms-schemaversion"),
    ("LSN", "lsn"),
    ("ItemCount", "x-ms-item-count"),
    ("RequestCharge", "x-ms-request-charge"),
    ("OwnerFullName", "x-ms-alt-content-path"),
    ("OwnerId", "x-ms-content-path"),
    ("QuorumAckedLSN", "x-ms-quorum-acked-lsn"),
    ("SubStatus", "x-ms-substatus"),
    ("CurrentWriteQuorum", "x-ms-current-write-quorum"),
    ("CurrentReplicaSetSize", "x-ms-current-replica-set-size"),
    ("PartitionKeyRangeId", "x-ms-documentdb-partitionkeyrangeid"),
    ("LogResults", "x-ms-documentdb-script-log-results"),
    ("XPRole", "x-ms-xp-role"),
    ("QueryMetrics", "x-ms-documentdb-query-metrics"),
    ("GlobalCommittedLSN", "x-ms-global-committed-lsn"),
    ("NumberOfReadRegions", "x-ms-number-of-read-regions"),
    ("ItemLSN", "x-ms-item-lsn"),
    ("LocalLSN", "x-ms-cosmos-llsn"),
    ("QuorumAckedLocalLSN", "x-ms-cosmos-quorum-acked-llsn"),
    ("ItemLocalLSN", "x-ms-cosmos-item-llsn"),
    ("SessionToken", "x-ms-session-token"),
    ("IndexUtilization", "x-ms-cosmos-index-utilization"),
    ("QueryExecutionInfo", "x-ms-cosmos-query-execution-info"),
    ("QueryAdvice", "x-ms-cosmos-query-advice"),
];

/// Headers that HTTP answers have and frames have not.
pub const NOT_IN_FRAMES: &[&str] = &[
    "content-type",
    "content-location",
    "date",
    "x-ms-version",
    "x-ms-gatewayversion",
    "x-ms-serviceversion",
    "x-ms-cosmos-internal-partition-id",
    "x-orrery-fault",
];

struct Protocol {
    requests: HashMap<String, (u16, String)>,
    responses: HashMap<u16, String>,
    resources: HashMap<String, u16>,
    operations: HashMap<String, u16>,
}

static PROTOCOL: LazyLock<Protocol> = LazyLock::new(|| {
    let table = orrery_model::value::parse(include_bytes!("../data/rntbd_tokens.json")).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let id = |value: &Value| value.to_json().parse::<u16>().unwrap();
    let rows = |name: &str| table.get(name).unwrap().as_array().unwrap().to_vec();
    let kinds = |name: &str| {
        let object = table.get(name).unwrap().as_object().unwrap();
        object.iter().map(|(name, number)| (name.to_string(), id(number))).collect()
    };
    let columns = |row: &Value| row.as_array().unwrap().to_vec();
    Protocol {
        requests: rows("requestTokens")
            .iter()
            .map(columns)
            .map(|row| (text(&row[0]), (id(&row[1]), text(&row[2]))))
            .collect(),
        responses: rows("responseTokens")
            .iter()
            .map(columns)
            .map(|row| (id(&row[1]), text(&row[0])))
            .collect(),
        resources: kinds("resourceTypes"),
        operations: kinds("operationTypes"),
    }
});

/// A frame on its way.
pub struct Frame {
    resource: u16,
    operation: u16,
    tokens: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn new(resource: &str, operation: &str) -> Self {
        let resource = PROTOCOL.resources[resource];
        let operation = PROTOCOL.operations[operation];
        Self { resource, operation, tokens: Vec::new(), payload: Vec::new() }
    }

    /// Adds a token; the value is as a header would say it.
    pub fn token(mut self, name: &str, value: &str) -> Self {
        let (id, kind) = &PROTOCOL.requests[name];
        self.tokens.extend(id.to_le_bytes());
        let flag = || u8::from(value.eq_ignore_ascii_case("true"));
        let code = |words: &[&str]| {
            u8::try_from(words.iter().position(|word| word.eq_ignore_ascii_case(value)).unwrap_or(9)).unwrap()
        };
        match kind.as_str() {
            "Byte" => {
                let byte = match name {
                    "IndexingDirective" => code(&["Default", "Include", "Exclude"]),
                    "ConsistencyLevel" => {
                        code(&["Strong", "BoundedStaleness", "Session", "Eventual", "ConsistentPrefix"])
                    }
                    "ReadFeedKeyType" => code(&[
                        "Invalid",
                        "ResourceId",
                        "EffectivePartitionKey",
                        "EffectivePartitionKeyRange",
                    ]),
                    "PriorityLevel" => code(&["", "High", "Low"]),
                    "ReturnPreference" => u8::from(value == "return=minimal"),
                    "ThroughputBucket" => value.parse().unwrap(),
                    _ => flag(),
                };
                self.tokens.extend([0, byte]);
            }
            "ULong" => {
                self.tokens.push(2);
                let number: i64 = value.parse().unwrap();
                self.tokens.extend(
                    u32::try_from(number)
                        .unwrap_or_else(|_| i32::try_from(number).map_or(u32::MAX, i32::cast_unsigned))
                        .to_le_bytes(),
                );
            }
            "SmallString" => {
                self.tokens.extend([7, u8::try_from(value.len()).unwrap()]);
                self.tokens.extend(value.as_bytes());
            }
            "String" | "Bytes" => {
                self.tokens.push(if kind == "String" { 8 } else { 11 });
                self.tokens.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
                self.tokens.extend(value.as_bytes());
            }
            other => panic!("{name} has the type {other}"),
        }
        self
    }

    /// The token `ResourceId`, which is binary.
    pub fn rid(mut self, rid: &[u8]) -> Self {
        self.tokens.extend([0, 0, 11]);
        self.tokens.extend(u16::try_from(rid.len()).unwrap().to_le_bytes());
        self.tokens.extend(rid);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let present = [2, 0, 0, u8::from(!self.payload.is_empty())];
        let length = 24 + present.len() + self.tokens.len();
        let mut bytes = u32::try_from(length).unwrap().to_le_bytes().to_vec();
        bytes.extend(self.resource.to_le_bytes());
        bytes.extend(self.operation.to_le_bytes());
        bytes.extend(ACTIVITY);
        bytes.extend(present);
        bytes.extend(&self.tokens);
        if !self.payload.is_empty() {
            bytes.extend(u32::try_from(self.payload.len()).unwrap().to_le_bytes());
            bytes.extend(&self.payload);
        }
        bytes
    }
}

/// The activity id of every frame, and how it is printed.
const ACTIVITY: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
const ACTIVITY_TEXT: &str = "04030201-0605-0807-090a-0b0c0d0e0f10";

/// The frame of a request, or none if it is not one that direct mode carries.
pub fn frame_of(request: &Request) -> Option<Frame> {
    let path = request.target.split_once('?').map_or(request.target.as_str(), |(path, _)| path);
    let segments: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect();
    let header = |wanted: &str| {
        request
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| value.as_str())
    };
    let is_true = |name| header(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let keyword = segments.get(4)?.as_str();
    let (is_item, is_feed) = (segments.len() == 6, segments.len() == 5);
    let resource = match keyword {
        "docs" => "Document",
        "sprocs" if is_item && request.method == "POST" => "StoredProcedure",
        _ => return None,
    };
    let is_scoped = is_true("x-ms-documentdb-query-enablecrosspartition")
        || header("x-ms-documentdb-partitionkey").is_some()
        || header("x-ms-documentdb-partitionkeyrangeid").is_some();
    let operation = match request.method.as_str() {
        "GET" if is_item => "Read",
        "GET" if is_feed => "ReadFeed",
        "PUT" if is_item => "Replace",
        "PATCH" if is_item => "Patch",
        "DELETE" if is_item => "Delete",
        "POST" if keyword == "sprocs" => "ExecuteJavaScript",
        "POST" if is_true("x-ms-cosmos-is-query-plan-request") => return None,
        "POST" if header("content-type").is_some_and(|kind| kind.starts_with("application/sql")) => {
            "SQLQuery"
        }
        // Clients in direct mode always choose a range; only HTTP can leave that open.
        "POST" if is_true("x-ms-documentdb-isquery") && !is_scoped => return None,
        "POST" if is_true("x-ms-documentdb-isquery") => "Query",
        "POST" if header("content-type").is_some_and(|kind| kind.starts_with("application/query+json")) => {
            "Query"
        }
        "POST" if is_true("x-ms-cosmos-is-batch-request") => "Batch",
        "POST" if is_true("x-ms-documentdb-is-upsert") => "Upsert",
        "POST" if is_feed => "Create",
        _ => return None,
    };
    let mut frame =
        Frame::new(resource, operation).token("TransportRequestID", "7").token("ReplicaPath", "/replica");
    // RIDs are binary in frames, and the resource's own includes those of its owners.
    let is_rid = segments[1].ends_with("==") && segments[1].len() == 8;
    if is_rid {
        use base64::Engine;
        let text = if is_item { &segments[5] } else { &segments[3] };
        let rid = base64::engine::general_purpose::STANDARD.decode(text.replace('-', "/")).ok()?;
        frame = frame.rid(&rid);
    } else {
        frame = frame.token("DatabaseName", &segments[1]).token("CollectionName", &segments[3]);
        if is_item {
            let name = if resource == "Document" { "DocumentName" } else { "StoredProcedureName" };
            frame = frame.token(name, &segments[5]);
        }
    }
    for (name, value) in &request.headers {
        let name = name.to_ascii_lowercase();
        let is_read = operation.starts_with("Read");
        match REQUEST_TOKENS.iter().find(|(header, _)| *header == name) {
            // The same token says both, by the kind of operation.
            Some(_) if name == "if-match" && is_read || name == "if-none-match" && !is_read => return None,
            Some((_, token @ ("PageSize" | "ThroughputBucket" | "ResponseContinuationTokenLimitInKb")))
                // All of 32 bits stand for -1 in the size of a page; other negative numbers have no form.
                if !value.parse::<i32>().is_ok_and(|number| number >= 0 || *token == "PageSize" && number == -1) =>
            {
                return None;
            }
            Some((_, token)) => frame = frame.token(token, value),
            None if IMPLIED.contains(&name.as_str()) => {}
            None => return None,
        }
    }
    frame.payload.clone_from(&request.body);
    Some(frame)
}

/// A connection whose handshake is done.
pub struct DirectClient<Io = TcpStream> {
    pub stream: TlsStream<Io>,
}

impl DirectClient {
    pub async fn connect(port: &DirectPort) -> Self {
        Self::negotiate(connect_tls(port).await).await
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> DirectClient<Io> {
    pub async fn negotiate(stream: TlsStream<Io>) -> Self {
        let mut client = Self { stream };
        client.stream.write_all(&context_request()).await.unwrap();
        let (status, _, payload) = read_parts(&mut client.stream).await.unwrap();
        assert_eq!((status, payload.len()), (200, 0));
        client
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub async fn receive(&mut self) -> Option<Response> {
        read_response(&mut self.stream).await
    }
}

/// Reads the response to a request.
pub async fn read_response(stream: &mut (impl AsyncRead + Unpin)) -> Option<Response> {
    let (status, tokens, body) = read_parts(stream).await?;
    let mut headers = vec![("x-ms-activity-id".to_owned(), ACTIVITY_TEXT.to_owned())];
    let mut has_transport_id = false;
    for (id, value) in tokens {
        let Some(name) = PROTOCOL.responses.get(&id) else { continue };
        has_transport_id |= name == "TransportRequestID" && value == "7";
        if let Some((_, header)) = RESPONSE_TOKENS.iter().find(|(token, _)| token == name) {
            headers.push(((*header).to_owned(), value));
        }
    }
    assert!(has_transport_id, "a response that nobody can match");
    // As clients do: the token is the partition's own, and the session's has the range in front.
    let range = headers.iter().find(|(name, _)| name == "x-ms-documentdb-partitionkeyrangeid");
    let range = range.map(|(_, value)| value.clone());
    if let Some((_, token)) = headers.iter_mut().find(|(name, _)| name == "x-ms-session-token") {
        assert!(!token.contains(':'), "a session token with a range: {token}");
        *token = format!("{}:{token}", range.unwrap());
    }
    Some(Response { status, headers, body })
}

/// Status, tokens and payload of a frame.
pub async fn read_parts(stream: &mut (impl AsyncRead + Unpin)) -> Option<(u16, Vec<(u16, String)>, Vec<u8>)> {
    let length = usize::try_from(stream.read_u32_le().await.ok()?).unwrap();
    let mut metadata = vec![0; length - 4];
    stream.read_exact(&mut metadata).await.ok()?;
    let status = u16::try_from(u32::from_le_bytes(metadata[..4].try_into().unwrap())).unwrap();
    let tokens = read_tokens(&metadata[20..]);
    // The response to a context request has the version of the protocol there, and no payload.
    let is_context = tokens.contains(&(0, "1".to_owned())) && tokens.iter().any(|(id, _)| *id == 5);
    let mut payload = Vec::new();
    if !is_context && tokens.contains(&(0, "1".to_owned())) {
        let length = usize::try_from(stream.read_u32_le().await.ok()?).unwrap();
        payload = vec![0; length];
        stream.read_exact(&mut payload).await.ok()?;
    }
    Some((status, tokens, payload))
}

pub async fn connect_tls(port: &DirectPort) -> TlsStream<TcpStream> {
    connect_tls_over(port, TcpStream::connect(port.address).await.unwrap()).await
}

pub async fn connect_tls_over<Io>(port: &DirectPort, stream: Io) -> TlsStream<Io>
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(port.trust_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// Protocol version, client version and user agent.
pub fn context_request() -> Vec<u8> {
    let mut tokens = vec![0, 0, 2, 1, 0, 0, 0];
    for (id, text) in [(1, "2018-12-31"), (2, "test")] {
        tokens.extend([id, 0, 7, u8::try_from(text.len()).unwrap()]);
        tokens.extend(text.as_bytes());
    }
    let mut bytes = u32::try_from(24 + tokens.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend([0; 4]);
    bytes.extend(ACTIVITY);
    bytes.extend(tokens);
    bytes
}

/// Ids and values, printed as headers have them.
fn read_tokens(mut bytes: &[u8]) -> Vec<(u16, String)> {
    let mut tokens = Vec::new();
    while !bytes.is_empty() {
        let (id, kind) = (u16::from_le_bytes([bytes[0], bytes[1]]), bytes[2]);
        bytes = &bytes[3..];
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (value, length) = match kind {
            0 => (bytes[0].to_string(), 1),
            2 => (u32::from_le_bytes(bytes[..4].try_into().unwrap()).to_string(), 4),
            5 => (i64::from_le_bytes(bytes[..8].try_into().unwrap()).to_string(), 8),
            7 => (text(&bytes[1..=usize::from(bytes[0])]), 1 + usize::from(bytes[0])),
            8 => {
                let length = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
                (text(&bytes[2..2 + length]), 2 + length)
            }
            14 => (f64::from_le_bytes(bytes[..8].try_into().unwrap()).to_string(), 8),
            other => panic!("the server sends a token of type {other}"),
        };
        tokens.push((id, value));
        bytes = &bytes[length..];
    }
    tokens
}
