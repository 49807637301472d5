//! Compares the two containers, item by item and in both directions, before the cut-over.

use orrery_model::document::parse_object;
use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_model::{Error, ErrorKind, Object, Result, Value};
use orrery_storage::{Key, ReadRequest, Scan};
use sha2::{Digest, Sha256};

use super::follow::{Copied, Follower, Touched};
use crate::catalog::Container;
use crate::failure::store_failure;
use crate::items::prepare::canonical;
use crate::layout::document::decode;
use crate::layout::keys;
use crate::layout::stored::StoredItem;
use crate::lifecycle::Lifecycle;

const ITEMS_AT_ONCE: usize = 128;

/// The result of a comparison.
#[derive(Debug, Default)]
pub(super) struct Verification {
    pub items: u64,
    pub checksum: u128,
    /// Items that differed, possibly because they changed during the comparison.
    again: Touched,
    counts: (u64, u64),
    checksums: (u128, u128),
}

impl Verification {
    /// Scans both containers while writes continue.
    pub(super) async fn pass(database: &Lifecycle, follower: &mut Follower<'_>) -> Result<Self> {
        // From here on the follower notes what changes; `finish` looks at those items once more.
        follower.touched = Some(Touched::default());
        let mut found = Self::default();
        let (source, target) = (Arc::clone(&follower.source), follower.target()?);
        // In both directions: an item may be missing on either side.
        for (container, is_source) in [(&source, true), (&target, false)] {
            for partition in &container.partitions {
                let mut range = keys::items_in(&partition.range);
                loop {
                    let scan = ReadRequest::Scan(Scan::forward(range.clone(), ITEMS_AT_ONCE));
                    let page = database.store.read(partition.store, scan).await.map_err(store_failure)?;
                    for entry in &page.entries {
                        let item = decode(&entry.value)?;
                        let Some((effective, _)) = keys::parse_item(&entry.key) else { continue };
                        // Expired and purged items are not copied, so they must not be counted either.
                        if database.is_visible(container, partition, &effective, &item) {
                            found.compare(database, (&source, &target), &entry.key, &item, is_source).await?;
                        }
                    }
                    database.repartitions.update(&source.alt_path(), |status| {
                        status.compared += page.entries.len() as u64;
                    });
                    if !range.continue_after(&page) {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
        Ok(found)
    }

    async fn compare(
        &mut self,
        database: &Lifecycle,
        (source, target): (&Arc<Container>, &Arc<Container>),
        key: &Key,
        item: &StoredItem,
        is_source: bool,
    ) -> Result<()> {
        let sum = checksum(target, item)?;
        let (count, total) = if is_source {
            (&mut self.counts.0, &mut self.checksums.0)
        } else {
            (&mut self.counts.1, &mut self.checksums.1)
        };
        *count += 1;
        // A sum does not depend on the order, which differs between the containers.
        *total = total.wrapping_add(sum);
        let other = if is_source {
            let there = Copied::new(target, key, &item.body)?.store_key(target);
            database.item_at(target, &there).await?
        } else {
            database.item_at(source, &origin(source, item)?).await?
        };
        let same = match other {
            Some(other) => checksum(target, &other)? == sum,
            None => false,
        };
        // Not an error yet: a write may have come between the two reads.
        if !same {
            let list = if is_source { &mut self.again.source } else { &mut self.again.target };
            list.insert(key.clone());
        }
        Ok(())
    }

    /// Compares changed items again, now that writes are frozen.
    pub(super) async fn finish(&mut self, database: &Lifecycle, follower: &Follower<'_>) -> Result<()> {
        let (source, target) = (&follower.source, &follower.target()?);
        let nothing = Touched::default();
        let touched = follower.touched.as_ref().unwrap_or(&nothing);
        let quiet = touched.source.is_empty() && touched.target.is_empty();
        let sources: BTreeSet<&Key> = self.again.source.iter().chain(&touched.source).collect();
        for key in sources {
            // Deleted since; whether its copy is gone too is checked in the other direction.
            let Some(item) = database.item_at(source, key).await? else { continue };
            let there = Copied::new(target, key, &item.body)?.store_key(target);
            let copy = database.item_at(target, &there).await?;
            let same =
                copy.map(|copy| checksum(target, &copy)).transpose()? == Some(checksum(target, &item)?);
            if !same {
                // Tells the operator which two items collide, where that is the reason.
                let other = database.item_at(target, &there).await?;
                let clash = other.map(|other| clash(source, (key, &item), &other)).transpose()?.flatten();
                return Err(clash.unwrap_or_else(|| differs(key)));
            }
        }
        let targets: BTreeSet<&Key> = self.again.target.iter().chain(&touched.target).collect();
        for key in targets {
            let Some(copy) = database.item_at(target, key).await? else { continue };
            let item = database.item_at(source, &origin(source, &copy)?).await?;
            let same =
                item.map(|item| checksum(target, &item)).transpose()? == Some(checksum(target, &copy)?);
            if !same {
                return Err(differs(key));
            }
        }
        // Only comparable if nothing changed during the comparison.
        if quiet && (self.counts.0 != self.counts.1 || self.checksums.0 != self.checksums.1) {
            let message =
                "The copy has other items than the container. Two items may have the same id and key there.";
            return Err(Error::internal(message));
        }
        let usage = async |container: &Container| {
            let name = container.definition.id.as_str();
            let usages = database.container_usage(&container.database_id, name).await?;
            Ok::<u64, Error>(usages.iter().map(|(_, usage)| usage.items).sum())
        };
        // Expired items that have not been swept count in the first, but were not copied to the second.
        let (own, copies) = (usage(source).await?, usage(target).await?);
        if source.definition.default_ttl.is_none() && own != copies {
            return Err(Error::internal(format!(
                "The container has {own} items and its copy {copies}. Two items may have the same id and key there."
            )));
        }
        self.items = copies;
        self.checksum = self.checksums.1;
        Ok(())
    }
}

/// The original of a copy: copies keep all properties, including the old key.
fn origin(source: &Container, copy: &StoredItem) -> Result<Key> {
    let value = parse_object(&copy.body)?;
    let key = source.definition.partition_key.extract(&value)?;
    let id = value.get("id").and_then(Value::as_str).unwrap_or_default();
    Ok(keys::item(&source.definition.partition_key.effective_key(&key), id))
}

/// The error for two items with the same id and new key, if that is why a copy is missing.
fn clash(source: &Container, (key, item): (&Key, &StoredItem), found: &StoredItem) -> Result<Option<Error>> {
    if origin(source, found)? == *key {
        return Ok(None);
    }
    let shown = |item: &StoredItem| -> Result<String> {
        let value = parse_object(&item.body)?;
        let id = value.get("id").map(Value::to_json).unwrap_or_default();
        Ok(format!("{id} under {}", source.definition.partition_key.extract(&value)?.to_json()))
    };
    Ok(Some(Error::new(
        ErrorKind::Conflict,
        format!("Two items would be the same under the new key: {} and {}.", shown(item)?, shown(found)?),
    )))
}

fn differs(key: &Key) -> Error {
    let id = keys::parse_item(key).map(|(_, id)| id.to_owned()).unwrap_or_default();
    Error::internal(format!("The copy of the item '{id}' differs from it."))
}

/// A checksum of the item without the properties added by the new container.
fn checksum(target: &Container, item: &StoredItem) -> Result<u128> {
    let mut value = parse_object(&item.body)?;
    if let Some(policy) = &target.synthetic {
        // The new container may have added these, so only the rest must be equal.
        let paths = policy.definition.key_paths().into_iter().chain(policy.definition.version_property());
        for path in paths {
            remove(&mut value, path.names());
        }
    }
    // Canonical, because a copy may print its members in another order.
    let digest = Sha256::digest(canonical(&value).to_json().as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Ok(u128::from_be_bytes(bytes))
}

fn remove(value: &mut Value, names: &[String]) {
    let Some((last, above)) = names.split_last() else { return };
    let mut object = value.as_object_mut();
    for name in above {
        object = object.and_then(|object: &mut Object| object.get_mut(name)).and_then(Value::as_object_mut);
    }
    if let Some(object) = object {
        object.remove(last);
    }
}
