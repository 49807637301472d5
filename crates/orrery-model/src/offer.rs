//! Provisioned throughput: requested values, the minimum, and the offer document.

use crate::error::{Error, Result};
use crate::known::Shape::{Any, Members, Undone};
use crate::known::{self, Shape};
use crate::rid::OfferRid;
use crate::value::{Object, Value};

/// The default throughput of a container.
pub const DEFAULT_THROUGHPUT: u32 = 400;
/// What one physical partition can serve.
pub const PARTITION_THROUGHPUT_MAX: u32 = 10_000;
/// The throughput per partition of a new container that needs several.
const PARTITION_THROUGHPUT_INITIAL: u32 = 6_000;
/// The most partitions that a new container gets where limits are scaled down. It splits further as needed.
const PARTITIONS_MAX: u32 = 1_000;
/// The maximum throughput without a support request.
pub const THROUGHPUT_MAX: u32 = 1_000_000;

/// The offer type of today's offers; earlier ones were S1, S2 and S3.
const OFFER_TYPE: &str = "Invalid";
const MANUAL_STEP: u32 = 100;
const AUTOSCALE_STEP: u32 = 1000;
/// The number of containers in a shared database that do not raise its minimum.
const SHARED_CONTAINERS_FREE: u32 = 25;

/// Request units per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throughput {
    Manual(u32),
    /// Between a tenth of `max` and `max`, as needed.
    Autoscale {
        max: u32,
        increment_percent: Option<u32>,
    },
}

/// The inputs of the minimum throughput.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The highest throughput ever provisioned.
    pub highest_ever: u32,
    /// The maximum storage ever used.
    pub storage_kb_max: u64,
    /// How many containers share the offer, if it belongs to a database.
    pub shared_containers: Option<u32>,
}

/// A migration between the two kinds, requested by the replace request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    ToAutoscale,
    ToManual,
}

/// The throughput of a database or container, as a resource of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub rid: OfferRid,
    /// The self link of the owner.
    pub resource: String,
    /// The resource id of the owner.
    pub owner_rid: String,
    pub throughput: Throughput,
    pub highest_ever: u32,
    pub storage_kb_max: u64,
    /// Seconds since the epoch of the last replace.
    pub replaced_seconds: Option<i64>,
}

impl Throughput {
    /// A manual throughput that its owner may have.
    pub fn manual(requested: i64, usage: Usage) -> Result<Self> {
        check(requested, usage.manual_minimum(), MANUAL_STEP).map(Self::Manual)
    }

    /// An autoscale maximum that its owner may have.
    pub fn autoscale(max: i64, increment_percent: Option<u32>, usage: Usage) -> Result<Self> {
        let max = check(max, usage.autoscale_minimum(), AUTOSCALE_STEP)?;
        Ok(Self::Autoscale { max, increment_percent })
    }

    /// Reads `{"maxThroughput": …, "autoUpgradePolicy": …}`.
    pub fn from_settings(settings: &Value, usage: Usage) -> Result<Self> {
        let max = settings.get("maxThroughput").and_then(Value::as_i64).ok_or_else(|| {
            Error::bad_request("The autoscale settings must have an integer property 'maxThroughput'.")
        })?;
        let policy = settings.get("autoUpgradePolicy").and_then(|policy| policy.get("throughputPolicy"));
        let increment = match policy.and_then(|policy| policy.get("incrementPercent")) {
            None | Some(Value::Null) => None,
            Some(percent) => {
                let valid = percent
                    .as_i64()
                    .and_then(|percent| u32::try_from(percent).ok())
                    .filter(|percent| *percent <= 100);
                Some(valid.ok_or_else(|| {
                    Error::bad_request(
                        "The autoscale property 'incrementPercent' must be an integer between 0 and 100.",
                    )
                })?)
            }
        };
        Self::autoscale(max, increment, usage)
    }

    /// The maximum throughput per second.
    pub const fn maximum(self) -> u32 {
        match self {
            Self::Manual(throughput) => throughput,
            Self::Autoscale { max, .. } => max,
        }
    }

    /// The throughput while idle.
    pub const fn idle(self) -> u32 {
        match self {
            Self::Manual(throughput) => throughput,
            Self::Autoscale { max, .. } => max / 10,
        }
    }

    pub const fn is_autoscale(self) -> bool {
        matches!(self, Self::Autoscale { .. })
    }

    /// How many physical partitions a new container gets. For more than one partition can carry, the service leaves
    /// room for growth and counts 6000 for each, as documented in its scaling guide and expected by client tests.
    pub fn partition_count(self) -> u32 {
        self.partition_count_of(PARTITION_THROUGHPUT_MAX)
    }

    /// The same where a partition carries another throughput: the room for growth stays in proportion.
    pub fn partition_count_of(self, partition_max: u32) -> u32 {
        let maximum = u64::from(self.maximum());
        let carried = u64::from(partition_max.max(1));
        if maximum <= carried {
            return 1;
        }
        let (initial, all) = (u64::from(PARTITION_THROUGHPUT_INITIAL), u64::from(PARTITION_THROUGHPUT_MAX));
        // maximum / (carried × initial / all), in integers: 6,000 of 10,000 is the share that a new partition
        // starts with.
        let count = (maximum * all).div_ceil(carried * initial);
        // The cap is for scaled-down partitions only.
        let count_max = maximum.div_ceil(initial).max(PARTITIONS_MAX.into());
        u32::try_from(count.min(count_max)).unwrap_or(PARTITIONS_MAX)
    }

    /// The throughput that a switch of kind starts with.
    #[must_use]
    pub fn migrated(self, migration: Migration, usage: Usage) -> Self {
        match (migration, self) {
            (Migration::ToAutoscale, Self::Manual(throughput)) => {
                // Rounded up: a switch of kind never takes throughput away.
                let max = throughput.max(usage.autoscale_minimum()).next_multiple_of(AUTOSCALE_STEP);
                Self::Autoscale { max, increment_percent: None }
            }
            (Migration::ToManual, Self::Autoscale { max, .. }) => {
                Self::Manual(max.max(usage.manual_minimum()).next_multiple_of(MANUAL_STEP))
            }
            // Already of that kind.
            (_, unchanged) => unchanged,
        }
    }

    fn settings(self) -> Option<Value> {
        let Self::Autoscale { max, increment_percent } = self else { return None };
        let mut settings = Object::new();
        settings.set("maxThroughput", Value::from(i64::from(max)));
        if let Some(percent) = increment_percent {
            let nest = |name: &str, value: Value| {
                let mut object = Object::new();
                object.set(name, value);
                Value::Object(object)
            };
            let policy = nest("throughputPolicy", nest("incrementPercent", Value::from(i64::from(percent))));
            settings.set("autoUpgradePolicy", policy);
        }
        Some(Value::Object(settings))
    }
}

impl Usage {
    /// The minimum manual throughput.
    pub fn manual_minimum(self) -> u32 {
        // The service's rules: a hundredth of the highest throughput ever provisioned, 1 RU/s per GB ever stored, and
        // 100 RU/s for each container beyond those that share the default.
        let own = DEFAULT_THROUGHPUT.max(self.highest_ever.div_ceil(100)).max(self.storage_gb());
        let shared = self.extra_containers().saturating_mul(100).saturating_add(DEFAULT_THROUGHPUT);
        round_up(own.max(shared), MANUAL_STEP)
    }

    /// The minimum of an autoscale maximum.
    pub fn autoscale_minimum(self) -> u32 {
        // Ten times the rules for manual throughput, because autoscale may idle at a tenth of its maximum.
        let own =
            AUTOSCALE_STEP.max(self.highest_ever.div_ceil(10)).max(self.storage_gb().saturating_mul(10));
        let shared = self.extra_containers().saturating_mul(1000).saturating_add(AUTOSCALE_STEP);
        round_up(own.max(shared), AUTOSCALE_STEP)
    }

    fn storage_gb(self) -> u32 {
        u32::try_from(self.storage_kb_max.div_ceil(1 << 20)).unwrap_or(u32::MAX)
    }

    fn extra_containers(self) -> u32 {
        self.shared_containers.unwrap_or(0).saturating_sub(SHARED_CONTAINERS_FREE)
    }
}

impl Offer {
    /// The document without `_rid`, `_self`, `_etag` and `_ts`. `current` is what an autoscale
    /// offer is scaled to.
    pub fn to_value(&self, current: u32) -> Value {
        let mut content = Object::new();
        // Of an autoscale offer the current throughput, not its maximum, which is in the settings.
        content.set("offerThroughput", Value::from(i64::from(current)));
        if let Some(settings) = self.throughput.settings() {
            content.set("offerAutopilotSettings", settings);
        }
        content.set("offerIsRUPerMinuteThroughputEnabled", Value::Bool(false));
        let mut minimum = Object::new();
        minimum.set("maxThroughputEverProvisioned", Value::from(i64::from(self.highest_ever)));
        minimum.set(
            "maxConsumedStorageEverInKB",
            Value::from(i64::try_from(self.storage_kb_max).unwrap_or(i64::MAX)),
        );
        content.set("offerMinimumThroughputParameters", Value::Object(minimum));
        if let Some(seconds) = self.replaced_seconds {
            content.set("offerLastReplaceTimestamp", Value::from(seconds));
        }
        let mut offer = Object::new();
        offer.set("id", Value::from(self.rid.to_string()));
        offer.set("resource", Value::from(self.resource.as_str()));
        offer.set("offerType", Value::from(OFFER_TYPE));
        offer.set("offerResourceId", Value::from(self.owner_rid.as_str()));
        offer.set("offerVersion", Value::from("V2"));
        offer.set("content", Value::Object(content));
        Value::Object(offer)
    }

    /// Parses the output of [`to_value`](Self::to_value) with the idle throughput.
    pub fn from_stored(value: &Value) -> Result<Self> {
        Self::read(value).ok_or_else(|| Error::internal("a stored offer is damaged"))
    }

    fn read(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let content = value.get("content")?;
        let number = |value: &Value| value.as_i64().and_then(|number| u32::try_from(number).ok());
        let throughput = match content.get("offerAutopilotSettings") {
            None => Throughput::Manual(content.get("offerThroughput").and_then(number)?),
            // It was valid for its usage when it was written; a minimum that has risen since must not make it
            // unreadable.
            Some(settings) => Throughput::from_settings(settings, Usage::default()).ok()?,
        };
        let minimum = content.get("offerMinimumThroughputParameters")?;
        Some(Self {
            rid: OfferRid::parse(text("id")?)?,
            resource: text("resource")?.to_owned(),
            owner_rid: text("offerResourceId")?.to_owned(),
            throughput,
            highest_ever: minimum.get("maxThroughputEverProvisioned").and_then(number)?,
            storage_kb_max: minimum
                .get("maxConsumedStorageEverInKB")
                .and_then(Value::as_i64)?
                .try_into()
                .ok()?,
            replaced_seconds: content.get("offerLastReplaceTimestamp").and_then(Value::as_i64),
        })
    }

    /// What the minimum depends on; `shared_containers` only if a database owns the offer.
    pub fn usage(&self, shared_containers: Option<u32>) -> Usage {
        Usage { highest_ever: self.highest_ever, storage_kb_max: self.storage_kb_max, shared_containers }
    }

    /// The lowest throughput that a replace may request.
    pub fn minimum(&self, shared_containers: Option<u32>) -> u32 {
        let usage = self.usage(shared_containers);
        if self.throughput.is_autoscale() { usage.autoscale_minimum() } else { usage.manual_minimum() }
    }

    /// Checks the body of a replace request. With a migration the body's content has no meaning.
    pub fn parse_replacement(
        &self,
        body: &Value,
        migration: Option<Migration>,
        shared_containers: Option<u32>,
    ) -> Result<Throughput> {
        // Before a migration too, whose body otherwise says nothing.
        self.check_identity(body)?;
        let usage = self.usage(shared_containers);
        if let Some(migration) = migration {
            return Ok(self.throughput.migrated(migration, usage));
        }
        let content = body.get("content").filter(|content| content.as_object().is_some());
        let content = content.ok_or_else(|| crate::ids::missing_properties(&["content"]))?;
        let settings =
            // Clients that read an offer, change a number and send it back keep its other members, some of them
            // null.
            content.get("offerAutopilotSettings").filter(|settings| !matches!(settings, Value::Null));
        match (self.throughput, settings) {
            (Throughput::Autoscale { .. }, Some(settings)) => Throughput::from_settings(settings, usage),
            (Throughput::Manual(_), None) => {
                let requested = content.get("offerThroughput").and_then(Value::as_i64);
                let requested =
                    requested.ok_or_else(|| crate::ids::missing_properties(&["offerThroughput"]))?;
                Throughput::manual(requested, usage)
            }
            // The kind changes only with its header: a body of the other kind is more likely a mistake.
            (Throughput::Manual(_), Some(_)) => Err(Error::bad_request(
                "The offer has manual throughput. Set the header x-ms-cosmos-migrate-offer-to-autopilot to switch it to autoscale.",
            )),
            (Throughput::Autoscale { .. }, None) => Err(Error::bad_request(
                "The offer has autoscale throughput. Set the header x-ms-cosmos-migrate-offer-to-manual-throughput to switch it to manual.",
            )),
        }
    }

    /// An offer keeps its id, RID and type (`ValidateOfferReplace` of the .NET client).
    fn check_identity(&self, body: &Value) -> Result<()> {
        let rid = self.rid.to_string();
        let sent = |name: &str| body.get(name).filter(|value| !matches!(value, Value::Null));
        let Some(id) = sent("id") else {
            // The content alone claims nothing.
            let is_bare = body.as_object().is_some_and(|body| body.iter().all(|(name, _)| name == "content"));
            return if is_bare { Ok(()) } else { Err(crate::ids::missing_properties(&["id"])) };
        };
        let differs = |value: &Value, expected: &str| value.as_str() != Some(expected);
        let own_rid = sent("_rid").filter(|value| differs(value, &rid));
        if differs(id, &rid) || own_rid.is_some() {
            return Err(Error::bad_request(format!(
                "The id of an offer cannot be changed: the offer is '{rid}', the body has id {} and _rid {}.",
                id.to_json(),
                sent("_rid").map_or_else(|| "null".to_owned(), Value::to_json)
            )));
        }
        // An empty type claims nothing.
        match sent("offerType").filter(|kind| differs(kind, OFFER_TYPE) && differs(kind, "")) {
            None => Ok(()),
            Some(kind) => Err(Error::bad_request(format!(
                "The offer type {} is not supported: throughput is set by 'content', and the type stays '{OFFER_TYPE}'.",
                kind.to_json()
            ))),
        }
    }

    /// Sets a new throughput.
    pub fn set_throughput(&mut self, throughput: Throughput, now_seconds: i64) {
        self.throughput = throughput;
        // Never falls again: the minimum that the service grants depends on it.
        self.highest_ever = self.highest_ever.max(throughput.maximum());
        self.replaced_seconds = Some(now_seconds);
    }
}

/// Rejects unknown properties in the body of a replace request.
pub fn check_known_properties(body: &Value) -> Result<()> {
    known::check(body, OFFER, "the offer")
}

const OFFER: Shape = Members(&[
    ("id", Any),
    ("_rid", Any),
    ("_self", Any),
    ("_etag", Any),
    ("_ts", Any),
    ("resource", Any),
    ("offerType", Any),
    ("offerVersion", Any),
    ("offerResourceId", Any),
    ("content", CONTENT),
]);

const CONTENT: Shape = Members(&[
    ("offerThroughput", Any),
    (
        "offerAutopilotSettings",
        Members(&[
            ("maxThroughput", Any),
            ("autoUpgradePolicy", UPGRADE),
            // Added by the service.
            ("tier", Any),
            ("maximumTierThroughput", Any),
            ("autoUpgrade", Any),
        ]),
    ),
    ("offerIsRUPerMinuteThroughputEnabled", Any),
    ("offerMinimumThroughputParameters", Any),
    ("offerLastReplaceTimestamp", Any),
    ("isOfferReplacePending", Any),
    ("collectionThroughputInfo", Any),
    (
        "physicalPartitionThroughputInfo",
        Undone("Throughput is divided evenly: 'physicalPartitionThroughputInfo' is not supported."),
    ),
    ("throughputBuckets", Undone("Throughput buckets are a property of the container: 'throughputBuckets'.")),
    ("isDefaultBucket", Undone("There is no default throughput bucket: 'isDefaultBucket' is not supported.")),
]);

const UPGRADE: Shape = Members(&[("throughputPolicy", Members(&[("incrementPercent", Any)]))]);

fn check(requested: i64, minimum: u32, step: u32) -> Result<u32> {
    // Two messages, as in the service: too little names the minimum, everything else the whole range.
    if requested < i64::from(minimum) {
        return Err(Error::bad_request(format!(
            "Requested throughput {requested} is less than required minimum throughput {minimum}"
        )));
    }
    let fits =
        u32::try_from(requested).ok().filter(|value| *value <= THROUGHPUT_MAX && value.is_multiple_of(step));
    fits.ok_or_else(|| {
        Error::bad_request(format!(
            "The offer should have valid throughput values between {minimum} and {THROUGHPUT_MAX} inclusive in increments of {step}."
        ))
    })
}

fn round_up(value: u32, step: u32) -> u32 {
    value.checked_next_multiple_of(step).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn offer(throughput: Throughput) -> Offer {
        Offer {
            rid: OfferRid::parse("Ab0d").unwrap(),
            resource: "dbs/hLEEAA==/colls/hLEEAI1YjgA=/".to_owned(),
            owner_rid: "hLEEAI1YjgA=".to_owned(),
            throughput,
            highest_ever: throughput.maximum(),
            storage_kb_max: 0,
            replaced_seconds: None,
        }
    }

    #[test]
    fn minimums_follow_history_storage_and_containers() {
        let usage = |highest_ever, storage_gb: u64, shared_containers| Usage {
            highest_ever,
            storage_kb_max: storage_gb << 20,
            shared_containers,
        };
        for (usage, manual, autoscale) in [
            (usage(0, 0, None), 400, 1000),
            (usage(100_000, 0, None), 1000, 10_000),
            (usage(50_500, 0, None), 600, 6000),
            (usage(400, 5000, None), 5000, 50_000),
            (usage(400, 0, Some(25)), 400, 1000),
            (usage(400, 0, Some(30)), 900, 6000),
        ] {
            assert_eq!((usage.manual_minimum(), usage.autoscale_minimum()), (manual, autoscale), "{usage:?}");
        }
        assert_eq!(usage(u32::MAX, u64::MAX >> 20, Some(u32::MAX)).manual_minimum(), u32::MAX);
    }

    #[test]
    fn partitions_follow_the_maximum() {
        for (throughput, partitions) in
            [(400, 1), (10_000, 1), (10_100, 2), (12_000, 2), (25_100, 5), (30_000, 5), (1_000_000, 167)]
        {
            assert_eq!(Throughput::Manual(throughput).partition_count(), partitions);
            // Whatever a partition carries, the same share of it gives the same number.
            let tenth = Throughput::Manual(throughput / 10);
            assert_eq!(tenth.partition_count_of(PARTITION_THROUGHPUT_MAX / 10), partitions);
        }
        assert_eq!(Throughput::Autoscale { max: 20_000, increment_percent: None }.partition_count(), 4);
    }

    #[test]
    fn documents_round_trip() {
        let autoscale = offer(Throughput::Autoscale { max: 4000, increment_percent: Some(10) });
        let value = autoscale.to_value(autoscale.throughput.idle());
        assert_eq!(
            value.to_json(),
            r#"{"id":"Ab0d","resource":"dbs/hLEEAA==/colls/hLEEAI1YjgA=/","offerType":"Invalid","offerResourceId":"hLEEAI1YjgA=","offerVersion":"V2","content":{"offerThroughput":400,"offerAutopilotSettings":{"maxThroughput":4000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":10}}},"offerIsRUPerMinuteThroughputEnabled":false,"offerMinimumThroughputParameters":{"maxThroughputEverProvisioned":4000,"maxConsumedStorageEverInKB":0}}}"#
        );
        assert_eq!(Offer::from_stored(&value).unwrap(), autoscale);
        let mut manual = offer(Throughput::Manual(400));
        manual.set_throughput(Throughput::Manual(20_000), 7);
        manual.set_throughput(Throughput::Manual(500), 9);
        assert_eq!(manual.highest_ever, 20_000);
        assert_eq!(Offer::from_stored(&manual.to_value(500)).unwrap(), manual);
    }

    #[test]
    fn replacements_keep_their_kind_unless_migrated() {
        let body = |content: &str| value::parse(format!(r#"{{"content":{content}}}"#).as_bytes()).unwrap();
        let manual = offer(Throughput::Manual(100_000));
        let replace = |offer: &Offer, content: &str| offer.parse_replacement(&body(content), None, None);
        assert_eq!(replace(&manual, r#"{"offerThroughput":2000}"#).unwrap(), Throughput::Manual(2000));
        let error = replace(&manual, r#"{"offerThroughput":-200}"#).unwrap_err();
        assert!(
            error.message.contains("Requested throughput -200 is less than required minimum throughput 1000")
        );
        assert!(replace(&manual, r#"{"offerAutopilotSettings":{"maxThroughput":10000}}"#).is_err());
        assert!(replace(&manual, "{}").is_err());
        let autoscale = offer(Throughput::Autoscale { max: 4000, increment_percent: None });
        assert_eq!(
            replace(&autoscale, r#"{"offerThroughput":400,"offerAutopilotSettings":{"maxThroughput":7000}}"#)
                .unwrap(),
            Throughput::Autoscale { max: 7000, increment_percent: None }
        );
        assert!(replace(&autoscale, r#"{"offerThroughput":400}"#).is_err());
        let migrate =
            |offer: &Offer, migration| offer.parse_replacement(&body("{}"), Some(migration), None).unwrap();
        assert_eq!(
            migrate(&offer(Throughput::Manual(4500)), Migration::ToAutoscale),
            Throughput::Autoscale { max: 5000, increment_percent: None }
        );
        assert_eq!(migrate(&autoscale, Migration::ToManual), Throughput::Manual(4000));
    }
}
