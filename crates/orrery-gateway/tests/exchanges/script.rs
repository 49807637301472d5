//! Exchanges as text.
//!
//! ```text
//! ! consistency Strong                how the server is set, before the first request
//! > GET /dbs/db as read-only          who asks: the primary key unless something else is said
//! > x-ms-version: 2020-07-15          headers of the request
//! > {"id":"x"}                        its body
//! < 200                               the status
//! < etag: *                           a header: its value, * for any, - for none
//! < {"id":"db","_rid":"*"}            members that the body must have; "*" for any value, "~x" for a text with x
//! < hangs up                          instead of everything else: the connection is closed without an answer
//! < text 5                            a body that is a bare JSON value
//! < save _rid as rid                  used later as {{rid}}; headers are saved by their names after a colon
//! ```
//! Every answer is also checked for what all answers have in common.

use std::collections::HashMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orrery_gateway::auth::{MasterKey, print_date, sign_request};
use orrery_gateway::{AccountConsistency, ConsistencyLevel};
use orrery_model::Value;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::client::{Request, Response, try_send};
use crate::direct::{DirectClient, NOT_IN_FRAMES, frame_of};
use crate::gateway_v2::FramedClient;
use crate::server::TestServer;

/// One exchange as it is written.
#[derive(Default)]
struct Exchange {
    sent: Vec<String>,
    expected: Vec<String>,
}

pub async fn run(text: &str) {
    run_in(Mode::Gateway, text).await;
}

/// The same exchanges, sent over direct mode where a client would.
pub async fn run_direct(text: &str) {
    run_in(Mode::Direct, text).await;
}

/// The same exchanges, with the frames of direct mode in HTTP/2 requests.
pub async fn run_gateway_v2(text: &str) {
    run_in(Mode::GatewayV2, text).await;
}

async fn run_in(mode: Mode, text: &str) {
    let level = text.lines().find_map(|line| line.strip_prefix("! consistency "));
    let level = level.map(|level| ConsistencyLevel::parse(level).expect("a level"));
    let consistency =
        AccountConsistency { level: level.unwrap_or_default(), ..AccountConsistency::default() };
    run_on(TestServer::with_consistency(consistency).await, text, mode).await;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Gateway,
    Direct,
    GatewayV2,
}

pub async fn run_with_controls(text: &str) {
    run_on(TestServer::start_with_controls().await, text, Mode::Gateway).await;
}

pub async fn run_advertising(url: &str, text: &str) {
    run_on(TestServer::advertising(url).await, text, Mode::Gateway).await;
}

async fn run_on(server: TestServer, text: &str, mode: Mode) {
    let mut names: HashMap<String, String> = HashMap::new();
    let mut direct = DirectClient::connect(&server.direct).await;
    let mut gateway_v2 = FramedClient::connect(server.gateway_v2).await;
    let mut framed_count = 0;
    for exchange in exchanges(text) {
        let request = request(&server, &exchange, &names);
        let frame = if mode == Mode::Gateway { None } else { frame_of(&request) };
        let is_framed = frame.is_some();
        framed_count += usize::from(is_framed);
        let response = match frame {
            Some(frame) if mode == Mode::Direct => {
                direct.send(&frame.bytes()).await;
                direct.receive().await
            }
            Some(frame) => gateway_v2.exchange(frame.bytes()).await,
            None => try_send(server.address, &request).await,
        };
        let response = match response {
            Some(response) => response,
            None if exchange.expected == ["hangs up"] => continue,
            None => panic!("no response to {:?}", exchange.sent),
        };
        let context = context(&exchange, &response);
        if !is_framed {
            check_common(&request, &response, &context);
        }
        for line in &exchange.expected {
            let name = line.split(':').next().unwrap_or_default();
            if !(is_framed && NOT_IN_FRAMES.contains(&name)) {
                check_line(line, &response, &mut names, &context);
            }
        }
    }
    assert!(mode == Mode::Gateway || framed_count > 0, "nothing was sent as a frame");
}

fn exchanges(text: &str) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', '!'])) {
        let (side, rest) = line.split_at(1);
        let rest = rest.trim().to_owned();
        let begins = side == ">" && exchanges.last().is_none_or(|last| !last.expected.is_empty());
        if begins {
            exchanges.push(Exchange::default());
        }
        let exchange = exchanges.last_mut().expect("a script begins with a request");
        match side {
            ">" => exchange.sent.push(rest),
            "<" => exchange.expected.push(rest),
            _ => panic!("a line begins with > or <: {line}"),
        }
    }
    exchanges
}

fn context(exchange: &Exchange, response: &Response) -> String {
    let mut text = String::from("\n");
    for line in &exchange.sent {
        writeln!(text, "> {line}").unwrap();
    }
    writeln!(text, "< {}", response.status).unwrap();
    for (name, value) in &response.headers {
        writeln!(text, "< {name}: {value}").unwrap();
    }
    text + &response.text()
}

fn filled(line: &str, names: &HashMap<String, String>) -> String {
    names.iter().fold(line.to_owned(), |line, (name, value)| line.replace(&format!("{{{{{name}}}}}"), value))
}

fn is_header(line: &str) -> bool {
    let name = line.split(':').next().unwrap_or_default();
    line.contains(':') && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn request(server: &TestServer, exchange: &Exchange, names: &HashMap<String, String>) -> Request {
    let lines: Vec<String> = exchange.sent.iter().map(|line| filled(line, names)).collect();
    let (first, rest) = lines.split_first().expect("a request has a first line");
    let (first, caller) = first.split_once(" as ").unwrap_or((first, "primary"));
    let (method, target) = first.split_once(' ').expect("method and target");
    let headers = rest.iter().filter(|line| is_header(line)).map(|line| {
        let (name, value) = line.split_once(':').expect("it is a header");
        (name.to_owned(), value.trim().to_owned())
    });
    let mut headers: Vec<(String, String)> = headers.collect();
    let body = rest.iter().filter(|line| !is_header(line)).map(String::as_str).collect::<Vec<_>>().join("\n");
    headers.extend(authorization(server, caller, method, target));
    Request { method: method.to_owned(), target: target.to_owned(), headers, body: body.into_bytes() }
}

pub fn authorization(server: &TestServer, caller: &str, method: &str, target: &str) -> Vec<(String, String)> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let signed = |key: &MasterKey, offset: i64| {
        let date = print_date(server.now_seconds + offset);
        let authorization = sign_request(key, method, path, query, &date);
        vec![("authorization".to_owned(), authorization), ("x-ms-date".to_owned(), date)]
    };
    match caller {
        "nobody" => Vec::new(),
        "primary" => signed(&server.primary, 0),
        "secondary" => signed(&server.secondary, 0),
        "read-only" => signed(&server.read_only, 0),
        "a stranger" => signed(&MasterKey::from_bytes(&[9; 64]), 0),
        // The window reaches further back than ahead.
        "yesterday" => signed(&server.primary, -86_400),
        "tomorrow" => signed(&server.primary, 86_400),
        "twenty minutes ago" => signed(&server.primary, -1200),
        "Entra" => vec![("authorization".to_owned(), entra_token(server, 3600))],
        "Entra, too late" => vec![("authorization".to_owned(), entra_token(server, -7200))],
        _ => {
            let token = caller.strip_prefix("bearer ").unwrap_or_else(|| panic!("unknown caller {caller}"));
            vec![("authorization".to_owned(), utf8_percent_encode(token, NON_ALPHANUMERIC).to_string())]
        }
    }
}

/// A token as test suites make it for emulators: unsigned, with the text of the account key in its place.
fn entra_token(server: &TestServer, valid_seconds: i64) -> String {
    let now = server.now_seconds;
    let header = r#"{"typ":"JWT","alg":"RS256","kid":"CosmosEmulatorPrimaryMaster"}"#;
    let payload = format!(
        r#"{{"aud":"https://localhost.localhost","oid":"96313034-4739-43cb-93cd-74193adbe5b6","scp":"user_impersonation","iat":{now},"nbf":{},"exp":{}}}"#,
        now - 8000,
        now + valid_seconds
    );
    let parts = [header, &payload, server.primary.reveal()].map(|part| URL_SAFE_NO_PAD.encode(part));
    let token = format!("type=aad&ver=1.0&sig={}", parts.join("."));
    utf8_percent_encode(&token, NON_ALPHANUMERIC).to_string()
}

/// What every answer of the protocol has.
fn check_common(request: &Request, response: &Response, context: &str) {
    if request.target.starts_with("/_") {
        return;
    }
    for name in ["x-ms-activity-id", "x-ms-version", "x-ms-gatewayversion", "x-ms-serviceversion", "date"] {
        assert!(response.header(name).is_some_and(|value| !value.is_empty()), "{name} is missing{context}");
    }
    let charge: f64 =
        response.header("x-ms-request-charge").and_then(|charge| charge.parse().ok()).unwrap_or(-1.0);
    assert!(charge >= 0.0, "the charge is missing{context}");
    assert!(response.header("x-ms-session-token").is_none_or(|token| !token.is_empty()), "{context}");
    let sent_id = request.headers.iter().find(|(name, _)| name == "x-ms-activity-id");
    if let Some((_, id)) = sent_id {
        assert_eq!(response.header("x-ms-activity-id"), Some(id.as_str()), "{context}");
    }
    let is_bodiless = matches!(response.status, 204 | 304) || request.method == "HEAD";
    assert!(!is_bodiless || response.body.is_empty(), "an unexpected body{context}");
    if !response.body.is_empty() {
        assert!(response.header("content-type").is_some(), "{context}");
    }
    if response.status >= 400 && !is_bodiless {
        let body = response.json().unwrap_or_else(|| panic!("an error without JSON{context}"));
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        assert!(!text("code").is_empty(), "{context}");
        let message = text("message");
        let id = response.header("x-ms-activity-id").unwrap();
        assert!(message.contains(&format!("ActivityId: {id}")), "{context}");
    } else {
        assert_eq!(response.header("x-ms-substatus"), None, "{context}");
    }
}

fn check_line(line: &str, response: &Response, names: &mut HashMap<String, String>, context: &str) {
    let line = filled(line, names);
    if let Ok(status) = line.parse::<u16>() {
        assert_eq!(response.status, status, "{context}");
    } else if let Some((what, name)) = line.strip_prefix("save ").and_then(|rest| rest.split_once(" as ")) {
        let value = match what.strip_prefix(':') {
            Some(header) => response.header(header).map(str::to_owned),
            None => what
                .split('.')
                .try_fold(response.json().unwrap_or_default(), |value, member| {
                    match member.parse::<usize>() {
                        Ok(index) => value.as_array()?.get(index).cloned(),
                        Err(_) => value.get(member).cloned(),
                    }
                })
                .map(|value| value.as_str().map_or_else(|| value.to_json(), str::to_owned)),
        };
        let value = value.unwrap_or_else(|| panic!("there is no {what}{context}"));
        names.insert(name.to_owned(), value);
    } else if let Some(expected) = line.strip_prefix("text ") {
        check_body(expected, response, context);
    } else if line == "empty" {
        assert!(response.body.is_empty(), "{context}");
    } else if is_header(&line) {
        let (name, expected) = line.split_once(':').expect("it is a header");
        match (expected.trim(), response.header(name)) {
            ("*", Some(_)) | ("-", None) => {}
            (expected, found) => assert_eq!(found, Some(expected), "{name}{context}"),
        }
    } else {
        check_body(&line, response, context);
    }
}

fn check_body(line: &str, response: &Response, context: &str) {
    let expected = orrery_model::value::parse(line.as_bytes());
    let expected = expected.unwrap_or_else(|error| panic!("{line}: {error}"));
    let found = response.json().unwrap_or_else(|| panic!("the body is not JSON{context}"));
    if let Err(place) = matches(&found, &expected) {
        panic!("the body differs at {place}: {line}{context}");
    }
}

/// Whether a value fits a pattern; otherwise the place where it does not.
fn matches(found: &Value, pattern: &Value) -> Result<(), String> {
    match (found, pattern) {
        (_, Value::String(any)) if **any == *"*" => Ok(()),
        (Value::String(text), Value::String(part)) if part.starts_with('~') => {
            if text.contains(&part[1..]) {
                Ok(())
            } else {
                Err(format!("\"{text}\""))
            }
        }
        (Value::Object(object), Value::Object(wanted)) => wanted.iter().try_for_each(|(name, wanted)| {
            // A minus before a name: the member must be missing.
            if let Some(absent) = name.strip_prefix('-') {
                return if object.contains(absent) { Err(format!("/{absent}")) } else { Ok(()) };
            }
            let member = object.get(name).ok_or_else(|| format!("/{name}, which is missing"))?;
            matches(member, wanted).map_err(|place| format!("/{name}{place}"))
        }),
        (Value::Array(items), Value::Array(wanted)) if items.len() == wanted.len() => {
            let mut pairs = items.iter().zip(wanted).enumerate();
            pairs.try_for_each(|(at, (item, wanted))| {
                matches(item, wanted).map_err(|place| format!("/{at}{place}"))
            })
        }
        _ if found == pattern => Ok(()),
        _ => Err(format!(": {}", found.to_json())),
    }
}
