//! Operations on one item, and the one loop that commits transactions.
//!
//! A request may meet a partition that has just been split, an index that is changing, or a container that is being cut
//! over. `run_transaction_as` retries all of these inside the server; the transaction itself is in `transaction`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orrery_env::Env;
use orrery_model::document::{parse_json, parse_object};
use orrery_model::ids::ItemId;
use orrery_model::partition_key::{EffectiveKey, KeyPart, PartitionKey};
use orrery_model::patch::Patch;
use orrery_model::rid::{ContainerRid, ItemRid};
use orrery_model::session::SessionToken;
use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::ReadRequest;

use orrery_metering::cost;

use super::fill::Missing;
use super::prepare::PreparedItem;
use super::transaction::{
    Action, ActionKind, ActionResult, ActionSuccess, Effect, ItemTransaction, TransactionOutcome,
    item_not_found,
};
use super::{Items, key_mismatch, required_key};
use crate::catalog::{Container, RepartitionRun};
use crate::failure::commit_failure;
use crate::layout::document::decode;
use crate::layout::keys;
use crate::layout::statistics::Statistics;
use crate::layout::stored::StoredItem;
use crate::partition::{KeyUsage, ROUTING_ATTEMPTS, Receipt};

/// How often a frozen write checks whether the cut-over has finished.
const CUT_OVER_POLL: Duration = Duration::from_millis(20);

/// The triggers of a write.
#[derive(Clone, Debug, Default)]
pub struct Triggers {
    pub pre: Option<String>,
    pub post: Option<String>,
    pub headers: Vec<(String, String)>,
}

/// The options of an item request, apart from its body.
#[derive(Clone, Debug, Default)]
pub struct ItemOptions {
    pub partition_key: Option<PartitionKey>,
    pub session: Option<SessionToken>,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    /// The container's RID as known to the client.
    pub intended_rid: Option<String>,
    /// Scripts to run around a write.
    pub triggers: Option<Triggers>,
}

/// An item after an operation on it.
#[derive(Clone, Debug)]
pub struct ItemReply {
    pub effect: Effect,
    pub etag: String,
    container: ContainerRid,
    item: StoredItem,
    /// The response body set by a trigger, instead of the item.
    changed: Option<Bytes>,
}

impl ItemReply {
    pub(crate) fn new(container: ContainerRid, success: ActionSuccess) -> Self {
        let etag = success.item.etag().to_string();
        Self { effect: success.effect, etag, container, item: success.item, changed: None }
    }

    pub(crate) fn answer_with(&mut self, text: Bytes) {
        self.changed = Some(text);
    }

    /// The item's JSON, including system properties.
    pub fn document(&self) -> Bytes {
        if let Some(changed) = &self.changed {
            return changed.clone();
        }
        let mut text = Vec::with_capacity(self.item.body.len() + 256);
        self.item.write_document(self.container, &mut text);
        text.into()
    }
}

impl Items {
    pub async fn read_item(
        &self,
        receipt: &mut Receipt,
        (database, container, item): (&str, &str, &str),
        options: &ItemOptions,
    ) -> Result<ItemReply> {
        if options.triggers.is_some() {
            return Err(Error::bad_request("Triggers run with writes and cannot be named by a read."));
        }
        let mut attempt = 0;
        loop {
            let container =
                self.item_container(receipt, database, container, options.intended_rid.as_deref())?;
            let key = full_key(&container, options)?;
            let result = self.read_item_once(receipt, &container, &key, (database, item), options).await;
            match result {
                Err(error) if self.may_route_again(&error, &mut attempt).await => {}
                result => return result,
            }
        }
    }

    async fn read_item_once(
        &self,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        key: &PartitionKey,
        (database, item): (&str, &str),
        options: &ItemOptions,
    ) -> Result<ItemReply> {
        // For the heat of keys, also if the item is not found.
        receipt.key.get_or_insert_with(|| key.to_json());
        let id = self.item_id(receipt, container, key, database, item).await?;
        let effective = container.definition.partition_key.effective_key(key);
        let partition = container.partition_of(&effective);
        let request = ReadRequest::Get(vec![keys::item(&effective, id.as_str())]);
        let page = self.read_partition(receipt, partition, options.session.as_ref(), request).await?;
        let item = page.values.into_iter().next().flatten().map(|bytes| decode(&bytes)).transpose()?;
        let visible = item.filter(|item| {
            self.is_visible(container, partition, &effective, item) && has_key(container, key, item)
        });
        let Some(item) = visible else {
            receipt.add(cost::missing_item());
            return Err(item_not_found());
        };
        let wanted = options.if_none_match.as_deref();
        let unchanged = wanted.is_some_and(|wanted| wanted == "*" || item.etag().matches(wanted));
        let (effect, charge) = if unchanged {
            (Effect::NotModified, cost::missing_item())
        } else {
            (Effect::Read, cost::point_read(item.body.len()))
        };
        receipt.add(charge);
        // The item's own LSN, which responses carry next to the partition's.
        receipt.item_lsn = Some(item.lsn);
        Ok(ItemReply::new(container.rid, ActionSuccess { effect, item }))
    }

    pub(crate) async fn write_item(
        &self,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        key: PartitionKey,
        id: ItemId,
        kind: ActionKind,
        options: &ItemOptions,
    ) -> Result<ItemReply> {
        let action = Action {
            id,
            kind,
            if_match: options.if_match.clone(),
            if_none_match: options.if_none_match.clone(),
        };
        let outcome = self.run_transaction(receipt, container, key, vec![action]).await?;
        let result: ActionResult = outcome.results.into_iter().next().expect("one action has one result");
        receipt.add(result.charge);
        result.outcome.map(|success| ItemReply::new(container.rid, success))
    }

    /// Commits actions on one logical partition, retrying across splits.
    pub(crate) async fn run_transaction(
        &self,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        partition_key: PartitionKey,
        actions: Vec<Action>,
    ) -> Result<TransactionOutcome> {
        self.run_transaction_as(receipt, container, partition_key, actions, None).await
    }

    /// The same, perhaps for a copy of an item of another container.
    pub(crate) async fn run_transaction_as(
        &self,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        partition_key: PartitionKey,
        actions: Vec<Action>,
        copy: Option<CopyOf>,
    ) -> Result<TransactionOutcome> {
        let name = container.definition.id.clone();
        let effective = container.definition.partition_key.effective_key(&partition_key);
        // Shared by all attempts: items may be large.
        let actions = Arc::new(actions);
        let mut container = Arc::clone(container);
        let mut attempt = 0;
        loop {
            // The RID stays with the items: after a cut-over it belongs to the former container, under another name.
            if container.definition.id != name {
                return Err(replaced());
            }
            // A run that was taken over must stop before it writes again.
            if let Some(copy) = &copy {
                copy.run.check(&self.catalog.snapshot())?;
            }
            if container.repartition.as_ref().is_some_and(|repartition| repartition.frozen) {
                self.wait_for_cut_over(&mut attempt).await?;
                container = self.current_or_replaced(&container)?;
                continue;
            }
            let partition = container.partition_of(&effective);
            // A script that has lost twice on this key goes first.
            self.gates.pass(container.rid, &effective).await;
            // Background work has no container in its receipt and pays from an allowance of its own.
            if receipt.container.is_some() {
                receipt.key.get_or_insert_with(|| partition_key.to_json());
                self.admit(receipt, &container, partition)?;
            }
            // Made anew for each attempt: it depends on the container, the partition and the time.
            let transaction = ItemTransaction {
                operation_id: self.operation_id(),
                container: Arc::clone(&container),
                range_id: partition.range_id,
                partition_key: partition_key.clone(),
                effective: effective.clone(),
                now_ms: copy.and_then(|copy| copy.at_ms).unwrap_or_else(|| self.env.now_ms()),
                logical_partition_bytes_max: self.options.logical_partition_bytes_max,
                actions: Arc::clone(&actions),
                entries: Vec::new(),
                script: None,
            };
            // The index entries are built here, outside of the store's committer.
            match self.commit(partition, transaction.with_entries()).await {
                Ok(committed) if !committed.out.stale => {
                    receipt.served_by(partition, committed.lsn);
                    let Statistics { items, bytes, .. } = committed.out.statistics;
                    receipt.key_usage = Some(KeyUsage {
                        items,
                        bytes,
                        partition_bytes_max: self.options.partition_bytes_max,
                    });
                    return Ok(committed.out);
                }
                // Stale: prepared for an older index or a container that is being cut over.
                Ok(_) => self.wait_for_index(&mut attempt).await?,
                Err(error) => {
                    let error = commit_failure(error);
                    if !self.may_route_again(&error, &mut attempt).await {
                        return Err(error);
                    }
                }
            }
            // Whatever made this attempt fail may have changed the container.
            container = self.current_or_replaced(&container)?;
        }
    }

    /// Writes are frozen for the cut-over of a repartitioning; retry until it commits or aborts.
    async fn wait_for_cut_over(&self, attempt: &mut u32) -> Result<()> {
        *attempt += 1;
        // Bounded, like all retries; clients retry a 449 by themselves.
        if *attempt > ROUTING_ATTEMPTS {
            let message = "The container is being repartitioned. Please retry.";
            return Err(Error::new(ErrorKind::RetryWith, message));
        }
        orrery_env::task::sleep(CUT_OVER_POLL).await;
        self.look_at_catalog_again().await;
        Ok(())
    }

    /// Another process has changed the container's index: follow the catalog, then retry.
    async fn wait_for_index(&self, attempt: &mut u32) -> Result<()> {
        if *attempt >= ROUTING_ATTEMPTS {
            let message = "The container's index is changing. Please retry.";
            return Err(Error::new(ErrorKind::RetryWith, message));
        }
        *attempt += 1;
        self.look_at_catalog_again().await;
        Ok(())
    }

    /// The same, or an error if the name now refers to another container.
    fn current_or_replaced(&self, container: &Container) -> Result<Arc<Container>> {
        let name = container.definition.id.as_str();
        self.current_container(container).map_err(|error| {
            let other = self.catalog.snapshot().container(&container.database_id, name).is_ok();
            if other { replaced() } else { error }
        })
    }

    /// Resolves the last segment of an item's path: an id, or a RID if the path consists of RIDs.
    pub(crate) async fn item_id(
        &self,
        receipt: &mut Receipt,
        container: &Arc<Container>,
        key: &PartitionKey,
        database: &str,
        item: &str,
    ) -> Result<ItemId> {
        // The whole path consists of RIDs or of names, and the segment of the database tells which.
        let by_rid = database == container.rid.database().to_string();
        let Some(rid) = ItemRid::parse(item).filter(|rid| by_rid && rid.container == container.rid) else {
            return ItemId::parse(item);
        };
        let effective = container.definition.partition_key.effective_key(key);
        let request = ReadRequest::Get(vec![keys::rid(rid.ordinal())]);
        // Only the key's own partition is asked: RIDs are mapped where their items are.
        let page = self.read_of_key(receipt, container, &effective, None, request).await?;
        let place = page.values.into_iter().next().flatten();
        let id = place.as_ref().and_then(|place| id_at(place, &effective));
        if let Some(id) = id {
            ItemId::parse(id)
        } else {
            receipt.add(cost::missing_item());
            Err(item_not_found())
        }
    }
}

/// A write that copies an item during a repartitioning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyOf {
    /// A copy keeps the time of its item.
    pub at_ms: Option<i64>,
    /// The run that copies; valid only while the catalog names it.
    pub run: RepartitionRun,
}

/// Another container has taken the name: the client's view is stale.
fn replaced() -> Error {
    Error::new(
        ErrorKind::ContainerRecreated,
        "Collection rid provided by the user does not match the existing collection.",
    )
}

fn id_at<'a>(item_key: &'a [u8], wanted: &EffectiveKey) -> Option<&'a str> {
    let (effective, id) = keys::parse_item(item_key)?;
    (effective == *wanted).then_some(id)
}

/// Whether the item really belongs to the key and not to another key with the same hash.
pub(crate) fn has_key(container: &Container, key: &PartitionKey, item: &StoredItem) -> bool {
    let definition = &container.definition.partition_key;
    // Without possible collisions the hash proves the key, and nothing is parsed.
    !definition.may_collide(key)
        || parse_object(&item.body)
            .and_then(|value| definition.extract(&value))
            .is_ok_and(|stored| stored == *key)
}

/// The complete key of the request.
pub(crate) fn full_key(container: &Container, options: &ItemOptions) -> Result<PartitionKey> {
    container.definition.partition_key.check_full(required_key(options.partition_key.as_ref())?)
}

/// The key of a write whose item a trigger may still change, and the item with its synthetic key.
pub(crate) fn with_key(
    container: &Container,
    options: &ItemOptions,
    body: &Bytes,
    missing: Missing,
    env: &dyn Env,
) -> Result<(PartitionKey, Bytes)> {
    if options.partition_key.is_some() && container.synthetic.is_none() {
        return Ok((full_key(container, options)?, body.clone()));
    }
    let (key, item) = prepare(container, options, body, missing, env)?;
    Ok((key, item.body))
}

/// Validates an item and its key. Without a key in the request, the item's own is used.
pub(crate) fn prepare(
    container: &Container,
    options: &ItemOptions,
    body: &Bytes,
    missing: Missing,
    env: &dyn Env,
) -> Result<(PartitionKey, PreparedItem)> {
    match prepare_under(container, options.partition_key.as_ref(), body, missing, env) {
        // The client knows the container as it is now, by its resource id, but has taken the key from the item before it
        // did. The Python client does not do so again when it retries, so the item's own key counts.
        Err(error) if error.kind == ErrorKind::NameCacheStale && options.intended_rid.is_some() => {
            prepare_under(container, None, body, missing, env)
        }
        prepared => prepared,
    }
}

/// The same for an optional key.
pub(crate) fn prepare_under(
    container: &Container,
    named: Option<&PartitionKey>,
    body: &Bytes,
    missing: Missing,
    env: &dyn Env,
) -> Result<(PartitionKey, PreparedItem)> {
    let checked = |named: Option<&PartitionKey>| {
        let item = PreparedItem::for_container(container, body, named, missing, env)?;
        let own = container.definition.partition_key.extract(&item.value)?;
        if let Some(key) = named {
            check_named_key(container, key, &own)?;
        }
        Ok((own, item))
    };
    let refused = match checked(named) {
        Ok(prepared) => return Ok(prepared),
        Err(error) => error,
    };
    let is_former = named.is_some_and(|key| former_key(container, body).as_ref() == Some(key));
    // This must be the only error.
    if is_former && checked(None).is_ok() { Err(stale_name()) } else { Err(refused) }
}

/// The key that an item had in the container before it was repartitioned.
fn former_key(container: &Container, body: &Bytes) -> Option<PartitionKey> {
    let former = container.repartitioned.as_ref()?.former_key.as_ref()?;
    former.extract(&parse_object(body).ok()?).ok()
}

/// For a client with a stale view of a replaced container. The service returns the same error, and clients then refresh
/// and retry.
fn stale_name() -> Error {
    Error::new(
        ErrorKind::NameCacheStale,
        "The container of this name was replaced by one with another partition key. Please read it again and retry.",
    )
}

/// The key in the request must be the item's own. With a synthetic key a client may not know it yet: undefined
/// components are ignored.
pub(crate) fn check_named_key(container: &Container, named: &PartitionKey, own: &PartitionKey) -> Result<()> {
    if container.synthetic.is_some() && named.0.is_empty() {
        return Ok(());
    }
    let named = container.definition.partition_key.check_full(named)?;
    let is_unknown = |part: &KeyPart| container.synthetic.is_some() && *part == KeyPart::Undefined;
    if named.0.iter().zip(&own.0).all(|(sent, own)| sent == own || is_unknown(sent)) {
        Ok(())
    } else {
        Err(key_mismatch())
    }
}

/// Parses a patch and the condition it may carry.
pub(crate) fn patch_action(container: &Container, body: &Bytes) -> Result<ActionKind> {
    let body = parse_json(body)?;
    let patch = Patch::parse(&body)?;
    // Before anything is read: a patch of the partition key is refused whatever the item is.
    patch.check_paths(&container.definition.partition_key, &container.definition.computed_properties)?;
    let condition = patch.condition.as_deref().map(orrery_query::parse_condition).transpose();
    let condition = condition.map_err(|errors| {
        Error::new(ErrorKind::InvalidQuery, orrery_query::error::errors_to_value(&errors).to_json())
    })?;
    Ok(ActionKind::Patch { patch, condition })
}
