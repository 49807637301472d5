//! Compares Orrery's embedded store with PostgreSQL, and measures group commit and the rows per statement.
//!
//! All servers run at once and are measured in turn, on a container with eight partitions: first read-only workloads, then
//! those that change items, then those that create items. A server with a tenth more items than stated is restarted. The
//! ungrouped variant uses one transaction per operation, with 64 connections to PostgreSQL (one per client), which is the
//! target's baseline, and with 16, which suit it better.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use clap::Args;
use tokio_postgres::NoTls;

use crate::cosmos;
use crate::load::{Figures, Plan, Protocol};
use crate::own::{block_on, fill, load, say};
use crate::process;
use crate::results::{Rates, median};
use crate::service::Growth;
use crate::workload::Workload;

#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The server's executable.
    #[arg(long, value_name = "FILE")]
    orrery: PathBuf,

    /// Output directory of stores.md.
    #[arg(long, value_name = "DIRECTORY", default_value = "bench")]
    output: PathBuf,

    /// URL of a PostgreSQL server or Citus cluster. [default: a durable server is started]
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    #[arg(long, default_value_t = 10_000)]
    items: u64,

    /// Limit the comparison of the stores to these workloads.
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,

    /// Number of rounds; the median is reported.
    #[arg(long, default_value_t = 3)]
    rounds: u64,

    /// The executable that measures commits of the store alone (`commit_bench` of orrery-storage).
    #[arg(long, value_name = "FILE")]
    commits: Option<PathBuf>,

    /// Duration of each measurement in seconds.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// As docs/deploy.md recommends: space for the indexes, and a large, recycled WAL that does not checkpoint every few
/// seconds. Tables are vacuumed after loading, so that autovacuum does not disturb a measurement. The statistics count
/// statements.
const SERVER_OPTIONS: &str = "-c shared_preload_libraries=pg_stat_statements -c shared_buffers=512MB \
     -c max_wal_size=4GB -c min_wal_size=4GB -c autovacuum=off";
/// Number of 16 MB files of that WAL.
const LOG_FILES: u32 = 256;

/// Request units that make eight partitions.
const THROUGHPUT: &str = "80000";
/// Connections of clients for the comparison of the stores.
const CONNECTIONS: u64 = 16;
/// And for that of grouped with ungrouped commits.
const WRITERS: [u64; 3] = [1, 16, WRITERS_MAX];
const WRITERS_MAX: u64 = 64;
/// The workload with a target gets this many rounds per round of the others: a single round may be off by a sixth when the
/// machine's speed varies.
const TARGET_ROUNDS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Embedded,
    Grouped,
    Ungrouped16,
    Ungrouped64,
}

impl Form {
    const ALL: [Self; 4] = [Self::Embedded, Self::Grouped, Self::Ungrouped16, Self::Ungrouped64];

    /// What its schemas are called, if it has any.
    fn schema(self) -> Option<&'static str> {
        match self {
            Self::Embedded => None,
            Self::Grouped => Some("bench_grouped"),
            Self::Ungrouped16 => Some("bench_ungrouped16"),
            Self::Ungrouped64 => Some("bench_ungrouped64"),
        }
    }

    fn parameters(self) -> &'static str {
        match self {
            Self::Embedded | Self::Grouped => "",
            Self::Ungrouped16 => "&grouping=off",
            Self::Ungrouped64 => "&grouping=off&pool_max=64",
        }
    }
}

/// A private PostgreSQL server. It stops when its standard input is closed.
struct Server {
    url: String,
    child: Child,
    input: Option<ChildStdin>,
}

impl Server {
    fn start() -> Result<Self, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/postgres.sh");
        let mut child = Command::new(script)
            .arg("serve")
            .env("ORRERY_TEST_FSYNC", "on")
            .env("ORRERY_TEST_POSTGRES_OPTIONS", SERVER_OPTIONS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("scripts/postgres.sh: {error}"))?;
        let mut url = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut url).map_err(|error| error.to_string())?;
        }
        let input = child.stdin.take();
        if url.trim().is_empty() {
            return Err("PostgreSQL did not start".to_owned());
        }
        let server = Self { url: url.trim().to_owned(), child, input };
        server.make_log()?;
        Ok(server)
    }

    /// Preallocates the WAL files, as on a server that has been running for a while. A commit that needs a new file waits
    /// until 16 MB of zeros are on disk, which on a new server would penalise the variant that writes most.
    fn make_log(&self) -> Result<(), String> {
        say("preallocating the WAL");
        block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.url, NoTls).await.map_err(|error| error.to_string())?;
            tokio::spawn(async move { connection.await.ok() });
            let switch = "SELECT pg_logical_emit_message(false, 'bench', ''); SELECT pg_switch_wal()";
            for _ in 0..LOG_FILES {
                client.batch_execute(switch).await.map_err(|error| error.to_string())?;
            }
            // Recycles them for later use.
            client.batch_execute("CHECKPOINT").await.map_err(|error| error.to_string())
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        self.child.wait().ok();
    }
}

/// An Orrery server, restarted when it has more items than stated, as in `service`.
struct Gateway<'a> {
    form: Form,
    program: &'a Path,
    url: &'a str,
    /// Where the embedded form keeps its data.
    data: &'a Path,
    items: u64,
    running: Option<Process>,
    growth: Growth,
    /// Numbers the starts, because each uses its own folder or schema.
    beginnings: u64,
    /// Numbers the runs, so that new items do not collide.
    runs: u64,
}

/// How long loading may take.
const FILL_TIME_MAX: Duration = Duration::from_mins(10);

impl<'a> Gateway<'a> {
    fn begin(
        form: Form,
        program: &'a Path,
        url: &'a str,
        data: &'a Path,
        items: u64,
    ) -> Result<Self, String> {
        let growth = Growth::new(items);
        let mut gateway =
            Self { form, program, url, data, items, running: None, growth, beginnings: 0, runs: 0 };
        gateway.ready()?;
        Ok(gateway)
    }

    /// The address of the server with the stated items.
    fn ready(&mut self) -> Result<&str, String> {
        if self.running.is_none() {
            self.remove_data();
            self.beginnings += 1;
            let mut arguments = vec!["--data".to_owned(), self.folder().display().to_string()];
            if let Some(schema) = self.schema() {
                let joint = if self.url.contains('?') { '&' } else { '?' };
                let parameters = self.form.parameters();
                arguments =
                    vec!["--store".to_owned(), format!("{}{joint}schema={schema}{parameters}", self.url)];
            }
            let process = Process::start(self.program, &arguments)?;
            set_up(&process.address)?;
            fill("Orrery", &process.address, self.items, FILL_TIME_MAX)?;
            if let Some(schema) = self.schema() {
                for table in ["kv", "part"] {
                    run_statement(self.url, &format!("VACUUM (ANALYZE) {schema}.{table}"))?;
                }
            }
            self.running = Some(process);
            self.growth = Growth::new(self.items);
        }
        self.running
            .as_ref()
            .map(|process| process.address.as_str())
            .ok_or_else(|| "it does not run".to_owned())
    }

    fn folder(&self) -> PathBuf {
        self.data.join(self.beginnings.to_string())
    }

    fn schema(&self) -> Option<String> {
        Some(format!("{}_{}", self.form.schema()?, self.beginnings))
    }

    /// Removes the data of the previous start.
    fn remove_data(&self) {
        if self.beginnings == 0 {
            return;
        }
        let Some(schema) = self.schema() else {
            fs::remove_dir_all(self.folder()).ok();
            return;
        };
        let dropped = run_statement(self.url, &format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
        if let Err(failure) = dropped {
            say(&format!("  {schema} remains: {failure}"));
        }
    }

    fn measure(&mut self, options: &Options, workload: Workload, connections: u64, seed: u64) -> Figures {
        self.runs += 1;
        let run = self.runs;
        let times = if workload.looks_at_everything() { 3.0 } else { 1.0 };
        let measure_ms = (times * options.seconds * 1000.0) as u64;
        let figures = match self.ready() {
            Ok(address) => load(&Plan {
                protocol: Protocol::Cosmos,
                address: address.to_owned(),
                workload,
                items: options.items,
                connections,
                warm_up_ms: measure_ms / 3,
                measure_ms,
                seed,
                run,
                rate: None,
            }),
            Err(failure) => Figures { failure: Some(failure), ..Figures::default() },
        };
        self.growth.add(workload, &figures);
        figures
    }

    /// Stops the server if it must be restarted.
    fn end_if_grown(&mut self) {
        if self.growth.is_too_much() {
            self.running = None;
        }
    }
}

/// The process of a server, ended when it is dropped.
struct Process {
    address: String,
    child: Child,
}

impl Process {
    fn start(program: &Path, arguments: &[String]) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--output", "json", "--no-throttle"]);
        let mut child = command
            .args(arguments)
            // Servers are restarted all the time, so their output is discarded.
            .env("ORRERY_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.as_mut() {
            BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        }
        let ready: serde_json::Value =
            serde_json::from_str(&line).map_err(|_| "Orrery did not start".to_owned())?;
        let port = ready["port"].as_u64().ok_or("the server did not report its port")?;
        Ok(Self { address: format!("127.0.0.1:{port}"), child })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().ok();
        self.child.wait().ok();
    }
}

/// Makes the container, of eight partitions.
fn set_up(address: &str) -> Result<(), String> {
    block_on(async {
        let mut session = cosmos::Session::open(address).await?;
        let json = ("content-type", "application/json");
        let body = format!("{{\"id\":\"{}\"}}", cosmos::DATABASE);
        session.send("POST", "/dbs", &[json], &body).await?;
        let body = format!(
            "{{\"id\":\"{}\",\"partitionKey\":{{\"paths\":[\"/pk\"],\"kind\":\"Hash\",\"version\":2}}}}",
            cosmos::CONTAINER
        );
        let path = format!("/dbs/{}/colls", cosmos::DATABASE);
        let throughput = ("x-ms-offer-throughput", THROUGHPUT);
        session.send("POST", &path, &[json, throughput], &body).await?;
        Ok(())
    })
}

fn run_statement(url: &str, statement: &str) -> Result<(), String> {
    block_on(async {
        let (client, connection) =
            tokio_postgres::connect(url, NoTls).await.map_err(|error| error.to_string())?;
        tokio::spawn(async move { connection.await.ok() });
        client.batch_execute(statement).await.map_err(|error| error.to_string())
    })
}

/// What the server counted during one measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Statements that read for clients, and the rows they gave.
    reads: f64,
    rows: f64,
    /// Transactions that write.
    transactions: f64,
}

/// Reads and resets the server's statement statistics. Without the extension nothing is counted.
fn count(url: &str) -> Option<Counted> {
    let sql = "SELECT coalesce(sum(calls) FILTER (WHERE query LIKE 'SELECT p.epoch%'), 0)::float8,
                  coalesce(sum(rows) FILTER (WHERE query LIKE 'SELECT p.epoch%'), 0)::float8,
                  coalesce(sum(calls) FILTER (WHERE query LIKE 'UPDATE part SET lsn = lsn +%'), 0)::float8
               FROM pg_stat_statements";
    block_on(async {
        let (client, connection) =
            tokio_postgres::connect(url, NoTls).await.map_err(|error| error.to_string())?;
        tokio::spawn(async move { connection.await.ok() });
        client
            .batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            .await
            .map_err(|error| error.to_string())?;
        let row = client.query_one(sql, &[]).await.map_err(|error| error.to_string())?;
        client.query("SELECT pg_stat_statements_reset()", &[]).await.map_err(|error| error.to_string())?;
        Ok(Counted { reads: row.get(0), rows: row.get(1), transactions: row.get(2) })
    })
    .ok()
}

/// The rounds of one workload on one form.
#[derive(Default)]
struct Cell {
    rates: Rates,
    reads: Vec<f64>,
    rows_per_read: Vec<f64>,
    operations_per_transaction: Vec<f64>,
    failure: Option<String>,
}

impl Cell {
    fn add(&mut self, figures: &Figures, counted: Option<Counted>) {
        if let Some(failure) = &figures.failure {
            self.failure = Some(failure.clone());
            return;
        }
        self.rates.0.push(figures.rate());
        let operations = figures.all_operations.max(1) as f64;
        let Some(counted) = counted else { return };
        self.reads.push(counted.reads / operations);
        if counted.reads > 0.0 {
            self.rows_per_read.push(counted.rows / counted.reads);
        }
        if counted.transactions > 0.0 {
            self.operations_per_transaction.push(operations / counted.transactions);
        }
    }

    fn rate(&self) -> Option<f64> {
        self.rates()?.median()
    }

    fn rates(&self) -> Option<&Rates> {
        self.failure.is_none().then_some(&self.rates)
    }
}

type Cells = BTreeMap<(Workload, u64, Form), Cell>;

pub fn run(options: &Options) -> Result<(), String> {
    let temporary = tempfile::tempdir().map_err(|error| error.to_string())?;
    let own = if options.store.is_none() { Some(Server::start()?) } else { None };
    let url = own.as_ref().map_or_else(|| options.store.clone().unwrap_or_default(), |own| own.url.clone());
    let server = own.as_ref().map(|own| own.child.id());
    let data = temporary.path().join("data");
    let mut gateways = Vec::new();
    for form in Form::ALL {
        say(&format!("starting Orrery, {form:?}, and loading {} items", options.items));
        gateways.push(Gateway::begin(form, &options.orrery, &url, &data, options.items)?);
    }
    let mut cells: Cells = BTreeMap::new();
    let wanted =
        |workload: &Workload| options.workloads.is_empty() || options.workloads.contains(&workload.name());
    let mut workloads: Vec<Workload> = Workload::ALL.into_iter().filter(wanted).collect();
    workloads.sort_by_key(|workload| workload.turn());
    for round in 0..options.rounds {
        for workload in &workloads {
            measure(options, &mut gateways[..2], &mut cells, (&url, server), (*workload, CONNECTIONS, round));
        }
        for connections in WRITERS {
            let times = if connections == WRITERS_MAX { TARGET_ROUNDS } else { 1 };
            for again in 0..times {
                let round = round * times + again;
                let turn = (Workload::Create, connections, round);
                measure(options, &mut gateways[1..], &mut cells, (&url, server), turn);
            }
        }
    }
    drop(gateways);
    let mut text = report(options, &cells);
    if let Some(program) = &options.commits {
        text.push_str(&store_alone(program, &url)?);
    }
    fs::create_dir_all(&options.output).map_err(|error| error.to_string())?;
    fs::write(options.output.join("stores.md"), text).map_err(|error| error.to_string())
}

/// Grouped against ungrouped without the gateway and its clients, which use the same CPUs.
fn store_alone(program: &Path, url: &str) -> Result<String, String> {
    let mut text =
        "\n## The store alone\n\nTasks of one process commit writes like those of a create, without \
                    HTTP, indexing and a load generator on the same CPUs:\n"
            .to_owned();
    for (tasks, partitions) in [("64", "8"), ("64", "1")] {
        let noun = if partitions == "1" { "partition" } else { "partitions" };
        say(&format!("commits of the store alone, {tasks} tasks, {partitions} {noun}"));
        let output = Command::new(program)
            .args([url, "--tasks", tasks, "--partitions", partitions])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let ratio = said.lines().find_map(|line| line.strip_prefix("grouped ÷ the better ungrouped: "));
        let ratio = ratio.ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        writeln!(text, "\n- {tasks} tasks, {partitions} {noun}: grouped ÷ the better ungrouped = {ratio}")
            .ok();
    }
    Ok(text)
}

fn measure(
    options: &Options,
    gateways: &mut [Gateway],
    cells: &mut Cells,
    (url, server): (&str, Option<u32>),
    (workload, connections, round): (Workload, u64, u64),
) {
    say(&format!("round {}: {}, {connections} connections", round + 1, workload.title()));
    // Prepare all before measuring the first, so that no time passes between the measurements that are compared.
    for gateway in &mut *gateways {
        if let Err(failure) = gateway.ready() {
            say(&format!("  {:?} could not be restarted: {failure}", gateway.form));
        }
    }
    process::write_back();
    // Each round starts with another variant.
    let first = round as usize % gateways.len();
    gateways.rotate_left(first);
    for gateway in &mut *gateways {
        for process in gateway.running.iter().map(|running| running.child.id()).chain(server) {
            process::settle(process);
        }
        count(url);
        let figures = gateway.measure(options, workload, connections, round);
        let counted = if gateway.form == Form::Embedded { None } else { count(url) };
        match &figures.failure {
            Some(failure) => say(&format!("  {:?}: {failure}", gateway.form)),
            None => say(&format!("  {:?}: {:.1}/s", gateway.form, figures.rate())),
        }
        cells.entry((workload, connections, gateway.form)).or_default().add(&figures, counted);
        gateway.end_if_grown();
    }
    gateways.rotate_right(first);
}

fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

fn report(options: &Options, cells: &Cells) -> String {
    let mut text = format!(
        "# Orrery on its two stores\n\nMedians of {} rounds of {} s each, {} items in eight partitions; the embedded \
         store, and PostgreSQL with fsync on, 512 MB of buffers and 4 GB of preallocated WAL, as on a server that has \
         been running for a while. Its tables are vacuumed after loading, and autovacuum is off. Servers and clients \
         share one machine. Every measurement starts with that many items, at most a tenth more. Ratios compare the \
         same rounds; they carry over to other machines better than rates. Creates at {WRITERS_MAX} connections, for \
         which there is a target, have {} rounds.\n\n",
        options.rounds,
        options.seconds,
        options.items,
        options.rounds * TARGET_ROUNDS
    );
    let get = |workload, connections, form| cells.get(&(workload, connections, form));
    let rate = |workload, connections, form| get(workload, connections, form).and_then(Cell::rate);
    writeln!(
        text,
        "## Each workload, {CONNECTIONS} connections\n\n| workload | embedded/s | on PostgreSQL/s | ratio | \
         read statements per operation | rows per read statement |\n|---|---|---|---|---|---|"
    )
    .ok();
    let measured: std::collections::BTreeSet<Workload> =
        cells.keys().filter(|(_, _, form)| *form == Form::Embedded).map(|(workload, ..)| *workload).collect();
    for workload in measured {
        let (embedded, stored) =
            (rate(workload, CONNECTIONS, Form::Embedded), rate(workload, CONNECTIONS, Form::Grouped));
        let rates = |form| get(workload, CONNECTIONS, form).and_then(Cell::rates);
        let ratio =
            rates(Form::Grouped).zip(rates(Form::Embedded)).and_then(|(stored, own)| stored.over(own));
        let cell = get(workload, CONNECTIONS, Form::Grouped);
        let of = |values: fn(&Cell) -> &Vec<f64>| cell.and_then(|cell| median(values(cell).iter().copied()));
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            workload.title(),
            shown(embedded, 0),
            shown(stored, 0),
            shown(ratio, 2),
            shown(of(|cell| &cell.reads), 2),
            shown(of(|cell| &cell.rows_per_read), 1)
        )
        .ok();
    }
    writeln!(
        text,
        "\n## Durable creates, grouped against ungrouped\n\n| connections | grouped/s | creates per transaction | \
         ungrouped/s, pool of 64 | grouped ÷ that | pool of 16 | grouped ÷ that |\n|---|---|---|---|---|---|---|"
    )
    .ok();
    let mut with_most_connections = [None, None];
    for connections in WRITERS {
        let of = |form| rate(Workload::Create, connections, form);
        let cell = get(Workload::Create, connections, Form::Grouped);
        let group = cell.and_then(|cell| median(cell.operations_per_transaction.iter().copied()));
        let rates = |form| get(Workload::Create, connections, form).and_then(Cell::rates);
        let over = |form| rates(Form::Grouped)?.over(rates(form)?);
        let ratios = [over(Form::Ungrouped64), over(Form::Ungrouped16)];
        with_most_connections = ratios;
        writeln!(
            text,
            "| {connections} | {} | {} | {} | {} | {} | {} |",
            shown(of(Form::Grouped), 0),
            shown(group, 1),
            shown(of(Form::Ungrouped64), 0),
            shown(ratios[0], 2),
            shown(of(Form::Ungrouped16), 0),
            shown(ratios[1], 2)
        )
        .ok();
    }
    let reads = get(Workload::PointRead, CONNECTIONS, Form::Grouped)
        .and_then(|cell| median(cell.reads.iter().copied()));
    let verdict = |holds: Option<bool>| match holds {
        Some(true) => "reached",
        Some(false) => "**missed**",
        None => "not measured",
    };
    let [each, few] = with_most_connections;
    writeln!(
        text,
        "\n## Targets\n\n| target | here | |\n|---|---|---|\n| a point read is one statement | {} | {} |\n\
         | a durable create at {WRITERS_MAX} connections at least 2.5 times the ungrouped variant with a \
         connection per client | {} | {} |\n\
         | the same with the ungrouped variant limited to 16 connections, which suit it better | {} | {} |",
        shown(reads, 2),
        verdict(reads.map(|reads| reads < 1.05)),
        shown(each, 2),
        verdict(each.map(|ratio| ratio >= 2.5)),
        shown(few, 2),
        verdict(few.map(|ratio| ratio >= 2.5))
    )
    .ok();
    for ((workload, connections, form), cell) in cells {
        if let Some(failure) = &cell.failure {
            let title = workload.title();
            writeln!(text, "\n{title}, {connections} connections, {form:?}: {failure}").ok();
        }
    }
    text
}
