//! Queries over a container: the same rows whatever the page size, the number of partitions and the way in
//! which items are found. What the language means is tested where it is implemented.

use bytes::Bytes;
use orrery_db::{FeedScope, PageRequest, QueryOptions, QueryPage, QueryRequest, Receipt};
use orrery_model::{ErrorKind, Result, Value};

use crate::common::{
    BY_PK, CONTAINER, DATABASE, ENGINES, Engine, PLACE, World, check, key, parse, quiet_options, with_key,
};

fn request(text: &str) -> QueryRequest {
    QueryRequest { text: text.to_owned(), parameters: Vec::new(), resume_filter: None }
}

fn rows(page: &QueryPage) -> Vec<Value> {
    let text = [b"[", page.rows.as_slice(), b"]"].concat();
    let rows = parse(&text).as_array().unwrap().to_vec();
    assert_eq!(rows.len(), page.count);
    rows
}

async fn page(world: &World, options: &QueryOptions, request: &QueryRequest) -> Result<QueryPage> {
    world.database.query_items(&mut Receipt::default(), PLACE, options, request).await
}

/// All rows, in pages of this size.
async fn all(world: &World, options: &QueryOptions, request: &QueryRequest, size: i64) -> Vec<Value> {
    let mut options = options.clone();
    let mut found = Vec::new();
    for _ in 0..1000 {
        options.page.items_max = Some(size);
        let page =
            page(world, &options, request).await.unwrap_or_else(|error| panic!("{}: {error}", request.text));
        assert!(size < 0 || page.count <= usize::try_from(size).unwrap());
        found.extend(rows(&page));
        options.page.continuation = page.continuation;
        if options.page.continuation.is_none() {
            return found;
        }
    }
    panic!("{} does not come to an end in pages of {size}", request.text);
}

fn everywhere() -> QueryOptions {
    QueryOptions { cross_partition: true, ..QueryOptions::default() }
}

const POLICY: &str = r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/kind"},{"path":"/n","order":"descending"}]]}"#;

/// Eighteen items: numbers, texts, nulls and missing values under the same names, ties, arrays, nesting.
async fn filled(engine: Engine, partitions: u32) -> World {
    let world = World::with_partitions(engine, partitions).await;
    world.create_container(&format!("{BY_PK},{POLICY}")).await;
    let values = ["1", "2.5", "-3", "\"a\"", "\"b\"", "null", "true", "false", "[1]", "{\"x\":1}"];
    for n in 0..18 {
        let mixed = match n % 11 {
            10 => String::new(),
            at => format!(r#","mixed":{}"#, values[at]),
        };
        let tags: Vec<String> = (0..n % 4).map(|tag| format!("\"t{tag}\"")).collect();
        let kind = ["red", "green", "blue"][n % 3];
        world
            .create(&format!(
                r#"{{"id":"{n:02}","pk":"{}","n":{},"kind":"{kind}","tags":[{}],"deep":{{"m":{}}}{mixed}}}"#,
                n % 5,
                n % 7,
                tags.join(","),
                n * 10
            ))
            .await;
    }
    world
}

/// Rows come as items are found.
const STREAMS: [&str; 15] = [
    "SELECT * FROM c",
    "SELECT VALUE c.id FROM c",
    "SELECT c.id, c.mixed FROM c",
    "SELECT VALUE c.id FROM c WHERE c.n > 2",
    "SELECT VALUE c.id FROM c WHERE c.n = 3 OR c.kind = 'red'",
    "SELECT VALUE c.id FROM c WHERE c.kind IN ('red', 'blue') AND c.n < 5",
    "SELECT VALUE c.id FROM c WHERE STARTSWITH(c.kind, 'g')",
    "SELECT VALUE c.id FROM c WHERE IS_DEFINED(c.mixed) AND NOT IS_NULL(c.mixed)",
    "SELECT VALUE c.id FROM c WHERE c.mixed = null",
    "SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(c.tags, 't1')",
    "SELECT c.id, t AS tag FROM c JOIN t IN c.tags",
    "SELECT VALUE {\"id\": c.id, \"pair\": [a, b]} FROM c JOIN a IN c.tags JOIN b IN c.tags WHERE a < b",
    "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 't2')",
    "SELECT VALUE c.id FROM c WHERE c.deep.m >= 50 AND c.deep.m < 120",
    "SELECT TOP 7 c.id, t FROM c JOIN t IN c.tags",
];

/// Rows in an order that the query gives.
const SORTED: [&str; 13] = [
    "SELECT * FROM c ORDER BY c.n",
    "SELECT * FROM c WHERE c.deep.m > 20 ORDER BY c.kind ASC, c.n DESC OFFSET 2 LIMIT 9",
    "SELECT VALUE c.id FROM c ORDER BY c.n",
    "SELECT VALUE c.id FROM c ORDER BY c.n DESC",
    "SELECT VALUE c.id FROM c ORDER BY c.mixed",
    "SELECT VALUE c.id FROM c ORDER BY c.mixed DESC",
    "SELECT c.id, c.kind FROM c WHERE c.n > 1 ORDER BY c.kind",
    "SELECT VALUE c.id FROM c ORDER BY c.kind ASC, c.n DESC",
    "SELECT VALUE c.id FROM c ORDER BY c.kind DESC, c.n ASC",
    "SELECT TOP 5 VALUE c.id FROM c ORDER BY c.deep.m DESC",
    "SELECT VALUE c.id FROM c ORDER BY c.n OFFSET 3 LIMIT 6",
    "SELECT c.id, t FROM c JOIN t IN c.tags ORDER BY c.n",
    "SELECT VALUE c.id FROM c ORDER BY c._ts DESC",
];

/// A row that is a whole item is sent as the item is stored only where it would be printed just so: clients see
/// numbers and texts in one form, whoever wrote the item.
#[tokio::test]
async fn whole_items_print_like_their_values() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 1).await;
        world.create_container(BY_PK).await;
        for (id, rest) in [
            ("a", r#""n":1,"x":[1.5,"é",{"y":null}]"#),
            ("b", r#" "n" : 2.0, "x": [1.50, "\u00e9", {"y" : null}] "#),
            ("c", r#""n":3e0,"x":"a\/b","x":"c""#),
        ] {
            world.create(&format!(r#"{{"id":"{id}","pk":"p",{rest}}}"#)).await;
        }
        for text in ["SELECT * FROM c", "SELECT * FROM c ORDER BY c.n", "SELECT * FROM c WHERE c.n > 0"] {
            let page = page(&world, &everywhere(), &request(text)).await.unwrap();
            let printed: Vec<String> = rows(&page).iter().map(Value::to_json).collect();
            assert_eq!(String::from_utf8(page.rows).unwrap(), printed.join(","), "{text}");
            assert!(printed[1].starts_with(r#"{"id":"b","pk":"p","n":2,"x":[1.5,"é",{"y":null}],"_rid":"#));
            assert!(printed[2].starts_with(r#"{"id":"c","pk":"p","n":3,"x":"c","_rid":"#));
        }
    }
}

/// Items whose rows wait to be sorted are kept, those whose rows fall out are not, however many come.
#[tokio::test]
async fn whole_items_are_sorted_among_many() {
    let world = World::with_partitions(Engine::Memory, 1).await;
    world.create_container(BY_PK).await;
    for n in 0..700 {
        world.create(&format!(r#"{{"id":"{n:03}","pk":"p","n":{}}}"#, 700 - n)).await;
    }
    let options = QueryOptions { without_index: true, ..everywhere() };
    for size in [7, 300] {
        let found = all(&world, &options, &request("SELECT * FROM c ORDER BY c.n"), size).await;
        let numbers: Vec<i64> = found.iter().filter_map(|row| row.get("n")?.as_i64()).collect();
        assert_eq!(numbers, (1..=700).collect::<Vec<i64>>());
        assert!(found.iter().all(|row| row.get("_etag").is_some()));
    }
}

/// The items of a key lie together: a filter that only says which key it is needs no index to find them, but costs as
/// much as if it did. Another condition is still looked up.
#[tokio::test]
async fn the_items_of_one_key_are_read_in_one_scan() {
    for engine in ENGINES {
        let world = filled(engine, 2).await;
        let by_key = page(&world, &everywhere(), &request("SELECT * FROM c WHERE c.pk = '2'")).await.unwrap();
        assert_eq!((by_key.metrics.access.as_str(), by_key.count), ("all items", 4));
        assert_eq!((by_key.metrics.items_read, by_key.metrics.entries_read), (4, 4));
        let text = "SELECT * FROM c WHERE c.pk = '2' AND c.deep.m = 70";
        let by_value = page(&world, &everywhere(), &request(text)).await.unwrap();
        assert_eq!((by_value.metrics.access.as_str(), by_value.count), ("/deep/m = 70", 1));
        let count =
            page(&world, &everywhere(), &request("SELECT VALUE COUNT(1) FROM c WHERE c.pk = '2'")).await;
        let count = count.unwrap();
        assert_eq!((count.metrics.items_read, rows(&count)), (0, vec![Value::from(4)]));
    }
}

/// Rows that only the whole tells.
const COLLECTED: [&str; 12] = [
    "SELECT DISTINCT VALUE c.kind FROM c",
    "SELECT DISTINCT c.n FROM c",
    "SELECT DISTINCT VALUE c.mixed FROM c",
    "SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags",
    "SELECT c.kind, COUNT(1) AS count, SUM(c.n) AS sum FROM c GROUP BY c.kind",
    "SELECT c.kind, c.n, MAX(c.deep.m) AS most FROM c GROUP BY c.kind, c.n",
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT VALUE COUNT(1) FROM c WHERE c.n >= 2",
    "SELECT VALUE AVG(c.deep.m) FROM c",
    "SELECT VALUE MIN(c.n) FROM c WHERE c.kind = 'nothing'",
    "SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n DESC",
    "SELECT VALUE c.id FROM c OFFSET 4 LIMIT 9",
];

#[tokio::test]
async fn every_page_size_returns_the_same_rows() {
    for partitions in [1, 4] {
        let world = filled(Engine::Memory, partitions).await;
        for text in STREAMS.iter().chain(&SORTED).chain(&COLLECTED) {
            let request = request(text);
            for without_index in [false, true] {
                let options = QueryOptions { without_index, ..everywhere() };
                let whole = all(&world, &options, &request, -1).await;
                let all_sizes = 1..=i64::try_from(whole.len()).unwrap() + 1;
                // Over a network each page takes its time: a few sizes tell whether the store matters.
                let step = if crate::common::is_on_postgres() { 7 } else { 1 };
                for size in all_sizes.step_by(step) {
                    let paged = all(&world, &options, &request, size).await;
                    assert_eq!(paged, whole, "{text}\n  {size} rows a page, {partitions} partitions");
                }
            }
        }
    }
}

fn sorted(mut rows: Vec<Value>) -> Vec<Value> {
    rows.sort_by_key(Value::to_json);
    rows
}

#[tokio::test]
async fn rows_do_not_depend_on_the_index_or_the_number_of_partitions() {
    let reference = filled(Engine::Memory, 1).await;
    for (engine, partitions) in [(Engine::Memory, 1), (Engine::Memory, 4), (Engine::Embedded, 3)] {
        let world = filled(engine, partitions).await;
        for text in STREAMS.iter().chain(&SORTED).chain(&COLLECTED) {
            // Which rows are first is open without an order.
            if text.contains("TOP 7") || text.contains("OFFSET 4") || text.contains("* FROM") {
                continue;
            }
            let request = request(text);
            let scanned = QueryOptions { without_index: true, ..everywhere() };
            let expected = all(&reference, &scanned, &request, -1).await;
            for without_index in [true, false] {
                let options = QueryOptions { without_index, ..everywhere() };
                let found = all(&world, &options, &request, 5).await;
                assert_eq!(
                    sorted(found),
                    sorted(expected.clone()),
                    "{text}\n  {engine:?} {partitions} {without_index}"
                );
            }
        }
    }
}

#[tokio::test]
async fn sorted_rows_are_in_order() {
    for partitions in [1, 4] {
        let world = filled(Engine::Memory, partitions).await;
        let numbers = async |text: &str| -> Vec<i64> {
            let rows = all(&world, &everywhere(), &request(text), 4).await;
            rows.iter().map(|row| row.as_i64().unwrap()).collect()
        };
        assert!(numbers("SELECT VALUE c.n FROM c ORDER BY c.n").await.is_sorted());
        assert!(numbers("SELECT VALUE c.n FROM c ORDER BY c.n DESC").await.is_sorted_by(|a, b| a >= b));
        let by_two =
            all(&world, &everywhere(), &request("SELECT c.kind, c.n FROM c ORDER BY c.kind, c.n DESC"), 4)
                .await;
        let pairs: Vec<(String, i64)> = by_two
            .iter()
            .map(|row| {
                (
                    row.get("kind").unwrap().as_str().unwrap().to_owned(),
                    -row.get("n").unwrap().as_i64().unwrap(),
                )
            })
            .collect();
        assert_eq!(pairs.len(), 18);
        assert!(pairs.is_sorted());
        // The order of types: undefined, null, false, true, numbers, strings, arrays, objects.
        let mixed = all(&world, &everywhere(), &request("SELECT c.mixed FROM c ORDER BY c.mixed"), 1).await;
        let begins = ["u", "n", "f", "t", "-0123456789", "\"", "[", "{"];
        let rank = |row: &Value| {
            let text = row.get("mixed").map_or("u".to_owned(), Value::to_json);
            begins.iter().position(|begin| begin.contains(&text[..1])).unwrap()
        };
        assert_eq!(mixed.len(), 18);
        assert!(mixed.iter().map(rank).is_sorted(), "{mixed:?}");
    }
}

#[tokio::test]
async fn scopes_narrow_queries() {
    let world = filled(Engine::Memory, 4).await;
    let count = request("SELECT VALUE c.id FROM c WHERE c.n >= 0");
    let of_key = FeedScope { partition_key: Some(key(r#"["3"]"#)), ..FeedScope::default() };
    let own = all(&world, &QueryOptions { scope: of_key, ..QueryOptions::default() }, &count, 2).await;
    assert_eq!(sorted(own), ["03", "08", "13"].map(Value::from));
    let catalog = world.database.catalog();
    let partitions = &catalog.container(DATABASE, CONTAINER).unwrap().partitions;
    let mut by_range = Vec::new();
    for partition in partitions {
        let scope = FeedScope { range_id: Some(partition.range_id), ..FeedScope::default() };
        let options = QueryOptions { scope, ..QueryOptions::default() };
        by_range.extend(all(&world, &options, &count, 2).await);
    }
    assert_eq!(sorted(by_range), (0..18).map(|n| Value::from(format!("{n:02}"))).collect::<Vec<_>>());
    // A filter on the key is as good as a header; anything else must be asked for.
    let plain = QueryOptions::default();
    let named =
        all(&world, &plain, &request("SELECT VALUE c.id FROM c WHERE c.pk = '3' AND c.n >= 0"), 2).await;
    assert_eq!(sorted(named), ["03", "08", "13"].map(Value::from));
    let refused = page(&world, &plain, &count).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::BadRequest);
    assert!(refused.message.contains("Cross partition query is required but disabled"), "{refused}");
    let gone = FeedScope { range_id: Some(77), ..FeedScope::default() };
    let gone = page(&world, &QueryOptions { scope: gone, ..QueryOptions::default() }, &count).await;
    assert_eq!(gone.unwrap_err().kind, ErrorKind::PartitionGone);
}

#[tokio::test]
async fn continuations_survive_a_restart_and_are_bound_to_their_query() {
    for engine in ENGINES {
        let mut world = filled(engine, 2).await;
        for text in [
            "SELECT VALUE c.id FROM c",
            "SELECT VALUE c.id FROM c ORDER BY c.n",
            "SELECT DISTINCT VALUE c.n FROM c",
            "SELECT VALUE c.id FROM c WHERE c.n > 2",
        ] {
            let request = request(text);
            let whole = all(&world, &everywhere(), &request, -1).await;
            let mut options = everywhere();
            options.page.items_max = Some(4);
            let first = page(&world, &options, &request).await.unwrap();
            let mut found = rows(&first);
            options.page.continuation = first.continuation.clone();
            world = world.restart().await;
            let second = page(&world, &options, &request).await.unwrap();
            found.extend(rows(&second));
            assert_eq!(found, whole[..found.len()], "{text}");

            let token = first.continuation.unwrap();
            for (other, token) in [
                ("SELECT VALUE c.kind FROM c", token.clone()),
                (text, token[1..].to_owned()),
                (text, format!("{token}AAAA")),
                (text, "nonsense".to_owned()),
            ] {
                options.page.continuation = Some(token);
                let refused = page(&world, &options, &self::request(other)).await.unwrap_err();
                assert_eq!(refused.kind, ErrorKind::BadRequest);
                assert!(refused.message.contains("Invalid Continuation Token"), "{refused}");
            }
        }
    }
}

#[tokio::test]
async fn rows_are_neither_lost_nor_repeated_when_items_change_between_pages() {
    // After the first page the item that it ended in is removed, and another comes before it. Whatever was
    // there all the time must come exactly once.
    for text in [
        "SELECT c.id, t AS tag FROM c JOIN t IN c.tags",
        "SELECT c.id, t AS tag FROM c JOIN t IN c.tags WHERE c.n >= 0",
        "SELECT c.id, t AS tag FROM c JOIN t IN c.tags ORDER BY c.id",
        "SELECT VALUE {\"id\": c.id, \"tag\": c.id} FROM c WHERE c.kind IN ('red', 'green', 'blue')",
        "SELECT VALUE {\"id\": c.id, \"tag\": c.id} FROM c ORDER BY c.n",
    ] {
        for size in 1..12 {
            let world = filled(Engine::Memory, 1).await;
            let request = request(text);
            let whole = all(&world, &everywhere(), &request, -1).await;
            let mut options = everywhere();
            options.page.items_max = Some(size);
            let first = page(&world, &options, &request).await.unwrap();
            let mut found = rows(&first);
            let id = |row: &Value| row.get("id").and_then(Value::as_str).unwrap().to_owned();
            let last = id(found.last().unwrap());
            let mut receipt = Receipt::default();
            for pk in 0..5 {
                let options = with_key(&format!(r#"["{pk}"]"#));
                drop(world.database.delete_item(&mut receipt, (DATABASE, CONTAINER, &last), &options).await);
            }
            options.page.continuation = first.continuation;
            while options.page.continuation.is_some() {
                let next = page(&world, &options, &request).await.unwrap();
                found.extend(rows(&next));
                options.page.continuation = next.continuation;
            }
            let kept =
                |rows: &[Value]| rows.iter().filter(|row| id(row) != last).cloned().collect::<Vec<_>>();
            assert_eq!(kept(&found), kept(&whole), "{text}\n  {size} rows a page");
        }
    }
}

#[tokio::test]
async fn a_changed_indexing_policy_does_not_disturb_a_running_query() {
    let policies = [
        POLICY,
        r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/mixed/*"}]}"#,
        r#""indexingPolicy":{"includedPaths":[{"path":"/n/?"}],"excludedPaths":[{"path":"/*"}]}"#,
        r#""indexingPolicy":{"indexingMode":"none","automatic":false}"#,
    ];
    for engine in ENGINES {
        for text in [
            "SELECT VALUE c.id FROM c WHERE c.n >= 0",
            "SELECT VALUE c.id FROM c WHERE c.kind = 'red' AND c.n > 1",
            "SELECT VALUE c.id FROM c ORDER BY c.n",
            "SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(c.tags, 't0')",
            "SELECT VALUE c.id FROM c WHERE c.n = 1 OR c.kind = 'red'",
        ] {
            let world = filled(engine, 2).await;
            let request = request(text);
            let whole = sorted(all(&world, &everywhere(), &request, -1).await);
            // A page goes on in the next generation of the index. Only where the index has led and now lacks the
            // property, the client is told to begin again.
            for policies in [&policies[..2], &policies[1..3], &policies[2..], &policies[..]] {
                let mut options = everywhere();
                options.page.items_max = Some(2);
                let mut found = Vec::new();
                for step in 0.. {
                    match page(&world, &options, &request).await {
                        Ok(next) => {
                            found.extend(rows(&next));
                            options.page.continuation = next.continuation;
                        }
                        // An order needs an index, also in the middle of its pages.
                        Err(error) if error.message.contains("order-by item is excluded") => {
                            found = whole.clone();
                            break;
                        }
                        Err(error) => {
                            assert!(error.message.contains("Invalid Continuation Token"), "{text}: {error}");
                            let lacks = |policy: &&str| {
                                policy.contains("none")
                                    || policy.contains("/n/?") && !text.contains("c.n >= 0")
                                    // The composite index has led this one; only the first policy has it.
                                    || !policy.contains("composite") && text.contains(" AND c.n")
                            };
                            assert!(policies.iter().any(lacks), "{text} could have gone on");
                            found = whole.clone();
                            break;
                        }
                    }
                    if options.page.continuation.is_none() {
                        break;
                    }
                    let policy = policies[(step + 1) % policies.len()];
                    world.replace_container(&format!("{BY_PK},{policy}")).await.unwrap();
                    world.database.maintain().await.unwrap();
                }
                assert_eq!(sorted(found), whole, "{text}");
                world.replace_container(&format!("{BY_PK},{POLICY}")).await.unwrap();
                world.database.maintain().await.unwrap();
            }
            // Old generations go in the end.
            world.env.advance_seconds(1000);
            world.database.maintain().await.unwrap();
            assert_eq!(sorted(all(&world, &everywhere(), &request, -1).await), whole, "{text}");
            crate::common::raw::check_consistency(&world).await.unwrap();
        }
    }
}

#[tokio::test]
async fn parameters_must_be_repeated_by_the_client() {
    let world = filled(Engine::Memory, 2).await;
    let with = |values: &[(&str, Value)]| QueryRequest {
        text: "SELECT VALUE c.id FROM c WHERE c.n >= @least AND ARRAY_CONTAINS(@kinds, c.kind)".to_owned(),
        parameters: values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        resume_filter: None,
    };
    let kinds = Value::from(vec![Value::from("red"), Value::from("blue")]);
    let request = with(&[("@least", Value::from(2)), ("@kinds", kinds.clone())]);
    let whole = all(&world, &everywhere(), &request, -1).await;
    for size in 1..8 {
        assert_eq!(all(&world, &everywhere(), &request, size).await, whole);
    }
    // Other values with the same token are the client's mistake, but not a fault of ours.
    let mut options = everywhere();
    options.page.items_max = Some(2);
    options.page.continuation = page(&world, &options, &request).await.unwrap().continuation;
    for other in [
        with(&[("@least", Value::from("x")), ("@kinds", kinds.clone())]),
        with(&[("@least", Value::from(100)), ("@kinds", Value::from(Vec::new()))]),
        with(&[]),
    ] {
        match page(&world, &options, &other).await {
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(error.kind, ErrorKind::BadRequest | ErrorKind::InvalidQuery), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn invalid_queries_are_rejected() {
    let world = filled(Engine::Memory, 1).await;
    for text in [
        "",
        "SELECT",
        "SELECT * FROM",
        "DELETE FROM c",
        "SELECT * FROM c WHERE",
        "SELECT NOSUCH(c) FROM c",
        "SELECT * FROM c ORDER BY c.deep.m, c.id",
    ] {
        let error = page(&world, &everywhere(), &request(text)).await.unwrap_err();
        assert!(matches!(error.kind, ErrorKind::BadRequest | ErrorKind::InvalidQuery), "{text}: {error}");
    }
    for size in [-2, i64::MIN] {
        let options =
            QueryOptions { page: PageRequest { items_max: Some(size), continuation: None }, ..everywhere() };
        assert_eq!(
            page(&world, &options, &request("SELECT * FROM c")).await.unwrap_err().kind,
            ErrorKind::BadRequest
        );
    }
    for body in [
        "",
        "[]",
        "{}",
        r#"{"query":5}"#,
        r#"{"query":"SELECT 1","parameters":{}}"#,
        r#"{"query":"SELECT 1","parameters":[{"value":1}]}"#,
    ] {
        assert_eq!(QueryRequest::parse(body.as_bytes()).unwrap_err().kind, ErrorKind::BadRequest, "{body}");
    }
    let long = format!(r#"{{"query":"SELECT {}"}}"#, "1".repeat(600_000));
    assert_eq!(QueryRequest::parse(long.as_bytes()).unwrap_err().kind, ErrorKind::BadRequest);
}

#[tokio::test]
async fn large_rows_end_a_page_early() {
    for text in ["SELECT * FROM c", "SELECT * FROM c ORDER BY c.id", "SELECT DISTINCT c.id, c.x FROM c"] {
        let world = World::memory().await;
        world.create_container(BY_PK).await;
        let filler = "x".repeat(1 << 20);
        for n in 0..9 {
            world.create(&format!(r#"{{"id":"{n}","pk":"a","x":"{filler}"}}"#)).await;
        }
        let mut options = everywhere();
        options.page.items_max = Some(-1);
        let mut found = 0;
        let mut pages = 0;
        loop {
            let page = page(&world, &options, &request(text)).await.unwrap();
            assert!(page.rows.len() < 6 << 20, "{text}");
            found += page.count;
            pages += 1;
            options.page.continuation = page.continuation;
            if options.page.continuation.is_none() {
                break;
            }
        }
        assert_eq!((found, pages), (9, 3), "{text}");
    }
}

#[tokio::test]
async fn queries_see_writes_of_all_kinds() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a","n":1}              => created
        create ["a"] {"id":"2","pk":"a","n":2}              => created
        query - SELECT VALUE c.id FROM c WHERE c.n = 1      => ["1"]
        replace ["a"] 1 {"id":"1","pk":"a","n":3}           => replaced
        query - SELECT VALUE c.id FROM c WHERE c.n = 1      => []
        query - SELECT VALUE c.id FROM c WHERE c.n = 3      => ["1"]
        patch ["a"] 2 [{"op":"set","path":"/n","value":3}]  => replaced
        query - SELECT VALUE c.id FROM c WHERE c.n = 3 ORDER BY c.id => ["1","2"]
        query - SELECT VALUE COUNT(1) FROM c WHERE c.n = 3  => [2]
        batch ["a"] [{"operationType":"Delete","id":"1"},{"operationType":"Create","resourceBody":{"id":"1","pk":"a","n":4}},{"operationType":"Patch","id":"2","resourceBody":{"operations":[{"op":"remove","path":"/n"}]}}] => 204 201 200
        query - SELECT VALUE c.id FROM c WHERE c.n = 3      => []
        query - SELECT VALUE c.id FROM c WHERE c.n = 4      => ["1"]
        query - SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.n) => ["2"]
        # System properties that clients send are not believed.
        upsert ["a"] {"id":"2","pk":"a","_ts":1,"_rid":"x","_etag":"y"} => replaced
        query - SELECT VALUE c.id FROM c WHERE c._ts = 1    => []
        query - SELECT VALUE c.id FROM c WHERE c._rid = "x" => []
        delete ["a"] 1                                      => deleted
        delete ["a"] 2                                      => deleted
        query - SELECT VALUE c.id FROM c WHERE c.n >= 0     => []
        raw 20                                              => 0
    "#;
    check(BY_PK, steps).await;
}

#[tokio::test]
async fn items_with_very_many_terms_can_be_written_and_reindexed() {
    let world = World::open(Engine::Memory, quiet_options()).await;
    let little = r#""indexingPolicy":{"includedPaths":[{"path":"/n/?"}],"excludedPaths":[{"path":"/*"}]}"#;
    world.create_container(&format!("{BY_PK},{little}")).await;
    // Every entry holds the id, so these items have megabytes of entries each, more than one commit may have
    // in all.
    let id = |n: usize| format!("{n}{}", "x".repeat(1000));
    let list = |from: usize| (from..from + 5000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    for n in 0..9 {
        world.create(&format!(r#"{{"id":"{}","pk":"a","n":{n},"list":[{}]}}"#, id(n), list(5000 * n))).await;
    }
    world.replace_container(BY_PK).await.unwrap();
    world.database.maintain().await.unwrap();
    let catalog = world.database.catalog();
    let container = catalog.container(DATABASE, CONTAINER).unwrap();
    assert_eq!(world.database.index_progress(container), 100);
    let text = "SELECT VALUE c.n FROM c WHERE ARRAY_CONTAINS(c.list, 20001)";
    assert_eq!(all(&world, &everywhere(), &request(text), 10).await, [Value::from(4)]);
    let body = Bytes::from(format!(r#"{{"id":"{}","pk":"a","list":[{}]}}"#, id(4), list(90_000)));
    world.database.upsert_item(&mut Receipt::default(), PLACE, &with_key(r#"["a"]"#), &body).await.unwrap();
    assert_eq!(all(&world, &everywhere(), &request(text), 10).await, Vec::<Value>::new());
    crate::common::raw::check_consistency(&world).await.unwrap();
}
