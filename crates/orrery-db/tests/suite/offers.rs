//! Throughput as a resource of its own.

use orrery_db::{PageRequest, Receipt};
use orrery_model::offer::{Migration, Throughput};
use orrery_model::{ErrorKind, Value};

use crate::common::{BY_PK, DATABASE, ENGINES, PLACE, World, parse, quiet_options};

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("{name} is missing"))
}

fn throughput(offer: &Value) -> i64 {
    offer.get("content").and_then(|content| content.get("offerThroughput")).and_then(Value::as_i64).unwrap()
}

fn autoscale_max(offer: &Value) -> Option<i64> {
    offer.get("content")?.get("offerAutopilotSettings")?.get("maxThroughput")?.as_i64()
}

fn list(world: &World) -> Vec<Value> {
    let request = PageRequest { items_max: Some(-1), continuation: None };
    world.database.list_offers(&mut Receipt::default(), &request).unwrap().resources
}

/// The body of a replace: the offer as it was read, with another number.
fn with_throughput(offer: &Value, number: i64) -> String {
    let mut offer = offer.clone();
    let content = offer.as_object_mut().unwrap().get_mut("content").unwrap().as_object_mut().unwrap();
    content.set("offerThroughput", Value::from(number));
    offer.to_json()
}

#[tokio::test]
async fn every_owner_of_throughput_has_one_offer() {
    for engine in ENGINES {
        let world = World::open(engine, quiet_options()).await;
        let container = world.create_container(BY_PK).await;
        let mut receipt = Receipt::default();
        let offers = list(&world);
        assert_eq!(offers.len(), 1, "a container without a wish has the default");
        let offer = &offers[0];
        assert_eq!(throughput(offer), 400);
        assert_eq!(text(offer, "resource"), text(&container, "_self"));
        assert_eq!(text(offer, "offerResourceId"), text(&container, "_rid"));
        assert_eq!(text(offer, "_self"), format!("offers/{}/", text(offer, "_rid")));
        let read = world.database.read_offer(&mut receipt, text(offer, "_rid")).unwrap();
        assert_eq!((&read.reply.value, read.minimum), (offer, 400));

        // A database with throughput shares it with containers that ask for none.
        let shared = Some(Throughput::Manual(600));
        world.database.create_database(&mut receipt, br#"{"id":"shared"}"#, shared).await.unwrap();
        let body = format!(r#"{{"id":"c",{BY_PK}}}"#);
        world.database.create_container(&mut receipt, "shared", body.as_bytes(), None).await.unwrap();
        assert_eq!(list(&world).len(), 2);
        let body = format!(r#"{{"id":"own",{BY_PK}}}"#);
        let own = Some(Throughput::Autoscale { max: 4000, increment_percent: None });
        world.database.create_container(&mut receipt, "shared", body.as_bytes(), own).await.unwrap();
        let offers = list(&world);
        assert_eq!(offers.len(), 3);
        assert_eq!(offers.iter().filter_map(autoscale_max).collect::<Vec<_>>(), [4000]);

        // Offers go with their owners.
        world.database.delete_container(&mut receipt, PLACE, None).await.unwrap();
        assert_eq!(list(&world).len(), 2);
        world.database.delete_database(&mut receipt, "shared", None).await.unwrap();
        assert_eq!(list(&world).len(), 0);
        let gone = world.database.read_offer(&mut receipt, text(offer, "_rid"));
        assert_eq!(gone.unwrap_err().kind, ErrorKind::NotFound);
        for bad in ["", "x", "AAAA", "offers"] {
            assert_eq!(world.database.read_offer(&mut receipt, bad).unwrap_err().kind, ErrorKind::NotFound);
        }
    }
}

#[tokio::test]
async fn throughput_is_replaced_within_limits() {
    for engine in ENGINES {
        let world = World::open(engine, quiet_options()).await;
        world.create_container(BY_PK).await;
        let mut receipt = Receipt::default();
        let offer = list(&world).remove(0);
        let rid = text(&offer, "_rid").to_owned();
        for bad in [0, -1, 300, 450, 1_000_100] {
            let body = with_throughput(&offer, bad);
            let refused = world.database.replace_offer(&mut receipt, &rid, body.as_bytes(), None, None).await;
            assert_eq!(refused.unwrap_err().kind, ErrorKind::BadRequest, "{bad}");
        }
        let body = with_throughput(&offer, 50_000);
        let stale =
            world.database.replace_offer(&mut receipt, &rid, body.as_bytes(), None, Some("\"x\"")).await;
        assert_eq!(stale.unwrap_err().kind, ErrorKind::PreconditionFailed);
        let etag = text(&offer, "_etag");
        let replaced = world
            .database
            .replace_offer(&mut receipt, &rid, body.as_bytes(), None, Some(etag))
            .await
            .unwrap();
        assert_eq!(throughput(&replaced.reply.value), 50_000);
        // A hundredth of the highest that ever was is the new minimum.
        assert_eq!(replaced.minimum, 500);
        let world = world.restart().await;
        assert_eq!(list(&world)[0], replaced.reply.value);
        // Until the partitions are split for it, the offer is locked.
        assert!(replaced.pending);
        world.database.maintain().await.unwrap();
        let body = with_throughput(&offer, 400);
        let refused = world.database.replace_offer(&mut receipt, &rid, body.as_bytes(), None, None).await;
        assert_eq!(refused.unwrap_err().kind, ErrorKind::BadRequest);
        let body = with_throughput(&offer, 500);
        world.database.replace_offer(&mut receipt, &rid, body.as_bytes(), None, None).await.unwrap();
        assert_eq!(throughput(&list(&world)[0]), 500);
        for bad in ["{}", "[]", "", r#"{"content":{}}"#, r#"{"content":{"offerThroughput":"400"}}"#] {
            let refused = world.database.replace_offer(&mut receipt, &rid, bad.as_bytes(), None, None).await;
            assert_eq!(refused.unwrap_err().kind, ErrorKind::BadRequest, "{bad}");
        }
    }
}

#[tokio::test]
async fn offers_change_between_manual_and_autoscale() {
    for engine in ENGINES {
        let world = World::open(engine, quiet_options()).await;
        world.create_container(BY_PK).await;
        let mut receipt = Receipt::default();
        let manual = list(&world).remove(0);
        let rid = text(&manual, "_rid").to_owned();
        // Without the word of migration the kind stays.
        let wanted = r#"{"content":{"offerThroughput":400,"offerAutopilotSettings":{"maxThroughput":4000}}}"#;
        let refused = world.database.replace_offer(&mut receipt, &rid, wanted.as_bytes(), None, None).await;
        assert_eq!(refused.unwrap_err().kind, ErrorKind::BadRequest);
        let body = manual.to_json();
        let to = Some(Migration::ToAutoscale);
        let scaled =
            world.database.replace_offer(&mut receipt, &rid, body.as_bytes(), to, None).await.unwrap();
        assert_eq!((autoscale_max(&scaled.reply.value), scaled.minimum), (Some(1000), 1000));
        assert_eq!(throughput(&scaled.reply.value), 100);
        let world = world.restart().await;
        assert_eq!(list(&world)[0], scaled.reply.value);
        let wanted = parse(wanted.as_bytes()).to_json();
        let more =
            world.database.replace_offer(&mut receipt, &rid, wanted.as_bytes(), None, None).await.unwrap();
        assert_eq!((autoscale_max(&more.reply.value), throughput(&more.reply.value)), (Some(4000), 400));
        let to = Some(Migration::ToManual);
        let back = world.database.replace_offer(&mut receipt, &rid, body.as_bytes(), to, None).await.unwrap();
        assert_eq!((autoscale_max(&back.reply.value), throughput(&back.reply.value)), (None, 4000));
        let catalog = world.database.catalog();
        let container = catalog.container(DATABASE, crate::common::CONTAINER).unwrap();
        assert_eq!(world.database.container_throughput(container), Some(Throughput::Manual(4000)));
    }
}
