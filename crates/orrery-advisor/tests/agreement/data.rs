//! Data in the shapes of real sets: flights in time order with missing and null values, measurements of sensors with
//! nested objects and rare properties, and places with arrays, a heavy tail and a skewed tenant.

use orrery_advisor::moment;
use orrery_advisor::random::{Random, Zipf};

/// 2026-03-01T00:00:00Z.
const START_MS: i64 = 1_772_323_200_000;
const DAY_MS: i64 = 86_400_000;

/// Flights over a month: parts of the date are numbers, 0.75 % have no tail number, 2.5 % no delay.
pub(crate) fn flights(count: u64) -> Vec<String> {
    let mut random = Random::new(3);
    let (carriers, places) = (Zipf::new(16, 0.9), Zipf::new(100, 0.7));
    let flight = |number: u64| {
        let at_ms = START_MS + i64::try_from(number * 30 * 86_400_000 / count).unwrap();
        let time = moment::print(at_ms);
        let (day, hour) = (at_ms.div_euclid(DAY_MS) - START_MS / DAY_MS + 1, at_ms / 3_600_000 % 24);
        let carrier = carriers.rank(&mut random);
        let tail = if random.below(10_000) < 75 {
            String::new()
        } else {
            format!(r#""tailnum":"N{}{:03}","#, carrier, random.below(120))
        };
        let delay = match random.below(1000) {
            0..25 => "null".to_owned(),
            other => (i64::try_from(other).unwrap() / 8 - 20).to_string(),
        };
        let to = places.rank(&mut random);
        format!(
            r#"{{"id":"f{number}","year":2026,"month":3,"day":{day},"hour":{hour},"time_hour":"{}:00:00Z","carrier":"C{carrier:02}","flight":{},{tail}"dep_delay":{delay},"leg":{{"from":"{}","to":"P{to:03}"}},"distance":{},"air_time":{}}}"#,
            &time[..13],
            random.below(6000),
            ["EWR", "JFK", "LGA"][random.index(3)],
            200 + to * 23,
            30 + to * 3,
        )
    };
    (0..count).map(flight).collect()
}

/// Measurements every few minutes: epoch seconds, a gust in one of five, a note in one of a hundred.
pub(crate) fn sensors(count: u64) -> Vec<String> {
    let mut random = Random::new(5);
    let measurement = |number: u64| {
        let at = START_MS / 1000 + i64::try_from(number * 10 * 86_400 / count).unwrap();
        let station = random.below(300);
        let gust = if random.below(5) == 0 { random.below(60).to_string() } else { "null".to_owned() };
        let note = if random.below(100) == 0 { r#""note":"calibrated by hand on site","# } else { "" };
        let temperature = random.below(400);
        format!(
            r#"{{"id":"m{number}","station":"S{station:03}","region":"R{}","at":{at},"week":{},{note}"temperature":{}.{},"wind":{{"direction":{},"speed":{},"gust":{gust}}},"state":"{}"}}"#,
            station % 4,
            (at / 86_400 + 3) / 7 % 53,
            temperature / 10,
            temperature % 10,
            random.below(36) * 10,
            random.below(30),
            ["ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "late", "bad"][random.index(10)],
        )
    };
    (0..count).map(measurement).collect()
}

/// Places of tenants, one of which has a quarter of all: nested positions, arrays of tags, populations with a heavy tail.
pub(crate) fn places(count: u64) -> Vec<String> {
    let mut random = Random::new(7);
    let (tenants, countries) = (Zipf::new(60, 0.8), Zipf::new(80, 1.0));
    let place = |number: u64| {
        let tenant = if random.below(4) == 0 { 0 } else { tenants.rank(&mut random) + 1 };
        let country = countries.rank(&mut random);
        let tags = ["port", "capital", "old town", "airport", "lake", "border"];
        let tags: Vec<String> = tags
            .iter()
            .enumerate()
            .filter(|(at, _)| random.below(3 + *at as u64 * 6) == 0)
            .map(|(_, tag)| format!("\"{tag}\""))
            .collect();
        let population = (1_000_000.0 / (1.0 + random.unit() * 20_000.0)).round();
        let region = if random.below(20) == 0 { "null".to_owned() } else { format!("\"r{}\"", country % 30) };
        format!(
            r#"{{"id":"p{number}","tenantId":"tenant-{tenant}","country":"L{country:02}","region":{region},"name":"Place {}","location":{{"lat":{}.{},"lon":{}}},"population":{population},"tags":[{}],"created":"{}"}}"#,
            random.below(3000),
            random.below(90),
            random.below(10),
            random.below(180),
            tags.join(","),
            &moment::print(START_MS + i64::try_from(random.below(90)).unwrap() * DAY_MS)[..10],
        )
    };
    (0..count).map(place).collect()
}
