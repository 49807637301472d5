//! Offers: the provisioned throughput of databases and containers.

use orrery_env::monotonic;
use orrery_model::document::parse_object;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::offer::{Migration, Throughput, check_known_properties};
use orrery_model::rid::OfferRid;
use orrery_model::{Error, ErrorKind, Result, Value};

use orrery_metering::cost;

use super::Resources;
use super::databases::check_etag;
use super::metadata::MetadataReply;
use crate::catalog::{Catalog, Offer, OfferOwner, not_found};
use crate::layout::page_request::PageRequest;
use crate::partition::Receipt;
use crate::query::MetadataPage;

/// An offer and the additional figures of its response.
#[derive(Clone, Debug)]
pub struct OfferReply {
    pub reply: MetadataReply,
    /// The lowest throughput that a replace would accept.
    pub minimum: u32,
    /// Partitions are still being split for the last replace.
    pub pending: bool,
}

impl Resources {
    pub fn read_offer(&self, receipt: &mut Receipt, rid: &str) -> Result<OfferReply> {
        let catalog = self.read_catalog(receipt);
        let offer = find(&catalog, rid)?;
        Ok(self.offer_reply(&catalog, offer))
    }

    pub fn list_offers(&self, receipt: &mut Receipt, page: &PageRequest) -> Result<MetadataPage> {
        let catalog = self.read_catalog(receipt);
        let mut offers: Vec<(String, Value)> = catalog
            .offers
            .values()
            .map(|offer| (offer.document.rid.to_string(), self.offer_value(&catalog, offer)))
            .collect();
        // Pages continue after a RID, so they need its text order.
        offers.sort_by(|a, b| a.0.cmp(&b.0));
        let offers = offers.iter().map(|(rid, value)| (rid.as_str(), value.clone()));
        self.metadata_page("offers", String::new(), page, offers)
    }

    pub async fn replace_offer(
        &self,
        receipt: &mut Receipt,
        rid: &str,
        body: &[u8],
        migration: Option<Migration>,
        if_match: Option<&str>,
    ) -> Result<OfferReply> {
        let body = parse_object(body)?;
        receipt.add(cost::metadata_write());
        if !self.options.lenient {
            check_known_properties(&body)?;
        }
        let share_max = self.partition_throughput_max();
        let replaced = self
            .catalog
            .change(|change| {
                let current = Arc::clone(find(&change.catalog, rid)?);
                check_etag(if_match, current.stamp)?;
                // The splits under way are for the throughput of the last replacement.
                if current.pending {
                    return Err(Error::new(
                        ErrorKind::Locked,
                        "The offer is already being replaced. Please retry when that has finished.",
                    ));
                }
                let sharing = shared_containers(&change.catalog, current.owner);
                let throughput = current.document.parse_replacement(&body, migration, sharing)?;
                let pending = needs_more_partitions(&change.catalog, current.owner, throughput, share_max);
                let mut offer = Offer { stamp: change.stamp, pending, ..Offer::clone(&current) };
                offer.document.set_throughput(throughput, change.stamp.timestamp);
                let reply = self.offer_reply(&change.catalog, &offer);
                change.put_offer(offer);
                Ok(reply)
            })
            .await?;
        if replaced.pending {
            self.wake_maintenance();
        }
        Ok(replaced)
    }

    /// Waits until the partitions match a replaced offer, or until the timeout, and returns the current offer.
    pub async fn wait_for_offer(&self, rid: &str, longest: Duration) -> Result<OfferReply> {
        let deadline = monotonic::timer_now() + longest;
        loop {
            let catalog = self.catalog.snapshot();
            let offer = find(&catalog, rid)?;
            if !offer.pending || monotonic::timer_now() >= deadline {
                return Ok(self.offer_reply(&catalog, offer));
            }
            // Polled, because other processes may complete it.
            orrery_env::task::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn find<'a>(catalog: &'a Catalog, rid: &str) -> Result<&'a Arc<Offer>> {
    OfferRid::parse(rid).and_then(|rid| catalog.offers.get(&rid)).ok_or_else(not_found)
}

/// Whether the share of each partition would exceed the limit.
fn needs_more_partitions(
    catalog: &Catalog,
    owner: OfferOwner,
    throughput: Throughput,
    share_max: u32,
) -> bool {
    // A database's offer is divided into shares, not into partitions.
    let OfferOwner::Container(rid) = owner else { return false };
    let parts = catalog.container_by_rid(rid).map_or(1, |container| container.partitions.len().max(1));
    throughput.maximum().div_ceil(u32::try_from(parts).unwrap_or(u32::MAX)) > share_max
}

/// The number of containers that share a database's offer; it raises the minimum.
fn shared_containers(catalog: &Catalog, owner: OfferOwner) -> Option<u32> {
    let OfferOwner::Database(rid) = owner else { return None };
    let database = catalog.database_by_rid(rid)?;
    let sharing = database.containers.values();
    let sharing =
        sharing.filter(|container| catalog.offer_of(OfferOwner::Container(container.rid)).is_none());
    u32::try_from(sharing.count()).ok()
}

impl Resources {
    fn offer_reply(&self, catalog: &Catalog, offer: &Offer) -> OfferReply {
        let value = self.offer_value(catalog, offer);
        let reply = MetadataReply { value, etag: offer.stamp.etag().to_string(), created: false };
        let minimum = offer.document.minimum(shared_containers(catalog, offer.owner));
        OfferReply { reply, minimum, pending: offer.pending }
    }

    fn offer_value(&self, catalog: &Catalog, offer: &Offer) -> Value {
        let throughput = offer.document.throughput;
        // What autoscale has reached is computed from the load, not stored.
        let current = self.scaled_throughput(catalog, offer.owner, throughput.idle(), throughput.maximum());
        let mut value = offer.document.to_value(current);
        if offer.pending
            && let Some(content) = value.as_object_mut().and_then(|offer| offer.get_mut("content"))
            && let Some(content) = content.as_object_mut()
        {
            // The Python client's tests expect it here; elsewhere it is a header.
            content.set("isOfferReplacePending", Value::from(true));
        }
        if let Some(object) = value.as_object_mut() {
            let rid = offer.document.rid;
            offer.stamp.add_system_properties(object, &rid.to_string(), &rid.self_link());
        }
        value
    }
}

impl Resources {
    /// The throughput that a container has of its own, if it has.
    pub fn container_throughput(&self, container: &crate::Container) -> Option<Throughput> {
        let catalog = self.catalog.snapshot();
        catalog.offer_of(OfferOwner::Container(container.rid)).map(|offer| offer.document.throughput)
    }
}
