//! The load generator for single-item operations and batches: one thread, as light as `wrk` and `pgbench`.
//!
//! The machine's processors are shared with the server, so whatever the generator spends is missing there, and differs
//! between protocols. Requests are written into one buffer and signed with a cached key schedule; of an answer only the
//! status, the length and the number of rows or results are looked at. A connection takes one write and one read per
//! exchange. `orrery-bench generator` compares it with `wrk` and `pgbench`.

mod http;
mod postgres;

use std::collections::BinaryHeap;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::documents::Zipf;
use crate::load::{Plan, Protocol, new_histogram};
use crate::workload::{Operation, Stream, Workload};

/// Whether the workload consists of operations that the light generator knows. The others are queries, which take the
/// server far longer than any generator.
pub fn serves(workload: Workload) -> bool {
    use Workload::{Batch50, Create, PointRead, Upsert, YcsbA, YcsbB, YcsbC, YcsbD, YcsbF};
    matches!(workload, PointRead | Create | Upsert | Batch50 | YcsbA | YcsbB | YcsbC | YcsbD | YcsbF)
}

/// What a run has done.
pub struct Tally {
    /// Operations of the measured time.
    pub timed: Histogram<u64>,
    /// All operations, with those of the warm-up and those that ended late.
    pub whole: Histogram<u64>,
    pub start: Instant,
    pub last_ended: Instant,
}

/// A protocol: writes requests, and finds the end of their answers.
trait Dialect {
    /// Appends the request of an operation.
    fn request(&mut self, operation: Operation, out: &mut Vec<u8>);
    /// The answer at the beginning of the bytes, once it is complete; an error unless it is what the operation must give.
    fn answer(&self, operation: Operation, bytes: &[u8]) -> Result<Option<Answer>, String>;
    /// Opens a connection that is ready for requests.
    fn open(&self) -> io::Result<std::net::TcpStream>;
    /// Called now and then.
    fn refresh(&mut self);
}

struct Answer {
    bytes: usize,
    /// The server closes the connection after it.
    closes: bool,
}

/// Executes a plan on the calling thread.
pub fn run(plan: &Plan) -> Result<Tally, String> {
    match plan.protocol {
        Protocol::Cosmos => Generator::run(plan, http::Http::new(&plan.address)),
        Protocol::Postgres => Generator::run(plan, postgres::Postgres::new(&plan.address, plan.workload)),
    }
}

/// Signatures stay valid for 15 minutes.
const REFRESH_TIME: Duration = Duration::from_mins(5);
/// No operation takes this long: beyond it the response will not come.
const SILENCE_MAX: Duration = Duration::from_secs(100);
const INBOX_BYTES: usize = 32 << 10;

/// One connection, with at most one exchange in progress.
struct Link {
    socket: TcpStream,
    stream: Stream,
    operation: Option<Operation>,
    /// The second exchange of the operation.
    then: Option<Operation>,
    begun: Instant,
    /// When the next operation is due, in an open loop.
    planned: Instant,
    outbox: Vec<u8>,
    sent: usize,
    inbox: Vec<u8>,
    received: usize,
}

/// An idle connection and when its next operation is due; the earliest is the greatest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due(std::cmp::Reverse<Instant>, usize);

struct Generator<D> {
    dialect: D,
    poll: Poll,
    links: Vec<Link>,
    due: BinaryHeap<Due>,
    interval: Option<Duration>,
    measured_from: Instant,
    end: Instant,
    tally: Tally,
    /// Connections that have not ended.
    active: usize,
}

impl<D: Dialect> Generator<D> {
    fn run(plan: &Plan, dialect: D) -> Result<Tally, String> {
        pin_to_last_processor();
        let zipf = Stream::needs_zipf(plan.workload).then(|| Zipf::new(plan.items));
        let poll = Poll::new().map_err(text)?;
        let opened_at = now();
        let mut links = Vec::new();
        for connection in 0..plan.connections {
            let socket = register(&poll, &dialect, connection as usize).map_err(text)?;
            let stream =
                Stream::new(plan.workload, plan.items, plan.seed, plan.run, connection, zipf.clone());
            links.push(Link {
                socket,
                stream,
                operation: None,
                then: None,
                begun: opened_at,
                planned: opened_at,
                outbox: Vec::with_capacity(2 << 10),
                sent: 0,
                inbox: vec![0; INBOX_BYTES],
                received: 0,
            });
        }
        let start = now();
        let measured_from = start + Duration::from_millis(plan.warm_up_ms);
        let mut generator = Self {
            dialect,
            poll,
            active: links.len(),
            links,
            due: BinaryHeap::new(),
            interval: plan.rate.map(|rate| Duration::from_secs_f64(plan.connections as f64 / rate)),
            measured_from,
            end: measured_from + Duration::from_millis(plan.measure_ms),
            tally: Tally { timed: new_histogram(), whole: new_histogram(), start, last_ended: start },
        };
        generator.work()?;
        Ok(generator.tally)
    }

    fn work(&mut self) -> Result<(), String> {
        let start = self.tally.start;
        for at in 0..self.links.len() {
            match self.interval {
                None => self.begin(at, start)?,
                Some(interval) => {
                    // Connections take turns, so that the planned times are spread evenly.
                    let shift = interval.mul_f64(at as f64 / self.links.len() as f64);
                    self.links[at].planned = start + shift;
                    self.due.push(Due(std::cmp::Reverse(start + shift), at));
                }
            }
        }
        let mut events = Events::with_capacity(1024);
        let mut refreshed = start;
        while self.active > 0 {
            let asked_at = now();
            let timeout = self.due.peek().map(|due| due.0.0.saturating_duration_since(asked_at));
            match self.poll.poll(&mut events, Some(timeout.unwrap_or(SILENCE_MAX))) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => other.map_err(text)?,
            }
            for event in &events {
                self.advance(event.token().0)?;
            }
            let passed = now();
            if events.is_empty() && timeout.is_none() && passed - asked_at >= SILENCE_MAX {
                return Err(format!("no answer within {} seconds", SILENCE_MAX.as_secs()));
            }
            while self.due.peek().is_some_and(|due| due.0.0 <= passed) {
                let Some(Due(planned, at)) = self.due.pop() else { break };
                self.begin(at, planned.0)?;
            }
            if passed - refreshed >= REFRESH_TIME {
                refreshed = passed;
                self.dialect.refresh();
            }
        }
        Ok(())
    }

    /// Begins the next operation of a connection, unless the time is over.
    fn begin(&mut self, at: usize, begun: Instant) -> Result<(), String> {
        let link = &mut self.links[at];
        link.begun = begun;
        if begun >= self.end {
            self.active -= 1;
            return Ok(());
        }
        let (first, then) = match link.stream.next() {
            Operation::ReadModifyWrite(number, version) => {
                (Operation::Read(number), Some(Operation::Upsert(number, version)))
            }
            operation => (operation, None),
        };
        link.then = then;
        self.send(at, first)
    }

    fn send(&mut self, at: usize, operation: Operation) -> Result<(), String> {
        let link = &mut self.links[at];
        link.operation = Some(operation);
        link.outbox.clear();
        link.sent = 0;
        self.dialect.request(operation, &mut link.outbox);
        link.flush().map_err(text)
    }

    /// Sends and receives what the connection is ready for.
    fn advance(&mut self, at: usize) -> Result<(), String> {
        self.links[at].flush().map_err(text)?;
        loop {
            let link = &mut self.links[at];
            let Some(operation) = link.operation else { return Ok(()) };
            let free = link.inbox.len() - link.received;
            let read = match link.socket.read(&mut link.inbox[link.received..]) {
                Ok(0) => return Err("the connection was closed".to_owned()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.to_string()),
            };
            link.received += read;
            if let Some(answer) = self.dialect.answer(operation, &link.inbox[..link.received])? {
                if answer.bytes != link.received {
                    return Err("more was received than one answer".to_owned());
                }
                link.received = 0;
                link.operation = None;
                if answer.closes {
                    link.socket = register(&self.poll, &self.dialect, at).map_err(text)?;
                }
                return self.answered(at);
            }
            // Less than there was space for was all there is; what comes later is another event.
            if read < free {
                return Ok(());
            }
            let doubled = link.inbox.len() * 2;
            link.inbox.resize(doubled, 0);
        }
    }

    fn answered(&mut self, at: usize) -> Result<(), String> {
        if let Some(then) = self.links[at].then.take() {
            return self.send(at, then);
        }
        let ended = now();
        let link = &mut self.links[at];
        let begun = link.begun;
        // In an open loop, what was planned counts however late it ends: leaving it out would hide the stall.
        let counts = begun >= self.measured_from && (self.interval.is_some() || ended <= self.end);
        let taken = u64::try_from((ended - begun).as_micros()).unwrap_or(u64::MAX).max(1);
        self.tally.last_ended = ended;
        self.tally.whole.saturating_record(taken);
        if counts {
            self.tally.timed.saturating_record(taken);
        }
        match self.interval {
            None => self.begin(at, ended),
            Some(interval) => {
                link.planned += interval;
                let planned = link.planned;
                if planned <= ended {
                    return self.begin(at, planned);
                }
                self.due.push(Due(std::cmp::Reverse(planned), at));
                Ok(())
            }
        }
    }
}

impl Link {
    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.outbox.len() {
            match self.socket.write(&self.outbox[self.sent..]) {
                Ok(written) => self.sent += written,
                // An event follows once there is space, or once a new connection is established.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn register(poll: &Poll, dialect: &impl Dialect, at: usize) -> io::Result<TcpStream> {
    let socket = dialect.open()?;
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)?;
    let mut socket = TcpStream::from_std(socket);
    poll.registry().register(&mut socket, Token(at), Interest::READABLE | Interest::WRITABLE)?;
    Ok(socket)
}

/// A generator that moves between processors disturbs the server on all of them.
fn pin_to_last_processor() {
    let last = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) - 1;
    let mut processors = rustix::thread::CpuSet::new();
    processors.set(last);
    // Where it is not allowed, the figures are a little worse.
    rustix::thread::sched_setaffinity(None, &processors).ok();
}

#[expect(clippy::disallowed_methods, reason = "latency is measured in real time")]
fn now() -> Instant {
    Instant::now()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
