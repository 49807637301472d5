//! Converts a frame into the equivalent HTTP request for the pipeline: method, path and headers.
//!
//! Purely a translation: resource and operation type become method and path, and each token becomes the header that a
//! client would have sent over HTTP. Everything else is the pipeline's.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use orrery_model::{Error, Result};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::frame::{ActivityId, MalformedFrame, RequestFrame};
use super::token::TokenValue;
use crate::addresses::Replica;
use crate::headers;

/// A request as decoded from its frame.
#[derive(Debug)]
pub struct DirectRequest {
    /// The equivalent HTTP request, or the error.
    pub head: Result<Parts>,
    pub activity_id: ActivityId,
    /// Correlates the response with the request.
    pub transport_id: Option<u32>,
    pub has_payload: bool,
    /// The replica that the client addressed.
    pub replica: Replica,
}

/// Kinds of operations.
mod operation {
    pub(super) const CREATE: u16 = 1;
    pub(super) const PATCH: u16 = 2;
    pub(super) const READ: u16 = 3;
    pub(super) const READ_FEED: u16 = 4;
    pub(super) const DELETE: u16 = 5;
    pub(super) const REPLACE: u16 = 6;
    pub(super) const EXECUTE: u16 = 8;
    pub(super) const SQL_QUERY: u16 = 9;
    pub(super) const QUERY: u16 = 15;
    pub(super) const HEAD: u16 = 17;
    pub(super) const HEAD_FEED: u16 = 18;
    pub(super) const UPSERT: u16 = 19;
    pub(super) const BATCH: u16 = 37;
    /// Only in Gateway 2.0.
    pub(super) const QUERY_PLAN: u16 = 66;
}

/// Characters to percent-encode in a path: all but the unreserved ones.
const NOT_IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

impl DirectRequest {
    pub fn parse(frame: &RequestFrame) -> std::result::Result<Self, MalformedFrame> {
        let mut reading = Reading::new(frame);
        for token in frame.tokens() {
            // The frame as a whole is malformed if one token is, because the next one cannot be found.
            let (id, value) = token?;
            reading.token(id, value);
        }
        let replica = reading.replica_path.and_then(|path| std::str::from_utf8(path).ok());
        Ok(Self {
            activity_id: frame.activity_id,
            transport_id: reading.transport_id,
            has_payload: reading.has_payload,
            replica: replica.map(Replica::parse).unwrap_or_default(),
            head: reading.finish(),
        })
    }

    /// Whether the request may keep a thread busy and must not delay other requests of the connection.
    pub(super) fn is_heavy(frame: &RequestFrame) -> bool {
        use operation::{BATCH, EXECUTE, QUERY, READ_FEED, SQL_QUERY};
        matches!(frame.operation, READ_FEED | EXECUTE | SQL_QUERY | QUERY | BATCH)
    }
}

/// The names that lead to a resource.
#[derive(Default)]
struct Names<'a> {
    rid: Option<&'a [u8]>,
    database: Option<&'a [u8]>,
    container: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    /// The resource itself, below a container, a user or a database.
    leaf: Option<&'a [u8]>,
}

struct Reading<'a> {
    frame: &'a RequestFrame,
    headers: HeaderMap,
    names: Names<'a>,
    etag: Option<&'a [u8]>,
    replica_path: Option<&'a [u8]>,
    transport_id: Option<u32>,
    has_payload: bool,
    failure: Option<Error>,
}

impl<'a> Reading<'a> {
    fn new(frame: &'a RequestFrame) -> Self {
        Self {
            frame,
            headers: HeaderMap::with_capacity(24),
            names: Names::default(),
            etag: None,
            replica_path: None,
            transport_id: None,
            has_payload: false,
            failure: None,
        }
    }

    /// Applies a token. Identifiers are those of the protocol; tokens that the pipeline does not use are ignored, like
    /// unused HTTP headers.
    fn token(&mut self, id: u16, value: TokenValue<'a>) {
        use TokenValue::{Byte, Bytes as Binary, Text, ULong};
        // A token with another type than the protocol's falls through to the last arm, like an unknown one.
        match (id, value) {
            (0, Binary(rid)) => self.names.rid = Some(rid),
            (1, Text(text)) => self.set("authorization", text),
            (2, Byte(flag)) => self.has_payload = flag != 0,
            (3, Text(text)) => self.set("x-ms-date", text),
            // Clients send -1 (as many as fit) as the largest unsigned number. In HTTP it is signed: -1 leaves the size
            // to the server, other negative numbers are rejected.
            (4, ULong(number)) => {
                self.insert(headers::MAX_ITEM_COUNT, HeaderValue::from(number.cast_signed()));
            }
            (5, Text(text)) => self.set(headers::SESSION_TOKEN, text),
            (6, Text(text)) => self.set(headers::CONTINUATION, text),
            (7, Byte(code)) => {
                self.set_choice(headers::INDEXING_DIRECTIVE, code, &["Default", "Include", "Exclude"]);
            }
            // One token for two headers; which of them it is depends on the operation (`finish`).
            (8, Text(text)) => self.etag = Some(text),
            (9, Text(text)) => self.set(headers::PRE_TRIGGER, text),
            (10, Text(text)) => self.set(headers::POST_TRIGGER, text),
            (16, Byte(code)) => self.set_choice(
                headers::CONSISTENCY_LEVEL,
                code,
                &["Strong", "BoundedStaleness", "Session", "Eventual", "ConsistentPrefix"],
            ),
            (19, Text(path)) => self.replica_path = Some(path),
            (20, ULong(number)) => self.set_number(headers::TOKEN_SECONDS, number),
            (21, Text(name)) => self.names.database = Some(name),
            (22, Text(name)) => self.names.container = Some(name),
            (25, Text(name)) => self.names.user = Some(name),
            // Document, permission, stored procedure, function, trigger, conflict, range, encryption key.
            (23 | 26 | 27 | 28 | 29 | 32 | 54 | 128, Text(name)) => self.names.leaf = Some(name),
            (40, Text(text)) => self.set(headers::VERSION, text),
            (43, Text(text)) => self.set(headers::PARTITION_KEY, text),
            (44, Text(text)) => self.set(headers::RANGE_ID, text),
            (62, Byte(flag)) => self.set_flag(headers::SCRIPT_LOGGING, flag),
            (63, Text(text)) => self.set("a-im", text),
            (64, Byte(flag)) => self.set_flag(headers::POPULATE_QUOTA, flag),
            (66, Byte(flag)) => self.set_flag(headers::POPULATE_QUERY_METRICS, flag),
            (67, ULong(number)) => self.set_number(headers::TOKEN_LIMIT, number),
            (68, Byte(flag)) => self.set_flag(headers::POPULATE_STATISTICS, flag),
            (71, Text(text)) => self.set("if-modified-since", text),
            (77, ULong(id)) => self.transport_id = Some(id),
            // Hexadecimal text, though the type says bytes.
            (98, Binary(text) | Text(text)) => self.set(headers::START_EPK, text),
            (99, Binary(text) | Text(text)) => self.set(headers::END_EPK, text),
            (100, Byte(code)) => self.set_choice(
                headers::READ_KEY_TYPE,
                code,
                &["Invalid", "ResourceId", "EffectivePartitionKey", "EffectivePartitionKeyRange"],
            ),
            (101, Byte(code)) => {
                self.set_choice(headers::CONTENT_FORMAT, code, &["JsonText", "CosmosBinary", "HybridRow"]);
            }
            (115, Byte(flag)) => self.set_flag(headers::BATCH_ATOMIC, flag),
            (116, Byte(flag)) => self.set_flag(headers::BATCH_CONTINUE, flag),
            (130, Byte(1)) => self.set_static("prefer", "return=minimal"),
            (157, Text(text)) => self.set(headers::INTENDED_RID, text),
            (169, Byte(flag)) => self.set_flag(headers::POPULATE_INDEX_METRICS, flag),
            (178, Text(text)) => self.set(headers::CHANGE_FEED_FORMAT, text),
            (191, Byte(code)) => self.set_choice(headers::PRIORITY_LEVEL, code, &["", "High", "Low"]),
            (194, Byte(flag)) => self.set_flag(headers::POPULATE_INDEX_METRICS_V2, flag),
            // A set of text (1), binary (2) and rows (4).
            (196, Byte(set)) if set & 2 != 0 => {
                self.set_static(headers::SUPPORTED_FORMATS, "JsonText,CosmosBinary");
            }
            (200, Byte(flag)) => self.set_flag(headers::OPTIMISTIC_DIRECT, flag),
            // The same bounds as 98 and 99, as bytes instead of text.
            (210, Binary(hash)) => self.set_hex(headers::START_EPK, hash),
            (211, Binary(hash)) => self.set_hex(headers::END_EPK, hash),
            (218, Byte(flag)) => self.set_flag(headers::POPULATE_QUERY_ADVICE, flag),
            (219, Byte(number)) => self.set_number(headers::THROUGHPUT_BUCKET, number.into()),
            (254, Byte(code)) => self.set_choice(
                headers::READ_CONSISTENCY_STRATEGY,
                code,
                &["Default", "Eventual", "Session", "LatestCommitted", "GlobalStrong"],
            ),
            (255, Text(text)) => self.set(headers::QUERY_FEATURES, text),
            _ => {}
        }
    }

    fn set(&mut self, name: &'static str, value: &[u8]) {
        self.set_bytes(name, self.frame.share(value));
    }

    fn set_bytes(&mut self, name: &'static str, value: Bytes) {
        match HeaderValue::from_maybe_shared(value) {
            Ok(value) => self.insert(name, value),
            Err(_) => self.refuse(name),
        }
    }

    fn set_static(&mut self, name: &'static str, value: &'static str) {
        self.insert(name, HeaderValue::from_static(value));
    }

    fn set_number(&mut self, name: &'static str, number: u32) {
        self.insert(name, HeaderValue::from(number));
    }

    fn set_flag(&mut self, name: &'static str, flag: u8) {
        self.set_static(name, if flag == 0 { "False" } else { "True" });
    }

    fn set_hex(&mut self, name: &'static str, bytes: &[u8]) {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            write!(text, "{byte:02X}").expect("a String accepts every write");
        }
        self.set_bytes(name, text.into());
    }

    /// One of several words, by its code.
    fn set_choice(&mut self, name: &'static str, code: u8, words: &[&'static str]) {
        match words.get(usize::from(code)).filter(|word| !word.is_empty()) {
            Some(word) => self.set_static(name, word),
            None => self.refuse(name),
        }
    }

    fn insert(&mut self, name: &'static str, value: HeaderValue) {
        self.headers.insert(HeaderName::from_static(name), value);
    }

    fn refuse(&mut self, name: &str) {
        self.failure.get_or_insert_with(|| {
            Error::bad_request(format!(
                "One of the input values is invalid. The token that stands for {name} cannot be read."
            ))
        });
    }

    fn finish(mut self) -> Result<Parts> {
        let method = self.method()?;
        if let Some(etag) = self.etag {
            // Reads, and the change feed among them, ask for what changed since the etag; writes require it
            // unchanged.
            let is_read = matches!(self.frame.operation, operation::READ | operation::READ_FEED);
            self.set(if is_read { "if-none-match" } else { "if-match" }, etag);
        }
        // A token that cannot be read fails the request rather than being ignored: it might be a precondition.
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let path = self.path()?;
        let path = PathAndQuery::from_maybe_shared(Bytes::from(path));
        let path = path.map_err(|_| Error::bad_request("The names of the resource are too long."))?;
        // The id is part of the frame's head, not a token.
        self.insert(headers::ACTIVITY_ID, activity_value(self.frame.activity_id));
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = method;
        parts.uri = Uri::from(path);
        parts.headers = self.headers;
        Ok(parts)
    }

    /// The method, and the headers that distinguish operations with the same method in HTTP.
    fn method(&mut self) -> Result<Method> {
        use operation::{
            BATCH, CREATE, DELETE, EXECUTE, HEAD, HEAD_FEED, PATCH, QUERY, QUERY_PLAN, READ, READ_FEED,
            REPLACE, SQL_QUERY, UPSERT,
        };
        Ok(match self.frame.operation {
            CREATE | EXECUTE => Method::POST,
            UPSERT => {
                self.set_static(headers::IS_UPSERT, "True");
                Method::POST
            }
            QUERY | SQL_QUERY => {
                let is_text = self.frame.operation == SQL_QUERY;
                let content_type = if is_text { "application/sql" } else { "application/query+json" };
                self.set_static("content-type", content_type);
                // Each request targets one range, chosen by the client.
                self.set_static(headers::ENABLE_CROSS_PARTITION, "True");
                Method::POST
            }
            QUERY_PLAN => {
                self.set_static(headers::IS_QUERY_PLAN, "True");
                self.set_static("content-type", "application/query+json");
                Method::POST
            }
            BATCH => {
                self.set_static(headers::IS_BATCH, "True");
                Method::POST
            }
            READ | READ_FEED => Method::GET,
            REPLACE => Method::PUT,
            PATCH => Method::PATCH,
            DELETE => Method::DELETE,
            HEAD | HEAD_FEED => Method::HEAD,
            other => {
                return Err(Error::bad_request(format!("The operation type {other} is not supported.")));
            }
        })
    }

    /// Whether the operation is on a feed; the names then identify the feed's owner.
    fn is_feed(&self) -> bool {
        use operation::{BATCH, CREATE, HEAD_FEED, QUERY, QUERY_PLAN, READ_FEED, SQL_QUERY, UPSERT};
        matches!(
            self.frame.operation,
            CREATE | UPSERT | QUERY | SQL_QUERY | QUERY_PLAN | READ_FEED | BATCH | HEAD_FEED
        )
    }

    fn path(&self) -> Result<String> {
        let place = Place::of(self.frame.resource)?;
        let names = &self.names;
        let mut path = PathText(String::with_capacity(96));
        match (names.database, names.rid) {
            // Clients that send names and a RID mean the same resource by both.
            (Some(_), _) => self.path_by_name(place, &mut path)?,
            (None, Some(rid)) => self.path_by_rid(place, rid, &mut path)?,
            (None, None) => match place {
                Place::Account => path.0.push('/'),
                Place::Databases if self.is_feed() => path.0.push_str("/dbs"),
                Place::Offers if self.is_feed() => path.0.push_str("/offers"),
                _ => return Err(unnamed()),
            },
        }
        Ok(path.0)
    }

    fn path_by_name(&self, place: Place, path: &mut PathText) -> Result<()> {
        let names = &self.names;
        let is_feed = self.is_feed();
        let mut below = |owner: &[(&str, Option<&[u8]>)], keyword: &str, leaf: Option<&[u8]>| {
            for (keyword, name) in owner {
                path.name(keyword, name.ok_or_else(unnamed)?);
            }
            match leaf {
                _ if is_feed => path.keyword(keyword),
                Some(leaf) => path.name(keyword, leaf),
                None => return Err(unnamed()),
            }
            Ok(())
        };
        let database = ("dbs", names.database);
        match place {
            Place::Databases => below(&[], "dbs", names.database),
            Place::Containers => below(&[database], "colls", names.container),
            Place::Users => below(&[database], "users", names.user),
            Place::BelowDatabase(keyword) => below(&[database], keyword, names.leaf),
            Place::BelowUser(keyword) => below(&[database, ("users", names.user)], keyword, names.leaf),
            Place::BelowContainer(keyword) => {
                below(&[database, ("colls", names.container)], keyword, names.leaf)
            }
            Place::Account | Place::Offers => Err(unnamed()),
        }
    }

    fn path_by_rid(&self, place: Place, rid: &[u8], path: &mut PathText) -> Result<()> {
        let is_feed = self.is_feed();
        // An owner's RID is a prefix of its children's.
        let mut below = |owners: &[(&str, usize)], keyword: &str, length: usize| {
            // On a feed the RID is the owner's, on a resource its own; their lengths tell whether it fits.
            let expected = if is_feed { owners.last().map_or(0, |owner| owner.1) } else { length };
            if rid.len() != expected {
                return Err(unnamed());
            }
            for (keyword, length) in owners {
                path.rid(keyword, &rid[..*length]);
            }
            if is_feed {
                path.keyword(keyword);
            } else {
                path.rid(keyword, rid);
            }
            Ok(())
        };
        match place {
            Place::Databases => below(&[], "dbs", 4),
            Place::Containers => below(&[("dbs", 4)], "colls", 8),
            Place::Users => below(&[("dbs", 4)], "users", 8),
            Place::BelowDatabase(keyword) => below(&[("dbs", 4)], keyword, 16),
            Place::BelowUser(keyword) => below(&[("dbs", 4), ("users", 8)], keyword, 16),
            Place::BelowContainer(keyword) => below(&[("dbs", 4), ("colls", 8)], keyword, 16),
            Place::Offers => below(&[], "offers", rid.len()),
            Place::Account => Err(unnamed()),
        }
    }
}

/// The path of a resource type.
#[derive(Clone, Copy)]
enum Place {
    Account,
    Databases,
    Containers,
    Users,
    Offers,
    BelowDatabase(&'static str),
    BelowContainer(&'static str),
    BelowUser(&'static str),
}

impl Place {
    fn of(resource: u16) -> Result<Self> {
        Ok(match resource {
            1 => Self::Databases,
            2 => Self::Containers,
            3 => Self::BelowContainer("docs"),
            5 => Self::Users,
            6 => Self::BelowUser("permissions"),
            7 => Self::BelowContainer("sprocs"),
            8 => Self::BelowContainer("conflicts"),
            9 => Self::BelowContainer("triggers"),
            10 => Self::BelowContainer("udfs"),
            15 => Self::Offers,
            20 => Self::Account,
            22 => Self::BelowContainer("pkranges"),
            35 => Self::BelowDatabase("clientencryptionkeys"),
            other => return Err(Error::bad_request(format!("The resource type {other} is not supported."))),
        })
    }
}

/// A URL path under construction.
struct PathText(String);

impl PathText {
    fn keyword(&mut self, keyword: &str) {
        self.0.push('/');
        self.0.push_str(keyword);
    }

    fn name(&mut self, keyword: &str, name: &[u8]) {
        self.keyword(keyword);
        self.0.push('/');
        // The parser decodes each segment once, so a slash within a name survives.
        self.0.extend(percent_encode(name, NOT_IN_PATHS));
    }

    fn rid(&mut self, keyword: &str, rid: &[u8]) {
        self.keyword(keyword);
        self.0.push('/');
        // RIDs in links are base64 with `-` for `/`, which would end the segment.
        self.0.push_str(&STANDARD.encode(rid).replace('/', "-"));
    }
}

fn unnamed() -> Error {
    Error::bad_request("The request does not name its resource.")
}

fn activity_value(id: ActivityId) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(id.to_string())).expect("digits and hyphens make a header")
}
