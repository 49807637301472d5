//! A thread that flushes the journal, so that the committer can fill the memtable while the disk works.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// The committer's hold on the thread, which ends with it.
pub(super) struct Syncer {
    files: SyncSender<Arc<File>>,
    outcomes: Receiver<io::Result<()>>,
}

impl Syncer {
    pub(super) fn start() -> io::Result<Self> {
        let (files, asked) = sync_channel::<Arc<File>>(1);
        let (told, outcomes) = sync_channel(1);
        std::thread::Builder::new().name("orrery-sync".to_owned()).spawn(move || {
            while let Ok(file) = asked.recv() {
                if told.send(file.sync_data()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { files, outcomes })
    }

    /// Does something while what was written to the file is flushed; ends when both are done.
    pub(super) fn sync_beside(&self, file: &Arc<File>, work: impl FnOnce()) -> io::Result<()> {
        self.files.send(Arc::clone(file)).map_err(|_| gone())?;
        work();
        self.outcomes.recv().map_err(|_| gone())?
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that flushes the journal has ended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_that_fails_is_told() {
        let syncer = Syncer::start().unwrap();
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut done = 0;
        syncer.sync_beside(&file, || done += 1).unwrap();
        // Pipes cannot be flushed.
        let (_, pipe) = io::pipe().unwrap();
        let pipe = Arc::new(File::from(std::os::fd::OwnedFd::from(pipe)));
        assert!(syncer.sync_beside(&pipe, || done += 1).is_err());
        syncer.sync_beside(&file, || done += 1).unwrap();
        assert_eq!(done, 3);
    }
}
