//! Measures group commit on PostgreSQL, with the bare store: concurrent tasks write new items (1 KB of body, eighteen
//! index and feed entries), grouped and with one transaction each.
//!
//! `commit_bench URL [--seconds n] [--rounds n] [--tasks n] [--partitions n]` prints one line per round and variant, and
//! the ratio of the medians. `scripts/postgres.sh run` with `ORRERY_TEST_FSYNC=on` starts a server for it; the URL then
//! comes from `ORRERY_TEST_STORE_URL`.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for developers")]
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "rounded figures")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orrery_storage::{
    Decision, Key, Lsn, Op, PartitionId, PartitionRef, PartitionStore, Postgres, PostgresOptions, View,
    WriteSet, commit,
};

const ENTRIES: u64 = 18;

/// Scrambles a number so that consecutive inputs end up far apart.
fn scattered(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB)
}

struct Create(u64);

impl Create {
    fn key(&self) -> Key {
        [b"item".as_slice(), &scattered(self.0).to_be_bytes(), &self.0.to_be_bytes()].concat()
    }
}

impl Op for Create {
    type Out = bool;

    fn id(&self) -> u128 {
        u128::from(self.0)
    }

    fn reads(&self, wanted: &mut Vec<Key>) {
        wanted.push(self.key());
    }

    fn decide(&self, view: &dyn View, lsn: Lsn) -> Decision<bool> {
        if view.get(&self.key()).is_some() {
            return Decision::Reject(false);
        }
        let mut writes = WriteSet::default();
        writes.put(self.key(), vec![b'x'; 1000]);
        writes.put([b"feed".as_slice(), &lsn.to_be_bytes()].concat(), self.key());
        for entry in 1..ENTRIES {
            let value = scattered(self.0.wrapping_mul(64).wrapping_add(entry));
            let key =
                [&[b'x', entry as u8][..], &value.to_be_bytes(), &[b'v'; 24], &self.0.to_be_bytes()].concat();
            writes.put(key, self.0.to_be_bytes().to_vec());
        }
        Decision::Write(writes, true)
    }
}

struct Form {
    name: &'static str,
    store: Arc<dyn PartitionStore>,
    rates: Vec<f64>,
}

async fn measure(form: &mut Form, tasks: u64, partitions: u32, seconds: u64, numbers: &Arc<AtomicU64>) {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..tasks)
        .map(|_| {
            let (store, stop, done) = (Arc::clone(&form.store), Arc::clone(&stop), Arc::clone(&done));
            let numbers = Arc::clone(numbers);
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let number = numbers.fetch_add(1, Ordering::Relaxed);
                    let id = PartitionId((scattered(number) % u64::from(partitions)) as u32 + 1);
                    let made = commit(&*store, PartitionRef { id, epoch: 0 }, Create(number)).await.unwrap();
                    assert!(made.out, "it was there already");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300 * seconds)).await;
    let (began, before) = (Instant::now(), done.load(Ordering::Relaxed));
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let rate = (done.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    println!("{}: {rate:.0}/s", form.name);
    form.rates.push(rate);
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut seconds, mut rounds, mut tasks, mut partitions) = (2, 3, 64, 8);
    let mut url = std::env::var("ORRERY_TEST_STORE_URL").unwrap_or_default();
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number follows");
        match argument.as_str() {
            "--seconds" => seconds = number(),
            "--rounds" => rounds = number(),
            "--tasks" => tasks = number(),
            "--partitions" => partitions = number() as u32,
            _ => url = argument,
        }
    }
    let joint = if url.contains('?') { '&' } else { '?' };
    let run = std::process::id();
    let mut forms = Vec::new();
    for (name, parameters) in [
        ("grouped", ""),
        ("ungrouped, pool of 16", "&grouping=off"),
        ("pool of 64", "&grouping=off&pool_max=64"),
    ] {
        let schema = format!("commits_{run}_{}", forms.len());
        let options = PostgresOptions::parse(&format!("{url}{joint}schema={schema}{parameters}")).unwrap();
        let store: Arc<dyn PartitionStore> = Arc::new(Postgres::open(options).await.unwrap());
        for number in 1..=partitions {
            store.create(PartitionId(number), 0).await.unwrap();
        }
        forms.push(Form { name, store, rates: Vec::new() });
    }
    let numbers = Arc::new(AtomicU64::new(0));
    for _ in 0..rounds {
        for form in &mut forms {
            measure(form, tasks, partitions, seconds, &numbers).await;
        }
    }
    let medians: Vec<f64> = forms.iter_mut().map(|form| median(&mut form.rates)).collect();
    let better = medians[1..].iter().copied().fold(0.0, f64::max);
    println!("grouped ÷ the better ungrouped: {:.2}", medians[0] / better);
    for form in forms {
        form.store.close().await.unwrap();
    }
}
