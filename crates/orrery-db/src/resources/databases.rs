//! Databases as resources, and what their owners share: checks of etags and account size, and offers of throughput.

use orrery_model::document::parse_object;
use std::sync::Arc;

use orrery_model::ids::ResourceName;
use orrery_model::offer::Throughput;
use orrery_model::rid::{DatabaseRid, Rid};
use orrery_model::{Error, ErrorKind, Result};

use super::Resources;
use super::metadata::{MetadataReply, first_unused};
use crate::catalog::{Catalog, Change, DatabaseEntry, OfferOwner, already_exists};
use crate::partition::Receipt;

impl Resources {
    pub async fn create_database(
        &self,
        receipt: &mut Receipt,
        body: &[u8],
        throughput: Option<Throughput>,
    ) -> Result<MetadataReply> {
        let body = parse_object(body)?;
        let name = ResourceName::from_body(body.as_object().expect("it is an object"))?;
        let limit = self.options.account_resources_max;
        let random = self.env.random_u64();
        self.change_catalog(receipt, |change| {
            // By id only. A name that looks like a RID is legal.
            if change.catalog.databases().any(|database| *database.id == *name.as_str()) {
                return Err(already_exists());
            }
            check_account_size(&change.catalog, limit)?;
            let rid = unused_rid(&change.catalog, random);
            let database = DatabaseEntry::new(rid, name.as_str(), change.stamp);
            let reply = database_reply(&database, true);
            change.put_database(database);
            if let Some(throughput) = throughput {
                add_offer(change, OfferOwner::Database(rid), throughput, random);
            }
            Ok(reply)
        })
        .await
    }

    pub fn read_database(&self, receipt: &mut Receipt, database: &str) -> Result<MetadataReply> {
        Ok(database_reply(self.read_catalog(receipt).database(database)?, false))
    }

    /// Deletes the database and everything in it.
    pub async fn delete_database(
        self: &Arc<Self>,
        receipt: &mut Receipt,
        database: &str,
        if_match: Option<&str>,
    ) -> Result<()> {
        let partitions = self
            .change_catalog(receipt, |change| {
                let database = Arc::clone(change.catalog.database(database)?);
                check_etag(if_match, database.stamp)?;
                let containers = database.containers.values();
                let owners = containers.clone().map(|container| OfferOwner::Container(container.rid));
                // Offers are keyed by RIDs of their own and would outlive their owners.
                for owner in owners.chain([OfferOwner::Database(database.rid)]) {
                    remove_offer_of(change, owner);
                }
                // Collected before the containers go.
                let partitions = containers.flat_map(|container| &container.partitions).map(|p| p.store.id);
                let partitions = partitions.collect();
                change.remove_database(&database);
                Ok(partitions)
            })
            .await?;
        self.destroy_partitions(partitions);
        Ok(())
    }
}

fn database_reply(database: &DatabaseEntry, created: bool) -> MetadataReply {
    MetadataReply::new(database.to_value(), database.stamp, created)
}

/// Rejects a change if the resource has changed since the client read it.
pub(crate) fn check_etag(if_match: Option<&str>, stamp: crate::catalog::Stamp) -> Result<()> {
    match if_match {
        Some(wanted) if wanted != "*" && !stamp.etag().matches(wanted) => {
            Err(crate::items::transaction::precondition_failed())
        }
        _ => Ok(()),
    }
}

/// Databases and containers are counted together, as in the service.
pub(crate) fn check_account_size(catalog: &Catalog, limit: usize) -> Result<()> {
    if catalog.databases().count() + catalog.containers().count() < limit {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::QuotaExceeded,
        format!("The account has reached its limit of {limit} databases and containers."),
    ))
}

/// An unused RID. Random, so that a restarted in-memory server does not reuse RIDs that clients still hold. Some
/// numbers are avoided because their text would be ambiguous in a path.
fn unused_rid(catalog: &Catalog, random: u64) -> DatabaseRid {
    let candidates =
        // In large steps, so that after a collision the next candidate is not a neighbour of the taken one.
        (0..).map(|step: u64| random.wrapping_add(step.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 32);
    let rids = candidates.map(|number| DatabaseRid(u32::try_from(number).expect("32 bits are left")));
    let free =
        |rid: &DatabaseRid| catalog.database_by_rid(*rid).is_none() && Rid::parse(&rid.to_string()).is_some();
    first_unused(rids, |rid| !free(rid))
}

/// Removes the throughput that a database or container has of its own, if any.
pub(super) fn remove_offer_of(change: &mut Change, owner: OfferOwner) {
    if let Some(rid) = change.catalog.offer_of(owner).map(|offer| offer.document.rid) {
        change.remove_offer(rid);
    }
}

pub(crate) fn add_offer(change: &mut Change, owner: OfferOwner, throughput: Throughput, random: u64) {
    let rids = (0..).map(|step: u64| {
        let number = random.wrapping_mul(0x2545_F491_4F6C_DD1D).wrapping_add(step) >> 8 & 0x00FF_FFFF;
        orrery_model::rid::OfferRid::new(u32::try_from(number).expect("24 bits are left"))
    });
    let rid = rids.into_iter().find(|rid| !change.catalog.offers.contains_key(rid));
    let (resource, owner_rid) = match owner {
        OfferOwner::Database(rid) => (rid.self_link(), rid.to_string()),
        OfferOwner::Container(rid) => (rid.self_link(), rid.to_string()),
    };
    let document = orrery_model::offer::Offer {
        rid: rid.expect("there are more RIDs than offers"),
        resource,
        owner_rid,
        throughput,
        highest_ever: throughput.maximum(),
        storage_kb_max: 0,
        replaced_seconds: None,
    };
    change.put_offer(crate::catalog::Offer { document, owner, stamp: change.stamp, pending: false });
}
