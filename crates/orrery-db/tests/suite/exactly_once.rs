//! Readers of the change feed beside concurrent writers, while partitions are split and merged: in all-versions mode
//! they see every committed version once and in order, in latest mode the last version of every item.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use orrery_db::{ChangeMode, ChangeRequest, ChangeStart, Database, FeedScope, PageRequest, Receipt};
use orrery_model::partition_key::EpkRange;
use orrery_model::{ErrorKind, Value};

use crate::common::{BY_PK, CONTAINER, DATABASE, ENGINES, PLACE, World, parse, with_key};

const WRITERS: u64 = 6;
const STEPS: u64 = 60;
const ITEMS: u64 = 5;

/// What happened to an item, in order: the version that was written, or none when it was deleted.
type Story = Vec<Option<u64>>;
type Stories = BTreeMap<String, Story>;

/// One writer with items of its own, so that it knows the order of their versions.
async fn write(database: Arc<Database>, writer: u64) -> Stories {
    let mut stories = Stories::new();
    let mut state = writer.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for version in 1..=STEPS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let id = format!("{writer}-{}", state % ITEMS);
        let options = with_key(&format!(r#"["{id}"]"#));
        let story = stories.entry(id.clone()).or_default();
        let mut receipt = Receipt::default();
        if (state >> 32).is_multiple_of(4) && story.last().is_some_and(Option::is_some) {
            database.delete_item(&mut receipt, (DATABASE, CONTAINER, &id), &options).await.unwrap();
            story.push(None);
        } else {
            let body = Bytes::from(format!(r#"{{"id":"{id}","pk":"{id}","version":{version}}}"#));
            database.upsert_item(&mut receipt, PLACE, &options, &body).await.unwrap();
            story.push(Some(version));
        }
        tokio::task::yield_now().await;
    }
    stories
}

/// A reader as clients are: windows of keys, each with its own position.
struct Reader {
    mode: ChangeMode,
    windows: Vec<(EpkRange, ChangeStart)>,
    stories: Stories,
}

impl Reader {
    fn new(mode: ChangeMode, start: ChangeStart) -> Self {
        Self { mode, windows: vec![(EpkRange::full(), start)], stories: Stories::new() }
    }

    /// Reads all windows once; answers whether any had something new.
    async fn read(&mut self, database: &Database) -> bool {
        let mut any = false;
        for (window, start) in std::mem::take(&mut self.windows) {
            let request = ChangeRequest {
                mode: self.mode,
                scope: FeedScope { window: Some(window.clone()), ..FeedScope::default() },
                start,
                modified_since: None,
                session: None,
                page: PageRequest { items_max: Some(7), continuation: None },
                envelope: true,
                previous_images: false,
            };
            match database.read_changes(&mut Receipt::default(), PLACE, None, &request).await {
                Ok(page) => {
                    let text = [b"[".as_slice(), &page.documents, b"]"].concat();
                    parse(&text).as_array().unwrap().iter().for_each(|row| self.see(row));
                    any |= page.count > 0;
                    let position = page.etag.trim_matches('"').parse().unwrap();
                    self.windows.push((window, ChangeStart::After(position)));
                }
                // The window lies in several partitions now: each part goes on from the same position.
                Err(error) if error.kind == ErrorKind::PartitionGone => {
                    let catalog = database.catalog();
                    let container = catalog.container(DATABASE, CONTAINER).unwrap();
                    let parts = container.partitions.iter().filter_map(|part| part.range.intersect(&window));
                    self.windows.extend(parts.map(|part| (part, start)));
                    any = true;
                }
                Err(error) => panic!("{error}"),
            }
        }
        any
    }

    fn see(&mut self, row: &Value) {
        let (current, metadata) = (row.get("current").unwrap(), row.get("metadata").unwrap());
        let id = current.get("id").or_else(|| metadata.get("id")).and_then(Value::as_str).unwrap();
        let version = current.get("version").and_then(Value::as_i64);
        let version = version.map(|version| u64::try_from(version).unwrap());
        self.stories.entry(id.to_owned()).or_default().push(version);
    }
}

/// Reads until the writers are done and nothing is left.
async fn follow(database: Arc<Database>, mut reader: Reader, done: Arc<AtomicBool>) -> Stories {
    loop {
        let was_done = done.load(Ordering::Acquire);
        let any = reader.read(&database).await;
        if was_done && !any {
            return reader.stories;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_is_seen_once_across_splits_and_merges() {
    for engine in ENGINES {
        let world = World::with_partitions(engine, 1).await;
        world.create_container(&format!(r#"{BY_PK},"changeFeedPolicy":{{"retentionDuration":60}}"#)).await;
        let database = &world.database;
        let done = Arc::new(AtomicBool::new(false));
        let mut all = Reader::new(ChangeMode::AllVersions, ChangeStart::Now);
        assert!(!all.read(database).await);
        let latest = Reader::new(ChangeMode::LatestVersions, ChangeStart::Beginning);
        let all = tokio::spawn(follow(Arc::clone(database), all, Arc::clone(&done)));
        let latest = tokio::spawn(follow(Arc::clone(database), latest, Arc::clone(&done)));
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| tokio::spawn(write(Arc::clone(database), writer))).collect();

        // One becomes two, three, two, all while they are written to and read.
        let container = || database.catalog().container(DATABASE, CONTAINER).unwrap().clone();
        let first = || container().partitions[0].range_id;
        database.split_partition(container().rid, first()).await.unwrap();
        database.split_partition(container().rid, first()).await.unwrap();
        let neighbours = [container().partitions[1].range_id, container().partitions[2].range_id];
        database.merge_partitions(container().rid, neighbours).await.unwrap();

        let mut written = Stories::new();
        for writer in writers {
            written.extend(writer.await.unwrap());
        }
        done.store(true, Ordering::Release);
        assert_eq!(all.await.unwrap(), written, "{engine:?}");
        let seen = latest.await.unwrap();
        for (id, story) in &written {
            let versions = seen.get(id).cloned().unwrap_or_default();
            assert!(versions.is_sorted(), "{engine:?} {id}: {versions:?}");
            if let Some(last) = story.last().filter(|last| last.is_some()) {
                assert_eq!(versions.last(), Some(last), "{engine:?} {id}: {versions:?}");
            }
        }

        // Whoever begins later finds the last version of each item, once.
        let mut late = Reader::new(ChangeMode::LatestVersions, ChangeStart::Beginning);
        while late.read(database).await {}
        let last: Stories =
            written.into_iter().filter_map(|(id, story)| Some((id, vec![Some((*story.last()?)?)]))).collect();
        assert_eq!(late.stories, last, "{engine:?}");
    }
}
