//! The read feed: every item of a scope exactly once, whatever the page size.

use std::collections::BTreeMap;

use orrery_db::{FeedScope, PageRequest, Receipt};
use orrery_model::partition_key::{EffectiveKey, EpkRange};
use orrery_model::{ErrorKind, Value};

use crate::common::{
    BY_PK, CONTAINER, DATABASE, ENGINES, Engine, PLACE, World, everything, ids, key, with_key,
};

fn of_key(header: &str) -> FeedScope {
    FeedScope { partition_key: Some(key(header)), ..FeedScope::default() }
}

async fn filled(engine: Engine, partitions: u32, count: usize) -> World {
    let world = World::with_partitions(engine, partitions).await;
    world.create_container(BY_PK).await;
    for n in 0..count {
        world.create(&format!(r#"{{"id":"{n:03}","pk":"{}"}}"#, n % 5)).await;
    }
    world
}

#[tokio::test]
async fn every_page_size_returns_every_item_once() {
    for engine in ENGINES {
        for partitions in [1, 4] {
            let world = filled(engine, partitions, 25).await;
            let expected: Vec<String> = (0..25).map(|n| format!("{n:03}")).collect();
            let whole = world.feed(&everything(), -1).await.unwrap();
            for size in (1..=26).chain([1000]) {
                let items = world.feed(&everything(), size).await.unwrap();
                assert_eq!(items, whole, "the order is the same in pages of {size}");
                let mut seen = ids(&items);
                seen.sort_unstable();
                assert_eq!(seen, expected, "in pages of {size}");
                let own = world.feed(&of_key(r#"["3"]"#), size).await.unwrap();
                assert_eq!(ids(&own), ["003", "008", "013", "018", "023"], "in pages of {size}");
            }
            // Ranges, and any windows that cover the key space, add up to the whole.
            let catalog = world.database.catalog();
            let container = catalog.container(DATABASE, CONTAINER).unwrap();
            let mut by_range = Vec::new();
            for partition in &container.partitions {
                let scope = FeedScope { range_id: Some(partition.range_id), ..FeedScope::default() };
                by_range.extend(world.feed(&scope, 2).await.unwrap());
            }
            assert_eq!(by_range, whole);
            let bounds = ["", "05", "0FFF", "1A", "22E342F38A486A088463DFF7838A5963", "3F", "FF"];
            let mut by_window = Vec::new();
            for (min, max) in bounds.iter().zip(&bounds[1..]) {
                let window = Some(EpkRange::parse(min, max).unwrap());
                by_window.extend(world.feed(&FeedScope { window, ..FeedScope::default() }, 3).await.unwrap());
            }
            // In a partition with several windows the order is another one.
            let sorted = |items: &[Value]| {
                let mut ids: Vec<String> = ids(items).into_iter().map(str::to_owned).collect();
                ids.sort_unstable();
                ids
            };
            assert_eq!(sorted(&by_window), sorted(&whole));
        }
    }
}

#[tokio::test]
async fn scopes_can_be_combined() {
    let world = filled(Engine::Memory, 4, 25).await;
    let catalog = world.database.catalog();
    let container = catalog.container(DATABASE, CONTAINER).unwrap();
    let effective = container.definition.partition_key.effective_key(&key(r#"["3"]"#));
    let home = container.partition_of(&effective);
    for partition in &container.partitions {
        let scope = FeedScope { range_id: Some(partition.range_id), ..of_key(r#"["3"]"#) };
        let expected = if partition.range_id == home.range_id { 5 } else { 0 };
        assert_eq!(world.feed(&scope, 2).await.unwrap().len(), expected);
    }
    let window = |min: EffectiveKey, max: EffectiveKey| FeedScope {
        window: Some(EpkRange::new(min, max)),
        ..of_key(r#"["3"]"#)
    };
    let at = effective.clone();
    assert_eq!(world.feed(&window(at.clone(), at.prefix_end()), 2).await.unwrap().len(), 5);
    assert_eq!(world.feed(&window(EffectiveKey::MIN, at.clone()), 2).await.unwrap().len(), 0);
    assert_eq!(world.feed(&window(at.prefix_end(), EffectiveKey::max()), 2).await.unwrap().len(), 0);
    // A window of a whole partition and its range id are the same thing.
    let scope =
        FeedScope { range_id: Some(home.range_id), window: Some(home.range.clone()), ..FeedScope::default() };
    let by_id = FeedScope { range_id: Some(home.range_id), ..FeedScope::default() };
    assert_eq!(world.feed(&scope, 3).await.unwrap(), world.feed(&by_id, 4).await.unwrap());
    let unknown = FeedScope { range_id: Some(99), ..FeedScope::default() };
    assert_eq!(world.feed(&unknown, 3).await.unwrap_err().kind, ErrorKind::PartitionGone);
}

#[tokio::test]
async fn continuations_survive_a_restart_and_changes() {
    for engine in ENGINES {
        let mut world = filled(engine, 2, 20).await;
        let whole = world.feed(&everything(), -1).await.unwrap();
        let mut seen: Vec<Value> = Vec::new();
        let mut continuation = None;
        let mut changed: Vec<String> = Vec::new();
        loop {
            let (items, next) = world.feed_page(&everything(), 3, continuation).await.unwrap();
            seen.extend(items);
            let Some(next) = next else { break };
            continuation = Some(next);
            // The last item that was seen goes, and a new one comes before everything.
            let last = seen.last().unwrap().clone();
            let text = |name: &str| last.get(name).and_then(Value::as_str).unwrap().to_owned();
            let mut receipt = Receipt::default();
            let options = with_key(&format!(r#"["{}"]"#, text("pk")));
            let place = (DATABASE, CONTAINER, text("id"));
            world.database.delete_item(&mut receipt, (place.0, place.1, &place.2), &options).await.unwrap();
            changed.push(text("id"));
            world = world.restart().await;
        }
        let expected: Vec<&Value> = whole.iter().collect();
        assert_eq!(seen.iter().collect::<Vec<_>>(), expected);
        let left = world.feed(&everything(), -1).await.unwrap();
        assert_eq!(left.len(), 20 - changed.len());
    }
}

#[tokio::test]
async fn foreign_and_damaged_continuations_are_rejected() {
    let world = filled(Engine::Memory, 1, 10).await;
    let (_, token) = world.feed_page(&everything(), 3, None).await.unwrap();
    let token = token.unwrap();
    let refused = async |token: String| {
        let error = world.feed_page(&everything(), 3, Some(token.clone())).await.unwrap_err();
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ErrorKind::BadRequest, "Invalid Continuation Token"),
            "{token}"
        );
    };
    for at in 0..token.len() {
        let mut damaged = token.clone().into_bytes();
        damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
        // The last character may hold bits that mean nothing; what decodes alike is the same token.
        if at + 1 < token.len() {
            refused(String::from_utf8(damaged).unwrap()).await;
        }
        if at > 0 {
            refused(token[..at].to_owned()).await;
        }
    }
    refused("nonsense".to_owned()).await;
    refused("é".repeat(50)).await;
    refused("A".repeat(100_000)).await;
    // The token of another container, or of another life of this one.
    let mut receipt = Receipt::default();
    world.database.delete_container(&mut receipt, PLACE, None).await.unwrap();
    world.create_container(BY_PK).await;
    refused(token).await;
}

#[tokio::test]
async fn page_sizes_are_checked() {
    let world = filled(Engine::Memory, 1, 3).await;
    let mut receipt = Receipt::default();
    for size in [-2, i64::MIN] {
        let error = world.feed_page(&everything(), size, None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadRequest, "{size}");
    }
    // Zero leaves the size to the server, as -1 does.
    for size in [0, -1, i64::MAX] {
        assert_eq!(world.feed_page(&everything(), size, None).await.unwrap().0.len(), 3, "{size}");
    }
    let request = PageRequest::default();
    let page =
        world.database.read_items(&mut receipt, PLACE, None, &everything(), None, &request).await.unwrap();
    assert_eq!(page.count, 3);
}

#[tokio::test]
async fn pages_end_after_four_megabytes() {
    let world = World::memory().await;
    world.create_container(BY_PK).await;
    let filler = "x".repeat(1 << 20);
    for n in 0..9 {
        world.create(&format!(r#"{{"id":"{n}","pk":"a","x":"{filler}"}}"#)).await;
    }
    let mut sizes = Vec::new();
    let mut continuation = None;
    loop {
        let (items, next) = world.feed_page(&everything(), -1, continuation).await.unwrap();
        sizes.push(items.len());
        continuation = next;
        if continuation.is_none() {
            break;
        }
    }
    assert_eq!(sizes, [4, 4, 1]);
}

#[tokio::test]
async fn prefixes_of_hierarchical_keys_are_scopes() {
    for partitions in [1, 5] {
        let world = World::with_partitions(Engine::Memory, partitions).await;
        world
            .create_container(r#""partitionKey":{"paths":["/a","/b","/c"],"kind":"MultiHash","version":2}"#)
            .await;
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for n in 0..60 {
            let (a, b, c) = (n % 3, n % 5, n % 2);
            world.create(&format!(r#"{{"id":"{n}","a":{a},"b":"{b}","c":{c}}}"#)).await;
            for prefix in [format!("[{a}]"), format!(r#"[{a},"{b}"]"#), format!(r#"[{a},"{b}",{c}]"#)] {
                *counts.entry(prefix).or_default() += 1;
            }
        }
        for (prefix, count) in &counts {
            for size in [1, 7, 100] {
                assert_eq!(world.feed(&of_key(prefix), size).await.unwrap().len(), *count, "{prefix}");
            }
        }
        assert_eq!(world.feed(&of_key("[]"), 7).await.unwrap().len(), 60);
        assert_eq!(world.feed(&of_key("[7]"), 7).await.unwrap().len(), 0);
    }
}
