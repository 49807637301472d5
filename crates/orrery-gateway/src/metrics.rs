//! The server's metrics: one struct, created once and passed down, exported in the OpenMetrics text format.
//!
//! Label values come from fixed sets (resource types, operations, status codes), so clients cannot increase the number
//! of series. The series of containers and partitions, which have names as labels, are bounded. Keys never appear.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use orrery_model::Charge;
use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::container_metrics::ContainerMetrics;

/// From a point read in memory to the longest query page.
const DURATION_BUCKETS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Labels of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    resource: &'static str,
    operation: &'static str,
}

/// Labels of a request and its status.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    resource: &'static str,
    operation: &'static str,
    status: u16,
}

type RequestUnits = Counter<f64, AtomicU64>;

/// The metrics of one kind of response, cached: looking up three labelled families for every request is slow.
struct Series {
    answer: Answer,
    requests: Counter,
    durations: Histogram,
    charges: RequestUnits,
}

/// All metrics of a server.
pub struct Metrics {
    /// The program's.
    pub version: &'static str,
    /// When it started.
    pub start_ms: i64,
    registry: Registry,
    requests: Family<Answer, Counter>,
    durations: Family<Operation, Histogram, fn() -> Histogram>,
    charges: Family<Operation, RequestUnits>,
    /// One entry per kind of response, a few dozen at most; frequent ones tend to come first.
    series: RwLock<Vec<Arc<Series>>>,
    pub(crate) containers: ContainerMetrics,
    /// Maintained by the transport.
    pub connections_open: Gauge,
}

impl Metrics {
    /// `version` is the program's; `start_ms` is when it started.
    pub fn new(version: &'static str, start_ms: i64) -> Self {
        let metrics = Self {
            version,
            start_ms,
            registry: Registry::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            charges: Family::default(),
            series: RwLock::default(),
            containers: ContainerMetrics::default(),
            connections_open: Gauge::default(),
        };
        metrics.registered(version, start_ms)
    }

    fn registered(mut self, version: &'static str, start_ms: i64) -> Self {
        let start_time: Gauge<f64, AtomicU64> = Gauge::default();
        #[expect(clippy::cast_precision_loss, reason = "milliseconds since the epoch are far below 2^53")]
        start_time.set(start_ms as f64 / 1000.0);
        // Without our prefix, because Prometheus clients of all languages have agreed on this name.
        self.registry.register(
            "process_start_time_seconds",
            "Start time of the process since the Unix epoch in seconds",
            start_time,
        );
        let registry = self.registry.sub_registry_with_prefix("orrery");
        registry.register("build", "Version of the running server", Info::new(vec![("version", version)]));
        registry.register("requests", "Completed requests", self.requests.clone());
        registry.register_with_unit(
            "request_duration",
            "Time from the request head to the response",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register("request_units", "Request units charged", self.charges.clone());
        registry.register("connections_open", "Open connections", self.connections_open.clone());
        self
    }

    /// Counts one completed request.
    pub fn request(
        &self,
        resource: &'static str,
        operation: &'static str,
        status: u16,
        duration: Duration,
        charge: Charge,
    ) {
        let series = self.series(Answer { resource, operation, status });
        series.requests.inc();
        series.durations.observe(duration.as_secs_f64());
        series.charges.inc_by(charge.as_f64());
    }

    fn series(&self, answer: Answer) -> Arc<Series> {
        if let Some(known) = self.series.read().iter().find(|series| series.answer == answer) {
            return Arc::clone(known);
        }
        let operation = Operation { resource: answer.resource, operation: answer.operation };
        let series = Arc::new(Series {
            requests: self.requests.get_or_create(&answer).clone(),
            durations: self.durations.get_or_create(&operation).clone(),
            charges: self.charges.get_or_create(&operation).clone(),
            answer,
        });
        let mut all = self.series.write();
        // Another thread may have inserted it meanwhile.
        if let Some(known) = all.iter().find(|known| known.answer == series.answer) {
            return Arc::clone(known);
        }
        all.push(Arc::clone(&series));
        series
    }

    /// All metrics as OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(4096);
        encode(&mut text, &self.registry).expect("a String accepts every write");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_what_they_are() {
        let metrics = Metrics::new("1.2.3", 1_500);
        let read = |status, ms, hundredths| {
            let charge = Charge::from_hundredths(hundredths);
            metrics.request("item", "read", status, Duration::from_millis(ms), charge);
        };
        read(200, 3, 100);
        read(200, 30, 123);
        read(404, 1, 100);
        metrics.connections_open.inc();
        let text = metrics.encode();
        for line in [
            "process_start_time_seconds 1.5",
            r#"orrery_build_info{version="1.2.3"} 1"#,
            r#"orrery_requests_total{resource="item",operation="read",status="200"} 2"#,
            r#"orrery_requests_total{resource="item",operation="read",status="404"} 1"#,
            r#"orrery_request_units_total{resource="item",operation="read"} 3.23"#,
            r#"orrery_request_duration_seconds_count{resource="item",operation="read"} 3"#,
            r#"orrery_request_duration_seconds_bucket{le="0.005",resource="item",operation="read"} 2"#,
            "orrery_connections_open 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
