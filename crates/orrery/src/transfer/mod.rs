//! Moving data: `orrery import`, `orrery export` and `orrery copy`.
//!
//! Sources (files, containers) hand out chunks of records; `writer` upserts them with many requests at once;
//! `tracker` knows what is done for certain, which `checkpoint` keeps. Upserts can be repeated, so a run that was
//! interrupted goes on from its checkpoint and writes a little of it again.

pub(crate) mod arguments;
mod checkpoint;
mod copy;
mod export;
mod import;
pub(crate) mod input;
mod outcome;
mod progress;
mod source;
mod target;
mod tracker;
mod writer;

use std::io::Write;
use std::pin::pin;
use std::time::Duration;

pub(crate) use copy::run as copy;
pub(crate) use export::run as export;
pub(crate) use import::run as import;

use crate::failure::Failure;
use outcome::Outcome;

/// How often the checkpoint is written.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// Runs a command on threads of its own. Threads that still read an input are left behind.
fn run_on_threads<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::internal(format!("the threads cannot be started: {error}")))?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    result
}

/// Does the work; meanwhile shows progress, saves the position, and stops the work when somebody asks for it.
async fn attend<T>(
    outcome: &Outcome,
    work: impl Future<Output = T>,
    progress: impl Future<Output = ()>,
    mut save: impl FnMut() -> Result<(), Failure>,
) -> T {
    let mut work = pin!(work);
    let mut progress = pin!(progress);
    let mut save_time = tokio::time::interval(SAVE_INTERVAL);
    let mut signal = pin!(stop_signal());
    let mut is_asked = false;
    loop {
        tokio::select! {
            result = &mut work => return result,
            () = &mut progress => {}
            _ = save_time.tick() => {
                if let Err(failure) = save() {
                    outcome.stop_because(failure);
                }
            }
            () = &mut signal, if !is_asked => {
                is_asked = true;
                outcome.stop();
            }
        }
    }
}

async fn stop_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut terminate), Ok(mut interrupt)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Writes the summary; whoever does not listen any more has seen enough.
fn print(text: &str, output: &mut dyn Write) -> Result<(), Failure> {
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::refused(format!("the output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}
