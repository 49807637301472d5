//! The access path that each kind of query takes, and what it reads on the way, as a golden file: a change of the choice
//! shows as a changed line. `ORRERY_BLESS=1` writes the file anew, to be looked at before it is committed.

use std::fmt::Write;
use std::path::Path;

use orrery_db::{QueryOptions, Receipt};

use crate::common::{PLACE, World};
use crate::run::request;

const DEFINITION: &str = r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
    "indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/hidden/?"}],
    "compositeIndexes":[[{"path":"/name"},{"path":"/age","order":"descending"}]]}"#;

/// One page of the query: its access path, the others that were considered, and what it read.
async fn explained(world: &World, text: &str) -> String {
    let mut receipt = Receipt::default();
    let options = QueryOptions { cross_partition: true, probe_all: true, ..QueryOptions::default() };
    let page = world.database.query_items(&mut receipt, PLACE, &options, &request(text)).await;
    let page = page.unwrap_or_else(|error| panic!("{text}: {error}"));
    let metrics = &page.metrics;
    let mut lines = format!(
        "  {}: {} entries, {} items read, {} rows\n",
        metrics.access, metrics.entries_read, metrics.items_read, metrics.output_items
    );
    for other in metrics.considered.iter().filter(|considered| considered.access != metrics.access) {
        writeln!(lines, "    not {}", other.access).unwrap();
    }
    lines
}

#[tokio::test]
async fn queries_take_the_paths_of_the_golden_file() {
    let world = World::memory().await;
    world.create_container(DEFINITION).await;
    for number in 0..300 {
        let body = format!(
            r#"{{"id":"{number}","pk":"k{}","name":"n{}","age":{},"rare":{},"tags":["t{}"],"hidden":{number}}}"#,
            number % 10,
            number % 3,
            number % 50,
            number / 299,
            number % 20,
        );
        world.create(&body).await;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/access-paths.txt");
    let golden = std::fs::read_to_string(&file).unwrap();
    let mut found = String::new();
    for line in golden.lines().filter(|line| !line.starts_with("  ")) {
        writeln!(found, "{line}").unwrap();
        if line.starts_with("SELECT") {
            found += &explained(&world, line).await;
        }
    }
    if std::env::var_os("ORRERY_BLESS").is_some() {
        std::fs::write(&file, found).unwrap();
        return;
    }
    assert_eq!(found, golden, "ORRERY_BLESS=1 writes the file anew");
}
