//! Which candidate is best, and why.
//!
//! Candidates are compared by money: the throughput that must be provisioned so that the busiest partition does not
//! make anybody wait, now and after a year's growth. That figure holds both sides of the matter: uneven keys need more
//! because one partition needs more than its share, and keys that reads do not know need more because those reads visit
//! many partitions. Limits that will be met, transactions that are lost and effort for applications are added on top.

use crate::advise::{Measured, Scope};
use crate::candidate::Kind;
use crate::layout::{GIB, Limits};

/// What a read pays for each further partition.
const PER_PARTITION: f64 = 2.5;
/// Keys that are full sooner than this are a fault.
const HORIZON_DAYS: f64 = 365.0;

/// What is known beside the candidates.
pub struct Facts<'a> {
    pub has_workload: bool,
    pub items: f64,
    pub limits: &'a Limits,
    pub span_days: f64,
}

/// A candidate's standing.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Less is better: request units per second, with penalties.
    pub score: f64,
    /// Request units per second to provision now, and in a year.
    pub needed_now: f64,
    pub needed_later: f64,
    /// What speaks for it and against it.
    pub good: Vec<String>,
    pub bad: Vec<String>,
}

/// Sorts candidates, best first, and says why.
pub fn rank(measured: &mut [Measured], facts: &Facts<'_>) {
    for one in measured.iter_mut() {
        one.verdict = verdict(one, facts);
    }
    measured.sort_by(|a, b| a.verdict.score.total_cmp(&b.verdict.score));
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
    // Who visits everything now visits everything later.
    let more =
        if visited >= partitions * 0.95 && partitions > 1.0 { later_partitions - partitions } else { 0.0 };
    let mean_later = mean + fan_out_per_second * more * PER_PARTITION;
    let hot_now = prediction.hot_factor().max(1.0);
    let hot_later =
        if later_partitions > partitions && one.candidate.is_hierarchical() && one.begins_with_time {
            // Splits do not help: the next day begins in one partition again.
            hot_now / partitions * later_partitions
        } else if later_partitions > partitions {
            let by_bytes = later.map_or(hot_now, |stage| stage.unevenness).clamp(1.0, hot_now.max(1.05));
            (prediction.hottest_key_share * later_partitions).max(by_bytes)
        } else {
            hot_now
        };
    let needed_later = mean_later * hot_later;
    let mut penalty = match one.candidate.kind {
        Kind::Property => 0.0,
        Kind::Hierarchical => 0.02,
        Kind::Concatenated => 0.03,
        Kind::PrecalculatedSuffix => 0.05,
        Kind::RandomSuffix => 0.07,
    };
    penalty += f64::from(one.candidate.suffixes.unwrap_or(0)) * 0.000_01;
    if let Scope::Lost(share) = one.scope {
        penalty += 0.3 * share;
    }
    let is_unique =
        !one.candidate.is_hierarchical() && one.distinct >= facts.items * 0.9 && facts.items > 100.0;
    if is_unique {
        penalty += if facts.has_workload { 0.02 } else { 0.25 };
    }
    if let Some(days) = one.days_until_full.filter(|days| *days < HORIZON_DAYS) {
        penalty += if days < 30.0 { 4.0 } else { 1.0 + 2.0 * (1.0 - days / HORIZON_DAYS) };
    }
    let score = f64::midpoint(needed_now, needed_later) * (1.0 + penalty);
    let mut verdict = Verdict { score, needed_now, needed_later, good: Vec::new(), bad: Vec::new() };
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
        let key = one.heaviest.first().and_then(|key| key.name.clone());
        let hottest = prediction.hottest_key_share;
        let why = if hottest > 0.9 / partitions as f64 && hottest > 0.1 {
            let named = key
                .filter(|_| one.largest_share > 0.1)
                .map(|key| format!(", such as {key},"))
                .unwrap_or_default();
            format!("at any time one key{named} has {} of the load", percent(hottest))
        } else if one.distinct < partitions as f64 * 10.0 {
            format!("there are only {} key values for {partitions} partitions", count(one.distinct))
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
    if throttled > 0.005 {
        bad.push(format!(
            "{} of requests are told to wait (429) at {} RU/s.",
            percent(throttled),
            count(facts.limits.throughput.into())
        ));
    } else if facts.has_workload {
        good.push(format!("Hardly anybody waits at {} RU/s.", count(facts.limits.throughput.into())));
    }
    let reads = prediction.reads;
    let all = (reads.point + reads.single + reads.fan_out) as f64;
    if all > 0.0 {
        let (point, single, fan_out) =
            (reads.point as f64 / all, reads.single as f64 / all, reads.fan_out as f64 / all);
        if fan_out > 0.01 {
            let visited = reads.fan_out_partitions as f64 / reads.fan_out as f64;
            bad.push(format!(
                "{} of reads cannot tell the key and visit {visited:.1} of {partitions} partitions on average.",
                percent(fan_out)
            ));
        } else {
            good.push(format!(
                "Reads know the key: {} are point reads, {} are queries of one partition.",
                percent(point),
                percent(single)
            ));
        }
    }
    match one.days_until_full {
        Some(0.0) => bad.push(format!(
            "The largest key has {:.1} GB already; {:.0} GB is the most that a key may have.",
            one.largest_bytes / GIB,
            facts.limits.logical_bytes / GIB
        )),
        Some(days) if days < HORIZON_DAYS => {
            bad.push(format!(
                "The largest key reaches {:.0} GB, the most that a key may have, in {} days.",
                facts.limits.logical_bytes / GIB,
                count(days.ceil())
            ));
        }
        Some(days) => good
            .push(format!("The largest key is full only in {:.0} years.", (days / 365.0).floor().max(1.0))),
        None => good.push("No key comes near the size limit.".to_owned()),
    }
    if one.growth.last().is_some_and(|stage| stage.stuck > 0) {
        bad.push(
            "Within a year a partition is too large that cannot be split, because it holds one key."
                .to_owned(),
        );
    }
    match one.scope {
        Scope::Kept => good.push("What is written in one transaction stays under one key.".to_owned()),
        Scope::Lost(share) => bad.push(format!(
            "{} of what is written in one transaction would be spread over several keys.",
            percent(share)
        )),
        Scope::Unknown => {}
    }
    if is_unique {
        bad.push(
            "Every item has a key of its own: only reads by exactly this property find their partition."
                .to_owned(),
        );
    }
    match one.candidate.kind {
        Kind::Property | Kind::Hierarchical => {}
        Kind::Concatenated => {
            bad.push("Applications, or the container's policy, must make the key.".to_owned());
        }
        Kind::PrecalculatedSuffix => {
            bad.push("The key is made from properties; who knows the hashed one computes it, others visit every suffix.".to_owned());
        }
        Kind::RandomSuffix => {
            bad.push("Nobody can tell an item's suffix: finding one visits every suffix.".to_owned());
        }
    }
}

/// `12 %`, `0.4 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 10.0 || percent == 0.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// A whole number with thin groups: `12,000`.
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
