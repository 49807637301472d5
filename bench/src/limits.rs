//! What could be reached at most on this machine: a server that only repeats an answer, the same with the check of
//! signatures, the storage engine without everything around it, and the disk.

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
    Decision, Embedded, EmbeddedOptions, Key, Lsn, Op, PartitionId, PartitionRef, PartitionStore, View,
    WriteSet, commit,
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
                    let mut response = Response::builder();
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

/// The writes of one created item: itself, an index entry for each of its 14 paths, its place in the feed, its RID,
/// the counters of its key.
struct CreateItem {
    number: u64,
    body: Bytes,
}

impl CreateItem {
    fn key_bytes(&self) -> Vec<u8> {
        let mut key =
            documents::Random::new(self.number / documents::ITEMS_PER_KEY).next().to_be_bytes().to_vec();
        key.extend_from_slice(&key.clone());
        key
    }

    fn item_key(&self) -> Key {
        [&[0x10], self.key_bytes().as_slice(), documents::id(self.number).as_bytes()].concat()
    }

    fn counters_key(&self) -> Key {
        [&[0x70], self.key_bytes().as_slice()].concat()
    }
}

impl Op for CreateItem {
    type Out = Lsn;

    fn id(&self) -> u128 {
        self.number.into()
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        keys.push(self.item_key());
        keys.push(self.counters_key());
    }

    fn decide(&self, _view: &dyn View, lsn: Lsn) -> Decision<Lsn> {
        let mut writes = WriteSet::default();
        let item_key = self.item_key();
        let mut random = documents::Random::new(self.number);
        for path in 0..14_u8 {
            // Texts are in the index up to a bound; most of ours are 96 bytes long.
            let mut key = vec![0x20, 0, 0, 0, 1, path, path, path, path, path, path, path, path];
            for _ in 0..(if path < 6 { 2 } else { 12 }) {
                key.extend_from_slice(&random.next().to_be_bytes());
            }
            key.extend_from_slice(&item_key[1..]);
            writes.put(key, Bytes::new());
        }
        writes.put(item_key.clone(), self.body.clone());
        writes.put([&[0x30], &lsn.to_be_bytes()[..]].concat(), item_key.clone());
        writes.put([&[0x40], &self.number.to_be_bytes()[..]].concat(), item_key);
        writes.put(self.counters_key(), vec![0; 48]);
        Decision::Write(writes, lsn)
    }
}

/// Durable creates of the engine alone, a second, with so many writers at once.
pub async fn engine_creates(directory: &Path, writers: u64, time: Duration) -> Result<f64, String> {
    let store = Embedded::open(directory, EmbeddedOptions::default()).map_err(|error| error.to_string())?;
    let store: Arc<dyn PartitionStore> = Arc::new(store);
    store.create(PartitionId(1), 0).await.map_err(|error| error.to_string())?;
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let (store, stop, done) = (Arc::clone(&store), Arc::clone(&stop), Arc::clone(&done));
            tokio::spawn(async move {
                let mut number = writer * 10_000_000;
                while !stop.load(Ordering::Relaxed) {
                    let body = Bytes::from(documents::item(number, 0));
                    let partition = PartitionRef { id: PartitionId(1), epoch: 0 };
                    if let Err(error) = commit(&*store, partition, CreateItem { number, body }).await {
                        return Err(error.to_string());
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    number += 1;
                }
                Ok(())
            })
        })
        .collect();
    // The first part warms up.
    tokio::time::sleep(time / 4).await;
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
