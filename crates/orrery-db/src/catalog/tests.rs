//! A routing table that does not cover the key space exactly once is never recorded.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use orrery_env::SeededEnv;
use orrery_storage::Memory;

use super::Container;
use crate::{Database, Options, Receipt};

/// A way to damage a routing table of three partitions.
type Damage = fn(&mut Container);

#[tokio::test]
async fn routing_tables_with_gaps_or_overlaps_are_refused() {
    let env = Arc::new(SeededEnv::new(7, 1_767_225_600_000));
    let options =
        Options { sweep_interval_ms: 24 * 3_600_000, partitions_at_creation: Some(3), ..Options::default() };
    let database = Database::open(Arc::new(Memory::new()), env, options).await.unwrap();
    let mut receipt = Receipt::default();
    database.create_database(&mut receipt, br#"{"id":"d"}"#, None).await.unwrap();
    let body = br#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    database.create_container(&mut receipt, "d", body, None).await.unwrap();
    let whole = Container::clone(database.catalog().container("d", "c").unwrap());
    whole.assert_routing();

    let damages: [(&str, Damage); 5] = [
        ("no start", |container| drop(container.partitions.remove(0))),
        ("no end", |container| drop(container.partitions.pop())),
        ("a gap", |container| drop(container.partitions.remove(1))),
        ("an overlap", |container| {
            container.partitions[1].range.min = container.partitions[0].range.min.clone();
        }),
        ("wrong order", |container| container.partitions.swap(1, 2)),
    ];
    for (what, damage) in damages {
        let mut container = whole.clone();
        damage(&mut container);
        assert!(catch_unwind(AssertUnwindSafe(|| container.assert_routing())).is_err(), "{what}");
    }
}
