//! The façade: opens all layers, resumes unfinished work of an earlier run, and closes them.

use std::sync::Arc;

use orrery_env::Env;
use orrery_model::{Error, Result};
use orrery_storage::{Checkpoint, Health, PartitionStore};

use crate::catalog::{Catalog, CatalogStore};
use crate::failure::store_failure;
use crate::index::Indexes;
use crate::items::Items;
use crate::lifecycle::Lifecycle;
use crate::partition::{Options, Partitions};
use crate::query::Queries;
use crate::resources::Resources;
use crate::scripts::Scripts;

/// A running database with the methods of all layers, for the gateway and the command line.
pub struct Database {
    lifecycle: Arc<Lifecycle>,
}

layer!(Database { lifecycle: Lifecycle });

impl Database {
    /// Opens the database in a store, resumes unfinished work of an earlier run, and starts the background work. Must
    /// be called inside a Tokio runtime.
    pub async fn open(
        store: Arc<dyn PartitionStore>,
        env: Arc<dyn Env>,
        options: Options,
    ) -> Result<Arc<Self>> {
        let catalog = CatalogStore::open(Arc::clone(&store), Arc::clone(&env)).await?;
        let partitions = Arc::new(Partitions::new(store, env, catalog, options));
        let indexes = Arc::new(Indexes::new(partitions));
        let items = Arc::new(Items::new(indexes));
        let queries = Arc::new(Queries::new(items));
        let scripts = Arc::new(Scripts::new(queries));
        let resources = Arc::new(Resources::new(scripts));
        let database = Arc::new(Self { lifecycle: Arc::new(Lifecycle::new(resources)) });
        // Before anything is served: half moved partitions go back first.
        database.roll_back_interrupted().await?;
        if database.is_shared() {
            database.check_partitions().await?;
        } else {
            // Only where this process is alone: elsewhere a partition without a container may be in creation.
            database.remove_orphaned_partitions().await?;
        }
        // Before looking for purges: a process that starts one later then sees this process.
        database.share_budgets().await?;
        // Before requests, which rely on the set to hide purged items.
        database.load_purges().await?;
        // Marks may be behind a definition that was replaced just before a crash.
        for container in database.catalog.snapshot().containers() {
            database.unsettle_history(container.rid);
            database.set_history_mark(container.rid).await?;
        }
        database.start_maintenance();
        database.resume_repartitions();
        database.start_following();
        // An offer was replaced before the stop; its partitions are still to be split.
        if database.catalog.snapshot().offers.values().any(|offer| offer.pending) {
            database.wake_maintenance();
        }
        Ok(database)
    }

    /// The current catalog snapshot.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.snapshot()
    }

    /// Runs work that has become due, after a test has moved the clock.
    pub fn clock_was_moved(&self) {
        self.wake_maintenance();
    }

    /// The store's health; impaired if a partition's writes are offline.
    pub fn store_health(&self) -> Health {
        match (self.store.health(), self.offline.summary()) {
            (Health::Ready, Some(offline)) => Health::Impaired(offline),
            (health, _) => health,
        }
    }

    /// How long the oldest write has been waiting for the store.
    pub fn oldest_write_wait(&self) -> std::time::Duration {
        self.store.oldest_write_wait()
    }

    /// Which engine keeps the data.
    pub fn store_name(&self) -> &'static str {
        self.store.name()
    }

    /// Takes a checkpoint of the store's files for a backup.
    pub async fn take_checkpoint(&self) -> Result<Box<dyn Checkpoint>> {
        let checkpoint = self.store.checkpoint().await.map_err(store_failure)?;
        checkpoint.ok_or_else(|| {
            let message = format!("The {} store has no checkpoints; use its own backups.", self.store.name());
            Error::not_implemented(message)
        })
    }

    /// Stops background work and closes the store. Requests that come later fail as unavailable.
    pub async fn close(&self) -> Result<()> {
        // In this order: long work stops by itself, then those who could start new work, then the store.
        self.begin_stopping();
        self.following.stop();
        self.repartitions.stop();
        self.maintenance.stop().await;
        self.store.close().await.map_err(store_failure)
    }
}
