//! Batches: all or nothing on one logical partition. Bulk requests: each operation for itself.

use bytes::Bytes;
use orrery_db::{BatchKind, BatchOperation, BatchOutcome, Effect, ItemOptions, Receipt};
use orrery_model::{Charge, ErrorKind, Value};

use crate::common::{
    BY_PK, ENGINES, Engine, PLACE, World, check, everything, key, operation, parse, with_key,
};

#[tokio::test]
async fn a_batch_is_atomic() {
    let steps = r#"
        batch ["a"] [{"operationType":"Create","resourceBody":{"id":"1","pk":"a"}},{"operationType":"Upsert","resourceBody":{"id":"2","pk":"a"}},{"operationType":"Upsert","resourceBody":{"id":"1","pk":"a","n":1}},{"operationType":"Read","id":"1"},{"operationType":"Replace","id":"2","resourceBody":{"id":"2","pk":"a","n":2}},{"operationType":"Patch","id":"2","resourceBody":{"operations":[{"op":"incr","path":"/n","value":5}]}},{"operationType":"Delete","id":"1"}] => 201 201 200 200 200 200 204
        read ["a"] 2                           => read {"id":"2","pk":"a","n":7}
        read ["a"] 1                           => NotFound
        usage                                  => 1 items 25 bytes
        # Whatever fails, wherever it stands, undoes the rest.
        batch ["a"] [{"operationType":"Create","resourceBody":{"id":"1","pk":"a"}},{"operationType":"Create","resourceBody":{"id":"2","pk":"a"}},{"operationType":"Create","resourceBody":{"id":"3","pk":"a"}}] => 424 Conflict 424
        batch ["a"] [{"operationType":"Delete","id":"2"},{"operationType":"Replace","id":"2","resourceBody":{"id":"2","pk":"a"}}] => 424 NotFound
        batch ["a"] [{"operationType":"Read","id":"9"},{"operationType":"Delete","id":"2"}] => NotFound 424
        batch ["a"] [{"operationType":"Delete","id":"2"},{"operationType":"Patch","id":"2","resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}]}}] => 424 NotFound
        batch ["a"] [{"operationType":"Upsert","resourceBody":{"id":"5","pk":"a"}},{"operationType":"Patch","id":"2","resourceBody":{"operations":[{"op":"remove","path":"/no"}]}}] => 424 BadRequest
        batch ["a"] [{"operationType":"Upsert","resourceBody":{"id":"5","pk":"a"}},{"operationType":"Upsert","resourceBody":{"id":"6","pk":"a","ttl":0}}] => 424 BadRequest
        batch ["a"] [{"operationType":"Upsert","resourceBody":{"id":"5","pk":"a"}},{"operationType":"Delete"}] => 424 BadRequest
        batch ["a"] [{"operationType":"Upsert","resourceBody":{"id":"5","pk":"a"}},{"operationType":"Create"}] => 424 BadRequest
        feed -                                 => 2
        read ["a"] 2                           => read {"id":"2","pk":"a","n":7}
        # The same id again and again, in one batch.
        batch ["a"] [{"operationType":"Delete","id":"2"},{"operationType":"Create","resourceBody":{"id":"2","pk":"a"}},{"operationType":"Delete","id":"2"},{"operationType":"Create","resourceBody":{"id":"2","pk":"a","n":9}}] => 204 201 204 201
        read ["a"] 2                           => read {"id":"2","pk":"a","n":9}
        batch ["a"] [{"operationType":"Create","resourceBody":{"id":"3","pk":"a","n":1}},{"operationType":"Replace","id":"3","resourceBody":{"id":"3","pk":"a","n":2}},{"operationType":"Create","resourceBody":{"id":"4","pk":"a","n":1}},{"operationType":"Delete","id":"4"},{"operationType":"Upsert","resourceBody":{"id":"2","pk":"a","n":8}}] => 201 200 201 204 200
        query - SELECT VALUE c.id FROM c WHERE c.n IN (1, 7, 9)      => []
        query - SELECT VALUE c.id FROM c WHERE c.n > 1 ORDER BY c.id => ["2","3"]
        batch ["a"] [{"operationType":"Delete","id":"3"}] => 204
        restart
        query - SELECT VALUE c.id FROM c WHERE c.n > 1 ORDER BY c.id => ["2"]
        feed ["a"]                             => 2
    "#;
    check(BY_PK, steps).await;
}

#[tokio::test]
async fn etags_are_checked_inside_a_batch() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a"} => created as first
        create ["a"] {"id":"2","pk":"a"} => created as second
        batch ["a"] [{"operationType":"Replace","id":"1","resourceBody":{"id":"1","pk":"a"},"ifMatch":"$first"},{"operationType":"Delete","id":"2","ifMatch":"$first"}] => 424 PreconditionFailed
        # A read that finds nothing new does not end the batch.
        batch ["a"] [{"operationType":"Read","id":"1","ifNoneMatch":"$first"},{"operationType":"Delete","id":"2","ifMatch":"$second"}] => 304 204
        # The first operation has given the item a new etag.
        batch ["a"] [{"operationType":"Replace","id":"1","resourceBody":{"id":"1","pk":"a"},"ifMatch":"$first"},{"operationType":"Replace","id":"1","resourceBody":{"id":"1","pk":"a"},"ifMatch":"$first"}] => 424 PreconditionFailed
        batch ["a"] [{"operationType":"Replace","id":"1","resourceBody":{"id":"1","pk":"a"},"ifMatch":"$first"},{"operationType":"Read","id":"1","ifNoneMatch":"$first"}] => 200 200
        batch ["a"] [{"operationType":"Upsert","resourceBody":{"id":"3","pk":"a"},"ifMatch":"$first"}] => 201
    "#;
    check(BY_PK, steps).await;
}

#[tokio::test]
async fn a_batch_has_one_key_and_a_bounded_length() {
    let operation =
        |n: usize| format!(r#"{{"operationType":"Upsert","resourceBody":{{"id":"{n}","pk":"a"}}}}"#);
    let list = |count: usize| (0..count).map(operation).collect::<Vec<_>>().join(",");
    let steps = format!(
        r#"
        batch ["a"] [{{"operationType":"Create","resourceBody":{{"id":"1","pk":"a"}}}},{{"operationType":"Create","resourceBody":{{"id":"2","pk":"b"}}}}] => 424 PartitionKeyMismatch
        batch ["a"] []         => BadRequest "Batch request has no operations."
        batch ["a"] [{many}]   => BadRequest "Batch request has more operations than what is supported."
        batch - [{one}]        => BadRequest "PartitionKey value must be supplied"
        usage                  => 0 items 0 bytes
        batch ["a"] [{all}]    => {created}
        batch ["a"] [{all}]    => {replaced}
        raw 10                 => 100
    "#,
        many = list(101),
        one = list(1),
        all = list(100),
        created = vec!["201"; 100].join(" "),
        replaced = vec!["200"; 100].join(" "),
    );
    check(BY_PK, &steps).await;
}

#[tokio::test]
async fn bulk_operations_are_independent() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a"} => created
        bulk - [{"operationType":"Create","partitionKey":"[\"a\"]","resourceBody":{"id":"1","pk":"a"}},{"operationType":"Create","partitionKey":"[\"b\"]","resourceBody":{"id":"1","pk":"b"}},{"operationType":"Create","partitionKey":"[\"b\"]","resourceBody":{"id":"1","pk":"c"}},{"operationType":"Read","partitionKey":"[\"a\"]","id":"1"},{"operationType":"Delete","partitionKey":"[{}]","id":"1"},{"operationType":"Upsert","resourceBody":{"id":"2","pk":"a"}},{"operationType":"Create","partitionKey":"[\"a\",\"b\"]","resourceBody":{"id":"3","pk":"a"}},{"operationType":"Patch","partitionKey":"[\"a\"]","id":"1","resourceBody":{"operations":[{"op":"set","path":"/n","value":1}]}}] => Conflict 201 PartitionKeyMismatch 200 NotFound BadRequest PartitionKeyMismatch 200
        feed -                           => 1 1
        bulk - []                        => BadRequest "Batch request has no operations."
        # A key in the header holds for all operations: none may name another.
        bulk ["a"] [{"operationType":"Upsert","resourceBody":{"id":"2","pk":"a"}},{"operationType":"Upsert","partitionKey":"[\"b\"]","resourceBody":{"id":"2","pk":"b"}},{"operationType":"Upsert","partitionKey":"[\"a\"]","resourceBody":{"id":"3","pk":"a"}}] => 201 PartitionKeyMismatch 201
        feed -                           => 1 1 2 3
    "#;
    check(BY_PK, steps).await;
}

#[tokio::test]
async fn results_report_the_effect_and_charge_of_each_operation() {
    let world = World::memory().await;
    world.create_container(BY_PK).await;
    let operations = [
        operation(BatchKind::Create, "1", Some(r#"{"id":"1","pk":"a","n":1}"#)),
        operation(BatchKind::Read, "1", None),
        operation(BatchKind::Replace, "1", Some(r#"{"id":"1","pk":"a","n":2}"#)),
        operation(BatchKind::Read, "1", None),
        operation(BatchKind::Delete, "1", None),
    ];
    let mut receipt = Receipt::default();
    let results =
        world.database.execute_batch(&mut receipt, PLACE, &with_key(r#"["a"]"#), &operations).await.unwrap();
    let replies: Vec<_> = results
        .iter()
        .map(|result| match &result.outcome {
            BatchOutcome::Done(reply) => reply,
            other => panic!("{other:?}"),
        })
        .collect();
    let effects: Vec<Effect> = replies.iter().map(|reply| reply.effect).collect();
    assert_eq!(effects, [Effect::Created, Effect::Read, Effect::Replaced, Effect::Read, Effect::Deleted]);
    let number = |at: usize| parse(&replies[at].document()).get("n").and_then(Value::as_i64);
    assert_eq!((number(1), number(3)), (Some(1), Some(2)));
    assert_eq!(replies[0].etag, replies[1].etag);
    assert_ne!(replies[0].etag, replies[2].etag);
    assert_eq!(replies[2].etag, replies[3].etag);
    assert_eq!(receipt.charge, results.iter().map(|result| result.charge).sum::<Charge>());
    assert!(results.iter().all(|result| result.charge > Charge::ZERO));
    // One transaction, one position.
    assert_eq!(receipt.served.iter().map(|served| served.lsn).collect::<Vec<_>>(), [2]);
}

#[tokio::test]
async fn bulk_reaches_all_partitions() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 4).await;
        world.create_container(BY_PK).await;
        let create = |n: usize| BatchOperation {
            kind: BatchKind::Create,
            id: None,
            body: Some(Bytes::from(format!(r#"{{"id":"{n}","pk":{n}}}"#))),
            if_match: None,
            if_none_match: None,
            partition_key: Some(key(&format!("[{n}]"))),
        };
        let operations: Vec<_> = (0..100).map(create).collect();
        let mut receipt = Receipt::default();
        let options = ItemOptions::default();
        let results =
            world.database.execute_bulk(&mut receipt, PLACE, &options, &operations, true).await.unwrap();
        assert!(results.iter().all(|result| matches!(result.outcome, BatchOutcome::Done(_))));
        assert_eq!(receipt.served.len(), 4, "all partitions took part");
        assert_eq!(world.feed(&everything(), 1000).await.unwrap().len(), 100);
        let again =
            world.database.execute_bulk(&mut receipt, PLACE, &options, &operations, true).await.unwrap();
        for result in again {
            let BatchOutcome::Failed(error) = result.outcome else { panic!("it exists") };
            assert_eq!(error.kind, ErrorKind::Conflict);
        }
    }
}

#[tokio::test]
async fn bulk_can_stop_at_the_first_failure() {
    let world = World::memory().await;
    world.create_container(BY_PK).await;
    world.create(r#"{"id":"1","pk":1}"#).await;
    let body = r#"[{"operationType":"Create","partitionKey":"[0]","resourceBody":{"id":"0","pk":0}},
        {"operationType":"Create","partitionKey":"[1]","resourceBody":{"id":"1","pk":1}},
        {"operationType":"Create","partitionKey":"[2]","resourceBody":{"id":"2","pk":2}}]"#;
    let operations = crate::common::script::batch_operations(body.as_bytes(), str::to_owned);
    let mut receipt = Receipt::default();
    let options = ItemOptions::default();
    let results =
        world.database.execute_bulk(&mut receipt, PLACE, &options, &operations, false).await.unwrap();
    let statuses: Vec<_> =
        results.iter().map(|result| crate::common::script::status(&result.outcome)).collect();
    // What was done before stays done; what comes after was not tried.
    assert_eq!(statuses, ["201", "Conflict", "424"]);
    assert_eq!(world.feed(&everything(), 10).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_batches_preserve_sums() {
    // Money moves between accounts of one key; each batch takes and gives, and the sum never changes.
    for engine in [Engine::Memory, Engine::Embedded] {
        let world = World::open(engine, crate::common::quiet_options()).await;
        world.create_container(BY_PK).await;
        for n in 0..4 {
            world.create(&format!(r#"{{"id":"{n}","pk":"a","sum":100}}"#)).await;
        }
        let mut tasks = Vec::new();
        for task in 0..8_usize {
            let database = std::sync::Arc::clone(&world.database);
            tasks.push(tokio::spawn(async move {
                for step in 0..20_usize {
                    let (from, to) = ((task + step) % 4, (task + step + 1 + step % 3) % 4);
                    let transfer = |id: usize, by: i64| {
                        let patch = format!(r#"[{{"op":"incr","path":"/sum","value":{by}}}]"#);
                        operation(BatchKind::Patch, &id.to_string(), Some(&patch))
                    };
                    let operations = [transfer(from, -1), transfer(to, 1)];
                    let mut receipt = Receipt::default();
                    let options = with_key(r#"["a"]"#);
                    database.execute_batch(&mut receipt, PLACE, &options, &operations).await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let items = world.feed(&everything(), 10).await.unwrap();
        let sum: i64 = items.iter().map(|item| item.get("sum").and_then(Value::as_i64).unwrap()).sum();
        assert_eq!(sum, 400);
    }
}

/// Ten reads of a megabyte, as the Java client's tests send them.
#[tokio::test]
async fn a_batch_with_a_too_large_response_fails_as_a_whole() {
    let world = World::memory().await;
    world.create_container(BY_PK).await;
    let text = "x".repeat(1 << 20);
    world.create(&format!(r#"{{"id":"large","pk":"a","text":"{text}"}}"#)).await;
    let run = async |operations: &[BatchOperation]| {
        let results = world
            .database
            .execute_batch(&mut Receipt::default(), PLACE, &with_key(r#"["a"]"#), operations)
            .await;
        results.unwrap()
    };
    let read = operation(BatchKind::Read, "large", None);
    let create = operation(BatchKind::Create, "new", Some(r#"{"id":"new","pk":"a"}"#));
    let mut operations = vec![create];
    operations.resize(11, read.clone());
    let results = run(&operations).await;
    let too_large = |outcome: &BatchOutcome| matches!(outcome, BatchOutcome::Failed(error) if error.kind == ErrorKind::TooLarge);
    // Three fit; the one after them does not, and none of the others counts.
    for (at, result) in results.iter().enumerate() {
        let fits = if at == 4 {
            too_large(&result.outcome)
        } else {
            matches!(result.outcome, BatchOutcome::FailedDependency)
        };
        assert!(fits, "{at}: {:?}", result.outcome);
    }
    assert_eq!(world.feed(&everything(), 100).await.unwrap().len(), 1);
    let results = run(&[read.clone(), read.clone(), read]).await;
    assert!(results.iter().all(|result| matches!(result.outcome, BatchOutcome::Done(_))));
}
