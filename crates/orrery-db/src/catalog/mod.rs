//! The catalog: databases, containers, offers, users, and the routing tables.
//!
//! Requests work on an immutable snapshot. A change builds a new one, commits the changed records to the catalog's
//! partition and then publishes it. Changes are serialised, and each commit checks that no other process has changed
//! the catalog.

mod computed_index;
mod duty;
mod index_state;
pub(crate) mod policy_tree;
mod record;
mod repartition;
mod script;
mod store;
mod synthetic;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use orrery_model::container::ContainerDefinition;
use orrery_model::encryption_key::ClientEncryptionKey;
use orrery_model::etag::Etag;
use orrery_model::offer;
use orrery_model::partition_key::{EffectiveKey, EpkRange, PartitionKey};
use orrery_model::rid::{
    ClientEncryptionKeyRid, ContainerRid, DatabaseRid, OfferRid, PermissionRid, UserRid,
};
use orrery_model::{Error, ErrorKind, Result, Value};
use orrery_storage::PartitionRef;

pub(crate) use computed_index::ComputedIndex;
pub(crate) use duty::take_duty;
pub(crate) use index_state::{Generation, IndexState};
pub(crate) use policy_tree::PolicyTree;
pub use repartition::{Repartition, Repartitioned};
pub(crate) use repartition::{RepartitionRun, given_up, is_locked};
pub use script::ScriptKind;
pub(crate) use script::{ContainerScripts, Script, TriggerTerms, TriggerTime};
pub use store::{CATALOG_PARTITION, UNFINISHED_MOVE_KEY};
pub(crate) use store::{CatalogStore, Change};
pub(crate) use synthetic::{EnvRandom, Properties, parts, refused};
pub use synthetic::{SYNTHETIC_KEY, SyntheticPolicy};

/// A snapshot of the catalog.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Incremented by every change; etags of metadata resources derive from it.
    pub version: u64,
    databases: BTreeMap<Box<str>, Arc<DatabaseEntry>>,
    database_names: HashMap<DatabaseRid, Box<str>>,
    pub offers: BTreeMap<OfferRid, Arc<Offer>>,
    /// Scripts by owning container.
    offers_of: HashMap<OfferOwner, OfferRid>,
    scripts: HashMap<ContainerRid, Arc<ContainerScripts>>,
    /// The next physical partition's number in the store; never reused.
    pub next_partition: u32,
    /// Signs resource tokens and continuation tokens. Generated once and stored with the data.
    pub secret: [u8; 32],
}

/// Version and time of a metadata resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The catalog version that wrote it.
    pub version: u64,
    pub timestamp: i64,
}

#[derive(Clone, Debug)]
pub struct DatabaseEntry {
    pub rid: DatabaseRid,
    pub id: Box<str>,
    pub stamp: Stamp,
    pub containers: BTreeMap<Box<str>, Arc<Container>>,
    container_names: HashMap<ContainerRid, Box<str>>,
    pub users: BTreeMap<Box<str>, Arc<User>>,
    pub encryption_keys: BTreeMap<Box<str>, Arc<EncryptionKey>>,
}

/// A container with its routing table.
#[derive(Clone, Debug)]
pub struct Container {
    pub rid: ContainerRid,
    /// The id of the database, for by-name paths in responses.
    pub database_id: Box<str>,
    pub definition: ContainerDefinition,
    pub stamp: Stamp,
    /// Sorted by range; they cover the whole key space without gap or overlap.
    pub partitions: Vec<Partition>,
    /// Incremented when `partitions` changes: the etag of the partition key range feed.
    pub routing_version: u64,
    pub index: IndexState,
    /// Splits and merges in progress.
    pub reshaping: Option<Reshaping>,
    /// Retired partitions, latest last, up to `RETIRED_RANGES_MAX`: some clients keep using their ids.
    pub former: Vec<RetiredRange>,
    /// The synthetic key policy, if any.
    pub synthetic: Option<Arc<SyntheticPolicy>>,
    /// A repartitioning in progress.
    pub repartition: Option<Repartition>,
    /// The repartitioning that created this container, if any.
    pub repartitioned: Option<Repartitioned>,
}

/// How many retired partitions a container remembers.
pub(crate) const RETIRED_RANGES_MAX: usize = 256;

/// A partition that was split or merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetiredRange {
    pub range_id: u32,
    pub range: EpkRange,
    /// The routing version that replaced it.
    pub until: u64,
}

/// How to handle a request for a partition that was split or merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GoneRanges {
    /// Reject it, so that the client refreshes its ranges.
    #[default]
    Refused,
    /// Reject it if the range was the last one that the client queries, otherwise serve it from the successors: for a
    /// client that would query the later ranges twice after an error.
    RefusedIfLast,
    /// Serve it from the successors: for a client that would restart the query after an error.
    Served,
}

/// A split or merge in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshaping {
    /// The range ids of the parents, in range order.
    pub parents: Vec<u32>,
    /// The children, in range order.
    pub children: Vec<PendingPartition>,
}

/// A partition that is being filled and does not serve requests yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPartition {
    pub range_id: u32,
    pub range: EpkRange,
    pub store: PartitionRef,
    pub numberings: u16,
}

/// A physical partition as clients see it: a partition key range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Unique in the container and never reused.
    pub range_id: u32,
    pub range: EpkRange,
    pub store: PartitionRef,
    /// The ranges this one came from by splits and merges, oldest first.
    pub parents: Vec<u32>,
    /// The number of independent LSN sequences in its feed: more than one after merges.
    pub numberings: u16,
    /// The routing version at which it appeared.
    pub since: u64,
    pub timestamp: i64,
}

#[derive(Clone, Debug)]
pub struct Offer {
    pub document: offer::Offer,
    pub owner: OfferOwner,
    pub stamp: Stamp,
    /// A replaced throughput for which partitions are still being split.
    pub pending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OfferOwner {
    Database(DatabaseRid),
    Container(ContainerRid),
}

#[derive(Clone, Debug)]
pub struct User {
    pub rid: UserRid,
    pub id: Box<str>,
    pub stamp: Stamp,
    pub permissions: BTreeMap<Box<str>, Arc<Permission>>,
}

/// A client encryption key.
#[derive(Clone, Debug)]
pub struct EncryptionKey {
    pub rid: ClientEncryptionKeyRid,
    pub key: ClientEncryptionKey,
    pub stamp: Stamp,
    /// Creation time in seconds; replacing the key does not change it.
    pub created: i64,
}

#[derive(Clone, Debug)]
pub struct Permission {
    pub rid: PermissionRid,
    pub id: Box<str>,
    pub mode: PermissionMode,
    /// The mode in the client's spelling, for responses.
    pub mode_text: Box<str>,
    /// The link as sent by the client.
    pub resource: Box<str>,
    pub partition_key: Option<PartitionKey>,
    pub stamp: Stamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionMode {
    Read,
    All,
}

impl Catalog {
    /// Finds a database by RID or, failing that, by name: a name may look like a RID.
    pub fn database(&self, name_or_rid: &str) -> Result<&Arc<DatabaseEntry>> {
        let by_rid = DatabaseRid::parse(name_or_rid).and_then(|rid| self.database_by_rid(rid));
        by_rid.or_else(|| self.databases.get(name_or_rid)).ok_or_else(not_found)
    }

    pub fn database_by_rid(&self, rid: DatabaseRid) -> Option<&Arc<DatabaseEntry>> {
        self.databases.get(self.database_names.get(&rid)?)
    }

    /// Finds a container; a missing database or container yields the owner error.
    pub fn container(&self, database: &str, container: &str) -> Result<&Arc<Container>> {
        let owner_not_found = |_| Error::new(ErrorKind::OwnerNotFound, OWNER_NOT_FOUND);
        self.database(database).and_then(|database| database.container(container)).map_err(owner_not_found)
    }

    pub fn container_by_rid(&self, rid: ContainerRid) -> Option<&Arc<Container>> {
        let database = self.database_by_rid(rid.database())?;
        database.containers.get(database.container_names.get(&rid)?)
    }

    pub fn databases(&self) -> impl Iterator<Item = &Arc<DatabaseEntry>> {
        self.databases.values()
    }

    pub fn containers(&self) -> impl Iterator<Item = &Arc<Container>> {
        self.databases.values().flat_map(|database| database.containers.values())
    }

    /// The scripts of a container.
    pub(crate) fn scripts(&self, container: ContainerRid) -> Arc<ContainerScripts> {
        self.scripts.get(&container).cloned().unwrap_or_default()
    }

    pub(crate) fn scripts_mut(&mut self, container: ContainerRid) -> &mut ContainerScripts {
        // Copies only if a snapshot still refers to it.
        Arc::make_mut(self.scripts.entry(container).or_default())
    }

    pub(crate) fn forget_scripts(&mut self, container: ContainerRid) {
        self.scripts.remove(&container);
    }

    /// The owner's own offer.
    pub fn offer_of(&self, owner: OfferOwner) -> Option<&Arc<Offer>> {
        self.offers.get(self.offers_of.get(&owner)?)
    }

    pub(crate) fn insert_offer(&mut self, offer: Offer) {
        // Both maps change together: every request looks its offer up by owner.
        self.offers_of.insert(offer.owner, offer.document.rid);
        self.offers.insert(offer.document.rid, Arc::new(offer));
    }

    pub(crate) fn remove_offer(&mut self, rid: OfferRid) {
        if let Some(offer) = self.offers.remove(&rid) {
            self.offers_of.remove(&offer.owner);
        }
    }

    pub(crate) fn insert_database(&mut self, database: DatabaseEntry) {
        self.database_names.insert(database.rid, database.id.clone());
        self.databases.insert(database.id.clone(), Arc::new(database));
    }

    pub(crate) fn remove_database(&mut self, database: &DatabaseEntry) {
        self.database_names.remove(&database.rid);
        self.databases.remove(&database.id);
    }

    /// Modifies a database (copy-on-write).
    pub(crate) fn database_mut(&mut self, id: &str) -> &mut DatabaseEntry {
        Arc::make_mut(self.databases.get_mut(id).expect("the caller has just looked it up"))
    }
}

const OWNER_NOT_FOUND: &str = "Owner resource does not exist";

/// The error for a metadata resource that does not exist.
pub(crate) fn not_found() -> Error {
    Error::new(ErrorKind::NotFound, "Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found")
}

/// Finds a container that must still exist.
pub(crate) fn existing(catalog: &Catalog, rid: ContainerRid) -> Result<&Arc<Container>> {
    catalog.container_by_rid(rid).ok_or_else(not_found)
}

/// The error for a metadata resource whose id is taken.
pub(crate) fn already_exists() -> Error {
    Error::new(ErrorKind::Conflict, "Resource with specified id, name, or unique index already exists.")
}

impl DatabaseEntry {
    pub fn new(rid: DatabaseRid, id: &str, stamp: Stamp) -> Self {
        Self {
            rid,
            id: id.into(),
            stamp,
            containers: BTreeMap::new(),
            container_names: HashMap::new(),
            users: BTreeMap::new(),
            encryption_keys: BTreeMap::new(),
        }
    }

    /// The container with this RID or, failing that, this name.
    pub fn container(&self, name_or_rid: &str) -> Result<&Arc<Container>> {
        let name = ContainerRid::parse(name_or_rid).and_then(|rid| self.container_names.get(&rid));
        let by_rid = name.and_then(|name| self.containers.get(name));
        by_rid.or_else(|| self.containers.get(name_or_rid)).ok_or_else(not_found)
    }

    /// The user with this name or RID.
    pub fn user(&self, name_or_rid: &str) -> Result<&Arc<User>> {
        let by_rid = || {
            let rid = UserRid::parse(name_or_rid)?;
            self.users.values().find(|user| user.rid == rid)
        };
        self.users.get(name_or_rid).or_else(by_rid).ok_or_else(not_found)
    }

    /// The client encryption key with this name or RID.
    pub fn encryption_key(&self, name_or_rid: &str) -> Result<&Arc<EncryptionKey>> {
        let by_rid = || self.encryption_keys.values().find(|key| key.rid.to_string() == name_or_rid);
        self.encryption_keys.get(name_or_rid).or_else(by_rid).ok_or_else(not_found)
    }

    pub(crate) fn insert_container(&mut self, container: Container) {
        self.container_names.insert(container.rid, container.definition.id.as_str().into());
        self.containers.insert(container.definition.id.as_str().into(), Arc::new(container));
    }

    pub(crate) fn remove_container(&mut self, container: &Container) {
        self.container_names.remove(&container.rid);
        self.containers.remove(container.definition.id.as_str());
    }

    pub fn to_value(&self) -> Value {
        let mut object = orrery_model::Object::new();
        object.set("id", Value::from(&*self.id));
        self.stamp.add_system_properties(&mut object, &self.rid.to_string(), &self.rid.self_link());
        object.set("_colls", Value::from("colls/"));
        object.set("_users", Value::from("users/"));
        object.into()
    }
}

impl Stamp {
    pub fn etag(self) -> Etag {
        Etag::new(self.version, self.timestamp)
    }

    /// `_rid`, `_self`, `_etag` and `_ts`, in the service's order.
    pub fn add_system_properties(self, object: &mut orrery_model::Object, rid: &str, self_link: &str) {
        object.set("_rid", Value::from(rid));
        object.set("_self", Value::from(self_link));
        object.set("_etag", Value::from(self.etag().to_string()));
        object.set("_ts", Value::from(self.timestamp));
    }
}

impl Partition {
    /// The version in session tokens. Later partitions have greater ones, so that a client's token from an earlier
    /// container of the same name, or from before the restart of an in-memory server, is never ahead. The sum stays
    /// below 2^53: one client parses it as a double.
    pub fn session_version(&self) -> u64 {
        // 32 bits of seconds above 20 bits of the store's number: partitions made in the same second still differ.
        let made = u64::try_from(self.timestamp).unwrap_or(0).min(u64::from(u32::MAX));
        (made << 20) + u64::from(self.store.id.0 & 0xF_FFFF)
    }
}

impl Container {
    /// A routing table with a gap would lose items, one with an overlap would store them twice: neither must ever be
    /// recorded.
    pub(crate) fn assert_routing(&self) {
        let ranges = || self.partitions.iter().map(|partition| &partition.range);
        assert!(
            ranges().next().is_some_and(|first| first.min == EffectiveKey::MIN),
            "{}: no start",
            self.rid
        );
        assert!(
            ranges().next_back().is_some_and(|last| last.max == EffectiveKey::max()),
            "{}: no end",
            self.rid
        );
        // Pairs of neighbours, which also proves that they are sorted.
        assert!(
            ranges().zip(ranges().skip(1)).all(|(one, next)| one.max == next.min && one.min < one.max),
            "{}: the partitions do not cover the key space",
            self.rid
        );
        if let Some(reshaping) = &self.reshaping {
            let children = || reshaping.children.iter().map(|child| &child.range);
            assert!(
                children().zip(children().skip(1)).all(|(one, next)| one.max == next.min),
                "{}: the children of a split or merge leave a gap",
                self.rid
            );
        }
    }

    /// A range id that was never used; descendants keep the ids of their ancestors.
    pub(crate) fn next_range_id(&self) -> u32 {
        let used = self
            .partitions
            .iter()
            .flat_map(|partition| partition.parents.iter().chain([&partition.range_id]));
        used.max().map_or(0, |highest| highest + 1)
    }

    /// The partition that owns this effective key.
    pub fn partition_of(&self, effective: &EffectiveKey) -> &Partition {
        // The partitions are sorted by their minimum, so the owner is the last one that starts at or before the key.
        let after = self.partitions.partition_point(|partition| partition.range.min <= *effective);
        // The first range starts at the minimum, so there is always a preceding one.
        &self.partitions[after.saturating_sub(1)]
    }

    /// The partition with this range id, if it still exists.
    pub fn partition(&self, range_id: u32) -> Result<&Partition> {
        // A scan: containers have few partitions, and range ids are not in their order.
        self.partitions.iter().find(|partition| partition.range_id == range_id).ok_or_else(|| {
            Error::new(
                ErrorKind::PartitionGone,
                format!("The partition key range {range_id} does not exist in this container, or was split."),
            )
        })
    }

    /// The range of a partition, including a retired one if that may be served.
    pub(crate) fn range_of(&self, range_id: u32, gone: GoneRanges) -> Result<&EpkRange> {
        let refusal = match self.partition(range_id) {
            Ok(partition) => return Ok(&partition.range),
            Err(refusal) => refusal,
        };
        // Only now, because nearly all requests name a range that still exists.
        let former = self.former.iter().find(|former| former.range_id == range_id);
        let served = former.filter(|former| match gone {
            GoneRanges::Refused => false,
            // It is not the last one if a range to its right existed already when it was retired.
            GoneRanges::RefusedIfLast => self
                .partitions
                .iter()
                .any(|other| other.range.min >= former.range.max && other.since < former.until),
            GoneRanges::Served => true,
        });
        served.map(|former| &former.range).ok_or(refusal)
    }

    /// The partitions that hold any part of the range, in order.
    pub fn partitions_in<'a>(&'a self, range: &'a EpkRange) -> impl Iterator<Item = &'a Partition> {
        self.partitions.iter().filter(move |partition| partition.range.overlaps(range))
    }

    /// The by-name path for responses.
    pub fn alt_path(&self) -> String {
        format!("dbs/{}/colls/{}", self.database_id, self.definition.id.as_str())
    }

    pub fn to_value(&self) -> Value {
        let mut value = self.definition.to_value();
        if let Some(object) = value.as_object_mut() {
            self.stamp.add_system_properties(object, &self.rid.to_string(), &self.rid.self_link());
            for (name, link) in [
                ("_docs", "docs/"),
                ("_sprocs", "sprocs/"),
                ("_triggers", "triggers/"),
                ("_udfs", "udfs/"),
                ("_conflicts", "conflicts/"),
            ] {
                object.set(name, Value::from(link));
            }
        }
        value
    }
}

impl EncryptionKey {
    pub fn to_value(&self) -> Value {
        let mut value = self.key.to_value();
        if let Some(object) = value.as_object_mut() {
            self.stamp.add_system_properties(object, &self.rid.to_string(), &self.rid.self_link());
            object.set("_cts", Value::from(self.created));
        }
        value
    }
}

impl User {
    pub fn to_value(&self) -> Value {
        let mut object = orrery_model::Object::new();
        object.set("id", Value::from(&*self.id));
        self.stamp.add_system_properties(&mut object, &self.rid.to_string(), &self.rid.self_link());
        object.set("_permissions", Value::from("permissions/"));
        object.into()
    }

    pub fn permission(&self, name_or_rid: &str) -> Result<&Arc<Permission>> {
        let by_rid =
            || self.permissions.values().find(|permission| permission.rid.to_string() == name_or_rid);
        self.permissions.get(name_or_rid).or_else(by_rid).ok_or_else(not_found)
    }
}

impl PermissionMode {
    /// Clients write it in either case: `All` and `all`.
    pub fn parse(text: &str) -> Option<Self> {
        let modes = [("Read", Self::Read), ("All", Self::All)];
        modes.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, mode)| mode)
    }
}

#[cfg(test)]
mod tests;
