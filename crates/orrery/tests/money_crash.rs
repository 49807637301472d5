//! Stored procedures under `kill -9`: sixteen clients transfer money between accounts, the server dies at random moments,
//! transfers of unknown fate are sent again, and in the end every transfer has happened exactly once.
//!
//! Three rounds, or `ORRERY_SOAK_ROUNDS`; see `common::Rounds`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Client, Crew, DOCS, Rounds, Server};
use orrery_model::Value;

const CLIENTS: u64 = 16;
const BANKS: u64 = 3;
const ACCOUNTS: u64 = 6;
const OPENING: i64 = 1000;

/// Transfers money and records the transfer, or reports that it was recorded before.
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

/// What a client knows: the outcome of answered transfers, and the last one, which may be unanswered.
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
fn every_transfer_happens_exactly_once() {
    let mut rounds = Rounds::new("money", 3);
    let directory = tempfile::tempdir().unwrap();
    let mut known: Vec<Known> = (0..CLIENTS).map(|_| Known::default()).collect();
    for round in 0..=rounds.count {
        let server = Server::on_directory(directory.path());
        let port = server.port;
        if round == 0 {
            open_banks(&mut Client::new(port));
        }
        // The last round only resolves transfers of unknown fate.
        let is_last = round == rounds.count;
        let client =
            |number, own: &mut Known, crew: &Crew| transfer_until_stopped(port, number, own, crew, is_last);
        if is_last {
            Crew::work(&mut known, client, |_| ());
            verify(&mut Client::new(port), &known);
            server.stop();
        } else {
            Crew::work(&mut known, client, |crew| {
                rounds.wait(crew, 50, 500);
                server.kill();
            });
        }
    }
    let done: usize = known.iter().map(|own| own.done.len()).sum();
    eprintln!("{done} transfers");
    assert!(done > 0);
}

fn open_banks(client: &mut Client) {
    client.post("/dbs", r#"{"id":"db"}"#, 201);
    let body = r#"{"id":"c","partitionKey":{"paths":["/bank"],"kind":"Hash","version":2}}"#;
    client.post("/dbs/db/colls", body, 201);
    let body = format!(r#"{{"id":"transfer","body":{}}}"#, Value::from(TRANSFER).to_json());
    client.post("/dbs/db/colls/c/sprocs", &body, 201);
    for bank in 0..BANKS {
        for account in 0..ACCOUNTS {
            let body = format!(r#"{{"id":"a{account}","bank":{bank},"balance":{OPENING}}}"#);
            let key = format!("[{bank}]");
            client.post_with(DOCS, &[("x-ms-documentdb-partitionkey", &key)], &body, 201);
        }
    }
}

fn transfer_until_stopped(port: u16, number: u64, own: &mut Known, crew: &Crew, is_last: bool) {
    let mut client = Client::new(port);
    loop {
        let transfer = match own.unknown.take() {
            Some(transfer) => transfer,
            None if is_last || crew.is_stopped() => return,
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
            // A conflict with another transfer, or a slow machine: retry.
            (408 | 429 | 449 | 503, _) => continue,
            (status, text) => panic!("{status}: {text}"),
        }
        own.unknown = None;
        crew.count();
    }
}

/// No money is lost, the history is complete, and the balances follow from it.
fn verify(client: &mut Client, known: &[Known]) {
    let mut balances: BTreeMap<(i64, String), i64> = BTreeMap::new();
    let mut history: BTreeMap<String, (i64, String, String, i64)> = BTreeMap::new();
    let mut continuation: Option<String> = None;
    loop {
        let mut headers = vec![("x-ms-max-item-count", "1000")];
        if let Some(token) = &continuation {
            headers.push(("x-ms-continuation", token));
        }
        let page = client.send("GET", DOCS, &headers, b"").unwrap();
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
            assert!(history.contains_key(id), "{id} was acknowledged and is missing");
        }
        for id in &own.refused {
            assert!(!history.contains_key(id), "{id} was refused and is there");
        }
    }
    let done: usize = known.iter().map(|own| own.done.len()).sum();
    assert_eq!(history.len(), done, "a transfer happened that nobody sent");
}
