//! The load of partitions as OpenMetrics text.
//!
//! Clients can create any number of containers, so only the busiest partitions have their own series; totals include
//! all.

use std::fmt::Write;

use orrery_db::PartitionLoad;

use crate::container_metrics::escape_label;

/// How many partitions have their own series.
const PARTITIONS_MAX: usize = 100;

type Value = fn(&PartitionLoad) -> f64;

/// Name, kind, help and value of each series.
const SERIES: [(&str, &str, &str, Value); 5] = [
    (
        "orrery_partition_provisioned_request_units_per_second",
        "gauge",
        "Share of the provisioned throughput, 0 without a limit",
        |load| to_f64(load.request_units_per_second),
    ),
    (
        "orrery_partition_used_request_units_per_second",
        "gauge",
        "Request units used in the last whole second",
        |load| load.used_last_second.as_f64(),
    ),
    (
        "orrery_partition_used_request_units_per_second_last_minute",
        "gauge",
        "Request units per second, over the last minute",
        |load| load.used_per_second_last_minute,
    ),
    ("orrery_partition_throttled_requests", "counter", "Throttled requests", |load| to_f64(load.throttled)),
    ("orrery_partition_stored_bytes", "gauge", "Bytes in the store, including the index", |load| {
        to_f64(load.stored_bytes)
    }),
];

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn to_f64(number: u64) -> f64 {
    number as f64
}

/// The series of these partitions.
pub(crate) fn series(loads: &[PartitionLoad]) -> String {
    let mut busiest: Vec<&PartitionLoad> = loads.iter().collect();
    busiest.sort_by(|a, b| {
        let by_use = b.used_per_second_last_minute.total_cmp(&a.used_per_second_last_minute);
        // The path last: idle partitions of one size keep their place from scrape to scrape.
        by_use.then_with(|| b.stored_bytes.cmp(&a.stored_bytes)).then_with(|| a.path.cmp(&b.path))
    });
    busiest.truncate(PARTITIONS_MAX);
    let mut out = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        out.write_fmt(text).expect("a String accepts every write");
        out.push('\n');
    };
    line(format_args!("# HELP orrery_partitions Physical partitions."));
    line(format_args!("# TYPE orrery_partitions gauge"));
    line(format_args!("orrery_partitions {}", loads.len()));
    for (name, kind, help, value) in SERIES {
        line(format_args!("# HELP {name} {help}."));
        line(format_args!("# TYPE {name} {kind}"));
        let suffix = if kind == "counter" { "_total" } else { "" };
        for load in &busiest {
            let container = escape_label(&load.path);
            let partition = load.range_id;
            line(format_args!(
                "{name}{suffix}{{container=\"{container}\",partition=\"{partition}\"}} {}",
                value(load)
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_busiest_have_their_own_series() {
        let load = |number: u32| PartitionLoad {
            path: format!("dbs/d/colls/\"{number}\""),
            range_id: number,
            used_per_second_last_minute: f64::from(number),
            throttled: 3,
            ..PartitionLoad::default()
        };
        let loads: Vec<PartitionLoad> = (0..250).map(load).collect();
        let text = series(&loads);
        assert!(text.contains("\norrery_partitions 250\n"));
        assert!(text.contains(
            r#"orrery_partition_throttled_requests_total{container="dbs/d/colls/\"249\"",partition="249"} 3"#
        ));
        assert!(!text.contains(r#"partition="100""#));
        assert_eq!(text.lines().filter(|line| line.contains("stored_bytes{")).count(), PARTITIONS_MAX);
    }
}
