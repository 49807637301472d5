//! Steps that write items: alone, in batches, in bulk.

use bytes::Bytes;
use orrery_db::{
    BatchKind, BatchOperation, BatchOutcome, BatchResult, Effect, ItemOptions, ItemReply, Receipt,
};
use orrery_model::{Error, ErrorKind, Object, Value};

use super::expected::{Ask, Change, Conditions, Expected, Place};
use super::{IDS, KEYS, Run};
use crate::common::{CONTAINER, DATABASE, PLACE, key, parse, with_key};

/// One operation on one item.
#[derive(Debug)]
struct Wish {
    place: Place,
    ask: Ask,
    conditions: Conditions,
}

impl Run {
    fn place(&mut self) -> Place {
        ((*self.dice.pick(&KEYS)).to_owned(), (*self.dice.pick(&IDS)).to_owned())
    }

    fn small(&mut self, end: u64) -> i64 {
        i64::try_from(self.dice.below(end)).unwrap()
    }

    fn body(&mut self, (header, id): &Place) -> Value {
        let mut body = Object::new();
        body.set("id", Value::from(id.as_str()));
        let part = &parse(header.as_bytes()).as_array().unwrap()[0].clone();
        if part.as_object().is_none() {
            body.set("pk", part.clone());
        }
        body.set("n", Value::from(self.small(5)));
        if !self.dice.one_in(4) {
            body.set("u", Value::from(self.small(12)));
        }
        match self.dice.below(8) {
            0 => body.set("ttl", Value::from(-1)),
            1 => body.set("ttl", Value::from(1 + self.small(20))),
            _ => {}
        }
        if self.dice.one_in(3) {
            let length = usize::try_from(self.dice.below(300)).unwrap();
            body.set("text", Value::from("é".repeat(length)));
        }
        body.into()
    }

    fn wish(&mut self, place: Place) -> Wish {
        let ask = match self.dice.below(12) {
            0..2 => Ask::Create(self.body(&place)),
            2..5 => Ask::Upsert(self.body(&place)),
            5..7 => {
                let id = if self.dice.one_in(4) { *self.dice.pick(&IDS) } else { place.1.as_str() };
                let target = (place.0.clone(), id.to_owned());
                Ask::Replace(self.body(&target))
            }
            7..9 => {
                let count = 1 + self.dice.below(3);
                Ask::Patch((0..count).map(|_| self.change()).collect())
            }
            9..10 => Ask::Delete,
            _ => Ask::Read,
        };
        let current = self.model.get(&place, self.now()).map(|item| item.etag.clone());
        let mut etag = |odds: u64| {
            let wanted =
                ["*".to_owned(), "\"stale\"".to_owned(), current.clone().unwrap_or("\"none\"".to_owned())];
            self.dice.one_in(odds).then(|| self.dice.pick(&wanted).clone())
        };
        let (if_match, if_none_match) = (etag(4), etag(8));
        let if_none_match = if_none_match.filter(|_| matches!(ask, Ask::Patch(_)));
        Wish { place, ask, conditions: Conditions { if_match, if_none_match } }
    }

    fn change(&mut self) -> Change {
        let name = *self.dice.pick(&["n", "u", "extra"]);
        match self.dice.below(8) {
            0..4 => Change::Set(name, self.small(12)),
            4..6 => Change::Increment(name, self.small(3)),
            6 => Change::Set("ttl", 1 + self.small(20)),
            _ => Change::Remove(name),
        }
    }

    pub(super) async fn write(&mut self) {
        let place = self.place();
        let wish = self.wish(place);
        let mut receipt = Receipt::default();
        let answer = self.run_alone(&wish, &mut receipt).await;
        let outcome = answer.as_ref().map(|reply| reply.effect).map_err(|error| error.kind);
        self.note(&format!("{:?} {:?}: {outcome:?} {:?}", wish.place, wish.ask, receipt.served));
        let wrote = answer.is_ok() && !matches!(wish.ask, Ask::Read);
        self.observe(&receipt, wrote);
        let now = self.now();
        let expected = self.model.apply(&wish.place, &wish.ask, &wish.conditions, now);
        self.settle(&wish, answer.as_ref(), &expected);
    }

    async fn run_alone(&self, wish: &Wish, receipt: &mut Receipt) -> Result<ItemReply, Error> {
        let database = &self.world().database;
        let options = ItemOptions {
            if_match: wish.conditions.if_match.clone(),
            if_none_match: wish.conditions.if_none_match.clone(),
            // A client that has seen so much must never be told that it is ahead.
            session: Some(self.session_token()),
            ..with_key(&wish.place.0)
        };
        let place = (DATABASE, CONTAINER, wish.place.1.as_str());
        let text = |body: &Value| Bytes::from(body.to_exact_json());
        match &wish.ask {
            Ask::Create(body) => database.create_item(receipt, PLACE, &options, &text(body)).await,
            Ask::Upsert(body) => database.upsert_item(receipt, PLACE, &options, &text(body)).await,
            Ask::Replace(body) => database.replace_item(receipt, place, &options, &text(body)).await,
            Ask::Patch(changes) => database.patch_item(receipt, place, &options, &patch_body(changes)).await,
            Ask::Delete => database.delete_item(receipt, place, &options).await,
            Ask::Read => database.read_item(receipt, place, &options).await,
        }
    }

    /// Compares an answer and takes over what the server has decided: etag and RID.
    fn settle(&mut self, wish: &Wish, answer: Result<&ItemReply, &Error>, expected: &Expected) {
        let what = format!("{:?} {:?}", wish.place, wish.ask);
        let document = answer.ok().map(|reply| parse(&reply.document()));
        self.compare(&what, answer.map(|_| document.as_ref().unwrap()), expected);
        let (Ok(reply), Some(document)) = (answer, document) else { return };
        if !matches!(reply.effect, Effect::Created | Effect::Replaced) {
            return;
        }
        let text = |name: &str| document.get(name).and_then(Value::as_str).unwrap().to_owned();
        assert_eq!(document.get("_ts").and_then(Value::as_i64), Some(self.now()), "{}: {what}", self.place);
        let place = (wish.place.0.clone(), text("id"));
        let learned = self.model.learn(&place, &reply.etag, &text("_rid"));
        learned.unwrap_or_else(|fault| panic!("{}: {what}: {fault}", self.place));
    }

    pub(super) async fn batch(&mut self) {
        let header = (*self.dice.pick(&KEYS)).to_owned();
        let count = 1 + self.dice.below(6);
        let mut wishes = Vec::new();
        for _ in 0..count {
            let place = (header.clone(), (*self.dice.pick(&IDS)).to_owned());
            wishes.push(self.wish(place));
        }
        let operations: Vec<BatchOperation> = wishes.iter().map(|wish| operation(wish, false)).collect();
        let mut receipt = Receipt::default();
        let results =
            self.world().database.execute_batch(&mut receipt, PLACE, &with_key(&header), &operations).await;
        let results = results.unwrap_or_else(|error| panic!("{}: {error}", self.place));
        assert_eq!(results.len(), wishes.len(), "{}", self.place);
        self.note(&format!("batch {:?}: {:?}", wishes, receipt.served));

        // On a copy first: one failure undoes all.
        let before = self.model.clone();
        let now = self.now();
        let mut failed = None;
        for (at, (wish, result)) in wishes.iter().zip(&results).enumerate() {
            let expected = self.model.apply(&wish.place, &wish.ask, &wish.conditions, now);
            if let Expected::Error(kind) = expected {
                failed = Some((at, kind));
                break;
            }
            if let BatchOutcome::Done(reply) = &result.outcome {
                self.settle(wish, Ok(reply), &expected);
            } else {
                // What later operations meet has an etag that nobody learns; none is compared with it.
                assert!(
                    results.iter().any(|result| matches!(result.outcome, BatchOutcome::Failed(_))),
                    "{}",
                    self.place
                );
            }
        }
        let Some((at, kind)) = failed else {
            let writes = wishes.iter().any(|wish| !matches!(wish.ask, Ask::Read));
            self.observe(&receipt, writes);
            return;
        };
        self.observe(&receipt, false);
        for (number, result) in results.iter().enumerate() {
            self.compare_failed(number, result, (number == at).then_some(kind));
        }
        self.model = before;
    }

    fn compare_failed(&self, number: usize, result: &BatchResult, kind: Option<ErrorKind>) {
        match (&result.outcome, kind) {
            (BatchOutcome::FailedDependency, None) => {}
            (BatchOutcome::Failed(error), Some(kind)) if error.kind == kind => {}
            (outcome, kind) => panic!("{}: operation {number}: {outcome:?} instead of {kind:?}", self.place),
        }
    }

    /// Operations at the same time, on different keys, so that their order does not matter.
    pub(super) async fn bulk(&mut self) {
        let mut wishes = Vec::new();
        for header in KEYS {
            if self.dice.one_in(2) {
                let place = (header.to_owned(), (*self.dice.pick(&IDS)).to_owned());
                wishes.push(self.wish(place));
            }
        }
        if wishes.is_empty() {
            return;
        }
        let operations: Vec<BatchOperation> = wishes.iter().map(|wish| operation(wish, true)).collect();
        let mut receipt = Receipt::default();
        let options = ItemOptions::default();
        let results =
            self.world().database.execute_bulk(&mut receipt, PLACE, &options, &operations, true).await;
        let results = results.unwrap_or_else(|error| panic!("{}: {error}", self.place));
        self.note(&format!("bulk {:?}: {:?}", wishes, receipt.served));
        self.observe(&receipt, false);
        for (wish, result) in wishes.iter().zip(&results) {
            let now = self.now();
            let expected = self.model.apply(&wish.place, &wish.ask, &wish.conditions, now);
            let answer = match &result.outcome {
                BatchOutcome::Done(reply) => Ok(reply),
                BatchOutcome::Failed(error) => Err(error),
                BatchOutcome::FailedDependency => panic!("{}: bulk has no dependencies", self.place),
            };
            self.settle(wish, answer, &expected);
        }
    }
}

fn patch_body(changes: &[Change]) -> Bytes {
    let operation = |change: &Change| match change {
        Change::Set(name, value) => format!(r#"{{"op":"set","path":"/{name}","value":{value}}}"#),
        Change::Increment(name, by) => format!(r#"{{"op":"incr","path":"/{name}","value":{by}}}"#),
        Change::Remove(name) => format!(r#"{{"op":"remove","path":"/{name}"}}"#),
    };
    Bytes::from(format!("[{}]", changes.iter().map(operation).collect::<Vec<_>>().join(",")))
}

fn operation(wish: &Wish, own_key: bool) -> BatchOperation {
    let text = |body: &Value| Some(Bytes::from(body.to_exact_json()));
    let (kind, body) = match &wish.ask {
        Ask::Create(body) => (BatchKind::Create, text(body)),
        Ask::Upsert(body) => (BatchKind::Upsert, text(body)),
        Ask::Replace(body) => (BatchKind::Replace, text(body)),
        Ask::Patch(changes) => (BatchKind::Patch, Some(patch_body(changes))),
        Ask::Delete => (BatchKind::Delete, None),
        Ask::Read => (BatchKind::Read, None),
    };
    BatchOperation {
        kind,
        id: Some(wish.place.1.clone()),
        body,
        if_match: wish.conditions.if_match.clone(),
        if_none_match: wish.conditions.if_none_match.clone(),
        partition_key: own_key.then(|| key(&wish.place.0)),
    }
}
