//! The cost twin: the same load under each of the service's ways to pay.
//!
//! *Manual* throughput is paid whether it is used or not. *Autoscale* is paid by the hour for the busiest partition's
//! need, times the number of partitions, and at least a tenth of its maximum. *Dynamic autoscale* is the same for each
//! partition by itself. *Serverless* is paid per request unit. Prices come from a small table with its date.

use serde::Deserialize;

use crate::layout::GIB;

/// Hours of a month, as the service bills it.
pub const MONTH_HOURS: f64 = 730.0;
/// Increments of manual throughput, and its minimum.
const MANUAL_STEP: f64 = 100.0;
const MANUAL_MIN: f64 = 400.0;
/// Increments of the maximum of autoscale, which is its minimum too.
const AUTOSCALE_STEP: f64 = 1000.0;
/// Autoscale is never billed below this share of its maximum.
const AUTOSCALE_IDLE: f64 = 0.1;
/// What a partition of a serverless container can use, in request units per second.
const SERVERLESS_PARTITION: f64 = 5000.0;

/// The prices of the service, in some currency.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// When they were published.
    pub date: String,
    pub currency: String,
    /// 100 request units per second for an hour, with manual throughput.
    pub per_100_units_hour: f64,
    pub autoscale_factor: f64,
    /// A million request units, serverless.
    pub serverless_per_million_units: f64,
    /// A gigabyte for a month.
    pub per_gb_month: f64,
}

impl Default for Prices {
    fn default() -> Self {
        // Not `parse`: missing fields of a table are those of this one.
        Self {
            date: "2026-05-08".to_owned(),
            currency: "USD".to_owned(),
            per_100_units_hour: 0.008,
            autoscale_factor: 1.5,
            serverless_per_million_units: 0.25,
            per_gb_month: 0.25,
        }
    }
}

impl Prices {
    /// Parses a table in TOML; fields that it lacks have the published prices.
    pub fn parse(text: &str) -> Result<Self, String> {
        let prices: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        prices.check().map_err(str::to_owned)?;
        Ok(prices)
    }

    /// Whether all prices are usable.
    pub fn check(&self) -> Result<(), &'static str> {
        let all = [
            self.per_100_units_hour,
            self.autoscale_factor,
            self.serverless_per_million_units,
            self.per_gb_month,
        ];
        let is_good = all.iter().all(|price| price.is_finite() && (0.0..=1e6).contains(price));
        if is_good { Ok(()) } else { Err("prices must be between 0 and a million") }
    }

    /// Storage for some hours.
    pub fn storage(&self, bytes: f64, hours: f64) -> f64 {
        bytes / GIB * self.per_gb_month * hours / MONTH_HOURS
    }

    fn throughput(&self, units: f64, hours: f64) -> f64 {
        units / 100.0 * self.per_100_units_hour * hours
    }

    /// Adds some hours of a load to a bill. `maximum` is the throughput of manual and the maximum of autoscale.
    pub fn add(&self, bill: &mut Bill, load: &Load<'_>, maximum: f64, hours: f64) {
        let storage = self.storage(load.bytes, hours);
        bill.storage += storage;
        bill.manual += self.throughput(maximum, hours) + storage;
        let idle = maximum * AUTOSCALE_IDLE;
        let count = (load.peaks.len() as f64).max(1.0);
        let most = load.peaks.iter().copied().fold(0.0, f64::max);
        let uniform = (most * count).clamp(idle, maximum.max(idle));
        let rate = self.autoscale_factor;
        bill.autoscale += self.throughput(uniform, hours) * rate + storage;
        let share = maximum / count;
        let own = |load: &f64| load.clamp(share * AUTOSCALE_IDLE, share);
        let dynamic: f64 = load.peaks.iter().map(own).sum();
        bill.dynamic += self.throughput(dynamic, hours) * rate + storage;
        // Beyond what a partition can do, requests are throttled and cost nothing.
        let used: f64 = load.means.iter().map(|load| load.min(SERVERLESS_PARTITION)).sum();
        bill.serverless += used * hours * 3600.0 / 1e6 * self.serverless_per_million_units + storage;
        bill.is_serverless_enough &= most <= SERVERLESS_PARTITION;
    }

    /// A month of the loads of some points in time, each as long as the others, with the throughput that they need.
    pub fn month(&self, loads: &[Load<'_>], needed: f64) -> Bill {
        // Throughput is sold in steps.
        let manual = (needed / MANUAL_STEP).ceil() * MANUAL_STEP;
        let maximum = (needed / AUTOSCALE_STEP).ceil() * AUTOSCALE_STEP;
        let mut bill = Bill::default();
        for load in loads {
            self.add(&mut bill, load, maximum.max(AUTOSCALE_STEP), MONTH_HOURS / loads.len() as f64);
        }
        // `add` has counted steps of autoscale; manual throughput has finer ones.
        bill.manual = self.throughput(manual.max(MANUAL_MIN), MONTH_HOURS) + bill.storage;
        bill
    }
}

/// The load of some hours.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Request units per second that each partition needs at most.
    pub peaks: &'a [f64],
    /// Request units per second that each partition uses on average.
    pub means: &'a [f64],
    pub bytes: f64,
}

/// What the same load costs in each way to pay; storage is included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bill {
    pub manual: f64,
    pub autoscale: f64,
    pub dynamic: f64,
    pub serverless: f64,
    pub storage: f64,
    /// Whether no partition needs more than a serverless one can do.
    pub is_serverless_enough: bool,
}

impl Default for Bill {
    fn default() -> Self {
        Self {
            manual: 0.0,
            autoscale: 0.0,
            dynamic: 0.0,
            serverless: 0.0,
            storage: 0.0,
            is_serverless_enough: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn month(partitions: &[f64], bytes: f64) -> Bill {
        let most = partitions.iter().copied().fold(0.0, f64::max);
        let load = Load { peaks: partitions, means: partitions, bytes };
        Prices::default().month(&[load], most * partitions.len() as f64)
    }

    fn close(said: f64, expected: f64) {
        assert!((said - expected).abs() < 1e-6 * expected.max(1.0), "{said}, not {expected}");
    }

    /// 730 hours at the published prices: 100 RU/s are 5.84, the same with autoscale 8.76, a million request units 0.25.
    #[test]
    fn a_month_costs_what_the_price_list_says() {
        let even = month(&[500.0, 500.0], 10.0 * GIB);
        close(even.storage, 2.5);
        close(even.manual, 58.4 + 2.5);
        close(even.autoscale, 87.6 + 2.5);
        close(even.dynamic, 87.6 + 2.5);
        close(even.serverless, 1000.0 * 3600.0 * 730.0 / 1e6 * 0.25 + 2.5);
    }

    /// The example in the service's documentation of dynamic scaling: 1,000 RU/s on two partitions, of which one uses 500 and
    /// the other 200. Scaled alike, both are billed at 500; scaled separately, at what they use.
    #[test]
    fn dynamic_autoscale_bills_each_partition_by_itself() {
        let uneven = month(&[500.0, 200.0], 0.0);
        close(uneven.manual, 58.4);
        close(uneven.autoscale, 87.6);
        close(uneven.dynamic, 87.6 * 0.7);
        let idle = month(&[500.0, 1.0], 0.0);
        close(idle.dynamic, 87.6 * 0.55);
    }

    #[test]
    fn minimums_and_limits_hold() {
        let small = month(&[10.0], 0.0);
        close(small.manual, 4.0 * 5.84);
        // Autoscale starts at a maximum of 1,000, of which a tenth is always billed.
        close(small.autoscale, 8.76);
        assert!(small.is_serverless_enough);
        assert!(!month(&[6000.0, 10.0], 0.0).is_serverless_enough);
    }

    #[test]
    fn a_table_of_ones_own_is_read() {
        assert_eq!(Prices::parse(include_str!("../prices.toml")).unwrap(), Prices::default());
        let own = Prices::parse("currency = \"EUR\"\ndate = \"2026-11-01\"\nper_gb_month = 0.3\n").unwrap();
        assert_eq!((own.currency.as_str(), own.per_100_units_hour), ("EUR", 0.008));
        close(own.storage(2.0 * GIB, MONTH_HOURS), 0.6);
        for text in ["per_gb_month = -1", "unknown = 1", "date = 3", "per_gb_month = nan"] {
            assert!(Prices::parse(text).is_err(), "{text}");
        }
    }
}
