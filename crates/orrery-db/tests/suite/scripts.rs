//! Scripts: hostile ones, and many at once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use orrery_db::{Effect, ItemOptions, Options, ProcedureCall, Receipt, ScriptKind, Triggers};
use orrery_model::{Charge, Error, ErrorKind, Result, Value};
use orrery_testing::wait;

use crate::all_versions;
use crate::common::{
    BY_PK, CONTAINER, DATABASE, ENGINES, Engine, PLACE, World, parse, quiet_options, with_key,
};

async fn define(world: &World, kind: ScriptKind, id: &str, body: &str, terms: &str) {
    let text = format!(r#"{{"id":"{id}","body":{}{terms}}}"#, Value::from(body).to_json());
    let mut receipt = Receipt::default();
    world.database.create_script(&mut receipt, PLACE, kind, text.as_bytes(), true).await.unwrap();
}

async fn procedure(world: &World, id: &str, body: &str) {
    define(world, ScriptKind::StoredProcedure, id, body, "").await;
}

async fn execute(world: &World, id: &str, key: &str, arguments: &str) -> Result<Value> {
    let mut receipt = Receipt::default();
    execute_with_receipt(world, &mut receipt, id, key, arguments).await
}

async fn execute_with_receipt(
    world: &World,
    receipt: &mut Receipt,
    id: &str,
    key: &str,
    arguments: &str,
) -> Result<Value> {
    let call =
        ProcedureCall { arguments: Bytes::copy_from_slice(arguments.as_bytes()), ..Default::default() };
    let place = (DATABASE, CONTAINER, id);
    let body = world.database.execute_procedure(receipt, place, &with_key(key), &call).await?;
    Ok(parse(body.unwrap_or_else(|| "null".to_owned()).as_bytes()))
}

async fn read(world: &World, id: &str, key: &str) -> Result<Value> {
    let mut receipt = Receipt::default();
    let place = (DATABASE, CONTAINER, id);
    let item = world.database.read_item(&mut receipt, place, &with_key(key)).await?;
    Ok(parse(&item.document()))
}

fn hostile_scripts() -> Vec<(String, String, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/hostile");
    let mut scripts: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            let text = std::fs::read_to_string(file.path()).unwrap();
            let (first, body) = text.split_once('\n').unwrap();
            let limit = first.strip_prefix("// limit: ").unwrap_or_else(|| panic!("{first}")).to_owned();
            (file.file_name().into_string().unwrap(), limit, body.to_owned())
        })
        .collect();
    scripts.sort();
    assert!(scripts.len() > 70);
    scripts
}

/// Every hostile script writes an item first. It must hit its limit, leave nothing behind and hurt nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_scripts_hit_their_limits_and_leave_nothing_behind() {
    // Those that must run out of something else have more time than a busy machine needs for that.
    let hasty = Arc::new(hostile_world(Duration::from_millis(700)).await);
    let patient = Arc::new(hostile_world(Duration::from_mins(1)).await);
    let runs = futures_util::stream::iter(hostile_scripts()).map(|(name, limit, body)| {
        let world = Arc::clone(if limit == "time" { &hasty } else { &patient });
        async move { hostile(&world, &name, &limit, &body).await.err() }
    });
    let failures: Vec<String> = runs.buffer_unordered(4).filter_map(std::future::ready).collect().await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

async fn hostile_world(script_time_max: Duration) -> World {
    let world = World::open(Engine::Memory, Options { script_time_max, ..quiet_options() }).await;
    world.create_container(BY_PK).await;
    procedure(&world, "well", "function () { __.response.setBody('well'); }").await;
    world
}

async fn hostile(world: &World, name: &str, limit: &str, body: &str) -> Result<(), String> {
    let key = format!(r#"["{name}"]"#);
    let body = body.replace("pk: 'hostile'", &format!("pk: '{name}'"));
    let source = format!(
        "function () {{ __.createDocument(__.getSelfLink(), {{ id: 'left', pk: '{name}' }}, function (e) {{ if (e) throw e; {body}\n }}); }}"
    );
    procedure(world, name, &source).await;
    let mut receipt = Receipt::default();
    let ended = execute_with_receipt(world, &mut receipt, name, &key, "[]").await;
    let kind = ended.as_ref().map_err(|error: &Error| error.kind).err();
    let fits = match limit {
        "time" => kind == Some(ErrorKind::Timeout),
        "thrown" | "memory" => matches!(kind, Some(ErrorKind::Script { .. })),
        "none" => kind.is_none(),
        other => panic!("{name}: there is no limit {other}"),
    };
    if !fits || receipt.charge == Charge::ZERO {
        return Err(format!("{name} should hit {limit}: {ended:?}"));
    }
    let left = read(world, "left", &key).await;
    if left.is_ok() != (limit == "none") {
        return Err(format!("{name} has left {left:?}"));
    }
    // The next requests are served as if nothing had been.
    assert_eq!(execute(world, "well", &key, "[]").await.unwrap(), Value::from("well"), "{name}");
    let item = Bytes::from(format!(r#"{{"id":"after","pk":"{name}"}}"#));
    let mut receipt = Receipt::default();
    world.database.create_item(&mut receipt, PLACE, &ItemOptions::default(), &item).await.unwrap();
    // A container has a hundred procedures at most.
    let place = (DATABASE, CONTAINER, name);
    let kind = ScriptKind::StoredProcedure;
    world.database.delete_script(&mut receipt, place, kind, None).await.unwrap();
    Ok(())
}

/// The procedure reads, thinks and writes back; without transactions increments would be lost.
const INCREMENT: &str = "function (id, by) { var link = __.getAltLink() + '/docs/' + id; __.readDocument(link, function (e, d) { if (e) throw e; d.n += by; __.replaceDocument(link, d, function (e, r) { if (e) throw e; __.response.setBody(r.n); }); }); }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_procedures_and_writes_lose_no_updates() {
    for engine in ENGINES {
        let world = Arc::new(World::open(engine, quiet_options()).await);
        world.create_container(BY_PK).await;
        procedure(&world, "increment", INCREMENT).await;
        // Bodies keep their size, so that nothing but the place of the last write tells that one came between.
        world.create(r#"{"id":"sum","pk":"a","n":100000}"#).await;
        let procedures = (0..8).map(|_| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                for _ in 0..10 {
                    execute(&world, "increment", r#"["a"]"#, r#"["sum",1]"#).await.unwrap();
                }
            })
        });
        let writers = (0..4).map(|_| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                for _ in 0..25 {
                    let patch =
                        Bytes::from_static(br#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#);
                    let place = (DATABASE, CONTAINER, "sum");
                    let mut receipt = Receipt::default();
                    world
                        .database
                        .patch_item(&mut receipt, place, &with_key(r#"["a"]"#), &patch)
                        .await
                        .unwrap();
                }
            })
        });
        for task in procedures.chain(writers).collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let sum = read(&world, "sum", r#"["a"]"#).await.unwrap();
        assert_eq!(sum.get("n").and_then(Value::as_i64), Some(100_180), "{engine:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_procedure_commits_despite_endless_writers() {
    let world = Arc::new(World::memory().await);
    world.create_container(BY_PK).await;
    procedure(
        &world,
        "slow",
        "function () { __.readDocuments(__.getSelfLink(), function (e, all) { var end = Date.now() + 30; while (Date.now() < end) ; __.upsertDocument(__.getSelfLink(), { id: 'slow', pk: 'a', saw: all.length }); }); }",
    )
    .await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = {
        let (world, stop) = (Arc::clone(&world), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let item = Bytes::from_static(br#"{"id":"busy","pk":"a"}"#);
                let mut receipt = Receipt::default();
                let options = ItemOptions::default();
                world.database.upsert_item(&mut receipt, PLACE, &options, &item).await.unwrap();
                tokio::task::yield_now().await;
            }
        })
    };
    for _ in 0..3 {
        execute(&world, "slow", r#"["a"]"#, "[]").await.unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.await.unwrap();
    assert!(read(&world, "slow", r#"["a"]"#).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procedures_continue_across_splits() {
    let world = Arc::new(World::memory().await);
    world.create_container(BY_PK).await;
    procedure(&world, "increment", INCREMENT).await;
    for key in 0..20 {
        world.create(&format!(r#"{{"id":"sum","pk":"{key}","n":0}}"#)).await;
    }
    let workers: Vec<_> = (0..20)
        .map(|key| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                for _ in 0..10 {
                    execute(&world, "increment", &format!(r#"["{key}"]"#), r#"["sum",1]"#).await.unwrap();
                }
            })
        })
        .collect();
    let rid = world.database.catalog().container(DATABASE, CONTAINER).unwrap().rid;
    world.database.split_partition(rid, 0).await.unwrap();
    for worker in workers {
        worker.await.unwrap();
    }
    for key in 0..20 {
        let sum = read(&world, "sum", &format!(r#"["{key}"]"#)).await.unwrap();
        assert_eq!(sum.get("n").and_then(Value::as_i64), Some(10), "{key}");
    }
}

#[tokio::test]
async fn scripts_and_what_they_wrote_survive_a_restart() {
    for engine in ENGINES {
        // Its time is not what this is about, and every write may be a way to another machine.
        let options = Options { script_time_max: Duration::from_mins(1), ..quiet_options() };
        let world = World::open(engine, options).await;
        world.create_container(BY_PK).await;
        procedure(
            &world,
            "make",
            "function (n) { for (var i = 0; i < n; i++) __.createDocument(__.getSelfLink(), { id: 'i' + i, pk: 'a' }); }",
        )
        .await;
        define(&world, ScriptKind::Function, "twice", "function (n) { return 2 * n; }", "").await;
        let terms = r#","triggerType":"Pre","triggerOperation":"Create""#;
        let stamp = "function () { var d = getContext().getRequest().getBody(); d.stamped = true; getContext().getRequest().setBody(d); }";
        define(&world, ScriptKind::Trigger, "stamp", stamp, terms).await;
        // More than a batch may have.
        execute(&world, "make", r#"["a"]"#, "[500]").await.unwrap();
        let before = read(&world, "i499", r#"["a"]"#).await.unwrap();
        let world = world.restart().await;
        assert_eq!(world.usage().await.0, 500);
        assert_eq!(read(&world, "i499", r#"["a"]"#).await.unwrap().to_json(), before.to_json());
        execute(&world, "make", r#"["b"]"#, "[0]").await.unwrap();
        let options = ItemOptions {
            triggers: Some(Triggers { pre: Some("stamp".to_owned()), ..Triggers::default() }),
            ..ItemOptions::default()
        };
        let mut receipt = Receipt::default();
        let body = Bytes::from_static(br#"{"id":"t","pk":"a"}"#);
        let made = world.database.create_item(&mut receipt, PLACE, &options, &body).await.unwrap();
        assert_eq!(made.effect, Effect::Created);
        assert_eq!(read(&world, "t", r#"["a"]"#).await.unwrap().get("stamped"), Some(&Value::from(true)));
    }
}

#[tokio::test]
async fn a_script_stops_being_accepted_before_it_is_stopped() {
    let options = Options { script_time_max: Duration::from_secs(1), ..quiet_options() };
    let world = World::open(Engine::Memory, options).await;
    world.create_container(BY_PK).await;
    procedure(
        &world,
        "bulk",
        "function () { var made = 0; (function next() { var accepted = __.createDocument(__.getSelfLink(), { id: 'i' + made, pk: 'a' }, function (e) { if (e) throw e; made++; next(); }); if (!accepted) __.response.setBody(made); })(); }",
    )
    .await;
    let made = execute(&world, "bulk", r#"["a"]"#, "[]").await.unwrap().as_i64().unwrap();
    assert!(made > 0 && made <= 4096, "{made}");
    assert_eq!(world.usage().await.0, u64::try_from(made).unwrap());
}

#[tokio::test]
async fn functions_of_a_query_are_limited() {
    let options = Options { script_time_max: Duration::from_millis(300), ..quiet_options() };
    let world = World::open(Engine::Memory, options).await;
    world.create_container(BY_PK).await;
    world.create(r#"{"id":"1","pk":"a"}"#).await;
    define(&world, ScriptKind::Function, "hang", "function (x) { for (;;) ; }", "").await;
    define(&world, ScriptKind::Function, "grow", "function (x) { var a = []; for (;;) a.push([x]); }", "")
        .await;
    define(&world, ScriptKind::Function, "deep", "function f(x) { return f(x); }", "").await;
    define(&world, ScriptKind::Function, "early", "(function () { for (;;) ; })()", "").await;
    define(&world, ScriptKind::Function, "well", "function (x) { return x + '!'; }", "").await;
    for (name, kinds) in [
        ("hang", &[ErrorKind::Timeout][..]),
        ("grow", &[ErrorKind::Timeout, ErrorKind::BadRequest, ErrorKind::Script { code: 32766 }]),
        ("deep", &[ErrorKind::Script { code: 32766 }]),
        ("early", &[ErrorKind::Timeout]),
    ] {
        let error = query(&world, &format!("SELECT VALUE udf.{name}(c.id) FROM c")).await.unwrap_err();
        assert!(kinds.contains(&error.kind), "{name}: {error:?}");
    }
    assert_eq!(query(&world, "SELECT VALUE udf.well(c.id) FROM c").await.unwrap(), br#""1!""#);
}

async fn query(world: &World, text: &str) -> Result<Vec<u8>> {
    let request = orrery_db::QueryRequest::from_text(text.as_bytes()).unwrap();
    let options = orrery_db::QueryOptions { cross_partition: true, ..Default::default() };
    let mut receipt = Receipt::default();
    Ok(world.database.query_items(&mut receipt, PLACE, &options, &request).await?.rows)
}

/// Every write of a procedure and of triggers is a version of its own, in order; what was rolled back is none.
#[tokio::test]
async fn each_write_of_a_script_is_in_the_feed_of_all_versions_once() {
    for engine in ENGINES {
        let world = all_versions::kept(engine, "").await;
        let start = all_versions::now(&world).await;
        let write = "function (fails) { \
            var link = __.getSelfLink(), last = function (e, d) { if (e) throw e; if (fails) throw new Error('no'); }; \
            function item(id, version) { return { id: id, pk: 'a', version: version }; } \
            __.upsertDocument(link, item('1', 1)); \
            __.upsertDocument(link, item('1', 2)); \
            __.createDocument(link, item('2', 1), function (e, d) { if (e) throw e; __.deleteDocument(d._self, {}, last); }); }";
        procedure(&world, "write", write).await;
        let pre = "function () { var d = getContext().getRequest(); var b = d.getBody(); b.version = 7; d.setBody(b); }";
        define(&world, ScriptKind::Trigger, "pre", pre, r#","triggerType":"Pre","triggerOperation":"All""#)
            .await;
        let post = "function () { __.upsertDocument(__.getSelfLink(), { id: 'log', pk: 'a', version: 1 }); }";
        define(
            &world,
            ScriptKind::Trigger,
            "post",
            post,
            r#","triggerType":"Post","triggerOperation":"All""#,
        )
        .await;
        execute(&world, "write", r#"["a"]"#, "[true]").await.unwrap_err();
        execute(&world, "write", r#"["a"]"#, "[false]").await.unwrap();
        let triggers =
            Triggers { pre: Some("pre".to_owned()), post: Some("post".to_owned()), ..Default::default() };
        let options = ItemOptions { triggers: Some(triggers), ..with_key(r#"["a"]"#) };
        let item = Bytes::from_static(br#"{"id":"3","pk":"a","version":1}"#);
        world.database.create_item(&mut Receipt::default(), PLACE, &options, &item).await.unwrap();
        let page = all_versions::read(&world, &all_versions::request(start)).await.unwrap();
        let expected = ["create 1@1", "replace 1@2", "create 2@1", "delete 2", "create 3@7", "create log@1"];
        assert_eq!(all_versions::story(&page), expected);
        let numbers: Vec<i64> = all_versions::rows(&page)
            .iter()
            .map(|row| row.get("metadata").unwrap().get("lsn").unwrap().as_i64().unwrap())
            .collect();
        assert!(numbers[..4].iter().all(|number| *number == numbers[0]), "one transaction: {numbers:?}");
        assert!(numbers[0] < numbers[4] && numbers[4] == numbers[5], "{numbers:?}");
    }
}

/// A procedure that comes when its partition's budget is spent is told to wait and does nothing.
#[tokio::test]
async fn a_throttled_procedure_leaves_nothing_behind() {
    let options = Options { throttle: true, partitions_at_creation: Some(1), ..quiet_options() };
    let world = World::open(Engine::Memory, options).await;
    world.create_container(BY_PK).await;
    let fill = "function (key) { for (var at = 0; at < 50; at++) { if (!__.createDocument(__.getSelfLink(), { id: '' + at, pk: key })) throw new Error('full'); } }";
    procedure(&world, "fill", fill).await;
    for attempt in 0..200 {
        let key = format!(r#"["{attempt}"]"#);
        let mut receipt = Receipt::default();
        let ended = execute_with_receipt(&world, &mut receipt, "fill", &key, &key).await;
        world.database.settle(&receipt);
        match ended {
            Ok(_) => assert!(receipt.charge.as_f64() > 50.0, "{:?}", receipt.charge),
            Err(error) => {
                let ErrorKind::TooManyRequests { retry_after_ms } = error.kind else { panic!("{error}") };
                assert!(retry_after_ms > 0);
                assert!(attempt > 0, "there is a budget");
                world.env.advance_seconds(i64::from(retry_after_ms / 1000) + 1);
                let first = read(&world, "0", &key).await;
                assert_eq!(first.unwrap_err().kind, ErrorKind::NotFound, "nothing was written");
                execute(&world, "fill", &key, &key).await.expect("it need not wait longer than it was told");
                return;
            }
        }
    }
    panic!("the budget was never spent");
}

/// Calls that are stopped time and again leave places to others, which come in between although they asked later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_hostile_calls_do_not_block_others() {
    let world = Arc::new(hostile_world(Duration::from_millis(400)).await);
    let json = "[0".to_owned() + &",{}".repeat(1000) + "]";
    for (name, body) in [
        ("loop", "for (;;) {}".to_owned()),
        ("json", format!("for (;;) {{ try {{ JSON.parse('{json}'); }} catch (e) {{}} }}")),
    ] {
        procedure(&world, name, &format!("function () {{ {body} }}")).await;
        let crowd: Vec<_> = (0..64)
            .map(|number| {
                let world = Arc::clone(&world);
                let key = format!(r#"["{number}"]"#);
                tokio::spawn(async move { execute(&world, name, &key, "[]").await.unwrap_err().kind })
            })
            .collect();
        // When the first was stopped, all have asked for a place long ago.
        wait::eventually_true("the first to be stopped", async || {
            crowd.iter().any(tokio::task::JoinHandle::is_finished)
        })
        .await;
        assert_eq!(execute(&world, "well", r#"["other"]"#, "[]").await.unwrap(), Value::from("well"));
        let waiting = crowd.iter().filter(|call| !call.is_finished()).count();
        assert!(waiting > 32, "{name}: {waiting} of 64 are still to come");
        for call in crowd {
            assert_eq!(call.await.unwrap(), ErrorKind::Timeout, "{name}");
        }
    }
}
