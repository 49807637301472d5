//! The limits of this machine: a server that only repeats a response, the same with signature checks, the storage engine
//! alone, and the disk.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use orrery_gateway::auth::{AccountKeys, AuthOptions, MasterKey, SignedRequest, authenticate};
use orrery_storage::{
    Decision, Embedded, EmbeddedOptions, Key, KeyPacker, Lsn, Op, PackedKeys, PartitionId, PartitionRef,
    PartitionStore, View, WriteSet, commit,
};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::documents;

/// An answer to be repeated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// Serves the sample for every request until the process is ended; prints its address first.
#[expect(clippy::print_stdout, reason = "the address is for the process that started this one")]
pub async fn serve(sample: Sample, checks_signature: bool) -> std::io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    println!("{}", listener.local_addr()?);
    let sample = Arc::new(sample);
    let keys = Arc::new(AccountKeys::new(MasterKey::well_known()));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (sample, keys) = (Arc::clone(&sample), Arc::clone(&keys));
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let (sample, keys) = (Arc::clone(&sample), Arc::clone(&keys));
                async move {
                    let (parts, body) = request.into_parts();
                    // The client may have sent one; it belongs to the work of a server.
                    body.collect().await.ok();
                    if checks_signature {
                        let options = AuthOptions { check_clock: false, ..AuthOptions::default() };
                        if authenticate(&SignedRequest::of(&parts), &keys, options, 0).is_err() {
                            let mut refused = Response::new(Full::new(Bytes::new()));
                            *refused.status_mut() = hyper::StatusCode::UNAUTHORIZED;
                            return Ok(refused);
                        }
                    }
                    // The writes of a mix are told apart by what they expect.
                    let creates =
                        parts.method == "POST" && !parts.headers.contains_key("x-ms-documentdb-isquery");
                    let mut response = Response::builder().status(if creates { 201 } else { 200 });
                    for (name, value) in &sample.headers {
                        response = response.header(name, value);
                    }
                    let body = Full::new(Bytes::copy_from_slice(sample.body.as_bytes()));
                    let fallback = || Response::new(Full::new(Bytes::new()));
                    Ok::<_, Infallible>(response.body(body).unwrap_or_else(|_| fallback()))
                }
            });
            http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}

/// Flushes of one page to the disk, a second.
pub fn disk_flushes(directory: &Path, time: Duration) -> std::io::Result<f64> {
    let mut file = File::create(directory.join("flush"))?;
    let page = [7_u8; 4096];
    let begun = Instant::now();
    let mut count = 0_u64;
    while begun.elapsed() < time {
        file.write_all(&page)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// How many index entries an item has: one for each of its 14 properties and its timestamp.
const ENTRIES: u8 = 15;
/// The first of them that an update changes; id, key and code stay.
const FIRST_CHANGED: u8 = 3;
/// Items that one writer of updates goes round.
const UPDATED_ITEMS: u64 = 100;

/// The writes of items under one partition key, as Orrery makes them: each item itself, its index entries, its place
/// in the feed, its RID, and the counters of the key. An update removes what the version before has left.
struct WriteItems {
    numbers: std::ops::Range<u64>,
    bodies: Vec<Bytes>,
    /// Index entries, and those of the version before; made before the committer's turn, as in the product.
    entries: Vec<(PackedKeys, PackedKeys)>,
}

fn place(number: u64) -> Vec<u8> {
    let mut random = documents::Random::new(number / documents::ITEMS_PER_KEY);
    let mut place = [random.next().to_be_bytes(), random.next().to_be_bytes()].concat();
    place.extend_from_slice(&[0, 0]);
    place
}

fn item_key(number: u64) -> Key {
    [&[0x10], place(number).as_slice(), documents::id(number).as_bytes()].concat()
}

fn entry_key(number: u64, version: u64, entry: u8) -> Key {
    let seed = if entry < FIRST_CHANGED { number } else { number.wrapping_mul(31).wrapping_add(version) };
    let mut random = documents::Random::new(seed.wrapping_mul(16).wrapping_add(entry.into()));
    let mut key = vec![0x20, 0, 0, 0, 1, entry, entry, entry, entry, entry, entry, entry, entry];
    // Texts are in the index up to a bound; most of ours are 96 bytes long.
    for _ in 0..(if entry < 7 { 2 } else { 12 }) {
        key.extend_from_slice(&random.next().to_be_bytes());
    }
    key.extend_from_slice(&item_key(number)[1..]);
    key
}

fn entries(number: u64, version: u64, first: u8) -> PackedKeys {
    let mut packer = KeyPacker::with_capacity(usize::from(ENTRIES), 2048);
    for entry in first..ENTRIES {
        packer.bytes().extend_from_slice(&entry_key(number, version, entry));
        packer.end_key();
    }
    packer.finish()
}

impl WriteItems {
    fn new(numbers: std::ops::Range<u64>, version: u64) -> Self {
        let bodies = numbers.clone().map(|number| Bytes::from(documents::item(number, version)));
        let first = if version > 0 { FIRST_CHANGED } else { 0 };
        let entries = numbers.clone().map(|number| {
            let before = version.checked_sub(1).map(|before| entries(number, before, first));
            (entries(number, version, first), before.unwrap_or_default())
        });
        Self { bodies: bodies.collect(), entries: entries.collect(), numbers }
    }

    fn counters_key(&self) -> Key {
        [&[0x60], place(self.numbers.start).as_slice()].concat()
    }
}

impl Op for WriteItems {
    type Out = Lsn;

    fn id(&self) -> u128 {
        self.numbers.start.into()
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        keys.push(self.counters_key());
        keys.push(vec![0x08]);
        keys.push(vec![0x36, 0, 0]);
        keys.extend(self.numbers.clone().map(item_key));
    }

    fn decide(&self, view: &dyn View, lsn: Lsn) -> Decision<Lsn> {
        let mut writes = WriteSet::default();
        let made = self.bodies.iter().zip(&self.entries);
        for (number, (body, (new_entries, old_entries))) in self.numbers.clone().zip(made) {
            let item_key = item_key(number);
            let old = view.get(&item_key);
            writes.unread.push((new_entries.clone(), Some(Bytes::from_static(&[0; 8]))));
            if old.is_some() {
                writes.unread.push((old_entries.clone(), None));
            }
            let position = number - self.numbers.start;
            let feed = |lsn: &[u8]| [&[0x30], lsn, &position.to_be_bytes()[6..]].concat();
            match old.as_deref().and_then(|old| old.first_chunk::<8>()) {
                Some(old) => writes.delete(feed(old)),
                None => writes.put([&[0x18], &number.to_be_bytes()[..]].concat(), item_key.clone()),
            }
            writes.put(feed(&lsn.to_be_bytes()), item_key.clone());
            writes.put(item_key, [&lsn.to_be_bytes()[..], &[0; 24], body].concat());
        }
        writes.put(self.counters_key(), vec![0; 48]);
        Decision::Write(writes, lsn)
    }
}

/// Durable writes of the engine alone, a second, with so many writers at once.
pub async fn engine_writes(
    directory: &Path,
    shape: &str,
    writers: u64,
    time: Duration,
) -> Result<f64, String> {
    let (updates, items) = match shape {
        "create" => (false, 1),
        "upsert" => (true, 1),
        "batch50" => (false, 50),
        _ => return Err(format!("there is no shape \"{shape}\"")),
    };
    let store = Embedded::open(directory, EmbeddedOptions::default()).map_err(|error| error.to_string())?;
    let store: Arc<dyn PartitionStore> = Arc::new(store);
    store.create(PartitionId(1), 0).await.map_err(|error| error.to_string())?;
    let partition = PartitionRef { id: PartitionId(1), epoch: 0 };
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    if updates {
        for writer in 0..writers {
            let first = writer * 10_000_000;
            let write = WriteItems::new(first..first + UPDATED_ITEMS, 0);
            commit(&*store, partition, write).await.map_err(|error| error.to_string())?;
        }
    }
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let (store, stop, done) = (Arc::clone(&store), Arc::clone(&stop), Arc::clone(&done));
            tokio::spawn(async move {
                let first = writer * 10_000_000;
                let mut turn = 0;
                while !stop.load(Ordering::Relaxed) {
                    let (number, version) = match (updates, items) {
                        (true, _) => (first + turn % UPDATED_ITEMS, 1 + turn / UPDATED_ITEMS),
                        (_, 1) => (first + turn, 0),
                        // Each batch under a key of its own.
                        _ => (first + turn * documents::ITEMS_PER_KEY, 0),
                    };
                    let write = WriteItems::new(number..number + items, version);
                    if let Err(error) = commit(&*store, partition, write).await {
                        return Err(error.to_string());
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    turn += 1;
                }
                Ok(())
            })
        })
        .collect();
    // The first part warms up.
    tokio::time::sleep(time / 3).await;
    let (before, begun) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(time).await;
    let rate = (done.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.map_err(|error| error.to_string())??;
    }
    store.close().await.map_err(|error| error.to_string())?;
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The engine takes all shapes that it is the limit of.
    #[tokio::test(flavor = "multi_thread")]
    async fn every_shape_writes() {
        for shape in ["create", "upsert", "batch50"] {
            let directory = tempfile::tempdir().unwrap();
            let rate = engine_writes(directory.path(), shape, 2, Duration::from_millis(200)).await;
            assert!(rate.unwrap() > 0.0, "{shape}");
        }
        assert!(engine_writes(Path::new("/nowhere"), "other", 1, Duration::ZERO).await.is_err());
    }
}
