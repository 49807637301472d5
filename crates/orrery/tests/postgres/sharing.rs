//! Two servers on one store share catalog changes, sessions, the change feed and budgets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Client, Server, pause, until};
use crate::{changes, ranges, read, text, upsert};

fn two_servers(arguments: &[&str]) -> [Server; 2] {
    let url = orrery_testing::fresh_store_url();
    [(); 2].map(|()| Server::start(&[arguments, &["--store", &url]].concat()))
}

#[test]
fn changes_on_one_server_are_visible_on_the_other() {
    let servers = two_servers(&["--no-throttle"]);
    let [mut one, mut other] = [&servers[0], &servers[1]].map(Server::client);
    one.create_container(&[("x-ms-offer-throughput", "400")]);
    let mut slowest = Duration::ZERO;
    let mut soon = |what: &str, ask: &mut dyn FnMut() -> bool| {
        let began = Instant::now();
        until(what, || ask().then_some(()));
        slowest = slowest.max(began.elapsed());
    };
    let container = "/dbs/db/colls/c";
    soon("a new container", &mut || other.send("GET", container, &[], b"").unwrap().status == 200);
    let policy = br#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":77,"indexingPolicy":{"excludedPaths":[{"path":"/n/?"}],"includedPaths":[{"path":"/*"}]}}"#;
    assert_eq!(one.send("PUT", container, &[], policy).unwrap().status, 200);
    soon("a new index policy", &mut || {
        let seen = other.send("GET", container, &[], b"").unwrap().json();
        let ttl = seen.get("defaultTtl").and_then(orrery_model::Value::as_i64);
        ttl == Some(77) && seen.to_json().contains("/n/?")
    });
    let offers = one.send("GET", "/offers", &[], b"").unwrap().json();
    let offer = offers.get("Offers").unwrap().as_array().unwrap()[0].clone();
    let path = format!("/offers/{}", text(&offer, "id"));
    let body = offer.to_json().replace("400", "900");
    let replaced = one.send("PUT", &path, &[], body.as_bytes()).unwrap();
    assert_eq!(replaced.status, 200, "{}", replaced.text());
    soon("a new offer", &mut || other.send("GET", &path, &[], b"").unwrap().text().contains("900"));
    // Requests follow a split by themselves; the map of ranges catches up later.
    let split = br#"{"database":"db","container":"c","partition":"0"}"#;
    let headers = [("content-type", "application/json")];
    assert_eq!(one.send("POST", "/_orrery/partitions/split", &headers, split).unwrap().status, 200);
    soon("a split", &mut || ranges(&mut other).len() == 2);

    // A session token from one server is honoured by the other.
    let mut token = String::new();
    for round in 0..40 {
        let (writer, reader) = if round % 2 == 0 { (&mut one, &mut other) } else { (&mut other, &mut one) };
        let written = upsert(writer, "k", &format!(r#"{{"id":"i","pk":"k","round":{round}}}"#)).unwrap();
        assert!(written.status <= 201, "{}", written.text());
        written.header("x-ms-session-token").unwrap().clone_into(&mut token);
        let headers = [("x-ms-session-token", token.as_str()), ("x-ms-consistency-level", "Session")];
        let seen = read(reader, "k", "i", &headers);
        assert_eq!(seen.status, 200, "{}", seen.text());
        assert_eq!(seen.json().get("round").unwrap().as_i64(), Some(round), "a session reads its writes");
    }

    // A feed position from one server is valid on the other.
    let range = token.split(':').next().unwrap().to_owned();
    let mut position = changes(&mut one, &range, None).1;
    for round in 0..10 {
        let (writer, reader) = if round % 2 == 0 { (&mut one, &mut other) } else { (&mut other, &mut one) };
        for part in 0..3 {
            let body = format!(r#"{{"id":"f{part}","pk":"k","round":{round}}}"#);
            assert!(upsert(writer, "k", &body).unwrap().status <= 201);
        }
        let (items, next) = changes(reader, &range, Some(&position));
        let found: Vec<(&str, Option<i64>)> =
            items.iter().map(|item| (text(item, "id"), item.get("round").unwrap().as_i64())).collect();
        assert_eq!(found, [("f0", Some(round)), ("f1", Some(round)), ("f2", Some(round))]);
        position = next;
    }
    assert_eq!(one.send("DELETE", container, &[], b"").unwrap().status, 204);
    soon("a deleted container", &mut || other.send("GET", container, &[], b"").unwrap().status == 404);
    eprintln!("the slowest change of the catalog was seen after {} ms", slowest.as_millis());
    for server in servers {
        server.stop();
    }
}

const RATE: f64 = 400.0;

/// Two servers that are both asked for more than the budget.
struct Load {
    /// Request units charged by each, in hundredths.
    charged: [Arc<AtomicU64>; 2],
    active: [Arc<AtomicBool>; 2],
    stop: Arc<AtomicBool>,
    writers: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(ports: [u16; 2]) -> Self {
        let charged = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let active = [(); 2].map(|()| Arc::new(AtomicBool::new(true)));
        let stop = Arc::new(AtomicBool::new(false));
        let writers = (0..4)
            .map(|number| {
                let at = number % 2;
                let (port, charged, active) = (ports[at], Arc::clone(&charged[at]), Arc::clone(&active[at]));
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || {
                    let mut client = Client::new(port);
                    while !stop.load(Ordering::Relaxed) {
                        if !active.load(Ordering::Relaxed) {
                            pause();
                            continue;
                        }
                        let body = format!(r#"{{"id":"w{number}","pk":"k"}}"#);
                        let answer = upsert(&mut client, "k", &body).unwrap();
                        if answer.status == 429 {
                            pause();
                            continue;
                        }
                        assert!(answer.status <= 201, "{}", answer.text());
                        let charge: f64 = answer.header("x-ms-request-charge").unwrap().parse().unwrap();
                        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
                        charged.fetch_add((charge * 100.0).round() as u64, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        Self { charged, active, stop, writers }
    }

    /// What each server granted, as a fraction of the rate, until both together have granted what the rate allows in
    /// this many seconds.
    fn measure(&self, seconds: f64) -> [f64; 2] {
        #[allow(clippy::cast_precision_loss, reason = "small")]
        let now = || [0, 1].map(|at| self.charged[at].load(Ordering::Relaxed) as f64 / 100.0);
        let (before, began) = (now(), Instant::now());
        until("requests to be granted", || {
            let granted: f64 = now().iter().sum::<f64>() - before.iter().sum::<f64>();
            (granted >= seconds * RATE).then_some(())
        });
        let (after, took) = (now(), began.elapsed().as_secs_f64());
        [0, 1].map(|at| (after[at] - before[at]) / took / RATE)
    }
}

/// The shares add up to the rate once the servers have exchanged their demand, which takes up to two seconds. The bounds
/// also leave room for partial seconds at both ends and for a busy machine.
#[test]
fn two_servers_share_a_budget() {
    let servers = two_servers(&[]);
    let [mut one, mut other] = [&servers[0], &servers[1]].map(Server::client);
    one.create_container(&[("x-ms-offer-throughput", "400")]);
    until("news of the container", || {
        (other.send("GET", "/dbs/db/colls/c", &[], b"").unwrap().status == 200).then_some(())
    });
    let load = Load::start([servers[0].port, servers[1].port]);
    load.measure(3.0);
    let both = load.measure(5.0);
    load.active[1].store(false, Ordering::Relaxed);
    load.measure(3.0);
    let alone = load.measure(4.0);
    load.stop.store(true, Ordering::Relaxed);
    for writer in load.writers {
        writer.join().unwrap();
    }
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    eprintln!(
        "both asked: {} + {} of the rate; one asked: {}",
        percent(both[0]),
        percent(both[1]),
        percent(alone[0])
    );
    let sum = both[0] + both[1];
    assert!((0.5..=1.4).contains(&sum), "together they give {sum} of the rate");
    assert!(both.iter().all(|part| (0.15..=0.9).contains(part)), "{both:?}: the parts follow demand");
    assert!(alone[0] <= 1.4 && alone[0] >= 0.5, "alone a server gives {} of the rate", alone[0]);
    for server in servers {
        server.stop();
    }
}
