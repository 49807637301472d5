//! Request charges: the published tables, and that the same request always costs the same.

use bytes::Bytes;
use orrery_db::{ItemOptions, Receipt};

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

const BY_ID: &str = r#""partitionKey":{"paths":["/id"],"kind":"Hash","version":2}"#;
const UNINDEXED: &str = r#""indexingPolicy":{"indexingMode":"none","automatic":false}"#;

/// An item of exactly this many bytes.
fn item(id: &str, bytes: usize) -> Bytes {
    let empty = format!(r#"{{"id":"{id}","pk":"a","x":""}}"#);
    Bytes::from(format!(r#"{{"id":"{id}","pk":"a","x":"{}"}}"#, "y".repeat(bytes - empty.len())))
}

async fn charge(world: &World, options: &ItemOptions, what: &str, id: &str, body: &Bytes) -> f64 {
    let mut receipt = Receipt::default();
    let place = (PLACE.0, PLACE.1, id);
    match what {
        "create" => drop(world.database.create_item(&mut receipt, PLACE, options, body).await.unwrap()),
        "read" => drop(world.database.read_item(&mut receipt, place, options).await.unwrap()),
        "replace" => drop(world.database.replace_item(&mut receipt, place, options, body).await.unwrap()),
        "patch" => drop(world.database.patch_item(&mut receipt, place, options, body).await.unwrap()),
        _ => drop(world.database.delete_item(&mut receipt, place, options).await.unwrap()),
    }
    receipt.charge.as_f64()
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

/// Worked examples of the documentation: what is done, with how many bytes, and the charge it gives. Those whose
/// data is not published in enough detail to repeat them are left out.
#[tokio::test]
async fn the_worked_examples_are_matched_approximately() {
    let world = World::memory().await;
    world.create_container(&format!("{BY_PK},{UNINDEXED}")).await;
    world.create_named("users", BY_ID, None).await.unwrap();
    let unindexed = with_key(r#"["a"]"#);
    let near = |what: &str, found: f64, published: f64| {
        assert!((found - published).abs() <= published * 0.1 + 0.001, "{what}: {found} for {published}");
    };
    // "Optimize request cost in Azure Cosmos DB": reads and writes of 1 KB and 100 KB.
    for (kilobytes, read, writes) in [(1, 1.0, vec![5.0, 5.5]), (100, 10.0, vec![50.0])] {
        // Whichever way a kilobyte is counted.
        for bytes in [kilobytes * 1000, kilobytes * 1024] {
            let (id, body) = (bytes.to_string(), item(&bytes.to_string(), bytes));
            let created = charge(&world, &unindexed, "create", &id, &body).await;
            for write in &writes {
                near("a write", created, *write);
            }
            near("a read", charge(&world, &unindexed, "read", &id, &body).await, read);
            // The same page: a replace costs two times the insert. (It is said of items in general.)
            if kilobytes == 1 {
                near("a replace", charge(&world, &unindexed, "replace", &id, &body).await, 2.0 * created);
            }
        }
    }
    // "Model and partition data using a real-world example", [C1] and [Q1]: a user under the default policy.
    let user = Bytes::from_static(br#"{"id":"b8d1e2a0-0f5c-4c86-9f3e-3d1f1b0f6a55","username":"someone"}"#);
    let options = with_key(r#"["b8d1e2a0-0f5c-4c86-9f3e-3d1f1b0f6a55"]"#);
    let mut receipt = Receipt::default();
    world.database.create_item(&mut receipt, (PLACE.0, "users"), &options, &user).await.unwrap();
    near("[C1]", receipt.charge.as_f64(), 5.71);
    let mut receipt = Receipt::default();
    let place = (PLACE.0, "users", "b8d1e2a0-0f5c-4c86-9f3e-3d1f1b0f6a55");
    world.database.read_item(&mut receipt, place, &options).await.unwrap();
    near("[Q1]", receipt.charge.as_f64(), 1.0);
    // The same page, [C4]: a like, found in the container of posts.
    let like = Bytes::from_static(
        br#"{"id":"0a1e7c5e-3b4d-4f0a-9a51-6d1fd8a7a1ce","type":"like","postId":"5f2b1c9e-7d64-4c3b-8f10-2b9f4e6d7c11","userId":"b8d1e2a0-0f5c-4c86-9f3e-3d1f1b0f6a55","creationDate":"2019-01-10T08:15:30.000Z"}"#,
    );
    let by_post = r#""partitionKey":{"paths":["/postId"],"kind":"Hash","version":2}"#;
    world.create_named("posts", by_post, None).await.unwrap();
    let options = with_key(r#"["5f2b1c9e-7d64-4c3b-8f10-2b9f4e6d7c11"]"#);
    let mut receipt = Receipt::default();
    world.database.create_item(&mut receipt, (PLACE.0, "posts"), &options, &like).await.unwrap();
    near("[C4]", receipt.charge.as_f64(), 7.05);
    // "Optimize request cost", sample query metrics: one item of 9,963 bytes by an indexed property.
    world.create_named("food", BY_PK, None).await.unwrap();
    for number in 0..50 {
        let text = "x".repeat(9_963 - 90);
        let body = Bytes::from(format!(r#"{{"id":"{number}","pk":"a","n":{number},"text":"{text}"}}"#));
        let place = (PLACE.0, "food");
        world
            .database
            .create_item(&mut Receipt::default(), place, &with_key(r#"["a"]"#), &body)
            .await
            .unwrap();
    }
    let request = orrery_db::QueryRequest {
        text: "SELECT * FROM c WHERE c.n = 7".to_owned(),
        parameters: Vec::new(),
        resume_filter: None,
    };
    let options = orrery_db::QueryOptions { cross_partition: true, ..orrery_db::QueryOptions::default() };
    let mut receipt = Receipt::default();
    let page = world.database.query_items(&mut receipt, (PLACE.0, "food"), &options, &request).await.unwrap();
    assert_eq!(page.count, 1);
    near("a query", receipt.charge.as_f64(), 3.19);
}

#[tokio::test]
async fn index_terms_are_charged_when_they_change() {
    let world = World::memory().await;
    let policy = r#""indexingPolicy":{"includedPaths":[{"path":"/a/?"},{"path":"/b/?"}],"excludedPaths":[{"path":"/*"}]}"#;
    world.create_container(&format!("{BY_PK},{policy}")).await;
    let options = with_key(r#"["k"]"#);
    let with = |a: u32, b: u32| Bytes::from(format!(r#"{{"id":"1","pk":"k","a":{a},"b":{b}}}"#));
    // `a` and `b`; `id` is always indexed, and free.
    let steps = [
        ("create", with(1, 1), 4.95 + 2.0 * 0.2),
        ("replace", with(1, 1), 4.95 + 5.0),
        ("replace", with(1, 2), 4.95 + 5.0 + 2.0 * 0.2),
        // The published 10.8 for 1 KB with two terms that change.
        ("replace", with(2, 3), 4.95 + 5.0 + 4.0 * 0.2),
        (
            "patch",
            Bytes::from_static(br#"[{"op":"set","path":"/a","value":9}]"#),
            4.95 + 5.0 + 2.0 * 0.2 + 0.4,
        ),
        ("delete", Bytes::new(), 5.0 + 2.0 * 0.2),
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
            let mut receipt = Receipt::default();
            let options = orrery_db::ItemOptions::default();
            let steps = std::slice::from_ref(step);
            let results =
                world.database.execute_bulk(&mut receipt, crate::common::PLACE, &options, steps, true).await;
            assert!(matches!(results.unwrap()[0].outcome, orrery_db::BatchOutcome::Done(_)), "{step:?}");
            assert_eq!(receipt.charge, explained.charge, "{step:?}");
        }
        let missing = operation(BatchKind::Delete, Some("1"), None);
        let refused = world.database.explain_charge(crate::common::PLACE, &missing).await.unwrap_err();
        assert_eq!(refused.kind, orrery_model::ErrorKind::NotFound);
    }
}
