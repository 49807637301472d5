//! Letting requests pass: the budgets of all partitions, found by what a request visits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orrery_model::rid::DatabaseRid;
use orrery_model::{Error, ErrorKind, Result};
use orrery_storage::PartitionId;
use parking_lot::RwLock;

use super::budget::Budget;
use super::heat::{Events, Heat, PartitionHeat, ThrottleEvent};
use crate::catalog::{Catalog, Container, OfferOwner, Partition};
use crate::{Database, Trace};

/// Which budget a partition lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// Its own: the container has an offer.
    Partition(PartitionId),
    /// A part of the database's offer, shared with partitions of other containers.
    Shared(DatabaseRid, u32),
}

/// A budget with what is known of its load.
#[derive(Debug, Default)]
struct Account {
    budget: Budget,
    heat: Heat,
    /// The catalog version for which the rate was set.
    rate_version: AtomicU64,
    rate: AtomicU64,
}

/// All budgets.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    accounts: RwLock<HashMap<Place, Arc<Account>>>,
    events: Events,
}

/// A partition that has let a request pass.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    partition: PartitionId,
    account: Arc<Account>,
}

impl Budgets {
    fn account(&self, catalog: &Catalog, container: &Container, partition: &Partition) -> Arc<Account> {
        let (place, rate) = rate_of(catalog, container, partition);
        let found = self.accounts.read().get(&place).cloned();
        let account = found.unwrap_or_else(|| Arc::clone(self.accounts.write().entry(place).or_default()));
        if account.rate_version.swap(catalog.version, Ordering::AcqRel) != catalog.version {
            account.rate.store(rate, Ordering::Relaxed);
            account.budget.set_rate(rate);
        }
        account
    }

    /// Forgets a partition that is gone.
    pub(crate) fn forget(&self, partition: PartitionId) {
        self.accounts.write().remove(&Place::Partition(partition));
    }

    /// Forgets whatever the catalog no longer has.
    pub(crate) fn keep_only(&self, catalog: &Catalog) {
        let places: std::collections::HashSet<Place> = catalog
            .containers()
            .flat_map(|container| container.partitions.iter().map(move |partition| (container, partition)))
            .map(|(container, partition)| rate_of(catalog, container, partition).0)
            .collect();
        self.accounts.write().retain(|place, _| places.contains(place));
    }
}

/// Where a partition's budget is, and how much it has per second.
fn rate_of(catalog: &Catalog, container: &Container, partition: &Partition) -> (Place, u64) {
    let own = catalog.offer_of(OfferOwner::Container(container.rid));
    if let Some(offer) = own {
        let parts = container.partitions.len().max(1) as u64;
        let rate = u64::from(offer.document.throughput.maximum()) / parts;
        return (Place::Partition(partition.store.id), rate.max(1));
    }
    let database = container.rid.database();
    let Some(offer) = catalog.offer_of(OfferOwner::Database(database)) else {
        return (Place::Partition(partition.store.id), 0);
    };
    let parts = offer.document.throughput.partition_count().max(1);
    let rate = u64::from(offer.document.throughput.maximum() / parts);
    (Place::Shared(database, partition.store.id.0 % parts), rate.max(1))
}

impl Database {
    /// Lets the request pass to this partition, once. Whoever exceeds the partition's budget must wait.
    pub(crate) fn admit(
        &self,
        trace: &mut Trace,
        container: &Container,
        partition: &Partition,
    ) -> Result<()> {
        if trace.admitted.iter().any(|admitted| admitted.partition == partition.store.id) {
            return Ok(());
        }
        let catalog = self.catalog.snapshot();
        let account = self.budgets.account(&catalog, container, partition);
        let now_ms = self.env.now_ms();
        if self.options.throttle
            && let Err(throttled) = account.budget.admit(now_ms, trace.priority)
        {
            let key_share_percent = account.heat.throttled(trace.key.as_deref());
            self.budgets.events.push(ThrottleEvent {
                at_ms: now_ms,
                container: container.alt_path(),
                range_id: partition.range_id,
                key: trace.key.clone(),
                key_share_percent,
                budget_per_second: account.rate.load(Ordering::Relaxed),
                retry_after_ms: throttled.retry_after_ms,
            });
            return Err(Error::new(
                ErrorKind::TooManyRequests { retry_after_ms: throttled.retry_after_ms },
                "Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429",
            ));
        }
        trace.admitted.push(Admitted { partition: partition.store.id, account });
        Ok(())
    }

    /// Charges the partitions that have served a request, each with its part.
    pub fn settle(&self, trace: &Trace) {
        let parts = trace.admitted.len() as u64;
        if parts == 0 {
            return;
        }
        let now_ms = self.env.now_ms();
        let total = trace.charge.hundredths();
        for (at, admitted) in (0u64..).zip(&trace.admitted) {
            // What does not divide evenly goes to the first ones.
            let share = total / parts + u64::from(at < total % parts);
            let share = orrery_model::Charge::from_hundredths(share);
            admitted.account.budget.settle(now_ms, share, trace.priority);
            admitted.account.heat.used(now_ms.div_euclid(1000), share, trace.key.as_deref());
        }
    }

    /// The load of a partition.
    pub(crate) fn partition_heat(&self, container: &Container, partition: &Partition) -> PartitionHeat {
        let catalog = self.catalog.snapshot();
        let account = self.budgets.account(&catalog, container, partition);
        account.heat.view(self.env.now_seconds(), 10)
    }

    /// The latest requests that had to wait, newest first.
    pub fn throttle_events(&self) -> Vec<ThrottleEvent> {
        self.budgets.events.list()
    }
}
