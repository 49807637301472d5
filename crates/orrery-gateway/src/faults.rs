//! Fault injection for testing applications: rules that fail or delay matching requests, or drop their connection.
//!
//! Rules exist only on servers with test controls. The first active rule that matches a request applies; the response
//! carries its id in `x-orrery-fault`. A rule with a percentage uses its own random sequence if it has a seed,
//! otherwise the injected randomness, so both can be replayed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use orrery_db::Database;
use orrery_env::Env;
use orrery_model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::headers;
use crate::operation::Verb;
use crate::path::{ContainerPath, Path};
use crate::reply::Reply;
use crate::wire::status::{WireStatus, injectable};

/// Rules that may exist at the same time.
const RULES_MAX: usize = 100;
const LATENCY_MS_MAX: u64 = 10 * 60_000;
/// Carries the id of the rule that was applied.
pub(crate) const FAULT_HEADER: &str = "x-orrery-fault";

const RESOURCES: [&str; 14] = [
    "any",
    "account",
    "database",
    "container",
    "item",
    "range",
    "script",
    "conflict",
    "partition_key",
    "user",
    "permission",
    "encryption_key",
    "offer",
    "address",
];

/// A rule as sent by clients and listed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Rule {
    id: String,
    /// The status of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    substatus: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u32>,
    /// Delay before anything else happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<u64>,
    /// Close the connection instead of responding.
    #[serde(skip_serializing_if = "is_false")]
    drop_connection: bool,
    /// Execute the request, then fail it.
    #[serde(skip_serializing_if = "is_false")]
    after_work: bool,
    /// By the name of the operation; empty = all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    operations: Vec<String>,
    /// The kind of resource; items by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    /// The number of a physical partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    /// Apply to this percentage of matching requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    percentage: Option<f64>,
    /// Stop after this many hits.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// Stop after this many milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// Seeds the rule's own random sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A rule and its state.
#[derive(Clone, Debug)]
struct Active {
    rule: Rule,
    hits: u64,
    ends_at_ms: Option<i64>,
    random: Option<u64>,
}

/// All rules of a server.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Mutex<Vec<Active>>,
    /// Checked without the lock, so that servers without rules pay nothing.
    count: AtomicUsize,
    numbers: AtomicUsize,
}

/// The effect of a rule on a request.
#[derive(Clone, Debug)]
pub(crate) struct Struck {
    pub(crate) id: String,
    pub(crate) latency: Option<Duration>,
    pub(crate) drops_connection: bool,
    pub(crate) after_work: bool,
    status: Option<(u16, u16)>,
    retry_after_ms: Option<u32>,
}

impl Struck {
    /// The response that replaces the real one, if the rule has one.
    pub(crate) fn reply(&self, activity_id: &str, uri: &str) -> Option<Reply> {
        if self.drops_connection {
            // Never sent: it takes the place of the real response until the transport closes the connection.
            return Some(Reply::new(StatusCode::SERVICE_UNAVAILABLE));
        }
        let (status, substatus) = self.status?;
        let code = usual(status).map_or("Fault", |usual| usual.code);
        let message = format!("The rule '{}' of /_orrery/faults failed this request.", self.id);
        let reply = Reply::failure((status, substatus, code), &message, activity_id, uri);
        Some(match self.retry_after_ms {
            Some(delay) => reply.with("x-ms-retry-after-ms", delay),
            None => reply,
        })
    }
}

impl Faults {
    /// Finds the rule for this request and counts the hit.
    pub(crate) fn strike(
        &self,
        database: &Database,
        verb: Verb,
        path: &Path,
        headers: &HeaderMap,
    ) -> Option<Struck> {
        // Nearly always: without rules, a request pays for this load only.
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let env = database.env();
        let now_ms = env.now_ms();
        // Matching and counting under one lock, so that a rule with a count applies exactly that often.
        let mut rules = self.rules.lock();
        for active in rules.iter_mut() {
            let alive = active.ends_at_ms.is_none_or(|end| now_ms < end)
                && active.rule.count.is_none_or(|count| active.hits < count);
            // The draw comes last: each matching request takes exactly one number of the sequence, so a seed
            // replays.
            if alive && active.rule.matches(database, verb, path, headers) && active.falls(env) {
                active.hits += 1;
                return Some(active.rule.struck());
            }
        }
        None
    }

    /// Adds the rule in the body and returns it.
    pub(crate) fn add(&self, env: &dyn Env, body: &[u8]) -> Result<Reply> {
        let mut rule: Rule = serde_json::from_slice(body)
            .map_err(|error| Error::bad_request(format!("The rule cannot be read: {error}.")))?;
        rule.check()?;
        let mut rules = self.rules.lock();
        if rules.len() >= RULES_MAX {
            return Err(Error::bad_request(format!(
                "There are already {RULES_MAX} rules. Remove some first."
            )));
        }
        if rule.id.is_empty() {
            rule.id = format!("fault-{}", self.numbers.fetch_add(1, Ordering::Relaxed) + 1);
        }
        if rules.iter().any(|active| active.rule.id == rule.id) {
            let message = format!("The rule '{}' already exists.", rule.id);
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let active = Active {
            hits: 0,
            ends_at_ms: rule
                .duration_ms
                .map(|duration| env.now_ms().saturating_add(i64::try_from(duration).unwrap_or(i64::MAX))),
            // Zero would be a fixed point of the generator.
            random: rule.seed.map(|seed| seed ^ 0x9E37_79B9_7F4A_7C15).map(|seed| seed.max(1)),
            rule,
        };
        let shown = active.to_json(env.now_ms());
        rules.push(active);
        self.count.store(rules.len(), Ordering::Release);
        Ok(Reply::json(StatusCode::CREATED, shown.to_string()))
    }

    pub(crate) fn list(&self, env: &dyn Env) -> Reply {
        let now_ms = env.now_ms();
        let rules: Vec<_> = self.rules.lock().iter().map(|active| active.to_json(now_ms)).collect();
        Reply::json(StatusCode::OK, serde_json::json!({ "rules": rules }).to_string())
    }

    /// Removes a rule, or all of them.
    pub(crate) fn remove(&self, id: Option<&str>) -> Result<Reply> {
        let mut rules = self.rules.lock();
        let before = rules.len();
        // Without an id nothing is retained.
        rules.retain(|active| id.is_some_and(|id| active.rule.id != id));
        let removed = before - rules.len();
        self.count.store(rules.len(), Ordering::Release);
        match id {
            Some(id) if removed == 0 => {
                Err(Error::new(ErrorKind::NotFound, format!("There is no rule '{id}'.")))
            }
            _ => Ok(Reply::json(StatusCode::OK, format!("{{\"removed\":{removed}}}"))),
        }
    }
}

impl Rule {
    fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::bad_request(message));
        if self.status.is_none() && self.latency_ms.is_none() && !self.drop_connection {
            return refuse("A rule needs a status, latencyMs or dropConnection.".to_owned());
        }
        if self.status.is_some() && self.drop_connection {
            return refuse("A rule cannot have both a status and dropConnection.".to_owned());
        }
        // Only statuses that the service sends for reasons outside the request: others would test what cannot
        // happen.
        if let Some(status) = self.status
            && usual(status).is_none()
        {
            let known: Vec<String> = injectable().iter().map(|known| known.status.to_string()).collect();
            return refuse(format!(
                "The status {status} is not supported. Expected one of {}.",
                known.join(", ")
            ));
        }
        if self.latency_ms.is_some_and(|latency| latency > LATENCY_MS_MAX) {
            return refuse(format!("latencyMs must be at most {LATENCY_MS_MAX}."));
        }
        if self.percentage.is_some_and(|percentage| !(0.0..=100.0).contains(&percentage)) {
            return refuse("percentage must be between 0 and 100.".to_owned());
        }
        if let Some(unknown) =
            self.operations.iter().find(|name| !Verb::ALL.iter().any(|verb| verb.name() == *name))
        {
            let known: Vec<&str> = Verb::ALL.iter().map(|verb| verb.name()).collect();
            return refuse(format!("Unknown operation '{unknown}'. Expected one of {}.", known.join(", ")));
        }
        if let Some(resource) = &self.resource
            && !RESOURCES.contains(&resource.as_str())
        {
            return refuse(format!(
                "Unknown resource '{resource}'. Expected one of {}.",
                RESOURCES.join(", ")
            ));
        }
        if let Some(partition) = &self.partition
            && partition.parse::<u32>().is_err()
        {
            return refuse(format!("'{partition}' is not a partition id."));
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.id.len() > 100 || !self.id.chars().all(legal) {
            return refuse("An id has at most 100 letters, digits, dashes, dots and underscores.".to_owned());
        }
        Ok(())
    }

    fn matches(&self, database: &Database, verb: Verb, path: &Path, headers: &HeaderMap) -> bool {
        let kind = match self.resource.as_deref() {
            None => path.kind() == "item",
            Some("any") => true,
            Some(kind) => path.kind() == kind,
        };
        if !kind || !(self.operations.is_empty() || self.operations.iter().any(|name| name == verb.name())) {
            return false;
        }
        if self.database.is_none() && self.container.is_none() && self.partition.is_none() {
            return true;
        }
        let Some(at) = path.container() else {
            // For resources outside containers, only the database is known.
            return self.container.is_none()
                && self.partition.is_none()
                && path.database() == self.database.as_deref();
        };
        let by_name =
            |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
        // A client may use RIDs in place of names; the catalog knows both.
        let catalog = database.catalog();
        let found = catalog.container(&at.database, &at.container).ok();
        let names = found.map_or((at.database.as_str(), at.container.as_str()), |container| {
            (&*container.database_id, container.definition.id.as_str())
        });
        if !by_name(&self.database, names.0) || !by_name(&self.container, names.1) {
            return false;
        }
        self.partition.as_deref().is_none_or(|wanted| visits(database, at, headers, wanted))
    }

    fn struck(&self) -> Struck {
        let substatus =
            |status| self.substatus.or_else(|| Some(usual(status)?.substatus)).unwrap_or_default();
        // Clients expect a 429 to say when to retry.
        let default_delay = (self.status == Some(429)).then_some(100);
        Struck {
            id: self.id.clone(),
            latency: self.latency_ms.map(Duration::from_millis),
            drops_connection: self.drop_connection,
            after_work: self.after_work,
            status: self.status.map(|status| (status, substatus(status))),
            retry_after_ms: self.retry_after_ms.or(default_delay),
        }
    }
}

/// The wire form of an error with this status, if rules can inject it.
fn usual(status: u16) -> Option<WireStatus> {
    injectable().into_iter().find(|known| known.status == status)
}

/// Whether a request targets a physical partition, judging by its headers: one without a range or key targets all of
/// them.
fn visits(database: &Database, at: &ContainerPath, headers: &HeaderMap, partition: &str) -> bool {
    if let Ok(Some(range)) = headers::range_id(headers) {
        return range.to_string() == partition;
    }
    let Ok(Some(key)) = headers::partition_key(headers) else { return true };
    let catalog = database.catalog();
    let Ok(container) = catalog.container(&at.database, &at.container) else { return false };
    let definition = &container.definition.partition_key;
    // A prefix of a hierarchical key may lie in several partitions, and targets each of them.
    let range = definition.prefix_range(&key);
    container
        .partitions
        .iter()
        .filter(|candidate| candidate.range.overlaps(&range))
        .any(|candidate| candidate.range_id.to_string() == partition)
}

impl Active {
    /// Draws whether the percentage selects this request.
    fn falls(&mut self, env: &dyn Env) -> bool {
        let Some(percentage) = self.rule.percentage else { return true };
        let number = match &mut self.random {
            Some(state) => {
                // xorshift64*: simple and portable.
                *state ^= *state >> 12;
                *state ^= *state << 25;
                *state ^= *state >> 27;
                state.wrapping_mul(0x2545_F491_4F6C_DD1D)
            }
            None => env.random_u64(),
        };
        // The upper 53 bits as a fraction of one.
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let share = (number >> 11) as f64 / (1_u64 << 53) as f64;
        share * 100.0 < percentage
    }

    fn to_json(&self, now_ms: i64) -> serde_json::Value {
        let mut value = serde_json::to_value(&self.rule).unwrap_or_default();
        value["hits"] = self.hits.into();
        let is_over = self.ends_at_ms.is_some_and(|end| now_ms >= end)
            || self.rule.count.is_some_and(|count| self.hits >= count);
        value["active"] = (!is_over).into();
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoRandomness;

    impl Env for NoRandomness {
        fn now_ms(&self) -> i64 {
            0
        }

        fn fill_random(&self, bytes: &mut [u8]) {
            bytes.fill(0x40);
        }
    }

    fn hits(percentage: f64, seed: Option<u64>) -> Vec<bool> {
        let faults = Faults::default();
        let body = serde_json::json!({ "status": 503, "percentage": percentage, "seed": seed }).to_string();
        faults.add(&NoRandomness, body.as_bytes()).unwrap();
        let mut rules = faults.rules.lock();
        (0..1000).map(|_| rules[0].falls(&NoRandomness)).collect()
    }

    #[test]
    fn percentages_can_be_replayed() {
        let first = hits(20.0, Some(7));
        assert_eq!(first, hits(20.0, Some(7)));
        assert_ne!(first, hits(20.0, Some(8)));
        let count = first.iter().filter(|hit| **hit).count();
        assert!((150..250).contains(&count), "{count}");
        // Without a seed the injected randomness decides.
        assert!(hits(25.2, None).iter().all(|hit| *hit));
        assert!(!hits(25.0, None).iter().any(|hit| *hit));
    }
}
