//! A live view for operators: the load of a container's partitions per second.
//!
//! Everything comes from memory, so that it can be polled every second; sizes and largest keys, which take a scan, are
//! in `view`.

use orrery_model::value::Value;
use orrery_model::{Object, Result};

use super::Lifecycle;
use crate::partition::{HeatSecond, PartitionHeat};

/// A container's load.
#[derive(Clone, Debug)]
pub struct LiveView {
    pub path: String,
    /// The second after the last one of each time line.
    pub second: i64,
    /// Partitions are being split or merged.
    pub reshaping: bool,
    pub partitions: Vec<LivePartition>,
}

/// The load of one partition.
#[derive(Clone, Debug)]
pub struct LivePartition {
    pub range_id: u32,
    pub min: String,
    pub max: String,
    pub parents: Vec<u32>,
    /// 0 = it has no limit.
    pub request_units_per_second: u64,
    pub heat: PartitionHeat,
    /// The last seconds, oldest first.
    pub seconds: Vec<HeatSecond>,
}

impl Lifecycle {
    /// The last `seconds` of a container's partitions, each with at most `keys_max` of its hottest keys.
    pub fn container_heat(
        &self,
        database: &str,
        container: &str,
        seconds: usize,
        keys_max: usize,
    ) -> Result<LiveView> {
        let catalog = self.catalog.snapshot();
        let container = catalog.container(database, container)?;
        let second = self.env.now_seconds();
        let live = container.partitions.iter().map(|partition| {
            let (mut heat, request_units_per_second) = self.partition_heat(container, partition);
            heat.hottest.truncate(keys_max);
            LivePartition {
                range_id: partition.range_id,
                min: partition.range.min.to_string(),
                max: partition.range.max.to_string(),
                parents: partition.parents.clone(),
                request_units_per_second,
                heat,
                seconds: self.partition_timeline(container, partition, seconds),
            }
        });
        Ok(LiveView {
            path: container.alt_path(),
            second,
            reshaping: container.reshaping.is_some(),
            partitions: live.collect(),
        })
    }
}

impl LiveView {
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.set("container", Value::from(self.path.as_str()));
        object.set("second", Value::from(self.second));
        object.set("partitionsChanging", Value::from(self.reshaping));
        let partitions = self.partitions.iter().map(LivePartition::to_value);
        object.set("partitions", partitions.collect::<Vec<_>>().into());
        object.into()
    }
}

impl LivePartition {
    fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.set("id", Value::from(self.range_id.to_string()));
        object.set("min", Value::from(self.min.as_str()));
        object.set("max", Value::from(self.max.as_str()));
        let parents = self.parents.iter().map(|parent| Value::from(parent.to_string()));
        object.set("parents", parents.collect::<Vec<_>>().into());
        let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
        object.set("requestUnitsPerSecond", number(self.request_units_per_second));
        object.set("throttled", number(self.heat.throttled));
        object.set("banked", Value::from(self.heat.banked.as_f64()));
        object.set("hottestKeys", self.heat.hottest_value());
        let used = self.seconds.iter().map(|second| Value::from(second.used.as_f64()));
        object.set("usedBySecond", used.collect::<Vec<_>>().into());
        let throttled = self.seconds.iter().map(|second| number(second.throttled.into()));
        object.set("throttledBySecond", throttled.collect::<Vec<_>>().into());
        object.into()
    }
}
