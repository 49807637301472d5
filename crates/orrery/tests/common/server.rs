//! A server process on a free loopback port. It dies with its test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Client, TIME_MAX, orrery, path_text};

/// A server that is ready.
pub struct Server {
    child: Child,
    pub port: u16,
    /// The start-up message.
    pub ready: serde_json::Value,
    /// From the start of the process to the start-up message.
    pub ready_after: Duration,
}

/// How a server ended.
pub struct Exit {
    pub code: i32,
    /// From the call of [`Server::wait`].
    pub took: Duration,
    /// Empty unless standard error was piped.
    pub stderr: String,
}

impl Server {
    /// Starts a server with these arguments.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// Starts a server with these arguments and environment variables.
    pub fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Self::command(arguments);
        Self::spawn(command.envs(variables.iter().copied()))
    }

    /// Starts a server on a data directory, without throttling.
    pub fn on_directory(data: &Path) -> Self {
        Self::start(&["--no-throttle", "--data", path_text(data)])
    }

    /// Starts a server on a store, without throttling.
    pub fn on_store(url: &str) -> Self {
        Self::start(&["--no-throttle", "--store", url])
    }

    /// A command that serves on a free port, and reports warnings and its start-up message as JSON.
    pub fn command(arguments: &[&str]) -> Command {
        let mut command = orrery(&["serve", "--listen", "127.0.0.1:0", "--output", "json"]);
        command.args(arguments).env("ORRERY_LOG", "warn");
        command
    }

    /// Spawns a command and waits until it is ready.
    pub fn spawn(command: &mut Command) -> Self {
        let started = Instant::now();
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let ready_after = started.elapsed();
        if line.is_empty() {
            child.wait().unwrap();
            panic!("the server did not start: {}", stderr_of(&mut child));
        }
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let port = u16::try_from(ready["port"].as_u64().unwrap()).unwrap();
        Self { child, port, ready, ready_after }
    }

    pub fn client(&self) -> Client {
        Client::new(self.port)
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sends an unsigned GET; returns the whole response.
    pub fn get(&self, path: &str) -> String {
        self.raw(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n")).1
    }

    /// Sends a request head as it is, without its final empty line; returns the status and the whole response.
    pub fn raw(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(TIME_MAX)).unwrap();
        write!(stream, "{request}connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal, such as `-TERM`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> Exit {
        let begun = Instant::now();
        let code = super::until("the server to stop", || self.child.try_wait().unwrap()).code().unwrap_or(-1);
        Exit { code, took: begun.elapsed(), stderr: stderr_of(&mut self.child) }
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it as an operator would.
    pub fn stop(mut self) {
        self.signal("-TERM");
        assert!(self.child.wait().unwrap().success());
    }
}

fn stderr_of(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_string(&mut text).unwrap();
    }
    text
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failed test must not leave it behind. It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
