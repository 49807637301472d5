//! Rows that nothing sorts come in the order in which their items were inserted, partition by partition, where a
//! partition has few: the suites of the .NET SDK (`CrossPartitionQueryTests`) and of other SDKs rely on it. Whatever
//! happens between two pages, every item comes once.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_db::{Container, FeedScope, PageRequest, QueryOptions, QueryRequest, Receipt};
use orrery_model::Value;

use crate::common::{BY_PK, CONTAINER, DATABASE, ENGINES, Engine, PLACE, World, everything, ids, key, parse};

/// Ids that are not in the order of insertion, under keys that are not either.
fn item(n: usize) -> (String, String) {
    let id = format!("{:05}", n.wrapping_mul(7919) % 100_003);
    let body = format!(
        r#"{{"id":"{id}","pk":"{}","n":{n},"tag":"t{}","deep":{{"list":[{},{}]}}}}"#,
        (n * 5) % 7,
        n % 3,
        n % 4,
        n % 2
    );
    (id, body)
}

async fn fill(world: &World, from: usize, to: usize) {
    for n in from..to {
        world.create(&item(n).1).await;
    }
}

fn container(world: &World) -> Arc<Container> {
    Arc::clone(world.database.catalog().container(DATABASE, CONTAINER).unwrap())
}

fn numbers(rows: &[Value]) -> Vec<usize> {
    let number = |row: &Value| usize::try_from(row.get("n").unwrap().as_i64().unwrap()).unwrap();
    rows.iter().map(number).collect()
}

struct Pages<'w> {
    world: &'w World,
    text: Option<&'static str>,
    scope: FeedScope,
    token: Option<String>,
    rows: Vec<usize>,
}

impl<'w> Pages<'w> {
    /// A query, or without one the read feed.
    fn of(world: &'w World, text: Option<&'static str>) -> Self {
        Self { world, text, scope: everything(), token: None, rows: Vec::new() }
    }

    fn of_key(self, header: &str) -> Self {
        Self { scope: FeedScope { partition_key: Some(key(header)), ..FeedScope::default() }, ..self }
    }

    /// Reads a page; returns whether there is another one.
    async fn page(&mut self, size: i64) -> bool {
        let page = PageRequest { items_max: Some(size), continuation: self.token.take() };
        let database = &self.world.database;
        let rows = match self.text {
            None => {
                let page = database
                    .read_items(&mut Receipt::default(), PLACE, None, &self.scope, None, &page)
                    .await
                    .unwrap();
                self.token = page.continuation;
                page.documents
            }
            Some(text) => {
                let request =
                    QueryRequest { text: text.to_owned(), parameters: Vec::new(), resume_filter: None };
                let scope = self.scope.clone();
                let options = QueryOptions { cross_partition: true, scope, page, ..QueryOptions::default() };
                let page =
                    database.query_items(&mut Receipt::default(), PLACE, &options, &request).await.unwrap();
                self.token = page.continuation;
                page.rows
            }
        };
        let rows = parse(&[b"[".as_slice(), &rows, b"]"].concat());
        self.rows.extend(numbers(rows.as_array().unwrap()));
        self.token.is_some()
    }

    async fn rest(mut self, size: i64) -> Vec<usize> {
        while self.page(size).await {}
        self.rows
    }
}

/// A query, or none for the read feed, and the numbers of the items that it finds.
type Read = (Option<&'static str>, fn(usize) -> bool);

/// The read feed, a scan, an index with few entries for a value or a range, and one with several entries for an item.
const READS: [Read; 5] = [
    (None, |_| true),
    (Some("SELECT * FROM c"), |_| true),
    (Some("SELECT c.n FROM c WHERE c.tag = 't1'"), |n| n % 3 == 1),
    (Some("SELECT c.n FROM c WHERE c.n >= 10 AND c.n < 60"), |n| (10..60).contains(&n)),
    (Some("SELECT c.n FROM c WHERE ARRAY_CONTAINS(c.deep.list, 1)"), |n| n % 4 == 1 || n % 2 == 1),
];

#[tokio::test]
async fn a_small_partition_is_read_in_the_order_of_insertion() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 1).await;
        world.create_container(BY_PK).await;
        fill(&world, 0, 150).await;
        // A replaced item keeps its place, one that was deleted and created again does not.
        let (id, body) = item(20);
        world.delete("2", &id).await;
        let at_end = world.create(&body).await;
        assert_eq!(ids(&[at_end]), [id.as_str()]);
        let order: Vec<usize> = (0..150).filter(|n| *n != 20).chain([20]).collect();
        for (text, matches) in READS {
            let expected: Vec<usize> = order.iter().copied().filter(|n| matches(*n)).collect();
            for size in [1, 3, 40, 149, 1000] {
                assert_eq!(Pages::of(&world, text).rest(size).await, expected, "{text:?} in pages of {size}");
            }
            let of_key: Vec<usize> = expected.iter().copied().filter(|n| (n * 5) % 7 == 3).collect();
            let rows = Pages::of(&world, text).of_key(r#"["3"]"#).rest(4).await;
            assert_eq!(rows, of_key, "{text:?} of one key");
        }
    }
}

/// The place in a page sequence at which something happens, and what it is.
#[tokio::test]
async fn every_item_comes_once_whatever_happens_between_pages() {
    for (text, matches) in READS {
        for stopped_after in [1, 30, 70] {
            let world = World::with_partitions(Engine::Memory, 2).await;
            world.create_container(BY_PK).await;
            fill(&world, 0, 140).await;
            let mut pages = Pages::of(&world, text);
            let mut more = true;
            while more && pages.rows.len() < stopped_after {
                more = pages.page(7).await;
            }
            let split = async |at: usize| {
                let container = container(&world);
                let range_id = container.partitions[at].range_id;
                world.database.split_partition(container.rid, range_id).await.unwrap();
            };
            let merge = async |at: usize| {
                let container = container(&world);
                let both = [container.partitions[at].range_id, container.partitions[at + 1].range_id];
                world.database.merge_partitions(container.rid, both).await.unwrap();
            };
            // Each change happens while some partition is half read.
            for step in 0..5 {
                match step {
                    0 => split(0).await,
                    1 => split(1).await,
                    2 => merge(0).await,
                    3 => merge(1).await,
                    // More than is sorted.
                    _ => fill(&world, 1000, 3200).await,
                }
                if more {
                    more = pages.page(5).await;
                }
            }
            let mut rows = if more { pages.rest(100).await } else { pages.rows };
            rows.retain(|n| *n < 1000);
            rows.sort_unstable();
            let expected: Vec<usize> = (0..140).filter(|n| matches(*n)).collect();
            assert_eq!(rows, expected, "{text:?}, changes after {stopped_after}");
        }
    }
}

/// Many items come in another order, but come once, and a partition that became small keeps to its order.
#[tokio::test]
async fn large_partitions_are_read_whole() {
    let world = World::with_partitions(Engine::Memory, 1).await;
    world.create_container(BY_PK).await;
    fill(&world, 0, 2500).await;
    for (text, matches) in READS {
        let rows = Pages::of(&world, text).rest(300).await;
        let mut counted: BTreeMap<usize, usize> = BTreeMap::new();
        for n in rows {
            *counted.entry(n).or_default() += 1;
        }
        let expected: BTreeMap<usize, usize> = (0..2500).filter(|n| matches(*n)).map(|n| (n, 1)).collect();
        assert_eq!(counted, expected, "{text:?}");
    }
}

#[tokio::test]
async fn groups_come_in_the_order_of_their_keys() {
    let world = World::with_partitions(Engine::Memory, 1).await;
    world.create_container(BY_PK).await;
    for (id, value) in
        [("1", r#""b""#), ("2", "3"), ("3", r#""a""#), ("4", "null"), ("5", "-1"), ("6", "true")]
    {
        world.create(&format!(r#"{{"id":"{id}","pk":"x","v":{value}}}"#)).await;
    }
    world.create(r#"{"id":"7","pk":"x"}"#).await;
    let request = QueryRequest {
        text: "SELECT c.v, COUNT(1) AS count FROM c GROUP BY c.v".to_owned(),
        parameters: Vec::new(),
        resume_filter: None,
    };
    let options = QueryOptions { cross_partition: true, ..QueryOptions::default() };
    let page = world.database.query_items(&mut Receipt::default(), PLACE, &options, &request).await.unwrap();
    let rows = parse(&[b"[".as_slice(), &page.rows, b"]"].concat());
    let values: Vec<String> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row.get("v").map_or("undefined".to_owned(), Value::to_json))
        .collect();
    assert_eq!(values, ["undefined", "null", "true", "-1", "3", r#""a""#, r#""b""#]);
}
