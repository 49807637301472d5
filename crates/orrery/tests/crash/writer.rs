//! One writer: what it does, what was acknowledged, and the one operation whose fate it does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use orrery_model::Value;

use crate::client::{Client, Response};
use crate::object;

const DOCS: &str = "/dbs/db/colls/c/docs";
/// Items of one batch.
const BATCH: u64 = 4;

/// Partition key and id.
pub type Place = (String, String);

/// A version of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub number: u64,
    /// Empty if the answer that had it never came.
    pub etag: String,
}

impl Version {
    /// Reads an item, whose text must be whole.
    pub fn of(item: &Value) -> (Place, Self) {
        let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap().to_owned();
        let number = u64::try_from(item.get("number").and_then(Value::as_i64).unwrap()).unwrap();
        assert_eq!(text("text"), text_of(number), "an item is damaged");
        ((text("pk"), text("id")), Self { number, etag: text("_etag") })
    }
}

/// Some bytes that belong to a version, so that a mixture of two would be seen.
fn text_of(number: u64) -> String {
    format!("{number}-").repeat(usize::try_from(number % 60).unwrap() + 1)
}

/// What one request does to some places: to a version, or away.
type Effects = Vec<(Place, Option<u64>)>;

pub struct Writer {
    name: u64,
    dice: Dice,
    known: BTreeMap<Place, Version>,
    /// What was asked when the server died.
    doubt: Option<Effects>,
    next: u64,
    pub acknowledged: u64,
    /// What happened to each place, in order: the number that was written, or none when it was deleted.
    pub history: BTreeMap<Place, Vec<Option<u64>>>,
    /// Places that were deleted with their whole key.
    pub purged: BTreeSet<Place>,
}

impl Writer {
    pub fn new(name: u64, seed: u64) -> Self {
        let (dice, known) = (Dice::new(seed), BTreeMap::new());
        let (history, purged) = (BTreeMap::new(), BTreeSet::new());
        Self { name, dice, known, doubt: None, next: 1, acknowledged: 0, history, purged }
    }

    /// Writes until the connection breaks; answers the session tokens of the last answers.
    pub fn write(&mut self, mut client: Client, stop: &AtomicBool) -> Vec<String> {
        let mut tokens = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            self.next += 1;
            let (effects, outcome) = match self.dice.below(50) {
                0..20 => self.create(&mut client),
                20..35 => self.replace(&mut client),
                35..40 => self.delete(&mut client),
                40..41 => self.purge(&mut client),
                _ => self.batch(&mut client),
            };
            if effects.is_empty() {
                continue;
            }
            let Ok(response) = outcome else {
                self.doubt = Some(effects);
                break;
            };
            self.learn(effects, &response);
            tokens.extend(response.header("x-ms-session-token").map(str::to_owned));
        }
        // The furthest of each partition is among the last few.
        tokens.split_off(tokens.len().saturating_sub(100))
    }

    fn place(&mut self, id: String) -> Place {
        (format!("w{}-{}", self.name, self.dice.below(5)), id)
    }

    /// One of the items that were not written by batches.
    fn some_item(&mut self) -> Option<Place> {
        let single: Vec<&Place> = self.known.keys().filter(|(_, id)| !id.starts_with('b')).collect();
        let at = usize::try_from(self.dice.below(single.len().max(1) as u64)).unwrap();
        single.get(at).map(|place| (*place).clone())
    }

    fn create(&mut self, client: &mut Client) -> (Effects, std::io::Result<Response>) {
        let place = self.place(format!("i{}", self.next));
        let body = body(&place, self.next).to_json();
        let outcome =
            client.send("POST", DOCS, &[("x-ms-documentdb-partitionkey", &key(&place))], body.as_bytes());
        (vec![(place, Some(self.next))], outcome)
    }

    fn replace(&mut self, client: &mut Client) -> (Effects, std::io::Result<Response>) {
        let Some(place) = self.some_item() else { return nothing() };
        let body = body(&place, self.next).to_json();
        let (key, etag) = (key(&place), self.known[&place].etag.clone());
        let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("if-match", etag.as_str())];
        let outcome = client.send("PUT", &format!("{DOCS}/{}", place.1), &headers, body.as_bytes());
        (vec![(place, Some(self.next))], outcome)
    }

    fn delete(&mut self, client: &mut Client) -> (Effects, std::io::Result<Response>) {
        let Some(place) = self.some_item() else { return nothing() };
        let headers = [("x-ms-documentdb-partitionkey", &*key(&place))];
        let outcome = client.send("DELETE", &format!("{DOCS}/{}", place.1), &headers, b"");
        (vec![(place, None)], outcome)
    }

    /// All items of a key at once.
    fn purge(&mut self, client: &mut Client) -> (Effects, std::io::Result<Response>) {
        let Some((pk, id)) = self.some_item() else { return nothing() };
        let key = key(&(pk.clone(), id));
        let path = "/dbs/db/colls/c/operations/partitionkeydelete";
        let outcome = client.send("POST", path, &[("x-ms-documentdb-partitionkey", &key)], b"");
        let places: Vec<Place> = self.known.keys().filter(|place| place.0 == pk).cloned().collect();
        self.purged.extend(places.iter().cloned());
        (places.into_iter().map(|place| (place, None)).collect(), outcome)
    }

    /// The same items get the same number together, or none of them does.
    fn batch(&mut self, client: &mut Client) -> (Effects, std::io::Result<Response>) {
        let pk = format!("w{}-batch", self.name);
        let places: Vec<Place> = (0..BATCH).map(|at| (pk.clone(), format!("b{at}"))).collect();
        let operations = places.iter().map(|place| {
            object(vec![("operationType", Value::from("Upsert")), ("resourceBody", body(place, self.next))])
        });
        let operations = Value::from(operations.collect::<Vec<_>>()).to_json();
        let key = key(&places[0]);
        let headers = [
            ("x-ms-documentdb-partitionkey", key.as_str()),
            ("x-ms-cosmos-is-batch-request", "True"),
            ("x-ms-cosmos-batch-atomic", "True"),
        ];
        let outcome = client.send("POST", DOCS, &headers, operations.as_bytes());
        (places.into_iter().map(|place| (place, Some(self.next))).collect(), outcome)
    }

    /// Takes an acknowledgement over.
    fn learn(&mut self, effects: Effects, response: &Response) {
        assert!(
            (200..300).contains(&response.status) && response.status != 207,
            "{effects:?}: {}",
            response.text()
        );
        self.acknowledged += 1;
        let is_batch = effects.len() > 1;
        for (at, (place, number)) in effects.into_iter().enumerate() {
            self.history.entry(place.clone()).or_default().push(number);
            let Some(number) = number else {
                self.known.remove(&place);
                continue;
            };
            let etag = if is_batch {
                let results = response.json();
                let result = &results.as_array().unwrap()[at];
                result.get("eTag").and_then(Value::as_str).unwrap().to_owned()
            } else {
                response.header("etag").unwrap().to_owned()
            };
            self.known.insert(place, Version { number, etag });
        }
    }

    /// Takes this writer's items out of what is stored. They must be what was acknowledged; the operation in
    /// doubt may have happened, but then as a whole.
    pub fn compare(&mut self, stored: &mut BTreeMap<Place, Version>, context: &str) {
        let prefix = format!("w{}-", self.name);
        let own: Vec<Place> = stored.keys().filter(|(pk, _)| pk.starts_with(&prefix)).cloned().collect();
        let found: BTreeMap<Place, Version> =
            own.into_iter().map(|place| stored.remove_entry(&place).unwrap()).collect();
        if let Some(effects) = self.doubt.take() {
            let happened = effects
                .iter()
                .filter(|(place, number)| found.get(place).map(|version| version.number) == *number);
            let happened = happened.count();
            assert!(happened == 0 || happened == effects.len(), "{context}: half of {effects:?} happened");
            for (place, number) in effects.iter().filter(|_| happened > 0) {
                self.history.entry(place.clone()).or_default().push(*number);
                match found.get(place) {
                    Some(version) => drop(self.known.insert(place.clone(), version.clone())),
                    None => drop(self.known.remove(place)),
                }
            }
        }
        for (place, version) in &self.known {
            assert_eq!(found.get(place), Some(version), "{context}: {place:?} was acknowledged");
        }
        for place in found.keys() {
            assert!(self.known.contains_key(place), "{context}: {place:?} was deleted or never written");
        }
    }
}

fn nothing() -> (Effects, std::io::Result<Response>) {
    (Vec::new(), Err(std::io::ErrorKind::NotFound.into()))
}

fn key((pk, _): &Place) -> String {
    format!("[\"{pk}\"]")
}

fn body((pk, id): &Place, number: u64) -> Value {
    object(vec![
        ("id", Value::from(id.as_str())),
        ("pk", Value::from(pk.as_str())),
        ("number", Value::from(i64::try_from(number).unwrap())),
        ("text", Value::from(text_of(number))),
    ])
}

/// Random choices that a seed repeats.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
