//! What an operator may set.

/// What an operator may set.
#[derive(Clone, Debug)]
pub struct Options {
    /// Databases and containers together.
    pub account_resources_max: usize,
    /// Bytes of items under one partition key value.
    pub logical_partition_bytes_max: u64,
    /// How often expired items are looked for.
    pub sweep_interval_ms: u64,
    /// Bytes that a physical partition may hold before it splits.
    pub partition_bytes_max: u64,
    /// Request units per second that a physical partition may have before it splits; by default the service's.
    pub partition_throughput_max: Option<u32>,
    /// Whether requests beyond the provisioned throughput are told to wait. Charges are reported either way.
    pub throttle: bool,
    /// For tests: give every new container this many physical partitions, whatever its throughput.
    pub partitions_at_creation: Option<u32>,
    /// Minutes that every version of every item is kept, in containers whose change feed policy says nothing.
    pub change_feed_retention_minutes: Option<u32>,
    /// Whether properties of containers and offers that nobody knows are kept, without effect, instead of refused.
    pub lenient: bool,
    /// How long a script may run, and the functions of one page of a query.
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
            throttle: false,
            partitions_at_creation: None,
            change_feed_retention_minutes: None,
            lenient: false,
            script_time_max: orrery_script::Limits::TIME,
        }
    }
}
