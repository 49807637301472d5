//! Random operations of all kinds against a naive map, comparing every answer.
//!
//! A run is made by its seed: `ORRERY_SEED=7 cargo test … model` repeats one. `ORRERY_SOAK_ROUNDS` asks for more
//! runs, with new seeds, which are printed.

mod expected;
mod steps;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use orrery_db::{FeedScope, Options, PageRequest, QueryOptions, QueryRequest, Receipt};
use orrery_env::Env;
use orrery_model::session::{SessionEntry, SessionToken};
use orrery_model::{Error, Value};

use crate::common::env::Dice;
use crate::common::{
    CONTAINER, DATABASE, Engine, PLACE, World, everything, key, parse, quiet_options, raw, user_part,
    with_key,
};
use expected::{Expected, Model};

const STEPS: usize = 300;

#[tokio::test]
async fn random_operations_in_memory() {
    for seed in seeds(4) {
        eprintln!("model run in memory with ORRERY_SEED={seed}");
        run(Engine::Memory, seed).await;
    }
}

#[tokio::test]
async fn random_operations_on_disk() {
    for seed in seeds(2) {
        eprintln!("model run on disk with ORRERY_SEED={seed}");
        run(Engine::Embedded, seed).await;
    }
}

/// The seeds of this run: one that was asked for, or some that are always the same, and new ones in a soak.
fn seeds(count: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("ORRERY_SEED") {
        return vec![seed];
    }
    let base = RandomState::new().hash_one(count) >> 16;
    let new = (0..number("ORRERY_SOAK_ROUNDS").unwrap_or(0)).map(|round| base + round);
    (1..=count).chain(new).collect()
}

/// Keys as headers; 0 and -0 are two of them.
const KEYS: [&str; 7] = [r#"["a"]"#, r#"["b"]"#, "[1]", "[null]", "[{}]", "[0]", "[-0.0]"];
const IDS: [&str; 6] = ["1", "2", "3", "x y", "é", "a/b"];

/// One run: the database, the map, and what a client has seen.
struct Run {
    world: Option<World>,
    model: Model,
    dice: Dice,
    /// The furthest that answers have told of each range.
    session: HashMap<u32, SessionEntry>,
    /// The definition of the container without its lifetime.
    members: String,
    default_ttl: Option<i64>,
    place: String,
    merged: bool,
    /// What was done, for the message of a failure.
    history: Vec<String>,
}

impl Drop for Run {
    #[expect(clippy::print_stderr, reason = "a failed run must say how it came to that")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("The steps of the run, the latest last:\n{}", self.history.join("\n"));
        }
    }
}

async fn run(engine: Engine, seed: u64) {
    let mut dice = Dice::new(seed);
    let partitions = u32::try_from(1 + dice.below(3)).unwrap();
    let options = Options { partitions_at_creation: Some(partitions), ..quiet_options() };
    let world = World::open(engine, options).await;
    let version = 1 + dice.below(2);
    let unique = dice.one_in(2);
    let policy = if unique { r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"# } else { "" };
    let members = format!(r#""partitionKey":{{"paths":["/pk"],"kind":"Hash","version":{version}}}{policy}"#);
    world.create_container(&members).await;
    let mut run = Run {
        world: Some(world),
        model: Model::new(unique),
        dice,
        session: HashMap::new(),
        members,
        default_ttl: None,
        place: String::new(),
        merged: false,
        history: Vec::new(),
    };
    for step in 0..STEPS {
        run.place = format!("seed {seed}, step {step}, {engine:?}");
        run.step().await;
        if step % 10 == 0 {
            run.compare_everything().await;
        }
    }
    run.compare_everything().await;
    run.finish().await;
}

impl Run {
    fn world(&self) -> &World {
        self.world.as_ref().expect("a world is there except during a restart")
    }

    fn now(&self) -> i64 {
        self.world().env.now_seconds()
    }

    async fn step(&mut self) {
        match self.dice.below(100) {
            0..70 => self.write().await,
            70..78 => self.batch().await,
            78..82 => self.bulk().await,
            82..84 => self.purge().await,
            84..90 => {
                let seconds = i64::try_from(self.dice.below(15)).unwrap();
                self.note(&format!("clock {seconds}"));
                self.world().env.advance_seconds(seconds);
            }
            90..92 => self.redefine().await,
            92..95 => self.maintain().await,
            95..96 => self.split().await,
            96..97 => self.merge().await,
            97..99 => self.query().await,
            _ => {
                self.note("restart");
                let world = self.world.take().expect("a world is there except during a restart");
                self.world = Some(world.restart().await);
            }
        }
    }

    fn note(&mut self, what: &str) {
        self.history.push(format!("{}: {what}", self.place));
    }

    async fn purge(&mut self) {
        let header = *self.dice.pick(&KEYS);
        self.note(&format!("purge {header}"));
        let mut receipt = Receipt::default();
        self.world().database.delete_by_partition_key(&mut receipt, PLACE, &with_key(header)).await.unwrap();
        self.observe(&receipt, true);
        self.model.purge(header);
    }

    async fn redefine(&mut self) {
        // The sweeper may have come already or not: what is expired by now must be gone for good, because it
        // might come back under another lifetime. After a merge that cannot be told.
        if self.merged {
            return;
        }
        self.maintain().await;
        self.default_ttl = *self.dice.pick(&[None, Some(-1), Some(10), Some(30)]);
        self.note(&format!("defaultTtl {:?}", self.default_ttl));
        let default = self.default_ttl.map(|ttl| format!(r#","defaultTtl":{ttl}"#)).unwrap_or_default();
        self.world().replace_container(&format!("{}{default}", self.members)).await.unwrap();
        self.model.default_ttl = self.default_ttl;
        self.maintain().await;
    }

    async fn maintain(&mut self) {
        self.note("maintain");
        self.world().database.maintain().await.unwrap();
        self.model.forget_expired(self.now());
        let world = self.world();
        let (items, bytes) = world.usage().await;
        let stored = raw::count(world, raw::ITEM).await;
        let expected = self.model.items.len();
        // Where partitions were merged an expired item may have to wait behind one that is younger.
        if !self.merged {
            assert_eq!(stored, expected, "{}", self.place);
        }
        assert!(stored >= expected, "{}", self.place);
        assert_eq!(items, stored as u64, "{}", self.place);
        assert!(bytes >= items * 10, "{}", self.place);
    }

    async fn split(&mut self) {
        let world = self.world();
        let catalog = world.database.catalog();
        let container = catalog.container(DATABASE, CONTAINER).unwrap();
        let (rid, partitions) = (container.rid, container.partitions.clone());
        if partitions.len() >= 8 {
            return;
        }
        let range_id = self.dice.pick(&partitions).range_id;
        // A partition with too little in it has no middle.
        let split = self.world().database.split_partition(rid, range_id).await;
        self.note(&format!("split {range_id}: {split:?}"));
        if let Err(error) = split {
            assert_eq!(error.kind, orrery_model::ErrorKind::BadRequest, "{}: {error}", self.place);
        }
    }

    async fn merge(&mut self) {
        let catalog = self.world().database.catalog();
        let container = catalog.container(DATABASE, CONTAINER).unwrap();
        let neighbours: Vec<[u32; 2]> =
            container.partitions.windows(2).map(|pair| [pair[0].range_id, pair[1].range_id]).collect();
        if neighbours.is_empty() {
            return;
        }
        let parents = *self.dice.pick(&neighbours);
        let merged = self.world().database.merge_partitions(container.rid, parents).await;
        self.note(&format!("merge {parents:?}: {merged:?}"));
        self.merged = true;
        // There is a limit to how often this can be done.
        if let Err(error) = merged {
            assert_eq!(error.kind, orrery_model::ErrorKind::BadRequest, "{}: {error}", self.place);
        }
    }

    async fn query(&mut self) {
        let number = i64::try_from(self.dice.below(4)).unwrap();
        let size = i64::try_from(1 + self.dice.below(5)).unwrap();
        for (text, keep) in [
            (
                format!("SELECT VALUE c.id FROM c WHERE c.n = {number}"),
                (|n, wanted| n == wanted) as fn(i64, i64) -> bool,
            ),
            (format!("SELECT VALUE c.id FROM c WHERE c.n > {number} ORDER BY c.n DESC"), |n, wanted| {
                n > wanted
            }),
        ] {
            let request = QueryRequest { text, parameters: Vec::new(), resume_filter: None };
            let mut options = QueryOptions {
                cross_partition: true,
                session: Some(self.session_token()),
                ..QueryOptions::default()
            };
            let mut found = Vec::new();
            loop {
                options.page =
                    PageRequest { items_max: Some(size), continuation: options.page.continuation.take() };
                let mut receipt = Receipt::default();
                let page = self.world().database.query_items(&mut receipt, PLACE, &options, &request).await;
                let page = page.unwrap_or_else(|error| panic!("{}: {error}", self.place));
                self.observe(&receipt, false);
                let rows = parse(&[b"[", page.rows.as_slice(), b"]"].concat());
                found.extend(rows.as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()));
                options.page.continuation = page.continuation;
                if options.page.continuation.is_none() {
                    break;
                }
            }
            let visible = self.model.visible(self.now());
            let wanted = visible.filter(|(_, item)| item.number("n").is_some_and(|n| keep(n, number)));
            let mut expected: Vec<String> = wanted.map(|((_, id), _)| id.clone()).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{}: {}", self.place, request.text);
        }
    }

    /// Feeds of all scopes, and the store below them.
    async fn compare_everything(&mut self) {
        let size = i64::try_from(1 + self.dice.below(7)).unwrap();
        let header = *self.dice.pick(&KEYS);
        let now = self.now();
        let scoped = FeedScope { partition_key: Some(key(header)), ..FeedScope::default() };
        for (scope, only) in [(everything(), None), (scoped, Some(header))] {
            let items = self.world().feed(&scope, size).await.unwrap();
            let mut found: Vec<(String, Value)> =
                items.iter().map(|item| (etag(item), user_part(item))).collect();
            let visible = self.model.visible(now).filter(|((key, _), _)| only.is_none_or(|only| key == only));
            let mut expected: Vec<(String, Value)> =
                visible.map(|(_, item)| (item.etag.clone(), item.body.clone())).collect();
            found.sort_by_key(|(etag, body)| (body.to_json(), etag.clone()));
            expected.sort_by_key(|(etag, body)| (body.to_json(), etag.clone()));
            assert_eq!(found.len(), expected.len(), "{}", self.place);
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "{}", self.place);
            }
        }
        raw::check_consistency(self.world()).await.unwrap_or_else(|fault| panic!("{}: {fault}", self.place));
    }

    /// At the end all can be deleted, and nothing is left.
    async fn finish(mut self) {
        // In the end everything that can expire is gone from the store, too.
        self.world().env.advance_seconds(1_000_000);
        self.merged = false;
        self.maintain().await;
        for header in KEYS {
            let mut receipt = Receipt::default();
            self.world()
                .database
                .delete_by_partition_key(&mut receipt, PLACE, &with_key(header))
                .await
                .unwrap();
            self.model.purge(header);
        }
        self.world().database.maintain().await.unwrap();
        let world = self.world();
        assert_eq!(world.usage().await, (0, 0), "{}", self.place);
        for prefix in [raw::ITEM, raw::RID, raw::INDEX, raw::FEED, raw::UNIQUE, raw::EXPIRY, raw::PURGE] {
            assert_eq!(raw::count(world, prefix).await, 0, "{}: prefix {prefix:x}", self.place);
        }
    }

    fn session_token(&self) -> SessionToken {
        SessionToken { entries: self.session.values().copied().collect() }
    }

    /// Positions never go back, and every write moves its own on.
    fn observe(&mut self, receipt: &Receipt, wrote: bool) {
        for entry in receipt.session_token().map(|token| token.entries).unwrap_or_default() {
            let at = |entry: &SessionEntry| (entry.version, entry.lsn);
            if let Some(seen) = self.session.get(&entry.range_id) {
                assert!(at(&entry) >= at(seen), "{}: {entry} after {seen}", self.place);
                assert!(!wrote || at(&entry) > at(seen), "{}: {entry} after {seen}", self.place);
            }
            self.session.insert(entry.range_id, entry);
        }
    }

    fn compare(&mut self, what: &str, answer: Result<&Value, &Error>, expected: &Expected) {
        match (answer, expected) {
            (Ok(document), Expected::Item(body)) => {
                assert_eq!(&user_part(document), body, "{}: {what}", self.place);
            }
            (Err(error), Expected::Error(kind)) => {
                assert_eq!(error.kind, *kind, "{}: {what}: {error}", self.place);
            }
            (answer, expected) => panic!("{}: {what}: {answer:?} instead of {expected:?}", self.place),
        }
    }
}

fn etag(document: &Value) -> String {
    document.get("_etag").and_then(Value::as_str).expect("an item has an etag").to_owned()
}
