//! Checkpoints: the files that a backup copies.

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFile {
    /// Relative to the store's directory, with `/` between the parts.
    pub path: String,
    /// How much of the file belongs to the checkpoint. A file that still grows may be longer.
    pub bytes: u64,
    /// XXH3-128 of the content, where the store knows it.
    pub checksum: Option<u128>,
}

/// A consistent set of files that a store in files can be restored from. The files stay readable until it is dropped.
pub trait Checkpoint: Send + Sync {
    /// All files.
    fn files(&self) -> &[CheckpointFile];

    /// The id of the line of writes these files belong to.
    fn history(&self) -> &str;

    /// When it was complete, in milliseconds since 1970: it contains nothing that was written later.
    fn taken_ms(&self) -> i64;

    /// Reads up to `bytes_max` bytes of a file from `offset` on; empty at its end, `None` if there is no such file.
    fn read(&self, path: &str, offset: u64, bytes_max: usize) -> std::io::Result<Option<Vec<u8>>>;
}
