//! Queries that name their items one by one, as clients that read many items at once send them: each item is read
//! by its key, whatever the index has.

use orrery_db::{FeedScope, QueryOptions, QueryPage, Receipt};
use orrery_model::{Number, Value};

use crate::common::{BY_PK, CONTAINER, Engine, PLACE, World, everything, key, parse};
use crate::run::{Way, request, rows};

const NO_INDEX: &str = r#""indexingPolicy":{"indexingMode":"none","automatic":false}"#;

async fn page(world: &World, scope: &FeedScope, text: &str) -> (QueryPage, Receipt) {
    let options = QueryOptions { cross_partition: true, scope: scope.clone(), ..QueryOptions::default() };
    let options =
        QueryOptions { page: orrery_db::PageRequest { items_max: Some(-1), continuation: None }, ..options };
    let mut receipt = Receipt::default();
    let page = world.database.query_items(&mut receipt, PLACE, &options, &request(text)).await;
    (page.unwrap_or_else(|error| panic!("{text}: {error}")), receipt)
}

fn in_key(header: &str) -> FeedScope {
    FeedScope { partition_key: Some(key(header)), ..FeedScope::default() }
}

fn texts(page: &QueryPage) -> Vec<String> {
    let values = parse(&[b"[".as_slice(), &page.rows, b"]"].concat());
    let mut texts: Vec<String> =
        values.as_array().unwrap().iter().map(|value| value.as_str().unwrap().to_owned()).collect();
    texts.sort();
    texts
}

async fn filled(members: &str, items: u64) -> World {
    let world = World::with_partitions(Engine::Memory, 4).await;
    world.create_container(members).await;
    for number in 0..items {
        world.create(&format!(r#"{{"id":"i{number}","pk":"k{}","n":{number}}}"#, number % 100)).await;
    }
    world
}

/// `read_items` of the Python client: up to a thousand alternatives in one text.
#[tokio::test]
async fn alternatives_of_key_and_id_are_read_one_by_one() {
    let world = filled(BY_PK, 1500).await;
    // Every third is not there: it has another key.
    let term = |number: u64| {
        let key = if number.is_multiple_of(3) { 101 } else { number % 100 };
        format!("(c.id = 'i{number}' AND c.pk = 'k{key}')")
    };
    let terms: Vec<String> = (0..1200).map(term).collect();
    let text = format!("SELECT VALUE c.id FROM c WHERE ( {} )", terms.join(" OR "));
    let (found, receipt) = page(&world, &everything(), &text).await;
    assert_eq!(found.metrics.access, "1200 items by key");
    assert_eq!((found.count, found.metrics.items_read, found.metrics.entries_read), (800, 800, 1200));
    assert!(found.continuation.is_none());
    assert_eq!(receipt.served.len(), 4);
    // Each item is there once, whatever the pages.
    for page_size in [7, 100] {
        let way = Way { scope: everything(), page_size, without_index: false };
        let paged = rows(&world, CONTAINER, &request(&text), &way).await.unwrap();
        assert_eq!(paged.len(), 800);
        let mut ids: Vec<String> = paged.iter().map(|id| id.as_str().unwrap().to_owned()).collect();
        ids.sort();
        assert_eq!(ids, texts(&found));
    }
    let (sorted, _) = page(&world, &everything(), &format!("{text} ORDER BY c.n DESC")).await;
    assert_eq!((sorted.count, sorted.metrics.items_read), (800, 800));
    assert!(sorted.rows.starts_with(b"\"i1199\",\"i1198\",\"i1196\""));
    let counted = text.replace("VALUE c.id", "VALUE COUNT(1)");
    assert_eq!(page(&world, &everything(), &counted).await.0.rows, b"800");
}

#[tokio::test]
async fn ids_inside_one_key_are_read_one_by_one() {
    for policy in [BY_PK.to_owned(), format!("{BY_PK},{NO_INDEX}")] {
        let world = filled(&policy, 300).await;
        for (scope, text, read, found) in [
            (in_key(r#"["k1"]"#), "c.id IN ('i1', 'i101', 'i2', 'none')", 2, vec!["i1", "i101"]),
            (everything(), "c.pk = 'k1' AND c.id IN ('i1', 'i101', 'i2')", 2, vec!["i1", "i101"]),
            (in_key(r#"["k1"]"#), "c.id = 'i201'", 1, vec!["i201"]),
            // The rest of the filter still holds.
            (in_key(r#"["k1"]"#), "c.id IN ('i1', 'i101') AND c.n > 50", 2, vec!["i101"]),
            (
                everything(),
                "(c.id = 'i1' AND c.pk = 'k1' AND c.n = 7) OR (c.id = 'i2' AND c.pk = 'k2')",
                2,
                vec!["i2"],
            ),
            (
                everything(),
                "c.pk IN ('k1', 'k2') AND c.id IN ('i1', 'i2') AND NOT (c.id != 'i2')",
                1,
                vec!["i2"],
            ),
            // The key of the scope and that of the filter contradict each other, and so do two ids.
            (in_key(r#"["k1"]"#), "c.id = 'i2' AND c.pk = 'k2'", 0, vec![]),
            (everything(), "c.pk = 'k1' AND c.id = 'i1' AND c.id = 'i101'", 0, vec![]),
        ] {
            let (page, _) = page(&world, &scope, &format!("SELECT VALUE c.id FROM c WHERE {text}")).await;
            assert_eq!(texts(&page), found, "{text}");
            assert_eq!(page.metrics.items_read, read, "{text}: by {}", page.metrics.access);
        }
        // An id alone names no item, and neither does a key alone.
        for text in ["c.id = 'i1'", "c.pk = 'k1'", "(c.id = 'i1' AND c.pk = 'k1') OR c.n = 1"] {
            let (page, _) =
                page(&world, &everything(), &format!("SELECT VALUE c.id FROM c WHERE {text}")).await;
            assert!(!page.metrics.access.ends_with("by key"), "{text}: {}", page.metrics.access);
            assert!(texts(&page).contains(&"i1".to_owned()));
        }
    }
}

#[tokio::test]
async fn ids_that_are_keys_and_keys_of_several_levels_name_items() {
    let world = World::with_partitions(Engine::Memory, 2).await;
    world.create_container(r#""partitionKey":{"paths":["/id"],"kind":"Hash","version":2}"#).await;
    for number in 0..50 {
        world.create(&format!(r#"{{"id":"i{number}"}}"#)).await;
    }
    let (found, _) =
        page(&world, &everything(), "SELECT VALUE c.id FROM c WHERE c.id IN ('i1','i2','x')").await;
    assert_eq!((texts(&found), &*found.metrics.access), (vec!["i1".into(), "i2".into()], "3 items by key"));

    let world = World::with_partitions(Engine::Memory, 2).await;
    let levels = r#""partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2}"#;
    world.create_container(levels).await;
    for number in 0..50 {
        world.create(&format!(r#"{{"id":"i{number}","a":{},"b":"b{}"}}"#, number % 5, number % 3)).await;
    }
    let text = "SELECT VALUE c.id FROM c WHERE (c.id = 'i1' AND c.a = 1 AND c.b = 'b1') OR (c.id = 'i5' AND c.a = 0 AND c.b = 'b2') OR (c.id = 'i7' AND c.a = 0 AND c.b = 'b1')";
    let (found, _) = page(&world, &everything(), text).await;
    assert_eq!((texts(&found), &*found.metrics.access), (vec!["i1".into(), "i5".into()], "3 items by key"));
    // A prefix of the key is not enough to find an item.
    let (found, _) =
        page(&world, &everything(), "SELECT VALUE c.id FROM c WHERE c.id = 'i1' AND c.a = 1").await;
    assert_eq!((texts(&found), found.metrics.access.ends_with("by key")), (vec!["i1".into()], false));
}

/// The older hash sees only the beginning of long strings: the filter tells the keys apart.
#[tokio::test]
async fn keys_with_the_same_hash_are_distinguished() {
    let world = World::memory().await;
    world.create_container(r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":1}"#).await;
    let long = "x".repeat(120);
    world.create(&format!(r#"{{"id":"1","pk":"{long}a"}}"#)).await;
    let text = |last: &str| format!("SELECT VALUE c.id FROM c WHERE c.id = '1' AND c.pk = '{long}{last}'");
    assert_eq!(texts(&page(&world, &everything(), &text("a")).await.0), ["1"]);
    assert!(texts(&page(&world, &everything(), &text("b")).await.0).is_empty());
}

#[tokio::test]
async fn expired_items_and_items_out_of_scope_are_not_found() {
    let world = World::with_partitions(Engine::Memory, 2).await;
    world.create_container(&format!("{BY_PK},\"defaultTtl\":-1")).await;
    world.create(r#"{"id":"1","pk":"k1","ttl":10}"#).await;
    world.create(r#"{"id":"2","pk":"k1"}"#).await;
    let text = "SELECT VALUE c.id FROM c WHERE c.pk = 'k1' AND c.id IN ('1', '2')";
    assert_eq!(texts(&page(&world, &everything(), text).await.0), ["1", "2"]);
    world.env.advance_seconds(20);
    assert_eq!(texts(&page(&world, &everything(), text).await.0), ["2"]);
    // One of the two ranges holds the key.
    let ranges: Vec<u32> = {
        let catalog = world.database.catalog();
        let container = catalog.container(PLACE.0, PLACE.1).unwrap();
        container.partitions.iter().map(|partition| partition.range_id).collect()
    };
    let mut found = Vec::new();
    for range_id in ranges {
        let scope = FeedScope { range_id: Some(range_id), ..FeedScope::default() };
        let (page, receipt) = page(&world, &scope, text).await;
        assert_eq!(receipt.served.len(), 1);
        found.extend(texts(&page));
    }
    assert_eq!(found, ["2"]);
}

#[tokio::test]
async fn explanations_show_point_reads_and_charges_depend_on_the_items() {
    let world = filled(BY_PK, 400).await;
    let options = QueryOptions { cross_partition: true, ..QueryOptions::default() };
    let explain = async |text: &str| {
        world.database.explain_query(&mut Receipt::default(), PLACE, &options, &request(text)).await.unwrap()
    };
    let two = explain("SELECT * FROM c WHERE c.pk = 'k7' AND c.id IN ('i7', 'i107')").await;
    assert_eq!(two.get("access").and_then(Value::as_str), Some("2 items by key"));
    let considered = two.get("considered").and_then(Value::as_array).unwrap();
    assert_eq!(considered[0].get("entriesInFirstPartition").and_then(Value::as_i64), Some(2));
    assert_eq!(two.get("rows").and_then(|rows| rows.get("itemsRead")).and_then(Value::as_i64), Some(2));
    let charge =
        |explained: &Value| explained.get("charge").and_then(Value::as_number).map(Number::as_f64).unwrap();
    // Absent items cost the look at where they would be.
    let absent: Vec<String> = (0..100).map(|number| format!("'none{number}'")).collect();
    let text = format!("SELECT * FROM c WHERE c.pk = 'k7' AND c.id IN ({})", absent.join(","));
    let absent = explain(&text).await;
    let nothing = explain("SELECT * FROM c WHERE c.pk = 'k7' AND c.id = 'none'").await;
    assert!(charge(&absent) > charge(&nothing), "{} {}", charge(&absent), charge(&nothing));
    assert!(charge(&two) > charge(&nothing));
}
