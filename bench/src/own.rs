//! Starts this program as a helper: load, loading of items and limits run as separate processes.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::load::{Figures, Plan};

/// Tells how far the run is, with the minutes and seconds since it began.
#[expect(clippy::print_stderr, reason = "progress")]
pub fn say(text: &str) {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    let elapsed = BEGUN.get_or_init(Instant::now).elapsed().as_secs();
    eprintln!("[{:02}:{:02}] {text}", elapsed / 60, elapsed % 60);
}

/// Runs this program as another process and gives back what it prints.
pub fn own_output(arguments: &[&str], limit: Duration) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            let read = |pipe: Option<&mut dyn Read>| {
                let mut text = String::new();
                pipe.and_then(|pipe| pipe.read_to_string(&mut text).ok());
                text
            };
            let output = read(child.stdout.as_mut().map(|pipe| pipe as &mut dyn Read));
            if status.success() {
                return Ok(output);
            }
            let message = read(child.stderr.as_mut().map(|pipe| pipe as &mut dyn Read));
            return Err(message.trim().trim_start_matches("orrery-bench: ").to_owned());
        }
        if begun.elapsed() > limit {
            child.kill().ok();
            child.wait().ok();
            return Err(format!("not finished after {} seconds", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Loads items into a server and tells how many seconds it took.
pub fn fill(kind: &str, address: &str, items: u64, limit: Duration) -> Result<f64, String> {
    let seconds = own_output(&["fill", kind, address, &items.to_string()], limit)?;
    seconds.trim().parse().map_err(|_| format!("loading gave \"{seconds}\""))
}

/// How long operations that were begun in time may take to end: some of them look at all items.
fn late_max(items: u64) -> Duration {
    Duration::from_secs(15) + Duration::from_micros(45) * u32::try_from(items).unwrap_or(u32::MAX)
}

/// Lets a process of its own do a plan.
pub fn load(plan: &Plan) -> Figures {
    let failed = |failure: String| Figures { failure: Some(failure), ..Figures::default() };
    let Ok(text) = serde_json::to_string(plan) else { return failed("the plan is no JSON".to_owned()) };
    let limit = Duration::from_millis(plan.warm_up_ms + plan.measure_ms) + late_max(plan.items);
    match own_output(&["load", &text], limit) {
        Ok(output) => serde_json::from_str(&output).unwrap_or_else(|error| failed(error.to_string())),
        Err(failure) => failed(failure),
    }
}

pub fn block_on<T>(future: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(future)
}
