//! Backups in a single file: a backup directory as a tar archive, which any tar can list and unpack.
//!
//! Only what we need of the format (POSIX.1-1988 `ustar`, and GNU's binary sizes beyond 8 GB): regular files with short
//! names. The content of each file is checked when it is restored, so the archive needs no checksum of its own.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use orrery_storage::BackupRepository;

use crate::failure::Failure;

const BLOCK: usize = 512;
/// The largest size that fits into eleven octal digits.
const OCTAL_MAX: u64 = (1 << 33) - 1;

/// Whether a path names a file rather than a backup directory.
pub(super) fn is_file(path: &Path) -> bool {
    path.is_file() || !path.is_dir() && path.extension().is_some_and(|extension| extension == "tar")
}

/// A backup directory that lives only as long as this value.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Beside the file, where there is space for it.
    pub(super) fn beside(file: &Path) -> Result<Self, Failure> {
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".{}.unpacked", std::process::id()));
        let path = PathBuf::from(name);
        fs::create_dir(&path).map_err(|error| unusable(&path, &error))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = ?self.0, %error, "a temporary directory stays behind");
        }
    }
}

/// The backups at a path: a directory, or a file that is unpacked first.
pub(super) fn open(path: &Path) -> Result<(BackupRepository, Option<Scratch>), Failure> {
    if !is_file(path) {
        return Ok((BackupRepository::open(path).map_err(Failure::refused)?, None));
    }
    let scratch = Scratch::beside(path)?;
    unpack(path, scratch.path()).map_err(|error| unusable(path, &error))?;
    Ok((BackupRepository::open(scratch.path()).map_err(Failure::refused)?, Some(scratch)))
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    Failure::refused(format!("{}: {error}", path.display()))
}

/// Writes a backup directory into a new file, which appears only when it is complete.
pub(super) fn pack(directory: &Path, file: &Path) -> Result<(), Failure> {
    let mut partial = file.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let packed = write_archive(directory, &partial).and_then(|()| fs::rename(&partial, file));
    packed.map_err(|error| {
        // Best effort: the error that matters is the first one.
        fs::remove_file(&partial).ok();
        unusable(file, &error)
    })?;
    // The new name is durable only once its directory is.
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(|error| unusable(parent, &error))
}

fn write_archive(directory: &Path, file: &Path) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 18, File::create(file)?);
    for folder in ["files", "backups"] {
        let mut entries = fs::read_dir(directory.join(folder))?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            let mut content = File::open(entry.path())?;
            let bytes = content.metadata()?.len();
            out.write_all(&header(&name, bytes))?;
            // The header before it already states the size.
            if io::copy(&mut content, &mut out)? != bytes {
                return Err(io::Error::other(format!("{name} changed while it was packed")));
            }
            out.write_all(&vec![0; padding(bytes)])?;
        }
    }
    // Two empty blocks end an archive.
    out.write_all(&[0; 2 * BLOCK])?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Unpacks an archive into an empty directory.
fn unpack(file: &Path, directory: &Path) -> io::Result<()> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    for folder in ["files", "backups"] {
        fs::create_dir(directory.join(folder))?;
    }
    let mut from = BufReader::with_capacity(1 << 18, File::open(file)?);
    let mut block = [0; BLOCK];
    loop {
        from.read_exact(&mut block).map_err(|_| invalid("it is not a backup, or its end is missing"))?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let (name, bytes) = parse_header(&block).ok_or_else(|| invalid("it is not a backup"))?;
        let (folder, rest) = name.split_once('/').ok_or_else(|| invalid("it is not a backup"))?;
        // Only names that we write: nothing else may be created.
        let is_plain = rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !matches!(folder, "files" | "backups") || rest.is_empty() || !is_plain {
            return Err(invalid("it contains something else than backups"));
        }
        let mut out = File::create(directory.join(folder).join(rest))?;
        if io::copy(&mut (&mut from).take(bytes), &mut out)? != bytes {
            return Err(invalid("its end is missing"));
        }
        io::copy(&mut (&mut from).take(padding(bytes) as u64), &mut io::sink())?;
    }
}

fn padding(bytes: u64) -> usize {
    (BLOCK - usize::try_from(bytes % BLOCK as u64).unwrap_or(0)) % BLOCK
}

fn header(name: &str, bytes: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    // Mode, user and group.
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    if bytes <= OCTAL_MAX {
        put(124, format!("{bytes:011o}\0").as_bytes());
    } else {
        // GNU's form: the first bit set, then the size as a binary number.
        put(124, &[0x80]);
        put(128, &bytes.to_be_bytes());
    }
    // No modification time: equal backups make equal archives.
    put(136, b"00000000000\0");
    // The checksum is computed with spaces in its own place.
    put(148, b"        ");
    put(156, b"0");
    // Format and version.
    put(257, b"ustar\x0000");
    let sum = checksum(&block);
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// The sum of all bytes, with spaces in place of the sum itself.
fn checksum(block: &[u8; BLOCK]) -> u32 {
    let value = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) };
    block.iter().enumerate().map(value).sum()
}

/// The name and the size of a regular file.
fn parse_header(block: &[u8; BLOCK]) -> Option<(&str, u64)> {
    let text = |from: usize, to: usize| {
        let field = std::str::from_utf8(&block[from..to]).ok()?;
        field.split('\0').next()
    };
    let octal = |from: usize, to: usize| u64::from_str_radix(text(from, to)?.trim(), 8).ok();
    if octal(148, 156)? != u64::from(checksum(block)) || !matches!(block[156], b'0' | 0) {
        return None;
    }
    let bytes = if block[124] & 0x80 == 0 {
        octal(124, 136)?
    } else {
        u64::from_be_bytes(block[128..136].try_into().ok()?)
    };
    Some((text(0, 100)?, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_eight_gigabytes_are_kept() {
        for bytes in [0, 511, OCTAL_MAX, OCTAL_MAX + 1, 1 << 45] {
            let block = header("files/0123456789abcdef0123456789abcdef", bytes);
            assert_eq!(parse_header(&block), Some(("files/0123456789abcdef0123456789abcdef", bytes)));
        }
        let mut damaged = header("files/a", 5);
        damaged[130] ^= 1;
        assert_eq!(parse_header(&damaged), None);
    }

    #[test]
    fn what_is_packed_is_unpacked_and_any_tar_reads_it() {
        let root = tempfile::tempdir().unwrap();
        let (from, into, file) =
            (root.path().join("from"), root.path().join("into"), root.path().join("b.tar"));
        for directory in [&from.join("files"), &from.join("backups"), &into] {
            fs::create_dir_all(directory).unwrap();
        }
        let contents =
            [("files/aa", vec![7; 512]), ("files/bb", vec![1; 1300]), ("backups/17", b"text".to_vec())];
        for (name, content) in &contents {
            fs::write(from.join(name), content).unwrap();
        }
        pack(&from, &file).ok().unwrap();
        unpack(&file, &into).unwrap();
        for (name, content) in &contents {
            assert_eq!(&fs::read(into.join(name)).unwrap(), content);
        }
        #[cfg(unix)]
        {
            let listed = std::process::Command::new("tar").arg("-tf").arg(&file).output().unwrap();
            assert_eq!(String::from_utf8(listed.stdout).unwrap(), "files/aa\nfiles/bb\nbackups/17\n");
        }
    }

    #[test]
    fn foreign_and_cut_files_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let unpacked = |content: &[u8]| {
            let (file, into) = (root.path().join("x"), tempfile::tempdir().unwrap());
            fs::write(&file, content).unwrap();
            unpack(&file, into.path()).unwrap_err().to_string()
        };
        assert!(unpacked(b"short").contains("not a backup"));
        assert!(unpacked(&[b'x'; 2048]).contains("not a backup"));
        let climbing = [header("files/../../x", 0).as_slice(), &[0; 1024]].concat();
        assert!(unpacked(&climbing).contains("something else"));
        let cut = [header("files/aa", 4096).as_slice(), &[0; 100]].concat();
        assert!(unpacked(&cut).contains("end is missing"));
    }
}
