//! Changes a container's partition key online: `orrery containers repartition`.
//!
//! 1. A second container with the new key is created and recorded with the first. From then on every write stores the
//!    version it replaces as a tombstone (`tombstone.rs`); the partitions record a new index version, so that no write
//!    can miss this.
//! 2. The change feed of each partition is followed from its beginning, which copies everything, together with the
//!    tombstones, until little is left (`follow.rs`). Positions are recorded, and a restart resumes from there.
//! 3. Both containers are scanned; each item is compared with its counterpart, counted and checksummed (`verify.rs`).
//! 4. Writes are frozen. The rest of the feed is followed, items changed since the comparison are compared again, and
//!    one catalog change gives the second container the name of the first, which is renamed or dropped. Frozen writes
//!    then retry with the new container.
//!
//! With several servers on one store, the one that holds the duty does this; another takes over if it dies. Each run
//! has a name in the catalog. A server that takes over writes a new name and advances the index version of the second
//! container's partitions, so that a suspended run can no longer write.
//!
//! Stopping before the catalog change in step 4 loses nothing: the first container keeps serving, and the work can be
//! resumed or aborted. Meanwhile partitions of the first container neither split nor merge, its definition cannot be
//! replaced, and its items cannot be deleted by partition key.

mod follow;
mod switch;
mod verify;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use orrery_model::container::ContainerDefinition;
use orrery_model::rid::ContainerRid;
use orrery_model::{Error, ErrorKind, Object, Result, Value};
use orrery_storage::Duty;
use parking_lot::Mutex;

use super::Lifecycle;
use crate::catalog::{Catalog, Container, OfferOwner, SYNTHETIC_KEY, existing};
use crate::catalog::{Repartition, RepartitionRun, Repartitioned, given_up, is_locked};
use crate::partition::Receipt;

/// How often to check whether the process that does the work has died.
const TURN_INTERVAL: Duration = Duration::from_secs(1);

/// After this time an unrecorded target container is considered left over from a crash.
const LEFTOVER_SECONDS: i64 = 60;

/// The requested new key.
#[derive(Clone, Debug, Default)]
pub struct RepartitionRequest {
    /// The new partition key definition.
    pub partition_key: Value,
    /// The new synthetic key; none if items carry their key.
    pub synthetic_key: Option<Value>,
    pub keep_as: Option<String>,
}

/// The progress of a repartitioning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepartitionStatus {
    /// `copying`, `verifying`, `switching`, `done` or `failed`.
    pub phase: &'static str,
    /// The number of items when it started or resumed; at the end, the number copied.
    pub items: u64,
    pub copied: u64,
    pub removed: u64,
    pub compared: u64,
    /// The checksum over all compared items, identical on both sides.
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

/// Current and past runs of this process, by container path.
#[derive(Debug, Default)]
pub(crate) struct CopyProgress(Mutex<HashMap<String, Known>>);

#[derive(Debug, Default)]
struct Known {
    /// None while another process does the work.
    status: Option<RepartitionStatus>,
    task: Option<tokio::task::AbortHandle>,
}

impl CopyProgress {
    fn update(&self, path: &str, edit: impl FnOnce(&mut RepartitionStatus)) {
        edit(self.0.lock().entry(path.to_owned()).or_default().status.get_or_insert_default());
    }

    fn get(&self, path: &str) -> Option<RepartitionStatus> {
        self.0.lock().get(path).and_then(|known| known.status.clone())
    }

    /// Stops current runs; the catalog records where to resume.
    pub(crate) fn stop(&self) {
        for known in self.0.lock().values() {
            if let Some(task) = &known.task {
                task.abort();
            }
        }
    }
}

impl Lifecycle {
    /// Starts or resumes a repartitioning in the background.
    pub async fn repartition(
        self: &Arc<Self>,
        (database, container): (&str, &str),
        request: &RepartitionRequest,
    ) -> Result<RepartitionStatus> {
        let source = Arc::clone(self.catalog.snapshot().container(database, container)?);
        // The same command again resumes: it clears the failure that had stopped the work.
        if source.repartition.is_some() {
            let again = |own: &mut Repartition| {
                own.failure = None;
                Ok(())
            };
            match self.edit_repartition(source.rid, again).await {
                Ok(()) => self.run_in_background(&source),
                // It has just ended: the container that now has the name shows the result.
                Err(error) if error.kind == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            return self.repartition_status(database, container);
        }
        // The new container is created from the old definition with another key, so indexing,
        // lifetimes and unique keys stay.
        let mut body = source.definition.to_value();
        let object = body.as_object_mut().ok_or_else(|| Error::internal("a definition is no object"))?;
        let name = source.definition.id.as_str().to_owned();
        object.set("id", format!("{name}.repartitioning").into());
        object.set("partitionKey", request.partition_key.clone());
        object.set(SYNTHETIC_KEY, request.synthetic_key.clone().unwrap_or(Value::Null));
        // Parsed as a client's definition, which normalises it for the comparison below.
        let wanted = ContainerDefinition::create(&body)?.partition_key;
        let own = source.definition.to_value();
        if wanted == source.definition.partition_key
            && own.get(SYNTHETIC_KEY) == request.synthetic_key.as_ref()
        {
            // The command may be a repetition because the server stopped before it could respond.
            if source.repartitioned.is_some() {
                return self.repartition_status(database, container);
            }
            let message = Some("The container already has this key.".to_owned());
            return Ok(RepartitionStatus { phase: "done", message, ..RepartitionStatus::default() });
        }
        let catalog = self.catalog.snapshot();
        // Checked now, because the name is needed only at the very end. The cut-over checks it again.
        if let Some(keep_as) = &request.keep_as
            && catalog.container(database, keep_as).is_ok()
        {
            return Err(crate::catalog::already_exists());
        }
        self.remove_leftover(database, &format!("{name}.repartitioning")).await?;
        let offer = catalog.offer_of(OfferOwner::Container(source.rid));
        let throughput = offer.map(|offer| offer.document.throughput);
        // Created before it is recorded: a crash in between leaves an empty container, which the next attempt removes.
        let made = self
            .create_container(&mut Receipt::default(), database, body.to_json().as_bytes(), throughput)
            .await?;
        let target = made.value.get("_rid").and_then(Value::as_str).and_then(ContainerRid::parse);
        let target = target.ok_or_else(|| Error::internal("a container has no RID"))?;
        // A split in progress must finish first; no new one starts while this is recorded.
        let reshaping = self.lock_reshaping().await?;
        let begun = self
            .catalog
            .change(|change| {
                let current = Arc::clone(existing(&change.catalog, source.rid)?);
                // Another request was faster; its target is the one that counts.
                if current.repartition.is_some() {
                    return Err(is_locked());
                }
                let mut index = current.index.clone();
                // Writes prepared with the old version are rejected and retried, and then leave tombstones.
                index.version += 1;
                let keep_as = request.keep_as.as_deref().map(Into::into);
                let repartition = Repartition {
                    target,
                    keep_as,
                    frozen: false,
                    positions: Vec::new(),
                    run: 0,
                    failure: None,
                    copied: 0,
                    removed: 0,
                };
                let container =
                    Container { index, repartition: Some(repartition), ..Container::clone(&current) };
                change.put_container(container.clone());
                Ok(container)
            })
            .await;
        reshaping.release().await;
        match begun {
            Ok(container) => self.run_in_background(&container),
            Err(error) => {
                // Not recorded, so nobody else knows the new container.
                self.delete_by_rid(target).await?;
                return Err(error);
            }
        }
        self.repartition_status(database, &name)
    }

    pub fn repartition_status(&self, database: &str, container: &str) -> Result<RepartitionStatus> {
        let catalog = self.catalog.snapshot();
        let container = catalog.container(database, container)?;
        let here = self.repartitions.get(&container.alt_path());
        if let Some(own) = &container.repartition {
            // The counters in memory are newer than the recorded ones.
            if let Some(here) = here.filter(|_| own.failure.is_none()) {
                return Ok(here);
            }
            return Ok(RepartitionStatus {
                phase: match &own.failure {
                    Some(_) => "failed",
                    None if own.frozen => "switching",
                    None => "copying",
                },
                copied: own.copied,
                removed: own.removed,
                message: own.failure.as_deref().map(str::to_owned),
                ..RepartitionStatus::default()
            });
        }
        let Some(done) = &container.repartitioned else {
            return Err(Error::new(ErrorKind::NotFound, "The container is not being repartitioned."));
        };
        Ok(RepartitionStatus {
            phase: "done",
            items: done.items,
            copied: done.copied,
            removed: done.removed,
            compared: done.compared,
            checksum: Some(done.checksum),
            message: None,
            kept_as: done.kept_as.as_deref().map(str::to_owned),
        })
    }

    /// Aborts it: the container is unchanged, and the copies are dropped.
    pub async fn abort_repartition(self: &Arc<Self>, database: &str, container: &str) -> Result<()> {
        let source = Arc::clone(self.catalog.snapshot().container(database, container)?);
        // Stops the run of this process. One in another process notices that its record is gone.
        if let Some(Known { task: Some(task), .. }) = self.repartitions.0.lock().remove(&source.alt_path()) {
            task.abort();
        }
        let (source, target) = self
            .catalog
            .change(|change| {
                let current = Arc::clone(existing(&change.catalog, source.rid)?);
                let Some(own) = &current.repartition else {
                    return Err(Error::new(ErrorKind::NotFound, "The container is not being repartitioned."));
                };
                // Stale writers would otherwise keep writing tombstones.
                let mut index = current.index.clone();
                index.version += 1;
                let container = Container { index, repartition: None, ..Container::clone(&current) };
                change.put_container(container.clone());
                Ok((container, own.target))
            })
            .await?;
        // After this no write can leave another tombstone, so that all of them can be removed.
        self.fence_writers(&source).await?;
        self.delete_by_rid(target).await?;
        self.remove_tombstones(&source).await
    }

    /// Resumes repartitionings that an earlier run or another server left unfinished.
    pub(crate) fn resume_repartitions(self: &Arc<Self>) {
        let catalog = self.catalog.snapshot();
        let pending = |own: &Repartition| own.failure.is_none();
        for source in catalog.containers().filter(|each| each.repartition.as_ref().is_some_and(pending)) {
            self.run_in_background(source);
        }
    }

    fn run_in_background(self: &Arc<Self>, source: &Container) {
        let (rid, path) = (source.rid, source.alt_path());
        let mut known = self.repartitions.0.lock();
        let known = known.entry(path.clone()).or_default();
        // One run per container in this process; the duty keeps other processes out.
        if known.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        known.status = None;
        // Weak, so that a long copy does not keep a closed database alive.
        let database = Arc::downgrade(self);
        let task = orrery_env::task::spawn("repartition", async move {
            if let Err(error) = take_turn(&database, rid, &path).await {
                tracing::warn!(%error, container = %path, "repartitioning stopped");
            }
        });
        known.task = Some(task.abort_handle());
    }

    /// Does the work while holding the duty, and records the result.
    async fn run_recorded(self: &Arc<Self>, rid: ContainerRid, path: &str) -> Result<()> {
        self.repartitions.update(path, |status| {
            *status = RepartitionStatus { phase: "copying", ..RepartitionStatus::default() };
        });
        // A new name for every run: the old name is how a run that was taken over recognises that it lost.
        let run = RepartitionRun { source: rid, name: self.env.random_u64() };
        let ran = match self.claim(run).await {
            Ok(()) => self.run_repartition(run, path).await,
            Err(error) => Err(error),
        };
        let Err(error) = ran else { return Ok(()) };
        // Neither the record nor the freeze is touched: whoever gets the duty next continues.
        if may_pass(&error) && self.is_shared() {
            return Err(error);
        }
        // The container accepts writes again; the work can be resumed or aborted.
        let message: Box<str> = error.message.as_str().into();
        let recorded = self.edit_repartition(rid, |own| {
            // Another process may have taken over, and its freeze must stay.
            if own.run == run.name {
                own.frozen = false;
                own.failure = Some(message);
            }
            Ok(())
        });
        if let Err(error) = recorded.await {
            tracing::debug!(%error, "a failure is not recorded");
        }
        self.repartitions.0.lock().entry(path.to_owned()).or_default().status = None;
        Err(error)
    }

    /// Makes this run the one that may write, and unfreezes the container; writes leave tombstones from now on.
    async fn claim(&self, run: RepartitionRun) -> Result<()> {
        let (source, target) = self
            .catalog
            .change(|change| {
                let source = Arc::clone(existing(&change.catalog, run.source)?);
                let own = source.repartition.clone().ok_or_else(given_up)?;
                let target = Arc::clone(existing(&change.catalog, own.target)?);
                // Unfrozen, in case the run before died between the freeze and the cut-over.
                let repartition = Some(Repartition { run: run.name, frozen: false, ..own });
                let source = Container { repartition, ..Container::clone(&source) };
                change.put_container(source.clone());
                // Fences the copies that a suspended run may still have under way.
                let mut index = target.index.clone();
                index.version += 1;
                let target = Container { index, ..Container::clone(&target) };
                change.put_container(target.clone());
                Ok((source, target))
            })
            .await?;
        self.fence_writers(&source).await?;
        self.fence_writers(&target).await
    }

    async fn edit_repartition(
        &self,
        rid: ContainerRid,
        edit: impl FnOnce(&mut Repartition) -> Result<()>,
    ) -> Result<()> {
        self.catalog
            .change(|change| {
                let current = Arc::clone(existing(&change.catalog, rid)?);
                let mut own = current.repartition.clone().ok_or_else(given_up)?;
                edit(&mut own)?;
                change.put_container(Container { repartition: Some(own), ..Container::clone(&current) });
                Ok(())
            })
            .await
    }

    async fn run_repartition(self: &Arc<Self>, run: RepartitionRun, path: &str) -> Result<()> {
        let mut follower = follow::Follower::new(self, run, path)?;
        let source = Arc::clone(&follower.source);
        let usage = self.container_usage(&source.database_id, source.definition.id.as_str()).await?;
        let items = usage.iter().map(|(_, usage)| usage.items).sum();
        self.repartitions.update(path, |status| status.items = items);
        // Step 2: copy everything, from the recorded positions on.
        follower.catch_up().await?;
        self.repartitions.update(path, |status| status.phase = "verifying");
        // Step 3: compare while writes continue; what changes meanwhile is looked at again in step 4.
        let mut verified = verify::Verification::pass(self, &mut follower).await?;
        follower.catch_up().await?;
        self.repartitions.update(path, |status| status.phase = "switching");
        // Step 4: from here to the catalog change, writers wait.
        self.freeze(run).await?;
        follower.follow_to_the_end().await?;
        verified.finish(self, &follower).await?;
        let counted = self.repartitions.get(path).unwrap_or_default();
        let done = Repartitioned {
            items: verified.items,
            copied: counted.copied,
            removed: counted.removed,
            compared: counted.compared,
            checksum: verified.checksum,
            kept_as: None,
            former_key: None,
        };
        self.switch(run, done).await
    }

    /// Removes the empty target container of a repartitioning that was never recorded.
    async fn remove_leftover(self: &Arc<Self>, database: &str, name: &str) -> Result<()> {
        let catalog = self.catalog.snapshot();
        let Ok(leftover) = catalog.container(database, name) else { return Ok(()) };
        let is_target = |other: &Arc<Container>| {
            other.repartition.as_ref().is_some_and(|repartition| repartition.target == leftover.rid)
        };
        // Another request or server may just have created it and not recorded it yet.
        let is_old = self.env.now_seconds() - leftover.stamp.timestamp >= LEFTOVER_SECONDS;
        let usage = self.container_usage(database, name).await?;
        let is_empty = usage.iter().all(|(_, usage)| usage.items == 0);
        // All three must hold: deleting a container that somebody needs is worse than a leftover.
        if is_old && is_empty && !catalog.containers().any(is_target) {
            self.delete_by_rid(leftover.rid).await?;
        }
        Ok(())
    }

    async fn delete_by_rid(self: &Arc<Self>, rid: ContainerRid) -> Result<()> {
        let found = self.catalog.snapshot().container_by_rid(rid).cloned();
        let Some(container) = found else { return Ok(()) };
        let place = (&*container.database_id, container.definition.id.as_str());
        self.delete_container(&mut Receipt::default(), place, None).await
    }
}

/// The store is temporarily unavailable, as in a failover: retry.
fn may_pass(error: &Error) -> bool {
    error.kind == ErrorKind::Unavailable
}

/// Waits for the duty, then does the work if it is still pending.
async fn take_turn(database: &Weak<Lifecycle>, rid: ContainerRid, path: &str) -> Result<()> {
    loop {
        let Some(database) = database.upgrade() else { return Ok(()) };
        let pending = |catalog: &Catalog| {
            let source = catalog.container_by_rid(rid)?;
            source.repartition.as_ref().filter(|own| own.failure.is_none()).map(drop)
        };
        if pending(&database.catalog.snapshot()).is_none() {
            return Ok(());
        }
        let duty: Option<Box<dyn Duty>> = match database.store.coordination() {
            None => return database.run_recorded(rid, path).await,
            Some(coordination) => {
                // An error counts as not having the duty: try again later.
                coordination.try_duty(&format!("repartition:{rid}")).await.unwrap_or_else(|error| {
                    tracing::warn!(%error, container = %path, "repartitioning waits for the store");
                    None
                })
            }
        };
        if let Some(duty) = duty {
            // The process that had the duty before may have finished the work.
            let refreshed = database.catalog.refresh().await;
            let ran = match refreshed {
                Ok(()) if pending(&database.catalog.snapshot()).is_some() => {
                    database.run_recorded(rid, path).await
                }
                refreshed => refreshed,
            };
            duty.release().await;
            match ran {
                Err(error) if may_pass(&error) => {
                    tracing::warn!(%error, container = %path, "repartitioning waits for the store");
                }
                ran => return ran,
            }
        }
        // Not held while sleeping, so that the database can close.
        drop(database);
        orrery_env::task::sleep(TURN_INTERVAL).await;
    }
}
