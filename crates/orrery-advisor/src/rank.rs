//! Ranks candidates and gives reasons.
//!
//! Candidates are compared by cost: the throughput that must be provisioned so that the busiest partition does not
//! throttle, now and after a year's growth. This covers both sides: uneven keys need more because one partition needs
//! more than its share, and keys that reads do not specify need more because those reads fan out. Limits that will be
//! reached, lost transactions and effort for applications are added as penalties. Unusable keys come last, whatever
//! their cost. If costs differ by less than the forecast's error, the simpler key comes first.

use crate::candidate::Kind;
use crate::layout::{GIB, Limits};
use crate::measured::{Measured, Scope, Verdict};

/// Charge of a read for each additional partition.
const PER_PARTITION: f64 = 2.5;
/// A key that fills up sooner than this counts against its candidate.
const HORIZON_DAYS: f64 = 365.0;

/// Scores that differ by less are ties: the forecast agrees with the server within this share.
pub const ERROR: f64 = 0.05;
/// A key with this share of the requests or bytes is a danger.
const DANGER: f64 = 0.1;
/// Fewer values than this cannot be spread.
const VALUES_MIN: f64 = 10.0;

/// Facts about the data and the workload as a whole.
pub struct Facts<'a> {
    pub has_workload: bool,
    /// The workload is a recording.
    pub is_recorded: bool,
    /// Every item is in the sample.
    pub is_whole: bool,
    pub items: f64,
    pub limits: &'a Limits,
    pub span_days: f64,
}

/// Sorts candidates, best first, and gives reasons.
pub fn rank(measured: &mut [Measured], facts: &Facts<'_>) {
    for one in measured.iter_mut() {
        one.verdict = verdict(one, facts);
    }
    let is_unfit = |one: &Measured| one.verdict.unfit.is_some();
    measured.sort_by(|a, b| is_unfit(a).cmp(&is_unfit(b)).then(a.verdict.score.total_cmp(&b.verdict.score)));
    let Some(least) = measured.first().map(|best| best.verdict.score) else { return };
    let is_tied = |one: &Measured| one.verdict.score <= least * (1.0 + ERROR);
    let tied = measured.iter().take_while(|one| is_tied(one) && !is_unfit(one)).count();
    // Within the error, the simpler one is better.
    measured[..tied].sort_by(|a, b| {
        let effort = |one: &Measured| (one.candidate.kind, one.prediction.reads.fan_out);
        effort(a).cmp(&effort(b)).then(a.verdict.score.total_cmp(&b.verdict.score))
    });
    measured[..tied].iter_mut().for_each(|one| one.verdict.is_tied = tied > 1);
    let names: Vec<(Kind, String)> =
        measured.iter().map(|one| (one.candidate.kind, one.candidate.name.clone())).collect();
    for one in measured.iter_mut().filter(|one| one.candidate.kind == Kind::Property && is_dangerous(one)) {
        // The names of keys that build on a property begin with it.
        let builds_on = |(kind, name): &&(Kind, String)| {
            *kind != Kind::Property && name.split([' ', '+']).next() == Some(&one.candidate.name)
        };
        one.verdict.alternative = names.iter().find(builds_on).map(|(_, name)| name.clone());
    }
}

/// Whether one key dominates and limits the rest.
fn is_dangerous(one: &Measured) -> bool {
    one.largest_share > DANGER || one.prediction.hottest_key_share > DANGER
}

/// Why a candidate is unusable.
fn unfit(one: &Measured) -> Option<String> {
    // At least two values per partition, or some partitions stay empty.
    let few = VALUES_MIN.max(2.0 * one.partitions.len() as f64);
    if one.repeated > 0.0 {
        Some(format!(
            "{} of the items would collide with another one of the same id and key.",
            percent(one.repeated)
        ))
    } else if one.without_key > 0.5 {
        Some(format!("{} of the items have no value for it and share one key.", percent(one.without_key)))
    } else if one.distinct < few && one.partitions.len() > 1 {
        Some(format!(
            "{} cannot be spread over {} partitions.",
            if one.distinct < 1.5 {
                "One value".to_owned()
            } else {
                format!("{} values", count(one.distinct))
            },
            one.partitions.len()
        ))
    } else {
        None
    }
}

/// The evidence for a candidate's rank.
fn evidence(one: &Measured, facts: &Facts<'_>) -> Vec<String> {
    let mut evidence = vec![format!("spread: measured on {} items", count(facts.items))];
    let requests = count(one.prediction.requests as f64);
    evidence.push(match (facts.has_workload, facts.is_recorded) {
        (true, true) => format!("load: {requests} recorded requests replayed"),
        (true, false) => format!("load: {requests} requests replayed at the given rates"),
        (false, _) => "load: assumed, writes only".to_owned(),
    });
    if facts.has_workload {
        evidence.push(if facts.is_whole {
            "queries: evaluated on every item".to_owned()
        } else {
            "queries: estimated from a sample".to_owned()
        });
    }
    evidence.push(if facts.span_days > 0.01 {
        format!("growth: from {:.1} days of data", facts.span_days)
    } else {
        "growth: unknown".to_owned()
    });
    evidence
}

/// A share in words: `one in four`, `nearly all`.
pub fn in_words(share: f64) -> String {
    const NUMBERS: [&str; 9] = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    if share >= 0.95 {
        return "nearly all".to_owned();
    }
    let one_in = (1.0 / share.max(1e-9)).round();
    if share > 0.55 || one_in > 10.0 || (1.0 / one_in - share).abs() > 0.25 * share {
        return percent(share);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "two to ten")]
    let number = NUMBERS.get((one_in as usize).saturating_sub(2)).unwrap_or(&"ten");
    format!("one in {number}")
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn verdict(one: &Measured, facts: &Facts<'_>) -> Verdict {
    let prediction = &one.prediction;
    let partitions = one.partitions.len() as f64;
    let seconds = prediction.seconds.max(1e-9);
    let mean = prediction.offered / seconds;
    let needed_now = prediction.needed_throughput();
    let later = one.growth.last();
    let later_partitions = later.map_or(partitions, |stage| stage.partitions as f64).max(partitions);
    let reads = prediction.reads;
    let visited = reads.fan_out_partitions as f64 / (reads.fan_out as f64).max(1.0);
    let fan_out_per_second = reads.fan_out as f64 / seconds;
    // A read that fans out to all partitions now will do so later.
    let more =
        if visited >= partitions * 0.95 && partitions > 1.0 { later_partitions - partitions } else { 0.0 };
    let mean_later = mean + fan_out_per_second * more * PER_PARTITION;
    let hot_now = prediction.hot_factor().max(1.0);
    let hot_later =
        if later_partitions > partitions && one.candidate.is_hierarchical() && one.begins_with_time {
            // Splits do not help: the next day starts in one partition again.
            hot_now / partitions * later_partitions
        } else if later_partitions > partitions {
            let by_bytes = later.map_or(hot_now, |stage| stage.unevenness).clamp(1.0, hot_now.max(1.05));
            (prediction.hottest_key_share * later_partitions).max(by_bytes)
        } else {
            hot_now
        };
    let needed_later = mean_later * hot_later;
    // Small enough that they only decide between candidates of about the same cost.
    let mut penalty = match one.candidate.kind {
        Kind::Property => 0.0,
        Kind::Hierarchical => 0.02,
        Kind::Concatenated => 0.03,
        Kind::PrecalculatedSuffix => 0.05,
        Kind::RandomSuffix => 0.07,
    };
    // Of otherwise equal candidates, the one with fewer suffixes is better.
    penalty += f64::from(one.candidate.suffixes.unwrap_or(0)) * 0.000_01;
    if let Scope::Lost(share) = one.scope {
        penalty += 0.3 * share;
    }
    let is_unique =
        !one.candidate.is_hierarchical() && one.distinct >= facts.items * 0.9 && facts.items > 100.0;
    if is_unique {
        // Without a workload nothing shows whether reads specify such a key, so it must not win by default.
        penalty += if facts.has_workload { 0.02 } else { 0.25 };
    }
    if let Some(days) = one.days_until_full.filter(|days| *days < HORIZON_DAYS) {
        // Writes to a full key fail, which no amount of throughput repairs.
        penalty += if days < 30.0 { 4.0 } else { 1.0 + 2.0 * (1.0 - days / HORIZON_DAYS) };
    }
    // Half for today, half for the growth of a year.
    let score = f64::midpoint(needed_now, needed_later) * (1.0 + penalty);
    let mut verdict = Verdict {
        score,
        needed_now,
        needed_later,
        unfit: unfit(one),
        evidence: evidence(one, facts),
        ..Verdict::default()
    };
    verdict.bad.extend(verdict.unfit.clone());
    explain(one, facts, &mut verdict, is_unique);
    verdict
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn explain(one: &Measured, facts: &Facts<'_>, verdict: &mut Verdict, is_unique: bool) {
    let prediction = &one.prediction;
    let (good, bad) = (&mut verdict.good, &mut verdict.bad);
    let partitions = one.partitions.len();
    let hot = prediction.hot_factor();
    let throttled = prediction.throttled_share();
    if partitions > 1 && hot > 1.5 {
        let hottest = prediction.hottest_key_share;
        let why = if one.begins_with_time {
            "all items written at the same time have the same key".to_owned()
        } else if hottest > 0.9 / partitions as f64 && hottest > DANGER {
            // Alone it has about the even share of a partition.
            format!("one key has {} of the load", percent(hottest))
        } else if one.distinct < partitions as f64 * 10.0 {
            // Too few to spread evenly by chance.
            match count(one.distinct).as_str() {
                "1" => format!("there is only 1 key value for {partitions} partitions"),
                distinct => format!("there are only {distinct} key values for {partitions} partitions"),
            }
        } else {
            "some keys have much more load than others".to_owned()
        };
        bad.push(format!(
            "Hot: the busiest of {partitions} partitions has {hot:.1} times its even share, because {why}."
        ));
    } else if partitions > 1 {
        good.push(format!(
            "Even: the busiest of {partitions} partitions has {hot:.2} times its even share of the load."
        ));
    }
    // Of keys that begin with a time this was said above.
    if is_dangerous(one) && !one.begins_with_time && one.distinct > 1.5 {
        let name = one.heaviest.first().and_then(|key| key.name.clone());
        let name = name.unwrap_or_else(|| "one key".to_owned());
        bad.push(if one.largest_share > DANGER {
            format!("{} of the bytes belong to {name}.", capital(&in_words(one.largest_share)))
        } else {
            format!("{} of the load goes to one key.", capital(&in_words(prediction.hottest_key_share)))
        });
    }
    if one.without_key > 0.001 && one.without_key <= 0.5 {
        bad.push(format!("{} of the items lack it and share one key.", percent(one.without_key)));
    }
    if one.partitions_empty * 4 > partitions && partitions > 1 {
        bad.push(format!("{} of {partitions} partitions would be empty.", one.partitions_empty));
    }
    if throttled > 0.005 {
        bad.push(format!(
            "{} of requests are throttled (429) at {} RU/s.",
            percent(throttled),
            count(facts.limits.throughput.into())
        ));
    } else if facts.has_workload {
        good.push(format!("Throttling stays below 0.5 % at {} RU/s.", count(facts.limits.throughput.into())));
    }
    let reads = prediction.reads;
    let all = (reads.point + reads.single + reads.fan_out) as f64;
    if all > 0.0 {
        let (point, single, fan_out) =
            (reads.point as f64 / all, reads.single as f64 / all, reads.fan_out as f64 / all);
        if fan_out > 0.01 {
            let visited = reads.fan_out_partitions as f64 / reads.fan_out as f64;
            bad.push(format!(
                            "{} of reads do not specify the key and visit {visited:.1} of {partitions} partitions on average.",
                percent(fan_out)
            ));
        } else {
            good.push(format!(
                "Reads specify the key: {} are point reads, {} are single-partition queries.",
                percent(point),
                percent(single)
            ));
        }
    }
    match one.days_until_full {
        Some(0.0) => bad.push(format!(
            "The largest key already has {:.1} GB; the limit is {:.0} GB per key.",
            one.largest_bytes / GIB,
            facts.limits.logical_bytes / GIB
        )),
        Some(days) if days < HORIZON_DAYS => {
            bad.push(format!(
                "The largest key reaches the limit of {:.0} GB per key in {} days.",
                facts.limits.logical_bytes / GIB,
                count(days.ceil())
            ));
        }
        Some(days) => good.push(format!(
            "The largest key stays below its limit for {}.",
            years((days / 365.0).floor().max(1.0))
        )),
        None => good.push("No key gets near the size limit.".to_owned()),
    }
    if one.growth.last().is_some_and(|stage| stage.stuck > 0) {
        bad.push(
                    "Within a year a partition becomes too large but cannot be split, because it contains a single key."
                .to_owned(),
        );
    }
    match one.scope {
        Scope::Kept => good.push("Items that are written in one transaction keep one key.".to_owned()),
        Scope::Lost(share) => bad
            .push(format!("{} of transactions would be spread over several keys and lost.", percent(share))),
        Scope::Unknown => {}
    }
    if is_unique {
        bad.push(
            "Every item has its own key: only reads by exactly this property are routed to one partition."
                .to_owned(),
        );
    }
    match one.candidate.kind {
        Kind::Property | Kind::Hierarchical => {}
        Kind::Concatenated => {
            bad.push(
                "Applications, or the container's synthetic key definition, must build the key.".to_owned(),
            );
        }
        Kind::PrecalculatedSuffix => {
            bad.push("The key is built from properties: readers who know the hashed property compute the key; others query every suffix.".to_owned());
        }
        Kind::RandomSuffix => {
            bad.push(
                "The suffix of an item cannot be computed: finding an item queries every suffix.".to_owned(),
            );
        }
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn years(count: f64) -> String {
    if count < 1.5 { "1 year".to_owned() } else { format!("{count:.0} years") }
}

/// Formats a share: `12 %`, `0.4 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 10.0 || percent == 0.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// Formats a whole number with separators: `12,000`.
pub fn count(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
