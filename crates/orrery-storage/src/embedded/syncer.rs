//! A helper thread that fsyncs the journal while the committer fills the memtable.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The committer's handle to the thread, which exits when the handle is dropped.
pub(super) struct Syncer {
    files: SyncSender<Arc<File>>,
    outcomes: Receiver<io::Result<()>>,
}

impl Syncer {
    pub(super) fn start() -> io::Result<Self> {
        // One slot each: the committer hands over one file at a time and waits for its outcome.
        let (files, requests) = sync_channel::<Arc<File>>(1);
        let (results, outcomes) = sync_channel(1);
        orrery_env::task::thread("orrery-sync", move || {
            while let Ok(file) = requests.recv() {
                // The handle is gone, and nobody is left who would answer callers.
                if results.send(file.sync_data()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { files, outcomes })
    }

    /// Runs `work` while the file is fsynced; returns when both are done.
    pub(super) fn sync_while(&self, file: &Arc<File>, work: impl FnOnce()) -> io::Result<()> {
        self.files.send(Arc::clone(file)).map_err(|_| gone())?;
        work();
        self.outcomes.recv().map_err(|_| gone())?
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that fsyncs the journal has exited")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_fsync_is_reported() {
        let syncer = Syncer::start().unwrap();
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut done = 0;
        syncer.sync_while(&file, || done += 1).unwrap();
        // fsync fails on a pipe.
        let (_, pipe) = io::pipe().unwrap();
        let pipe = Arc::new(File::from(std::os::fd::OwnedFd::from(pipe)));
        assert!(syncer.sync_while(&pipe, || done += 1).is_err());
        syncer.sync_while(&file, || done += 1).unwrap();
        assert_eq!(done, 3);
    }
}
