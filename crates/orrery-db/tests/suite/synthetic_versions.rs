//! Strategies that change: more suffixes, a renamed property, another kind. Items keep the keys they have, reads and
//! queries visit the keys of all versions in use, and writes get those of the newest.

use bytes::Bytes;
use orrery_db::{QueryOptions, QueryPage, QueryRequest, Receipt};
use orrery_model::Value;
use synthetic_key::Definition;

use crate::common::{CONTAINER, DATABASE, Engine, PLACE, World, parse, user_part, with_key};

const DATE: &str = "2018-08-09";

fn members(paths: &str, policy: &str) -> String {
    let kind = if paths.contains(',') { "MultiHash" } else { "Hash" };
    format!(
        r#""partitionKey":{{"paths":[{paths}],"kind":"{kind}","version":2}},"orrerySyntheticKey":{policy}"#
    )
}

async fn write(world: &World, header: Option<&str>, body: &str) -> Value {
    let options = header.map(with_key).unwrap_or_default();
    let body = Bytes::copy_from_slice(body.as_bytes());
    let reply = world.database.create_item(&mut Receipt::default(), PLACE, &options, &body).await.unwrap();
    user_part(&parse(&reply.document()))
}

async fn query(world: &World, text: &str) -> QueryPage {
    let request =
        QueryRequest::parse(format!(r#"{{"query":{}}}"#, Value::from(text).to_json()).as_bytes()).unwrap();
    let mut options = QueryOptions { cross_partition: true, ..QueryOptions::default() };
    options.page.items_max = Some(-1);
    world.database.query_items(&mut Receipt::default(), PLACE, &options, &request).await.unwrap()
}

fn ids(page: &QueryPage) -> Vec<String> {
    let rows = parse(&[b"[", page.rows.as_slice(), b"]"].concat());
    let mut ids: Vec<String> =
        rows.as_array().unwrap().iter().map(|row| row.as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

fn definition(policy: &str) -> Definition {
    Definition::from_json(&serde_json::from_str(policy).unwrap()).unwrap()
}

/// The keys that the library names for a filter.
fn keys_for(definition: &Definition, filter: &str) -> usize {
    let filter: serde_json::Value = serde_json::from_str(filter).unwrap();
    definition.keys_for(&filter).unwrap().len()
}

#[tokio::test]
async fn from_400_suffixes_to_800_of_a_renamed_property() {
    let first = r#""kind":"precalculatedSuffix","parts":["/date"],"suffix":{"of":["/VIN"],"count":400}"#;
    let second = r#""kind":"precalculatedSuffix","parts":["/date"],"suffix":{"of":[{"path":"/vehicle","was":["/VIN"]}],"count":800}"#;
    let world = World::with_partitions(Engine::Memory, 4).await;
    world.create_container(&members("\"/partitionKey\"", &format!(r#"{{"format":1,{first}}}"#))).await;
    let mut old_keys = Vec::new();
    for vehicle in 0..40 {
        let body = format!(r#"{{"id":"old-{vehicle}","date":"{DATE}","VIN":"V{vehicle}"}}"#);
        let item = write(&world, None, &body).await;
        old_keys.push(item.get("partitionKey").unwrap().as_str().unwrap().to_owned());
    }
    let both = format!(
        r#"{{"format":1,"versionProperty":"/keyVersion","versions":[{{"version":1,{first}}},{{"version":2,{second}}}]}}"#
    );
    world.replace_container(&members("\"/partitionKey\"", &both)).await.unwrap();
    assert!(world.database.synthetic_key(DATABASE, CONTAINER).unwrap().unwrap().routes);
    let library = definition(&both);
    let mut moved = 0;
    for (vehicle, old_key) in old_keys.iter().enumerate() {
        let body = format!(r#"{{"id":"new-{vehicle}","date":"{DATE}","vehicle":"V{vehicle}"}}"#);
        let item = write(&world, None, &body).await;
        let key = item.get("partitionKey").unwrap().as_str().unwrap().to_owned();
        assert_eq!(item.get("keyVersion").and_then(Value::as_i64), Some(2));
        // The same hash, which leaves another remainder for about half of the vehicles.
        let hash = 1 + synthetic_key::murmur3::x86_32(format!("V{vehicle}").as_bytes(), 0) % 800;
        assert_eq!(key, format!("{DATE}.{hash}"));
        let is_other = key != *old_key;
        moved += usize::from(is_other);

        // Each name finds its items, at the keys of both versions and nowhere else.
        for (name, id) in [("VIN", format!("old-{vehicle}")), ("vehicle", format!("new-{vehicle}"))] {
            let text =
                format!("SELECT VALUE c.id FROM c WHERE c.date = '{DATE}' AND c.{name} = 'V{vehicle}'");
            let page = query(&world, &text).await;
            let expected = keys_for(&library, &format!(r#"{{"date":"{DATE}","{name}":"V{vehicle}"}}"#));
            assert_eq!(expected, 1 + usize::from(is_other), "{text}");
            assert_eq!((page.routing.keys, page.routing.by_synthetic_key), (Some(expected), true), "{text}");
            assert_eq!(ids(&page), [id], "{text}");
        }
        // Who says the version needs one key.
        let told = format!(
            "SELECT VALUE c.id FROM c WHERE c.date = '{DATE}' AND c.vehicle = 'V{vehicle}' AND c.keyVersion = 2"
        );
        assert_eq!(query(&world, &told).await.routing.keys, Some(1));
        // Items of the first version are read, and written again, where they are.
        let header = with_key(&format!(r#"["{old_key}"]"#));
        let id = format!("old-{vehicle}");
        let place = (DATABASE, CONTAINER, id.as_str());
        world.database.read_item(&mut Receipt::default(), place, &header).await.unwrap();
        let body = Bytes::from(format!(
            r#"{{"id":"{id}","date":"{DATE}","VIN":"V{vehicle}","partitionKey":"{}","n":1}}"#,
            *old_key
        ));
        world.database.replace_item(&mut Receipt::default(), place, &header, &body).await.unwrap();
    }
    assert!((10..=30).contains(&moved), "{moved}");
    let day = query(&world, &format!("SELECT VALUE c.id FROM c WHERE c.date = '{DATE}'")).await;
    assert_eq!((day.count, day.routing.keys), (80, Some(800)));
}

#[tokio::test]
async fn from_16_random_suffixes_to_32_and_then_to_calculated_ones() {
    let random = |version: u32, count: u32| {
        format!(
            r#"{{"version":{version},"kind":"randomSuffix","parts":["/date"],"suffix":{{"count":{count}}}}}"#
        )
    };
    let versions = |list: &[String]| format!(r#"{{"format":1,"versions":[{}]}}"#, list.join(","));
    let world = World::with_partitions(Engine::Memory, 4).await;
    let path = "\"/partitionKey\"";
    world.create_container(&members(path, &versions(&[random(1, 16)]))).await;
    let fill = async |from: u32| {
        for number in from..from + 50 {
            let body = format!(r#"{{"id":"{number:03}","date":"{DATE}","VIN":"V{number}"}}"#);
            write(&world, None, &body).await;
        }
    };
    let day = format!("SELECT VALUE c.id FROM c WHERE c.date = '{DATE}'");
    fill(0).await;
    assert_eq!(query(&world, &day).await.routing.keys, Some(16));
    world.replace_container(&members(path, &versions(&[random(1, 16), random(2, 32)]))).await.unwrap();
    fill(50).await;
    let page = query(&world, &day).await;
    assert_eq!((page.count, page.routing.keys), (100, Some(32)));
    let third =
        r#"{"version":3,"kind":"precalculatedSuffix","parts":["/date"],"suffix":{"of":["/VIN"],"count":64}}"#;
    let all = versions(&[random(1, 16), random(2, 32), third.to_owned()]);
    world.replace_container(&members(path, &all)).await.unwrap();
    fill(100).await;
    let page = query(&world, &day).await;
    assert_eq!((page.count, page.routing.keys), (150, Some(64)));
    // One key of the third version, and all that the drawn ones may have.
    for number in [7, 57, 107] {
        let page = query(&world, &format!("{day} AND c.VIN = 'V{number}'")).await;
        assert_eq!(ids(&page), [format!("{number:03}")]);
        let expected = keys_for(&definition(&all), &format!(r#"{{"date":"{DATE}","VIN":"V{number}"}}"#));
        assert!((32..=33).contains(&expected) && page.routing.keys == Some(expected));
    }
}

#[tokio::test]
async fn hierarchical_keys_change_too() {
    let level = |version: u32, count: u32| {
        format!(
            r#"{{"version":{version},"kind":"hierarchical","levels":[{{"kind":"property","path":"/tenant"}},{{"property":"/day","kind":"precalculatedSuffix","parts":[{{"path":"/at","date":"day"}}],"suffix":{{"of":["/device"],"count":{count}}}}}]}}"#
        )
    };
    let world = World::with_partitions(Engine::Memory, 4).await;
    let paths = r#""/tenant","/day""#;
    world.create_container(&members(paths, &format!(r#"{{"format":1,"versions":[{}]}}"#, level(1, 8)))).await;
    let fill = async |from: u32| {
        for number in from..from + 20 {
            let body = format!(
                r#"{{"id":"{number:03}","tenant":"t","at":"2018-08-09T10:00:00Z","device":"d{}"}}"#,
                number % 20
            );
            write(&world, Some(r#"["t",{}]"#), &body).await;
        }
    };
    fill(0).await;
    let both = format!(r#"{{"format":1,"versions":[{},{}]}}"#, level(1, 8), level(2, 24));
    world.replace_container(&members(paths, &both)).await.unwrap();
    fill(20).await;
    for device in 0..20 {
        let text = format!(
            "SELECT VALUE c.id FROM c WHERE c.tenant = 't' AND c.at = '2018-08-09T10:00:00Z' AND c.device = 'd{device}'"
        );
        let page = query(&world, &text).await;
        assert_eq!(ids(&page), [format!("{device:03}"), format!("{:03}", device + 20)]);
        let filter = format!(r#"{{"tenant":"t","at":"2018-08-09T10:00:00Z","device":"d{device}"}}"#);
        assert_eq!(page.routing.keys, Some(keys_for(&definition(&both), &filter)));
        assert!(page.routing.keys <= Some(2) && page.routing.by_synthetic_key);
    }
}
