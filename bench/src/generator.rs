//! Compares the load generator with those of the peers: `wrk` on a bare HTTP server, `pgbench` on PostgreSQL.
//!
//! All of them use one thread, and the processors that the server runs on. Rounds alternate, and the median ratio counts.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use orrery_gateway::auth::{MasterKey, print_date, sign_request};

use crate::limit_rounds::LimitServer;
use crate::limits::Sample;
use crate::load::{Plan, Protocol};
use crate::own::{fill, load, say};
use crate::results::median;
use crate::systems::{Kind, Programs};
use crate::workload::Workload;
use crate::{cosmos, documents};

const ROUNDS: u64 = 5;
const SECONDS: u64 = 1;
const ITEMS: u64 = 10_000;
/// How much slower than the peers' generators ours may be.
const SLOWER_MAX: f64 = 0.1;

/// Fails unless our generator reaches the throughput of each peer's generator that is installed, within a tenth.
pub fn check() -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = directory.path();
    // PostgreSQL runs as another user and needs access.
    Command::new("chmod").arg("755").arg(path).status().map_err(|error| error.to_string())?;
    let mut slow = Vec::new();
    for (name, compare) in [("wrk", beside_wrk as fn(&Path, u64) -> _), ("pgbench", beside_pgbench)] {
        if Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            say(&format!("{name} is not installed: skipped"));
            continue;
        }
        for connections in [16, 64] {
            let ratios: Vec<f64> = compare(path, connections)?;
            let ratio = median(ratios.iter().copied()).unwrap_or(0.0);
            say(&format!("{connections} connections: {ratio:.2} of {name}'s throughput"));
            if ratio < 1.0 - SLOWER_MAX {
                slow.push(format!("{ratio:.2} of {name}'s throughput at {connections} connections"));
            }
        }
    }
    if slow.is_empty() { Ok(()) } else { Err(format!("the generator is too slow: {}", slow.join(", "))) }
}

fn plan(protocol: Protocol, address: &str, connections: u64, round: u64) -> Plan {
    Plan {
        protocol,
        address: address.to_owned(),
        workload: Workload::PointRead,
        items: ITEMS,
        connections,
        warm_up_ms: 200,
        measure_ms: SECONDS * 1000,
        seed: round,
        run: round,
        rate: None,
    }
}

/// Our throughput divided by the peer's, round by round.
fn ratios(plan: impl Fn(u64) -> Plan, peer: impl Fn() -> Result<f64, String>) -> Result<Vec<f64>, String> {
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let figures = load(&plan(round));
        if let Some(failure) = figures.failure {
            return Err(failure);
        }
        let peer = peer()?;
        say(&format!("  ours {:.0}/s, theirs {peer:.0}/s", figures.rate()));
        ratios.push(figures.rate() / peer);
    }
    Ok(ratios)
}

/// `wrk` sends one request again and again, ours signs a different one each time.
fn beside_wrk(directory: &Path, connections: u64) -> Result<Vec<f64>, String> {
    let headers = (0..20).map(|number| (format!("x-header-{number}"), "a value of usual length".to_owned()));
    let sample = Sample { headers: headers.collect(), body: documents::item(1, 0) };
    let file = directory.join("sample.json");
    let text = serde_json::to_string(&sample).map_err(|error| error.to_string())?;
    std::fs::write(&file, text).map_err(|error| error.to_string())?;
    let server = LimitServer::start(&file, false)?;
    let path = format!("/dbs/{}/colls/{}/docs/{}", cosmos::DATABASE, cosmos::CONTAINER, documents::id(1));
    let date = print_date(cosmos::now_seconds());
    let authorization = sign_request(&MasterKey::well_known(), "GET", &path, None, &date);
    let wrk = || {
        let mut command = Command::new("wrk");
        command.args(["-t1", &format!("-c{connections}"), &format!("-d{SECONDS}s")]);
        for header in [
            format!("authorization: {authorization}"),
            format!("x-ms-date: {date}"),
            "x-ms-version: 2018-12-31".to_owned(),
            format!("x-ms-documentdb-partitionkey: [\"{}\"]", documents::key(1)),
        ] {
            command.args(["-H", &header]);
        }
        figure(command.arg(format!("http://{}{path}", server.address)), "Requests/sec:")
    };
    ratios(|round| plan(Protocol::Cosmos, &server.address, connections, round), wrk)
}

/// Both execute the same prepared statement; `pgbench` has the server build the key from a number.
fn beside_pgbench(directory: &Path, connections: u64) -> Result<Vec<f64>, String> {
    let programs = Programs { orrery: "orrery".into(), folder: directory.to_owned() };
    let data = directory.join(format!("postgres-{connections}"));
    let server = programs.start(Kind::Postgres, &data, 128)?;
    fill(Kind::Postgres.title(), &server.address, ITEMS, Duration::from_mins(2))?;
    let mut script = format!("\\set n random(0, {})\n", ITEMS - 1);
    let per_key = documents::ITEMS_PER_KEY;
    writeln!(
        script,
        "SELECT doc::text FROM items WHERE pk = 'p' || lpad((:n / {per_key})::text, 8, '0') \
         AND id = 'user' || lpad((:n)::text, 10, '0');"
    )
    .map_err(|error| error.to_string())?;
    let file = directory.join("read.sql");
    std::fs::write(&file, script).map_err(|error| error.to_string())?;
    let (host, port) = server.address.split_once(':').ok_or("the address has no port")?;
    let pgbench = || {
        let mut command = Command::new("pgbench");
        command.args(["-n", "-M", "prepared", "-j", "1", "-h", host, "-p", port, "-U", "bench"]);
        command.args(["-c", &connections.to_string(), "-T", &SECONDS.to_string(), "-f"]).arg(&file);
        figure(command.arg("postgres"), "tps =")
    };
    let ratios = ratios(|round| plan(Protocol::Postgres, &server.address, connections, round), pgbench);
    server.stop();
    ratios
}

/// The number after a label in what a command prints.
fn figure(command: &mut Command, label: &str) -> Result<f64, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = text.lines().find_map(|line| line.trim().strip_prefix(label)?.split_whitespace().next());
    value.and_then(|value| value.parse().ok()).ok_or_else(|| {
        format!("{:?} failed: {text}{}", command.get_program(), String::from_utf8_lossy(&output.stderr))
    })
}
