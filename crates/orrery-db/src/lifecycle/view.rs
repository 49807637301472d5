//! A view of a container's partitions for operators.

use orrery_model::value::Value;
use orrery_model::{Charge, Error, ErrorKind, Object, Result};

use super::Lifecycle;
use crate::catalog::{Container, OfferOwner, Partition};
use crate::partition::PartitionHeat;
use crate::resources::Usage;

/// Keys listed per partition.
const LARGEST_KEYS: usize = 10;
/// Keys that are named if one partition is asked about.
const PARTITION_KEYS_MAX: usize = 1000;

/// A container with its partitions.
#[derive(Clone, Debug)]
pub struct ContainerView {
    pub path: String,
    /// The container's own request units per second; `None` if it shares its database's.
    pub throughput: Option<u32>,
    /// The throughput was replaced, and partitions are still being split for it.
    pub offer_pending: bool,
    /// Partitions are being split or merged.
    pub reshaping: bool,
    pub partitions: Vec<PartitionView>,
}

/// Which keys a physical partition holds, and whose it took over.
#[derive(Clone, Debug)]
pub struct PartitionBounds {
    pub range_id: u32,
    pub min: String,
    pub max: String,
    pub parents: Vec<u32>,
}

impl PartitionBounds {
    pub(super) fn of(partition: &Partition) -> Self {
        Self {
            range_id: partition.range_id,
            min: partition.range.min.to_string(),
            max: partition.range.max.to_string(),
            parents: partition.parents.clone(),
        }
    }

    /// The first members of a partition's description.
    pub(super) fn to_object(&self) -> Object {
        let mut object = Object::new();
        object.set("id", Value::from(self.range_id.to_string()));
        object.set("min", Value::from(self.min.as_str()));
        object.set("max", Value::from(self.max.as_str()));
        let parents = self.parents.iter().map(|parent| Value::from(parent.to_string()));
        object.set("parents", parents.collect::<Vec<_>>().into());
        object
    }
}

/// One physical partition.
#[derive(Clone, Debug)]
pub struct PartitionView {
    pub bounds: PartitionBounds,
    pub logical_partitions: u64,
    pub items: u64,
    /// Bytes of the items.
    pub bytes: u64,
    /// Bytes in the store, including the index.
    pub stored_bytes: u64,
    pub lsn: u64,
    /// Its share of the provisioned request units per second; 0 = it has no limit.
    pub request_units_per_second: u64,
    pub heat: PartitionHeat,
    /// The logical partitions with the most bytes, largest first.
    pub largest: Vec<LargeKey>,
}

/// The load of one physical partition, without expensive figures.
#[derive(Clone, Debug, Default)]
pub struct PartitionLoad {
    pub path: String,
    pub range_id: u32,
    pub request_units_per_second: u64,
    pub used_last_second: Charge,
    pub used_per_second_last_minute: f64,
    pub throttled: u64,
    pub stored_bytes: u64,
}

/// A logical partition by its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeKey {
    /// The partition key value as JSON.
    pub key: String,
    pub items: u64,
    pub bytes: u64,
}

/// The logical partitions of one physical partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionKeys {
    /// All of them, whether named or not.
    pub count: u64,
    /// Largest first.
    pub largest: Vec<LargeKey>,
}

impl Lifecycle {
    /// The logical partitions of a partition by size, at most `keys_max` of them by name.
    pub async fn partition_keys(
        &self,
        (database, container): (&str, &str),
        range_id: u32,
        keys_max: usize,
    ) -> Result<PartitionKeys> {
        let mut attempt = 0;
        loop {
            // Looked up for each attempt, since a split may replace the partition while it is measured.
            let catalog = self.catalog.snapshot();
            let container = catalog.container(database, container)?;
            let partition = container.partitions.iter().find(|partition| partition.range_id == range_id);
            let Some(partition) = partition else {
                let message = format!("The container has no partition {range_id}.");
                return Err(Error::new(ErrorKind::NotFound, message));
            };
            // Starts over with each attempt: half a measurement would count keys twice.
            let mut largest = Largest::of(keys_max.clamp(1, PARTITION_KEYS_MAX));
            match self.measure(partition, |key, usage| largest.add(key, usage)).await {
                Ok(_) => return Ok(PartitionKeys { count: largest.count, largest: largest.keys }),
                Err(error) if self.may_route_again(&error, &mut attempt).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The partitions of all containers.
    pub async fn partition_views(&self) -> Result<Vec<ContainerView>> {
        let catalog = self.catalog.snapshot();
        let mut views = Vec::new();
        for container in catalog.containers() {
            views.push(self.container_view(&container.database_id, container.definition.id.as_str()).await?);
        }
        Ok(views)
    }

    /// The load of all partitions.
    pub async fn partition_loads(&self) -> Vec<PartitionLoad> {
        let catalog = self.catalog.snapshot();
        let mut loads = Vec::new();
        for container in catalog.containers() {
            for partition in &container.partitions {
                let (heat, request_units_per_second) = self.partition_heat(container, partition);
                // A partition that is being removed has no size.
                let stored_bytes = self.store.size_bytes(partition.store.id).await.unwrap_or(0);
                loads.push(PartitionLoad {
                    path: container.alt_path(),
                    range_id: partition.range_id,
                    request_units_per_second,
                    used_last_second: heat.last_second,
                    used_per_second_last_minute: heat.per_second_last_minute,
                    throttled: heat.throttled,
                    stored_bytes,
                });
            }
        }
        loads
    }

    /// The partitions of one container.
    pub async fn container_view(&self, database: &str, container: &str) -> Result<ContainerView> {
        let mut attempt = 0;
        loop {
            let catalog = self.catalog.snapshot();
            match self.view(catalog.container(database, container)?).await {
                Err(error) if self.may_route_again(&error, &mut attempt).await => {}
                result => return result,
            }
        }
    }

    async fn view(&self, container: &Container) -> Result<ContainerView> {
        // One call for all partitions: on PostgreSQL each call is a round trip.
        let known = self.store.partitions().await.map_err(crate::failure::store_failure)?;
        let mut partitions = Vec::with_capacity(container.partitions.len());
        for partition in &container.partitions {
            let mut largest = Largest::of(LARGEST_KEYS);
            let usage = self.measure(partition, |key, usage| largest.add(key, usage)).await?;
            let stored_bytes = self.store.size_bytes(partition.store.id).await;
            let (mut heat, request_units_per_second) = self.partition_heat(container, partition);
            // The seconds of keys are for those who poll.
            heat.hottest.iter_mut().for_each(|hot| hot.seconds.clear());
            partitions.push(PartitionView {
                bounds: PartitionBounds::of(partition),
                logical_partitions: largest.count,
                items: usage.items,
                bytes: usage.bytes,
                stored_bytes: stored_bytes.map_err(crate::failure::store_failure)?,
                lsn: known.iter().find(|info| info.id == partition.store.id).map_or(0, |info| info.lsn),
                request_units_per_second,
                heat,
                largest: largest.keys,
            });
        }
        let catalog = self.catalog.snapshot();
        let offer = catalog.offer_of(OfferOwner::Container(container.rid));
        Ok(ContainerView {
            path: container.alt_path(),
            throughput: offer.map(|offer| offer.document.throughput.maximum()),
            offer_pending: offer.is_some_and(|offer| offer.pending),
            reshaping: container.reshaping.is_some(),
            partitions,
        })
    }
}

/// The largest of many keys.
struct Largest {
    keys_max: usize,
    keys: Vec<LargeKey>,
    count: u64,
}

impl Largest {
    fn of(keys_max: usize) -> Self {
        Self { keys_max, keys: Vec::new(), count: 0 }
    }

    fn add(&mut self, key: &str, usage: Usage) {
        // Counters remain when the last item of a key is deleted.
        if usage.items == 0 {
            return;
        }
        self.count += 1;
        // Sorted insertion into a short list; the many other keys cost one comparison.
        let at = self.keys.partition_point(|other| other.bytes >= usage.bytes);
        if at < self.keys_max {
            self.keys.insert(at, LargeKey { key: key.to_owned(), items: usage.items, bytes: usage.bytes });
            self.keys.truncate(self.keys_max);
        }
    }
}

impl ContainerView {
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.set("container", Value::from(self.path.as_str()));
        if let Some(throughput) = self.throughput {
            object.set("throughput", number(throughput.into()));
        }
        object.set("offerReplacePending", Value::from(self.offer_pending));
        object.set("partitionsChanging", Value::from(self.reshaping));
        let partitions = self.partitions.iter().map(PartitionView::to_value);
        object.set("partitions", partitions.collect::<Vec<_>>().into());
        object.into()
    }
}

impl PartitionView {
    fn to_value(&self) -> Value {
        let mut object = self.bounds.to_object();
        object.set("logicalPartitions", number(self.logical_partitions));
        object.set("items", number(self.items));
        object.set("bytes", number(self.bytes));
        object.set("storedBytes", number(self.stored_bytes));
        object.set("lsn", number(self.lsn));
        object.set("requestUnitsPerSecond", number(self.request_units_per_second));
        object.set("usedLastSecond", Value::from(self.heat.last_second.as_f64()));
        object.set("usedPerSecondLastMinute", Value::from(self.heat.per_second_last_minute));
        object.set("banked", Value::from(self.heat.banked.as_f64()));
        object.set("throttled", number(self.heat.throttled));
        object.set("hottestKeys", self.heat.hottest_value());
        object.set("largestKeys", keys_value(&self.largest));
        object.into()
    }
}

impl PartitionKeys {
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.set("logicalPartitions", number(self.count));
        object.set("largestKeys", keys_value(&self.largest));
        object.into()
    }
}

fn keys_value(keys: &[LargeKey]) -> Value {
    let keys = keys.iter().map(|large| {
        let mut key = Object::new();
        key.set("partitionKey", Value::from(large.key.as_str()));
        key.set("items", number(large.items));
        key.set("bytes", number(large.bytes));
        Value::from(key)
    });
    keys.collect::<Vec<_>>().into()
}

pub(super) fn number(number: u64) -> Value {
    // No counter comes near 2^63; a wrong figure would still be better than no status page.
    Value::from(i64::try_from(number).unwrap_or(i64::MAX))
}
