//! Guardrails: rules that a workload must keep, checked against what was recorded, forecast or measured.
//!
//! Each rule becomes a case that passes, fails with the offenders, or is skipped because nothing shows whether it is kept:
//! a rule is never taken as kept without evidence.

use serde::Deserialize;

use crate::rank::{count, percent};

/// The service's limits, which the percentages of rules refer to.
pub const KEY_BYTES_MAX: f64 = 20.0 * crate::layout::GIB;
pub const ITEM_BYTES_MAX: f64 = 2_097_152.0;
/// Offenders that a failed case names.
const NAMED: usize = 5;

/// The rules file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// For every operation.
    pub limits: Limits,
    /// Exceptions for some operations; the first that matches counts.
    pub operations: Vec<Exception>,
    /// For the workload as a whole.
    pub traffic: Traffic,
    /// For the data.
    pub sizes: Sizes,
}

/// What one operation may do. Absent: anything.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Partitions that a request may visit.
    pub partitions: Option<u32>,
    /// Whether a query may read all items of a partition.
    pub scan: Option<bool>,
    /// Request units of a request.
    pub charge: Option<f64>,
}

/// Other limits for the operations whose name or query text matches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// The name or the text; `*` stands for any text.
    #[serde(rename = "match")]
    pub pattern: String,
    #[serde(default)]
    pub partitions: Option<u32>,
    #[serde(default)]
    pub scan: Option<bool>,
    #[serde(default)]
    pub charge: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Traffic {
    /// Share of the request units that one key may take.
    pub key_percent: Option<f64>,
    /// Share of the requests that may be throttled.
    pub throttled_percent: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sizes {
    /// Share of a key's 20 GB.
    pub key_percent: Option<f64>,
    /// Share of an item's 2 MB.
    pub item_percent: Option<f64>,
}

impl Rules {
    /// Parses TOML. A file without any rule is an error: it would check nothing.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rules: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let Self { limits, traffic, sizes, .. } = &rules;
        let percents =
            [traffic.key_percent, traffic.throttled_percent, sizes.key_percent, sizes.item_percent];
        let numbers = percents.iter().copied().chain([limits.charge]);
        // NaN as a limit would never be exceeded.
        let numbers = numbers.chain(rules.operations.iter().map(|own| own.charge)).flatten();
        if !numbers.clone().all(|number| number.is_finite() && number >= 0.0) {
            return Err("limits must not be negative".to_owned());
        }
        if percents.iter().flatten().any(|percent| *percent > 100.0) {
            return Err("a percentage is at most 100".to_owned());
        }
        let is_set =
            |limits: &Limits| limits.partitions.is_some() || limits.scan.is_some() || limits.charge.is_some();
        let has_rules = is_set(limits)
            || rules.operations.iter().any(|own| is_set(&own.limits()))
            || percents.iter().any(Option::is_some);
        if has_rules { Ok(rules) } else { Err("there is no rule to check".to_owned()) }
    }

    /// The limits of an operation.
    fn limits_of(&self, name: &str) -> Limits {
        // The first exception that matches counts.
        let own = self.operations.iter().find(|own| matches_pattern(&own.pattern, name));
        let own = own.map(Exception::limits).unwrap_or_default();
        Limits {
            partitions: own.partitions.or(self.limits.partitions),
            scan: own.scan.or(self.limits.scan),
            charge: own.charge.or(self.limits.charge),
        }
    }
}

impl Exception {
    fn limits(&self) -> Limits {
        Limits { partitions: self.partitions, scan: self.scan, charge: self.charge }
    }
}

/// Whether a text matches a pattern, in which `*` stands for any text. White space is compared as one space.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (pattern, text) = (plain(pattern), plain(text));
    let mut parts = pattern.split('*');
    // The text begins with the first part and ends with the last; those in between follow one another.
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// What is known of an operation. Unknown: `None`.
#[derive(Clone, Debug, Default)]
pub struct OperationFacts {
    pub name: String,
    pub requests: u64,
    /// The most partitions that a request visited.
    pub partitions: Option<f64>,
    /// How the query reads all items, if it does.
    pub scan: Option<Option<String>>,
    /// The most expensive request.
    pub charge: Option<f64>,
    /// Why something is unknown.
    pub unknown: String,
}

/// What is known of a workload and its data.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What the facts rest on, for the report.
    pub source: String,
    pub operations: Vec<OperationFacts>,
    /// The keys with the most request units, with their share.
    pub traffic: Option<Vec<(String, f64)>>,
    pub throttled: Option<f64>,
    /// The largest keys, with their bytes.
    pub keys: Option<Vec<(String, f64)>>,
    /// The largest items, with their bytes.
    pub items: Option<Vec<(String, f64)>>,
}

/// The outcome of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// A rule applied to an operation or to all.
#[derive(Clone, Debug)]
pub struct Case {
    /// `partitions`, `scan`, `charge`, `key traffic`, …
    pub rule: &'static str,
    /// The operation, or what it is about.
    pub subject: String,
    pub outcome: Outcome,
}

/// Applies the rules.
pub fn check(rules: &Rules, facts: &Facts) -> Vec<Case> {
    let mut cases = Vec::new();
    for operation in &facts.operations {
        check_operation(rules.limits_of(&operation.name), operation, &mut cases);
    }
    let mut shares =
        |rule, limit: Option<f64>, found: &Option<Vec<(String, f64)>>, whole: f64, missing: &str| {
            let Some(limit) = limit else { return };
            let outcome = match found {
                // A rule does not fail for what is not known.
                None => Outcome::Skipped(missing.to_owned()),
                Some(found) => {
                    let over = found.iter().filter(|(_, value)| value / whole * 100.0 > limit);
                    let over: Vec<String> = over
                        .take(NAMED)
                        .map(|(name, value)| format!("{name}: {}", percent(value / whole)))
                        .collect();
                    if over.is_empty() {
                        Outcome::Passed
                    } else {
                        Outcome::Failed(format!("more than {}: {}", percent(limit / 100.0), over.join(", ")))
                    }
                }
            };
            cases.push(Case { rule, subject: "all".to_owned(), outcome });
        };
    let traffic = "nothing shows the load of keys";
    shares("key traffic", rules.traffic.key_percent, &facts.traffic, 1.0, traffic);
    shares(
        "key size",
        rules.sizes.key_percent,
        &facts.keys,
        KEY_BYTES_MAX,
        "nothing shows the sizes of keys",
    );
    let items = "nothing shows the sizes of items";
    shares("item size", rules.sizes.item_percent, &facts.items, ITEM_BYTES_MAX, items);
    if let Some(limit) = rules.traffic.throttled_percent {
        let outcome = match facts.throttled {
            None => Outcome::Skipped("nothing shows whether requests are throttled".to_owned()),
            Some(share) if share * 100.0 > limit => Outcome::Failed(format!(
                "{} of the requests are throttled, more than {}",
                percent(share),
                percent(limit / 100.0)
            )),
            Some(_) => Outcome::Passed,
        };
        cases.push(Case { rule: "throttled", subject: "all".to_owned(), outcome });
    }
    cases
}

fn check_operation(limits: Limits, operation: &OperationFacts, cases: &mut Vec<Case>) {
    let mut add = |rule, outcome| cases.push(Case { rule, subject: operation.name.clone(), outcome });
    let unknown = || Outcome::Skipped(operation.unknown.clone());
    if let Some(limit) = limits.partitions {
        add(
            "partitions",
            match operation.partitions {
                None => unknown(),
                // The figure may be an average, with errors of rounding.
                Some(visited) if visited > f64::from(limit) + 1e-9 => {
                    Outcome::Failed(format!("visits {visited:.0} partitions, more than {limit}"))
                }
                Some(_) => Outcome::Passed,
            },
        );
    }
    if limits.scan == Some(false) {
        match &operation.scan {
            None => add("scan", unknown()),
            Some(Some(how)) => add("scan", Outcome::Failed(format!("reads all items: {how}"))),
            Some(None) => add("scan", Outcome::Passed),
        }
    }
    if let Some(limit) = limits.charge {
        add(
            "charge",
            match operation.charge {
                None => unknown(),
                Some(charge) if charge > limit => {
                    Outcome::Failed(format!("costs {charge:.2} RU, more than {limit}"))
                }
                Some(_) => Outcome::Passed,
            },
        );
    }
}

/// The number of failed cases.
pub fn failures(cases: &[Case]) -> usize {
    cases.iter().filter(|case| matches!(case.outcome, Outcome::Failed(_))).count()
}

/// The report for a terminal.
pub fn text(facts: &Facts, cases: &[Case]) -> String {
    let mut out = format!("Checked: {}.\n", facts.source);
    for (mark, is_own) in [
        ("FAILED ", (|outcome| matches!(outcome, Outcome::Failed(_))) as fn(&Outcome) -> bool),
        ("skipped", |outcome| matches!(outcome, Outcome::Skipped(_))),
    ] {
        for case in cases.iter().filter(|case| is_own(&case.outcome)) {
            let (Outcome::Failed(why) | Outcome::Skipped(why)) = &case.outcome else { continue };
            out += &format!("{mark} {} ({}): {why}\n", case.rule, case.subject);
        }
    }
    let passed = cases.iter().filter(|case| case.outcome == Outcome::Passed).count();
    let failed = failures(cases);
    let skipped = cases.len() - passed - failed;
    out + &format!(
        "{} passed, {} failed, {} skipped.\n",
        count(passed as f64),
        count(failed as f64),
        count(skipped as f64)
    )
}

/// The cases as JSON.
pub fn json(facts: &Facts, cases: &[Case]) -> serde_json::Value {
    let case = |case: &Case| {
        let (outcome, why) = match &case.outcome {
            Outcome::Passed => ("passed", None),
            Outcome::Failed(why) => ("failed", Some(why)),
            Outcome::Skipped(why) => ("skipped", Some(why)),
        };
        serde_json::json!({ "rule": case.rule, "subject": case.subject, "outcome": outcome, "reason": why })
    };
    serde_json::json!({
        "source": facts.source,
        "failed": failures(cases),
        "cases": cases.iter().map(case).collect::<Vec<_>>(),
    })
}

/// The cases in the JUnit format that continuous integration shows.
pub fn junit(cases: &[Case]) -> String {
    let skipped = cases.iter().filter(|case| matches!(case.outcome, Outcome::Skipped(_))).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"orrery check\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{skipped}\">\n",
        cases.len(),
        failures(cases)
    );
    for case in cases {
        let head = format!(
            "<testcase classname=\"orrery.check.{}\" name=\"{}\"",
            escape(&case.rule.replace(' ', "_")),
            escape(&case.subject)
        );
        out += &match &case.outcome {
            Outcome::Passed => format!("{head}/>\n"),
            Outcome::Failed(why) => {
                format!("{head}><failure message=\"{}\">{0}</failure></testcase>\n", escape(why))
            }
            Outcome::Skipped(why) => format!("{head}><skipped message=\"{}\"/></testcase>\n", escape(why)),
        };
    }
    out + "</testsuite>\n</testsuites>\n"
}

/// Escapes text for XML attributes; control characters are not allowed there at all.
fn escape(text: &str) -> String {
    let spaced = text.replace(['\n', '\r', '\t'], " ");
    let kept: String = spaced.chars().filter(|letter| !letter.is_control()).collect();
    crate::report::escape(&kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let operation = |name: &str, partitions, scan: Option<&str>, charge| OperationFacts {
            name: name.to_owned(),
            requests: 1,
            partitions: Some(partitions),
            scan: Some(scan.map(str::to_owned)),
            charge: Some(charge),
            unknown: String::new(),
        };
        Facts {
            source: "a test".to_owned(),
            operations: vec![
                operation("read", 1.0, None, 1.0),
                operation("SELECT * FROM c WHERE c.a = @a", 8.0, None, 30.0),
                operation("SELECT VALUE  COUNT(1) FROM c", 8.0, Some("a scan"), 300.0),
            ],
            traffic: Some(vec![("[\"t1\"]".to_owned(), 0.31), ("[\"t2\"]".to_owned(), 0.05)]),
            throttled: Some(0.004),
            keys: Some(vec![("[\"t1\"]".to_owned(), 17.0 * crate::layout::GIB)]),
            items: None,
        }
    }

    fn failed(rules: &str) -> Vec<String> {
        let cases = check(&Rules::parse(rules).unwrap(), &facts());
        let failed = cases.iter().filter(|case| matches!(case.outcome, Outcome::Failed(_)));
        failed.map(|case| format!("{} {}", case.rule, case.subject)).collect()
    }

    #[test]
    fn rules_fail_for_those_that_break_them() {
        let query = "SELECT * FROM c WHERE c.a = @a";
        let counting = "SELECT VALUE  COUNT(1) FROM c";
        assert_eq!(
            failed("[limits]\npartitions = 1\n"),
            [format!("partitions {query}"), format!("partitions {counting}")]
        );
        assert_eq!(failed("[limits]\nscan = false\n"), [format!("scan {counting}")]);
        assert_eq!(failed("[limits]\nscan = true\ncharge = 1000\n"), Vec::<String>::new());
        assert_eq!(failed("[limits]\ncharge = 30\n"), [format!("charge {counting}")]);
        let excepted = "[limits]\ncharge = 20\npartitions = 1\n[[operations]]\nmatch = \"SELECT VALUE COUNT(*\"\ncharge = 500\npartitions = 8\n[[operations]]\nmatch = \"*c.a = @a\"\npartitions = 8\n";
        assert_eq!(failed(excepted), [format!("charge {query}")]);
        assert_eq!(failed("[traffic]\nkey_percent = 20\nthrottled_percent = 1\n"), ["key traffic all"]);
        assert_eq!(failed("[traffic]\nthrottled_percent = 0.1\n"), ["throttled all"]);
        assert_eq!(failed("[sizes]\nkey_percent = 80\n"), ["key size all"]);
    }

    #[test]
    fn what_is_unknown_is_skipped_and_said() {
        let cases = check(&Rules::parse("[sizes]\nitem_percent = 50\n").unwrap(), &facts());
        assert_eq!(cases[0].outcome, Outcome::Skipped("nothing shows the sizes of items".to_owned()));
        assert!(text(&facts(), &cases).contains("skipped item size (all): nothing shows"));
        assert!(text(&facts(), &cases).ends_with("0 passed, 0 failed, 1 skipped.\n"));
    }

    #[test]
    fn rules_that_say_nothing_or_nonsense_are_refused() {
        for text in [
            "",
            "[limits]\n",
            "[limits]\npartition = 1\n",
            "[limits]\ncharge = -1\n",
            "[sizes]\nkey_percent = 101\n",
            "[[operations]]\nmatch = \"x\"\n",
            "[[operations]]\ncharge = 1\n",
        ] {
            assert!(Rules::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, is_match) in [
            ("read", "read", true),
            ("read", "reads", false),
            ("SELECT *", "SELECT * FROM c", true),
            ("*FROM c", "SELECT 1 FROM c", true),
            ("SELECT * WHERE * = 1", "SELECT x WHERE c.a = 1", true),
            ("SELECT * WHERE * = 1", "SELECT x WHERE c.a = 2", false),
            ("a  b", "a\nb", true),
        ] {
            assert_eq!(matches_pattern(pattern, text), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn junit_has_a_case_for_each_rule_and_escapes() {
        let mut facts = facts();
        facts.operations[1].name = "SELECT \"<a>\" & 'b'\n".to_owned();
        let cases = check(&Rules::parse("[limits]\npartitions = 1\n").unwrap(), &facts);
        let xml = junit(&cases);
        assert!(xml.contains("tests=\"3\" failures=\"2\" errors=\"0\" skipped=\"0\""), "{xml}");
        assert!(xml.contains("name=\"SELECT &quot;&lt;a&gt;&quot; &amp; 'b' \"><failure"), "{xml}");
    }
}
