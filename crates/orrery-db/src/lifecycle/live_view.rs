//! A live view for operators: the load of a container's partitions per second.
//!
//! Everything comes from memory, so that it can be polled every second; sizes and largest keys, which take a scan, are
//! in `view`.

use orrery_model::value::Value;
use orrery_model::{Object, Result};

use super::Lifecycle;
use super::view::{PartitionBounds, number};
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
    pub bounds: PartitionBounds,
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
            for hot in &mut heat.hottest {
                // Both time lines end with the same second, so the older values go.
                let surplus = hot.seconds.len().saturating_sub(seconds);
                hot.seconds.drain(..surplus);
            }
            LivePartition {
                bounds: PartitionBounds::of(partition),
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
        let mut object = self.bounds.to_object();
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
