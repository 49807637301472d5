//! Giving a container another key while it is written to: nothing is lost, nothing comes back, and what stops can be
//! resumed or given up.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use orrery_db::{
    Database, ItemOptions, Options, QueryOptions, QueryRequest, Receipt, RepartitionRequest,
    RepartitionStatus,
};
use orrery_model::{ErrorKind, Result, Value};
use orrery_testing::wait;

use crate::common::{
    CONTAINER, DATABASE, ENGINES, Engine, PLACE, World, everything, parse, quiet_options, user_part, with_key,
};

const BY_DATE: &str = r#""partitionKey":{"paths":["/date"],"kind":"Hash","version":2}"#;
const PRECALCULATED: &str =
    r#"{"format":1,"kind":"precalculatedSuffix","parts":["/date"],"suffix":{"of":["/VIN"],"count":16}}"#;
const RANDOM: &str = r#"{"format":1,"kind":"randomSuffix","parts":["/day"],"suffix":{"count":16}}"#;

fn request(policy: &str, keep_as: Option<&str>) -> RepartitionRequest {
    RepartitionRequest {
        partition_key: parse(br#"{"paths":["/partitionKey"],"kind":"Hash","version":2}"#),
        synthetic_key: Some(parse(policy.as_bytes())),
        keep_as: keep_as.map(str::to_owned),
    }
}

fn body(id: u64, version: u64) -> String {
    // The day, of which the random key is made, changes with the version: the item moves.
    format!(
        r#"{{"id":"{id}","date":"2018-08-{:02}","VIN":"V{id}","day":"d{}","version":{version}}}"#,
        id % 7 + 1,
        version % 3
    )
}

fn header(id: u64) -> ItemOptions {
    with_key(&format!(r#"["2018-08-{:02}"]"#, id % 7 + 1))
}

async fn upsert(database: &Database, id: u64, version: u64) -> Result<()> {
    let body = Bytes::from(body(id, version));
    database.upsert_item(&mut Receipt::default(), PLACE, &header(id), &body).await.map(drop)
}

async fn delete(database: &Database, id: u64) -> Result<()> {
    let place = (DATABASE, CONTAINER, id.to_string());
    let place = (place.0, place.1, place.2.as_str());
    database.delete_item(&mut Receipt::default(), place, &header(id)).await.map(drop)
}

async fn ended(database: &Database) -> RepartitionStatus {
    wait::eventually("the end of the repartitioning", async || {
        let status = database.repartition_status(DATABASE, CONTAINER).unwrap();
        matches!(status.phase, "done" | "failed").then_some(status)
    })
    .await
}

/// The items by id, without what the new key added.
async fn contents(world: &World) -> BTreeMap<u64, String> {
    let items = world.feed(&everything(), 100).await.unwrap();
    let count = items.len();
    let found: BTreeMap<u64, String> = items
        .iter()
        .map(|item| {
            let mut item = user_part(item);
            item.as_object_mut().unwrap().remove("partitionKey");
            (item.get("id").unwrap().as_str().unwrap().parse().unwrap(), item.to_json())
        })
        .collect();
    assert_eq!(found.len(), count, "an item is there twice");
    found
}

/// Writes until another container has the name; answers what must be there.
async fn write_until_replaced(
    database: Arc<Database>,
    mut model: BTreeMap<u64, String>,
    from: u64,
) -> BTreeMap<u64, String> {
    let rid = |database: &Database| database.catalog().container(DATABASE, CONTAINER).unwrap().rid;
    let before = rid(&database);
    let mut dice = crate::common::env::Dice::new(5);
    for step in 0.. {
        let id = from + dice.below(120);
        let deletes = dice.one_in(4);
        let result = if deletes { delete(&database, id).await } else { upsert(&database, id, step).await };
        match result {
            Ok(()) if deletes => drop(model.remove(&id)),
            Ok(()) => drop(model.insert(id, parse(body(id, step).as_bytes()).to_json())),
            Err(error) if error.kind == ErrorKind::NotFound && model.contains_key(&id) => {
                // The cut-over came between two writes: this was the first one to the other container.
                assert_ne!(rid(&database), before, "an item is missing");
                return model;
            }
            Err(error) if error.kind == ErrorKind::NotFound => {}
            // The container is another one now, whose key this client does not know: it is told to look again, by errors
            // that SDKs retry.
            Err(error) if matches!(error.kind, ErrorKind::ContainerRecreated | ErrorKind::NameCacheStale) => {
                return model;
            }
            Err(error) => panic!("{error}"),
        }
        tokio::task::yield_now().await;
    }
    unreachable!("it writes for ever")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_is_repartitioned_under_write_load() {
    for (engine, policy) in
        [(Engine::Memory, PRECALCULATED), (Engine::Memory, RANDOM), (Engine::Embedded, RANDOM)]
    {
        let world = World::with_partitions(engine, 3).await;
        world.create_container(BY_DATE).await;
        let mut model = BTreeMap::new();
        for id in 0..100 {
            upsert(&world.database, id, 0).await.unwrap();
            model.insert(id, parse(body(id, 0).as_bytes()).to_json());
        }
        let writer = tokio::spawn(write_until_replaced(Arc::clone(&world.database), model, 0));
        world.database.repartition(PLACE, &request(policy, Some("before"))).await.unwrap();
        let status = ended(&world.database).await;
        assert_eq!(status.phase, "done", "{status:?}");
        let model = writer.await.unwrap();
        assert_eq!(contents(&world).await, model);
        assert_eq!(status.items, model.len() as u64);
        assert_eq!(status.kept_as.as_deref(), Some("before"));
        // The new container makes keys; the old one is there under its new name, with the same items.
        let text = r#"{"query":"SELECT VALUE COUNT(1) FROM c"}"#;
        let options = QueryOptions { cross_partition: true, ..QueryOptions::default() };
        let request = QueryRequest::parse(text.as_bytes()).unwrap();
        let page = world
            .database
            .query_items(&mut Receipt::default(), (DATABASE, "before"), &options, &request)
            .await
            .unwrap();
        assert_eq!(page.rows, model.len().to_string().as_bytes());
        assert!(world.database.synthetic_key(DATABASE, CONTAINER).unwrap().unwrap().routes);
        let world = world.restart().await;
        assert_eq!(contents(&world).await, model);
        let catalog = world.database.catalog();
        assert_eq!(catalog.containers().count(), 2);
        assert!(catalog.containers().all(|container| container.repartition.is_none()));
    }
}

#[tokio::test]
async fn repartitioning_resumes_after_a_restart_and_keeps_timestamps() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 3).await;
        world.create_container(BY_DATE).await;
        for id in 0..300 {
            upsert(&world.database, id, 0).await.unwrap();
        }
        let before = world.feed(&everything(), 1000).await.unwrap();
        world.env.advance_seconds(3600);
        world.database.repartition(PLACE, &request(PRECALCULATED, None)).await.unwrap();
        // It has hardly begun.
        delete(&world.database, 7).await.unwrap();
        assert_eq!(world.replace_container(BY_DATE).await.unwrap_err().kind, ErrorKind::Locked);
        let world = world.restart().await;
        let status = ended(&world.database).await;
        assert_eq!((status.phase, status.items), ("done", 299), "{status:?}");
        let after = world.feed(&everything(), 1000).await.unwrap();
        let times = |items: &[Value]| -> BTreeMap<String, i64> {
            let text = |item: &Value| item.get("id").unwrap().as_str().unwrap().to_owned();
            items.iter().map(|item| (text(item), item.get("_ts").unwrap().as_i64().unwrap())).collect()
        };
        let mut expected = times(&before);
        expected.remove("7");
        assert_eq!(times(&after), expected);
        assert_eq!(world.database.catalog().containers().count(), 1);
    }
}

/// Two servers write; the one that was asked does the work, or is stopped over it and the other one goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_server_takes_over_repartitioning() {
    for is_stopped in [false, true] {
        let url = orrery_testing::fresh_store_url();
        let options = Options { partitions_at_creation: Some(2), ..quiet_options() };
        let one = World::on_postgres(&url, options.clone(), 1).await;
        let other = World::on_postgres(&url, options, 2).await;
        one.create_container(BY_DATE).await;
        let mut models = [BTreeMap::new(), BTreeMap::new()];
        for id in (0..60).chain(1000..1060) {
            upsert(&one.database, id, 0).await.unwrap();
            let model = &mut models[usize::from(id >= 1000)];
            model.insert(id, parse(body(id, 0).as_bytes()).to_json());
        }
        wait::eventually_true("news of the container", async || {
            other.database.catalog().container(DATABASE, CONTAINER).is_ok()
        })
        .await;
        let [first, second] = models;
        let writers = [
            (!is_stopped)
                .then(|| tokio::spawn(write_until_replaced(Arc::clone(&one.database), first.clone(), 0))),
            Some(tokio::spawn(write_until_replaced(Arc::clone(&other.database), second, 1000))),
        ];
        one.database.repartition(PLACE, &request(RANDOM, Some("before"))).await.unwrap();
        if is_stopped {
            one.database.close().await.unwrap();
        }
        wait::eventually_true("news of the repartitioning", async || {
            other.database.repartition_status(DATABASE, CONTAINER).is_ok()
        })
        .await;
        let status = ended(&other.database).await;
        assert_eq!(status.phase, "done", "{status:?}");
        assert_eq!(status.kept_as.as_deref(), Some("before"));
        let mut model = if is_stopped { first } else { BTreeMap::new() };
        for writer in writers.into_iter().flatten() {
            model.extend(writer.await.unwrap());
        }
        assert_eq!(status.items, model.len() as u64);
        assert_eq!(contents(&other).await, model);
        if !is_stopped {
            assert_eq!(contents(&one).await, model);
            one.database.close().await.unwrap();
        }
        other.database.close().await.unwrap();
    }
}

#[tokio::test]
async fn clients_with_the_old_key_get_a_retryable_error() {
    let world = World::with_partitions(Engine::Memory, 2).await;
    world.create_container(BY_DATE).await;
    upsert(&world.database, 1, 0).await.unwrap();
    world.database.repartition(PLACE, &request(PRECALCULATED, None)).await.unwrap();
    assert_eq!(ended(&world.database).await.phase, "done");
    // The key that the item had in the former container: not an error of the application.
    let stale = upsert(&world.database, 1, 1).await.unwrap_err();
    assert_eq!(stale.kind, ErrorKind::NameCacheStale, "{stale}");
    // A key that the item has in neither container stays an error.
    let body = Bytes::from(body(1, 1));
    let options = with_key(r#"["elsewhere"]"#);
    let wrong =
        world.database.upsert_item(&mut Receipt::default(), PLACE, &options, &body).await.unwrap_err();
    assert_eq!(wrong.kind, ErrorKind::BadRequest, "{wrong}");
}

#[tokio::test]
async fn a_failed_repartitioning_can_be_aborted() {
    let world = World::with_partitions(Engine::Memory, 2).await;
    world.create_container(BY_DATE).await;
    for date in ["2018-08-01", "2018-08-02"] {
        let item = Bytes::from(format!(r#"{{"id":"same","date":"{date}","day":"d","VIN":"V"}}"#));
        let options = with_key(&format!(r#"["{date}"]"#));
        world.database.create_item(&mut Receipt::default(), PLACE, &options, &item).await.unwrap();
    }
    // Both would have the key "V" and the same id.
    let policy = r#"{"format":1,"kind":"concatenate","parts":["/VIN"]}"#;
    world.database.repartition(PLACE, &request(policy, None)).await.unwrap();
    let status = ended(&world.database).await;
    assert_eq!(status.phase, "failed");
    let message = status.message.unwrap();
    for item in [r#""same" under ["2018-08-01"]"#, r#""same" under ["2018-08-02"]"#] {
        assert!(message.contains(item), "{message}");
    }
    // The container serves as before.
    upsert(&world.database, 1, 0).await.unwrap();
    world.database.abort_repartition(DATABASE, CONTAINER).await.unwrap();
    assert_eq!(world.database.catalog().containers().count(), 1);
    assert_eq!(world.feed(&everything(), 10).await.unwrap().len(), 3);
    assert!(world.database.repartition_status(DATABASE, CONTAINER).is_err());
    // An item without what the key is made of.
    let policy = r#"{"format":1,"kind":"concatenate","parts":["/nothing"]}"#;
    world.database.repartition(PLACE, &request(policy, None)).await.unwrap();
    let message = ended(&world.database).await.message.unwrap();
    assert!(message.contains("/nothing"), "{message}");
    world.database.abort_repartition(DATABASE, CONTAINER).await.unwrap();
    // A definition that does not fit makes nothing.
    assert!(world.database.repartition(PLACE, &request(r#"{"format":7}"#, None)).await.is_err());
    assert_eq!(world.database.catalog().containers().count(), 1);
}
