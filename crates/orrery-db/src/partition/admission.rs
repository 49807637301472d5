//! Admission: the budgets of all partitions, looked up by the partitions a request visits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orrery_model::rid::DatabaseRid;
use orrery_model::{Charge, Error, ErrorKind, Result};
use orrery_storage::PartitionId;
use parking_lot::RwLock;

use orrery_metering::{Budget, Priority, Throttled};

use super::account_limits::AccountLimits;
use super::allowance::Allowances;
use super::heat::{Events, Heat, HeatSecond, PartitionHeat, ThrottleCause, ThrottleEvent};
use super::ledger::{KeyLoad, Ledger, Quota};
use super::{Partitions, Receipt};
use crate::catalog::{Catalog, Container, OfferOwner, Partition};

/// Throughput buckets are numbered from 1 to this.
const BUCKETS_MAX: usize = 5;

/// The budget that a partition uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// Its own: the container has an offer.
    Partition(PartitionId),
    /// A share of the database's offer, shared with partitions of other containers.
    Shared(DatabaseRid, u32),
}

/// A budget and its recent load.
#[derive(Debug, Default)]
struct Account {
    budget: Budget,
    heat: Heat,
    /// Units per second; 0 = there is no limit.
    rate: AtomicU64,
    /// Demand since the last exchange with other processes, including throttled requests, in hundredths.
    demand: AtomicU64,
    /// This process's share of the rate, in thousandths. 0 = all.
    share: AtomicU64,
}

/// A partition's account and its own buckets, as one version of the catalog has them.
#[derive(Clone, Debug)]
struct Known {
    catalog_version: u64,
    account: Arc<Account>,
    buckets: Arc<[Budget; BUCKETS_MAX]>,
    ledger: Arc<Ledger>,
}

/// The service's request units per second for an account's metadata: databases, containers, offers, users …
const METADATA_PER_SECOND: u64 = 240;

/// All budgets.
#[derive(Debug)]
pub(crate) struct Budgets {
    /// The account's budget for everything but items.
    metadata: Budget,
    accounts: RwLock<HashMap<Place, Arc<Account>>>,
    /// Cached accounts by partition, so that a request need not look up its offer.
    known: RwLock<HashMap<PartitionId, Known>>,
    ledger_quota: Quota,
    pub(super) events: Events,
    pub(super) allowances: Allowances,
    pub(super) account_limits: AccountLimits,
    /// The rate up to which partitions may burst.
    burst: u64,
}

impl Budgets {
    /// `burst` is the rate up to which partitions may burst.
    pub(crate) fn new(burst: u64) -> Self {
        let metadata = Budget::default();
        metadata.set_rate(METADATA_PER_SECOND);
        // Starts with a full burst allowance, so that creating many containers at start-up is not throttled.
        metadata.fill_bank();
        Self {
            metadata,
            accounts: RwLock::default(),
            known: RwLock::default(),
            ledger_quota: Quota::default(),
            events: Events::default(),
            allowances: Allowances::default(),
            account_limits: AccountLimits::default(),
            burst,
        }
    }
}

/// A partition that has admitted a request.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    pub(crate) partition: PartitionId,
    account: Arc<Account>,
    ledger: Arc<Ledger>,
    bucket: Option<(Arc<[Budget; BUCKETS_MAX]>, usize)>,
    /// Its share of the work, in any unit: the charge is divided accordingly.
    pub(crate) weight: u64,
}

impl Account {
    /// Sets the budget's rate, or this process's share of it.
    fn apply_rate(&self) {
        let (rate, share) = (self.rate.load(Ordering::Acquire), self.share.load(Ordering::Acquire));
        // At least 1, because 0 would mean that there is no limit.
        let part = if share == 0 || rate == 0 { rate } else { (rate * share / 1000).max(1) };
        self.budget.set_rate(part);
    }
}

impl Place {
    /// The same in every process.
    fn number(self) -> u64 {
        match self {
            Self::Partition(id) => u64::from(id.0),
            // The highest bit keeps these numbers apart from those of partitions.
            Self::Shared(database, part) => 1 << 63 | u64::from(database.0) << 24 | u64::from(part),
        }
    }
}

impl Budgets {
    /// The demand on each budget since the last call, in hundredths, by budget number.
    pub(crate) fn take_demand(&self) -> Vec<(u64, u64)> {
        let accounts = self.accounts.read();
        // Taken and reset in one step, so that demand that arrives meanwhile counts for the next second.
        let all = accounts
            .iter()
            .map(|(place, account)| (place.number(), account.demand.swap(0, Ordering::AcqRel)));
        all.filter(|(_, demand)| *demand > 0).collect()
    }

    /// Sets this process's share of each budget: `share` gets the budget's number and its rate in hundredths.
    pub(crate) fn set_shares(&self, share: impl Fn(u64, u64) -> u64) {
        for (place, account) in self.accounts.read().iter() {
            let rate = account.rate.load(Ordering::Acquire).saturating_mul(100);
            let part = share(place.number(), rate);
            // Only a changed share is applied, which locks the budget.
            if account.share.swap(part, Ordering::AcqRel) != part {
                account.apply_rate();
            }
        }
    }

    fn known(&self, catalog: &Catalog, container: &Container, partition: &Partition) -> Known {
        let id = partition.store.id;
        let found = self.known.read().get(&id).cloned();
        // The catalog's version covers every change of offers and partitions, so an equal one needs no look-up.
        if let Some(known) = found.as_ref().filter(|known| known.catalog_version == catalog.version) {
            return known.clone();
        }
        let (place, rate) = rate_of(catalog, container, partition);
        let account = Arc::clone(self.accounts.write().entry(place).or_insert_with(|| {
            let account = Account::default();
            account.budget.set_burst(self.burst);
            Arc::new(account)
        }));
        if account.rate.swap(rate, Ordering::AcqRel) != rate {
            account.apply_rate();
        }
        // Kept across catalog changes; otherwise each change would forget what was spent in this second.
        let (buckets, ledger) = match found {
            Some(known) => (known.buckets, known.ledger),
            None => (Arc::default(), Arc::new(Ledger::new(&self.ledger_quota))),
        };
        for bucket in &container.definition.throughput_buckets {
            let share = rate.saturating_mul(u64::from(bucket.max_throughput_percentage));
            // Bucket ids are checked to be 1 to 5 when the container is defined.
            buckets[usize::from(bucket.id) - 1].set_hard_rate(share.max(1));
        }
        let known = Known { catalog_version: catalog.version, account, buckets, ledger };
        self.known.write().insert(id, known.clone());
        known
    }

    /// The units per second of a partition, and whether this second's are spent.
    pub(super) fn state(
        &self,
        catalog: &Catalog,
        container: &Container,
        partition: &Partition,
        now_ms: i64,
    ) -> (u64, bool) {
        let account = self.known(catalog, container, partition).account;
        (account.rate.load(Ordering::Relaxed), account.budget.is_spent(now_ms))
    }

    /// Charges background work.
    pub(super) fn settle_for(
        &self,
        catalog: &Catalog,
        container: &Container,
        partition: &Partition,
        (now_ms, charge, priority): (i64, Charge, Priority),
    ) {
        let account = self.known(catalog, container, partition).account;
        account.budget.settle(now_ms, charge, priority);
        account.heat.used(now_ms.div_euclid(1000), charge, None);
    }

    /// What earlier seconds have left over of a partition's throughput; `None` if it has no limit.
    pub(super) fn left_over(
        &self,
        catalog: &Catalog,
        container: &Container,
        partition: &Partition,
        now_ms: i64,
    ) -> Option<Charge> {
        self.known(catalog, container, partition).account.budget.left_over(now_ms)
    }

    /// Charges work that is done with what earlier seconds have left over.
    pub(super) fn spend_left_over(
        &self,
        catalog: &Catalog,
        container: &Container,
        partition: &Partition,
        (now_ms, charge): (i64, Charge),
    ) {
        let account = self.known(catalog, container, partition).account;
        account.budget.spend_left_over(now_ms, charge);
        account.heat.used(now_ms.div_euclid(1000), charge, None);
    }

    /// Drops the state of a removed partition.
    pub(crate) fn forget(&self, partition: PartitionId) {
        self.known.write().remove(&partition);
        self.allowances.forget(partition);
        self.accounts.write().remove(&Place::Partition(partition));
    }

    /// Drops the state of everything that is no longer in the catalog.
    pub(crate) fn keep_only(&self, catalog: &Catalog) {
        let (mut places, mut partitions) = (HashSet::new(), HashSet::new());
        for container in catalog.containers() {
            for partition in &container.partitions {
                partitions.insert(partition.store.id);
                places.insert(rate_of(catalog, container, partition).0);
            }
        }
        self.known.write().retain(|partition, _| partitions.contains(partition));
        self.accounts.write().retain(|place, _| places.contains(place));
    }
}

/// The budget of a partition and its rate.
fn rate_of(catalog: &Catalog, container: &Container, partition: &Partition) -> (Place, u64) {
    let own = catalog.offer_of(OfferOwner::Container(container.rid));
    if let Some(offer) = own {
        // An equal share for each partition, as in the service: a hot one cannot use what the others leave.
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
    // Partitions of all containers are dealt to the shares by number.
    (Place::Shared(database, partition.store.id.0 % parts), rate.max(1))
}

impl Partitions {
    /// Admits the request to this partition, once, or throttles it if the budget is spent.
    pub(crate) fn admit(
        &self,
        receipt: &mut Receipt,
        container: &Container,
        partition: &Partition,
    ) -> Result<()> {
        // A request pays once per partition, however many pages it reads there.
        if receipt.admitted.iter().any(|admitted| admitted.partition == partition.store.id) {
            return Ok(());
        }
        let catalog = self.catalog.snapshot();
        let known = self.budgets.known(&catalog, container, partition);
        let bucket = bucket_of(receipt, container)?;
        let bucket = bucket.map(|number| (Arc::clone(&known.buckets), number - 1));
        if self.options.throttle && !receipt.context().is_own_work {
            let now_ms = self.env.now_ms();
            // The bucket first: it is the narrower limit, and a request refused there must
            // not count against the partition.
            let admitted = match &bucket {
                Some((buckets, at)) => buckets[*at].admit(now_ms, Priority::High).map_err(|throttled| {
                    let number = u8::try_from(at + 1).unwrap_or(u8::MAX);
                    (throttled, ThrottleCause::Bucket(number))
                }),
                None => Ok(()),
            };
            let admitted = admitted.and_then(|()| {
                known.account.budget.admit(now_ms, receipt.context().priority).map_err(|throttled| {
                    // Not spent, yet refused: the rest of the second is kept for high priority.
                    let spent = known.account.budget.is_spent(now_ms);
                    (throttled, if spent { ThrottleCause::Budget } else { ThrottleCause::Priority })
                })
            });
            if let Err((throttled, cause)) = admitted {
                return Err(self.throttled(receipt, container, partition, &known, throttled, cause));
            }
        }
        let Known { account, ledger, .. } = known;
        receipt.admitted.push(Admitted { partition: partition.store.id, account, ledger, bucket, weight: 1 });
        Ok(())
    }

    /// Admits or throttles a metadata request, using the account's budget.
    pub fn admit_metadata(&self, receipt: &mut Receipt) -> Result<()> {
        // Before the check: `settle` charges the account for whatever the request has cost by then.
        receipt.is_metadata = true;
        if !self.options.throttle {
            return Ok(());
        }
        let now_ms = self.env.now_ms();
        let Err(Throttled { retry_after_ms }) = self.budgets.metadata.admit(now_ms, Priority::High) else {
            return Ok(());
        };
        self.budgets.events.push(ThrottleEvent {
            at_ms: now_ms,
            container: None,
            range_id: 0,
            key: None,
            key_share_percent: 0,
            budget_per_second: METADATA_PER_SECOND,
            cause: ThrottleCause::Metadata,
            retry_after_ms,
        });
        Err(Error::new(
            ErrorKind::TooManyRequests { retry_after_ms },
            format!(
                "Request rate is large. The request did not complete due to a high rate of metadata requests. Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429 The account has {METADATA_PER_SECOND} request units per second for metadata."
            ),
        ))
    }

    fn throttled(
        &self,
        receipt: &Receipt,
        container: &Container,
        partition: &Partition,
        Known { account, ledger, .. }: &Known,
        Throttled { retry_after_ms }: Throttled,
        cause: ThrottleCause,
    ) -> Error {
        // The cost of a throttled request is unknown; count at least one unit of demand.
        account.demand.fetch_add(100, Ordering::Relaxed);
        let at_ms = self.env.now_ms();
        ledger.throttled(at_ms.div_euclid(1000), receipt.key.as_deref());
        // Counted where operators look for the cause: in the ledger, in the heat and in the list of events.
        let key_share_percent = account.heat.throttled(at_ms.div_euclid(1000), receipt.key.as_deref());
        self.budgets.events.push(ThrottleEvent {
            at_ms,
            container: Some(container.alt_path()),
            range_id: partition.range_id,
            key: receipt.key.clone(),
            key_share_percent,
            budget_per_second: account.rate.load(Ordering::Relaxed),
            cause,
            retry_after_ms,
        });
        let rate = account.rate.load(Ordering::Relaxed);
        let why = match cause {
            ThrottleCause::Budget | ThrottleCause::Metadata | ThrottleCause::AccountLimit => {
                "this second's budget is spent".to_owned()
            }
            ThrottleCause::Priority => "the rest of this second is reserved for high priority".to_owned(),
            ThrottleCause::Bucket(number) => format!("the share of throughput bucket {number} is spent"),
        };
        let key = receipt.key.as_ref().map_or_else(String::new, |key| {
            format!(" The partition key {key} used {key_share_percent} % of what the range used lately.")
        });
        Error::new(
            ErrorKind::TooManyRequests { retry_after_ms },
            format!(
                "Request rate is large. More Request Units may be needed, so no changes were made. Please retry this request later. Learn more: http://aka.ms/cosmosdb-error-429 Partition key range {} has {rate} request units per second and {} left for bursts; {why}.{key}",
                partition.range_id,
                account.budget.banked(),
            ),
        )
    }

    /// Charges the partitions that have served a request, each with its share.
    pub fn settle(&self, receipt: &Receipt) {
        if receipt.is_metadata {
            self.budgets.metadata.settle(self.env.now_ms(), receipt.charge, Priority::High);
        }
        let weights: u64 = receipt.admitted.iter().map(|admitted| admitted.weight).sum();
        if weights == 0 {
            return;
        }
        let now_ms = self.env.now_ms();
        let mut left = receipt.charge.hundredths();
        let mut weights_left = weights;
        for admitted in &receipt.admitted {
            // Each takes its share of the remainder, so that nothing is lost by rounding.
            let share = u128::from(left) * u128::from(admitted.weight) / u128::from(weights_left);
            let share = u64::try_from(share).expect("a part is no more than the whole");
            (left, weights_left) = (left - share, weights_left - admitted.weight);
            let share = Charge::from_hundredths(share);
            admitted.account.demand.fetch_add(share.hundredths(), Ordering::Relaxed);
            admitted.account.budget.settle(now_ms, share, receipt.context().priority);
            if let Some((buckets, at)) = &admitted.bucket {
                buckets[*at].settle(now_ms, share, Priority::High);
            }
            let (second, key) = (now_ms.div_euclid(1000), receipt.key.as_deref());
            admitted.account.heat.used(second, share, key);
            admitted.ledger.used(second, key, share);
        }
        assert_eq!((left, weights_left), (0, 0), "the parts of a charge add up to it");
    }

    /// The load of a partition, and its request units per second.
    pub(crate) fn partition_heat(
        &self,
        container: &Container,
        partition: &Partition,
    ) -> (PartitionHeat, u64) {
        let catalog = self.catalog.snapshot();
        let account = self.budgets.known(&catalog, container, partition).account;
        let mut heat = account.heat.view(self.env.now_seconds(), 10);
        heat.banked = account.budget.banked();
        (heat, account.rate.load(Ordering::Relaxed))
    }

    /// What logical partitions used over the last minutes.
    pub(crate) fn key_usage<'k>(
        &self,
        container: &Container,
        partition: &Partition,
        minutes: usize,
        keys: impl Iterator<Item = &'k str>,
    ) -> Vec<KeyLoad> {
        let ledger = self.budgets.known(&self.catalog.snapshot(), container, partition).ledger;
        ledger.usage(self.env.now_seconds(), minutes, keys)
    }

    /// What untracked keys and requests without a single key used over the last minutes.
    pub(crate) fn others_usage(
        &self,
        container: &Container,
        partition: &Partition,
        minutes: usize,
    ) -> KeyLoad {
        let ledger = self.budgets.known(&self.catalog.snapshot(), container, partition).ledger;
        ledger.others(self.env.now_seconds(), minutes)
    }

    /// The last seconds of a partition, oldest first.
    pub(crate) fn partition_timeline(
        &self,
        container: &Container,
        partition: &Partition,
        seconds: usize,
    ) -> Vec<HeatSecond> {
        let catalog = self.catalog.snapshot();
        let account = self.budgets.known(&catalog, container, partition).account;
        account.heat.timeline(self.env.now_seconds(), seconds)
    }

    /// The current throughput of an autoscale offer, determined by its busiest partition.
    pub(crate) fn scaled_throughput(&self, catalog: &Catalog, owner: OfferOwner, idle: u32, max: u32) -> u32 {
        let second = self.env.now_seconds();
        // Collected under the lock and evaluated outside of it.
        let places: Vec<Arc<Account>> = {
            let accounts = self.budgets.accounts.read();
            match owner {
                OfferOwner::Container(rid) => {
                    let partitions = catalog.container_by_rid(rid).map(|container| &container.partitions);
                    let ids = partitions.into_iter().flatten().map(|partition| partition.store.id);
                    ids.filter_map(|id| accounts.get(&Place::Partition(id)).cloned()).collect()
                }
                OfferOwner::Database(rid) => {
                    let shared = accounts.iter();
                    let shared =
                        shared.filter(|(place, _)| matches!(place, Place::Shared(of, _) if *of == rid));
                    shared.map(|(_, account)| Arc::clone(account)).collect()
                }
            }
        };
        let needed = places.iter().map(|account| {
            let rate = account.rate.load(Ordering::Relaxed).max(1);
            // Hundredths of the part's rate become units of the whole.
            (account.heat.recent_peak(second).hundredths() * u64::from(max)).div_ceil(rate * 100)
        });
        // The busiest partition decides, because each has an equal share.
        let needed = needed.max().unwrap_or(0);
        u32::try_from(needed).unwrap_or(max).clamp(idle, max)
    }

    /// The latest throttled requests, newest first.
    pub fn throttle_events(&self) -> Vec<ThrottleEvent> {
        self.budgets.events.list()
    }
}

impl Partitions {
    /// Admits and settles this many requests without doing anything else, for benchmarks.
    #[doc(hidden)]
    pub fn admission_benchmark(&self, (database, container): (&str, &str), keys: &[String], rounds: u64) {
        let catalog = self.catalog.snapshot();
        let Ok(container) = catalog.container(database, container) else { return };
        for key in keys.iter().cycle().zip(0..rounds).map(|(key, _)| key) {
            let mut receipt = Receipt::default();
            receipt.key = Some(key.clone());
            // Charges nothing, so that none is throttled, which would measure something else.
            let _refused = self.admit(&mut receipt, container, &container.partitions[0]).is_err();
            self.settle(&receipt);
        }
    }
}

/// The throughput bucket of a request. A container without buckets ignores it.
fn bucket_of(receipt: &Receipt, container: &Container) -> Result<Option<usize>> {
    let buckets = &container.definition.throughput_buckets;
    let Some(number) = receipt.context().bucket.filter(|_| !buckets.is_empty()) else { return Ok(None) };
    if buckets.iter().any(|bucket| bucket.id == number) {
        return Ok(Some(usize::from(number)));
    }
    Err(Error::bad_request(format!(
        "One of the input values is invalid. The container has no throughput bucket {number}."
    )))
}
