//! Small files that must survive a power failure: keys, certificates, state.
//!
//! A file is durable once its content *and* its directory entry are on disk. So a file is written to a temporary name,
//! fsynced and renamed, and then the directory is fsynced; for a new directory, its parent is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Everyone,
    /// Applied before the first byte is written.
    Owner,
}

/// Writes a file atomically; it is on disk when this returns.
pub fn write(path: &Path, content: &[u8], access: Access) -> io::Result<()> {
    let draft = path.with_extension("new");
    // A leftover temporary file may have other permissions.
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
    // Before the rename: after a power failure the name could otherwise lead to an empty file.
    file.sync_all()?;
    fs::rename(&draft, path)?;
    sync_parent(path)
}

/// Creates a directory and missing parents, accessible only by the owner. Existing ones keep their permissions.
pub fn create_directory(path: &Path) -> io::Result<()> {
    // Found out first: each directory that is created needs its parent fsynced.
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

/// Fsyncs the parent directory of this path.
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
