//! Measures the strategies of `docs/partition-keys.md` on a database of this process.
//!
//! Time stands still but for the steps made here and randomness comes from a seed, so the tables are the same on
//! every machine.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;
use orrery_db::{Database, ItemOptions, Options, QueryOptions, QueryRequest, Receipt};
use orrery_env::Env;
use orrery_model::ErrorKind;
use orrery_model::offer::Throughput;
use orrery_storage::Memory;

const PARTITIONS: u32 = 8;
const THROUGHPUT: u32 = 800;
/// Each stands for half an hour of a day.
const SECONDS: u32 = 48;
const PLACE: (&str, &str) = ("db", "events");
const DATE: &str = "2018-08-09";

struct Stillness {
    now_ms: AtomicI64,
    random: AtomicU64,
}

impl Env for Stillness {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let mut mixed = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^= mixed >> 31;
            chunk.copy_from_slice(&mixed.to_le_bytes()[..chunk.len()]);
        }
    }
}

struct Strategy {
    name: &'static str,
    /// What the container's definition has besides its id.
    members: String,
}

fn strategies() -> Vec<Strategy> {
    let made = |name, definition: &str| {
        let key = r#""partitionKey":{"paths":["/partitionKey"],"kind":"Hash","version":2}"#;
        Strategy { name, members: format!(r#"{key},"orrerySyntheticKey":{definition}"#) }
    };
    let random = |count: u32| {
        format!(r#"{{"format":1,"kind":"randomSuffix","parts":["/date"],"suffix":{{"count":{count}}}}}"#)
    };
    let hashed = |count: u32| {
        format!(
            r#"{{"format":1,"kind":"precalculatedSuffix","parts":["/date"],"suffix":{{"of":["/VIN"],"count":{count}}}}}"#
        )
    };
    let levels = r#""partitionKey":{"paths":["/date","/VIN"],"kind":"MultiHash","version":2}"#;
    vec![
        Strategy {
            name: "date alone",
            members: r#""partitionKey":{"paths":["/date"],"kind":"Hash","version":2}"#.to_owned(),
        },
        made("concatenated: VIN and date", r#"{"format":1,"kind":"concatenate","parts":["/VIN","/date"]}"#),
        made("random suffix, n = 20", &random(20)),
        made("random suffix, n = 400", &random(400)),
        made("pre-calculated suffix, n = 20", &hashed(20)),
        made("pre-calculated suffix, n = 400", &hashed(400)),
        Strategy { name: "hierarchical: date, VIN", members: levels.to_owned() },
    ]
}

struct World {
    env: Arc<Stillness>,
    database: Arc<Database>,
}

struct Writes {
    share: f64,
    partitions: usize,
    refused: f64,
}

struct Read {
    keys: String,
    partitions: usize,
    items: usize,
    charge: f64,
}

impl World {
    async fn new(members: &str) -> Self {
        // 2026-01-01.
        let env =
            Arc::new(Stillness { now_ms: AtomicI64::new(1_767_225_600_000), random: AtomicU64::new(7) });
        let options = Options {
            throttle: true,
            partitions_at_creation: Some(PARTITIONS),
            sweep_interval_ms: 24 * 3_600_000,
            ..Options::default()
        };
        let database = Database::open(Arc::new(Memory::new()), env.clone(), options).await.unwrap();
        let mut receipt = Receipt::default();
        database.create_database(&mut receipt, br#"{"id":"db"}"#, None).await.unwrap();
        let body = format!(r#"{{"id":"events",{members}}}"#);
        let throughput = Some(Throughput::Manual(THROUGHPUT));
        database.create_container(&mut receipt, "db", body.as_bytes(), throughput).await.unwrap();
        Self { env, database }
    }

    fn advance(&self, seconds: i64) {
        self.env.now_ms.fetch_add(seconds * 1000, Ordering::Relaxed);
    }

    /// A day's writes, half as many again as the throughput allows.
    async fn day_of_writes(&self) -> Writes {
        let (mut delivered, mut served) = (0.0, BTreeSet::new());
        let (mut number, mut refused) = (0, 0);
        for second in 0..SECONDS {
            let mut asked = 0.0;
            while asked < 1.5 * f64::from(THROUGHPUT) {
                number += 1;
                let body = Bytes::from(format!(
                    r#"{{"id":"{number}","date":"{DATE}","time":"{:02}:{:02}","VIN":"VIN{}"}}"#,
                    second / 2,
                    second % 2 * 30,
                    number * 7919 % 5000
                ));
                let mut receipt = Receipt::default();
                let result =
                    self.database.create_item(&mut receipt, PLACE, &ItemOptions::default(), &body).await;
                self.database.settle(&receipt);
                match result {
                    Ok(_) => {
                        delivered += receipt.charge.as_f64();
                        served.extend(receipt.served.iter().map(|served| served.range_id));
                        asked += receipt.charge.as_f64();
                    }
                    Err(error) if matches!(error.kind, ErrorKind::TooManyRequests { .. }) => {
                        refused += 1;
                        asked += 7.0;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            self.advance(1);
        }
        Writes {
            share: delivered / f64::from(THROUGHPUT * SECONDS),
            partitions: served.len(),
            refused: f64::from(refused) / f64::from(number),
        }
    }

    /// One query of the server, all its pages together.
    async fn read(&self, filter: &str) -> Read {
        let text = format!(r#"{{"query":"SELECT VALUE c.id FROM c WHERE {filter}"}}"#);
        let request = QueryRequest::parse(text.as_bytes()).unwrap();
        let mut options = QueryOptions { cross_partition: true, ..QueryOptions::default() };
        options.page.items_max = Some(-1);
        let mut read = Read { keys: String::new(), partitions: 0, items: 0, charge: 0.0 };
        let mut served = BTreeSet::new();
        loop {
            self.advance(3600);
            let mut receipt = Receipt::default();
            let page = self.database.query_items(&mut receipt, PLACE, &options, &request).await.unwrap();
            self.database.settle(&receipt);
            served.extend(receipt.served.iter().map(|served| served.range_id));
            read.items += page.count;
            read.charge += receipt.charge.as_f64();
            read.keys = page.routing.keys.map_or_else(|| "all".to_owned(), |keys| keys.to_string());
            options.page.continuation = page.continuation;
            if options.page.continuation.is_none() {
                read.partitions = served.len();
                if page.routing.keys.is_none() && read.partitions < PARTITIONS as usize {
                    "a prefix".clone_into(&mut read.keys);
                }
                return read;
            }
        }
    }
}

/// The tables, by their names in the guide.
pub async fn tables() -> [(&'static str, String); 2] {
    let mut writes = String::from(
        "| key | share of the throughput delivered | partitions written to | throttled |\n|---|--:|--:|--:|\n",
    );
    let mut reads = String::from(
        "| key | one vehicle on a date: keys, partitions, RU | all of a date: keys, partitions, RU | one vehicle, any date: keys, partitions, RU |\n|---|--:|--:|--:|\n",
    );
    for strategy in strategies() {
        let world = World::new(&strategy.members).await;
        let measured = world.day_of_writes().await;
        writeln!(
            writes,
            "| {} | {:.0} % | {} of {PARTITIONS} | {:.0} % |",
            strategy.name,
            100.0 * measured.share,
            measured.partitions,
            100.0 * measured.refused
        )
        .unwrap();
        write!(reads, "| {} |", strategy.name).unwrap();
        let vehicle = "c.VIN = 'VIN77'";
        for filter in
            [format!("c.date = '{DATE}' AND {vehicle}"), format!("c.date = '{DATE}'"), vehicle.to_owned()]
        {
            let read = world.read(&filter).await;
            let per_item =
                if read.items > 100 { format!(" for {} items", read.items) } else { String::new() };
            write!(reads, " {}, {}, {:.1}{per_item} |", read.keys, read.partitions, read.charge).unwrap();
        }
        reads.push('\n');
    }
    [("writes", writes), ("reads", reads)]
}

/// The text of the guide with these tables in it.
pub fn with_tables(guide: &str, tables: &[(&'static str, String)]) -> String {
    let mut text = guide.to_owned();
    for (name, table) in tables {
        let (begin, end) = (format!("<!-- measured: {name} -->\n"), format!("<!-- end: {name} -->"));
        let from = text.find(&begin).unwrap() + begin.len();
        let to = from + text[from..].find(&end).unwrap();
        text.replace_range(from..to, table);
    }
    text
}
