//! Compares the advisor's prediction of a replay with what the server measures: the same requests, at the same times of a
//! clock that the test moves, on containers partitioned by the candidate, with throttling enabled.
//!
//! Every data set is combined with every workload and every key. Request units agree within 10 %, the share of throttled
//! requests within 3 points, the busiest partition within 10 %, and each query visits exactly the predicted partitions.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, reason = "tests")]

mod data;
mod server;

use orrery_advisor::datasets::DataSet;
use orrery_advisor::matching::Matching;
use orrery_advisor::predict::{Prediction, predict};
use orrery_advisor::replay::Replay;
use orrery_advisor::{Advisor, Config, Limits};

use server::{Measured, Server};

/// Requests of each replay.
const REQUESTS: usize = 1200;

/// A data set with its keys and workloads.
struct Set {
    name: &'static str,
    bodies: Vec<String>,
    throughput: u32,
    keys: &'static [&'static str],
    /// Operations in JSON, by name. Those that write come last, because they change the data.
    workloads: &'static [(&'static str, &'static str)],
    /// Items that are sampled; all of them if none.
    sample_items: Option<usize>,
}

/// Predicts and measures all combinations; returns how many there are, and how many were throttled noticeably.
async fn compare(set: Set) -> (usize, usize) {
    let (mut combinations, mut throttled) = (0, 0);
    let mut faults = Vec::new();
    let limits = Limits { throughput: set.throughput, ..Limits::default() };
    for key in set.keys {
        let mut server: Option<Server> = None;
        for (turn, (workload, operations)) in (0i64..).zip(set.workloads) {
            let config = Config {
                limits,
                throughput_is_given: true,
                candidates: vec![(*key).to_owned()],
                only_given: true,
                requests_max: REQUESTS,
                sample_items: set.sample_items,
                ..Config::default()
            };
            let text = format!(r#"{{"operations":[{operations}]}}"#);
            let mut advisor = Advisor::new(config, Some(&text)).unwrap();
            set.bodies.iter().for_each(|body| advisor.add(body.as_bytes()).unwrap());
            let (analysis, replay, config) = advisor.replay().unwrap();
            let matching = Matching::new(&replay, analysis.sample.len(), set.bodies.len() as f64);
            assert!(matching.failures.is_empty(), "{:?}", matching.failures);
            let candidate = &analysis.candidates[0];
            let predicted = predict(&analysis, candidate, &replay, &matching, &config.limits);
            let start_ms = replay.requests[0].at_ms;
            if server.is_none() {
                let started = Server::start(candidate, &config.limits, &set.bodies, start_ms, true).await;
                server = Some(started.unwrap());
            }
            let running = server.as_ref().unwrap();
            let later_ms = turn * 10_000_000;
            let measured = running.run(candidate, &set.bodies, (&analysis, &replay), later_ms).await;
            let said: Vec<u64> = analysis.spreads[0].partitions.iter().map(|(items, _)| *items).collect();
            assert_eq!(said, measured.items, "{key}: placement");
            let name = format!("{} × {workload} × {}", set.name, candidate.name);
            combinations += 1;
            throttled += usize::from(measured.throttled * 20 > measured.requests);
            let differing = differences(&name, &predicted, &measured, &replay);
            faults.extend(differing);
        }
        if let Some(server) = server {
            server.close().await;
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    (combinations, throttled)
}

/// Where prediction and measurement differ more than they may.
fn differences(name: &str, predicted: &Prediction, measured: &Measured, replay: &Replay) -> Vec<String> {
    let mut faults = Vec::new();
    let share = |count: u64| count as f64 / measured.requests as f64;
    let hottest = |partitions: &[f64]| partitions.iter().copied().fold(0.0, f64::max);
    let (hot_said, hot) = (hottest(&predicted.delivered_by_partition), hottest(&measured.partitions));
    let (waiting_said, waiting) = (share(predicted.throttled), share(measured.throttled));
    println!(
        "{name}: {} requests; RU {:.0} predicted, {:.0} measured; 429 {:.1} %, {:.1} %; busiest {hot_said:.0}, {hot:.0}",
        measured.requests,
        predicted.delivered,
        measured.delivered,
        waiting_said * 100.0,
        waiting * 100.0,
    );
    let close = |said: f64, found: f64| (said - found).abs() <= found.abs() * 0.1;
    if predicted.requests != measured.requests {
        faults.push(format!("{name}: {} requests, not {}", predicted.requests, measured.requests));
    }
    if !close(predicted.delivered, measured.delivered) {
        faults.push(format!(
            "{name}: {:.1} RU predicted, {:.1} measured",
            predicted.delivered, measured.delivered
        ));
        for (at, (charge, count)) in measured.operations.iter().enumerate() {
            let own = &predicted.operations[at];
            let served = (own.requests - own.throttled).max(1) as f64;
            faults.push(format!(
                "    {}: {:.2} RU predicted, {:.2} measured",
                replay.operations[at].name,
                own.delivered / served,
                charge / (*count).max(1) as f64
            ));
        }
    }
    if (waiting_said - waiting).abs() > 0.03 {
        faults.push(format!("{name}: {waiting_said:.3} throttled predicted, {waiting:.3} measured"));
    }
    if !close(hot_said, hot) {
        faults.push(format!("{name}: busiest partition {hot_said:.1} predicted, {hot:.1} measured"));
    }
    let wrong: Vec<_> = measured
        .visited
        .iter()
        .filter(|(instance, visited)| predicted.visited.get(instance) != Some(visited))
        .map(|(instance, visited)| {
            let operation =
                replay.requests.iter().find(|request| request.instance == *instance).unwrap().operation;
            format!(
                "{:?} not {visited}: {}",
                predicted.visited.get(instance),
                replay.operations[operation].name
            )
        })
        .collect();
    if let Some(first) = wrong.first() {
        faults.push(format!("{name}: {} queries visit other partitions: {first}", wrong.len()));
    }
    faults
}

const FLIGHT_WORKLOADS: &[(&str, &str)] = &[
    (
        "lookups",
        r#"{"operation":"query","perSecond":150,"query":"SELECT * FROM c WHERE c.tailnum = @tail","parameters":{"@tail":"/tailnum"}},
        {"operation":"query","perSecond":100,"query":"SELECT c.id, c.dep_delay FROM c WHERE c.carrier = @carrier AND c.leg.to = @to AND c.day = @day","parameters":{"@carrier":"/carrier","@to":"/leg/to","@day":"/day"}},
        {"operation":"query","perSecond":60,"query":"SELECT * FROM c WHERE c.leg[\"from\"] = @from AND c.time_hour >= @hour AND c.dep_delay > 90","parameters":{"@from":"/leg/from","@hour":"/time_hour"}},
        {"operation":"read","perSecond":200,"knows":["/carrier","/tailnum"]}"#,
    ),
    (
        "dashboards",
        r#"{"operation":"query","perSecond":60,"query":"SELECT TOP 10 * FROM c ORDER BY c.time_hour DESC"},
        {"operation":"query","perSecond":40,"query":"SELECT TOP 20 * FROM c WHERE c.carrier = @carrier ORDER BY c.dep_delay DESC","parameters":{"@carrier":"/carrier"}},
        {"operation":"query","perSecond":40,"query":"SELECT VALUE COUNT(1) FROM c WHERE c.carrier = @carrier","parameters":{"@carrier":"/carrier"}},
        {"operation":"query","perSecond":20,"query":"SELECT c.carrier, COUNT(1) AS flights, AVG(c.dep_delay) AS delay FROM c WHERE c.day = @day GROUP BY c.carrier","parameters":{"@day":"/day"}},
        {"operation":"query","perSecond":40,"query":"SELECT VALUE MAX(c.distance) FROM c"},
        {"operation":"query","perSecond":20,"query":"SELECT * FROM c WHERE c.day = @day ORDER BY c.flight OFFSET 20 LIMIT 10","parameters":{"@day":"/day"}}"#,
    ),
    (
        "ingest",
        r#"{"operation":"create","perSecond":1300},
        {"operation":"query","perSecond":60,"recent":true,"query":"SELECT TOP 5 * FROM c WHERE c.tailnum = @tail AND c.day = @day","parameters":{"@tail":"/tailnum","@day":"/day"}}"#,
    ),
];

const DAY_BY_TAIL: &str = r#"{"format":1,"kind":"precalculatedSuffix","parts":["/day"],"suffix":{"of":["/tailnum"],"count":12},"missing":{"text":"none"},"null":{"text":"none"}}"#;
const DAY_AT_RANDOM: &str = r#"{"format":1,"kind":"randomSuffix","parts":["/day"],"suffix":{"count":8}}"#;

#[tokio::test]
async fn flight_costs_match_the_prediction() {
    let set = Set {
        name: "flights",
        bodies: data::flights(2000),
        throughput: 24_000,
        keys: &["/day", "/carrier", "/tailnum", "/carrier,/leg/to", DAY_BY_TAIL, DAY_AT_RANDOM],
        workloads: FLIGHT_WORKLOADS,
        sample_items: None,
    };
    let (combinations, throttled) = compare(set).await;
    assert_eq!(combinations, 18);
    assert!(throttled >= 2, "{throttled} throttled");
}

const SENSOR_WORKLOADS: &[(&str, &str)] = &[
    (
        "lookups",
        r#"{"operation":"query","perSecond":150,"query":"SELECT * FROM c WHERE c.station = @station AND (c.at BETWEEN @from AND @to)","parameters":{"@station":"/station","@from":{"value":1772400000},"@to":{"value":1772900000}}},
        {"operation":"query","perSecond":60,"query":"SELECT c.id, c.wind FROM c WHERE c.station IN (@station, 'S001', 'S002') AND c.state != 'ok'","parameters":{"@station":"/station"}},
        {"operation":"query","perSecond":30,"query":"SELECT * FROM c WHERE c.wind.gust > 50 OR c.note = 'calibrated by hand on site'"},
        {"operation":"query","perSecond":30,"query":"SELECT c.id FROM c WHERE IS_DEFINED(c.note) AND CONTAINS(c.note, 'hand')"},
        {"operation":"read","perSecond":150,"knows":["/station"]}"#,
    ),
    (
        "dashboards",
        r#"{"operation":"query","perSecond":60,"query":"SELECT TOP 1 * FROM c WHERE c.station = @station ORDER BY c.at DESC","parameters":{"@station":"/station"}},
        {"operation":"query","perSecond":20,"query":"SELECT DISTINCT VALUE c.state FROM c WHERE c.region = @region","parameters":{"@region":"/region"}},
        {"operation":"query","perSecond":20,"query":"SELECT c.station, MAX(c.wind.speed) AS speed FROM c WHERE c.week = @week GROUP BY c.station","parameters":{"@week":"/week"}},
        {"operation":"query","perSecond":40,"query":"SELECT VALUE COUNT(1) FROM c"},
        {"operation":"query","perSecond":20,"query":"SELECT TOP 50 c.id, c.temperature FROM c ORDER BY c.temperature"}"#,
    ),
    (
        "ingest",
        r#"{"operation":"create","perSecond":1300},
        {"operation":"read","perSecond":100,"recent":true,"knows":["/station","/week"]}"#,
    ),
];

const STATION_AND_DAY: &str =
    r#"{"format":1,"kind":"concatenate","parts":["/station",{"path":"/at","date":"day","epoch":"seconds"}]}"#;

#[tokio::test]
async fn sensor_costs_match_the_prediction() {
    let set = Set {
        name: "sensors",
        bodies: data::sensors(2000),
        throughput: 24_000,
        keys: &["/station", "/week", "/region", "/region,/station", STATION_AND_DAY],
        workloads: SENSOR_WORKLOADS,
        sample_items: None,
    };
    let (combinations, throttled) = compare(set).await;
    assert_eq!(combinations, 15);
    assert!(throttled >= 1, "{throttled} throttled");
}

const PLACE_WORKLOADS: &[(&str, &str)] = &[
    (
        "searches",
        r#"{"operation":"query","perSecond":60,"query":"SELECT c.id, c.name FROM c WHERE c.tenantId = @tenant AND ARRAY_CONTAINS(c.tags, 'port')","parameters":{"@tenant":"/tenantId"}},
        {"operation":"query","perSecond":60,"query":"SELECT * FROM c WHERE c.tenantId = @tenant AND c.country = @country AND c.location.lat > 40","parameters":{"@tenant":"/tenantId","@country":"/country"}},
        {"operation":"query","perSecond":30,"query":"SELECT * FROM c WHERE STARTSWITH(c.name, 'Place 12') AND c.population > 100"},
        {"operation":"query","perSecond":30,"query":"SELECT c.name, t AS tag FROM c JOIN t IN c.tags WHERE c.country = @country AND t = 'lake'","parameters":{"@country":"/country"}},
        {"operation":"query","perSecond":30,"query":"SELECT * FROM c WHERE (c.country = @country OR c.region = 'r3') AND c.created >= '2026-05-20'","parameters":{"@country":"/country"}},
        {"operation":"query","perSecond":60,"query":"SELECT * FROM c WHERE c.id = @id AND c.tenantId = @tenant","parameters":{"@id":"/id","@tenant":"/tenantId"}}"#,
    ),
    (
        "dashboards",
        r#"{"operation":"query","perSecond":40,"query":"SELECT TOP 10 * FROM c WHERE c.tenantId = @tenant ORDER BY c.population DESC","parameters":{"@tenant":"/tenantId"}},
        {"operation":"query","perSecond":20,"query":"SELECT c.country, COUNT(1) AS places FROM c WHERE c.tenantId = @tenant GROUP BY c.country","parameters":{"@tenant":"/tenantId"}},
        {"operation":"query","perSecond":20,"query":"SELECT TOP 100 * FROM c WHERE c.tenantId = @tenant","parameters":{"@tenant":"/tenantId"}},
        {"operation":"query","perSecond":20,"query":"SELECT VALUE SUM(c.population) FROM c WHERE c.country = @country","parameters":{"@country":"/country"}},
        {"operation":"query","perSecond":10,"query":"SELECT DISTINCT c.region, c.country FROM c"}"#,
    ),
    (
        "ingest",
        r#"{"operation":"create","perSecond":2000},
        {"operation":"batch","perSecond":40,"items":3,"together":["/tenantId"]},
        {"operation":"read","perSecond":200,"knows":["/tenantId"]}"#,
    ),
];

#[tokio::test]
async fn place_costs_match_the_prediction() {
    let set = Set {
        name: "places",
        bodies: data::places(2000),
        throughput: 24_000,
        keys: &["/tenantId", "/country", "/id", "/tenantId,/country", "/region"],
        workloads: PLACE_WORKLOADS,
        sample_items: None,
    };
    let (combinations, throttled) = compare(set).await;
    assert_eq!(combinations, 15);
    assert!(throttled >= 1, "{throttled} throttled");
}

/// The same from a sample of a quarter of the items.
#[tokio::test]
async fn samples_represent_all_items() {
    let set = Set {
        name: "places, sampled",
        bodies: data::places(6000),
        throughput: 24_000,
        keys: &["/tenantId", "/tenantId,/country"],
        workloads: &PLACE_WORKLOADS[..2],
        sample_items: Some(1500),
    };
    assert_eq!(compare(set).await.0, 4);
}

/// The advisor's own examples.
#[tokio::test]
async fn example_costs_match_the_prediction() {
    const DATE_BY_VIN: &str =
        r#"{"format":1,"kind":"precalculatedSuffix","parts":["/date"],"suffix":{"of":["/VIN"],"count":16}}"#;
    let keys: [(DataSet, &'static [&'static str]); 2] = [
        (DataSet::Vehicles, &["/date", "/VIN", DATE_BY_VIN]),
        (DataSet::Orders, &["/customerId", "/orderId", "/date"]),
    ];
    for (set, keys) in keys {
        let workload: &'static str = match set {
            DataSet::Vehicles => VEHICLES,
            _ => ORDERS,
        };
        let set = Set {
            name: set.name(),
            bodies: set.items(2000, 11).collect(),
            throughput: 24_000,
            keys,
            workloads: Box::leak(Box::new([("own", workload)])),
            sample_items: None,
        };
        compare(set).await;
    }
}

const VEHICLES: &str = r#"{"operation":"create","perSecond":1000},
    {"operation":"query","perSecond":800,"query":"SELECT * FROM c WHERE c.date = @date AND c.VIN = @vin","parameters":{"@date":"/date","@vin":"/VIN"}},
    {"operation":"query","perSecond":2000,"query":"SELECT * FROM c WHERE c.date = @date AND c.kind = 'fault'","parameters":{"@date":"/date"}}"#;
const ORDERS: &str = r#"{"operation":"batch","perSecond":200,"items":4,"together":["/orderId","/customerId"]},
    {"operation":"read","perSecond":300,"knows":["/customerId","/orderId"]},
    {"operation":"query","perSecond":500,"query":"SELECT * FROM c WHERE c.customerId = @customer","parameters":{"@customer":"/customerId"}}"#;
