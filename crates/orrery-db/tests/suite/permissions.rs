//! Users, permissions, and what the tokens of permissions allow.

use orrery_db::{Access, PageRequest, Receipt, ResourceFeed, ScriptKind, Wish};
use orrery_model::{ErrorKind, Result, Value};

use crate::common::{BY_PK, CONTAINER, DATABASE, ENGINES, World, key, quiet_options};

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("{name} is missing"))
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind
}

const USER: (&str, &str) = (DATABASE, "u");

async fn with_user() -> World {
    let world = World::memory().await;
    world.create_container(BY_PK).await;
    world.create_named("other", BY_PK, None).await.unwrap();
    world.database.create_user(&mut Receipt::default(), DATABASE, br#"{"id":"u"}"#, false).await.unwrap();
    world
}

async fn permission(world: &World, body: &str) -> Result<Value> {
    let mut receipt = Receipt::default();
    Ok(world.database.create_permission(&mut receipt, USER, body.as_bytes(), false, None).await?.value)
}

#[tokio::test]
async fn users_are_created_replaced_listed_and_deleted() {
    for engine in ENGINES {
        let world = World::open(engine, quiet_options()).await;
        world.create_container(BY_PK).await;
        let mut receipt = Receipt::default();
        let create = async |body: &str, upsert: bool| {
            world.database.create_user(&mut Receipt::default(), DATABASE, body.as_bytes(), upsert).await
        };
        let created = create(r#"{"id":"a"}"#, false).await.unwrap();
        assert!(created.created);
        assert_eq!(text(&created.value, "_permissions"), "permissions/");
        assert_eq!(kind(create(r#"{"id":"a"}"#, false).await), ErrorKind::Conflict);
        let upserted = create(r#"{"id":"a"}"#, true).await.unwrap();
        assert!(!upserted.created);
        assert_eq!(text(&upserted.value, "_rid"), text(&created.value, "_rid"));
        assert!(create(r#"{"id":"b"}"#, true).await.unwrap().created);
        assert_eq!(kind(create(r#"{"id":"b/c"}"#, true).await), ErrorKind::BadRequest);

        // A user may get another name and keeps what it has.
        let link = format!("dbs/{DATABASE}/colls/{CONTAINER}");
        let body = format!(r#"{{"id":"p","permissionMode":"Read","resource":"{link}"}}"#);
        world
            .database
            .create_permission(&mut receipt, (DATABASE, "a"), body.as_bytes(), false, None)
            .await
            .unwrap();
        let renamed =
            world.database.replace_user(&mut receipt, (DATABASE, "a"), br#"{"id":"c"}"#, None).await.unwrap();
        assert_eq!(text(&renamed.value, "_rid"), text(&created.value, "_rid"));
        assert_eq!(kind(world.database.read_user(&mut receipt, DATABASE, "a")), ErrorKind::NotFound);
        let taken = world.database.replace_user(&mut receipt, (DATABASE, "b"), br#"{"id":"c"}"#, None).await;
        assert_eq!(kind(taken), ErrorKind::Conflict);
        let world = world.restart().await;
        assert_eq!(world.database.read_user(&mut receipt, DATABASE, "c").unwrap().value, renamed.value);
        world.database.read_permission(&mut receipt, (DATABASE, "c", "p"), None).unwrap();
        let users = world
            .database
            .list(&mut receipt, ResourceFeed::Users(DATABASE), &PageRequest::default())
            .unwrap();
        assert_eq!(users.resources.iter().map(|user| text(user, "id")).collect::<Vec<_>>(), ["b", "c"]);
        let stale = world.database.delete_user(&mut receipt, (DATABASE, "c"), Some("\"x\"")).await;
        assert_eq!(kind(stale), ErrorKind::PreconditionFailed);
        world.database.delete_user(&mut receipt, (DATABASE, "c"), None).await.unwrap();
        let gone = world.database.read_permission(&mut receipt, (DATABASE, "c", "p"), None);
        assert_eq!(kind(gone), ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn permissions_are_created_replaced_listed_and_deleted() {
    let world = with_user().await;
    let mut receipt = Receipt::default();
    let body = r#"{"id":"p","permissionMode":"All","resource":"dbs/db/colls/items"}"#;
    let created = permission(&world, body).await.unwrap();
    assert_eq!((text(&created, "permissionMode"), text(&created, "resource")), ("All", "dbs/db/colls/items"));
    assert!(text(&created, "_token").starts_with("type=resource&ver=1&sig="));
    assert!(!text(&created, "_token").contains(','));
    assert_eq!(kind(permission(&world, body).await), ErrorKind::Conflict);
    // One permission per resource and key.
    let same = r#"{"id":"q","permissionMode":"Read","resource":"/dbs/db/colls/items/"}"#;
    assert_eq!(kind(permission(&world, same).await), ErrorKind::Conflict);
    let keyed =
        r#"{"id":"q","permissionMode":"Read","resource":"dbs/db/colls/items","resourcePartitionKey":["a"]}"#;
    let keyed = permission(&world, keyed).await.unwrap();
    assert_eq!(keyed.get("resourcePartitionKey").map(Value::to_json).as_deref(), Some(r#"["a"]"#));
    for bad in [
        r#"{"id":"x","permissionMode":"Write","resource":"dbs/db/colls/items"}"#,
        r#"{"id":"x","permissionMode":"All"}"#,
        r#"{"id":"x","resource":"dbs/db/colls/items"}"#,
        r#"{"permissionMode":"All","resource":"dbs/db/colls/other"}"#,
        r#"{"id":"x","permissionMode":"All","resource":"nonsense"}"#,
        r#"{"id":"x","permissionMode":"All","resource":"dbs/db"}"#,
        r#"{"id":"x","permissionMode":"All","resource":"dbs/db/colls/other/conflicts/1"}"#,
        r#"{"id":"x","permissionMode":"All","resource":"dbs/db/colls/other/docs/1/attachments/2"}"#,
        r#"{"id":"x","permissionMode":"All","resource":"dbs/db/colls/other","resourcePartitionKey":"a"}"#,
        "[]",
    ] {
        assert_eq!(kind(permission(&world, bad).await), ErrorKind::BadRequest, "{bad}");
    }
    let upserted = br#"{"id":"p","permissionMode":"Read","resource":"dbs/db/colls/items"}"#;
    let upserted = world.database.create_permission(&mut receipt, USER, upserted, true, None).await.unwrap();
    assert!(!upserted.created && text(&upserted.value, "permissionMode") == "Read");
    assert_eq!(text(&upserted.value, "_rid"), text(&created, "_rid"));
    let at = (DATABASE, "u", "p");
    let replacement = br#"{"id":"r","permissionMode":"All","resource":"dbs/db/colls/other"}"#;
    let stale = world
        .database
        .replace_permission(&mut receipt, at, replacement, Some(text(&created, "_etag")), None)
        .await;
    assert_eq!(kind(stale), ErrorKind::PreconditionFailed);
    world.database.replace_permission(&mut receipt, at, replacement, None, None).await.unwrap();
    assert_eq!(kind(world.database.read_permission(&mut receipt, at, None)), ErrorKind::NotFound);
    let listed = world.database.list_permissions(&mut receipt, USER, &PageRequest::default(), None).unwrap();
    assert_eq!(listed.resources.iter().map(|value| text(value, "id")).collect::<Vec<_>>(), ["q", "r"]);
    world.database.delete_permission(&mut receipt, (DATABASE, "u", "q"), None).await.unwrap();
    let gone = world.database.delete_permission(&mut receipt, (DATABASE, "u", "q"), None).await;
    assert_eq!(kind(gone), ErrorKind::NotFound);
}

fn signature(permission: &Value) -> &str {
    text(permission, "_token").split_once("sig=").unwrap().1
}

#[tokio::test]
async fn tokens_expire_and_cannot_be_changed() {
    let world = with_user().await;
    let mut receipt = Receipt::default();
    let body = r#"{"id":"p","permissionMode":"Read","resource":"dbs/db/colls/items"}"#;
    let created = permission(&world, body).await.unwrap();
    let first = signature(&created).to_owned();
    world.database.open_resource_token(&first).await.unwrap();
    // Every answer has a fresh token; older ones stay good.
    let read =
        |seconds| world.database.read_permission(&mut Receipt::default(), (DATABASE, "u", "p"), seconds);
    let second = signature(&read(None).unwrap().value).to_owned();
    assert_ne!(first, second);
    let short = signature(&read(Some(10)).unwrap().value).to_owned();
    let long = signature(&read(Some(86_400)).unwrap().value).to_owned();
    for bad in [9, 0, -5, 86_401] {
        assert_eq!(kind(read(Some(bad))), ErrorKind::BadRequest, "{bad}");
    }
    for (advance, alive) in [
        (9, [true, true, true]),
        (1, [false, true, true]),
        (3589, [false, true, true]),
        (1, [false, false, true]),
        (82_800, [false; 3]),
    ] {
        world.env.advance_seconds(advance);
        for (token, alive) in [&short, &first, &long].into_iter().zip(alive) {
            let opened = world.database.open_resource_token(token).await;
            assert_eq!(opened.is_ok(), alive);
            assert!(alive || kind(opened) == ErrorKind::Forbidden);
        }
    }
    let token = signature(&read(None).unwrap().value).to_owned();
    for at in 0..token.len() {
        let mut damaged = token.clone().into_bytes();
        damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
        let damaged = String::from_utf8(damaged).unwrap();
        if let Ok(grant) = world.database.open_resource_token(&damaged).await {
            // Only bits that base64 does not use may differ.
            assert_eq!(grant, world.database.open_resource_token(&token).await.unwrap(), "{damaged}");
        }
    }
    for bad in ["", ";", "a;b;", "a", "é;é;"] {
        assert_eq!(kind(world.database.open_resource_token(bad).await), ErrorKind::Unauthorized, "{bad}");
    }
    // A restart changes nothing.
    let world = world.restart().await;
    world.database.open_resource_token(&token).await.unwrap();
    world.database.delete_permission(&mut receipt, (DATABASE, "u", "p"), None).await.unwrap();
    assert_eq!(kind(world.database.open_resource_token(&token).await), ErrorKind::Forbidden);
}

/// The members of a permission, what it allows and what it does not.
type Case<'a> = (&'a str, &'a [&'a Access<'a>], &'a [&'a Access<'a>]);

#[tokio::test]
async fn grants_cover_exactly_what_they_name() {
    let world = with_user().await;
    let mut receipt = Receipt::default();
    let container = world.database.read_container(&mut receipt, DATABASE, CONTAINER).unwrap().value;
    let rid_link = text(&container, "_self").to_owned();
    let rids: Vec<String> = rid_link.split('/').map(str::to_owned).collect();
    let read = Access {
        database: DATABASE,
        container: CONTAINER,
        wish: Wish::Item { id: "1", writes: false },
        partition_key: None,
    };
    let (a, ab, b) = (key(r#"["a"]"#), key(r#"["a","b"]"#), key(r#"["b"]"#));
    let feed = Access { wish: Wish::Items { writes: false }, ..read.clone() };
    let write = Access { wish: Wish::Item { id: "1", writes: true }, ..read.clone() };
    let by_rid = Access { database: &rids[1], container: &rids[3], ..read.clone() };
    let elsewhere = Access { container: "other", ..read.clone() };
    let nowhere = Access { container: "nothing", ..read.clone() };
    let routing = Access { wish: Wish::Routing, ..read.clone() };
    let definition = Access { wish: Wish::Container { writes: true }, ..read.clone() };
    let other_item = Access { wish: Wish::Item { id: "2", writes: false }, ..read.clone() };
    let script = Wish::Script { kind: ScriptKind::StoredProcedure, id: "1", writes: false };
    let script = Access { wish: script, ..read.clone() };
    let with_a = Access { partition_key: Some(&a), ..read.clone() };
    let with_ab = Access { partition_key: Some(&ab), ..read.clone() };
    let with_b = Access { partition_key: Some(&b), ..read.clone() };
    let write_a = Access { partition_key: Some(&a), ..write.clone() };
    let feed_a = Access { partition_key: Some(&a), ..feed.clone() };
    let definition_a = Access { partition_key: Some(&a), ..definition.clone() };

    let cases: [Case<'_>; 6] = [
        (
            r#""permissionMode":"Read","resource":"dbs/db/colls/items""#,
            &[&read, &feed, &by_rid, &other_item, &routing, &with_a, &with_b],
            &[&write, &elsewhere, &nowhere, &definition, &write_a],
        ),
        (
            r#""permissionMode":"All","resource":"dbs/db/colls/items/""#,
            &[&read, &feed, &write, &by_rid, &routing, &write_a, &script],
            &[&elsewhere, &nowhere],
        ),
        (
            &format!(r#""permissionMode":"Read","resource":"{rid_link}""#),
            &[&read, &by_rid, &feed],
            &[&write, &elsewhere],
        ),
        (
            r#""permissionMode":"All","resource":"dbs/db/colls/items/docs/1""#,
            &[&read, &write, &routing, &by_rid, &with_a],
            &[&feed, &other_item, &script, &elsewhere, &definition],
        ),
        (
            r#""permissionMode":"All","resource":"dbs/db/colls/items","resourcePartitionKey":["a"]"#,
            &[&with_a, &write_a, &feed_a, &with_ab, &routing],
            &[&read, &write, &feed, &with_b, &elsewhere, &definition, &definition_a],
        ),
        (
            r#""permissionMode":"Read","resource":"dbs/db/colls/items","resourcePartitionKey":["a","b"]"#,
            &[&with_ab, &routing],
            &[&with_a, &with_b, &read],
        ),
    ];
    for (number, (members, allowed, refused)) in cases.iter().enumerate() {
        world
            .database
            .create_user(&mut receipt, DATABASE, format!(r#"{{"id":"u{number}"}}"#).as_bytes(), false)
            .await
            .unwrap();
        let body = format!(r#"{{"id":"p",{members}}}"#);
        let at = (DATABASE, format!("u{number}"));
        let created = world
            .database
            .create_permission(&mut receipt, (at.0, &at.1), body.as_bytes(), false, None)
            .await
            .unwrap();
        let grant = world.database.open_resource_token(signature(&created.value)).await.unwrap();
        for access in *allowed {
            world
                .database
                .check_grant(&grant, access)
                .unwrap_or_else(|error| panic!("{members}\n{access:?}\n{error}"));
        }
        for access in *refused {
            let outcome = world.database.check_grant(&grant, access);
            assert_eq!(
                outcome.map_err(|error| error.kind),
                Err(ErrorKind::Forbidden),
                "{members}\n{access:?}"
            );
        }
    }
}

/// A fresh token of the permission `p` of the user.
fn token(world: &World, user: &str) -> String {
    let at = (DATABASE, user, "p");
    let read = world.database.read_permission(&mut Receipt::default(), at, None).unwrap();
    signature(&read.value).to_owned()
}

const ON_ITEMS: &str = r#"{"id":"p","permissionMode":"All","resource":"dbs/db/colls/items"}"#;

/// Whether the token may do this to items, with this key.
async fn allows(world: &World, token: &str, writes: bool, partition_key: &str) -> bool {
    let key = key(partition_key);
    let access = Access {
        database: DATABASE,
        container: CONTAINER,
        wish: Wish::Items { writes },
        partition_key: Some(&key),
    };
    match world.database.open_resource_token(token).await {
        Ok(grant) => world.database.check_grant(&grant, &access).is_ok(),
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::Forbidden, "{error}");
            false
        }
    }
}

#[tokio::test]
async fn tokens_become_invalid_with_their_resource_and_stay_invalid() {
    let mut receipt = Receipt::default();
    for end in ["permission", "user", "container", "database"] {
        let world = with_user().await;
        let database = &world.database;
        permission(&world, ON_ITEMS).await.unwrap();
        let old = token(&world, "u");
        assert!(allows(&world, &old, true, r#"["a"]"#).await);
        match end {
            "permission" => database.delete_permission(&mut receipt, (DATABASE, "u", "p"), None).await,
            "user" => database.delete_user(&mut receipt, USER, None).await,
            "container" => database.delete_container(&mut receipt, (DATABASE, CONTAINER), None).await,
            _ => database.delete_database(&mut receipt, DATABASE, None).await,
        }
        .unwrap();
        assert!(!allows(&world, &old, false, r#"["a"]"#).await, "{end}");
        // The same names again are other things.
        if end == "database" {
            database.create_database(&mut receipt, br#"{"id":"db"}"#, None).await.unwrap();
        }
        if end == "database" || end == "container" {
            world.create_named(CONTAINER, BY_PK, None).await.unwrap();
        }
        if end == "database" || end == "user" {
            database.create_user(&mut receipt, DATABASE, br#"{"id":"u"}"#, false).await.unwrap();
        }
        if end != "container" {
            permission(&world, ON_ITEMS).await.unwrap();
        }
        assert!(!allows(&world, &old, false, r#"["a"]"#).await, "{end}");
        let fresh = token(&world, "u");
        assert!(allows(&world, &fresh, true, r#"["a"]"#).await, "{end}");
        let world = world.restart().await;
        assert!(!allows(&world, &old, false, r#"["a"]"#).await, "{end}");
        assert!(allows(&world, &fresh, true, r#"["a"]"#).await, "{end}");
    }
}

/// A token allows what it allowed when it was issued, as far as its permission still does.
#[tokio::test]
async fn replacing_a_permission_narrows_the_tokens_it_has_issued() {
    let members = |mode: &str, link: &str, key: &str| {
        let key = if key.is_empty() { String::new() } else { format!(r#","resourcePartitionKey":{key}"#) };
        format!(r#"{{"id":"p","permissionMode":"{mode}","resource":"dbs/db/colls/{link}"{key}}}"#)
    };
    let a = r#"["a"]"#;
    // Before, after, whether the old token still writes to `a`, reads `a`, reads `b`.
    for (before, after, expected) in [
        (("All", "items", ""), ("All", "items", ""), [true, true, true]),
        (("All", "items", ""), ("Read", "items", ""), [false, true, true]),
        (("Read", "items", ""), ("All", "items", ""), [false, true, true]),
        (("All", "items", ""), ("All", "items", a), [true, true, false]),
        (("All", "items", a), ("All", "items", ""), [true, true, false]),
        (("All", "items", a), ("All", "items", r#"["b"]"#), [false; 3]),
        (("All", "items", ""), ("All", "other", ""), [false; 3]),
        (("All", "items", ""), ("All", "items/docs/1", ""), [false; 3]),
    ] {
        for upsert in [false, true] {
            let world = with_user().await;
            let mut receipt = Receipt::default();
            permission(&world, &members(before.0, before.1, before.2)).await.unwrap();
            let old = token(&world, "u");
            let body = members(after.0, after.1, after.2);
            let (database, body) = (&world.database, body.as_bytes());
            if upsert {
                database.create_permission(&mut receipt, USER, body, true, None).await.unwrap();
            } else {
                let at = (DATABASE, "u", "p");
                database.replace_permission(&mut receipt, at, body, None, None).await.unwrap();
            }
            let actual = [
                allows(&world, &old, true, a).await,
                allows(&world, &old, false, a).await,
                allows(&world, &old, false, r#"["b"]"#).await,
            ];
            assert_eq!(actual, expected, "{before:?} {after:?}");
        }
    }
}

/// A name that looks like the RID of another item is not that item, whichever way the path is written.
#[tokio::test]
async fn a_token_for_an_item_cannot_be_used_for_another_by_its_rid() {
    let world = with_user().await;
    let mut receipt = Receipt::default();
    let container = world.database.read_container(&mut receipt, DATABASE, CONTAINER).unwrap().value;
    let rids: Vec<String> = text(&container, "_self").split('/').map(str::to_owned).collect();
    let container_rid = orrery_model::rid::ContainerRid::parse(&rids[3]).unwrap();
    let item = orrery_model::rid::ItemRid::new(container_rid, 7).to_string();
    let by_name = format!("dbs/db/colls/items/docs/{item}");
    let by_rid = format!("dbs/{}/colls/{}/docs/{item}", rids[1], rids[3]);
    for (number, (link, named, addressed)) in
        [(by_name, true, false), (by_rid, false, true)].into_iter().enumerate()
    {
        let body = format!(r#"{{"id":"p{number}","permissionMode":"All","resource":"{link}"}}"#);
        let created = permission(&world, &body).await.unwrap();
        let grant = world.database.open_resource_token(signature(&created)).await.unwrap();
        for (database, container, allowed) in
            [(DATABASE, CONTAINER, named), (&*rids[1], &*rids[3], addressed)]
        {
            let wish = Wish::Item { id: &item, writes: true };
            let access = Access { database, container, wish, partition_key: None };
            assert_eq!(world.database.check_grant(&grant, &access).is_ok(), allowed, "{link} {database}");
        }
    }
}
