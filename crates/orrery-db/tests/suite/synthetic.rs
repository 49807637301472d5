//! Containers that make their own keys: what is filled in, what is refused, where queries go and what that costs.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use orrery_db::{
    BatchKind, BatchOperation, BatchOutcome, Options, QueryOptions, QueryPage, QueryRequest, Receipt, Routing,
};
use orrery_model::offer::Throughput;
use orrery_model::{ErrorKind, Result, Value};
use synthetic_key::Definition;

use crate::common::{
    CONTAINER, DATABASE, ENGINES, Engine, PLACE, World, everything, ids, parse, quiet_options, user_part,
    with_key,
};

/// The suffix of this vehicle among 400, as another implementation of the hash gives it.
const VIN: &str = "1HGCM82633A004352";
const VIN_KEY: &str = "2018-08-09.353";

const PRECALCULATED: &str =
    r#"{"format":1,"kind":"precalculatedSuffix","parts":["/date"],"suffix":{"of":["/VIN"],"count":400}}"#;

fn random(count: u32) -> String {
    format!(r#"{{"format":1,"kind":"randomSuffix","parts":["/date"],"suffix":{{"count":{count}}}}}"#)
}

fn with_policy(policy: &str) -> String {
    format!(
        r#""partitionKey":{{"paths":["/partitionKey"],"kind":"Hash","version":2}},"orrerySyntheticKey":{policy}"#
    )
}

const PLAIN: &str = r#""partitionKey":{"paths":["/partitionKey"],"kind":"Hash","version":2}"#;

async fn write(world: &World, header: Option<&str>, body: &str) -> Result<Value> {
    let options = header.map(with_key).unwrap_or_default();
    let body = Bytes::copy_from_slice(body.as_bytes());
    let reply = world.database.create_item(&mut Receipt::default(), PLACE, &options, &body).await?;
    Ok(user_part(&parse(&reply.document())))
}

async fn replace(world: &World, header: Option<&str>, id: &str, body: &str) -> Result<Value> {
    let options = header.map(with_key).unwrap_or_default();
    let body = Bytes::copy_from_slice(body.as_bytes());
    let place = (DATABASE, CONTAINER, id);
    let reply = world.database.replace_item(&mut Receipt::default(), place, &options, &body).await?;
    Ok(user_part(&parse(&reply.document())))
}

async fn query(world: &World, text: &str, options: &QueryOptions) -> (QueryPage, Receipt) {
    let request =
        QueryRequest::parse(format!(r#"{{"query":{}}}"#, Value::from(text).to_json()).as_bytes()).unwrap();
    let mut receipt = Receipt::default();
    let page = world.database.query_items(&mut receipt, PLACE, options, &request).await.unwrap();
    (page, receipt)
}

fn crossing() -> QueryOptions {
    QueryOptions { cross_partition: true, ..QueryOptions::default() }
}

fn rows(page: &QueryPage) -> BTreeSet<String> {
    let text = [b"[", page.rows.as_slice(), b"]"].concat();
    parse(&text).as_array().unwrap().iter().map(Value::to_json).collect()
}

#[tokio::test]
async fn an_item_without_its_key_gets_it_and_can_be_point_read() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 4).await;
        world.create_container(&with_policy(PRECALCULATED)).await;
        let item = format!(r#"{{"id":"1", "date":"2018-08-09","VIN":"{VIN}", "n":1.50}}"#);
        // Clients send what they find in the item: undefined, nothing, or the key they have computed.
        for (id, header) in
            [("1", None), ("2", Some("[{}]")), ("3", Some("[]")), ("4", Some(r#"["2018-08-09.353"]"#))]
        {
            let body = item.replace(r#""id":"1""#, &format!(r#""id":"{id}""#));
            let created = write(&world, header, &body).await.unwrap();
            assert_eq!(created.get("partitionKey").and_then(Value::as_str), Some(VIN_KEY));
        }
        let world = world.restart().await;
        let mut receipt = Receipt::default();
        let options = with_key(&format!(r#"["{VIN_KEY}"]"#));
        let read =
            world.database.read_item(&mut receipt, (DATABASE, CONTAINER, "1"), &options).await.unwrap();
        // The key follows what the client wrote.
        let text = String::from_utf8(read.document().to_vec()).unwrap();
        let expected =
            format!(r#"{{"id":"1","date":"2018-08-09","VIN":"{VIN}","n":1.5,"partitionKey":"{VIN_KEY}","#);
        assert!(text.starts_with(&expected), "{text}");
        assert_eq!(receipt.served.len(), 1);
    }
}

#[tokio::test]
async fn contradicting_items_are_rejected_whatever_writes_them() {
    let world = World::with_partitions(Engine::Memory, 4).await;
    world.create_container(&with_policy(PRECALCULATED)).await;
    let good = format!(r#"{{"id":"1","date":"2018-08-09","VIN":"{VIN}"}}"#);
    write(&world, None, &good).await.unwrap();
    let refused = |result: Result<Value>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadRequest, "{error}");
        error.message
    };
    let wrong = format!(r#"{{"id":"2","date":"2018-08-09","VIN":"{VIN}","partitionKey":"2018-08-09.1"}}"#);
    let message = refused(write(&world, None, &wrong).await);
    assert!(message.contains(VIN_KEY) && message.contains("2018-08-09.1"), "{message}");
    refused(write(&world, Some(r#"["2018-08-09.1"]"#), &wrong).await);
    // A key beside the item that the item's properties do not give.
    refused(write(&world, Some(r#"["2018-08-09.1"]"#), &good.replace("\"1\"", "\"3\"")).await);
    // Nothing to make the key of.
    let message = refused(write(&world, None, r#"{"id":"4","VIN":"x"}"#).await);
    assert!(message.contains("/date"), "{message}");
    // The properties of an item change, its key does not.
    let moved = format!(r#"{{"id":"1","date":"2018-08-10","VIN":"{VIN}","partitionKey":"{VIN_KEY}"}}"#);
    refused(replace(&world, None, "1", &moved).await);
    let options = with_key(&format!(r#"["{VIN_KEY}"]"#));
    let place = (DATABASE, CONTAINER, "1");
    let patch = |path: &str| Bytes::from(format!(r#"[{{"op":"set","path":"{path}","value":"2018-08-10"}}]"#));
    let patched = world.database.patch_item(&mut Receipt::default(), place, &options, &patch("/date")).await;
    assert_eq!(patched.unwrap_err().kind, ErrorKind::BadRequest);
    world.database.patch_item(&mut Receipt::default(), place, &options, &patch("/other")).await.unwrap();
    assert_eq!(ids(&world.feed(&everything(), 10).await.unwrap()), ["1"]);
}

#[tokio::test]
async fn replaces_and_batches_use_the_key_derived_from_the_item() {
    let world = World::with_partitions(Engine::Memory, 4).await;
    world.create_container(&with_policy(PRECALCULATED)).await;
    let item = format!(r#"{{"id":"1","date":"2018-08-09","VIN":"{VIN}"}}"#);
    write(&world, Some("[{}]"), &item).await.unwrap();
    let new = item.replace('}', r#","n":2}"#);
    let replaced = replace(&world, Some("[{}]"), "1", &new).await.unwrap();
    assert_eq!(replaced.get("n").and_then(Value::as_i64), Some(2));
    let operation = |kind, id: &str, body: &str, key: Option<&str>| BatchOperation {
        kind,
        id: Some(id.to_owned()),
        body: (!body.is_empty()).then(|| Bytes::copy_from_slice(body.as_bytes())),
        if_match: None,
        if_none_match: None,
        partition_key: key.map(crate::common::key),
    };
    let body = |id: &str| item.replace(r#""id":"1""#, &format!(r#""id":"{id}""#));
    let header = format!(r#"["{VIN_KEY}"]"#);
    let batch =
        [operation(BatchKind::Create, "2", &body("2"), None), operation(BatchKind::Read, "1", "", None)];
    let results =
        world.database.execute_batch(&mut Receipt::default(), PLACE, &with_key(&header), &batch).await;
    assert!(results.unwrap().iter().all(|result| matches!(result.outcome, BatchOutcome::Done(_))));
    // An item of another key does not join.
    let batch = [operation(BatchKind::Create, "3", &body("3").replace("08-09", "08-10"), None)];
    let results =
        world.database.execute_batch(&mut Receipt::default(), PLACE, &with_key(&header), &batch).await;
    assert!(
        matches!(&results.unwrap()[0].outcome, BatchOutcome::Failed(error) if error.kind == ErrorKind::BadRequest)
    );
    let bulk = [
        operation(BatchKind::Upsert, "4", &body("4"), Some("[{}]")),
        operation(BatchKind::Create, "5", &body("5").replace("08-09", "08-10"), Some("[{}]")),
        operation(BatchKind::Create, "6", &body("6"), Some(r#"["other"]"#)),
    ];
    let options = orrery_db::ItemOptions::default();
    let results =
        world.database.execute_bulk(&mut Receipt::default(), PLACE, &options, &bulk, true).await.unwrap();
    assert!(
        matches!(results[0].outcome, BatchOutcome::Done(_))
            && matches!(results[1].outcome, BatchOutcome::Done(_))
    );
    assert!(matches!(results[2].outcome, BatchOutcome::Failed(_)));
    let keys: BTreeMap<String, String> = world
        .feed(&everything(), 10)
        .await
        .unwrap()
        .iter()
        .map(|item| {
            let text = |name| item.get(name).and_then(Value::as_str).unwrap().to_owned();
            (text("id"), text("partitionKey"))
        })
        .collect();
    let expected = [("1", VIN_KEY), ("2", VIN_KEY), ("4", VIN_KEY), ("5", "2018-08-10.353")];
    assert_eq!(keys, expected.map(|(id, key)| (id.to_owned(), key.to_owned())).into());
}

#[tokio::test]
async fn random_keys_come_from_the_injected_randomness() {
    let mut drawn = Vec::new();
    for _ in 0..2 {
        let world = World::with_partitions(Engine::Memory, 4).await;
        world.create_container(&with_policy(&random(400))).await;
        let mut keys = Vec::new();
        for id in 0..200 {
            let item = write(&world, None, &format!(r#"{{"id":"{id}","date":"2018-08-09"}}"#)).await.unwrap();
            keys.push(item.get("partitionKey").and_then(Value::as_str).unwrap().to_owned());
        }
        let numbers: BTreeSet<u32> =
            keys.iter().map(|key| key.strip_prefix("2018-08-09.").unwrap().parse().unwrap()).collect();
        assert!(numbers.len() > 100 && numbers.iter().all(|number| (1..=400).contains(number)));
        // Which of the items is meant cannot be told.
        let error =
            replace(&world, Some("[{}]"), "1", r#"{"id":"1","date":"2018-08-09"}"#).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadRequest);
        let header = format!(r#"["{}"]"#, keys[1]);
        replace(&world, Some(&header), "1", r#"{"id":"1","date":"2018-08-09"}"#).await.unwrap();
        drawn.push(keys);
    }
    assert_eq!(drawn[0], drawn[1], "the same seed draws the same keys");
}

/// Items of two weeks and thirty vehicles, some of them with more than one property to filter by.
async fn fleet(world: &World) {
    for day in 1..=14 {
        for vehicle in 0..30 {
            let body = format!(
                r#"{{"id":"{day}-{vehicle}","date":"2018-08-{day:02}","VIN":"V{vehicle}","n":{}}}"#,
                (day * 7 + vehicle) % 5
            );
            write(world, None, &body).await.unwrap();
        }
    }
}

#[tokio::test]
async fn queries_are_routed_by_the_properties_in_the_filter() {
    for (policy, by_vehicle, by_date) in [(PRECALCULATED.to_owned(), 1, 400), (random(16), 16, 16)] {
        let world = World::with_partitions(Engine::Memory, 8).await;
        world.create_container(&with_policy(&policy)).await;
        fleet(&world).await;
        let check = async |filter: &str, keys: Option<usize>| {
            let text = format!("SELECT c.id FROM c WHERE {filter}");
            let (page, receipt) = query(&world, &text, &crossing()).await;
            let routing = Routing { keys, by_synthetic_key: keys.is_some() };
            assert_eq!(page.routing, routing, "{policy} {filter}");
            if keys == Some(1) {
                assert_eq!(receipt.served.len(), 1, "{filter}");
            }
            // The same where nothing can be told from the filter.
            let unrouted = text.replace("c.date", "CONCAT(c.date, '')").replace("c.VIN", "CONCAT(c.VIN, '')");
            let (all, _) = query(&world, &unrouted, &crossing()).await;
            assert!(!all.routing.by_synthetic_key);
            assert_eq!(rows(&page), rows(&all), "{filter}");
            (rows(&page).len(), receipt.charge)
        };
        let date = "c.date = '2018-08-03'";
        assert_eq!(check(&format!("{date} AND c.VIN = 'V7'"), Some(by_vehicle)).await.0, 1);
        assert_eq!(check(date, Some(by_date)).await.0, 30);
        assert_eq!(check(&format!("{date} AND c.n = 1"), Some(by_date)).await.0, 6);
        let two = if by_vehicle == 1 { 2 } else { 16 };
        assert_eq!(check(&format!("{date} AND c.VIN IN ('V7','V8')"), Some(two)).await.0, 2);
        let either = if by_vehicle == 1 { 2 } else { 32 };
        let filter = "(c.date = '2018-08-03' AND c.VIN = 'V7') OR (c.date = '2018-08-04' AND c.VIN = 'V7')";
        assert_eq!(check(filter, Some(either)).await.0, 2);
        assert_eq!(check("c.VIN = 'V7'", None).await.0, 14);
        assert_eq!(check("c.date > '2018-08-12'", None).await.0, 60);
        assert_eq!(check("c.date = '2018-08-03' OR c.n = 9", None).await.0, 30);
        // A value that no item can have a key for is looked for everywhere, in vain.
        assert_eq!(check("c.date = null", None).await.0, 0);
        // A query that is sent to one key needs no leave to cross keys, and costs less.
        if by_vehicle == 1 {
            let narrow = format!("SELECT c.id FROM c WHERE {date} AND c.VIN = 'V7'");
            let (page, one) = query(&world, &narrow, &QueryOptions::default()).await;
            assert_eq!(page.count, 1);
            let wide =
                "SELECT c.id FROM c WHERE c.date >= '2018-08-03' AND c.date <= '2018-08-03' AND c.VIN = 'V7'";
            let (page, all) = query(&world, wide, &crossing()).await;
            assert_eq!((page.count, all.served.len(), one.served.len()), (1, 8, 1));
            assert!(all.charge.as_f64() > 3.0 * one.charge.as_f64(), "{:?} {:?}", all.charge, one.charge);
        }
    }
}

#[tokio::test]
async fn plans_and_explanations_show_the_keys() {
    let world = World::with_partitions(Engine::Memory, 8).await;
    world.create_container(&with_policy(PRECALCULATED)).await;
    fleet(&world).await;
    let ranges = |filter: &str| {
        let text = format!(r#"{{"query":"SELECT * FROM c WHERE {filter}"}}"#);
        let request = QueryRequest::parse(text.as_bytes()).unwrap();
        let plan = world.database.plan_query(&mut Receipt::default(), PLACE, &request, None).unwrap();
        plan.get("queryRanges").unwrap().as_array().unwrap().to_vec()
    };
    let one = ranges("c.date = '2018-08-09' AND c.VIN = '1HGCM82633A004352'");
    let key = crate::common::key(&format!(r#"["{VIN_KEY}"]"#));
    let catalog = world.database.catalog();
    let container = catalog.container(DATABASE, CONTAINER).unwrap();
    let effective = container.definition.partition_key.effective_key(&key).to_string();
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].get("min").and_then(Value::as_str), Some(effective.as_str()));
    assert_eq!(one[0].get("max").and_then(Value::as_str), Some(effective.as_str()));
    assert_eq!(ranges("c.date = '2018-08-09'").len(), 400);
    assert_eq!(ranges("c.VIN = 'V7'").len(), 1);
    let request =
        QueryRequest::parse(br#"{"query":"SELECT * FROM c WHERE c.date = '2018-08-09' AND c.VIN = 'V7'"}"#)
            .unwrap();
    let shown =
        world.database.explain_query(&mut Receipt::default(), PLACE, &crossing(), &request).await.unwrap();
    assert_eq!(shown.get("routedBy").and_then(Value::as_str), Some("syntheticKey"));
    assert_eq!(shown.get("logicalPartitions").and_then(Value::as_i64), Some(1));
    assert_eq!(shown.get("partitionsVisited").unwrap().as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn hierarchical_keys_and_versions_are_routed_too() {
    let world = World::with_partitions(Engine::Memory, 4).await;
    let policy = r#"{"format":1,"kind":"hierarchical","levels":[{"kind":"property","path":"/tenant"},
        {"property":"/day","kind":"precalculatedSuffix","parts":[{"path":"/at","date":"day"}],"suffix":{"of":["/device"],"count":8}}]}"#;
    world
        .create_container(&format!(
            r#""partitionKey":{{"paths":["/tenant","/day"],"kind":"MultiHash","version":2}},"orrerySyntheticKey":{policy}"#
        ))
        .await;
    for device in 0..20 {
        let body = format!(
            r#"{{"id":"{device}","tenant":"t{}","at":"2018-08-09T10:{device:02}:00Z","device":{device}}}"#,
            device % 2
        );
        let item = write(&world, Some(&format!(r#"["t{}",{{}}]"#, device % 2)), &body).await.unwrap();
        assert!(item.get("day").and_then(Value::as_str).unwrap().starts_with("2018-08-09."));
    }
    let routed = async |filter: &str| {
        let (page, _) = query(&world, &format!("SELECT c.id FROM c WHERE {filter}"), &crossing()).await;
        (page.count, page.routing.keys, page.routing.by_synthetic_key)
    };
    assert_eq!(
        routed("c.tenant = 't1' AND c.at = '2018-08-09T10:03:00Z' AND c.device = 3").await,
        (1, Some(1), true)
    );
    assert_eq!(routed("c.tenant = 't1' AND c.at = '2018-08-09T10:03:00Z'").await, (1, Some(8), true));
    assert_eq!(routed("c.tenant = 't1'").await, (10, None, false));
    assert_eq!(routed("c.device = 3").await, (1, None, false));
}

#[tokio::test]
async fn a_policy_on_a_container_with_items_is_verified_first() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 2).await;
        world.create_container(PLAIN).await;
        let item = |id: &str, key: &str| {
            format!(r#"{{"id":"{id}","date":"2018-08-09","VIN":"{VIN}","partitionKey":"{key}"}}"#)
        };
        write(&world, None, &item("1", VIN_KEY)).await.unwrap();
        write(&world, None, &item("2", "elsewhere")).await.unwrap();
        let set = async |policy: &str| world.replace_container(&with_policy(policy)).await;
        let error = set(PRECALCULATED).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadRequest);
        assert!(error.message.contains("'2'"), "{error}");
        // All is as before: such items may still be written.
        assert!(world.database.synthetic_key(DATABASE, CONTAINER).unwrap().is_none());
        write(&world, None, &item("3", "elsewhere")).await.unwrap();
        for id in ["2", "3"] {
            let options = with_key(r#"["elsewhere"]"#);
            world
                .database
                .delete_item(&mut Receipt::default(), (DATABASE, CONTAINER, id), &options)
                .await
                .unwrap();
        }
        let shown = set(PRECALCULATED).await.unwrap();
        assert!(shown.get("orrerySyntheticKey").is_some());
        assert_eq!(
            write(&world, None, &item("3", "elsewhere")).await.unwrap_err().kind,
            ErrorKind::BadRequest
        );
        // A typed client does not know the property and leaves it out of a replace.
        let kept = world.replace_container(PLAIN).await.unwrap();
        assert_eq!(kept.get("orrerySyntheticKey"), shown.get("orrerySyntheticKey"));
        let world = world.restart().await;
        assert!(world.database.synthetic_key(DATABASE, CONTAINER).unwrap().unwrap().routes);
        // More suffixes: the items of the first version are still found, and still may be written.
        let versions = PRECALCULATED.replace(r#""format":1,"#, "").replace('{', r#"{"version":1,"#).replacen(
            r#"{"version":1,"of""#,
            r#"{"of""#,
            1,
        );
        let versions = versions.replace(r#""suffix":{"version":1,"#, r#""suffix":{"#);
        let second = versions.replace(r#""version":1"#, r#""version":2"#).replace("400", "800");
        let both =
            format!(r#"{{"format":1,"versionProperty":"/keyVersion","versions":[{versions},{second}]}}"#);
        world.replace_container(&with_policy(&both)).await.unwrap();
        let filter = format!("SELECT c.id FROM c WHERE c.date = '2018-08-09' AND c.VIN = '{VIN}'");
        let new =
            write(&world, None, &format!(r#"{{"id":"9","date":"2018-08-09","VIN":"{VIN}"}}"#)).await.unwrap();
        assert_eq!(new.get("keyVersion").and_then(Value::as_i64), Some(2));
        // 638988352 mod 800 = 352 and mod 400 = 352: this vehicle keeps its suffix; another does not.
        assert_eq!(new.get("partitionKey").and_then(Value::as_str), Some(VIN_KEY));
        let (page, _) = query(&world, &filter, &crossing()).await;
        assert_eq!((page.count, page.routing.keys), (2, Some(1)));
        let other = "SELECT c.id FROM c WHERE c.date = '2018-08-09' AND c.VIN = 'x'";
        assert_eq!(query(&world, other, &crossing()).await.0.routing.keys, Some(2));
        let told = format!("{other} AND c.keyVersion = 2");
        assert_eq!(query(&world, &told, &crossing()).await.0.routing.keys, Some(1));
        // Dropping the first version would lose nothing here but is checked: item 1 names no version and its key
        // is one of the second too.
        world
            .replace_container(&with_policy(&format!(r#"{{"format":1,"versions":[{second}]}}"#)))
            .await
            .unwrap();
        let removed = world.replace_container(&format!("{PLAIN},\"orrerySyntheticKey\":null")).await.unwrap();
        assert!(removed.get("orrerySyntheticKey").is_none());
        write(&world, None, &item("3", "elsewhere")).await.unwrap();
    }
}

#[tokio::test]
async fn an_invalid_policy_is_rejected() {
    let world = World::memory().await;
    world.create_container(PLAIN).await;
    for policy in [
        "5",
        r#"{"format":2}"#,
        r#"{"format":1,"kind":"concatenate","parts":[]}"#,
        r#"{"format":1,"kind":"concatenate","parts":["/a"],"property":"/pk"}"#,
        r#"{"format":1,"kind":"concatenate","parts":["/a"],"surprise":1}"#,
    ] {
        let error = world.create_named("other", &with_policy(policy), None).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadRequest, "{policy}");
        assert!(error.message.contains("orrerySyntheticKey"), "{error}");
        assert!(world.replace_container(&with_policy(policy)).await.is_err());
    }
    // Python's client passes it inside the partition key's definition.
    let inside =
        with_policy(PRECALCULATED).replace(r#"},"orrerySyntheticKey""#, r#","orrerySyntheticKey""#) + "}";
    let shown = world.create_named("inside", &inside, None).await.unwrap();
    assert!(shown.get("orrerySyntheticKey").is_some());
    assert!(shown.get("partitionKey").unwrap().get("orrerySyntheticKey").is_none());
}

const PARTITIONS: u32 = 8;
const THROUGHPUT: u32 = 800;
const SECONDS: u32 = 48;

/// The units that a container delivers while more than it has is asked of it, as a share of what it has; and the
/// partitions that served. Every second stands for half an hour of one day's writes.
async fn day_of_writes(policy: Option<&str>) -> (World, f64, usize) {
    let options = Options { throttle: true, partitions_at_creation: Some(PARTITIONS), ..quiet_options() };
    // So many writes, about budgets alone: in memory wherever the suite runs.
    let world = World::on(std::sync::Arc::new(orrery_storage::Memory::new()), options).await;
    let body = format!(r#"{{"id":"{DATABASE}"}}"#);
    world.database.create_database(&mut Receipt::default(), body.as_bytes(), None).await.unwrap();
    let members = match policy {
        Some(policy) => with_policy(policy),
        None => r#""partitionKey":{"paths":["/date"],"kind":"Hash","version":2}"#.to_owned(),
    };
    world.create_named(CONTAINER, &members, Some(Throughput::Manual(THROUGHPUT))).await.unwrap();
    let mut delivered = 0.0;
    let mut served = BTreeSet::new();
    let mut vehicle = 0;
    for second in 0..SECONDS {
        let mut asked = 0.0;
        // Half as much again as there is, so that an uneven draw of a second does not leave a partition idle.
        while asked < 1.5 * f64::from(THROUGHPUT) {
            vehicle += 1;
            let body = Bytes::from(format!(
                r#"{{"id":"{vehicle}","date":"2018-08-09","time":"{:02}:{:02}","VIN":"VIN{}"}}"#,
                second / 2,
                second % 2 * 30,
                vehicle * 7919 % 5000
            ));
            let mut receipt = Receipt::default();
            let options = orrery_db::ItemOptions::default();
            let result = world.database.create_item(&mut receipt, PLACE, &options, &body).await;
            world.database.settle(&receipt);
            match result {
                Ok(_) => {
                    delivered += receipt.charge.as_f64();
                    served.extend(receipt.served.iter().map(|served| served.range_id));
                    asked += receipt.charge.as_f64();
                }
                Err(error) if matches!(error.kind, ErrorKind::TooManyRequests { .. }) => asked += 7.0,
                Err(error) => panic!("{error}"),
            }
        }
        world.env.advance_seconds(1);
    }
    (world, delivered / f64::from(THROUGHPUT * SECONDS), served.len())
}

#[tokio::test]
async fn suffixes_use_all_partitions_where_a_date_uses_one() {
    let (_, plain, served) = day_of_writes(None).await;
    let share = 1.0 / f64::from(PARTITIONS);
    assert!(plain <= share * 1.05 && plain >= share * 0.9, "{plain}");
    assert_eq!(served, 1);
    let count = 400;
    let (by_random, of_random, served) = day_of_writes(Some(&random(count))).await;
    assert!((0.9..=1.05).contains(&of_random), "{of_random}");
    assert_eq!(served, PARTITIONS as usize);
    let (by_hash, of_hash, served) = day_of_writes(Some(PRECALCULATED)).await;
    assert!((0.9..=1.05).contains(&of_hash), "{of_hash}");
    assert_eq!(served, PARTITIONS as usize);

    // Reading one vehicle of that day: every key that it may be under is one read of one partition.
    let filter = serde_json::json!({ "date": "2018-08-09", "VIN": "VIN77" });
    let mut costs = Vec::new();
    for (world, policy) in [(&by_hash, PRECALCULATED.to_owned()), (&by_random, random(count))] {
        world.env.advance_seconds(3600);
        let definition = Definition::from_json(&serde_json::from_str(&policy).unwrap()).unwrap();
        let keys = definition.keys_for(&filter).unwrap();
        let (mut charge, mut found) = (0.0, 0);
        for key in &keys {
            world.env.advance_seconds(1);
            let mut options = QueryOptions::default();
            options.scope.partition_key = Some(crate::common::key(&key.to_json().to_string()));
            let text = "SELECT * FROM c WHERE c.date = '2018-08-09' AND c.VIN = 'VIN77'";
            let (page, receipt) = query(world, text, &options).await;
            assert_eq!(receipt.served.len(), 1);
            charge += receipt.charge.as_f64();
            found += page.count;
        }
        assert!(found > 0);
        costs.push((keys.len(), charge / f64::from(u32::try_from(keys.len()).unwrap())));
    }
    assert_eq!((costs[0].0, costs[1].0), (1, count as usize));
    // Each of the n reads costs about as much as the one.
    assert!(costs[1].1 > costs[0].1 * 0.5, "{costs:?}");
}
