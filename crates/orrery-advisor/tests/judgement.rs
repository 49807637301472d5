//! What the advisor makes of data that would mislead it, and what it says when it cannot tell.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::print_stdout, reason = "tests")]

use orrery_advisor::datasets::DataSet;
use orrery_advisor::{AdviceError, Advisor, Config, Measured, Report, moment, report};

/// 2026-03-01T00:00:00Z.
const START_MS: i64 = 1_772_323_200_000;

fn advise(items: impl Iterator<Item = String>, workload: Option<&str>, config: Config) -> Report {
    let mut advisor = Advisor::new(Config { requests_max: 10_000, ..config }, workload).unwrap();
    items.for_each(|item| advisor.add(item.as_bytes()).unwrap());
    advisor.finish().unwrap()
}

fn find<'r>(report: &'r Report, name: &str) -> &'r Measured {
    let found = report.measured.iter().find(|one| one.candidate.name == name);
    found.unwrap_or_else(|| panic!("no {name}: {:?}", names(report)))
}

fn names(report: &Report) -> Vec<&str> {
    report.measured.iter().map(|one| one.candidate.name.as_str()).collect()
}

/// Flights in time order; every `missing_every`-th has no tail number.
fn flights(count: u64, missing_every: u64) -> impl Iterator<Item = String> {
    (0..count).map(move |number| {
        let at_ms = START_MS + i64::try_from(number * 30 * 86_400_000 / count).unwrap();
        let time = moment::print(at_ms);
        let mixed = orrery_advisor::random::mix(number);
        let tail = if number % missing_every == missing_every - 1 {
            String::new()
        } else {
            format!(r#""tailnum":"N{:04}","#, mixed % 900)
        };
        let note = if number % 50 == 0 { format!("\"note {number}\"") } else { "null".to_owned() };
        format!(
            r#"{{"id":"f{number}",{tail}"date":"{}","time_hour":"{}:00:00Z","day":{},"hour":{},"origin":"{}","state":"S{}","note":{note}}}"#,
            &time[..10],
            &time[..13],
            number * 30 / count + 1,
            at_ms / 3_600_000 % 24,
            ["EWR", "JFK", "LGA"][usize::try_from(mixed / 1000 % 3).unwrap()],
            mixed / 5000 % 4,
        )
    })
}

const FLIGHTS: &str = r#"{"throughput":48000,"operations":[
    {"operation":"create","perSecond":2000},
    {"operation":"read","perSecond":500,"knows":["/tailnum"]},
    {"operation":"query","perSecond":500,"query":"SELECT * FROM c WHERE c.tailnum = @tail AND c.date = @date","parameters":{"@tail":"/tailnum","@date":"/date"}},
    {"operation":"query","perSecond":20,"query":"SELECT * FROM c WHERE c.origin = @origin AND c.state = @state AND c.day = @day","parameters":{"@origin":"/origin","@state":"/state","@day":"/day"}}]}"#;

#[test]
fn missing_values_affect_only_their_own_items() {
    let whole = advise(flights(6000, u64::MAX), Some(FLIGHTS), Config::default());
    let lacking = advise(flights(6000, 133), Some(FLIGHTS), Config::default());
    assert_eq!(whole.measured[0].candidate.name, lacking.measured[0].candidate.name);
    for (whole, lacking) in [("/tailnum", "/tailnum"), ("/id", "/id")]
        .map(|(a, b)| (find(&whole, a).prediction.per_hour(), find(&lacking, b).prediction.per_hour()))
    {
        assert!((whole - lacking).abs() < whole * 0.05, "{whole} and {lacking} RU/h");
    }
}

#[test]
fn time_based_keys_are_hot_whatever_their_type() {
    let config = Config {
        candidates: ["/day", "/hour", "/date", "/time_hour", "/tailnum"].map(str::to_owned).to_vec(),
        only_given: true,
        ..Config::default()
    };
    let ingest = r#"{"throughput":48000,"operations":[{"operation":"create","perSecond":2000},{"operation":"read","perSecond":20,"knows":["/tailnum"]}]}"#;
    let report = advise(flights(20_000, 133), Some(ingest), config);
    for name in ["/day", "/hour", "/date", "/time_hour"] {
        let one = find(&report, name);
        let (hot, throttled) = (one.prediction.hot_factor(), one.prediction.throttled_share());
        assert!(hot > 6.0 && throttled > 0.4, "{name}: {hot}× and {throttled}");
        assert!(one.begins_with_time, "{name}");
    }
    assert!(find(&report, "/tailnum").prediction.hot_factor() < 1.3);
}

#[test]
fn few_values_and_nulls_rank_below_the_id() {
    let config = Config {
        candidates: ["/origin", "/state", "/note"].map(str::to_owned).to_vec(),
        ..Config::default()
    };
    let report = advise(flights(5000, 133), Some(FLIGHTS), config);
    let place = |name: &str| names(&report).iter().position(|known| *known == name).unwrap();
    for name in ["/origin", "/state", "/note"] {
        assert!(place(name) > place("/id"), "{name}: {:?}", names(&report));
        assert!(find(&report, name).verdict.unfit.is_some(), "{name}");
    }
    assert!(!names(&report).iter().any(|name| name.contains("1…1 ") || name.ends_with("1…1")));
    assert!(!names(&report).contains(&"/date + /time_hour by day"), "{:?}", names(&report));
    assert!(!names(&report).iter().any(|name| name.starts_with("/date then /time_hour")));
}

#[test]
fn colliding_items_are_counted() {
    // The id is only unique within a tenant; a region has several tenants.
    let items = (0..4000).map(|number| {
        let (tenant, id) = (number % 40, number / 40);
        format!(r#"{{"id":"{id}","tenant":"t{tenant}","region":"r{}"}}"#, tenant % 20)
    });
    let config = Config { candidates: vec!["/tenant".into(), "/region".into()], ..Config::default() };
    let report = advise(
        items,
        Some(
            r#"{"throughput":24000,"operations":[{"operation":"create","perSecond":500},{"operation":"read","perSecond":500,"knows":["/tenant"]}]}"#,
        ),
        config,
    );
    assert!(find(&report, "/tenant").repeated == 0.0);
    assert!((find(&report, "/region").repeated - 0.5).abs() < 0.01);
    let reason = find(&report, "/region").verdict.unfit.clone().unwrap();
    assert!(reason.starts_with("50 % of the items would collide"), "{reason}");
}

#[test]
fn a_large_tenant_is_shown_with_its_danger_and_an_alternative() {
    let report =
        advise(DataSet::Tenants.items(8000, 7), Some(&DataSet::Tenants.workload()), Config::default());
    let tenant = find(&report, "/tenantId");
    let says = |text: &str| tenant.verdict.bad.iter().any(|reason| reason.contains(text));
    assert!(says(r#"ne in three of the bytes belong to ["tenant-000"]"#), "{:?}", tenant.verdict.bad);
    let alternative = tenant.verdict.alternative.as_ref().unwrap();
    assert!(
        alternative.starts_with("/tenantId then ") || alternative.starts_with("/tenantId + "),
        "{alternative}"
    );
}

#[test]
fn missing_data_is_reported_instead_of_a_recommendation() {
    let says = |report: &Report, text: &str| {
        assert!(report.missing.iter().any(|missing| missing.contains(text)), "{text}: {:?}", report.missing);
        assert!(report::text(report).contains("No recommendation"), "{text}");
        assert!(report::html(report).contains("No recommendation"), "{text}");
        assert_eq!(report::json(report)["recommended"], serde_json::Value::Null);
    };
    let many = || Config {
        limits: orrery_advisor::Limits { throughput: 48_000, ..Default::default() },
        ..Config::default()
    };
    says(&advise(flights(3000, 133), None, many()), "no workload");
    says(&advise(flights(200, 133), Some(FLIGHTS), many()), "200 items are too few");
    let one = FLIGHTS.replace("48000", "4000");
    says(&advise(flights(3000, 133), Some(&one), Config::default()), "one physical partition");
    let writes = r#"{"throughput":48000,"operations":[{"operation":"create","perSecond":100}]}"#;
    says(&advise(flights(3000, 133), Some(writes), Config::default()), "no reads or queries");
    let reads =
        r#"{"throughput":48000,"operations":[{"operation":"read","perSecond":100,"knows":["/tailnum"]}]}"#;
    says(&advise(flights(3000, 133), Some(reads), Config::default()), "no writes");
    let report = advise(flights(3000, 133), Some(FLIGHTS), Config::default());
    assert!(
        report.missing.is_empty() && report::text(&report).contains("Recommended: "),
        "{:?}",
        report.missing
    );
}

#[test]
fn queries_that_cannot_be_estimated_are_excluded() {
    let workload = r#"{"throughput":48000,"operations":[
        {"operation":"create","perSecond":1000},
        {"operation":"query","perSecond":5,"query":"SELECT * FROM c WHERE udf.near(c.origin)"},
        {"operation":"query","perSecond":50,"query":"SELECT * FROM c WHERE c.tailnum = @tail","parameters":{"@tail":"/tailnum"}}]}"#;
    let report = advise(flights(3000, 133), Some(workload), Config::default());
    let operations = &report.measured[0].prediction.operations;
    let estimated: Vec<bool> = operations.iter().map(|operation| operation.is_estimated).collect();
    assert_eq!(estimated, [true, false, true]);
    assert!(
        report.notes.iter().any(|note| note.contains("udf.near") && note.contains("cannot be estimated"))
    );
}

#[test]
fn a_candidate_that_no_item_has_is_an_error() {
    let config = Config { candidates: vec!["/nope".into()], ..Config::default() };
    let mut advisor = Advisor::new(config, None).unwrap();
    flights(100, 133).for_each(|item| advisor.add(item.as_bytes()).unwrap());
    let error = advisor.finish().unwrap_err();
    assert!(matches!(error, AdviceError::Candidate { .. }), "{error}");
    assert_eq!(error.to_string(), "the candidate /nope cannot be used: no item has a value at /nope");
}

#[test]
fn reports_fit_a_terminal_and_sentences_match_the_tables() {
    for set in DataSet::ALL {
        let report = advise(set.items(3000, 7), Some(&set.workload()), Config::default());
        let text = report::text(&report);
        for line in text.lines() {
            // Definitions are meant to be copied, in one piece.
            assert!(line.chars().count() <= 80 || line.contains('{'), "{line}");
        }
        for plan in &report.plans {
            let chosen = plan.plan.curve.iter().find(|point| point.suffixes == plan.plan.best).unwrap();
            let least = plan.plan.curve.iter().map(|point| point.needed).fold(f64::INFINITY, f64::min);
            assert!(chosen.needed <= least * 1.03);
            assert!(
                text.replace("\n  ", " ").contains(&format!(
                    "Chosen: {}, the smallest count within 3.0 % of the least",
                    plan.plan.best
                )),
                "{text}"
            );
        }
    }
}
