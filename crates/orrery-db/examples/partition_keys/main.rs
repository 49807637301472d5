//! Measures the strategies of `docs/partition-keys.md` and writes the tables there:
//! `cargo run -p orrery-db --example partition_keys -- docs/partition-keys.md`. Without a file it prints them.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that may stop at once, shared with a test"
)]

mod measure;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let tables = measure::tables().await;
    match std::env::args().nth(1) {
        None => tables.iter().for_each(|(name, table)| println!("{name}\n\n{table}")),
        Some(file) => {
            let guide = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, measure::with_tables(&guide, &tables)).unwrap();
        }
    }
}
