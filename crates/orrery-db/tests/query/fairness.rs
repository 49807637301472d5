//! A query that takes all it can get does not keep others from being served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orrery_db::{QueryOptions, Receipt};
use orrery_model::ErrorKind;

use crate::common::{BY_PK, PLACE, World, with_key};
use crate::run::request;

async fn world() -> World {
    let world = World::memory().await;
    world.create_container(BY_PK).await;
    let list: Vec<String> = (0..90).map(|number| number.to_string()).collect();
    for id in 0..3 {
        world.create(&format!(r#"{{"id":"{id}","pk":"a","list":[{}]}}"#, list.join(","))).await;
    }
    world
}

/// As many threads serve requests as runaway queries are there: if those kept them, no read would come through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn point_reads_are_served_during_runaway_joins() {
    let world = world().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let heavy: Vec<_> = (0..4)
        .map(|_| {
            let database = Arc::clone(&world.database);
            tokio::spawn(async move {
                let text = "SELECT VALUE COUNT(1) FROM c JOIN x IN c.list JOIN y IN c.list JOIN z IN c.list WHERE x + y = z";
                let options = QueryOptions { cross_partition: true, ..QueryOptions::default() };
                database.query_items(&mut Receipt::default(), PLACE, &options, &request(text)).await.unwrap().count
            })
        })
        .collect();
    let reader = {
        let (database, is_over) = (Arc::clone(&world.database), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut reads = 0;
            while !is_over.load(Ordering::Relaxed) {
                let place = (PLACE.0, PLACE.1, "1");
                database.read_item(&mut Receipt::default(), place, &with_key(r#"["a"]"#)).await.unwrap();
                reads += 1;
                tokio::task::yield_now().await;
            }
            reads
        })
    };
    for heavy in heavy {
        assert_eq!(heavy.await.unwrap(), 1);
    }
    is_over.store(true, Ordering::Relaxed);
    let reads = reader.await.unwrap();
    assert!(reads > 100, "only {reads} reads came through");
}

#[tokio::test]
async fn an_unbounded_join_is_rejected() {
    let world = world().await;
    let text = "SELECT VALUE COUNT(1) FROM c JOIN a IN c.list JOIN b IN c.list JOIN d IN c.list JOIN e IN c.list JOIN f IN c.list";
    let options = QueryOptions { cross_partition: true, ..QueryOptions::default() };
    let error = world
        .database
        .query_items(&mut Receipt::default(), PLACE, &options, &request(text))
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadRequest);
    assert!(error.message.contains("more work than one request may use"), "{error}");
}
