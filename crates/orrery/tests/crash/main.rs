//! The server under `kill -9`: it dies at random moments while writers use it over HTTP. After each restart everything
//! acknowledged must be there, whole and consistent, and readers of the change feed must have missed nothing.
//!
//! Three rounds, or `ORRERY_SOAK_ROUNDS`; see `common::Rounds`.

#![allow(unreachable_pub, reason = "a test binary has no outside")]
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod feeds;
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use common::{Client, Crew, DOCS, Rounds, Server};
use feeds::FeedReader;
use orrery_model::session::{SessionEntry, SessionToken};
use orrery_model::{Object, Value};
use writer::{ItemKey, Version, Writer};

const WRITERS: u64 = 6;

/// A restart after a crash replays the journal. The bound is for an optimised build; a debug build gets more.
const READY_MAX: Duration = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 1 });

#[test]
fn acknowledged_writes_survive_kill_9() {
    let Rounds { count: rounds, seed, mut dice } = Rounds::new("writers and feeds", 3);
    let directory = tempfile::tempdir().unwrap();
    let mut writers: Vec<Writer> = (0..WRITERS).map(|number| Writer::new(number, dice.next())).collect();
    let mut seen = Session::default();
    let mut reader = FeedReader::new();
    let mut ready_times = Vec::new();
    let mut acknowledged = 0;
    for round in 0..rounds {
        let server = Server::on_directory(directory.path());
        ready_times.push(server.ready_after);
        assert!(server.ready_after < READY_MAX, "it took {:?} to be ready", server.ready_after);
        let mut client = server.client();
        if round == 0 {
            create_container(&mut client);
        }
        let context = format!("seed {seed}, round {round}");
        verify(&mut client, &mut writers, &mut seen, &context);
        reader.verify(&mut client, &writers, &context);
        let (lifetime, growth) = (50 + dice.below(1000), dice.below(60));
        acknowledged += write_until_killed(server, &mut writers, &mut seen, |crew| {
            crew.wait_for(lifetime);
            grow(&mut client, round);
            crew.wait_for(growth);
        });
    }
    let server = Server::on_directory(directory.path());
    ready_times.push(server.ready_after);
    let (mut client, context) = (server.client(), format!("seed {seed}, the end"));
    verify(&mut client, &mut writers, &mut seen, &context);
    reader.verify(&mut client, &writers, &context);
    server.stop();

    ready_times.sort();
    let (median, worst) = (ready_times[ready_times.len() / 2], ready_times[ready_times.len() - 1]);
    eprintln!(
        "{acknowledged} writes were acknowledged; ready after a crash in {median:?} (median), {worst:?} (worst)"
    );
    assert!(worst < READY_MAX, "a restart took {worst:?}");
    assert!(acknowledged > 0);
}

/// A container that grows from round to round.
fn create_container(client: &mut Client) {
    let created = client.send("POST", "/dbs", &[], br#"{"id":"db"}"#).unwrap();
    assert_eq!(created.status, 201);
    let body = br#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"changeFeedPolicy":{"retentionDuration":1440}}"#;
    let created = client.send("POST", "/dbs/db/colls", &[("x-ms-offer-throughput", "10000")], body).unwrap();
    assert_eq!(created.status, 201, "{}", created.text());
}

/// Raises the throughput: partitions split while they are written to, and the crash may come in the middle of that.
fn grow(client: &mut Client, round: u64) {
    let offers = client.send("GET", "/offers", &[], b"").unwrap().json();
    let rid = offers.get("Offers").and_then(Value::as_array).unwrap()[0].get("_rid").cloned().unwrap();
    let throughput = (20_000 * (round + 1)).min(600_000);
    let body = format!(r#"{{"content":{{"offerThroughput":{throughput}}}}}"#);
    let path = format!("/offers/{}", rid.as_str().unwrap());
    let replaced = client.send("PUT", &path, &[], body.as_bytes()).unwrap();
    // A split interrupted in an earlier round may still be finishing.
    assert!(matches!(replaced.status, 200 | 202 | 423), "{}", replaced.text());
}

/// Runs all writers until `meanwhile` is over and the server is killed; returns the number of acknowledged writes.
fn write_until_killed(
    server: Server,
    writers: &mut [Writer],
    seen: &mut Session,
    meanwhile: impl FnOnce(&Crew),
) -> u64 {
    let port = server.port;
    let before: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
    let client = |_, writer: &mut Writer, crew: &Crew| writer.write(Client::new(port), crew);
    Crew::work(writers, client, |crew| {
        meanwhile(crew);
        server.kill();
    });
    for token in writers.iter_mut().flat_map(|writer| std::mem::take(&mut writer.tokens)) {
        seen.note(&token);
    }
    writers.iter().map(|writer| writer.acknowledged).sum::<u64>() - before
}

/// The furthest position of each partition that a response has reported.
#[derive(Default)]
struct Session(HashMap<u32, SessionEntry>);

impl Session {
    fn note(&mut self, header: &str) {
        for entry in SessionToken::parse(header).unwrap().entries {
            let known = self.0.entry(entry.range_id).or_insert(entry);
            if (entry.version, entry.lsn) > (known.version, known.lsn) {
                *known = entry;
            }
        }
    }

    fn token(&self) -> String {
        SessionToken { entries: self.0.values().copied().collect() }.to_string()
    }
}

/// Compares everything in the container with what the writers know.
fn verify(client: &mut Client, writers: &mut [Writer], seen: &mut Session, context: &str) {
    // If a partition had lost a position it once reported, this read would be refused.
    let session = seen.token();
    let mut stored: BTreeMap<ItemKey, Version> = BTreeMap::new();
    let mut continuation: Option<String> = None;
    loop {
        let mut headers = vec![("x-ms-max-item-count", "1000")];
        if !session.is_empty() {
            headers.push(("x-ms-session-token", &session));
        }
        if let Some(continuation) = &continuation {
            headers.push(("x-ms-continuation", continuation));
        }
        let page = client.send("GET", DOCS, &headers, b"").unwrap();
        assert_eq!(page.status, 200, "{context}: {}", page.text());
        for item in page.json().get("Documents").and_then(Value::as_array).unwrap() {
            let (place, version) = Version::of(item);
            assert!(stored.insert(place.clone(), version).is_none(), "{context}: {place:?} came twice");
        }
        if let Some(token) = page.header("x-ms-session-token") {
            seen.note(token);
        }
        continuation = page.header("x-ms-continuation").map(str::to_owned);
        if continuation.is_none() {
            break;
        }
    }
    let total = stored.len();
    assert_eq!(feeds::latest(client, context), stored, "{context}: the feed of latest versions differs");
    for writer in writers {
        writer.compare(&mut stored, context);
    }
    assert!(stored.is_empty(), "{context}: nobody wrote {:?}", stored.keys().next());
    assert_eq!(
        counted(client),
        i64::try_from(total).unwrap(),
        "{context}: the counters differ from the items"
    );
}

/// The number of items according to the partitions' counters.
fn counted(client: &mut Client) -> i64 {
    let headers = [("x-ms-documentdb-populatepartitionstatistics", "True")];
    let container = client.send("GET", "/dbs/db/colls/c", &headers, b"").unwrap().json();
    let statistics = container.get("statistics").and_then(Value::as_array).unwrap();
    statistics.iter().map(|range| range.get("documentCount").and_then(Value::as_i64).unwrap()).sum()
}

/// An object with these members.
fn object(members: Vec<(&str, Value)>) -> Value {
    Object::from_members(members.into_iter().map(|(name, value)| (name.into(), value)).collect()).into()
}
