//! Sets, replaces and removes a container's synthetic key policy.
//!
//! A policy on a container with items is first enforced on writes and only then used for queries: the partitions record
//! a new index version, so that no write with a stale view can slip through, and all items are checked. If an item does
//! not match the policy, setting it fails and the container is unchanged.

use orrery_model::document::parse_object;
use std::sync::Arc;

use orrery_model::rid::ContainerRid;
use orrery_model::{Error, Result, Value};
use orrery_storage::{ReadRequest, Scan};

use super::Resources;
use super::metadata::MetadataReply;
use crate::catalog::{Container, SYNTHETIC_KEY, SyntheticPolicy, existing};
use crate::failure::store_failure;
use crate::layout::document::decode;
use crate::layout::keys;

const ITEMS_AT_ONCE: usize = 256;

impl Resources {
    /// Sets or removes the container's policy without changing the rest of its definition.
    pub async fn set_synthetic_key(
        &self,
        (database, container): (&str, &str),
        policy: Option<&Value>,
    ) -> Result<MetadataReply> {
        let catalog = self.catalog.snapshot();
        let current = catalog.container(database, container)?;
        let mut body = current.definition.to_value();
        let object = body.as_object_mut().ok_or_else(|| Error::internal("a definition is no object"))?;
        object.set(SYNTHETIC_KEY, policy.cloned().unwrap_or(Value::Null));
        // The same path as a client's replacement, with its checks and its verification.
        self.replace_container(
            &mut crate::Receipt::default(),
            (database, container),
            body.to_json().as_bytes(),
            None,
        )
        .await
    }

    /// Whether queries are routed by the container's policy; none if it has no policy.
    pub fn synthetic_key(&self, database: &str, container: &str) -> Result<Option<Arc<SyntheticPolicy>>> {
        Ok(self.catalog.snapshot().container(database, container)?.synthetic.clone())
    }

    /// Checks all items after the policy was set, then enables routing or reverts the change.
    pub(crate) async fn verify_policy(&self, rid: ContainerRid, before: &Container) -> Result<()> {
        // Partitions must not split or merge during the check.
        let reshaping = self.lock_reshaping().await?;
        let verified = self.all_items_follow(rid).await;
        reshaping.release().await;
        let policy = existing(&self.catalog.snapshot(), rid)?.synthetic.clone();
        self.catalog
            .change(|change| {
                let current = Arc::clone(existing(&change.catalog, rid)?);
                // A concurrent policy change runs its own check.
                if current.synthetic != policy {
                    return Ok(());
                }
                let container = match &verified {
                    Ok(()) => {
                        // From here on queries may be routed by it.
                        let synthetic = SyntheticPolicy::of(&current.definition, true)?;
                        Container { synthetic, ..Container::clone(&current) }
                    }
                    // Back to the definition from before, under a new etag, because
                    // clients may have seen the other one.
                    Err(_) => Container {
                        definition: before.definition.clone(),
                        synthetic: before.synthetic.clone(),
                        stamp: change.stamp,
                        index: current
                            .index
                            .with_policy(&before.definition.indexing, &before.definition.computed_properties),
                        ..Container::clone(&current)
                    },
                };
                change.put_container(container);
                Ok(())
            })
            .await?;
        verified
    }

    async fn all_items_follow(&self, rid: ContainerRid) -> Result<()> {
        let catalog = self.catalog.snapshot();
        let container = existing(&catalog, rid)?;
        let Some(policy) = &container.synthetic else { return Ok(()) };
        // Writes that do not know the policy are rejected first; otherwise one could slip in behind the scan.
        self.fence_writers(container).await?;
        for partition in &container.partitions {
            let mut range = keys::items_in(&partition.range);
            loop {
                let scan = ReadRequest::Scan(Scan::forward(range.clone(), ITEMS_AT_ONCE));
                let page = self.store.read(partition.store, scan).await.map_err(store_failure)?;
                for entry in &page.entries {
                    let item = decode(&entry.value)?;
                    let value = parse_object(&item.body)?;
                    let key = container.definition.partition_key.extract(&value)?;
                    policy.check(&value, &key).map_err(|error| {
                        let id = value.get("id").and_then(Value::as_str).unwrap_or_default();
                        Error::bad_request(format!(
                            "The item '{id}' does not match the definition: {} Copy the items into a container with the new key instead (orrery containers repartition).",
                            error.message
                        ))
                    })?;
                }
                if !range.continue_after(&page) {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }
}
