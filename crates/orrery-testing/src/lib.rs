//! What the tests of several crates share: PostgreSQL servers, mutated inputs, and waiting for a condition.
//!
//! The PostgreSQL server is the one in `ORRERY_TEST_STORE_URL`, or a private one in a temporary directory, started on
//! first use and stopped with the process.

#![allow(clippy::disallowed_methods, reason = "tests are not replayed")]

pub mod citus;
pub mod fuzz;
pub mod proxy;
pub mod wait;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A running server. It stops when this is dropped or when the process dies for any reason, because it watches its
/// standard input.
pub struct Server {
    url: String,
    port: Option<u16>,
    child: Child,
    input: Option<ChildStdin>,
}

impl Server {
    /// Starts a server in its own temporary directory.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start; the message says what to do.
    pub fn start() -> Self {
        Self::launch(None, false, None, None)
    }

    /// Starts a durable server on a directory, which an earlier server may have left.
    pub fn start_durable(directory: &Path) -> Self {
        Self::launch(Some(directory), true, None, None)
    }

    /// Like [`Self::start_durable`], and also listens on a free TCP port.
    pub fn start_with_port(directory: &Path) -> Self {
        Self::launch(Some(directory), true, Some(free_port()), None)
    }

    /// Starts a standby of another server, on its own port.
    pub fn start_standby(directory: &Path, primary: &Self) -> Self {
        Self::launch(Some(directory), true, Some(free_port()), Some(primary))
    }

    fn launch(directory: Option<&Path>, durable: bool, port: Option<u16>, primary: Option<&Self>) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres.sh");
        let mut command = Command::new(script);
        command.arg("serve").args(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("ORRERY_TEST_FSYNC", if durable { "on" } else { "off" });
        if let Some(port) = port {
            command.env("ORRERY_TEST_POSTGRES_PORT", port.to_string());
        }
        if let Some(primary) = primary {
            command.env("ORRERY_TEST_STANDBY_OF", primary.directory());
            command.envs(primary.port.map(|port| ("ORRERY_TEST_STANDBY_OF_PORT", port.to_string())));
        }
        let mut child = command.spawn().expect("scripts/postgres.sh can be started");
        let mut url = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut url).expect("the script prints text");
        let url = url.trim().to_owned();
        assert!(
            !url.is_empty(),
            "no PostgreSQL for the tests: run 'scripts/setup.sh postgres', or name a server in ORRERY_TEST_STORE_URL"
        );
        Self { url, port, input: child.stdin.take(), child }
    }

    /// The TCP port it listens on, in addition to its socket.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The server's log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory().join("log")).unwrap_or_default()
    }

    /// `kill -9` of the postmaster and all its child processes.
    ///
    /// # Panics
    /// If it is not running.
    pub fn kill(&self) {
        let text = std::fs::read_to_string(self.directory().join("data/postmaster.pid")).expect("it runs");
        let postmaster: u32 =
            text.lines().next().and_then(|line| line.trim().parse().ok()).expect("a process id is a number");
        let mut all = vec![postmaster];
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
            if parent.and_then(|parent| parent.parse::<u32>().ok()) == Some(postmaster) {
                all.extend(id);
            }
        }
        let ids: Vec<String> = all.iter().map(u32::to_string).collect();
        // Some may exit by themselves in the meantime.
        drop(Command::new("kill").arg("-9").args(&ids).status());
    }

    /// The server's connection URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its data directory, if it has its own.
    pub fn directory(&self) -> PathBuf {
        let host = self.url.trim_start_matches("postgres://postgres@").trim_end_matches("/postgres");
        let host = host.split(':').next().unwrap_or_default();
        PathBuf::from(host.replace("%2F", "/"))
    }

    /// Waits until the script has noticed that its server has stopped.
    pub fn wait(mut self) {
        drop(self.input.take());
        drop(self.child.wait());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.child.wait());
    }
}

/// Runs shell commands with PostgreSQL's tools, as the servers' user, in a new directory. Returns their output.
///
/// # Panics
/// If one of them fails.
pub fn shell(directory: &Path, variables: &[(&str, &str)], commands: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres.sh");
    let mut command = Command::new(script);
    command.arg("shell").arg(directory).envs(variables.iter().copied());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("scripts/postgres.sh can be started");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(commands.as_bytes()).expect("the shell reads its commands");
    drop(input);
    let output = child.wait_with_output().expect("the shell ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{commands}\n{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// A port that is free at the moment.
fn free_port() -> u16 {
    let listener =
        std::net::TcpListener::bind(("127.0.0.1", 0)).expect("this machine has a loopback address");
    listener.local_addr().expect("it is bound").port()
}

/// The URL of a server that all tests of this process share.
pub fn store_url() -> String {
    static OWN: OnceLock<Server> = OnceLock::new();
    match std::env::var("ORRERY_TEST_STORE_URL") {
        Ok(url) if !url.is_empty() => url,
        _ => OWN.get_or_init(Server::start).url().to_owned(),
    }
}

/// The URL of an unused store: a new schema.
pub fn fresh_store_url() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let url = store_url();
    let joint = if url.contains('?') { '&' } else { '?' };
    // On Citus every shard takes time to create; elsewhere the parameter is ignored.
    format!("{url}{joint}shards=8&schema=t_{}_{number}_{}", std::process::id(), unique())
}

/// The schema that a URL of [`fresh_store_url`] names.
pub fn schema_of(url: &str) -> &str {
    url.rsplit("schema=").next().and_then(|rest| rest.split('&').next()).unwrap_or_default()
}

/// Unique even if processes of different machines share a server.
fn unique() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one("schema") >> 32
}
