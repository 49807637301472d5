//! The stored catalog: a separate partition in the same store as the data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use orrery_env::Env;
use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::{
    Decision, Key, KeyRange, Lsn, Op, PartitionId, PartitionRef, PartitionStore, ReadRequest, Scan, View,
    WriteSet,
};
use tokio::sync::Mutex;

use super::duty::take_duty;
use super::{Catalog, Container, DatabaseEntry, EncryptionKey, Offer, Script, Stamp, User, record, script};
use crate::failure::{commit_failure, store_failure};

/// The number of the catalog's own partition.
pub const CATALOG_PARTITION: PartitionRef = PartitionRef { id: PartitionId(0), epoch: 0 };

/// Marks a store as the target of an unfinished move; sorts after all records. No database opens such a store.
pub const UNFINISHED_MOVE_KEY: &[u8] = b"~unfinished-move";

const PAGE_ENTRIES: usize = 1000;
/// How long a single wait for catalog changes lasts.
const FOLLOW_WAIT: std::time::Duration = std::time::Duration::from_secs(1);

/// The current catalog, and how to change it.
pub(crate) struct CatalogStore {
    store: Arc<dyn PartitionStore>,
    env: Arc<dyn Env>,
    current: ArcSwap<Catalog>,
    /// The catalog partition's LSN when `current` was read or written: if the store is ahead of it, another process has
    /// changed the catalog.
    known_lsn: AtomicU64,
    changes: Mutex<()>,
}

/// A change in progress: the new catalog and the records to write.
pub(crate) struct Change {
    pub catalog: Catalog,
    pub stamp: Stamp,
    writes: Vec<(Key, Option<Vec<u8>>)>,
}

/// Numbers for new partitions, ascending.
pub(crate) struct NewNumbers(std::collections::VecDeque<PartitionId>);

impl CatalogStore {
    /// Reads the catalog, or creates an empty one in an empty store.
    pub(crate) async fn open(store: Arc<dyn PartitionStore>, env: Arc<dyn Env>) -> Result<Self> {
        // Idempotent: an existing partition stays as it is.
        store.create(CATALOG_PARTITION.id, 0).await.map_err(store_failure)?;
        let this = Self {
            store,
            env,
            current: ArcSwap::from_pointee(Catalog::default()),
            known_lsn: AtomicU64::new(0),
            changes: Mutex::new(()),
        };
        this.reload().await?;
        // An empty store. The secret is random and stored, so that tokens survive restarts
        // and are valid on every server.
        if this.snapshot().version == 0 {
            let mut secret = [0; 32];
            this.env.fill_random(&mut secret);
            this.change(|change| {
                // Another process may have been first.
                if change.catalog.next_partition == 0 {
                    change.catalog.secret = secret;
                    change.catalog.next_partition = CATALOG_PARTITION.id.0 + 1;
                    change.put_account();
                }
                Ok(())
            })
            .await?;
        }
        Ok(this)
    }

    /// The current snapshot.
    pub(crate) fn snapshot(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// Changes the catalog. The change is durable and visible when this returns.
    pub(crate) async fn change<T>(&self, edit: impl FnOnce(&mut Change) -> Result<T>) -> Result<T> {
        let _one_at_a_time = self.changes.lock().await;
        // Serialise among processes too: without this, a conflict would still be detected, but surface to the client.
        let duty = take_duty(&*self.store, "catalog").await?;
        // Another process may have changed the catalog before this one got the duty.
        if duty.is_some() {
            self.reload_if_changed().await?;
        }
        let changed = self.change_alone(edit).await;
        // Released on failure too; holding it would block changes everywhere until the connection ends.
        if let Some(duty) = duty {
            duty.release().await;
        }
        changed
    }

    async fn change_alone<T>(&self, edit: impl FnOnce(&mut Change) -> Result<T>) -> Result<T> {
        // Cheap: the catalog holds its entries in `Arc`s.
        let mut catalog = Catalog::clone(&self.snapshot());
        let before = catalog.version;
        catalog.version += 1;
        let stamp = Stamp { version: catalog.version, timestamp: self.env.now_seconds() };
        let mut change = Change { catalog, stamp, writes: Vec::new() };
        // A rejected edit drops the copy; nothing has been written.
        let out = edit(&mut change)?;
        let op = CatalogWrite {
            operation_id: u128::from(self.env.random_u64()),
            expected_version: before,
            writes: change.writes,
        };
        let committed =
            orrery_storage::commit(&*self.store, CATALOG_PARTITION, op).await.map_err(commit_failure)?;
        // Only possible if a process lost its duty without noticing, such as after a long pause.
        if !committed.out {
            return Err(Error::new(
                ErrorKind::RetryWith,
                "The catalog was changed concurrently. Please retry.",
            ));
        }
        // Published after it is durable: nobody acts on a change that a crash could undo.
        self.current.store(Arc::new(change.catalog));
        self.known_lsn.store(committed.lsn, Ordering::Release);
        Ok(out)
    }

    /// Chooses numbers for partitions that will be used together with others.
    pub(crate) async fn choose_numbers(&self, count: usize, beside: Vec<PartitionId>) -> Result<NewNumbers> {
        // Asked outside of the change, because it may take a round trip; `new_partition`
        // checks what has happened since.
        let from = self.snapshot().next_partition;
        let numbers = self.store.choose_ids(from, count, beside).await.map_err(store_failure)?;
        Ok(NewNumbers(numbers.into()))
    }

    /// Picks up changes of other processes. Cheap if there are none.
    pub(crate) async fn refresh(&self) -> Result<()> {
        // Read before waiting for the lock, so that a refresh that ends meanwhile is recognised.
        let before = self.known_lsn.load(Ordering::Acquire);
        let _one_at_a_time = self.changes.lock().await;
        // If we waited for the lock, another task may have refreshed already.
        if self.known_lsn.load(Ordering::Acquire) > before {
            return Ok(());
        }
        self.reload_if_changed().await
    }

    /// Returns when another process may have changed the catalog, or after a second.
    pub(crate) async fn wait_for_change(&self) -> Result<bool> {
        let known = self.known_lsn.load(Ordering::Acquire);
        let reached = self.store.wait_lsn(CATALOG_PARTITION.id, known, FOLLOW_WAIT).await;
        Ok(reached.map_err(store_failure)? > known)
    }

    async fn reload_if_changed(&self) -> Result<()> {
        // A read without keys only returns the LSN.
        let read = self.store.read(CATALOG_PARTITION, ReadRequest::Get(Vec::new())).await;
        if read.map_err(store_failure)?.lsn > self.known_lsn.load(Ordering::Acquire) {
            self.reload().await?;
        }
        Ok(())
    }

    async fn reload(&self) -> Result<()> {
        let (entries, lsn) = read_all(&*self.store).await?;
        // Serving it would lose whatever the move had not copied yet.
        if entries.iter().any(|(key, _)| key == UNFINISHED_MOVE_KEY) {
            return Err(Error::internal(
                "the store is the target of a move that did not finish: empty it and move again",
            ));
        }
        let catalog = record::load(&entries).map_err(|error| Error::internal(error.to_string()))?;
        self.current.store(Arc::new(catalog));
        // After the catalog: in between, a reader sees a newer catalog with an older LSN
        // and at most reloads once more.
        self.known_lsn.store(lsn, Ordering::Release);
        Ok(())
    }
}

impl Change {
    pub(crate) fn put_account(&mut self) {
        let value = record::account(&self.catalog);
        self.writes.push((record::ACCOUNT_KEY.to_vec(), Some(value)));
    }

    /// The number of a new physical partition: the chosen one, unless it has been overtaken meanwhile.
    pub(crate) fn new_partition(&mut self, numbers: &mut NewNumbers) -> PartitionRef {
        let next = self.catalog.next_partition;
        // A number below `next` was taken by another change in the meantime; then its place on
        // the cluster is left to chance.
        let id = numbers.0.pop_front().filter(|id| id.0 >= next).unwrap_or(PartitionId(next));
        self.catalog.next_partition = id.0 + 1;
        PartitionRef { id, epoch: 0 }
    }

    pub(crate) fn put_database(&mut self, database: DatabaseEntry) {
        self.writes.push((record::database_key(database.rid), Some(record::database(&database))));
        self.catalog.insert_database(database);
    }

    /// Removes a database and everything the catalog has for it.
    pub(crate) fn remove_database(&mut self, database: &DatabaseEntry) {
        for container in database.containers.values() {
            self.remove_scripts(container.rid);
            self.writes.push((record::container_key(container.rid), None));
        }
        for user in database.users.values() {
            self.writes.push((record::user_key(user.rid), None));
        }
        for key in database.encryption_keys.values() {
            self.writes.push((record::encryption_key_key(key.rid), None));
        }
        self.writes.push((record::database_key(database.rid), None));
        self.catalog.remove_database(database);
    }

    pub(crate) fn put_container(&mut self, container: Container) {
        // The last point at which a broken routing table can be stopped.
        container.assert_routing();
        self.writes.push((record::container_key(container.rid), Some(record::container(&container))));
        let database_id = container.database_id.clone();
        self.catalog.database_mut(&database_id).insert_container(container);
    }

    pub(crate) fn remove_container(&mut self, container: &Container) {
        self.remove_scripts(container.rid);
        self.writes.push((record::container_key(container.rid), None));
        self.catalog.database_mut(&container.database_id).remove_container(container);
    }

    pub(crate) fn put_script(&mut self, script: Script) {
        self.writes.push((script::key(script.rid), Some(record::encode(&script::record(&script)))));
        self.catalog.scripts_mut(script.rid.container).insert(script);
    }

    pub(crate) fn remove_script(&mut self, script: &Script) {
        self.writes.push((script::key(script.rid), None));
        self.catalog.scripts_mut(script.rid.container).remove(script);
    }

    fn remove_scripts(&mut self, container: orrery_model::rid::ContainerRid) {
        // Their records have keys of their own, so removing the container's would leave them behind.
        for script in self.catalog.scripts(container).all() {
            self.writes.push((script::key(script.rid), None));
        }
        self.catalog.forget_scripts(container);
    }

    pub(crate) fn put_offer(&mut self, offer: Offer) {
        self.writes.push((record::offer_key(offer.document.rid), Some(record::offer(&offer))));
        self.catalog.insert_offer(offer);
    }

    pub(crate) fn remove_offer(&mut self, rid: orrery_model::rid::OfferRid) {
        self.writes.push((record::offer_key(rid), None));
        self.catalog.remove_offer(rid);
    }

    pub(crate) fn put_user(&mut self, database_id: &str, user: User) {
        self.writes.push((record::user_key(user.rid), Some(record::user(&user))));
        self.catalog.database_mut(database_id).users.insert(user.id.clone(), Arc::new(user));
    }

    pub(crate) fn put_encryption_key(&mut self, database_id: &str, key: EncryptionKey) {
        self.writes.push((record::encryption_key_key(key.rid), Some(record::encryption_key(&key))));
        let keys = &mut self.catalog.database_mut(database_id).encryption_keys;
        keys.insert(key.key.id.as_str().into(), Arc::new(key));
    }

    pub(crate) fn remove_user(&mut self, database_id: &str, user: &User) {
        self.writes.push((record::user_key(user.rid), None));
        self.catalog.database_mut(database_id).users.remove(&user.id);
    }
}

/// Writes records if the catalog is still at the version that the change started from.
struct CatalogWrite {
    operation_id: u128,
    expected_version: u64,
    writes: Vec<(Key, Option<Vec<u8>>)>,
}

impl Op for CatalogWrite {
    type Out = bool;

    fn id(&self) -> u128 {
        self.operation_id
    }

    fn reads(&self, keys: &mut Vec<Key>) {
        keys.push(record::VERSION_KEY.to_vec());
    }

    fn decide(&self, view: &dyn View, _lsn: Lsn) -> Decision<bool> {
        let version = view.get(record::VERSION_KEY);
        let version = version.and_then(|bytes| bytes.as_ref().try_into().ok()).map_or(0, u64::from_be_bytes);
        // Rejected, not overwritten: the records were made from an older catalog.
        if version != self.expected_version {
            return Decision::Reject(false);
        }
        // A change may write a record more than once, and the store accepts a key once per
        // commit: the last value counts.
        let mut last: std::collections::BTreeMap<&Key, Option<&Vec<u8>>> = std::collections::BTreeMap::new();
        for (key, value) in &self.writes {
            last.insert(key, value.as_ref());
        }
        let mut writes = WriteSet::default();
        for (key, value) in last {
            match value {
                Some(value) => writes.put(key.clone(), Bytes::copy_from_slice(value)),
                None => writes.delete(key.clone()),
            }
        }
        // In the same write set: the version advances exactly with the records it stands for.
        writes.put(record::VERSION_KEY.to_vec(), Bytes::copy_from_slice(&(version + 1).to_be_bytes()));
        Decision::Write(writes, true)
    }
}

/// All records of one snapshot, and the partition's LSN at that point.
async fn read_all(store: &dyn PartitionStore) -> Result<(Vec<(Vec<u8>, Vec<u8>)>, Lsn)> {
    let mut entries = Vec::new();
    let mut range = KeyRange::all();
    let mut lsn = None;
    loop {
        let scan = Scan::forward(range.clone(), PAGE_ENTRIES);
        let page = store.read(CATALOG_PARTITION, ReadRequest::Scan(scan)).await.map_err(store_failure)?;
        // Pages are separate reads; only equal LSNs prove that they show one state.
        if *lsn.get_or_insert(page.lsn) != page.lsn {
            // Changed between two pages: start over.
            (lsn, range) = (None, KeyRange::all());
            entries.clear();
            continue;
        }
        if let Some(last) = page.entries.last() {
            // The smallest key after the last one.
            range.start = [last.key.as_slice(), &[0]].concat();
        }
        entries.extend(page.entries.into_iter().map(|entry| (entry.key, entry.value.to_vec())));
        if !page.more {
            return Ok((entries, page.lsn));
        }
    }
}
