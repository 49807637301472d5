//! Request charges: the published tables, and that the same request always costs the same.

use bytes::Bytes;
use orrery_db::{ItemOptions, Trace};

use crate::common::{BY_PK, ENGINES, PLACE, World, with_key};

/// Item size in KB, and the published charges of reading it by key and of writing it without index terms.
const PUBLISHED: [(usize, f64, f64); 12] = [
    (1, 1.00, 4.95),
    (2, 1.04, 6.29),
    (4, 1.14, 6.67),
    (8, 1.33, 7.04),
    (16, 1.67, 9.52),
    (32, 2.19, 11.23),
    (64, 4.76, 22.67),
    (128, 9.95, 48.19),
    (256, 20.28, 98.29),
    (512, 40.95, 184.57),
    (1024, 145.90, 625.0),
    (2048, 291.80, 1250.0),
];

const UNINDEXED: &str = r#""indexingPolicy":{"indexingMode":"none","automatic":false}"#;

/// An item of exactly this many bytes.
fn item(id: &str, bytes: usize) -> Bytes {
    let empty = format!(r#"{{"id":"{id}","pk":"a","x":""}}"#);
    Bytes::from(format!(r#"{{"id":"{id}","pk":"a","x":"{}"}}"#, "y".repeat(bytes - empty.len())))
}

async fn charge(world: &World, options: &ItemOptions, what: &str, id: &str, body: &Bytes) -> f64 {
    let mut trace = Trace::default();
    let place = (PLACE.0, PLACE.1, id);
    match what {
        "create" => drop(world.database.create_item(&mut trace, PLACE, options, body).await.unwrap()),
        "read" => drop(world.database.read_item(&mut trace, place, options).await.unwrap()),
        "replace" => drop(world.database.replace_item(&mut trace, place, options, body).await.unwrap()),
        "patch" => drop(world.database.patch_item(&mut trace, place, options, body).await.unwrap()),
        _ => drop(world.database.delete_item(&mut trace, place, options).await.unwrap()),
    }
    trace.charge.as_f64()
}

#[tokio::test]
async fn the_published_tables_are_reproduced() {
    let world = World::memory().await;
    world.create_container(&format!("{BY_PK},{UNINDEXED}")).await;
    let options = with_key(r#"["a"]"#);
    for (kilobytes, read, write) in PUBLISHED {
        let (id, body) = (kilobytes.to_string(), item(&kilobytes.to_string(), kilobytes * 1024));
        let near = |found: f64, published: f64| (found - published).abs() <= published * 0.03;
        let found = charge(&world, &options, "create", &id, &body).await;
        assert!(near(found, write), "writing {kilobytes} KB: {found} for {write}");
        let found = charge(&world, &options, "read", &id, &body).await;
        assert!(near(found, read), "reading {kilobytes} KB: {found} for {read}");
        let found = charge(&world, &options, "delete", &id, &body).await;
        assert!(near(found, 5.0), "deleting {kilobytes} KB: {found}");
    }
}

#[tokio::test]
async fn index_terms_are_paid_for_as_they_come_and_go() {
    let world = World::memory().await;
    let policy = r#""indexingPolicy":{"includedPaths":[{"path":"/a/?"},{"path":"/b/?"}],"excludedPaths":[{"path":"/*"}]}"#;
    world.create_container(&format!("{BY_PK},{policy}")).await;
    let options = with_key(r#"["k"]"#);
    let with = |a: u32, b: u32| Bytes::from(format!(r#"{{"id":"1","pk":"k","a":{a},"b":{b}}}"#));
    // `a`, `b`, and `id`, which is always indexed.
    let steps = [
        ("create", with(1, 1), 4.95 + 3.0 * 0.2),
        ("replace", with(1, 1), 4.95 + 5.0),
        ("replace", with(1, 2), 4.95 + 5.0 + 2.0 * 0.2),
        // The published 10.8 for 1 KB with two terms that change.
        ("replace", with(2, 3), 4.95 + 5.0 + 4.0 * 0.2),
        (
            "patch",
            Bytes::from_static(br#"[{"op":"set","path":"/a","value":9}]"#),
            4.95 + 5.0 + 2.0 * 0.2 + 0.4,
        ),
        ("delete", Bytes::new(), 5.0 + 3.0 * 0.2),
    ];
    for (what, body, expected) in steps {
        let found = charge(&world, &options, what, "1", &body).await;
        assert!((found - expected).abs() < 0.001, "{what}: {found} for {expected}");
    }
}

#[tokio::test]
async fn the_same_request_costs_the_same_on_every_store() {
    let mut all = Vec::new();
    for engine in ENGINES {
        let world = World::with_partitions(engine, 1).await;
        world.create_container(BY_PK).await;
        let options = with_key(r#"["a"]"#);
        let mut charges = Vec::new();
        for what in ["create", "read", "replace", "read", "delete"] {
            charges.push(charge(&world, &options, what, "1", &item("1", 3000)).await.to_bits());
        }
        all.push(charges);
    }
    assert_eq!(all[0], all[1]);
}

/// What is explained is what is charged, and the same request on the same data costs the same.
#[tokio::test]
async fn charges_are_explained_and_repeat() {
    use orrery_db::{BatchKind, BatchOperation};
    for _ in 0..2 {
        let world = World::memory().await;
        world.create_container(BY_PK).await;
        let operation = |kind, id: Option<&str>, body: Option<String>| BatchOperation {
            kind,
            id: id.map(str::to_owned),
            body: body.map(Bytes::from),
            if_match: None,
            if_none_match: None,
            partition_key: Some(crate::common::key(r#"["a"]"#)),
        };
        let item = |n: u64| format!(r#"{{"id":"1","pk":"a","n":{n},"text":"{}"}}"#, "x".repeat(3000));
        let patch = r#"[{"op":"set","path":"/n","value":9},{"op":"incr","path":"/m","value":1}]"#.to_owned();
        let steps = [
            operation(BatchKind::Create, None, Some(item(1))),
            operation(BatchKind::Read, Some("1"), None),
            operation(BatchKind::Replace, Some("1"), Some(item(2))),
            operation(BatchKind::Upsert, None, Some(item(3))),
            operation(BatchKind::Patch, Some("1"), Some(patch)),
            operation(BatchKind::Delete, Some("1"), None),
        ];
        for step in &steps {
            let explained = world.database.explain_charge(crate::common::PLACE, step).await.unwrap();
            let again = world.database.explain_charge(crate::common::PLACE, step).await.unwrap();
            assert_eq!(explained.charge, again.charge);
            let parts: orrery_model::Charge = explained.parts.iter().map(|part| part.charge).sum();
            assert_eq!(parts, explained.charge, "{step:?}: {:?}", explained.parts);
            let mut trace = Trace::default();
            let options = orrery_db::ItemOptions::default();
            let steps = std::slice::from_ref(step);
            let results =
                world.database.execute_bulk(&mut trace, crate::common::PLACE, &options, steps, true).await;
            assert!(matches!(results.unwrap()[0].outcome, orrery_db::BatchOutcome::Done(_)), "{step:?}");
            assert_eq!(trace.charge, explained.charge, "{step:?}");
        }
        let missing = operation(BatchKind::Delete, Some("1"), None);
        let refused = world.database.explain_charge(crate::common::PLACE, &missing).await.unwrap_err();
        assert_eq!(refused.kind, orrery_model::ErrorKind::NotFound);
    }
}
