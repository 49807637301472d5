//! Nodes of the cluster that go away for some seconds while two stores write and read: what was acknowledged stays,
//! and what does not need the node goes on. `ORRERY_TEST_CITUS_RESTART` names a command that kills a worker and starts it
//! again, `ORRERY_TEST_CITUS_RESTART_COORDINATOR` one that does so with the coordinator.

use super::*;
use crate::suite::outage::{Met, through};

async fn while_it_happens(happens: impl FnOnce() -> bool + Send + 'static) -> Met {
    let url = orrery_testing::fresh_store_url();
    let stores = [open(&url).await, open(&url).await];
    let partitions = stores[0].choose_numbers(1, 8, Vec::new()).await.unwrap();
    for id in &partitions {
        stores[0].create(*id, 0).await.unwrap();
    }
    let met = through(&stores, &partitions, async || {
        let began = Instant::now();
        let killed = tokio::task::spawn_blocking(happens).await.unwrap();
        eprintln!("killed: {killed}, back after {} ms", began.elapsed().as_millis());
    })
    .await;
    for store in stores {
        store.close().await.unwrap();
    }
    met
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_worker_loses_nothing() {
    let Some(_cluster_and_turn) = cluster().await else { return };
    while_it_happens(citus::restart_worker).await.report("a worker was away");
}

/// It is needed for tables and moves, not for reads and writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_coordinator_reads_and_writes_go_on() {
    let Some(_cluster_and_turn) = cluster().await else { return };
    let met = while_it_happens(citus::restart_coordinator).await;
    met.report("the coordinator was away");
    met.nothing_failed();
}
