//! The binary as a child process.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that is ready.
pub struct Served {
    child: Child,
    pub port: u16,
    /// From the start of the process until it said that it is ready.
    pub ready_after: Duration,
}

impl Served {
    pub fn start(data: &Path) -> Self {
        Self::start_on("--data", data.as_os_str())
    }

    /// Starts a server on the store that the option names.
    pub fn start_on(option: &str, store: &OsStr) -> Self {
        Self::start_with(&[OsStr::new("--no-throttle"), OsStr::new(option), store])
    }

    /// Starts a server with these arguments.
    pub fn start_with(arguments: &[&OsStr]) -> Self {
        let started = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_orrery"))
            .args(["serve", "--listen", "127.0.0.1:0", "--output", "json"])
            .args(arguments)
            .env_clear()
            .env("ORRERY_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let ready_after = started.elapsed();
        let ready: serde_json::Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("the server did not start: {error}: {line}"));
        let port = u16::try_from(ready["port"].as_u64().unwrap()).unwrap();
        Self { child, port, ready_after }
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, as an operator would.
    pub fn stop(mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(asked.success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A test that fails must not leave it behind. It may be gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
