//! Random queries while everything changes under them: items come, change and go, expire and are purged by key,
//! partitions split, the indexing policy is replaced and its index is being built. At every moment the index gives
//! what a scan gives and what the language gives in memory, whether the query runs inside one key, over all
//! partitions, or range by range as a client that plans and merges runs it.

use bytes::Bytes;
use orrery_db::{FeedScope, Receipt};
use orrery_model::Value;
use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_query::context::Policies;
use orrery_query::plan::{Features, PlanInfo, PlanRequest, plan};

use crate::common::env::Dice;
use crate::common::{BY_PK, CONTAINER, DATABASE, Engine, PLACE, World, everything, key, parse, with_key};
use crate::equivalence::{Case, POLICIES, document, documents, in_memory, query};
use crate::merging::merge;
use crate::run::{self, Way, request, same_multiset};

/// The policy that indexes nothing.
const NO_INDEX: usize = 6;
const STEPS: u64 = 14;
const PARTITIONS_MAX: usize = 6;

struct Changing {
    world: World,
    dice: Dice,
    policy: usize,
    /// Items made so far, for their ids.
    made: u64,
    log: Vec<String>,
}

impl Changing {
    async fn new(seed: u64, engine: Engine) -> Self {
        let mut dice = Dice::new(seed);
        let policy = usize::try_from(dice.below(POLICIES.len() as u64)).unwrap();
        let world = World::with_partitions(engine, 2).await;
        let mut changing = Self { world, dice, policy, made: 0, log: vec![format!("seed {seed}")] };
        changing.world.create_container(&changing.members()).await;
        for _ in 0..25 {
            changing.create().await;
        }
        changing
    }

    fn members(&self) -> String {
        // Lifetimes need an index.
        let lifetimes = if self.policy == NO_INDEX { "" } else { "\"defaultTtl\":-1," };
        format!("{BY_PK},{lifetimes}\"indexingPolicy\":{}", POLICIES[self.policy])
    }

    /// A document, sometimes with a short life.
    fn document(&mut self, number: u64) -> Value {
        let mut document = parse(document(&mut self.dice, number).as_bytes());
        if self.dice.one_in(4) {
            let seconds = i64::try_from(5 + self.dice.below(40)).unwrap();
            document.as_object_mut().unwrap().set("ttl", seconds.into());
        }
        document
    }

    async fn create(&mut self) {
        let document = self.document(self.made);
        self.made += 1;
        self.world.create(&document.to_json()).await;
    }

    /// One of the items that are there, with its key.
    async fn any_item(&mut self) -> Option<(Value, String)> {
        let items = documents(&self.world, &everything()).await;
        if items.is_empty() {
            return None;
        }
        let item = self.dice.pick(&items).0.clone();
        let header = match item.get("pk") {
            None => "[{}]".to_owned(),
            Some(value) => format!("[{}]", value.to_json()),
        };
        Some((item, header))
    }

    async fn change(&mut self) {
        let database = self.world.database.clone();
        let mut receipt = Receipt::default();
        let what = match self.dice.below(10) {
            0 | 1 => {
                for _ in 0..=self.dice.below(4) {
                    self.create().await;
                }
                "items were created".to_owned()
            }
            2 | 3 => {
                let Some((item, header)) = self.any_item().await else { return };
                let id = item.get("id").and_then(Value::as_str).unwrap().to_owned();
                let mut new = self.document(id[1..].parse().unwrap());
                let object = new.as_object_mut().unwrap();
                object.remove("pk");
                if let Some(pk) = item.get("pk") {
                    object.set("pk", pk.clone());
                }
                let body = Bytes::from(new.to_json());
                database
                    .replace_item(&mut receipt, (PLACE.0, PLACE.1, &id), &with_key(&header), &body)
                    .await
                    .unwrap();
                format!("{id} of {header} became {}", new.to_json())
            }
            4 => {
                let Some((item, header)) = self.any_item().await else { return };
                let id = item.get("id").and_then(Value::as_str).unwrap();
                database.delete_item(&mut receipt, (PLACE.0, PLACE.1, id), &with_key(&header)).await.unwrap();
                format!("{id} of {header} was deleted")
            }
            5 => {
                let seconds = i64::try_from(self.dice.below(20)).unwrap();
                self.world.env.advance_seconds(seconds);
                format!("{seconds} seconds passed")
            }
            6 => {
                let header = format!("[\"k{}\"]", self.dice.below(5));
                database.delete_by_partition_key(&mut receipt, PLACE, &with_key(&header)).await.unwrap();
                format!("{header} was purged")
            }
            7 => self.split().await,
            8 => {
                self.policy = usize::try_from(self.dice.below(POLICIES.len() as u64)).unwrap();
                self.world.replace_container(&self.members()).await.unwrap();
                format!("the policy became {}", self.policy)
            }
            _ => {
                database.maintain().await.unwrap();
                "background work was done".to_owned()
            }
        };
        self.log.push(what);
    }

    fn ranges(&self) -> Vec<u32> {
        let catalog = self.world.database.catalog();
        let container = catalog.container(DATABASE, CONTAINER).unwrap();
        container.partitions.iter().map(|partition| partition.range_id).collect()
    }

    async fn split(&mut self) -> String {
        let rid = self.world.database.catalog().container(DATABASE, CONTAINER).unwrap().rid;
        let ranges = self.ranges();
        if ranges.len() >= PARTITIONS_MAX {
            return "nothing was split".to_owned();
        }
        let range = *self.dice.pick(&ranges);
        match self.world.database.split_partition(rid, range).await {
            Ok(_) => format!("{range} was split"),
            // One key cannot be divided.
            Err(error) => format!("{range} could not be split: {error}"),
        }
    }

    fn query(&mut self) -> Case {
        loop {
            let case = query(&mut self.dice, if self.policy == NO_INDEX { 0 } else { self.policy });
            // Without an index nothing can be sorted.
            if self.policy != NO_INDEX || !case.ordered {
                return case;
            }
        }
    }

    async fn check(&mut self) -> Result<(), String> {
        let case = self.query();
        let scope = match self.dice.below(4) {
            0 => {
                let header = *self.dice.pick(&["[\"k1\"]", "[\"k2\"]", "[null]", "[{}]"]);
                FeedScope { partition_key: Some(key(header)), ..FeedScope::default() }
            }
            1 => {
                let ranges = self.ranges();
                FeedScope { range_id: Some(*self.dice.pick(&ranges)), ..FeedScope::default() }
            }
            _ => everything(),
        };
        let items = documents(&self.world, &scope).await;
        let expected = in_memory(&case.text, &items).unwrap();
        let is_whole = scope.partition_key.is_none() && scope.range_id.is_none();
        for (page_size, without_index) in [(-1, false), (3, false), (-1, true)] {
            let way = Way { scope: scope.clone(), page_size, without_index };
            let found = run::rows(&self.world, CONTAINER, &request(&case.text), &way).await;
            self.compare(
                &case,
                &items,
                &expected,
                found.map_err(|error| error.to_string()),
                &format!("{way:?}"),
            )?;
        }
        // Those are what a client that plans would send already.
        let is_rewritten = case.text.starts_with("SELECT VALUE [{");
        if is_whole && !is_rewritten {
            // Which of several equal rows comes first is the client's affair.
            let unordered = Case { ordered: false, ..case };
            let found = self.planned(&unordered.text).await;
            self.compare(&unordered, &items, &expected, found, "planned")?;
        }
        Ok(())
    }

    fn compare(
        &self,
        case: &Case,
        items: &[(Value, u64)],
        expected: &[Value],
        found: Result<Vec<Value>, String>,
        way: &str,
    ) -> Result<(), String> {
        let about = || format!("{}\n  {}\n  {way}", self.log.join("\n  "), case.text);
        let found = found.map_err(|error| format!("{}\n  {error}", about()))?;
        let is_cut = case.text.contains("TOP") || case.text.contains("LIMIT");
        let same = match &case.bounded {
            Some((text, skip, count)) => {
                let whole = in_memory(text, items).unwrap();
                let texts: Vec<String> = whole.iter().map(run::canonical).collect();
                found.len() == (*count).min(whole.len().saturating_sub(*skip))
                    && found.iter().all(|row| texts.contains(&run::canonical(row)))
            }
            None if case.ordered => found == expected,
            None if is_cut => found.len() == expected.len(),
            None => same_multiset(&found, expected),
        };
        if same {
            return Ok(());
        }
        let json = |rows: &[Value]| Value::from(rows.to_vec()).to_json();
        Err(format!("{}\n  gave     {}\n  expected {}", about(), json(&found), json(expected)))
    }

    /// As a client runs it that asks for a plan.
    async fn planned(&self, text: &str) -> Result<Vec<Value>, String> {
        let definition = PartitionKeyDefinition::with_paths(&["/pk"]).unwrap();
        let policies = Policies::default();
        let plan_request = PlanRequest {
            parameters: &[],
            definition: Some(&definition),
            policies: &policies,
            computed: &[],
            features: Features::ALL,
        };
        let plan = plan(text, plan_request).map_err(|errors| format!("{errors:?}"))?;
        let PlanInfo::Query(info) = &plan.info else { return Err("not a plain plan".to_owned()) };
        let own = if info.rewritten_query.is_empty() { text } else { &info.rewritten_query };
        let own = own.replace("{documentdb-formattableorderbyquery-filter}", "true");
        let partitions: Vec<_> = {
            let catalog = self.world.database.catalog();
            let container = catalog.container(DATABASE, CONTAINER).unwrap();
            container
                .partitions
                .iter()
                .map(|partition| (partition.range_id, partition.range.clone()))
                .collect()
        };
        let mut ranges = Vec::new();
        for (range_id, range) in partitions {
            let is_asked = plan.ranges.iter().any(|asked| {
                let begins = if asked.max_inclusive { range.min <= asked.max } else { range.min < asked.max };
                begins && asked.min < range.max
            });
            if is_asked {
                let scope = FeedScope { range_id: Some(range_id), ..FeedScope::default() };
                let way = Way { scope, page_size: 5, without_index: false };
                let rows = run::rows(&self.world, CONTAINER, &request(&own), &way).await;
                ranges.push(rows.map_err(|error| format!("{own}: {error}"))?);
            }
        }
        Ok(merge(info, ranges))
    }
}

async fn check_seeds(seeds: impl Iterator<Item = u64>, engine: Engine) {
    let mut failures = Vec::new();
    for seed in seeds {
        let mut changing = Changing::new(seed, engine).await;
        for _ in 0..STEPS {
            changing.change().await;
            for _ in 0..4 {
                failures.extend(changing.check().await.err());
            }
        }
    }
    let shown = failures[..failures.len().min(5)].join("\n");
    assert!(failures.is_empty(), "{} failed:\n{shown}", failures.len());
}

#[tokio::test]
async fn queries_are_correct_while_everything_changes() {
    let rounds = std::env::var("ORRERY_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    check_seeds(2000..2000 + rounds, Engine::Memory).await;
}

#[tokio::test]
async fn queries_are_correct_while_everything_changes_on_disk() {
    check_seeds(3000..3002, Engine::Embedded).await;
}
