//! What an operator sees of a container's partitions.

use orrery_model::Result;
use orrery_model::value::Value;

use crate::Database;
use crate::throughput::PartitionHeat;
use orrery_model::Object;

/// A container with its partitions.
#[derive(Clone, Debug)]
pub struct ContainerView {
    pub path: String,
    pub partitions: Vec<PartitionView>,
}

/// One physical partition.
#[derive(Clone, Debug)]
pub struct PartitionView {
    pub range_id: u32,
    pub min: String,
    pub max: String,
    pub parents: Vec<u32>,
    pub items: u64,
    pub bytes: u64,
    pub lsn: u64,
    /// Its share of the provisioned request units per second.
    pub request_units_per_second: f64,
    pub heat: PartitionHeat,
}

impl Database {
    /// The partitions of all containers.
    pub async fn partition_views(&self) -> Result<Vec<ContainerView>> {
        let catalog = self.catalog.snapshot();
        let mut views = Vec::new();
        for container in catalog.containers() {
            views.push(self.container_view(&container.database_id, container.definition.id.as_str()).await?);
        }
        Ok(views)
    }

    /// The partitions of one container.
    pub async fn container_view(&self, database: &str, container: &str) -> Result<ContainerView> {
        let usages = self.container_usage(database, container).await?;
        let known = self.store.partitions().await.map_err(crate::failure::store_failure)?;
        let catalog = self.catalog.snapshot();
        let container = catalog.container(database, container)?;
        let count = u32::try_from(container.partitions.len().max(1)).unwrap_or(u32::MAX);
        let throughput =
            self.container_throughput(container).map_or(0.0, |throughput| f64::from(throughput.maximum()));
        let partitions = container.partitions.iter().map(|partition| {
            let usage = usages.iter().find(|(range_id, _)| *range_id == partition.range_id);
            let usage = usage.map(|(_, usage)| *usage).unwrap_or_default();
            PartitionView {
                range_id: partition.range_id,
                min: partition.range.min.to_string(),
                max: partition.range.max.to_string(),
                parents: partition.parents.clone(),
                items: usage.items,
                bytes: usage.bytes,
                lsn: known.iter().find(|info| info.id == partition.store.id).map_or(0, |info| info.lsn),
                request_units_per_second: throughput / f64::from(count),
                heat: self.partition_heat(container, partition),
            }
        });
        Ok(ContainerView { path: container.alt_path(), partitions: partitions.collect() })
    }
}

impl ContainerView {
    pub fn to_value(&self) -> Value {
        let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
        let partitions = self.partitions.iter().map(|partition| {
            let mut object = Object::new();
            object.set("id", Value::from(partition.range_id.to_string()));
            object.set("min", Value::from(partition.min.as_str()));
            object.set("max", Value::from(partition.max.as_str()));
            let parents = partition.parents.iter().map(|parent| Value::from(parent.to_string()));
            object.set("parents", parents.collect::<Vec<_>>().into());
            object.set("items", number(partition.items));
            object.set("bytes", number(partition.bytes));
            object.set("lsn", number(partition.lsn));
            object.set("requestUnitsPerSecond", Value::from(partition.request_units_per_second));
            object.set("usedLastSecond", Value::from(partition.heat.last_second.as_f64()));
            object.set("usedPerSecondLastMinute", Value::from(partition.heat.per_second_last_minute));
            object.set("throttled", number(partition.heat.throttled));
            let hottest = partition.heat.hottest.iter().map(|hot| {
                let mut key = Object::new();
                key.set("partitionKey", Value::from(hot.key.as_str()));
                key.set("requestUnits", Value::from(hot.charge.as_f64()));
                Value::from(key)
            });
            object.set("hottestKeys", hottest.collect::<Vec<_>>().into());
            Value::from(object)
        });
        let mut object = Object::new();
        object.set("container", Value::from(self.path.as_str()));
        object.set("partitions", partitions.collect::<Vec<_>>().into());
        object.into()
    }
}
