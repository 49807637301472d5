//! Sessions: a read never shows less than its client has seen.

use std::task::Poll;

use bytes::Bytes;
use orrery_db::{FeedScope, ItemOptions, PageRequest, QueryOptions, QueryRequest, Receipt};
use orrery_model::session::{SessionEntry, SessionToken};
use orrery_model::{ErrorKind, Result};

use crate::common::{BY_PK, CONTAINER, DATABASE, ENGINES, Engine, PLACE, World, everything, with_key};

fn token(entries: &[SessionEntry]) -> SessionToken {
    SessionToken { entries: entries.to_vec() }
}

/// The three ways of reading, all of which look at the session.
async fn read_all(world: &World, session: &SessionToken) -> [Result<()>; 3] {
    let mut receipt = Receipt::default();
    let options = ItemOptions { session: Some(session.clone()), ..with_key(r#"["a"]"#) };
    let read = world.database.read_item(&mut receipt, (DATABASE, CONTAINER, "1"), &options).await.map(|_| ());
    let page = PageRequest::default();
    let feed =
        world.database.read_items(&mut receipt, PLACE, None, &everything(), Some(session), &page).await;
    let scope = FeedScope { partition_key: options.partition_key, ..FeedScope::default() };
    let options = QueryOptions { session: Some(session.clone()), scope, ..QueryOptions::default() };
    let request =
        QueryRequest { text: "SELECT * FROM c".to_owned(), parameters: Vec::new(), resume_filter: None };
    let query = world.database.query_items(&mut receipt, PLACE, &options, &request).await;
    [read, feed.map(|_| ()), query.map(|_| ())]
}

async fn assert_served(world: &World, session: &SessionToken) {
    for outcome in read_all(world, session).await {
        outcome.unwrap_or_else(|error| panic!("{session}: {error}"));
    }
}

async fn assert_refused(world: &World, session: &SessionToken) {
    for outcome in read_all(world, session).await {
        let error = outcome.expect_err(&format!("{session} is ahead"));
        assert_eq!(error.kind, ErrorKind::ReadSessionNotAvailable);
        assert!(error.message.contains("The read session is not available for the input session token"));
    }
}

#[tokio::test]
async fn a_session_token_from_the_future_is_not_served() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 1).await;
        world.create_container(BY_PK).await;
        let mut receipt = Receipt::default();
        let body = Bytes::from_static(br#"{"id":"1","pk":"a"}"#);
        world.database.create_item(&mut receipt, PLACE, &with_key(r#"["a"]"#), &body).await.unwrap();
        let seen = receipt.session_token().unwrap().entries[0];
        // A new partition is at 1.
        assert_eq!((seen.range_id, seen.lsn), (0, 2));
        let version = seen.version.unwrap();
        assert_served(&world, &token(&[seen])).await;
        assert_served(&world, &token(&[SessionEntry::new(0, version, 0)])).await;
        // Other ranges do not matter, nor does an older version with a larger position.
        assert_served(&world, &token(&[SessionEntry::new(7, version, 99)])).await;
        assert_served(&world, &token(&[SessionEntry::new(0, version - 1, 99)])).await;
        assert_served(&world, &SessionToken::default()).await;
        assert_served(&world, &token(&[SessionEntry { range_id: 0, version: None, lsn: 2 }])).await;
        assert_refused(&world, &token(&[SessionEntry::new(0, version, 3)])).await;
        assert_refused(&world, &token(&[SessionEntry::new(0, version + 1, 0)])).await;
        assert_refused(&world, &token(&[SessionEntry { range_id: 0, version: None, lsn: 3 }])).await;
        assert_refused(&world, &token(&[SessionEntry::new(9, version, 1), SessionEntry::new(0, version, 5)]))
            .await;
        // Positions outlive a restart.
        let world = world.restart().await;
        assert_served(&world, &token(&[seen])).await;
        assert_refused(&world, &token(&[SessionEntry::new(0, version, 3)])).await;
        let mut receipt = Receipt::default();
        let body = Bytes::from_static(br#"{"id":"2","pk":"a"}"#);
        world.database.create_item(&mut receipt, PLACE, &with_key(r#"["a"]"#), &body).await.unwrap();
        assert_eq!(receipt.session_token().unwrap().entries, [SessionEntry::new(0, version, 3)]);
    }
}

#[tokio::test]
async fn a_recreated_container_is_never_behind() {
    let world = World::memory().await;
    world.create_container(BY_PK).await;
    let mut receipt = Receipt::default();
    for n in 0..5 {
        let body = Bytes::from(format!(r#"{{"id":"{n}","pk":"a"}}"#));
        world.database.create_item(&mut receipt, PLACE, &with_key(r#"["a"]"#), &body).await.unwrap();
    }
    let old = receipt.session_token().unwrap();
    assert_eq!(old.entries[0].lsn, 6);
    world.database.delete_container(&mut receipt, PLACE, None).await.unwrap();
    world.create_container(BY_PK).await;
    world.create(r#"{"id":"1","pk":"a"}"#).await;
    assert_served(&world, &old).await;
}

#[tokio::test]
async fn every_response_reports_the_position() {
    let world = World::with_partitions(Engine::Memory, 3).await;
    world.create_container(BY_PK).await;
    let lsn = |receipt: &Receipt| {
        assert_eq!(receipt.served.len(), 1);
        receipt.served[0].lsn
    };
    let options = with_key(r#"["a"]"#);
    let body = Bytes::from_static(br#"{"id":"1","pk":"a"}"#);
    let place = (DATABASE, CONTAINER, "1");
    // Writes move it; reads, refusals and missing items tell it as it is.
    let mut receipt = Receipt::default();
    world.database.create_item(&mut receipt, PLACE, &options, &body).await.unwrap();
    assert_eq!(lsn(&receipt), 2);
    let mut receipt = Receipt::default();
    world.database.create_item(&mut receipt, PLACE, &options, &body).await.unwrap_err();
    assert_eq!(lsn(&receipt), 2);
    let mut receipt = Receipt::default();
    world.database.read_item(&mut receipt, (DATABASE, CONTAINER, "x"), &options).await.unwrap_err();
    assert_eq!(lsn(&receipt), 2);
    let mut receipt = Receipt::default();
    world.database.upsert_item(&mut receipt, PLACE, &options, &body).await.unwrap();
    assert_eq!(lsn(&receipt), 3);
    let mut receipt = Receipt::default();
    world.database.delete_item(&mut receipt, place, &options).await.unwrap();
    assert_eq!(lsn(&receipt), 4);
    // A feed of everything tells all of them.
    let mut receipt = Receipt::default();
    world
        .database
        .read_items(&mut receipt, PLACE, None, &everything(), None, &PageRequest::default())
        .await
        .unwrap();
    assert_eq!(receipt.served.len(), 3);
    assert_eq!(receipt.session_token().unwrap().to_string().split(',').count(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_waits_briefly_for_its_session() {
    for engine in ENGINES {
        let world = World::open(engine, crate::common::quiet_options()).await;
        world.create_container(BY_PK).await;
        let mut receipt = Receipt::default();
        let body = Bytes::from_static(br#"{"id":"1","pk":"a"}"#);
        world.database.create_item(&mut receipt, PLACE, &with_key(r#"["a"]"#), &body).await.unwrap();
        let mut ahead = receipt.session_token().unwrap();
        ahead.entries[0].lsn += 1;
        let options = ItemOptions { session: Some(ahead), ..with_key(r#"["a"]"#) };
        let mut read =
            std::pin::pin!(world.database.read_item(&mut receipt, (DATABASE, CONTAINER, "1"), &options));
        // It cannot answer yet.
        let first_look = std::future::poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await;
        assert!(first_look.is_pending());
        let body = Bytes::from_static(br#"{"id":"1","pk":"a","new":true}"#);
        let upsert_options = with_key(r#"["a"]"#);
        let mut upsert_receipt = Receipt::default();
        let upsert = world.database.upsert_item(&mut upsert_receipt, PLACE, &upsert_options, &body);
        let (read, written) = tokio::join!(read, upsert);
        written.unwrap();
        assert!(String::from_utf8(read.unwrap().document().to_vec()).unwrap().contains(r#""new":true"#));
    }
}
