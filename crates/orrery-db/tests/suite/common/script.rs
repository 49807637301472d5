//! Scripts: steps against one container and what each must answer, as text that reads like a protocol.
//!
//! ```text
//! create ["a"] {"id":"1","pk":"a"}            => created as first
//! read ["a"] 1                                => read {"id":"1","pk":"a"}
//! replace ["a"] 1 {"id":"1","pk":"a"} if-match=$first => replaced
//! read ["b"] 1                                => NotFound
//! clock 5
//! ```
//! A key is the JSON array of the header, or `-` for none. An answer is an effect, perhaps with the item that
//! must come back and a name under which its etag is remembered; or the kind of an error, perhaps with a piece
//! of its message in quotes. After every step the counters, and all that items leave in the store, are
//! compared with the items themselves.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use orrery_db::{
    BatchKind, BatchOperation, BatchOutcome, Effect, FeedScope, ItemOptions, ItemReply, Options,
    QueryOptions, QueryRequest, Receipt,
};
use orrery_env::Env;
use orrery_model::partition_key::PartitionKey;
use orrery_model::{Error, Result, Value};

use super::{CONTAINER, DATABASE, ENGINES, Engine, PLACE, World, ids, parse, quiet_options, raw, user_part};

/// Runs a script on a fresh container on every engine.
pub async fn check(members: &str, steps: &str) {
    Script { members, options: quiet_options(), engines: &ENGINES }.check(steps).await;
}

/// A container to run steps against.
pub struct Script<'a> {
    /// The members of the container's definition, besides its id.
    pub members: &'a str,
    pub options: Options,
    pub engines: &'a [Engine],
}

impl Script<'_> {
    pub async fn check(&self, steps: &str) {
        for engine in self.engines {
            let world = World::open(*engine, self.options.clone()).await;
            world.create_container(self.members).await;
            let mut run = Run { world: Some(world), etags: HashMap::new(), seen: HashSet::new() };
            for line in steps.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
            {
                let (step, expected) = line.split_once("=>").unwrap_or((line, ""));
                let answer = run.step(step.trim()).await;
                let answer = answer.unwrap_or_else(Answer::Failed);
                run.compare(&answer, expected.trim(), &format!("{line}\n  on {engine:?}"));
                raw::check_consistency(run.world()).await.unwrap_or_else(|fault| panic!("{line}\n{fault}"));
            }
        }
    }
}

struct Run {
    world: Option<World>,
    etags: HashMap<String, String>,
    seen: HashSet<String>,
}

/// What a step came to.
enum Answer {
    Done,
    Item(ItemReply),
    /// The statuses of a batch, as clients see them.
    Statuses(Vec<String>),
    Text(String),
    Rows(Vec<Value>),
    Failed(Error),
}

impl Run {
    fn world(&self) -> &World {
        self.world.as_ref().expect("a world is there except during a restart")
    }

    async fn step(&mut self, step: &str) -> Result<Answer> {
        let (verb, rest) = step.split_once(' ').unwrap_or((step, ""));
        let mut arguments = Arguments(rest.trim());
        let mut receipt = Receipt::default();
        match verb {
            "clock" => {
                self.world().env.advance_seconds(rest.trim().parse().unwrap());
                return Ok(Answer::Done);
            }
            "maintain" => return self.world().database.maintain().await.map(|()| Answer::Done),
            "restart" => {
                let world = self.world.take().expect("a world is there except during a restart");
                self.world = Some(world.restart().await);
                return Ok(Answer::Done);
            }
            "define" => return self.world().replace_container(rest.trim()).await.map(|_| Answer::Done),
            "usage" => {
                let (items, bytes) = self.world().usage().await;
                return Ok(Answer::Text(format!("{items} items {bytes} bytes")));
            }
            "raw" => {
                let prefix = u8::from_str_radix(rest.trim(), 16).unwrap();
                return Ok(Answer::Text(raw::count(self.world(), prefix).await.to_string()));
            }
            _ => {}
        }
        let key = arguments.key();
        let database = std::sync::Arc::clone(&self.world().database);
        let items = async |options: &ItemOptions, receipt: &mut Receipt, arguments: &mut Arguments<'_>| {
            let mut place = || arguments.id();
            let reply = match verb {
                "create" => database.create_item(receipt, PLACE, options, &arguments.body()).await?,
                "upsert" => database.upsert_item(receipt, PLACE, options, &arguments.body()).await?,
                "read" => database.read_item(receipt, (DATABASE, CONTAINER, &place()), options).await?,
                "delete" => database.delete_item(receipt, (DATABASE, CONTAINER, &place()), options).await?,
                "replace" | "patch" => {
                    let id = place();
                    let (at, body) = ((DATABASE, CONTAINER, id.as_str()), arguments.body());
                    match verb {
                        "replace" => database.replace_item(receipt, at, options, &body).await?,
                        _ => database.patch_item(receipt, at, options, &body).await?,
                    }
                }
                "purge" => {
                    database.delete_by_partition_key(receipt, PLACE, options).await?;
                    return Ok(Answer::Done);
                }
                "batch" | "bulk" => {
                    let operations = batch_operations(&arguments.body(), |name| self.value_of(name));
                    let results = match verb {
                        "batch" => database.execute_batch(receipt, PLACE, options, &operations).await?,
                        _ => database.execute_bulk(receipt, PLACE, options, &operations, true).await?,
                    };
                    return Ok(Answer::Statuses(
                        results.iter().map(|result| status(&result.outcome)).collect(),
                    ));
                }
                _ => panic!("unknown verb in: {step}"),
            };
            Ok(Answer::Item(reply))
        };
        match verb {
            "feed" => {
                let scope = FeedScope { partition_key: key, ..FeedScope::default() };
                let items = self.world().feed(&scope, 3).await?;
                let mut ids = ids(&items);
                ids.sort_unstable();
                Ok(Answer::Text(ids.join(" ")))
            }
            "query" => {
                let scope = FeedScope { partition_key: key, ..FeedScope::default() };
                let options = QueryOptions { scope, cross_partition: true, ..QueryOptions::default() };
                let request = QueryRequest {
                    text: arguments.0.to_owned(),
                    parameters: Vec::new(),
                    resume_filter: None,
                };
                let page = database.query_items(&mut receipt, PLACE, &options, &request).await?;
                let text = [b"[", page.rows.as_slice(), b"]"].concat();
                Ok(Answer::Rows(parse(&text).as_array().unwrap().to_vec()))
            }
            _ => {
                // Options stand after the arguments that are JSON or words.
                let (words, options) = self.options(arguments.0, key);
                arguments.0 = words;
                items(&options, &mut receipt, &mut arguments).await
            }
        }
    }

    /// Splits `name=value` pairs off the end.
    fn options<'a>(&self, text: &'a str, key: Option<PartitionKey>) -> (&'a str, ItemOptions) {
        let mut options = ItemOptions { partition_key: key, ..ItemOptions::default() };
        let mut rest = text.trim_end();
        while let Some((before, last)) = rest.rsplit_once(' ')
            && let Some((name, value)) = last.split_once('=')
            && matches!(name, "if-match" | "if-none-match" | "rid")
        {
            let value = Some(self.value_of(value));
            match name {
                "if-match" => options.if_match = value,
                "if-none-match" => options.if_none_match = value,
                _ => options.intended_rid = value,
            }
            rest = before.trim_end();
        }
        (rest, options)
    }

    fn value_of(&self, text: &str) -> String {
        match text.strip_prefix('$') {
            Some(name) => self.etags.get(name).unwrap_or_else(|| panic!("no etag is called {name}")).clone(),
            None => text.to_owned(),
        }
    }

    fn compare(&mut self, answer: &Answer, expected: &str, context: &str) {
        match answer {
            Answer::Done => assert_eq!(expected, "", "{context}"),
            Answer::Text(text) => assert_eq!(text, expected, "{context}"),
            Answer::Statuses(statuses) => assert_eq!(statuses.join(" "), expected, "{context}"),
            Answer::Rows(rows) => {
                assert_eq!(Value::from(rows.clone()), parse(expected.as_bytes()), "{context}");
            }
            Answer::Failed(error) => {
                let (kind, fragment) = expected.split_once(' ').unwrap_or((expected, ""));
                assert_eq!(format!("{:?}", error.kind), kind, "{context}\n  {error}");
                assert!(error.message.contains(fragment.trim().trim_matches('"')), "{context}\n  {error}");
            }
            Answer::Item(reply) => {
                let (expected, name) = match expected.rsplit_once(" as ") {
                    Some((expected, name)) => (expected, Some(name)),
                    None => (expected, None),
                };
                let (effect, body) = expected.split_once(' ').unwrap_or((expected, ""));
                assert_eq!(effect_name(reply.effect), effect, "{context}");
                let document = parse(&reply.document());
                assert_eq!(
                    document.get("_etag").and_then(Value::as_str),
                    Some(reply.etag.as_str()),
                    "{context}"
                );
                if !body.is_empty() {
                    assert_eq!(user_part(&document), parse(body.as_bytes()), "{context}");
                }
                if matches!(reply.effect, Effect::Created | Effect::Replaced) {
                    assert!(self.seen.insert(reply.etag.clone()), "{context}\n  an etag came twice");
                    let now = self.world().env.now_seconds();
                    assert_eq!(document.get("_ts").and_then(Value::as_i64), Some(now), "{context}");
                }
                if let Some(name) = name {
                    self.etags.insert(name.to_owned(), reply.etag.clone());
                }
            }
        }
    }
}

/// The words of a step: JSON values, or ids without blanks.
struct Arguments<'a>(&'a str);

impl Arguments<'_> {
    fn key(&mut self) -> Option<PartitionKey> {
        if let Some(rest) = self.0.strip_prefix('-') {
            self.0 = rest.trim_start();
            return None;
        }
        let text = self.json();
        Some(PartitionKey::parse_json(text.as_bytes()).unwrap())
    }

    fn id(&mut self) -> String {
        if self.0.starts_with('"') {
            return parse(self.json().as_bytes()).as_str().unwrap().to_owned();
        }
        let (word, rest) = self.0.split_once(' ').unwrap_or((self.0, ""));
        let word = word.to_owned();
        self.0 = rest.trim_start();
        word
    }

    fn body(&mut self) -> Bytes {
        Bytes::copy_from_slice(self.0.as_bytes())
    }

    fn json(&mut self) -> String {
        let mut values =
            serde_json::Deserializer::from_str(self.0).into_iter::<Box<serde_json::value::RawValue>>();
        let value = values.next().unwrap_or_else(|| panic!("JSON is missing")).unwrap();
        self.0 = self.0[values.byte_offset()..].trim_start();
        value.get().to_owned()
    }
}

fn effect_name(effect: Effect) -> &'static str {
    match effect {
        Effect::Created => "created",
        Effect::Replaced => "replaced",
        Effect::Deleted => "deleted",
        Effect::Read => "read",
        Effect::NotModified => "not-modified",
    }
}

/// The operations of a batch in the JSON form of the wire.
pub fn batch_operations(body: &[u8], etag: impl Fn(&str) -> String) -> Vec<BatchOperation> {
    let operations = parse(body);
    let operation = |value: &Value| {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let kind = match value.get("operationType").and_then(Value::as_str) {
            Some("Create") => BatchKind::Create,
            Some("Upsert") => BatchKind::Upsert,
            Some("Read") => BatchKind::Read,
            Some("Replace") => BatchKind::Replace,
            Some("Delete") => BatchKind::Delete,
            Some("Patch") => BatchKind::Patch,
            other => panic!("unknown operation {other:?}"),
        };
        BatchOperation {
            kind,
            id: text("id"),
            body: value.get("resourceBody").map(|body| Bytes::from(body.to_json())),
            if_match: text("ifMatch").map(|name| etag(&name)),
            if_none_match: text("ifNoneMatch").map(|name| etag(&name)),
            partition_key: text("partitionKey").map(|key| super::key(&key)),
        }
    };
    operations.as_array().expect("a batch is an array").iter().map(operation).collect()
}

/// An outcome as the status that clients see.
pub fn status(outcome: &BatchOutcome) -> String {
    match outcome {
        BatchOutcome::Done(reply) => match reply.effect {
            Effect::Created => "201".to_owned(),
            Effect::Replaced | Effect::Read => "200".to_owned(),
            Effect::Deleted => "204".to_owned(),
            Effect::NotModified => "304".to_owned(),
        },
        BatchOutcome::FailedDependency => "424".to_owned(),
        BatchOutcome::Failed(error) => format!("{:?}", error.kind),
    }
}
