//! Data sets with a known best key: the advisor must rank it first.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::print_stdout,
    reason = "tests"
)]

use orrery_advisor::candidate::Kind;
use orrery_advisor::datasets::DataSet;
use orrery_advisor::{Advisor, Config, Report};

fn advise(set: DataSet, items: u64) -> Report {
    let mut advisor =
        Advisor::new(Config { requests_max: 15_000, ..Config::default() }, Some(&set.workload())).unwrap();
    for item in set.items(items, 7) {
        advisor.add(item.as_bytes()).unwrap();
    }
    advisor.finish().unwrap()
}

fn show(report: &Report) -> String {
    let line = |one: &orrery_advisor::Measured| {
        format!(
            "{:>9.0} {:>8.0} {:>8.0} {:>6.3} {} {:?} {:?}\n    + {}\n    - {}",
            one.verdict.score,
            one.verdict.needed_now,
            one.verdict.needed_later,
            one.prediction.throttled_share(),
            one.candidate.name,
            one.days_until_full,
            one.scope,
            one.verdict.good.join(" "),
            one.verdict.bad.join(" ")
        )
    };
    report.measured.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn telemetry_is_partitioned_by_device() {
    let report = advise(DataSet::Telemetry, 10_000);
    println!("{}", show(&report));
    assert_eq!(report.measured[0].candidate.name, "/deviceId", "{}", show(&report));
    let day = report.measured.iter().find(|one| one.candidate.name == "/day").unwrap();
    assert!(day.verdict.bad.iter().any(|reason| reason.starts_with("Hot")), "{}", show(&report));
    assert!(day.prediction.throttled_share() > 0.1);
}

#[test]
fn skewed_tenants_are_partitioned_by_tenant_then_user() {
    let report = advise(DataSet::Tenants, 10_000);
    println!("{}", show(&report));
    let best = &report.measured[0];
    assert_eq!(best.candidate.kind, Kind::Hierarchical, "{}", show(&report));
    assert_eq!(best.candidate.key_paths, ["/tenantId", "/userId"], "{}", show(&report));
    let tenant = report.measured.iter().find(|one| one.candidate.name == "/tenantId").unwrap();
    assert!(tenant.days_until_full.is_some_and(|days| days < 365.0), "{}", show(&report));
    assert!((0.25..0.35).contains(&tenant.largest_share));
}

#[test]
fn orders_are_partitioned_by_customer() {
    let report = advise(DataSet::Orders, 10_000);
    println!("{}", show(&report));
    assert_eq!(report.measured[0].candidate.name, "/customerId", "{}", show(&report));
}

#[test]
fn vehicle_events_are_partitioned_by_date_with_a_vehicle_suffix() {
    let report = advise(DataSet::Vehicles, 10_000);
    println!("{}", show(&report));
    let best = &report.measured[0];
    assert_eq!(best.candidate.kind, Kind::PrecalculatedSuffix, "{}", show(&report));
    assert!(best.candidate.name.starts_with("/date + 1…") && best.candidate.name.ends_with(" by /VIN"));
}
