//! Money under `kill -9`: sixteen clients move it between accounts with a stored procedure, the server dies at random
//! moments, transfers whose fate is unknown are sent again, and in the end every transfer has happened exactly once.
//!
//! Three rounds, or `ORRERY_SOAK_ROUNDS`. The moments come from a seed, which is printed and can be given as
//! `ORRERY_SEED`.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test binary has no outside, and shares files with another"
)]

#[path = "crash/client.rs"]
mod client;
#[path = "crash/rounds.rs"]
mod rounds;
#[path = "crash/server.rs"]
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::Client;
use orrery_model::Value;
use rounds::Rounds;
use server::Served;

const CLIENTS: u64 = 16;
const BANKS: u64 = 3;
const ACCOUNTS: u64 = 6;
const OPENING: i64 = 1000;

/// Moves money and writes down that it did, or says that it has done so before.
const TRANSFER: &str = r"
function transfer(id, bank, from, to, amount) {
    var collection = getContext().getCollection(), link = collection.getAltLink();
    function check(accepted) { if (!accepted) throw new Error('not accepted'); }
    check(collection.readDocument(link + '/docs/' + id, function (error) {
        if (!error) { getContext().getResponse().setBody('before'); return; }
        if (error.number !== 404) throw error;
        check(collection.readDocument(link + '/docs/' + from, function (error, payer) {
            if (error) throw error;
            check(collection.queryDocuments(link, { query: 'SELECT * FROM c WHERE c.id = @id', parameters: [{ name: '@id', value: to }] }, function (error, found) {
                if (error) throw error;
                var payee = found[0];
                if (payer.balance < amount) { getContext().getResponse().setBody('too poor'); return; }
                payer.balance -= amount;
                payee.balance += amount;
                check(collection.replaceDocument(payer._self, payer, { etag: payer._etag }));
                check(collection.replaceDocument(payee._self, payee, { etag: payee._etag }));
                check(collection.createDocument(link, { id: id, bank: bank, from: from, to: to, amount: amount }, function (error) {
                    if (error) throw error;
                    getContext().getResponse().setBody('done');
                }));
            }));
        }));
    }));
}";

/// What a client knows: transfers that were answered, with the answer, and the last one, which may not have been.
#[derive(Default)]
struct Known {
    done: BTreeSet<String>,
    refused: BTreeSet<String>,
    unknown: Option<Transfer>,
    next: u64,
}

#[derive(Clone)]
struct Transfer {
    id: String,
    bank: u64,
    from: u64,
    to: u64,
    amount: i64,
}

#[test]
fn every_transfer_happens_once() {
    let mut rounds = Rounds::new("money", 3);
    let directory = tempfile::tempdir().unwrap();
    let mut known: Vec<Known> = (0..CLIENTS).map(|_| Known::default()).collect();
    for round in 0..=rounds.count {
        let served = Served::start(directory.path());
        let port = served.port;
        if round == 0 {
            open_banks(&mut Client::new(port));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = known
            .into_iter()
            .zip(0..)
            .map(|(mut own, client)| {
                let stop = Arc::clone(&stop);
                // The last round only clears up what is not known.
                let is_last = round == rounds.count;
                std::thread::spawn(move || {
                    transfer_until_stopped(port, client, &mut own, &stop, is_last);
                    own
                })
            })
            .collect();
        if round < rounds.count {
            rounds.wait(400);
            served.kill();
            stop.store(true, Ordering::Relaxed);
            known = clients.into_iter().map(|client| client.join().unwrap()).collect();
        } else {
            known = clients.into_iter().map(|client| client.join().unwrap()).collect();
            verify(&mut Client::new(port), &known);
            served.stop();
        }
    }
    let done: usize = known.iter().map(|own| own.done.len()).sum();
    eprintln!("{done} transfers");
    assert!(done > 0);
}

fn post(client: &mut Client, path: &str, headers: &[(&str, &str)], body: &str) {
    let answer = client.send("POST", path, headers, body.as_bytes()).unwrap();
    assert_eq!(answer.status, 201, "{path}: {}", answer.text());
}

fn open_banks(client: &mut Client) {
    post(client, "/dbs", &[], r#"{"id":"db"}"#);
    let body = r#"{"id":"c","partitionKey":{"paths":["/bank"],"kind":"Hash","version":2}}"#;
    post(client, "/dbs/db/colls", &[], body);
    let body = format!(r#"{{"id":"transfer","body":{}}}"#, Value::from(TRANSFER).to_json());
    post(client, "/dbs/db/colls/c/sprocs", &[], &body);
    for bank in 0..BANKS {
        for account in 0..ACCOUNTS {
            let body = format!(r#"{{"id":"a{account}","bank":{bank},"balance":{OPENING}}}"#);
            let key = format!("[{bank}]");
            post(client, "/dbs/db/colls/c/docs", &[("x-ms-documentdb-partitionkey", &key)], &body);
        }
    }
}

fn transfer_until_stopped(port: u16, number: u64, own: &mut Known, stop: &AtomicBool, is_last: bool) {
    let mut client = Client::new(port);
    loop {
        let transfer = match own.unknown.take() {
            Some(transfer) => transfer,
            None if is_last || stop.load(Ordering::Relaxed) => return,
            None => {
                own.next += 1;
                let dice = (number * 7919 + own.next).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let from = (dice >> 20) % ACCOUNTS;
                Transfer {
                    id: format!("t{number}-{}", own.next),
                    bank: (dice >> 40) % BANKS,
                    from,
                    to: (from + 1 + (dice >> 30) % (ACCOUNTS - 1)) % ACCOUNTS,
                    amount: i64::try_from(1 + dice % 50).unwrap(),
                }
            }
        };
        own.unknown = Some(transfer.clone());
        let Transfer { id, bank, from, to, amount } = transfer;
        let arguments = format!(r#"["{id}",{bank},"a{from}","a{to}",{amount}]"#);
        let key = format!("[{bank}]");
        let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
        let sent = client.send("POST", "/dbs/db/colls/c/sprocs/transfer", &headers, arguments.as_bytes());
        let Ok(answer) = sent else { return };
        match (answer.status, answer.text().as_str()) {
            (200, "\"done\"" | "\"before\"") => {
                own.done.insert(id);
            }
            (200, "\"too poor\"") => {
                own.refused.insert(id);
            }
            // Try again: others came first, or the machine is slow.
            (408 | 429 | 449 | 503, _) => continue,
            (status, text) => panic!("{status}: {text}"),
        }
        own.unknown = None;
    }
}

/// The money is all there, the history is complete, and each explains the other.
fn verify(client: &mut Client, known: &[Known]) {
    let mut balances: BTreeMap<(i64, String), i64> = BTreeMap::new();
    let mut history: BTreeMap<String, (i64, String, String, i64)> = BTreeMap::new();
    let mut continuation: Option<String> = None;
    loop {
        let mut headers = vec![("x-ms-max-item-count", "1000")];
        if let Some(token) = &continuation {
            headers.push(("x-ms-continuation", token));
        }
        let page = client.send("GET", "/dbs/db/colls/c/docs", &headers, b"").unwrap();
        for item in page.json().get("Documents").and_then(Value::as_array).unwrap() {
            let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap().to_owned();
            let number = |name: &str| item.get(name).and_then(Value::as_i64).unwrap();
            if item.get("balance").is_some() {
                balances.insert((number("bank"), text("id")), number("balance"));
            } else {
                let entry = (number("bank"), text("from"), text("to"), number("amount"));
                assert!(history.insert(text("id"), entry).is_none());
            }
        }
        continuation = page.header("x-ms-continuation").map(str::to_owned);
        if continuation.is_none() {
            break;
        }
    }
    let expected: i64 = i64::try_from(BANKS * ACCOUNTS).unwrap() * OPENING;
    assert_eq!(balances.values().sum::<i64>(), expected);
    assert!(balances.values().all(|balance| *balance >= 0));
    let mut explained: BTreeMap<(i64, String), i64> =
        balances.keys().map(|place| (place.clone(), OPENING)).collect();
    for (bank, from, to, amount) in history.values() {
        *explained.get_mut(&(*bank, from.clone())).unwrap() -= amount;
        *explained.get_mut(&(*bank, to.clone())).unwrap() += amount;
    }
    assert_eq!(explained, balances);
    for own in known {
        assert!(own.unknown.is_none());
        for id in &own.done {
            assert!(history.contains_key(id), "{id} was acknowledged and is not there");
        }
        for id in &own.refused {
            assert!(!history.contains_key(id), "{id} was refused and is there");
        }
    }
    let done: usize = known.iter().map(|own| own.done.len()).sum();
    assert_eq!(history.len(), done, "what nobody knows of has happened");
}
