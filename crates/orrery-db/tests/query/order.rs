//! Sorting by a property that some items lack, under a policy that names no properties: the index gives the order,
//! and the items without the property are known from the last time that somebody looked.

use bytes::Bytes;
use orrery_db::{ItemOptions, PageRequest, QueryMetrics, QueryOptions, Receipt};

use crate::common::{BY_PK, CONTAINER, Engine, PLACE, World, everything, parse, with_key};
use crate::run::{Way, request, rows};

const ALL: &str = "SELECT VALUE c.id FROM c ORDER BY c.x";

async fn filled(lacking: u64) -> World {
    let world = World::with_partitions(Engine::Memory, 3).await;
    world.create_container(BY_PK).await;
    for number in 0..300 {
        let x = number * 7 % 300;
        world.create(&format!(r#"{{"id":"i{number}","pk":"k{}","x":{x}}}"#, number % 20)).await;
    }
    for number in 0..lacking {
        world.create(&format!(r#"{{"id":"l{number:05}","pk":"k{}"}}"#, number % 20)).await;
    }
    world
}

async fn replace(world: &World, id: &str, pk: &str, rest: &str) {
    let body = Bytes::from(format!(r#"{{"id":"{id}","pk":"{pk}"{rest}}}"#));
    let (mut receipt, options) = (Receipt::default(), with_key(&format!("[\"{pk}\"]")));
    world.database.replace_item(&mut receipt, (PLACE.0, PLACE.1, id), &options, &body).await.unwrap();
}

async fn first(world: &World, text: &str) -> (Vec<String>, QueryMetrics) {
    let options = QueryOptions {
        cross_partition: true,
        page: PageRequest { items_max: Some(-1), continuation: None },
        ..QueryOptions::default()
    };
    let page =
        world.database.query_items(&mut Receipt::default(), PLACE, &options, &request(text)).await.unwrap();
    let ids = parse(&[b"[".as_slice(), &page.rows, b"]"].concat());
    let ids = ids.as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned());
    (ids.collect(), page.metrics)
}

/// In pages of several sizes, upwards and downwards, the rows are those of a scan.
async fn check(world: &World) {
    for text in [
        ALL,
        "SELECT VALUE c.id FROM c ORDER BY c.x DESC",
        "SELECT VALUE c.id FROM c ORDER BY c.x OFFSET 3 LIMIT 9",
    ] {
        let way = |page_size, without_index| Way { scope: everything(), page_size, without_index };
        let expected = rows(world, CONTAINER, &request(text), &way(-1, true)).await.unwrap();
        for page_size in [-1, 2, 50] {
            let found = rows(world, CONTAINER, &request(text), &way(page_size, false)).await.unwrap();
            assert_eq!(found, expected, "{text} in pages of {page_size}");
        }
    }
}

#[tokio::test]
async fn an_ascending_order_is_read_from_the_index() {
    let world = filled(4).await;
    for _ in 0..2 {
        let (mut ids, metrics) = first(&world, "SELECT TOP 6 VALUE c.id FROM c ORDER BY c.x").await;
        ids[..4].sort();
        assert_eq!(&ids[..4], ["l00000", "l00001", "l00002", "l00003"]);
        assert_eq!(ids[4], "i0");
        assert_eq!(metrics.access, "/x in order");
        // Those without it, and of each partition hardly more than fit the page.
        assert!(metrics.items_read < 40, "{}", metrics.items_read);
    }
    check(&world).await;
}

#[tokio::test]
async fn changes_are_seen_at_once() {
    let world = filled(2).await;
    check(&world).await;
    replace(&world, "i5", "k5", "").await;
    replace(&world, "l00000", "k0", r#","x":1.5"#).await;
    check(&world).await;
    let (ids, _) = first(&world, "SELECT TOP 3 VALUE c.id FROM c ORDER BY c.x").await;
    assert_eq!(ids.iter().filter(|id| ["i5", "l00001"].contains(&id.as_str())).count(), 2, "{ids:?}");
    assert_eq!(ids[2], "i0");
    let options: ItemOptions = with_key(r#"["k5"]"#);
    world.database.delete_item(&mut Receipt::default(), (PLACE.0, PLACE.1, "i5"), &options).await.unwrap();
    check(&world).await;
    let (rid, range) = {
        let catalog = world.database.catalog();
        let container = catalog.container(PLACE.0, PLACE.1).unwrap();
        (container.rid, container.partitions[0].range_id)
    };
    world.database.split_partition(rid, range).await.unwrap();
    check(&world).await;
    replace(&world, "i6", "k6", r#","x":null"#).await;
    replace(&world, "i7", "k7", r#","y":null"#).await;
    check(&world).await;
}

#[tokio::test]
async fn many_items_without_the_property_are_searched_each_time() {
    let world = filled(3200).await;
    let (ids, metrics) = first(&world, "SELECT TOP 2 VALUE c.id FROM c ORDER BY c.x").await;
    assert!(ids.iter().all(|id| id.starts_with('l')) && metrics.access == "/x in order", "{ids:?}");
    let (ids, _) = first(&world, "SELECT VALUE c.id FROM c ORDER BY c.x OFFSET 3199 LIMIT 3").await;
    assert_eq!((ids.len(), ids[0].starts_with('l'), ids[1].as_str()), (3, true, "i0"));
}

#[tokio::test]
async fn every_item_has_an_id_and_a_timestamp() {
    let world = filled(4).await;
    for text in
        ["SELECT TOP 2 VALUE c.id FROM c ORDER BY c.id", "SELECT TOP 2 VALUE c.id FROM c ORDER BY c.id DESC"]
    {
        let (_, metrics) = first(&world, text).await;
        assert!(metrics.access.ends_with("in order") && metrics.items_read < 12, "{text}: {metrics:?}");
    }
}
