//! Offers: the throughput that a database or a container has been given.

use std::sync::Arc;

use orrery_model::offer::{self, Minimum, Throughput};
use orrery_model::rid::OfferRid;
use orrery_model::{Object, Result, Value};

use crate::catalog::{Catalog, Offer, OfferOwner, not_found};
use crate::databases::check_etag;
use crate::items::body::parse_object;
use crate::metadata::{MetadataPage, MetadataReply, PageRequest};
use crate::{Database, Trace, cost};

/// An offer with what its response headers say.
#[derive(Clone, Debug)]
pub struct OfferReply {
    pub reply: MetadataReply,
    /// The lowest throughput that a replace would accept.
    pub minimum: u32,
}

/// A switch between the two kinds of throughput, asked for by header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferMigration {
    ToAutoscale,
    ToManual,
}

impl Database {
    pub fn read_offer(&self, trace: &mut Trace, rid: &str) -> Result<OfferReply> {
        trace.add(cost::metadata_read());
        let catalog = self.catalog.snapshot();
        let offer = find(&catalog, rid)?;
        Ok(reply(&catalog, offer))
    }

    pub fn list_offers(&self, trace: &mut Trace, page: &PageRequest) -> Result<MetadataPage> {
        trace.add(cost::metadata_read());
        let catalog = self.catalog.snapshot();
        let mut offers: Vec<(String, Value)> =
            catalog.offers.values().map(|offer| (offer.rid.to_string(), offer_value(offer))).collect();
        offers.sort_by(|a, b| a.0.cmp(&b.0));
        let offers = offers.iter().map(|(rid, value)| (rid.as_str(), value.clone()));
        self.metadata_page("offers", String::new(), page, offers)
    }

    pub async fn replace_offer(
        &self,
        trace: &mut Trace,
        rid: &str,
        body: &[u8],
        migration: Option<OfferMigration>,
        if_match: Option<&str>,
    ) -> Result<OfferReply> {
        let body = parse_object(body)?;
        trace.add(cost::metadata_write());
        self.catalog
            .change(|change| {
                let current = Arc::clone(find(&change.catalog, rid)?);
                check_etag(if_match, current.stamp)?;
                let minimum = minimum(&change.catalog, &current);
                let throughput = match migration {
                    Some(OfferMigration::ToAutoscale) => current.throughput.to_autoscale(),
                    Some(OfferMigration::ToManual) => current.throughput.to_manual(),
                    None => offer::replacement(&body, current.throughput, minimum)?,
                };
                let offer = Offer {
                    throughput,
                    highest_ever: current.highest_ever.max(throughput.maximum()),
                    stamp: change.stamp,
                    ..Offer::clone(&current)
                };
                let reply = reply(&change.catalog, &offer);
                change.put_offer(offer);
                Ok(reply)
            })
            .await
    }
}

fn find<'a>(catalog: &'a Catalog, rid: &str) -> Result<&'a Arc<Offer>> {
    OfferRid::parse(rid).and_then(|rid| catalog.offers.get(&rid)).ok_or_else(not_found)
}

fn reply(catalog: &Catalog, offer: &Offer) -> OfferReply {
    let reply = MetadataReply { value: offer_value(offer), etag: offer.stamp.etag().to_string(), created: false };
    OfferReply { reply, minimum: minimum(catalog, offer).of(offer.throughput) }
}

/// How far down this offer may go.
fn minimum(catalog: &Catalog, offer: &Offer) -> Minimum {
    let shared_containers = match offer.owner {
        OfferOwner::Container(_) => None,
        OfferOwner::Database(rid) => catalog.database_by_rid(rid).map(|database| {
            let sharing = database.containers.values().filter(|container| {
                catalog.offer_of(OfferOwner::Container(container.rid)).is_none()
            });
            u32::try_from(sharing.count()).unwrap_or(u32::MAX)
        }),
    };
    Minimum { highest_ever: offer.highest_ever, storage_gb: 0, shared_containers }
}

fn offer_value(offer: &Offer) -> Value {
    let (self_link, owner_rid) = match offer.owner {
        OfferOwner::Database(rid) => (rid.self_link(), rid.to_string()),
        OfferOwner::Container(rid) => (rid.self_link(), rid.to_string()),
    };
    let mut object = Object::new();
    object.set("resource", Value::from(self_link));
    object.set("offerType", Value::from("Invalid"));
    object.set("offerResourceId", Value::from(owner_rid));
    object.set("offerVersion", Value::from("V2"));
    object.set("content", offer.throughput.content(offer.highest_ever));
    object.set("id", Value::from(offer.rid.to_string()));
    offer.stamp.add_system_properties(&mut object, &offer.rid.to_string(), &offer.rid.self_link());
    object.into()
}

impl Database {
    /// The throughput that a container has of its own, if it has.
    pub fn container_throughput(&self, container: &crate::Container) -> Option<Throughput> {
        let catalog = self.catalog.snapshot();
        catalog.offer_of(OfferOwner::Container(container.rid)).map(|offer| offer.throughput)
    }
}
