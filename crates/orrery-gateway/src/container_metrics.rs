//! Requests and request units by container.
//!
//! Clients can create any number of containers, so only so many have series of their own; requests to all others are
//! counted together. A dropped container gives its place to another.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orrery_db::Container;
use orrery_model::Charge;
use orrery_model::rid::ContainerRid;
use parking_lot::RwLock;

/// How many containers have their own series.
const CONTAINERS_MAX: usize = 100;

/// The label of the requests to all others.
const OTHERS: &str = "other";

/// The classes of statuses that operators tell apart.
const OUTCOMES: [&str; 5] = ["success", "client_error", "throttled", "full", "server_error"];

/// The counters of one container.
#[derive(Default)]
struct Counters {
    name: String,
    requests: [AtomicU64; OUTCOMES.len()],
    /// In hundredths.
    charges: AtomicU64,
}

/// The counters of all containers.
#[derive(Default)]
pub(crate) struct ContainerMetrics {
    known: RwLock<HashMap<ContainerRid, Arc<Counters>>>,
    others: Counters,
}

impl ContainerMetrics {
    /// Counts one completed request.
    pub(crate) fn request(&self, container: &Container, status: u16, charge: Charge) {
        // By RID: a container that is recreated under its name starts at zero.
        let known = self.known.read().get(&container.rid).map(Arc::clone);
        let known = known.or_else(|| self.add(container));
        let counters = known.as_deref().unwrap_or(&self.others);
        counters.requests[outcome(status)].fetch_add(1, Ordering::Relaxed);
        counters.charges.fetch_add(charge.hundredths(), Ordering::Relaxed);
    }

    fn add(&self, container: &Container) -> Option<Arc<Counters>> {
        let mut known = self.known.write();
        // Checked again under the write lock: another request may have added it meanwhile.
        if known.len() >= CONTAINERS_MAX && !known.contains_key(&container.rid) {
            return None;
        }
        let name = container.alt_path();
        let new = || Arc::new(Counters { name, ..Counters::default() });
        Some(Arc::clone(known.entry(container.rid).or_insert_with(new)))
    }

    /// The series, without those of containers that are gone.
    pub(crate) fn series(&self, exists: impl Fn(ContainerRid) -> bool) -> String {
        // Here rather than when a container is dropped, because another server may have dropped it.
        self.known.write().retain(|rid, _| exists(*rid));
        let known = self.known.read();
        let mut all: Vec<&Counters> = known.values().map(AsRef::as_ref).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.push(&self.others);
        let mut out = String::from(
            "# HELP orrery_container_requests Completed requests by container\n\
             # TYPE orrery_container_requests counter\n",
        );
        for counters in &all {
            let label = counters.label();
            for (outcome, count) in OUTCOMES.iter().zip(&counters.requests) {
                let count = count.load(Ordering::Relaxed);
                // Most containers never see most outcomes; series of zeros would only cost the scraper.
                if count > 0 {
                    writeln!(
                        out,
                        "orrery_container_requests_total{{container=\"{label}\",outcome=\"{outcome}\"}} {count}"
                    )
                    .expect("a String accepts every write");
                }
            }
        }
        out.push_str(
            "# HELP orrery_container_request_units Request units charged by container\n\
             # TYPE orrery_container_request_units counter\n",
        );
        for counters in &all {
            let charge = Charge::from_hundredths(counters.charges.load(Ordering::Relaxed)).as_f64();
            writeln!(
                out,
                "orrery_container_request_units_total{{container=\"{}\"}} {charge}",
                counters.label()
            )
            .expect("a String accepts every write");
        }
        out
    }
}

impl Counters {
    fn label(&self) -> String {
        if self.name.is_empty() { OTHERS.to_owned() } else { escape_label(&self.name) }
    }
}

/// A label value in the text formats.
pub(crate) fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The index of a status in [`OUTCOMES`].
fn outcome(status: u16) -> usize {
    match status {
        0..400 => 0,
        429 => 2,
        // Apart from other errors of clients: it needs an operator, not a change of the application.
        507 => 3,
        400..500 => 1,
        _ => 4,
    }
}
