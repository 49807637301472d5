//! The cut-over: freezes writes and gives the second container the name of the first.

use std::sync::Arc;

use orrery_model::container::ContainerDefinition;
use orrery_model::{Result, Value};

use crate::catalog::Repartition;
use crate::catalog::{Container, OfferOwner, RepartitionRun, Repartitioned, Script, existing};
use crate::failure::store_failure;
use crate::layout::tombstone;
use crate::lifecycle::Lifecycle;

const DELETE_AT_ONCE: usize = 1000;

impl Lifecycle {
    /// Freezes writes. Reads continue.
    pub(super) async fn freeze(&self, run: RepartitionRun) -> Result<()> {
        let container = self
            .catalog
            .change(|change| {
                let current = Arc::clone(existing(&change.catalog, run.source)?);
                let repartition = Some(Repartition { frozen: true, ..run.own(&current)? });
                // Writes that are under way with the old version are rejected; those that come
                // later see the freeze and wait.
                let mut index = current.index.clone();
                index.version += 1;
                let container = Container { index, repartition, ..Container::clone(&current) };
                change.put_container(container.clone());
                Ok(container)
            })
            .await?;
        // Only when every partition has the new version is no unfrozen write left.
        self.fence_writers(&container).await
    }

    /// Replaces the first container by the second in one catalog change.
    pub(super) async fn switch(self: &Arc<Self>, run: RepartitionRun, done: Repartitioned) -> Result<()> {
        let rid = run.source;
        let (source, keep_as) = self
            .catalog
            .change(|change| {
                let source = Arc::clone(existing(&change.catalog, rid)?);
                // Fails if another process has taken over meanwhile.
                let own = run.own(&source)?;
                let target = Arc::clone(existing(&change.catalog, own.target)?);
                let name = source.definition.id.as_str().to_owned();
                // Scripts belong to a container: the new one gets their current versions.
                let scripts = change.catalog.scripts(source.rid);
                // Both names are free before either container is put back; all of this is one commit.
                change.remove_container(&source);
                change.remove_container(&target);
                let stamp = change.stamp;
                let definition = renamed(&target.definition, &name)?;
                let repartitioned = Some(Repartitioned {
                    kept_as: own.keep_as.clone(),
                    former_key: Some(source.definition.partition_key.clone()),
                    ..done
                });
                change.put_container(Container {
                    definition,
                    stamp,
                    repartitioned,
                    ..Container::clone(&target)
                });
                for script in scripts.all() {
                    let mut copy = Script { stamp, ..Script::clone(script) };
                    copy.rid.container = target.rid;
                    change.put_script(copy);
                }
                if let Some(keep_as) = &own.keep_as {
                    if change.catalog.container(&source.database_id, keep_as).is_ok() {
                        return Err(crate::catalog::already_exists());
                    }
                    let definition = renamed(&source.definition, keep_as)?;
                    change.put_container(Container {
                        definition,
                        stamp,
                        repartition: None,
                        ..Container::clone(&source)
                    });
                    for script in scripts.all() {
                        change.put_script(Script::clone(script));
                    }
                } else {
                    // The new container has an offer of its own since its creation.
                    let offer = change.catalog.offer_of(OfferOwner::Container(rid));
                    if let Some(offer) = offer.map(|offer| offer.document.rid) {
                        change.remove_offer(offer);
                    }
                }
                Ok((source, own.keep_as))
            })
            .await?;
        // After the catalog change: if it fails, the tombstones are still needed to resume.
        if keep_as.is_some() {
            self.remove_tombstones(&source).await?;
        } else {
            self.destroy_partitions(source.partitions.iter().map(|partition| partition.store.id).collect());
        }
        Ok(())
    }

    pub(super) async fn remove_tombstones(&self, source: &Container) -> Result<()> {
        for partition in &source.partitions {
            let delete = || self.store.delete_range(partition.store, tombstone::all(), DELETE_AT_ONCE);
            // In steps, so that other writes do not wait behind one large deletion.
            while delete().await.map_err(store_failure)? == DELETE_AT_ONCE {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }
}

fn renamed(definition: &ContainerDefinition, name: &str) -> Result<ContainerDefinition> {
    let mut value = definition.to_value();
    if let Some(object) = value.as_object_mut() {
        object.set("id", Value::from(name));
    }
    ContainerDefinition::create(&value)
}
