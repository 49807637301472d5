//! Single items: what each operation does, what it refuses, and whose item it is.

use bytes::Bytes;
use orrery_db::{ItemOptions, Receipt};
use orrery_model::{ErrorKind, Value};

use crate::common::{
    BY_PK, CONTAINER, DATABASE, PLACE, Script, World, check, parse, quiet_options, with_key,
};

#[tokio::test]
async fn items_are_created_read_replaced_and_deleted() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a","n":1}           => created {"id":"1","pk":"a","n":1}
        create ["a"] {"id":"1","pk":"a","n":2}           => Conflict "already exists"
        read ["a"] 1                                     => read {"id":"1","pk":"a","n":1}
        # The same id under another key is another item.
        create ["b"] {"id":"1","pk":"b"}                 => created
        read ["b"] 1                                     => read {"id":"1","pk":"b"}
        read ["c"] 1                                     => NotFound "does not exist"
        read ["a"] 2                                     => NotFound
        replace ["a"] 1 {"id":"1","pk":"a","n":3}        => replaced {"id":"1","pk":"a","n":3}
        replace ["a"] 2 {"id":"2","pk":"a"}              => NotFound
        replace ["a"] 1 {"pk":"a"}                       => BadRequest "'id; '"
        upsert ["a"] {"id":"1","pk":"a","n":4}           => replaced {"id":"1","pk":"a","n":4}
        upsert ["a"] {"id":"3","pk":"a"}                 => created
        feed -                                           => 1 1 3
        delete ["a"] 1                                   => deleted
        delete ["a"] 1                                   => NotFound
        read ["a"] 1                                     => NotFound
        read ["b"] 1                                     => read {"id":"1","pk":"b"}
        create ["a"] {"id":"1","pk":"a","n":5}           => created {"id":"1","pk":"a","n":5}
        restart
        read ["a"] 1                                     => read {"id":"1","pk":"a","n":5}
        feed -                                           => 1 1 3
    "#;
    check(BY_PK, steps).await;
}

#[tokio::test]
async fn a_replacement_with_another_id_renames_the_item() {
    let members =
        format!(r#"{BY_PK},"defaultTtl":-1,"uniqueKeyPolicy":{{"uniqueKeys":[{{"paths":["/u"]}}]}}"#);
    let steps = r#"
        create ["a"] {"id":"1","pk":"a","u":1}                 => created as first
        create ["a"] {"id":"2","pk":"a","u":2}                 => created
        replace ["a"] 1 {"id":"2","pk":"a","u":1}              => Conflict "already exists"
        replace ["a"] 1 {"id":"3","pk":"a","u":2}              => Conflict "Unique index"
        replace ["a"] 1 {"id":"3","pk":"a","u":1} if-match="x" => PreconditionFailed
        replace ["a"] 1 {"id":"3","pk":"a","u":1,"ttl":10} if-match=$first => replaced {"id":"3","pk":"a","u":1,"ttl":10}
        read ["a"] 1                                           => NotFound
        read ["a"] 3                                           => read
        create ["a"] {"id":"1","pk":"a","u":1}                 => Conflict "Unique index"
        create ["a"] {"id":"1","pk":"a","u":3}                 => created
        # Over the remains of an expired item, and back, in one batch.
        clock 10
        replace ["a"] 2 {"id":"3","pk":"a","u":1}              => replaced
        batch ["a"] [{"operationType":"Replace","id":"3","resourceBody":{"id":"4","pk":"a","u":1}},{"operationType":"Replace","id":"1","resourceBody":{"id":"3","pk":"a","u":2}},{"operationType":"Read","id":"1"}] => 424 424 NotFound
        batch ["a"] [{"operationType":"Replace","id":"3","resourceBody":{"id":"4","pk":"a","u":1}},{"operationType":"Replace","id":"1","resourceBody":{"id":"3","pk":"a","u":2}},{"operationType":"Replace","id":"4","resourceBody":{"id":"1","pk":"a","u":3}}] => 200 200 200
        read ["a"] 1                                           => read {"id":"1","pk":"a","u":3}
        read ["a"] 3                                           => read {"id":"3","pk":"a","u":2}
        feed -                                                 => 1 3
        raw 40                                                 => 2
    "#;
    check(&members, steps).await;
}

#[tokio::test]
async fn etags_guard_writes_and_save_reads() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a"} if-match="x" if-none-match=*    => created as first
        create ["a"] {"id":"1","pk":"a"} if-none-match=*                 => Conflict
        read ["a"] 1 if-none-match=$first                                => not-modified
        read ["a"] 1 if-none-match=*                                     => not-modified
        read ["a"] 1 if-none-match="other"                               => read
        read ["a"] 1 if-match="other"                                    => read
        # A write that changes nothing has a new etag all the same.
        replace ["a"] 1 {"id":"1","pk":"a"} if-match=$first              => replaced as second
        replace ["a"] 1 {"id":"1","pk":"a"} if-match=$first              => PreconditionFailed "pre-condition is not met"
        replace ["a"] 1 {"id":"1","pk":"a"} if-match=*                   => replaced as third
        replace ["a"] 1 {"id":"1","pk":"a"} if-none-match=$third         => replaced as fourth
        upsert ["a"] {"id":"1","pk":"a"} if-match=$third                 => PreconditionFailed
        upsert ["a"] {"id":"1","pk":"a"} if-match=$fourth                => replaced as fifth
        patch ["a"] 1 [{"op":"set","path":"/n","value":1}] if-match=$first      => PreconditionFailed
        patch ["a"] 1 [{"op":"set","path":"/n","value":1}] if-none-match=$fifth => PreconditionFailed
        patch ["a"] 1 [{"op":"set","path":"/n","value":1}] if-none-match=$first => replaced as sixth
        delete ["a"] 1 if-match=$fifth                                   => PreconditionFailed
        delete ["a"] 1 if-none-match=$sixth if-match=$sixth              => deleted
        # A missing item is missing, whatever etag is wanted; only an upsert inserts it.
        replace ["a"] 1 {"id":"1","pk":"a"} if-match=$sixth              => NotFound
        patch ["a"] 1 [{"op":"set","path":"/n","value":1}] if-match=*    => NotFound
        delete ["a"] 1 if-match=*                                        => NotFound
        read ["a"] 1 if-none-match=*                                     => NotFound
        upsert ["a"] {"id":"1","pk":"a"} if-match=$sixth                 => created
    "#;
    check(BY_PK, steps).await;
}

#[tokio::test]
async fn every_kind_of_key_value_is_distinct() {
    // 0 and -0 hash apart, as the clients' baselines have it; 1, 1.0 and 1e0 are one number.
    let steps = r#"
        create [{}] {"id":"1"}                 => created
        create [null] {"id":"1","pk":null}     => created
        create [false] {"id":"1","pk":false}   => created
        create [true] {"id":"1","pk":true}     => created
        create [0] {"id":"1","pk":0}           => created
        create [-0.0] {"id":"1","pk":-0.0}     => created
        create [1.0] {"id":"1","pk":1}         => created
        create [1e0] {"id":"1","pk":1.0}       => Conflict
        create [""] {"id":"1","pk":""}         => created
        create ["1"] {"id":"1","pk":"1"}       => created
        create ["é😀"] {"id":"1","pk":"\u00e9\ud83d\ude00"} => created
        read [{}] 1                            => read {"id":"1"}
        read [] 1                              => read {"id":"1"}
        read [null] 1                          => read {"id":"1","pk":null}
        read [false] 1                         => read {"id":"1","pk":false}
        read [true] 1                          => read {"id":"1","pk":true}
        read [1] 1                             => read {"id":"1","pk":1}
        read [""] 1                            => read {"id":"1","pk":""}
        read ["1"] 1                           => read {"id":"1","pk":"1"}
        read ["\u00e9\ud83d\ude00"] 1          => read {"id":"1","pk":"é😀"}
        delete [0] 1                           => deleted
        read [0] 1                             => NotFound
        read [-0.0] 1                          => read {"id":"1","pk":-0.0}
        patch [-0.0] 1 [{"op":"set","path":"/n","value":1}] => replaced
        # The key itself must survive a patch of something else.
        replace [-0.0] 1 {"id":"1","pk":-0.0}  => replaced
        feed [-0.0]                            => 1
        delete [-0.0] 1                        => deleted
        feed -                                 => 1 1 1 1 1 1 1 1
    "#;
    for version in [1, 2] {
        let members = format!(r#""partitionKey":{{"paths":["/pk"],"kind":"Hash","version":{version}}}"#);
        check(&members, steps).await;
    }
}

#[tokio::test]
async fn the_key_in_the_header_must_be_the_one_in_the_item() {
    let steps = r#"
        create ["b"] {"id":"1","pk":"a"}       => PartitionKeyMismatch "doesn't match the one specified in the header"
        upsert ["b"] {"id":"1","pk":"a"}       => PartitionKeyMismatch
        create [{}] {"id":"1","pk":null}       => PartitionKeyMismatch
        create [null] {"id":"1"}               => PartitionKeyMismatch
        create ["1"] {"id":"1","pk":1}         => PartitionKeyMismatch
        create [0] {"id":"1","pk":-0.0}        => PartitionKeyMismatch
        create ["a","b"] {"id":"1","pk":"a"}   => PartitionKeyMismatch "doesn't correspond to definition"
        create ["a"] {"id":"1","pk":{"x":1}}   => PartitionKeyMismatch
        create ["a"] {"id":"1","pk":["a"]}     => PartitionKeyMismatch
        # Without a header the item's own key is taken.
        create - {"id":"1","pk":"a"}           => created
        replace ["b"] 1 {"id":"1","pk":"a"}    => NotFound
        replace ["a"] 1 {"id":"1","pk":"b"}    => PartitionKeyMismatch
        replace ["b"] 1 {"id":"1","pk":"b"}    => NotFound
        read - 1                               => BadRequest "PartitionKey value must be supplied"
        delete - 1                             => BadRequest "PartitionKey value must be supplied"
        patch - 1 [{"op":"set","path":"/n","value":1}] => BadRequest "PartitionKey value must be supplied"
        read ["a","b"] 1                       => PartitionKeyMismatch "doesn't correspond to definition"
        usage                                  => 1 items 19 bytes
        # What is no scalar is no key: the service files such items under undefined.
        create [{}] {"id":"2","pk":{"x":1}}    => created
        create [{}] {"id":"3","pk":["a"]}      => created
        feed [{}]                              => 2 3
    "#;
    check(BY_PK, steps).await;
}

#[tokio::test]
async fn hierarchical_keys_are_full_for_items_and_partial_for_feeds() {
    let members = r#""partitionKey":{"paths":["/t","/u/v","/w"],"kind":"MultiHash","version":2}"#;
    let steps = r#"
        create ["a","b","c"] {"id":"1","t":"a","u":{"v":"b"},"w":"c"}  => created
        create ["a","b",{}] {"id":"1","t":"a","u":{"v":"b"}}           => created
        create ["a",{},5] {"id":"1","t":"a","u":"no object","w":5}     => created
        create [null,{},{}] {"id":"2","t":null}                        => created
        create ["a","b"] {"id":"3","t":"a","u":{"v":"b"}}              => PartitionKeyMismatch "doesn't correspond to definition"
        create ["a","b","x"] {"id":"3","t":"a","u":{"v":"b"},"w":"c"}  => PartitionKeyMismatch
        read ["a","b","c"] 1                                           => read {"id":"1","t":"a","u":{"v":"b"},"w":"c"}
        read ["a","b",{}] 1                                            => read {"id":"1","t":"a","u":{"v":"b"}}
        read ["a","b"] 1                                               => PartitionKeyMismatch
        delete ["a"] 1                                                 => PartitionKeyMismatch
        purge ["a"]                                                    => PartitionKeyMismatch
        batch ["a","b"] [{"operationType":"Read","id":"1"}]            => PartitionKeyMismatch
        feed ["a"]                                                     => 1 1 1
        feed ["a","b"]                                                 => 1 1
        feed ["a","b","c"]                                             => 1
        feed ["b"]                                                     =>
        feed [null]                                                    => 2
        feed ["a","b","c","d"]                                         => PartitionKeyMismatch
        query ["a","b"] SELECT VALUE COUNT(1) FROM c                   => [2]
    "#;
    check(members, steps).await;
    let one = r#""partitionKey":{"paths":["/pk"],"kind":"MultiHash","version":2}"#;
    check(one, r#"create ["a"] {"id":"1","pk":"a"} => created"#).await;
}

#[tokio::test]
async fn long_version_1_keys_share_hashes_but_not_items() {
    // Version 1 hashes 100 UTF-16 units: these three keys lie in one place.
    let members = r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":1}"#;
    let (base, first, second) = ("x".repeat(100), "x".repeat(100) + "1", "x".repeat(100) + "2");
    let steps = format!(
        r#"
        create ["{first}"] {{"id":"1","pk":"{first}"}}                => created
        create ["{second}"] {{"id":"1","pk":"{second}"}}              => KeyHashCollision
        upsert ["{second}"] {{"id":"1","pk":"{second}"}}              => KeyHashCollision
        create ["{base}"] {{"id":"1","pk":"{base}"}}                  => KeyHashCollision
        batch ["{second}"] [{{"operationType":"Create","resourceBody":{{"id":"1","pk":"{second}"}}}}] => KeyHashCollision
        read ["{second}"] 1                                           => NotFound
        read ["{base}"] 1                                             => NotFound
        replace ["{second}"] 1 {{"id":"1","pk":"{second}"}}           => NotFound
        patch ["{second}"] 1 [{{"op":"set","path":"/n","value":1}}]   => NotFound
        delete ["{second}"] 1                                         => NotFound
        delete ["{base}"] 1                                           => NotFound
        create ["{second}"] {{"id":"2","pk":"{second}"}}              => created
        create ["{base}"] {{"id":"3","pk":"{base}"}}                  => created
        read ["{first}"] 1                                            => read {{"id":"1","pk":"{first}"}}
        feed ["{first}"]                                              => 1
        feed ["{second}"]                                             => 2
        feed ["{base}"]                                               => 3
        feed -                                                        => 1 2 3
        query ["{second}"] SELECT VALUE c.id FROM c                   => ["2"]
        query ["{base}"] SELECT VALUE c.id FROM c                     => ["3"]
        query ["{second}"] SELECT VALUE COUNT(1) FROM c WHERE c.id >= "0" => [1]
        query ["{second}"] SELECT VALUE c.id FROM c WHERE c.id = "1"  => []
        query ["{first}"] SELECT VALUE c.id FROM c ORDER BY c.id      => ["1"]
        purge ["{first}"]                                             => NotImplemented
        delete ["{first}"] 1                                          => deleted
        create ["{second}"] {{"id":"1","pk":"{second}"}}              => created
    "#
    );
    check(members, &steps).await;
    // Half of a surrogate pair does not count: 99 letters are hashed like 99 letters and an emoji.
    let (base, longer) = ("x".repeat(99), "x".repeat(99) + "😀");
    let steps = format!(
        r#"
        create ["{longer}"] {{"id":"1","pk":"{longer}"}}  => created
        read ["{base}"] 1                                 => NotFound
        create ["{base}"] {{"id":"1","pk":"{base}"}}      => KeyHashCollision
    "#
    );
    check(members, &steps).await;
    // Version 2 hashes the whole string.
    let steps = format!(
        r#"
        create ["{first}"] {{"id":"1","pk":"{first}"}}   => created
        create ["{second}"] {{"id":"1","pk":"{second}"}} => created
        feed ["{second}"]                                => 1
    "#
    );
    check(BY_PK, &steps).await;
}

#[tokio::test]
async fn limits_are_kept() {
    let (id, too_long) = ("i".repeat(1023), "i".repeat(1024));
    let (key, long_key) = ("k".repeat(2048), "k".repeat(2049));
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let (deepest, too_deep) = (deep(127), deep(128));
    // The whole text counts: two megabytes to the byte.
    let sized = |bytes: usize| {
        let empty = r#"{"id":"big","pk":"a","x":""}"#;
        format!(r#"{{"id":"big","pk":"a","x":"{}"}}"#, "y".repeat(bytes - empty.len()))
    };
    let (largest, too_large) = (sized(2 * 1024 * 1024), sized(2 * 1024 * 1024 + 1));
    let steps = format!(
        r#"
        create ["a"] {{"id":"{id}","pk":"a"}}              => created
        read ["a"] {id}                                    => read
        create ["a"] {{"id":"{too_long}","pk":"a"}}        => BadRequest "less than '1024' characters"
        read ["a"] {too_long}                              => BadRequest
        create ["{key}"] {{"id":"{id}","pk":"{key}"}}      => created
        read ["{key}"] {id}                                => read
        create - {{"id":"1","pk":"{long_key}"}}            => BadRequest
        read ["{long_key}"] 1                              => BadRequest
        create ["a"] {{"id":"deep","pk":"a","x":{deepest}}}  => created
        create ["a"] {{"id":"deeper","pk":"a","x":{too_deep}}} => BadRequest
        create ["a"] {largest}                             => created
        replace ["a"] big {too_large}                      => TooLarge "Request size is too large"
        # A patch may not make an item larger than it could have been sent.
        patch ["a"] big [{{"op":"set","path":"/y","value":1}}] => TooLarge
        patch ["a"] deep [{{"op":"add","path":"/x/0","value":[]}}] => replaced
        create ["a"] {{"pk":"a"}}                          => BadRequest "'id; '"
        create ["a"] {{"id":5,"pk":"a"}}                   => BadRequest
        create ["a"] {{"id":"","pk":"a"}}                  => BadRequest
        create ["a"] {{"id":"a\\b","pk":"a"}}              => created
        create ["a"] {{"id":"n","pk":"a","n":1e400}}       => BadRequest
        create ["a"] {{"id":"a/b?c#d e","pk":"a"}}         => created
        read ["a"] "a/b?c#d e"                             => read
        create ["a"] [1]                                   => BadRequest "not a JSON object"
        create ["a"] "text"                                => BadRequest
        create ["a"] {{"id":"1","pk":"a"                   => BadRequest
        create ["a"] {{"id":"1","pk":"a"}}}}               => BadRequest
    "#
    );
    check(BY_PK, &steps).await;
}

#[tokio::test]
async fn a_logical_partition_has_a_size_limit() {
    let options = orrery_db::Options { logical_partition_bytes_max: 100, ..quiet_options() };
    let filler = "x".repeat(40);
    let steps = format!(
        r#"
        create ["a"] {{"id":"1","pk":"a","x":"{filler}"}}   => created
        create ["a"] {{"id":"2","pk":"a","x":"{filler}"}}   => LogicalPartitionFull
        usage                                               => 1 items 66 bytes
        create ["b"] {{"id":"2","pk":"b","x":"{filler}"}}   => created
        replace ["a"] 1 {{"id":"1","pk":"a","x":"{filler}{filler}"}} => LogicalPartitionFull
        batch ["a"] [{{"operationType":"Delete","id":"1"}},{{"operationType":"Create","resourceBody":{{"id":"2","pk":"a","x":"{filler}"}}}}] => 204 201
        usage                                               => 2 items 132 bytes
    "#
    );
    Script { members: BY_PK, options, engines: &crate::common::ENGINES }.check(&steps).await;
}

#[tokio::test]
async fn patches_change_parts_of_items() {
    let steps = r#"
        create ["a"] {"id":"1","pk":"a","n":1,"list":[1,2],"deep":{"x":{"y":1}}} => created
        patch ["a"] 1 {"operations":[{"op":"add","path":"/list/1","value":9},{"op":"incr","path":"/n","value":0.5},{"op":"remove","path":"/deep/x/y"},{"op":"move","from":"/deep","path":"/moved"},{"op":"set","path":"/new","value":null},{"op":"replace","path":"/list/0","value":"z"}]} => replaced {"id":"1","pk":"a","n":1.5,"list":["z",9,2],"moved":{"x":{}},"new":null}
        # All or nothing: the second operation fails, the first is not seen.
        patch ["a"] 1 [{"op":"set","path":"/n","value":2},{"op":"remove","path":"/gone"}] => BadRequest "For Operation(2)"
        read ["a"] 1 => read {"id":"1","pk":"a","n":1.5,"list":["z",9,2],"moved":{"x":{}},"new":null}
        patch ["a"] 1 [{"op":"add","path":"/no/parent","value":2}]      => BadRequest "no path found beyond: 'no'"
        patch ["a"] 1 []                                                => BadRequest
        patch ["a"] 1 [{"op":"copy","path":"/n","from":"/n"}]           => BadRequest
        patch ["a"] 1 [{"op":"incr","path":"/new","value":1}]           => BadRequest
        patch ["a"] 1 [{"op":"set","path":"/id","value":"2"}]           => BadRequest
        patch ["a"] 1 [{"op":"set","path":"/pk","value":"b"}]           => BadRequest
        patch ["a"] 1 [{"op":"set","path":"/_ts","value":1}]            => BadRequest
        patch ["a"] 1 [{"op":"set","path":"/ttl","value":0}]            => BadRequest
        patch ["a"] 1 [{"op":"set","path":"/ttl","value":5}]            => replaced
        patch ["a"] 1 {"operations":[{"op":"set","path":"/n","value":7}],"condition":"from c where c.n = 1.5 and c.id = \"1\""} => replaced
        patch ["a"] 1 {"operations":[{"op":"set","path":"/n","value":8}],"condition":"from c where c.n = 1.5"} => PreconditionFailed
        patch ["a"] 1 {"operations":[{"op":"set","path":"/n","value":8}],"condition":"from c where c._etag != null and is_defined(c._rid)"} => replaced
        patch ["a"] 1 {"operations":[{"op":"set","path":"/n","value":8}],"condition":"where where"} => InvalidQuery
        # The etag is looked at before the condition.
        patch ["a"] 1 {"operations":[{"op":"set","path":"/n","value":8}],"condition":"from c where false"} if-match="x" => PreconditionFailed
        patch ["a"] 2 [{"op":"set","path":"/n","value":1}]              => NotFound
        patch ["b"] 1 [{"op":"set","path":"/n","value":1}]              => NotFound
        read ["a"] 1 => read {"id":"1","pk":"a","n":8,"list":["z",9,2],"moved":{"x":{}},"new":null,"ttl":5}
    "#;
    check(BY_PK, steps).await;
    let hierarchical = r#""partitionKey":{"paths":["/a/b"],"kind":"Hash","version":2}"#;
    let steps = r#"
        create ["x"] {"id":"1","a":{"b":"x","c":1}}                 => created
        patch ["x"] 1 [{"op":"set","path":"/a","value":{"b":"y"}}]  => BadRequest
        patch ["x"] 1 [{"op":"remove","path":"/a/b"}]               => BadRequest
        patch ["x"] 1 [{"op":"move","from":"/a","path":"/z"}]       => BadRequest
        patch ["x"] 1 [{"op":"set","path":"/a/c","value":2}]        => replaced {"id":"1","a":{"b":"x","c":2}}
    "#;
    check(hierarchical, steps).await;
}

#[tokio::test]
async fn items_come_back_in_the_order_they_were_written() {
    let world = World::memory().await;
    let container = world.create_container(BY_PK).await;
    let rid = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap().to_owned();
    let text = r#" {"z": 1.50, "id":"1", "_ts":7, "pk":"a", "big":12345678901234567890, "_etag":"mine", "esc":"\u00e9"} "#;
    let mut receipt = Receipt::default();
    let body = Bytes::from(text);
    let reply = world.database.create_item(&mut receipt, PLACE, &with_key(r#"["a"]"#), &body).await.unwrap();
    let document = String::from_utf8(reply.document().to_vec()).unwrap();
    // As a query would print it; system properties of the client are dropped, ours stand last.
    assert!(
        document.starts_with(r#"{"z":1.5,"id":"1","pk":"a","big":12345678901234567000,"esc":"é","_rid":""#),
        "{document}"
    );
    let value = parse(document.as_bytes());
    let names: Vec<&str> = value.as_object().unwrap().iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["z", "id", "pk", "big", "esc", "_rid", "_self", "_etag", "_attachments", "_ts"]);
    assert_eq!(rid(&value, "_attachments"), "attachments/");
    assert_eq!(rid(&value, "_self"), format!("{}docs/{}/", rid(&container, "_self"), rid(&value, "_rid")));
    assert_eq!(rid(&value, "_rid").len(), 24);

    // What the client reads it may write back; the RID stays, whatever is written.
    let read = |options: ItemOptions| {
        let world = &world;
        async move {
            let mut receipt = Receipt::default();
            let at = (DATABASE, CONTAINER, "1");
            let reply = world.database.read_item(&mut receipt, at, &options).await.unwrap();
            parse(&reply.document())
        }
    };
    world.env.advance_seconds(3);
    let upserted = world
        .database
        .upsert_item(&mut receipt, PLACE, &with_key(r#"["a"]"#), &reply.document())
        .await
        .unwrap();
    let again = read(with_key(r#"["a"]"#)).await;
    assert_eq!(again, parse(&upserted.document()));
    assert_eq!(rid(&again, "_rid"), rid(&value, "_rid"));
    assert_ne!(rid(&again, "_etag"), rid(&value, "_etag"));
    assert_eq!(
        again.get("_ts").and_then(Value::as_i64),
        value.get("_ts").and_then(Value::as_i64).map(|ts| ts + 3)
    );

    // The server writes a patched item anew; its key must stay what it was, the sign of zero included.
    let patch = Bytes::from_static(br#"[{"op":"set","path":"/n","value":-0.0}]"#);
    world.create(r#"{"id":"zero","pk":-0.0}"#).await;
    let at = (DATABASE, CONTAINER, "zero");
    let patched = world.database.patch_item(&mut receipt, at, &with_key("[-0.0]"), &patch).await.unwrap();
    let catalog = world.database.catalog();
    let definition = &catalog.container(DATABASE, CONTAINER).unwrap().definition.partition_key;
    assert_eq!(definition.extract(&parse(&patched.document())).unwrap(), crate::common::key("[-0.0]"));

    // So does it under another id.
    let renamed = Bytes::from_static(br#"{"id":"renamed","pk":"a"}"#);
    let at = (DATABASE, CONTAINER, "1");
    let renamed =
        world.database.replace_item(&mut receipt, at, &with_key(r#"["a"]"#), &renamed).await.unwrap();
    assert_eq!(rid(&parse(&renamed.document()), "_rid"), rid(&value, "_rid"));
    let back = Bytes::from_static(br#"{"id":"1","pk":"a"}"#);
    let at = (DATABASE, CONTAINER, "renamed");
    world.database.replace_item(&mut receipt, at, &with_key(r#"["a"]"#), &back).await.unwrap();

    // A new life is a new RID.
    world
        .database
        .delete_item(&mut receipt, (DATABASE, CONTAINER, "1"), &with_key(r#"["a"]"#))
        .await
        .unwrap();
    let created = world.create(r#"{"id":"1","pk":"a"}"#).await;
    assert_ne!(rid(&created, "_rid"), rid(&value, "_rid"));
}

#[tokio::test]
async fn items_are_found_by_rid() {
    let world = World::with_partitions(crate::common::Engine::Memory, 3).await;
    let container = world.create_container(BY_PK).await;
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap().to_owned();
    let link = text(&container, "_self");
    let [_, database_rid, _, container_rid, ..] = link.split('/').collect::<Vec<_>>()[..] else { panic!() };
    let mut first = Value::Null;
    for n in 0..20 {
        let item = world.create(&format!(r#"{{"id":"{n}","pk":"k{n}"}}"#)).await;
        let rid = text(&item, "_rid");
        let mut receipt = Receipt::default();
        let options = with_key(&format!(r#"["k{n}"]"#));
        let place = (database_rid, container_rid, rid.as_str());
        let read = world.database.read_item(&mut receipt, place, &options).await.unwrap();
        assert_eq!(parse(&read.document()), item);
        let wrong = world.database.read_item(&mut receipt, place, &with_key(r#"["other"]"#)).await;
        assert_eq!(wrong.unwrap_err().kind, ErrorKind::NotFound);
        // By name the text is just an id.
        let by_name = world.database.read_item(&mut receipt, (DATABASE, CONTAINER, &rid), &options).await;
        assert_eq!(by_name.unwrap_err().kind, ErrorKind::NotFound);
        first = if n == 0 { item } else { first };
    }
    let rid = text(&first, "_rid");
    let place = (database_rid, container_rid, rid.as_str());
    let (mut receipt, options) = (Receipt::default(), with_key(r#"["k0"]"#));
    let body = Bytes::from_static(br#"{"id":"0","pk":"k0","n":1}"#);
    world.database.replace_item(&mut receipt, place, &options, &body).await.unwrap();
    let patch = Bytes::from_static(br#"[{"op":"incr","path":"/n","value":1}]"#);
    let patched = world.database.patch_item(&mut receipt, place, &options, &patch).await.unwrap();
    assert_eq!(parse(&patched.document()).get("n").and_then(Value::as_i64), Some(2));
    world.database.delete_item(&mut receipt, place, &options).await.unwrap();
    let gone = world.database.delete_item(&mut receipt, place, &options).await;
    assert_eq!(gone.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn a_recreated_container_is_detected() {
    let world = World::memory().await;
    let old = world.create_container(BY_PK).await;
    let mut receipt = Receipt::default();
    world.create(r#"{"id":"1","pk":"a"}"#).await;
    world.database.delete_container(&mut receipt, PLACE, None).await.unwrap();
    let new = world.create_container(BY_PK).await;
    let with_rid = |container: &Value| ItemOptions {
        intended_rid: container.get("_rid").and_then(Value::as_str).map(str::to_owned),
        ..with_key(r#"["a"]"#)
    };
    let place = (DATABASE, CONTAINER, "1");
    let stale = world.database.read_item(&mut receipt, place, &with_rid(&old)).await.unwrap_err();
    assert_eq!(stale.kind, ErrorKind::ContainerRecreated);
    assert!(stale.message.contains("Collection rid provided by the user does not match"));
    let fresh = world.database.read_item(&mut receipt, place, &with_rid(&new)).await.unwrap_err();
    assert_eq!(fresh.kind, ErrorKind::NotFound);
    for (database, container) in [("nothing", CONTAINER), (DATABASE, "nothing")] {
        let place = (database, container, "1");
        let missing = world.database.read_item(&mut receipt, place, &with_key(r#"["a"]"#)).await.unwrap_err();
        assert_eq!(missing.kind, ErrorKind::OwnerNotFound);
    }
}
