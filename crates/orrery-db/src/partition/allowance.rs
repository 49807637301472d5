//! The share of a partition's throughput for background work: a tenth, and only while requests leave some.

use std::collections::HashMap;

use orrery_model::Charge;
use orrery_storage::PartitionId;
use parking_lot::Mutex;

use orrery_metering::Priority;

use super::Partitions;
use crate::catalog::{Container, Partition};

/// The share of the provisioned throughput is one in this many.
const PART: i64 = 10;
/// Seconds of unused allowance that are banked, because the work runs only from time to time.
const KEPT_SECONDS: i64 = 10;

/// The remaining allowance of each partition, in hundredths of a unit.
#[derive(Debug, Default)]
pub(crate) struct Allowances(Mutex<HashMap<PartitionId, Allowance>>);

#[derive(Clone, Copy, Debug)]
struct Allowance {
    at_ms: i64,
    /// Negative: debt for the coming seconds.
    left: i64,
}

impl Allowances {
    /// The current allowance of a partition with this throughput.
    fn left(&self, partition: PartitionId, units_per_second: u64, now_ms: i64) -> i64 {
        let per_second = i64::try_from(units_per_second).unwrap_or(i64::MAX).saturating_mul(100) / PART;
        // Never 0, or the work would never finish on a small partition.
        let per_second = per_second.max(1);
        let mut allowances = self.0.lock();
        // Starts with one second's worth, so that a new partition need not wait.
        let fresh = Allowance { at_ms: now_ms, left: per_second };
        let allowance = allowances.entry(partition).or_insert(fresh);
        let passed_ms = now_ms.saturating_sub(allowance.at_ms).max(0);
        let earned = passed_ms.saturating_mul(per_second) / 1000;
        // Capped: hours of idleness must not turn into a burst of background work.
        allowance.left = allowance.left.saturating_add(earned).min(per_second.saturating_mul(KEPT_SECONDS));
        allowance.at_ms = now_ms;
        allowance.left
    }

    fn spend(&self, partition: PartitionId, charge: Charge) {
        if let Some(allowance) = self.0.lock().get_mut(&partition) {
            let charge = i64::try_from(charge.hundredths()).unwrap_or(i64::MAX);
            allowance.left = allowance.left.saturating_sub(charge);
        }
    }

    pub(super) fn forget(&self, partition: PartitionId) {
        self.0.lock().remove(&partition);
    }
}

impl Partitions {
    /// How much background work this partition can afford now; none while its budget or the tenth is spent. Unlimited
    /// if requests are not throttled.
    pub(crate) fn background_allowance(
        &self,
        container: &Container,
        partition: &Partition,
    ) -> Option<Charge> {
        let catalog = self.catalog.snapshot();
        let (rate, is_spent) = self.budgets.state(&catalog, container, partition, self.env.now_ms());
        if !self.options.throttle || rate == 0 {
            return Some(Charge::from_hundredths(u64::MAX));
        }
        let left = self.budgets.allowances.left(partition.store.id, rate, self.env.now_ms());
        // Negative, or the second is already spent by requests: wait.
        let left = u64::try_from(left).ok().filter(|left| *left > 0 && !is_spent)?;
        Some(Charge::from_hundredths(left))
    }

    /// What requests have left over of this partition's throughput lately, for removing expired items. Unlimited if
    /// requests are not throttled.
    pub(crate) fn left_over(&self, container: &Container, partition: &Partition) -> Option<Charge> {
        let unlimited = Charge::from_hundredths(u64::MAX);
        if !self.options.throttle {
            return Some(unlimited);
        }
        let catalog = self.catalog.snapshot();
        let left = self.budgets.left_over(&catalog, container, partition, self.env.now_ms());
        Some(left.unwrap_or(unlimited)).filter(|left| *left > Charge::ZERO)
    }

    /// Charges the partition for removing expired items.
    pub(crate) fn charge_left_over(&self, container: &Container, partition: &Partition, charge: Charge) {
        let catalog = self.catalog.snapshot();
        self.budgets.spend_left_over(&catalog, container, partition, (self.env.now_ms(), charge));
    }

    /// Charges the partition for background work.
    pub(crate) fn charge_background(&self, container: &Container, partition: &Partition, charge: Charge) {
        let catalog = self.catalog.snapshot();
        self.budgets.allowances.spend(partition.store.id, charge);
        // Counted as load of the partition too, so that requests see what it leaves.
        self.budgets.settle_for(&catalog, container, partition, (self.env.now_ms(), charge, Priority::Low));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_given_and_little_is_kept() {
        let (allowances, partition) = (Allowances::default(), PartitionId(1));
        let left = |at_ms| allowances.left(partition, 400, at_ms);
        assert_eq!(left(5_000), 4_000);
        allowances.spend(partition, Charge::from_hundredths(10_000));
        assert_eq!(left(5_000), -6_000);
        assert_eq!(left(6_500), 0);
        assert_eq!(left(7_500), 4_000);
        assert_eq!(left(3_600_000), 40_000);
        // Setting the clock back does not reduce the allowance.
        assert_eq!(left(0), 40_000);
    }
}
