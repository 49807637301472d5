//! No test sleeps for a duration: what it waits for is a condition, with `orrery_testing::wait`.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

/// Every Rust file below a directory.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_test_sleeps() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for one in fs::read_dir(crates).unwrap() {
        let one = one.unwrap().path();
        sources(&one.join("tests"), &mut files);
        let mut product = Vec::new();
        sources(&one.join("src"), &mut product);
        files.extend(product.into_iter().filter(|path| path.ends_with("tests.rs")));
    }
    assert!(files.len() > 100, "{} files", files.len());
    // Written in two parts, so that this file is not among the findings; PostgreSQL has a function of that name.
    let call = concat!("sle", "ep(");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            let sleeps = line.match_indices(call).any(|(at, _)| !line[..at].ends_with("pg_"));
            assert!(!sleeps, "{}:{number} sleeps: {}", file.display(), line.trim());
        }
    }
}
