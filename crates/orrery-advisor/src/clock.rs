//! Finds the properties that follow the clock: items written at about the same time have the same or nearly the same
//! value, whatever its type. Times are recognised by their format; days, months, hours, week numbers and counters by
//! how they grow through the data.

use std::collections::HashMap;

use orrery_model::KeyPart;

use crate::analysis::{Analysis, Sampled};
use crate::fields::{Part, Values};
use crate::moment::{self, Pace};
use crate::random::mix;

/// The maximum number of items examined in time order.
const ITEMS_MAX: usize = 20_000;
/// The minimum share of ascending neighbours for a time to follow the clock.
const RISING: f64 = 0.9;
/// The minimum share of neighbours with equal values, beyond chance, for a value to follow the clock.
const SAME: f64 = 0.6;
/// The minimum run length of a value that does not recur; shorter runs are names rather than periods.
const RUN_ITEMS: f64 = 20.0;

/// The pace of each property, by slot. Unknown without times.
pub fn paces(analysis: &Analysis) -> Vec<Pace> {
    let slots = analysis.paths.len();
    if analysis.time.is_none_or(|(first, last)| first >= last) {
        return vec![Pace::Free; slots];
    }
    let step = analysis.sample.len().div_ceil(ITEMS_MAX).max(1);
    // Sampled in runs of neighbours, so that runs of values stay intact; equal times in any order.
    let mut items: Vec<&Sampled> = analysis.sample.iter().collect();
    items.sort_by_key(|item| (item.at_ms, mix(item.ordinal)));
    let items: Vec<&Sampled> = items.chunks(64).step_by(step).flatten().copied().collect();
    (0..slots).map(|slot| pace(&items, slot)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "shares")]
fn pace(items: &[&Sampled], slot: usize) -> Pace {
    let (mut times, mut defined) = (Vec::new(), 0usize);
    let mut counts: HashMap<&KeyPart, usize> = HashMap::new();
    let (mut pairs, mut same, mut runs) = (0usize, 0usize, 1usize);
    let mut before: Option<&KeyPart> = None;
    for item in items {
        let part = &item.values[slot];
        if matches!(part, KeyPart::Undefined | KeyPart::Null) {
            continue;
        }
        defined += 1;
        times.extend(time_of(item.values.part(slot)));
        *counts.entry(part).or_default() += 1;
        if let Some(before) = before {
            pairs += 1;
            same += usize::from(before == part);
            runs += usize::from(before != part);
        }
        before = Some(part);
    }
    // Too few to tell.
    if defined < 50 || counts.len() < 2 {
        return Pace::Free;
    }
    // Recognised as times by their format.
    if times.len() * 10 >= defined * 9 {
        let rising = times.windows(2).filter(|pair| pair[0] <= pair[1]).count() as f64;
        let follows = rising >= RISING * (times.len() as f64 - 1.0);
        return if follows { Pace::Time { step_ms: step(&times) } } else { Pace::Free };
    }
    // How often neighbours would be equal in any order.
    let chance: f64 = counts.values().map(|count| (*count as f64 / defined as f64).powi(2)).sum();
    let beyond = (same as f64 / pairs as f64 - chance) / (1.0 - chance).max(1e-9);
    // Hours and weekdays come again, unlike names.
    let comes_back = counts.len() * 2 < runs;
    let run_items = defined as f64 / runs as f64;
    if beyond >= SAME && (comes_back || run_items >= RUN_ITEMS) { Pace::Period } else { Pace::Free }
}

/// The largest unit that all times are whole numbers of.
fn step(times: &[i64]) -> i64 {
    const UNITS: [i64; 5] = [86_400_000, 3_600_000, 60_000, 1000, 1];
    UNITS.into_iter().find(|unit| times.iter().all(|ms| ms % unit == 0)).unwrap_or(1)
}

fn time_of(part: Part<'_>) -> Option<i64> {
    match part {
        Part::Text(text) => moment::parse_text(text),
        Part::Number(number) => moment::parse_number(number),
        _ => None,
    }
}

/// The time `ms` in the form of another one.
#[expect(clippy::cast_precision_loss, reason = "milliseconds of this century are exact")]
pub fn in_form_of(part: &KeyPart, ms: i64) -> KeyPart {
    match part {
        KeyPart::String(text) if moment::parse_text(text).is_some() => {
            KeyPart::String(moment::in_form_of(text, ms).into())
        }
        KeyPart::Number(number) if moment::parse_number(*number).is_some() => {
            // The bound of `parse_number`: larger numbers are milliseconds.
            let is_seconds = *number < 10_000_000_000.0;
            KeyPart::Number(if is_seconds { ms.div_euclid(1000) as f64 } else { ms as f64 })
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analyzer;
    use crate::fields::Paths;

    #[test]
    fn values_that_follow_the_clock_are_found_whatever_their_type() {
        let mut paths = Paths::new();
        let names = [
            "/at", "/date", "/epoch", "/day", "/month", "/hour", "/week", "/batch", "/born", "/order",
            "/device", "/origin", "/n",
        ];
        let slots = names.map(|name| paths.slot(name));
        let mut analyzer = Analyzer::new(paths, Vec::new(), 2, Some("/at"), 1);
        let start = 1_767_225_600_000;
        for number in 0..20_000i64 {
            let ms = start + number * 90 * 86_400_000 / 20_000;
            let (at, days) = (moment::print(ms), number * 90 / 20_000);
            let (random, other) = (mix(number.unsigned_abs()), mix(number.unsigned_abs() + 77));
            let item = format!(
                r#"{{"id":"{number}","at":"{at}","date":"{}","epoch":{},"day":{},"month":{},"hour":{},"week":"w{}","batch":"b-{:04}","born":"{}","order":"o{}","device":"d{}","origin":"{}","n":{number}}}"#,
                &at[..10],
                ms / 1000,
                days % 31 + 1,
                days / 30 + 1,
                ms / 3_600_000 % 24,
                days / 7,
                number / 100,
                &moment::print(i64::try_from(random % 40_000_000_000).unwrap() * 40)[..10],
                number / 4,
                other % 500,
                ["JFK", "LGA", "EWR"][usize::try_from(other % 3).unwrap()],
            );
            analyzer.add(item.as_bytes()).unwrap();
        }
        let paces = paces(&analyzer.finish());
        let of = |at: usize| paces[slots[at]];
        for (at, name) in names.iter().enumerate() {
            let expected = match at {
                0 | 2 => Pace::Time { step_ms: 1000 },
                1 => Pace::Time { step_ms: 86_400_000 },
                3..=7 => Pace::Period,
                _ => Pace::Free,
            };
            assert_eq!(of(at), expected, "{name}");
        }
    }

    #[test]
    fn times_are_written_in_the_form_of_others() {
        let ms = 1_767_312_645_678;
        for (given, expected) in [
            ("2018-08-09", "2026-01-02"),
            ("2018-08", "2026-01"),
            ("2018-08-09T01:02:03Z", "2026-01-02T00:10:45Z"),
            ("2018-08-09 01:02", "2026-01-02 00:10"),
            ("2018-08-09T01:02:03.123Z", "2026-01-02T00:10:45.678Z"),
        ] {
            assert_eq!(in_form_of(&KeyPart::from(given), ms), KeyPart::from(expected));
        }
        assert_eq!(in_form_of(&KeyPart::Number(1_533_776_523.0), ms), KeyPart::Number(1_767_312_645.0));
        assert_eq!(
            in_form_of(&KeyPart::Number(1_533_776_523_456.0), ms),
            KeyPart::Number(1_767_312_645_678.0)
        );
    }
}
