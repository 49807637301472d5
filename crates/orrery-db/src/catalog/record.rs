//! The catalog's records as stored in its partition: JSON under text keys.
//!
//! `m` the account; `d/{database}`; `c/{container}`; `o/{offer}`; `u/{user}` with its permissions;
//! `k/{client encryption key}`; `s/{script}`. Names in braces are RIDs. The version key `v` holds the number of the
//! last change and fences concurrent ones.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery_model::container::{ComputedProperty, ContainerDefinition, IndexingPolicy};
use orrery_model::encryption_key::ClientEncryptionKey;
use orrery_model::offer;
use orrery_model::partition_key::{EffectiveKey, EpkRange, PartitionKey, PartitionKeyDefinition};
use orrery_model::rid::{
    ClientEncryptionKeyRid, ContainerRid, DatabaseRid, OfferRid, PermissionRid, UserRid,
};
use orrery_model::value;
use orrery_storage::{PartitionId, PartitionRef};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    Catalog, Container, DatabaseEntry, EncryptionKey, Generation, IndexState, Offer, OfferOwner, Partition,
    PendingPartition, Permission, PermissionMode, Reshaping, RetiredRange, Stamp, User,
};

/// A record that cannot be parsed: damaged, or written by a newer version.
#[derive(Debug, thiserror::Error)]
#[error("the catalog record {key} cannot be read: {detail}")]
pub(super) struct RecordError {
    pub key: String,
    pub detail: String,
}

pub(super) const VERSION_KEY: &[u8] = b"v";
pub(super) const ACCOUNT_KEY: &[u8] = b"m";

#[derive(Serialize, Deserialize)]
struct AccountRecord {
    next_partition: u32,
    /// Base64.
    secret: String,
}

#[derive(Serialize, Deserialize)]
struct DatabaseRecord {
    rid: String,
    id: String,
    version: u64,
    timestamp: i64,
}

#[derive(Serialize, Deserialize)]
struct ContainerRecord {
    // The names of the fields are the format on disk: records of all earlier versions must still load. A field
    // that was added later has a default.
    rid: String,
    definition: Box<RawValue>,
    version: u64,
    timestamp: i64,
    partitions: Vec<PartitionRecord>,
    routing_version: u64,
    index: IndexRecord,
    #[serde(default)]
    reshaping: Option<ReshapingRecord>,
    // Not written while it is empty, so that records of containers without it stay as they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<FormerRecord>,
    /// Whether queries may be routed by the synthetic key in the definition.
    #[serde(default)]
    synthetic_routes: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    repartition: Option<RepartitionRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    repartitioned: Option<RepartitionedRecord>,
}

#[derive(Serialize, Deserialize)]
struct RepartitionedRecord {
    items: u64,
    copied: u64,
    removed: u64,
    compared: u64,
    checksum: String,
    kept_as: Option<String>,
    former_key: Option<Box<RawValue>>,
}

#[derive(Serialize, Deserialize)]
struct RepartitionRecord {
    target: String,
    keep_as: Option<String>,
    frozen: bool,
    positions: Vec<(u32, u64)>,
    #[serde(default)]
    run: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(default)]
    copied: u64,
    #[serde(default)]
    removed: u64,
}

#[derive(Serialize, Deserialize)]
struct FormerRecord {
    range_id: u32,
    // Effective keys as text, in hexadecimal.
    min: String,
    max: String,
    until: u64,
}

#[derive(Serialize, Deserialize)]
struct ReshapingRecord {
    parents: Vec<u32>,
    children: Vec<NewbornRecord>,
}

#[derive(Serialize, Deserialize)]
struct NewbornRecord {
    range_id: u32,
    min: String,
    max: String,
    store: u32,
    // Partitions from before merges existed have numbered their feed once.
    #[serde(default = "one")]
    numberings: u16,
}

fn one() -> u16 {
    1
}

#[derive(Serialize, Deserialize)]
struct IndexRecord {
    serving: GenerationRecord,
    building: Option<GenerationRecord>,
    version: u64,
    retired: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct GenerationRecord {
    number: u32,
    policy: Box<RawValue>,
    /// Names and queries of the computed properties among its entries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    computed: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct PartitionRecord {
    range_id: u32,
    min: String,
    max: String,
    store: u32,
    epoch: u64,
    parents: Vec<u32>,
    since: u64,
    timestamp: i64,
    #[serde(default = "one")]
    numberings: u16,
}

#[derive(Serialize, Deserialize)]
struct OfferRecord {
    database: Option<String>,
    container: Option<String>,
    document: Box<RawValue>,
    version: u64,
    timestamp: i64,
    #[serde(default)]
    pending: bool,
}

#[derive(Serialize, Deserialize)]
struct UserRecord {
    rid: String,
    id: String,
    version: u64,
    timestamp: i64,
    permissions: Vec<PermissionRecord>,
}

#[derive(Serialize, Deserialize)]
struct PermissionRecord {
    rid: String,
    id: String,
    mode: String,
    resource: String,
    partition_key: Option<String>,
    version: u64,
    timestamp: i64,
}

#[derive(Serialize, Deserialize)]
struct EncryptionKeyRecord {
    rid: String,
    definition: Box<RawValue>,
    version: u64,
    timestamp: i64,
    /// Absent in records of earlier versions.
    created: Option<i64>,
}

pub(super) fn encode(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("records are plain data")
}

pub(super) fn account(catalog: &Catalog) -> Vec<u8> {
    let secret = STANDARD.encode(catalog.secret);
    encode(&AccountRecord { next_partition: catalog.next_partition, secret })
}

pub(super) fn database_key(rid: DatabaseRid) -> Vec<u8> {
    format!("d/{rid}").into_bytes()
}

pub(super) fn database(database: &DatabaseEntry) -> Vec<u8> {
    encode(&DatabaseRecord {
        rid: database.rid.to_string(),
        id: database.id.to_string(),
        version: database.stamp.version,
        timestamp: database.stamp.timestamp,
    })
}

pub(super) fn container_key(rid: ContainerRid) -> Vec<u8> {
    format!("c/{rid}").into_bytes()
}

pub(super) fn container(container: &Container) -> Vec<u8> {
    // The definition as the client sees it, so that one parser reads requests and records.
    let definition =
        RawValue::from_string(container.definition.to_value().to_json()).expect("a value prints as JSON");
    let partitions = container.partitions.iter().map(|partition| PartitionRecord {
        range_id: partition.range_id,
        min: partition.range.min.to_string(),
        max: partition.range.max.to_string(),
        store: partition.store.id.0,
        epoch: partition.store.epoch,
        parents: partition.parents.clone(),
        since: partition.since,
        timestamp: partition.timestamp,
        numberings: partition.numberings,
    });
    let index = IndexRecord {
        serving: generation(&container.index.serving),
        building: container.index.building.as_deref().map(generation),
        version: container.index.version,
        retired: container.index.retired.clone(),
    };
    let reshaping = container.reshaping.as_ref().map(|reshaping| ReshapingRecord {
        parents: reshaping.parents.clone(),
        children: reshaping
            .children
            .iter()
            .map(|child| NewbornRecord {
                range_id: child.range_id,
                min: child.range.min.to_string(),
                max: child.range.max.to_string(),
                store: child.store.id.0,
                numberings: child.numberings,
            })
            .collect(),
    });
    let former = container.former.iter().map(|former| FormerRecord {
        range_id: former.range_id,
        min: former.range.min.to_string(),
        max: former.range.max.to_string(),
        until: former.until,
    });
    encode(&ContainerRecord {
        former: former.collect(),
        reshaping,
        synthetic_routes: container.synthetic.as_ref().is_some_and(|policy| policy.routes),
        repartition: container.repartition.as_ref().map(|repartition| RepartitionRecord {
            target: repartition.target.to_string(),
            keep_as: repartition.keep_as.as_deref().map(str::to_owned),
            frozen: repartition.frozen,
            positions: repartition.positions.clone(),
            run: repartition.run,
            failure: repartition.failure.as_deref().map(str::to_owned),
            copied: repartition.copied,
            removed: repartition.removed,
        }),
        repartitioned: container.repartitioned.as_ref().map(|done| RepartitionedRecord {
            items: done.items,
            copied: done.copied,
            removed: done.removed,
            compared: done.compared,
            // As text: JSON numbers are exact only up to 2^53.
            checksum: format!("{:032x}", done.checksum),
            kept_as: done.kept_as.as_deref().map(str::to_owned),
            former_key: done
                .former_key
                .as_ref()
                .map(|key| RawValue::from_string(key.to_value().to_json()).expect("a value prints as JSON")),
        }),
        index,
        rid: container.rid.to_string(),
        definition,
        version: container.stamp.version,
        timestamp: container.stamp.timestamp,
        partitions: partitions.collect(),
        routing_version: container.routing_version,
    })
}

fn generation(generation: &Generation) -> GenerationRecord {
    let policy =
        RawValue::from_string(generation.policy.to_value().to_json()).expect("a value prints as JSON");
    let computed = generation.computed.definitions();
    let computed = computed.map(|property| (property.name.to_string(), property.query.to_string()));
    GenerationRecord { number: generation.number, policy, computed: computed.collect() }
}

fn load_generation(
    record: &GenerationRecord,
    definition: &ContainerDefinition,
) -> Result<Arc<Generation>, Detail> {
    // Stored with the generation and not taken from the definition: while a new index is
    // built, both policies are in use.
    let policy = value::parse(record.policy.get().as_bytes())?;
    let policy = policy.as_object().ok_or("an indexing policy is not an object")?;
    let policy = IndexingPolicy::parse(policy, &definition.vector_embeddings)?;
    let computed = record
        .computed
        .iter()
        .map(|(name, query)| ComputedProperty { name: name.as_str().into(), query: query.as_str().into() });
    Ok(Arc::new(Generation::new(record.number, policy, &computed.collect::<Vec<_>>())))
}

pub(super) fn offer_key(rid: OfferRid) -> Vec<u8> {
    format!("o/{rid}").into_bytes()
}

pub(super) fn offer(offer: &Offer) -> Vec<u8> {
    let (database, container) = match offer.owner {
        OfferOwner::Database(rid) => (Some(rid.to_string()), None),
        OfferOwner::Container(rid) => (None, Some(rid.to_string())),
    };
    // Written at its idle throughput; what autoscale has reached is not part of the definition.
    let document = offer.document.to_value(offer.document.throughput.idle());
    encode(&OfferRecord {
        database,
        container,
        document: RawValue::from_string(document.to_json()).expect("a value prints as JSON"),
        pending: offer.pending,
        version: offer.stamp.version,
        timestamp: offer.stamp.timestamp,
    })
}

pub(super) fn user_key(rid: UserRid) -> Vec<u8> {
    format!("u/{rid}").into_bytes()
}

pub(super) fn user(user: &User) -> Vec<u8> {
    let permissions = user.permissions.values().map(|permission| PermissionRecord {
        rid: permission.rid.to_string(),
        id: permission.id.to_string(),
        mode: permission.mode_text.to_string(),
        resource: permission.resource.to_string(),
        partition_key: permission.partition_key.as_ref().map(PartitionKey::to_json),
        version: permission.stamp.version,
        timestamp: permission.stamp.timestamp,
    });
    encode(&UserRecord {
        rid: user.rid.to_string(),
        id: user.id.to_string(),
        version: user.stamp.version,
        timestamp: user.stamp.timestamp,
        permissions: permissions.collect(),
    })
}

pub(super) fn encryption_key_key(rid: ClientEncryptionKeyRid) -> Vec<u8> {
    format!("k/{rid}").into_bytes()
}

pub(super) fn encryption_key(key: &EncryptionKey) -> Vec<u8> {
    encode(&EncryptionKeyRecord {
        rid: key.rid.to_string(),
        definition: RawValue::from_string(key.key.to_value().to_json()).expect("a value prints as JSON"),
        version: key.stamp.version,
        timestamp: key.stamp.timestamp,
        created: Some(key.created),
    })
}

/// Builds a catalog from its records, in any order.
pub(super) fn load(entries: &[(Vec<u8>, Vec<u8>)]) -> Result<Catalog, RecordError> {
    let mut catalog = Catalog::default();
    // Owners before what they own.
    // A record whose owner is missing is an error below, so the order is part of the format's rules.
    for kind in [&b"d/"[..], b"c/", b"u/", b"k/", b"o/", b"s/", VERSION_KEY, ACCOUNT_KEY] {
        // Few entries per kind, and only at start or after a change elsewhere: scanning the list
        // for each kind is cheap enough.
        for (key, value) in entries.iter().filter(|(key, _)| key.starts_with(kind)) {
            add(&mut catalog, kind, value).map_err(|detail| RecordError {
                key: String::from_utf8_lossy(key).into_owned(),
                detail: detail.to_string(),
            })?;
        }
    }
    Ok(catalog)
}

type Detail = Box<dyn std::error::Error + Send + Sync>;

fn add(catalog: &mut Catalog, kind: &[u8], bytes: &[u8]) -> Result<(), Detail> {
    match kind {
        b"d/" => {
            let record: DatabaseRecord = serde_json::from_slice(bytes)?;
            let rid = DatabaseRid::parse(&record.rid).ok_or("its RID is malformed")?;
            let stamp = Stamp { version: record.version, timestamp: record.timestamp };
            catalog.insert_database(DatabaseEntry::new(rid, &record.id, stamp));
        }
        b"c/" => add_container(catalog, serde_json::from_slice(bytes)?)?,
        b"u/" => add_user(catalog, serde_json::from_slice(bytes)?)?,
        b"k/" => add_encryption_key(catalog, &serde_json::from_slice(bytes)?)?,
        b"o/" => add_offer(catalog, &serde_json::from_slice(bytes)?)?,
        b"s/" => {
            let (container, script) = super::script::load(serde_json::from_slice(bytes)?)?;
            // Scripts are kept beside their container, so nothing else would notice an orphan.
            catalog.container_by_rid(container).ok_or("its container is missing")?;
            catalog.scripts_mut(container).insert(script);
        }
        b"v" => {
            catalog.version = u64::from_be_bytes(bytes.try_into().map_err(|_| "it is not a number")?);
        }
        // The account's record.
        _ => {
            let record: AccountRecord = serde_json::from_slice(bytes)?;
            catalog.next_partition = record.next_partition;
            let secret = STANDARD.decode(&record.secret)?;
            catalog.secret = secret.try_into().map_err(|_| "its secret has the wrong length")?;
        }
    }
    Ok(())
}

fn add_container(catalog: &mut Catalog, record: ContainerRecord) -> Result<(), Detail> {
    let rid = ContainerRid::parse(&record.rid).ok_or("its RID is malformed")?;
    let definition = ContainerDefinition::from_stored(&value::parse(record.definition.get().as_bytes())?)?;
    let database = catalog.database_by_rid(rid.database()).ok_or("its database is missing")?;
    let database_id = database.id.clone();
    // In range order, as they were written; `put_container` has checked that.
    let mut partitions = Vec::with_capacity(record.partitions.len());
    for partition in record.partitions {
        partitions.push(Partition {
            range_id: partition.range_id,
            range: EpkRange::new(EffectiveKey::parse(&partition.min)?, EffectiveKey::parse(&partition.max)?),
            store: PartitionRef { id: PartitionId(partition.store), epoch: partition.epoch },
            parents: partition.parents,
            since: partition.since,
            timestamp: partition.timestamp,
            numberings: partition.numberings,
        });
    }
    let index = IndexState {
        serving: load_generation(&record.index.serving, &definition)?,
        building: record
            .index
            .building
            .as_ref()
            .map(|record| load_generation(record, &definition))
            .transpose()?,
        version: record.index.version,
        retired: record.index.retired,
    };
    let reshaping = match record.reshaping {
        None => None,
        Some(record) => {
            let mut children = Vec::with_capacity(record.children.len());
            for child in record.children {
                children.push(PendingPartition {
                    range_id: child.range_id,
                    range: EpkRange::new(EffectiveKey::parse(&child.min)?, EffectiveKey::parse(&child.max)?),
                    // New partitions start at epoch 0.
                    store: PartitionRef { id: PartitionId(child.store), epoch: 0 },
                    numberings: child.numberings,
                });
            }
            Some(Reshaping { parents: record.parents, children })
        }
    };
    let mut former = Vec::with_capacity(record.former.len());
    for gone in record.former {
        former.push(RetiredRange {
            range_id: gone.range_id,
            range: EpkRange::new(EffectiveKey::parse(&gone.min)?, EffectiveKey::parse(&gone.max)?),
            until: gone.until,
        });
    }
    // Parsed from the definition; the record only adds whether its items were verified.
    let synthetic = super::SyntheticPolicy::of(&definition, record.synthetic_routes)?;
    let repartition = match record.repartition {
        None => None,
        Some(record) => Some(super::Repartition {
            target: ContainerRid::parse(&record.target).ok_or("the RID of what replaces it is malformed")?,
            keep_as: record.keep_as.map(Into::into),
            frozen: record.frozen,
            positions: record.positions,
            run: record.run,
            failure: record.failure.map(Into::into),
            copied: record.copied,
            removed: record.removed,
        }),
    };
    let repartitioned = match record.repartitioned {
        None => None,
        Some(record) => Some(super::Repartitioned {
            items: record.items,
            copied: record.copied,
            removed: record.removed,
            compared: record.compared,
            checksum: u128::from_str_radix(&record.checksum, 16)?,
            kept_as: record.kept_as.map(Into::into),
            former_key: match record.former_key {
                None => None,
                Some(key) => Some(PartitionKeyDefinition::parse(&value::parse(key.get().as_bytes())?)?),
            },
        }),
    };
    catalog.database_mut(&database_id).insert_container(Container {
        former,
        reshaping,
        synthetic,
        repartition,
        repartitioned,
        index,
        rid,
        database_id: database_id.clone(),
        definition,
        stamp: Stamp { version: record.version, timestamp: record.timestamp },
        partitions,
        routing_version: record.routing_version,
    });
    Ok(())
}

fn add_user(catalog: &mut Catalog, record: UserRecord) -> Result<(), Detail> {
    let rid = UserRid::parse(&record.rid).ok_or("its RID is malformed")?;
    let database = catalog.database_by_rid(rid.database()).ok_or("its database is missing")?.id.clone();
    let mut user = User {
        rid,
        id: record.id.into(),
        stamp: Stamp { version: record.version, timestamp: record.timestamp },
        permissions: std::collections::BTreeMap::new(),
    };
    for permission in record.permissions {
        let partition_key = permission
            .partition_key
            .as_deref()
            .map(|text| PartitionKey::parse_json(text.as_bytes()))
            .transpose()?;
        let permission = Permission {
            rid: PermissionRid::parse(&permission.rid).ok_or("a permission's RID is malformed")?,
            id: permission.id.into(),
            mode: PermissionMode::parse(&permission.mode).ok_or("a permission's mode is unknown")?,
            mode_text: permission.mode.into(),
            resource: permission.resource.into(),
            partition_key,
            stamp: Stamp { version: permission.version, timestamp: permission.timestamp },
        };
        user.permissions.insert(permission.id.clone(), Arc::new(permission));
    }
    catalog.database_mut(&database).users.insert(user.id.clone(), Arc::new(user));
    Ok(())
}

fn add_encryption_key(catalog: &mut Catalog, record: &EncryptionKeyRecord) -> Result<(), Detail> {
    let rid = ClientEncryptionKeyRid::parse(&record.rid).ok_or("its RID is malformed")?;
    let database = catalog.database_by_rid(rid.database).ok_or("its database is missing")?.id.clone();
    let key = ClientEncryptionKey::parse(&value::parse(record.definition.get().as_bytes())?)?;
    let stamp = Stamp { version: record.version, timestamp: record.timestamp };
    let keys = &mut catalog.database_mut(&database).encryption_keys;
    // Records of the first version lack it.
    let created = record.created.unwrap_or(record.timestamp);
    keys.insert(key.id.as_str().into(), Arc::new(EncryptionKey { rid, key, stamp, created }));
    Ok(())
}

fn add_offer(catalog: &mut Catalog, record: &OfferRecord) -> Result<(), Detail> {
    // Exactly one of the two is set.
    let database = record.database.as_deref().and_then(DatabaseRid::parse).map(OfferOwner::Database);
    let container = record.container.as_deref().and_then(ContainerRid::parse).map(OfferOwner::Container);
    let offer = Offer {
        document: offer::Offer::from_stored(&value::parse(record.document.get().as_bytes())?)?,
        owner: database.or(container).ok_or("its owner is malformed")?,
        pending: record.pending,
        stamp: Stamp { version: record.version, timestamp: record.timestamp },
    };
    catalog.insert_offer(offer);
    Ok(())
}
