//! Cluster nodes that are down for some seconds while two stores write and read: acknowledged writes survive, and
//! requests that do not need the node succeed. `ORRERY_TEST_CITUS_RESTART` names a command that kills and restarts a
//! worker, `ORRERY_TEST_CITUS_RESTART_COORDINATOR` one that does the same to the coordinator.

use super::*;
use crate::suite::outage::{ClientReport, through};

async fn while_it_happens(happens: impl FnOnce() -> bool + Send + 'static) -> ClientReport {
    let url = orrery_testing::fresh_store_url();
    let stores = [open(&url).await, open(&url).await];
    let partitions = stores[0].choose_ids(1, 8, Vec::new()).await.unwrap();
    for id in &partitions {
        stores[0].create(*id, 0).await.unwrap();
    }
    let report = through(&stores, &partitions, async || {
        let began = Instant::now();
        let killed = tokio::task::spawn_blocking(happens).await.unwrap();
        eprintln!("killed: {killed}, back after {} ms", began.elapsed().as_millis());
    })
    .await;
    for store in stores {
        store.close().await.unwrap();
    }
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_a_worker_loses_nothing() {
    let Some(_cluster_and_turn) = cluster().await else { return };
    while_it_happens(citus::restart_worker).await.report("a worker was away");
}

/// The coordinator is needed for schema changes and moves, not for reads and writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_and_writes_work_without_the_coordinator() {
    let Some(_cluster_and_turn) = cluster().await else { return };
    let report = while_it_happens(citus::restart_coordinator).await;
    report.report("the coordinator was away");
    report.assert_no_failures();
}
