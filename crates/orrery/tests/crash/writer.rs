//! One writer: what it did, what was acknowledged, and the one request whose fate is unknown.

use std::collections::{BTreeMap, BTreeSet};

use orrery_model::Value;

use crate::common::{Client, Crew, DOCS, Dice, Response};
use crate::object;

/// Items of one batch.
const BATCH: u64 = 4;

/// Partition key and id.
pub type ItemKey = (String, String);

/// A version of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub number: u64,
    /// Empty if the response that carried it never arrived.
    pub etag: String,
}

impl Version {
    /// Parses an item and checks that its text is intact.
    pub fn of(item: &Value) -> (ItemKey, Self) {
        let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap().to_owned();
        let number = u64::try_from(item.get("number").and_then(Value::as_i64).unwrap()).unwrap();
        assert_eq!(text("text"), text_of(number), "an item is damaged");
        ((text("pk"), text("id")), Self { number, etag: text("_etag") })
    }
}

/// Text derived from the version, so that a mixture of two versions is detected.
fn text_of(number: u64) -> String {
    format!("{number}-").repeat(usize::try_from(number % 60).unwrap() + 1)
}

/// What one request does to some items: the number written, or none for a delete.
type Effects = Vec<(ItemKey, Option<u64>)>;

pub struct Writer {
    name: u64,
    dice: Dice,
    known: BTreeMap<ItemKey, Version>,
    /// The request in flight when the server died.
    doubt: Option<Effects>,
    next: u64,
    pub acknowledged: u64,
    /// The history of each item: the number written, or none for a delete.
    pub history: BTreeMap<ItemKey, Vec<Option<u64>>>,
    /// Items that were deleted with their whole partition key.
    pub purged: BTreeSet<ItemKey>,
    /// The session tokens of the last responses.
    pub tokens: Vec<String>,
}

impl Writer {
    pub fn new(name: u64, seed: u64) -> Self {
        let (dice, known) = (Dice::new(seed), BTreeMap::new());
        let (history, purged) = (BTreeMap::new(), BTreeSet::new());
        let tokens = Vec::new();
        Self { name, dice, known, doubt: None, next: 1, acknowledged: 0, history, purged, tokens }
    }

    /// Writes until the connection breaks.
    pub fn write(&mut self, mut client: Client, crew: &Crew) {
        let mut tokens = Vec::new();
        while !crew.is_stopped() {
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
            crew.count();
            tokens.extend(response.header("x-ms-session-token").map(str::to_owned));
        }
        // The furthest position of each partition is among the last few.
        self.tokens = tokens.split_off(tokens.len().saturating_sub(100));
    }

    fn place(&mut self, id: String) -> ItemKey {
        (format!("w{}-{}", self.name, self.dice.below(5)), id)
    }

    /// A random item that was not written by a batch.
    fn some_item(&mut self) -> Option<ItemKey> {
        let single: Vec<&ItemKey> = self.known.keys().filter(|(_, id)| !id.starts_with('b')).collect();
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

    /// Deletes all items of a partition key.
    fn purge(&mut self, client: &mut Client) -> (Effects, std::io::Result<Response>) {
        let Some((pk, id)) = self.some_item() else { return nothing() };
        let key = key(&(pk.clone(), id));
        let path = "/dbs/db/colls/c/operations/partitionkeydelete";
        let outcome = client.send("POST", path, &[("x-ms-documentdb-partitionkey", &key)], b"");
        let places: Vec<ItemKey> = self.known.keys().filter(|place| place.0 == pk).cloned().collect();
        self.purged.extend(places.iter().cloned());
        (places.into_iter().map(|place| (place, None)).collect(), outcome)
    }

    /// Writes the same number to several items: all of them or none.
    fn batch(&mut self, client: &mut Client) -> (Effects, std::io::Result<Response>) {
        let pk = format!("w{}-batch", self.name);
        let places: Vec<ItemKey> = (0..BATCH).map(|at| (pk.clone(), format!("b{at}"))).collect();
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

    /// Records an acknowledged request.
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

    /// Removes this writer's items from what is stored. They must be exactly what was acknowledged; the request of
    /// unknown fate may have happened, but only as a whole.
    pub fn compare(&mut self, stored: &mut BTreeMap<ItemKey, Version>, context: &str) {
        let prefix = format!("w{}-", self.name);
        let own: Vec<ItemKey> = stored.keys().filter(|(pk, _)| pk.starts_with(&prefix)).cloned().collect();
        let found: BTreeMap<ItemKey, Version> =
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

fn key((pk, _): &ItemKey) -> String {
    format!("[\"{pk}\"]")
}

fn body((pk, id): &ItemKey, number: u64) -> Value {
    object(vec![
        ("id", Value::from(id.as_str())),
        ("pk", Value::from(pk.as_str())),
        ("number", Value::from(i64::try_from(number).unwrap())),
        ("text", Value::from(text_of(number))),
    ])
}
