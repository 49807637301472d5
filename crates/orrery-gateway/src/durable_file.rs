//! Small files that must survive a power failure: keys, certificates, notes.
//!
//! A file is durable once its content *and* the directory entry that names it are on disk. So a file is written under
//! another name, flushed, renamed, and the directory is flushed after it; a new directory is flushed into its parent.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Everyone,
    /// From the first byte on.
    Owner,
}

/// Writes a file whole or not at all; on disk when this returns.
pub fn write(path: &Path, content: &[u8], access: Access) -> io::Result<()> {
    let draft = path.with_extension("new");
    // A draft that someone left there may have other rights.
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(if access == Access::Owner { 0o600 } else { 0o644 });
    }
    #[cfg(not(unix))]
    let _: Access = access;
    let mut file = options.open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    sync_parent(path)
}

/// Makes a directory and what is missing above it, for its owner only. One that exists keeps its rights.
pub fn create_directory(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> =
        path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path)?;
    missing.into_iter().try_for_each(sync_parent)
}

/// Flushes the directory that names this path.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // Directories cannot be opened as files on Windows, where the file system orders these changes itself.
    if cfg!(unix) { File::open(parent.unwrap_or(Path::new(".")))?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_and_leave_no_draft() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("a/b");
        create_directory(&deep).unwrap();
        create_directory(&deep).unwrap();
        let path = deep.join("account-key");
        fs::write(path.with_extension("new"), "left behind").unwrap();
        write(&path, b"one", Access::Owner).unwrap();
        write(&path, b"two", Access::Owner).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(fs::metadata(&deep).unwrap().permissions().mode() & 0o777, 0o700);
        }
    }
}
