//! Unique keys: one item per tuple of values in a logical partition.

use bytes::Bytes;
use orrery_db::{BatchKind, BatchOperation, Receipt};

use crate::common::script::status;
use crate::common::{BY_PK, PLACE, World, check, with_key};

const BY_EMAIL: &str = r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/email"]}]}"#;

#[tokio::test]
async fn a_tuple_belongs_to_one_item_of_its_logical_partition() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a","email":"x"}   => created
        create ["a"] {"id":"2","pk":"a","email":"x"}   => Conflict "Unique index constraint violation"
        upsert ["a"] {"id":"2","pk":"a","email":"x"}   => Conflict "Unique index constraint violation"
        create ["b"] {"id":"2","pk":"b","email":"x"}   => created
        create ["a"] {"id":"2","pk":"a","email":"X"}   => created
        replace ["a"] 2 {"id":"2","pk":"a","email":"x"} => Conflict "Unique index constraint violation"
        patch ["a"] 2 [{"op":"set","path":"/email","value":"x"}] => Conflict "Unique index constraint violation"
        # An item may keep its own tuple.
        replace ["a"] 1 {"id":"1","pk":"a","email":"x","n":1} => replaced
        upsert ["a"] {"id":"1","pk":"a","email":"x","n":2} => replaced
        patch ["a"] 1 [{"op":"set","path":"/n","value":3}] => replaced
        # A tuple is free once its item has left it or is gone.
        replace ["a"] 1 {"id":"1","pk":"a","email":"y"} => replaced
        replace ["a"] 2 {"id":"2","pk":"a","email":"x"} => replaced
        create ["a"] {"id":"3","pk":"a","email":"X"}    => created
        patch ["a"] 3 [{"op":"set","path":"/email","value":"z"}] => replaced
        create ["a"] {"id":"4","pk":"a","email":"X"}    => created
        delete ["a"] 2                                  => deleted
        create ["a"] {"id":"5","pk":"a","email":"x"}    => created
        restart
        create ["a"] {"id":"6","pk":"a","email":"x"}    => Conflict
        raw 40                                          => 5
    "#;
    check(BY_EMAIL, steps).await;
}

#[tokio::test]
async fn missing_values_count_as_null_and_numbers_by_value() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a"}                   => created
        create ["a"] {"id":"2","pk":"a"}                   => Conflict
        create ["a"] {"id":"2","pk":"a","email":null}      => Conflict
        create ["a"] {"id":"2","pk":"a","email":1}         => created
        create ["a"] {"id":"3","pk":"a","email":1.0}       => Conflict
        create ["a"] {"id":"3","pk":"a","email":"1"}       => created
        create ["a"] {"id":"4","pk":"a","email":0}         => created
        create ["a"] {"id":"5","pk":"a","email":-0.0}      => Conflict
        create ["a"] {"id":"5","pk":"a","email":true}      => created
        create ["a"] {"id":"6","pk":"a","email":{"a":1,"b":2}} => created
        create ["a"] {"id":"7","pk":"a","email":{"b":2.0,"a":1}} => Conflict
        create ["a"] {"id":"7","pk":"a","email":["x"]}     => BadRequest
        patch ["a"] 1 [{"op":"set","path":"/email","value":["x"]}] => BadRequest
        create ["a"] {"id":"7","pk":"a","email":""}        => created
    "#;
    check(BY_EMAIL, steps).await;
    let two_paths = r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/first","/name/last"]},{"paths":["/number"]}]}"#;
    let steps = r#"
        create ["a"] {"id":"1","pk":"a","first":"a","name":{"last":"b"},"number":1} => created
        create ["a"] {"id":"2","pk":"a","first":"a","name":{"last":"b"},"number":2} => Conflict
        create ["a"] {"id":"2","pk":"a","first":"a","name":{"last":"c"},"number":1} => Conflict
        create ["a"] {"id":"2","pk":"a","first":"ab","name":{"last":""},"number":2} => created
        create ["a"] {"id":"3","pk":"a","first":"a","number":3}                     => created
        create ["a"] {"id":"4","pk":"a","first":"a","name":"no object","number":4}  => Conflict
        create ["a"] {"id":"4","pk":"a","name":{"last":"b"},"number":4}             => created
        raw 40                                                                      => 8
        delete ["a"] 1                                                              => deleted
        raw 40                                                                      => 6
    "#;
    check(two_paths, steps).await;
}

#[tokio::test]
async fn an_expired_item_releases_its_tuple() {
    let members = format!(r#"{BY_EMAIL},"defaultTtl":-1"#);
    let steps = r#"
        create ["a"] {"id":"1","pk":"a","email":"x","ttl":10}  => created
        create ["a"] {"id":"2","pk":"a","email":"x"}           => Conflict
        clock 10
        create ["a"] {"id":"2","pk":"a","email":"x"}           => created
        # Sweeping the first must not take the tuple from the second.
        maintain
        raw 10                                                 => 1
        create ["a"] {"id":"3","pk":"a","email":"x"}           => Conflict
        # Nor must writing over the first's remains, whichever way.
        create ["a"] {"id":"4","pk":"a","email":"y","ttl":10}  => created
        clock 10
        create ["a"] {"id":"5","pk":"a","email":"y"}           => created
        create ["a"] {"id":"4","pk":"a","email":"z"}           => created
        create ["a"] {"id":"6","pk":"a","email":"y"}           => Conflict
        create ["a"] {"id":"7","pk":"a","email":"w","ttl":10}  => created
        clock 10
        patch ["a"] 5 [{"op":"set","path":"/email","value":"w"}] => replaced
        upsert ["a"] {"id":"7","pk":"a","email":"y"}           => created
        create ["a"] {"id":"8","pk":"a","email":"w"}           => Conflict
        create ["a"] {"id":"8","pk":"a","email":"y"}           => Conflict
    "#;
    check(&members, steps).await;
}

#[tokio::test]
async fn a_purged_item_releases_its_tuple() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a","email":"x"}  => created
        create ["a"] {"id":"2","pk":"a","email":"y"}  => created
        purge ["a"]
        create ["a"] {"id":"3","pk":"a","email":"x"}  => created
        create ["a"] {"id":"1","pk":"a","email":"y"}  => created
        maintain
        create ["a"] {"id":"4","pk":"a","email":"x"}  => Conflict
        create ["a"] {"id":"4","pk":"a","email":"y"}  => Conflict
        feed ["a"]                                    => 1 3
        raw 40                                        => 2
    "#;
    check(BY_EMAIL, steps).await;
}

#[tokio::test]
async fn operations_of_a_batch_compete_for_tuples() {
    let steps = r#"
        batch ["a"] [{"operationType":"Create","resourceBody":{"id":"1","pk":"a","email":"x"}},{"operationType":"Create","resourceBody":{"id":"2","pk":"a","email":"x"}}] => 424 Conflict
        feed -                                       =>
        create ["a"] {"id":"1","pk":"a","email":"x"} => created
        # A tuple that an earlier operation leaves is free for a later one.
        batch ["a"] [{"operationType":"Delete","id":"1"},{"operationType":"Create","resourceBody":{"id":"2","pk":"a","email":"x"}}] => 204 201
        batch ["a"] [{"operationType":"Patch","id":"2","resourceBody":{"operations":[{"op":"set","path":"/email","value":"y"}]}},{"operationType":"Upsert","resourceBody":{"id":"3","pk":"a","email":"x"}},{"operationType":"Patch","id":"2","resourceBody":{"operations":[{"op":"set","path":"/email","value":"x"}]}}] => 424 424 Conflict
        # Two items exchange their tuples through a third value.
        create ["a"] {"id":"3","pk":"a","email":"z"} => created
        batch ["a"] [{"operationType":"Replace","id":"2","resourceBody":{"id":"2","pk":"a","email":"tmp"}},{"operationType":"Replace","id":"3","resourceBody":{"id":"3","pk":"a","email":"x"}},{"operationType":"Replace","id":"2","resourceBody":{"id":"2","pk":"a","email":"z"}}] => 200 200 200
        create ["a"] {"id":"4","pk":"a","email":"x"} => Conflict
        create ["a"] {"id":"4","pk":"a","email":"z"} => Conflict
        create ["a"] {"id":"4","pk":"a","email":"tmp"} => created
        raw 40                                       => 3
    "#;
    check(BY_EMAIL, steps).await;
}

#[tokio::test]
async fn a_full_batch_may_move_every_tuple() {
    let world = World::memory().await;
    world.create_container(&format!(r#"{BY_EMAIL},"defaultTtl":-1"#)).await;
    let mut receipt = Receipt::default();
    let operation = |kind, n: usize, body: String| BatchOperation {
        kind,
        id: Some(n.to_string()),
        body: Some(Bytes::from(body)),
        if_match: None,
        if_none_match: None,
        partition_key: None,
    };
    let run = async |operations: Vec<BatchOperation>, receipt: &mut Receipt| {
        let results =
            world.database.execute_batch(receipt, PLACE, &with_key(r#"["a"]"#), &operations).await.unwrap();
        results.iter().map(|result| status(&result.outcome)).collect::<Vec<_>>()
    };
    let create = |n: usize, name: &str| {
        let body = format!(r#"{{"id":"{n}","pk":"a","email":"{name}{n}","ttl":100}}"#);
        operation(BatchKind::Create, n, body)
    };
    let statuses = run((0..100).map(|n| create(n, "m")).collect(), &mut receipt).await;
    assert_eq!(statuses, vec!["201"; 100]);
    // Patches of a hundred items, and a hundred patches of one: no tuple is known before they run.
    let patch = |n: usize, email: String| {
        let body = format!(r#"[{{"op":"set","path":"/email","value":"{email}"}}]"#);
        operation(BatchKind::Patch, n, body)
    };
    let statuses = run((0..100).map(|n| patch(n, format!("p{n}"))).collect(), &mut receipt).await;
    assert_eq!(statuses, vec!["200"; 100]);
    let statuses = run((0..100).map(|n| patch(7, format!("q{n}"))).collect(), &mut receipt).await;
    assert_eq!(statuses, vec!["200"; 100]);
    // New items over the tuples of a hundred expired ones.
    world.env.advance_seconds(100);
    let take = |n: usize| {
        let email = if n == 7 { "q99".to_owned() } else { format!("p{n}") };
        operation(BatchKind::Create, n, format!(r#"{{"id":"new{n}","pk":"a","email":"{email}"}}"#))
    };
    let statuses = run((0..100).map(take).collect(), &mut receipt).await;
    assert_eq!(statuses, vec!["201"; 100]);
    world.database.maintain().await.unwrap();
    crate::common::raw::check_consistency(&world).await.unwrap();
    assert_eq!(crate::common::raw::count(&world, crate::common::raw::UNIQUE).await, 100);
}

#[tokio::test]
async fn a_container_without_unique_keys_has_no_tuples() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a","email":"x"} => created
        create ["a"] {"id":"2","pk":"a","email":"x"} => created
        raw 40                                       => 0
    "#;
    check(BY_PK, steps).await;
}
