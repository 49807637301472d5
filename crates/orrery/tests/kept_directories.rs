//! Directories that earlier versions have left are served by this one, and what it writes stays whole; a directory of a
//! newer format is refused and left as it is.
//!
//! `tests/data/kept` has one directory for each version, stopped and killed: `data` as the server left it, without keys
//! and certificates. Both have a container with a composite index, unique keys, 35 items after replaces, deletes and a
//! split, and one with a hierarchical key; the killed one has 20 more items and one less, only in the journal.

#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(unix)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{DOCS, Server, orrery, path_text, run};

fn unpack(archive: &Path, into: &Path) -> PathBuf {
    let status = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(into).status().unwrap();
    assert!(status.success(), "{}", archive.display());
    into.join("data")
}

fn check(data: &Path) -> String {
    let (code, stdout, stderr) = run(&mut orrery(&["store", "check", "--data", path_text(data)]));
    assert_eq!(code, 0, "{stdout}{stderr}");
    stdout
}

fn count(server: &Server, filter: &str) -> Option<i64> {
    let headers = [
        ("x-ms-documentdb-isquery", "true"),
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-query-enablecrosspartition", "true"),
    ];
    let query = format!(r#"{{"query":"SELECT VALUE COUNT(1) FROM c WHERE {filter}"}}"#);
    let answer = server.client().post_with(DOCS, &headers, &query, 200).json();
    answer.get("Documents")?.as_array()?.first()?.as_i64()
}

#[test]
fn directories_of_earlier_versions_are_served() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kept");
    let mut archives: Vec<PathBuf> =
        std::fs::read_dir(kept).unwrap().map(|entry| entry.unwrap().path()).collect();
    archives.sort();
    assert!(archives.len() >= 2);
    for archive in archives {
        let directory = tempfile::tempdir().unwrap();
        let data = unpack(&archive, directory.path());
        let late = if archive.to_string_lossy().contains("killed") { 20 } else { 0 };
        let items = if late > 0 { 54 } else { 35 };
        let checked = check(&data);
        assert!(
            checked
                .contains(&format!("2 containers, 3 partitions, 6 logical partitions, {} items", items + 1)),
            "{checked}"
        );
        let server = Server::on_directory(&data);
        assert_eq!(count(&server, "true"), Some(items), "{}", archive.display());
        assert_eq!(count(&server, "c.n >= 100 AND c.n < 110"), Some(10));
        assert_eq!(count(&server, "c.name = 'late'"), Some(late));
        let mut client = server.client();
        let key = ("x-ms-documentdb-partitionkey", "[\"1\"]");
        let read = client.send("GET", &format!("{DOCS}/11"), &[key], b"").unwrap();
        assert_eq!(read.json().get("name").unwrap().as_str(), Some("Name 2"));
        // A unique key of the old directory still holds.
        client.post_with(DOCS, &[key], r#"{"id":"new","pk":"1","n":11}"#, 409);
        client.post_with(DOCS, &[key], r#"{"id":"new","pk":"1","n":12,"name":"new"}"#, 201);
        client.post_with("/dbs/db/colls/c/sprocs/count", &[key], "[]", 200);
        server.stop();
        assert!(check(&data).contains(&format!("{} items", items + 2)));
    }
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kept/0.2.0-stopped.tar.gz");
    let data = unpack(&archive, directory.path());
    let format = data.join("store/FORMAT");
    assert_eq!(std::fs::read_to_string(&format).unwrap(), "orrery-store 1\n");
    std::fs::write(&format, "orrery-store 2\n").unwrap();
    let before = files(&data);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data", path_text(&data)];
    for arguments in [&serve[..], &["store", "check", "--data", path_text(&data)]] {
        let (code, _, stderr) = run(&mut orrery(arguments));
        assert_eq!(code, 1, "{stderr}");
        assert!(stderr.contains("version 2") && stderr.contains('1'), "{stderr}");
    }
    assert_eq!(files(&data), before);
}

/// All files of the store with their content.
fn files(data: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![data.join("store")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.clone(), std::fs::read(path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
