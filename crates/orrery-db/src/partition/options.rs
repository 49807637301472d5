//! Settings of the database: limits, intervals and defaults, with the service's values where it has any.

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct Options {
    /// The maximum number of databases and containers together.
    pub account_resources_max: usize,
    /// The maximum size of a logical partition.
    pub logical_partition_bytes_max: u64,
    /// The interval of background maintenance.
    pub sweep_interval_ms: u64,
    /// The size at which a physical partition splits.
    pub partition_bytes_max: u64,
    /// The request units per second above which a physical partition splits; by default the service's.
    pub partition_throughput_max: Option<u32>,
    /// The request units per second up to which a partition with unused throughput may burst.
    pub burst_throughput_max: u64,
    /// Factor for the service's limits on creating databases and containers and on changing throughput; `None` = there
    /// are no such limits.
    pub account_limits_scale: Option<f64>,
    /// Whether requests beyond the provisioned throughput are throttled. Charges are reported either way.
    pub throttle: bool,
    /// For tests: give every new container this many physical partitions, whatever its throughput.
    pub partitions_at_creation: Option<u32>,
    /// Minutes for which all versions are retained in containers without a change feed policy.
    pub change_feed_retention_minutes: Option<u32>,
    /// Whether unknown properties of containers and offers are kept, without effect, instead of rejected.
    pub lenient: bool,
    /// The time limit of a script, and of the functions of one query page.
    pub script_time_max: std::time::Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            account_resources_max: 500,
            logical_partition_bytes_max: 20 << 30,
            sweep_interval_ms: 5_000,
            partition_bytes_max: 50 << 30,
            partition_throughput_max: None,
            burst_throughput_max: orrery_metering::BURST_PER_SECOND,
            account_limits_scale: None,
            throttle: false,
            partitions_at_creation: None,
            change_feed_retention_minutes: None,
            lenient: false,
            script_time_max: orrery_script::Limits::TIME,
        }
    }
}
