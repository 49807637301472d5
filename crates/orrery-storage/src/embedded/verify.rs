//! Finds the damaged file.
//!
//! The tree verifies every block it reads, but its errors name no file, and it does not verify its table list (the
//! file `v<n>`, named by `current`). This module fills both gaps: it compares the list with the checksum in `current`
//! at every start, and the tables with the checksums in the list after a failed read or on request.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::error::OpenError;

/// A table and its expected checksum.
pub(super) struct ListedTable {
    pub(super) path: PathBuf,
    pub(super) checksum: u128,
}

/// Verifies and returns the list of tables; empty if there is no tree yet.
pub(super) fn check_table_list(tree: &Path) -> Result<Vec<ListedTable>, OpenError> {
    let current = tree.join("current");
    let content = match fs::read(&current) {
        Ok(content) => content,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(OpenError::io(&current)(error)),
    };
    // Number (u64), checksum (u128), checksum kind (u8), as `lsm-tree` writes it.
    let Ok(content) = <[u8; 25]>::try_from(content) else {
        return Err(OpenError::damaged(&current, "it is not 25 bytes long"));
    };
    let mut reader = Fields(&content);
    let (number, checksum) = (reader.u64(), reader.u128());
    let (Some(number), Some(checksum), Some(0)) = (number, checksum, reader.u8()) else {
        return Err(OpenError::damaged(&current, "it names an unknown kind of checksum"));
    };
    let list = tree.join(format!("v{number}"));
    let content = match fs::read(&list) {
        Ok(content) => content,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(OpenError::damaged(
                &current,
                format!("it names the list v{number}, which is missing"),
            ));
        }
        Err(error) => return Err(OpenError::io(&list)(error)),
    };
    if xxh3_128(&content) != checksum {
        let detail = "its content does not match the checksum in `current`, or that checksum is damaged";
        return Err(OpenError::damaged(&list, detail));
    }
    let tables = read_table_list(tree, &list)
        .ok_or_else(|| OpenError::damaged(&list, "the list of tables is malformed"))?;
    // Only existence is checked at every start; reading all tables is opt-in, because it takes as long as a full scan.
    for table in &tables {
        if !table.path.try_exists().map_err(OpenError::io(&table.path))? {
            return Err(OpenError::damaged(&table.path, "the table is missing"));
        }
    }
    Ok(tables)
}

/// The number of the current table list, and the content of the file that names it; `None` if there is no tree yet.
pub(super) fn read_current(tree: &Path) -> std::io::Result<Option<(u64, Vec<u8>)>> {
    let content = match fs::read(tree.join("current")) {
        Ok(content) => content,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let number = Fields(&content).u64();
    let number = number
        .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidData, "`current` is too short"))?;
    Ok(Some((number, content)))
}

/// The first table whose content does not match its checksum.
pub(super) fn find_damaged_table(tables: &[ListedTable]) -> Option<(PathBuf, String)> {
    tables.iter().find_map(|table| check_table(&table.path, table.checksum))
}

/// The table's path and what is wrong with it, or `None` if its checksum matches.
pub(super) fn check_table(path: &Path, checksum: u128) -> Option<(PathBuf, String)> {
    let detail = match checksum_of(path) {
        Ok(found) if found == checksum => return None,
        Ok(_) => "the content of the table does not match its checksum".to_owned(),
        Err(error) => format!("the table cannot be read: {error}"),
    };
    Some((path.to_owned(), detail))
}

fn checksum_of(path: &Path) -> std::io::Result<u128> {
    let mut file = File::open(path)?;
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        // In chunks: a table is larger than anything we want to hold in memory.
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.digest128()),
            bytes => hasher.update(&buffer[..bytes]),
        }
    }
}

/// Levels of runs of tables; each table has a number, a checksum kind, a checksum and a sequence number.
pub(super) fn read_table_list(tree: &Path, list: &Path) -> Option<Vec<ListedTable>> {
    let archive = sfa::Reader::new(list).ok()?;
    let mut section = Vec::new();
    archive.toc().section(b"tables")?.reader(list).ok()?.read_to_end(&mut section).ok()?;
    let mut fields = Fields(&section);
    let mut tables = Vec::new();
    // Levels, then runs, then tables, as `lsm-tree` writes them.
    for _ in 0..fields.u8()? {
        for _ in 0..fields.u8()? {
            for _ in 0..fields.u32()? {
                let number = fields.u64()?;
                // Only checksums of kind 0, XXH3-128, are known.
                let (0, checksum, _sequence) = (fields.u8()?, fields.u128()?, fields.u64()?) else {
                    return None;
                };
                let path = tree.join("tables").join(number.to_string());
                tables.push(ListedTable { path, checksum });
            }
        }
    }
    Some(tables)
}

/// Reads little-endian fields in sequence.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (field, rest) = self.0.split_first_chunk::<BYTES>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.take().map(u128::from_le_bytes)
    }
}
