//! Giving a container another partition key while it serves: `orrery containers repartition`.
//!
//! 1. A second container is made, with the new key, and the catalog records it with the first. From then on
//!    every write that ends a version of an item leaves that version behind as a tombstone (`tombstone.rs`); the
//!    partitions learn a new index version, so that no write can have missed it.
//! 2. The change feed of each partition is followed from its beginning, which copies everything, and then on,
//!    together with the tombstones, until little is left (`follow.rs`). The places reached are recorded: a restart
//!    goes on from there by itself.
//! 3. Both containers are gone through, each item compared with its counterpart, counted and summed (`verify.rs`).
//! 4. Writes are held back. The rest is followed, what changed since the comparison is compared again, and one
//!    change of the catalog gives the second container the name of the first, which is kept under another name or
//!    dropped. Writes that waited are told to look at the container anew.
//!
//! Until step 4's change of the catalog nothing is lost by stopping: the first container serves, and the work can be
//! resumed or given up. Partitions of the first container neither split nor merge meanwhile, its definition cannot
//! be replaced, and its items cannot be deleted by partition key.

mod follow;
mod switch;
pub(crate) mod tombstone;
mod verify;

use std::collections::HashMap;
use std::sync::Arc;

use orrery_model::rid::ContainerRid;
use orrery_model::{Error, ErrorKind, Object, Result, Value};
use parking_lot::Mutex;

use crate::catalog::{Container, OfferOwner, existing};
use crate::synthetic::SYNTHETIC_KEY;
use crate::{Database, Trace};

/// A container on its way to another key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repartition {
    /// What takes its place.
    pub target: ContainerRid,
    /// The name under which it is kept; it is dropped if there is none.
    pub keep_as: Option<Box<str>>,
    /// Writes are held back: the switch is near.
    pub frozen: bool,
    /// How far each partition was followed, by its range id.
    pub positions: Vec<(u32, u64)>,
}

/// What a container shall become.
#[derive(Clone, Debug, Default)]
pub struct RepartitionRequest {
    /// The new partition key definition.
    pub partition_key: Value,
    /// The new synthetic key; none if items carry their key.
    pub synthetic_key: Option<Value>,
    pub keep_as: Option<String>,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepartitionStatus {
    /// `copying`, `verifying`, `switching`, `done` or `failed`.
    pub phase: &'static str,
    pub items: u64,
    pub copied: u64,
    pub removed: u64,
    pub compared: u64,
    /// The sum over all items that were compared, the same on both sides.
    pub checksum: Option<u128>,
    pub message: Option<String>,
    pub kept_as: Option<String>,
}

impl RepartitionStatus {
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
        object.set("phase", self.phase.into());
        for (name, count) in [
            ("items", self.items),
            ("copied", self.copied),
            ("removed", self.removed),
            ("compared", self.compared),
        ] {
            object.set(name, number(count));
        }
        if let Some(checksum) = self.checksum {
            object.set("checksum", format!("{checksum:032x}").as_str().into());
        }
        for (name, text) in [("message", &self.message), ("keptAs", &self.kept_as)] {
            if let Some(text) = text {
                object.set(name, text.as_str().into());
            }
        }
        object.into()
    }
}

/// What is under way or was, by the path of the container.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<HashMap<String, (RepartitionStatus, Option<tokio::task::AbortHandle>)>>);

impl Progress {
    fn update(&self, path: &str, edit: impl FnOnce(&mut RepartitionStatus)) {
        edit(&mut self.0.lock().entry(path.to_owned()).or_default().0);
    }

    /// Ends what is under way; the catalog knows where to go on.
    pub(crate) fn stop(&self) {
        for (_, handle) in self.0.lock().values() {
            if let Some(handle) = handle {
                handle.abort();
            }
        }
    }
}

impl Database {
    /// Begins, or goes on with, the change of a container's key; it is done in the background.
    pub async fn repartition(
        self: &Arc<Self>,
        (database, container): (&str, &str),
        request: &RepartitionRequest,
    ) -> Result<RepartitionStatus> {
        let source = Arc::clone(self.catalog.snapshot().container(database, container)?);
        if source.repartition.is_some() {
            self.run_in_background(&source);
            return self.repartition_status(database, container);
        }
        // Writers of other processes would not know that the container is frozen for the switch.
        if self.is_shared() {
            return Err(Error::not_implemented(
                "Repartitioning is not supported on a store that several servers may share.",
            ));
        }
        let mut body = source.definition.to_value();
        let object = body.as_object_mut().ok_or_else(|| Error::internal("a definition is no object"))?;
        let name = source.definition.id.as_str().to_owned();
        object.set("id", format!("{name}.repartitioning").into());
        object.set("partitionKey", request.partition_key.clone());
        object.set(SYNTHETIC_KEY, request.synthetic_key.clone().unwrap_or(Value::Null));
        let catalog = self.catalog.snapshot();
        if let Some(keep_as) = &request.keep_as
            && catalog.container(database, keep_as).is_ok()
        {
            return Err(crate::catalog::already_exists());
        }
        let offer = catalog.offer_of(OfferOwner::Container(source.rid));
        let throughput = offer.map(|offer| offer.document.throughput);
        let made = self
            .create_container(&mut Trace::default(), database, body.to_json().as_bytes(), throughput)
            .await?;
        let target = made.value.get("_rid").and_then(Value::as_str).and_then(ContainerRid::parse);
        let target = target.ok_or_else(|| Error::internal("a container has no RID"))?;
        // A split that is under way must end first: no further one begins while this is recorded.
        let reshaping = self.reshapings.lock().await;
        let begun = self
            .catalog
            .change(|change| {
                let current = Arc::clone(existing(&change.catalog, source.rid)?);
                if current.repartition.is_some() {
                    return Err(is_locked());
                }
                let mut index = current.index.clone();
                index.version += 1;
                let keep_as = request.keep_as.as_deref().map(Into::into);
                let repartition = Repartition { target, keep_as, frozen: false, positions: Vec::new() };
                let container =
                    Container { index, repartition: Some(repartition), ..Container::clone(&current) };
                change.put_container(container.clone());
                Ok(container)
            })
            .await;
        let fenced = match begun {
            Ok(container) => self.fence_writers(&container).await.map(|()| Arc::new(container)),
            Err(error) => Err(error),
        };
        drop(reshaping);
        match fenced {
            Ok(container) => self.run_in_background(&container),
            Err(error) => {
                self.delete_by_rid(target).await?;
                return Err(error);
            }
        }
        self.repartition_status(database, &name)
    }

    pub fn repartition_status(&self, database: &str, container: &str) -> Result<RepartitionStatus> {
        let catalog = self.catalog.snapshot();
        let path = catalog.container(database, container)?.alt_path();
        let known = self.repartitions.0.lock().get(&path).map(|(status, _)| status.clone());
        known.ok_or_else(|| Error::new(ErrorKind::NotFound, "The container is not being repartitioned."))
    }

    /// Gives it up: the container stays as it is, and what was copied goes.
    pub async fn abort_repartition(self: &Arc<Self>, database: &str, container: &str) -> Result<()> {
        let source = Arc::clone(self.catalog.snapshot().container(database, container)?);
        let Some(repartition) = source.repartition.clone() else {
            return Err(Error::new(ErrorKind::NotFound, "The container is not being repartitioned."));
        };
        if let Some((_, Some(handle))) = self.repartitions.0.lock().remove(&source.alt_path()) {
            handle.abort();
        }
        self.catalog
            .change(|change| {
                let current = Arc::clone(existing(&change.catalog, source.rid)?);
                change.put_container(Container { repartition: None, ..Container::clone(&current) });
                Ok(())
            })
            .await?;
        self.delete_by_rid(repartition.target).await?;
        self.remove_tombstones(&source).await
    }

    /// Goes on with what an earlier run of the server did not finish.
    pub(crate) async fn resume_repartitions(self: &Arc<Self>) -> Result<()> {
        if self.is_shared() {
            return Ok(());
        }
        let waiting: Vec<Arc<Container>> =
            self.catalog.snapshot().containers().filter(|each| each.repartition.is_some()).cloned().collect();
        for source in waiting {
            self.freeze(source.rid, false).await?;
            self.run_in_background(&source);
        }
        Ok(())
    }

    fn run_in_background(self: &Arc<Self>, source: &Container) {
        let (rid, path) = (source.rid, source.alt_path());
        let mut known = self.repartitions.0.lock();
        if known.get(&path).is_some_and(|(_, handle)| handle.as_ref().is_some_and(|task| !task.is_finished()))
        {
            return;
        }
        let database = Arc::clone(self);
        let name = path.clone();
        let task = tokio::spawn(async move {
            if let Err(error) = database.run_repartition(rid, &name).await {
                tracing::warn!(%error, container = %name, "repartitioning stopped");
                // The container serves writes again; the work may be resumed or given up.
                database.freeze(rid, false).await.ok();
                database.repartitions.update(&name, |status| {
                    status.phase = "failed";
                    status.message = Some(error.message.clone());
                });
            }
        });
        let status = RepartitionStatus { phase: "copying", ..RepartitionStatus::default() };
        known.insert(path, (status, Some(task.abort_handle())));
    }

    async fn run_repartition(self: &Arc<Self>, rid: ContainerRid, path: &str) -> Result<()> {
        let mut follower = follow::Follower::new(self, rid, path)?;
        follower.catch_up().await?;
        self.repartitions.update(path, |status| status.phase = "verifying");
        let mut verified = verify::Verification::pass(self, &mut follower).await?;
        follower.catch_up().await?;
        self.repartitions.update(path, |status| status.phase = "switching");
        self.freeze(rid, true).await?;
        follower.follow_to_the_end().await?;
        verified.finish(self, &follower).await?;
        self.repartitions.update(path, |status| {
            status.items = verified.items;
            status.checksum = Some(verified.checksum);
        });
        let kept_as = self.switch(rid).await?;
        self.repartitions.update(path, |status| {
            status.phase = "done";
            status.kept_as = kept_as.map(String::from);
        });
        Ok(())
    }

    async fn delete_by_rid(self: &Arc<Self>, rid: ContainerRid) -> Result<()> {
        let found = self.catalog.snapshot().container_by_rid(rid).cloned();
        let Some(container) = found else { return Ok(()) };
        let place = (&*container.database_id, container.definition.id.as_str());
        self.delete_container(&mut Trace::default(), place, None).await
    }
}

/// The error for what cannot be done while a container gets another key.
pub(crate) fn is_locked() -> Error {
    Error::new(ErrorKind::Locked, "The container is being repartitioned: this must wait until that is done.")
}
