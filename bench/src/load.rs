//! The load generator: connections that run operations one after the other (closed loop) or at scheduled times (open
//! loop), with a latency histogram.
//!
//! In an open loop latency is measured from the scheduled time, not from when the connection was free (no coordinated
//! omission): a stall counts for every request that would have been sent during it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::documents::Zipf;
use crate::light::{self, Tally};
use crate::workload::{Operation, Stream, Workload};
use crate::{cosmos, postgres};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Cosmos,
    Postgres,
}

/// What one process of the generator does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub protocol: Protocol,
    pub address: String,
    pub workload: Workload,
    pub items: u64,
    pub connections: u64,
    pub warm_up_ms: u64,
    pub measure_ms: u64,
    pub seed: u64,
    /// Numbers runs against one server, so that new items do not meet.
    pub run: u64,
    /// Operations a second, all connections together; none = as fast as they go.
    pub rate: Option<f64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    pub operations: u64,
    /// With those of the warm-up and after the end, for dividing processor time.
    pub all_operations: u64,
    pub seconds: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
    /// The first failure; the rest of the figures is worth nothing then.
    pub failure: Option<String>,
}

impl Figures {
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.operations as f64 / self.seconds } else { 0.0 }
    }
}

enum Session {
    Cosmos(Box<cosmos::Session>),
    Postgres(Box<postgres::Session>),
}

impl Session {
    async fn open(plan: &Plan) -> Result<Self, String> {
        Ok(match plan.protocol {
            Protocol::Cosmos => Self::Cosmos(Box::new(cosmos::Session::open(&plan.address).await?)),
            Protocol::Postgres => Self::Postgres(Box::new(postgres::Session::open(&plan.address).await?)),
        })
    }

    async fn perform(&mut self, operation: Operation) -> Result<(), String> {
        match self {
            Self::Cosmos(session) => session.perform(operation).await,
            Self::Postgres(session) => session.perform(operation).await,
        }
    }
}

pub async fn run(plan: &Plan) -> Figures {
    match measure(plan).await {
        Ok(figures) => figures,
        Err(failure) => Figures { failure: Some(failure), ..Figures::default() },
    }
}

async fn measure(plan: &Plan) -> Result<Figures, String> {
    let tally = if light::serves(plan.workload) {
        let plan = plan.clone();
        // A thread of its own, because it blocks.
        let run = tokio::task::spawn_blocking(move || light::run(&plan));
        run.await.map_err(|error| error.to_string())??
    } else {
        run_sessions(plan).await?
    };
    Ok(figures(plan, tally))
}

/// Queries, on a connection and a task each.
async fn run_sessions(plan: &Plan) -> Result<Tally, String> {
    let zipf = Stream::needs_zipf(plan.workload).then(|| Zipf::new(plan.items));
    let mut sessions = Vec::new();
    for _ in 0..plan.connections {
        sessions.push(Session::open(plan).await?);
    }
    let start = Instant::now() + Duration::from_millis(20);
    let measured_from = start + Duration::from_millis(plan.warm_up_ms);
    let end = measured_from + Duration::from_millis(plan.measure_ms);
    let failed = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = sessions
        .into_iter()
        .zip(0_u64..)
        .map(|(session, connection)| {
            let stream =
                Stream::new(plan.workload, plan.items, plan.seed, plan.run, connection, zipf.clone());
            let interval = plan.rate.map(|rate| Duration::from_secs_f64(plan.connections as f64 / rate));
            // Connections take turns, so that the planned times are spread evenly.
            let shift = interval.map_or(Duration::ZERO, |interval| {
                interval.mul_f64(connection as f64 / plan.connections as f64)
            });
            let worker = Worker { session, stream, interval, start: start + shift, measured_from, end };
            tokio::spawn(worker.work(Arc::clone(&failed)))
        })
        .collect();
    let (mut timed, mut whole) = (new_histogram(), new_histogram());
    let mut last_ended = start;
    for task in tasks {
        let done = task.await.map_err(|error| error.to_string())??;
        timed.add(&done.timed).map_err(|error| error.to_string())?;
        whole.add(&done.whole).map_err(|error| error.to_string())?;
        last_ended = last_ended.max(done.last_ended);
    }
    Ok(Tally { timed, whole, start, last_ended })
}

fn figures(plan: &Plan, tally: Tally) -> Figures {
    let Tally { timed, whole, start, last_ended } = tally;
    let all_operations = whole.len();
    let measured = Duration::from_millis(plan.measure_ms);
    // Operations that were under way at the beginning or the end are left out, and so is the time before and after:
    // few among many. Where there are not many, all count, from the beginning of the first to the end of the last.
    let is_slow = plan.rate.is_none() && timed.len() < SLOW_OPERATIONS * plan.connections;
    let (histogram, time) = if is_slow { (whole, last_ended - start) } else { (timed, measured) };
    Figures {
        operations: histogram.len(),
        all_operations,
        seconds: time.as_secs_f64(),
        p50_us: histogram.value_at_quantile(0.5),
        p99_us: histogram.value_at_quantile(0.99),
        p999_us: histogram.value_at_quantile(0.999),
        max_us: histogram.max(),
        failure: None,
    }
}

/// Operations of each connection below which a closed loop counts everything it has done.
const SLOW_OPERATIONS: u64 = 4;

pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000, 3).expect("the bounds are valid")
}

struct Worker {
    session: Session,
    stream: Stream,
    interval: Option<Duration>,
    start: Instant,
    measured_from: Instant,
    end: Instant,
}

/// What one connection has done.
struct Done {
    /// Operations of the measured time.
    timed: Histogram<u64>,
    /// All operations, with those of the warm-up and those that ended late.
    whole: Histogram<u64>,
    last_ended: Instant,
}

impl Worker {
    async fn work(mut self, failed: Arc<AtomicBool>) -> Result<Done, String> {
        let mut done = Done { timed: new_histogram(), whole: new_histogram(), last_ended: self.start };
        let mut planned = self.start;
        tokio::time::sleep_until(self.start.into()).await;
        while !failed.load(Ordering::Relaxed) {
            let begun = match self.interval {
                None => Instant::now(),
                Some(interval) => {
                    tokio::time::sleep_until(planned.into()).await;
                    let begun = planned;
                    planned += interval;
                    begun
                }
            };
            if begun >= self.end {
                break;
            }
            let operation = self.stream.next();
            if let Err(failure) = self.session.perform(operation).await {
                failed.store(true, Ordering::Relaxed);
                return Err(failure);
            }
            done.last_ended = Instant::now();
            let counts = match self.interval {
                None => begun >= self.measured_from && done.last_ended <= self.end,
                // What was planned counts, however late it ends: leaving it out would hide the stall.
                Some(_) => begun >= self.measured_from,
            };
            let taken = u64::try_from((done.last_ended - begun).as_micros()).unwrap_or(u64::MAX).max(1);
            done.whole.saturating_record(taken);
            if counts {
                done.timed.saturating_record(taken);
            }
        }
        Ok(done)
    }
}

/// Loads all items with several connections and tells how long that took.
pub async fn fill(protocol: Protocol, address: &str, items: u64, bulk: bool) -> Result<Duration, String> {
    const CONNECTIONS: u64 = 8;
    let begun = Instant::now();
    let mut tasks = Vec::new();
    let share = items.div_ceil(CONNECTIONS).div_ceil(100) * 100;
    match protocol {
        Protocol::Cosmos => cosmos::Session::open(address).await?.set_up().await?,
        Protocol::Postgres => postgres::Session::open(address).await?.set_up().await?,
    }
    for part in 0..CONNECTIONS {
        let (from, to) = ((part * share).min(items), ((part + 1) * share).min(items));
        let address = address.to_owned();
        tasks.push(tokio::spawn(async move {
            match protocol {
                Protocol::Cosmos => cosmos::Session::open(&address).await?.load(from, to, bulk).await,
                Protocol::Postgres => postgres::Session::open(&address).await?.load(from, to).await,
            }
        }));
    }
    for task in tasks {
        task.await.map_err(|error| error.to_string())??;
    }
    let time = begun.elapsed();
    if protocol == Protocol::Postgres {
        postgres::Session::open(address).await?.tidy().await?;
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers at once, except for one pause.
    async fn stalling_server(pause_after: u32, pause: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{}", "x".repeat(1000));
            let mut buffer = [0; 4096];
            for request in 0_u32.. {
                if stream.read(&mut buffer).await.unwrap_or(0) == 0 {
                    return;
                }
                if request == pause_after {
                    tokio::time::sleep(pause).await;
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        address
    }

    fn plan(address: String, rate: Option<f64>) -> Plan {
        Plan {
            protocol: Protocol::Cosmos,
            address,
            workload: Workload::PointRead,
            items: 1000,
            connections: 1,
            warm_up_ms: 0,
            measure_ms: 1000,
            seed: 1,
            run: 0,
            rate,
        }
    }

    /// A pause of 400 ms meets four tenths of what was planned for a second, also what had not been sent yet.
    #[tokio::test]
    async fn open_loops_count_what_waits_behind_a_stall() {
        let address = stalling_server(20, Duration::from_millis(400)).await;
        let figures = run(&plan(address, Some(200.0))).await;
        assert_eq!(figures.failure, None);
        assert_eq!(figures.operations, 200);
        let address = stalling_server(20, Duration::from_millis(400)).await;
        let closed = run(&plan(address, None)).await;
        assert_eq!(closed.failure, None);
        // The closed loop has one slow operation, the open one some eighty.
        assert!(figures.p99_us > 300_000, "{figures:?}");
        assert!(closed.operations > 100 && closed.max_us >= 400_000, "{closed:?}");
    }

    /// Operations that take longer than the measured time are counted in the time that they took.
    #[tokio::test]
    async fn slow_operations_are_measured_to_their_end() {
        let address = stalling_server(0, Duration::from_millis(500)).await;
        let plan = Plan { warm_up_ms: 30, measure_ms: 100, ..plan(address, None) };
        let figures = run(&plan).await;
        assert_eq!((figures.failure, figures.operations, figures.all_operations), (None, 1, 1));
        assert!(figures.seconds >= 0.5 && figures.max_us >= 500_000, "{} s", figures.seconds);
    }

    #[tokio::test]
    async fn a_failure_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4096];
            assert!(stream.read(&mut buffer).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 500 No\r\ncontent-length: 4\r\n\r\nbad!").await.unwrap();
        });
        let figures = run(&plan(address, None)).await;
        assert_eq!(figures.failure.as_deref(), Some("status 500: bad!"));
    }
}
