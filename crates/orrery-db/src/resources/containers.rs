//! Containers and their partition key ranges.

use orrery_model::document::parse_object;
use std::sync::Arc;

use orrery_model::container::{ContainerDefinition, check_known_properties};
use orrery_model::offer::Throughput;
use orrery_model::partition_key::EpkRange;
use orrery_model::rid::{ChildKind, ChildRid, ContainerRid, DatabaseRid};
use orrery_model::{Error, ErrorKind, Object, Result, Value};

use orrery_metering::cost;
use orrery_storage::{Lsn, PartitionRef, ReadRequest, Scan};

use super::Resources;
use super::databases::{add_offer, check_account_size, check_etag, remove_offer_of};
use super::encryption_keys::check_policy_keys;
use super::metadata::{MetadataReply, first_unused};
use crate::catalog::{
    Catalog, Change, Container, DatabaseEntry, IndexState, OfferOwner, Partition, SYNTHETIC_KEY,
    SyntheticPolicy, already_exists,
};
use crate::failure::store_failure;
use crate::layout::keys;
use crate::layout::statistics::Statistics;
use crate::partition::Receipt;
use crate::query::checks::check_computed_properties;

/// The default throughput of a container that does not share its database's.
const DEFAULT_THROUGHPUT: Throughput = Throughput::Manual(orrery_model::offer::DEFAULT_THROUGHPUT);
/// The maximum number of containers that share a database's throughput.
const SHARED_CONTAINERS_MAX: usize = 25;
const SCAN_ENTRIES: usize = 1000;
/// The initial LSN of a partition: its first write has LSN 2, as in the service. SDK suites that read a feed up to an
/// LSN rely on it (`changeFeedQueryCompleteAfterEndLSN` of the Java SDK).
const FIRST_LSN: Lsn = 1;

/// The partition key ranges that are new to a client.
#[derive(Debug)]
pub enum RangesPage {
    /// Nothing new since the client's etag.
    NotModified {
        etag: String,
    },
    Changed {
        etag: String,
        owner_rid: String,
        ranges: Vec<Value>,
    },
}

/// Items and bytes of a container or a partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub items: u64,
    pub bytes: u64,
}

impl Resources {
    pub async fn create_container(
        &self,
        receipt: &mut Receipt,
        database: &str,
        body: &[u8],
        throughput: Option<Throughput>,
    ) -> Result<MetadataReply> {
        let body = with_policy_lifted(parse_object(body)?);
        receipt.add(cost::metadata_write());
        self.check_known(&body)?;
        let catalog = self.catalog.snapshot();
        // Missing keys are reported before other errors in the policy.
        // An unknown database is reported further down.
        if let Ok(owner) = catalog.database(database) {
            check_policy_keys(owner, &body)?;
        }
        let definition = ContainerDefinition::create(&body)?;
        check_what_is_done(&definition)?;
        let synthetic = SyntheticPolicy::of(&definition, true)?;
        let owner = catalog.database(database)?;
        check_can_create(owner, &definition)?;
        // As in the service: without throughput of its own it shares the database's, if that has any,
        // and gets the default otherwise.
        let shares = throughput.is_none() && catalog.offer_of(OfferOwner::Database(owner.rid)).is_some();
        let own_throughput = throughput.or((!shares).then_some(DEFAULT_THROUGHPUT));
        let count = self.options.partitions_at_creation;
        // An option for tests; normally the throughput decides.
        let count = count.unwrap_or_else(|| {
            own_throughput.unwrap_or(DEFAULT_THROUGHPUT).partition_count_of(self.partition_throughput_max())
        });
        let ranges = definition.partition_key.even_ranges(count);
        // Partitions are created before the container becomes visible; a stop in between leaves orphans that the next
        // start removes.
        let keeps_versions = definition.change_feed_retention_minutes.filter(|minutes| *minutes > 0);
        let keeps_versions = keeps_versions.or(self.options.change_feed_retention_minutes);
        let keeps_versions = keeps_versions.is_some_and(|minutes| minutes > 0);
        // Setting the mark is a write, after which the partition is at its initial LSN too.
        let before = if keeps_versions { FIRST_LSN - 1 } else { FIRST_LSN };
        let stores = self.new_partitions(ranges.len(), before).await?;
        if keeps_versions {
            for partition in &stores {
                self.record_from_the_start(*partition).await?;
            }
        }
        let random = self.env.random_u64();
        let limit = self.options.account_resources_max;
        // The checks are repeated inside: another request may have taken the name since.
        let reply = self.catalog.change(|change| {
            let owner = Arc::clone(change.catalog.database(database)?);
            check_can_create(&owner, &definition)?;
            check_account_size(&change.catalog, limit)?;
            if shares {
                check_shared_containers(&change.catalog, &owner)?;
            }
            let rid = unused_rid(&owner, random);
            let container =
                Container { synthetic, ..new_container(change, &owner, rid, definition, ranges, &stores) };
            let reply = container_reply(&container, true);
            receipt.at(&Arc::new(container.clone()));
            change.put_container(container);
            if let Some(throughput) = own_throughput {
                add_offer(change, OfferOwner::Container(rid), throughput, random);
            }
            Ok(reply)
        });
        let reply = reply.await;
        // Nothing refers to them, so this only saves the next start the work.
        if reply.is_err() {
            for partition in stores {
                self.store.destroy(partition.id).await.map_err(store_failure)?;
            }
        }
        reply
    }

    /// An unknown property would silently have no effect.
    fn check_known(&self, body: &Value) -> Result<()> {
        if self.options.lenient { Ok(()) } else { check_known_properties(body) }
    }

    async fn new_partitions(&self, count: usize, lsn: Lsn) -> Result<Vec<PartitionRef>> {
        let mut chosen = self.catalog.choose_numbers(count, Vec::new()).await?;
        let numbers = self.catalog.change(|change| {
            let partitions: Vec<PartitionRef> =
                (0..count).map(|_| change.new_partition(&mut chosen)).collect();
            change.put_account();
            Ok(partitions)
        });
        // Numbers are taken in a change of their own: a crash afterwards wastes them, but never gives one away twice.
        let partitions = numbers.await?;
        for partition in &partitions {
            self.store.create(partition.id, lsn).await.map_err(store_failure)?;
        }
        Ok(partitions)
    }

    pub fn read_container(
        &self,
        receipt: &mut Receipt,
        database: &str,
        container: &str,
    ) -> Result<MetadataReply> {
        let catalog = self.read_catalog(receipt);
        let container = catalog.database(database).map_err(owner_missing)?.container(container)?;
        receipt.at(container);
        Ok(container_reply(container, false))
    }

    pub async fn replace_container(
        &self,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
        body: &[u8],
        if_match: Option<&str>,
    ) -> Result<MetadataReply> {
        let body = with_policy_lifted(parse_object(body)?);
        receipt.add(cost::metadata_write());
        self.check_known(&body)?;
        let (reply, to_verify, rerecorded) = self
            .catalog
            .change(|change| {
                // Looked up inside the change, so that the etag is compared with the newest version.
                let current = Arc::clone(change.catalog.database(database)?.container(container)?);
                check_etag(if_match, current.stamp)?;
                if current.repartition.is_some() {
                    return Err(crate::catalog::is_locked());
                }
                let definition = current.definition.replace(&body)?;
                check_what_is_done(&definition)?;
                // Builds a new generation only if the policy or the computed properties differ.
                let mut index =
                    current.index.with_policy(&definition.indexing, &definition.computed_properties);
                let mut synthetic = SyntheticPolicy::of(&definition, false)?;
                let is_same = |policy: &Arc<SyntheticPolicy>, own: &Arc<SyntheticPolicy>| {
                    policy.definition == own.definition
                };
                let mut to_verify = None;
                match (&synthetic, &current.synthetic) {
                    // Unchanged and in use: the items need not be checked again.
                    (Some(new), Some(own)) if own.routes && is_same(new, own) => {
                        synthetic = Some(Arc::clone(own));
                    }
                    (Some(_), _) => {
                        // Writes with a stale view of the policy must retry.
                        index.version += 1;
                        to_verify = Some(Arc::clone(&current));
                    }
                    // Without a policy nothing routes by it, so nothing must be verified.
                    (None, _) => {}
                }
                let container = Container {
                    definition,
                    stamp: change.stamp,
                    index,
                    synthetic,
                    ..Container::clone(&current)
                };
                let keeps_other_versions = container.definition.change_feed_retention_minutes
                    != current.definition.change_feed_retention_minutes;
                let reply = container_reply(&container, false);
                let rid = container.rid;
                change.put_container(container);
                Ok((reply, to_verify, keeps_other_versions.then_some(rid)))
            })
            .await?;
        // Before the reply: whoever has read it may rely on the history from then on.
        if let Some(rid) = rerecorded {
            self.unsettle_history(rid);
            self.set_history_mark(rid).await?;
        }
        // Checks all items, and reverts the change if one does not match.
        if let Some(before) = to_verify {
            self.verify_policy(before.rid, &before).await?;
        }
        // Start the index rebuild at once.
        let catalog = self.catalog.snapshot();
        let building =
            catalog.container(database, container).is_ok_and(|container| container.index.building.is_some());
        if building || rerecorded.is_some() {
            self.wake_maintenance();
        }
        Ok(reply)
    }

    pub async fn delete_container(
        self: &Arc<Self>,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
        if_match: Option<&str>,
    ) -> Result<()> {
        let partitions = self
            .change_catalog(receipt, |change| {
                let container = Arc::clone(change.catalog.database(database)?.container(container)?);
                check_etag(if_match, container.stamp)?;
                remove_offer_of(change, OfferOwner::Container(container.rid));
                change.remove_container(&container);
                Ok(container.partitions.iter().map(|partition| partition.store.id).collect())
            })
            .await?;
        // In the background: the catalog no longer knows them, so nobody can reach them.
        self.destroy_partitions(partitions);
        Ok(())
    }

    /// The partition key ranges that appeared after the client's etag.
    pub fn list_ranges(
        &self,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
        if_none_match: Option<&str>,
    ) -> Result<RangesPage> {
        let catalog = self.read_catalog(receipt);
        let container = catalog.container(database, container)?;
        receipt.at(container);
        let etag = format!("\"{}\"", container.routing_version);
        let known = if_none_match.and_then(|etag| etag.trim_matches('"').parse::<u64>().ok());
        // Equal, not greater: a client that knows more has seen another container.
        if known == Some(container.routing_version) {
            return Ok(RangesPage::NotModified { etag });
        }
        // The etag of an earlier container of the same name does not count: everything is new.
        let known = known.filter(|known| *known < container.routing_version).unwrap_or(0);
        let share = throughput_fraction(container);
        let new = container.partitions.iter().filter(|partition| partition.since > known);
        let ranges = new.map(|partition| range_value(container, partition, share)).collect();
        Ok(RangesPage::Changed { etag, owner_rid: container.rid.to_string(), ranges })
    }

    /// Items and bytes, from the counters of the logical partitions.
    pub async fn container_usage(&self, database: &str, container: &str) -> Result<Vec<(u32, Usage)>> {
        let mut attempt = 0;
        loop {
            let catalog = self.catalog.snapshot();
            match self.usages(catalog.container(database, container)?).await {
                Err(error) if self.may_route_again(&error, &mut attempt).await => {}
                result => return result,
            }
        }
    }

    async fn usages(&self, container: &Container) -> Result<Vec<(u32, Usage)>> {
        let mut usages = Vec::with_capacity(container.partitions.len());
        for partition in &container.partitions {
            usages.push((partition.range_id, self.measure(partition, |_, _| ()).await?));
        }
        Ok(usages)
    }

    /// Sums the counters of a partition's logical partitions, visiting each with its key as JSON.
    pub(crate) async fn measure(
        &self,
        partition: &Partition,
        mut show: impl FnMut(&str, Usage),
    ) -> Result<Usage> {
        let mut sum = Usage::default();
        let mut range = keys::statistics_in(&partition.range);
        loop {
            let scan = Scan::forward(range.clone(), SCAN_ENTRIES);
            let page =
                self.store.read(partition.store, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
            for entry in &page.entries {
                // Counters in an unknown format are left out of a status; a write would refuse them.
                let Some(statistics) = Statistics::decode(&entry.value) else { continue };
                let usage = Usage { items: statistics.items, bytes: statistics.bytes };
                sum.items += usage.items;
                sum.bytes += usage.bytes;
                show(Statistics::key_text(&entry.value).unwrap_or_default(), usage);
            }
            if !range.continue_after(&page) {
                return Ok(sum);
            }
        }
    }
}

/// The Python client builds the definition itself and passes only known settings, but sends the partition key
/// definition unchanged: the policy may be there.
fn with_policy_lifted(mut body: Value) -> Value {
    let Some(object) = body.as_object_mut() else { return body };
    let inner = object.get_mut("partitionKey").and_then(Value::as_object_mut);
    if let Some(policy) = inner.and_then(|key| key.remove(SYNTHETIC_KEY))
        && !object.contains(SYNTHETIC_KEY)
    {
        object.set(SYNTHETIC_KEY, policy);
    }
    body
}

/// Rejects valid settings that would have no effect here, and computed properties that cannot work.
fn check_what_is_done(definition: &ContainerDefinition) -> Result<()> {
    if definition.ttl_property_path.is_some() {
        return Err(Error::not_implemented(
            "Lifetimes by another property (ttlPropertyPath) are not supported. Items may carry 'ttl'.",
        ));
    }
    check_computed_properties(definition)
}

fn check_can_create(database: &DatabaseEntry, definition: &ContainerDefinition) -> Result<()> {
    if database.containers.contains_key(definition.id.as_str()) { Err(already_exists()) } else { Ok(()) }
}

fn check_shared_containers(catalog: &Catalog, database: &DatabaseEntry) -> Result<()> {
    let without_own = database
        .containers
        .values()
        .filter(|container| catalog.offer_of(OfferOwner::Container(container.rid)).is_none());
    if without_own.count() < SHARED_CONTAINERS_MAX {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::QuotaExceeded,
        format!(
            "A database with shared throughput holds at most {SHARED_CONTAINERS_MAX} containers without throughput of their own."
        ),
    ))
}

fn new_container(
    change: &Change,
    database: &DatabaseEntry,
    rid: ContainerRid,
    definition: ContainerDefinition,
    ranges: Vec<EpkRange>,
    stores: &[PartitionRef],
) -> Container {
    let index = IndexState::new(definition.indexing.clone(), &definition.computed_properties);
    let partitions = (0u32..).zip(ranges).zip(stores).map(|((range_id, range), store)| Partition {
        range_id,
        range,
        store: *store,
        parents: Vec::new(),
        numberings: 1,
        since: 1,
        timestamp: change.stamp.timestamp,
    });
    Container {
        former: Vec::new(),
        rid,
        database_id: database.id.clone(),
        definition,
        stamp: change.stamp,
        partitions: partitions.collect(),
        routing_version: 1,
        index,
        reshaping: None,
        synthetic: None,
        repartition: None,
        repartitioned: None,
    }
}

fn unused_rid(database: &DatabaseEntry, random: u64) -> ContainerRid {
    let owner: DatabaseRid = database.rid;
    let candidates = (0u32..).map(|step| {
        // Random, so that clients with cached RIDs do not take a new container for an old one.
        let number = u32::try_from(random & 0x7FFF_FFFF).expect("31 bits are left");
        ContainerRid::new(owner, number.wrapping_add(step))
    });
    let taken = |rid: &ContainerRid| database.containers.values().any(|container| container.rid == *rid);
    first_unused(candidates, taken)
}

fn container_reply(container: &Container, created: bool) -> MetadataReply {
    MetadataReply::new(container.to_value(), container.stamp, created)
}

pub(super) fn owner_missing(_: Error) -> Error {
    Error::new(ErrorKind::OwnerNotFound, "Owner resource does not exist")
}

#[expect(clippy::cast_precision_loss, reason = "a container has few partitions")]
fn throughput_fraction(container: &Container) -> f64 {
    1.0 / container.partitions.len().max(1) as f64
}

fn range_value(container: &Container, partition: &Partition, share: f64) -> Value {
    let rid = ChildRid::new(container.rid, ChildKind::PartitionKeyRange, u64::from(partition.range_id) + 1);
    let mut object = Object::new();
    object.set("_rid", Value::from(rid.to_string()));
    object.set("id", Value::from(partition.range_id.to_string()));
    let etag = orrery_model::etag::Etag::new(partition.since, partition.timestamp);
    object.set("_etag", Value::from(etag.to_string()));
    object.set("minInclusive", Value::from(partition.range.min.to_string()));
    object.set("maxExclusive", Value::from(partition.range.max.to_string()));
    object.set("ridPrefix", Value::from(i64::from(partition.range_id) + 1));
    object.set("_self", Value::from(rid.self_link()));
    object.set("throughputFraction", Value::from(share));
    object.set("status", Value::from("online"));
    let parents = partition.parents.iter().map(|parent| Value::from(parent.to_string())).collect::<Vec<_>>();
    object.set("parents", Value::from(parents));
    object.set("ownedArchivalPKRangeIds", Value::from(Vec::new()));
    object.set("_ts", Value::from(partition.timestamp));
    object.into()
}
