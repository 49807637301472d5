//! The measured systems: Orrery and its peers, installed and started in temporary folders.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::load::Protocol;
use crate::process;

/// Versions that are known to install; the registries keep them.
const COSMIUM: &str = "github.com/pikami/cosmium";
const COSMIUM_VERSION: &str = "v0.1.20";
const VERCEL: &str = "@vercel/cosmosdb-server@1.0.1";
const START_TIME_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Orrery,
    /// Without a disk, as the emulators are.
    OrreryMemory,
    Postgres,
    Cosmium,
    Vercel,
}

impl Kind {
    pub const ALL: [Self; 5] =
        [Self::Orrery, Self::OrreryMemory, Self::Postgres, Self::Cosmium, Self::Vercel];

    pub fn title(self) -> &'static str {
        match self {
            Self::Orrery => "Orrery",
            Self::OrreryMemory => "Orrery in memory",
            Self::Postgres => "PostgreSQL",
            Self::Cosmium => "Cosmium",
            Self::Vercel => "cosmosdb-server",
        }
    }

    pub fn protocol(self) -> Protocol {
        if self == Self::Postgres { Protocol::Postgres } else { Protocol::Cosmos }
    }

    /// Whether it takes many items in one request outside of a transaction.
    pub fn has_bulk(self) -> bool {
        matches!(self, Self::Orrery | Self::OrreryMemory)
    }

    /// Whether what it acknowledged is on disk. The emulators keep everything in memory.
    pub fn is_durable(self) -> bool {
        matches!(self, Self::Orrery | Self::Postgres)
    }
}

/// A system that is running, ended when it is dropped.
pub struct Running {
    pub kind: Kind,
    pub address: String,
    pub start_up: Duration,
    child: Child,
}

impl Running {
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as an operator would.
    pub fn stop(mut self) {
        self.terminate();
    }

    /// Ends it without waiting for what it does: nobody needs its data any more.
    pub fn end_at_once(mut self) {
        if self.kind == Kind::Postgres {
            // Its connections are processes of their own, which end with it only if it ends them itself.
            Command::new("kill").args(["-QUIT", &self.child.id().to_string()]).status().ok();
        } else {
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }

    /// Waits until it has done what it put off.
    pub fn settle(&self) {
        process::settle(self.process());
    }

    fn terminate(&mut self) {
        // PostgreSQL ends fast on SIGINT; the others do on SIGTERM.
        let signal = if self.kind == Kind::Postgres { "-INT" } else { "-TERM" };
        Command::new("kill").args([signal, &self.child.id().to_string()]).status().ok();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.terminate();
        }
    }
}

/// Where the programs are.
pub struct Programs {
    pub orrery: PathBuf,
    /// Holds what was installed.
    pub folder: PathBuf,
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let tail: Vec<&str> = text.lines().rev().take(3).collect();
    Err(format!(
        "{:?} failed: {}",
        command.get_program(),
        tail.into_iter().rev().collect::<Vec<_>>().join(" ")
    ))
}

/// Where Debian keeps the server programs of PostgreSQL 15.
fn postgres_programs() -> Result<PathBuf, String> {
    let path = PathBuf::from("/usr/lib/postgresql/15/bin");
    if !path.join("postgres").exists() {
        run(Command::new("apt-get").args(["install", "-y", "-qq", "postgresql-15"]))?;
    }
    if path.join("postgres").exists() { Ok(path) } else { Err("PostgreSQL 15 is not installed".to_owned()) }
}

impl Programs {
    /// Installs what a system needs, if it is missing.
    pub fn install(&self, kind: Kind) -> Result<(), String> {
        match kind {
            Kind::Orrery | Kind::OrreryMemory if self.orrery.exists() => Ok(()),
            Kind::Orrery | Kind::OrreryMemory => Err(format!("{} does not exist", self.orrery.display())),
            Kind::Postgres => postgres_programs().map(|_| ()),
            Kind::Cosmium => {
                if self.cosmium().exists() {
                    return Ok(());
                }
                // The module is required by one of ours, because its list of versions is not always to be had.
                let folder = self.folder.join("cosmium-build");
                fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
                let module = format!("module peer\n\ngo 1.22\n\nrequire {COSMIUM} {COSMIUM_VERSION}\n");
                fs::write(folder.join("go.mod"), module).map_err(|error| error.to_string())?;
                run(Command::new("go")
                    .current_dir(&folder)
                    .env("GOFLAGS", "-mod=mod -buildvcs=false")
                    .args(["build", "-o"])
                    .arg(self.cosmium())
                    .arg(format!("{COSMIUM}/cmd/server")))
            }
            Kind::Vercel => {
                if self.vercel().exists() {
                    return Ok(());
                }
                let folder = self.folder.join("vercel");
                fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
                run(Command::new("npm").args(["install", "--silent", "--prefix"]).arg(&folder).arg(VERCEL))
            }
        }
    }

    fn cosmium(&self) -> PathBuf {
        self.folder.join("cosmium")
    }

    fn vercel(&self) -> PathBuf {
        self.folder.join("vercel/node_modules/@vercel/cosmosdb-server/lib/cli.js")
    }

    /// What the report calls it.
    pub fn version(&self, kind: Kind) -> String {
        let first_line = |command: &mut Command| {
            let output =
                command.output().ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            output.and_then(|text| text.lines().next().map(str::to_owned)).unwrap_or_default()
        };
        match kind {
            Kind::Orrery | Kind::OrreryMemory => first_line(Command::new(&self.orrery).arg("--version")),
            Kind::Postgres => postgres_programs()
                .map(|path| first_line(Command::new(path.join("postgres")).arg("--version")))
                .unwrap_or_default(),
            Kind::Cosmium => format!("{COSMIUM} {COSMIUM_VERSION}"),
            Kind::Vercel => {
                format!("{VERCEL}, Node.js {}", first_line(Command::new("node").arg("--version")))
            }
        }
    }

    /// Starts a system on its data and waits until it answers.
    pub fn start(&self, kind: Kind, data: &Path, cache_mb: u64) -> Result<Running, String> {
        fs::create_dir_all(data).map_err(|error| error.to_string())?;
        let log = File::create(data.with_extension("log")).map_err(|error| error.to_string())?;
        let port = free_port()?;
        let begun;
        let mut child;
        match kind {
            Kind::Orrery | Kind::OrreryMemory => {
                let mut command = Command::new(&self.orrery);
                command.args(["serve", "--output", "json", "--no-throttle", "--listen"]);
                command.arg(format!("127.0.0.1:{port}"));
                if kind == Kind::OrreryMemory {
                    command.arg("--in-memory");
                } else {
                    command.arg("--data").arg(data).args(["--cache-mb", &cache_mb.to_string()]);
                }
                begun = Instant::now();
                child = spawn(command.stdout(Stdio::piped()).stderr(log))?;
                let mut line = String::new();
                if let Some(output) = child.stdout.as_mut() {
                    BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
                }
                if line.is_empty() {
                    child.wait().ok();
                    return Err("Orrery did not start".to_owned());
                }
            }
            Kind::Postgres => {
                let programs = postgres_programs()?;
                let is_root =
                    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
                // The server refuses to run as root.
                let as_user = |program: &Path| {
                    if is_root {
                        let mut command = Command::new("setpriv");
                        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
                        command
                    } else {
                        Command::new(program)
                    }
                };
                if !data.join("PG_VERSION").exists() {
                    if is_root {
                        run(Command::new("chown").arg("postgres:postgres").arg(data))?;
                    }
                    run(as_user(&programs.join("initdb"))
                        .args(["-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C", "-D"])
                        .arg(data))?;
                }
                let mut command = as_user(&programs.join("postgres"));
                command.arg("-D").arg(data).args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k", ""]);
                for setting in [
                    "synchronous_commit=on".to_owned(),
                    "fsync=on".to_owned(),
                    "max_connections=300".to_owned(),
                    format!("shared_buffers={}MB", cache_mb.max(128)),
                ] {
                    command.arg("-c").arg(setting);
                }
                begun = Instant::now();
                child = spawn(command.stdout(Stdio::null()).stderr(log))?;
            }
            Kind::Cosmium => {
                let mut command = Command::new(self.cosmium());
                command.args(["-Host", "127.0.0.1", "-DisableTls", "-Port", &port.to_string()]);
                begun = Instant::now();
                child = spawn(
                    command.current_dir(data).env("GIN_MODE", "release").stdout(Stdio::null()).stderr(log),
                )?;
            }
            Kind::Vercel => {
                let mut command = Command::new("node");
                command.arg(self.vercel()).args(["--no-ssl", "--host", "127.0.0.1", "-p", &port.to_string()]);
                begun = Instant::now();
                child = spawn(command.current_dir(data).stdout(Stdio::null()).stderr(log))?;
            }
        }
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("{} ended at once: {status}", kind.title()));
            }
            if begun.elapsed() > START_TIME_MAX {
                child.kill().ok();
                child.wait().ok();
                return Err(format!("{} did not listen in time", kind.title()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let start_up = begun.elapsed();
        if kind == Kind::Postgres {
            // It listens before it answers.
            std::thread::sleep(Duration::from_millis(500));
        }
        let address = format!("127.0.0.1:{port}");
        Ok(Running { kind, address, start_up, child })
    }
}

fn spawn(command: &mut Command) -> Result<Child, String> {
    command.stdin(Stdio::null()).spawn().map_err(|error| format!("{:?}: {error}", command.get_program()))
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}
