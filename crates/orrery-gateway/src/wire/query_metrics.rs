//! The query metrics header.

use std::time::Duration;

use orrery_db::QueryMetrics;

/// The value of `x-ms-documentdb-query-metrics`.
pub fn to_header(metrics: &QueryMetrics) -> String {
    // Two decimals; a non-zero time is never printed as 0, and totals are the sums of the printed figures.
    let hundredths = |time: Duration| match time.as_nanos() {
        0 => 0,
        nanoseconds => (nanoseconds / 10_000).max(1),
    };
    let text = |hundredths: u128| format!("{}.{:02}", hundredths / 100, hundredths % 100);
    let ms = |time: Duration| text(hundredths(time));
    let [load, write, index] = [metrics.load_time, metrics.output_time, metrics.index_time].map(hundredths);
    // The query engine's time includes loading items and writing rows.
    let execution = hundredths(metrics.evaluation_time).max(load + write + index);
    let total = hundredths(metrics.total_time).max(execution);
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts of items")]
    let ratio = match metrics.items_read {
        0 => 1.0,
        read => (metrics.output_items as f64 / read as f64).min(1.0),
    };
    let pairs = [
        ("totalExecutionTimeInMs", text(total)),
        ("queryCompileTimeInMs", ms(metrics.parse_time + metrics.compile_time)),
        ("queryLogicalPlanBuildTimeInMs", ms(metrics.parse_time)),
        ("queryPhysicalPlanBuildTimeInMs", ms(metrics.plan_time)),
        ("queryOptimizationTimeInMs", ms(Duration::ZERO)),
        ("VMExecutionTimeInMs", text(execution)),
        ("indexLookupTimeInMs", ms(metrics.index_time)),
        // No such number exists here; this one grows with the work in the same way.
        ("instructionCount", (metrics.entries_read + metrics.items_read + metrics.output_items).to_string()),
        ("documentLoadTimeInMs", ms(metrics.load_time)),
        // Functions are part of the evaluation and not measured separately.
        ("systemFunctionExecuteTimeInMs", ms(Duration::ZERO)),
        ("userFunctionExecuteTimeInMs", ms(Duration::ZERO)),
        ("retrievedDocumentCount", metrics.items_read.to_string()),
        ("retrievedDocumentSize", metrics.bytes_read.to_string()),
        ("outputDocumentCount", metrics.output_items.to_string()),
        ("outputDocumentSize", metrics.output_bytes.to_string()),
        ("writeOutputTimeInMs", ms(metrics.output_time)),
        ("indexUtilizationRatio", format!("{ratio:.2}")),
    ];
    let texts: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    texts.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up() {
        let metrics = QueryMetrics {
            total_time: Duration::from_nanos(100),
            load_time: Duration::from_nanos(7),
            output_time: Duration::from_micros(33),
            evaluation_time: Duration::from_micros(12),
            ..QueryMetrics::default()
        };
        let header = to_header(&metrics);
        let value = |name: &str| {
            let text = header.split(';').find_map(|pair| pair.strip_prefix(&format!("{name}="))).unwrap();
            text.parse::<f64>().unwrap()
        };
        assert!(value("documentLoadTimeInMs") > 0.0, "{header}");
        let parts = value("documentLoadTimeInMs") + value("writeOutputTimeInMs");
        assert!(parts > 0.03 && value("VMExecutionTimeInMs") + 1e-9 >= parts, "{header}");
        assert!(value("totalExecutionTimeInMs") >= value("VMExecutionTimeInMs"), "{header}");
    }

    #[test]
    fn the_header_lists_what_clients_parse() {
        let metrics = QueryMetrics {
            total_time: Duration::from_micros(12_340),
            parse_time: Duration::from_millis(1),
            compile_time: Duration::from_millis(2),
            entries_read: 10,
            items_read: 8,
            bytes_read: 800,
            output_items: 4,
            output_bytes: 400,
            ..QueryMetrics::default()
        };
        let header = to_header(&metrics);
        for pair in [
            "totalExecutionTimeInMs=12.34",
            "queryCompileTimeInMs=3.00",
            "instructionCount=22",
            "retrievedDocumentCount=8",
            "retrievedDocumentSize=800",
            "outputDocumentCount=4",
            "outputDocumentSize=400",
            "indexUtilizationRatio=0.50",
        ] {
            assert!(header.split(';').any(|known| known == pair), "{pair} in {header}");
        }
        assert!(!header.ends_with(';') && !header.contains(";;"));
    }
}
