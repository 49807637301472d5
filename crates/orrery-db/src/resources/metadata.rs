//! Common to databases, containers, offers, users and permissions: replies and paged feeds.

use std::sync::Arc;

use orrery_metering::cost;
use orrery_model::{Result, Value};

use super::Resources;
use super::containers::owner_missing;
use crate::catalog::{Catalog, Change, Stamp};
use crate::layout::continuation;
use crate::layout::page_request::PageRequest;
use crate::partition::Receipt;
use crate::query::MetadataPage;

const PAGE_RESOURCES_MAX: usize = 1000;

/// One metadata resource, ready to be sent.
#[derive(Clone, Debug)]
pub struct MetadataReply {
    /// With its system properties.
    pub value: Value,
    pub etag: String,
    /// Created by this request.
    pub created: bool,
}

impl MetadataReply {
    pub(super) fn new(value: Value, stamp: Stamp, created: bool) -> Self {
        Self { value, etag: stamp.etag().to_string(), created }
    }
}

/// The feeds of resources that stand in the catalog by name, in an account or in the database named.
#[derive(Clone, Copy, Debug)]
pub enum ResourceFeed<'a> {
    Databases,
    Containers(&'a str),
    Users(&'a str),
    EncryptionKeys(&'a str),
}

impl Resources {
    /// The catalog, for a request that reads metadata and is charged for it.
    pub(super) fn read_catalog(&self, receipt: &mut Receipt) -> Arc<Catalog> {
        receipt.add(cost::metadata_read());
        self.catalog.snapshot()
    }

    /// Changes the catalog, for a request that writes metadata and is charged for it, even if the change is refused.
    pub(super) async fn change_catalog<T>(
        &self,
        receipt: &mut Receipt,
        edit: impl FnOnce(&mut Change) -> Result<T>,
    ) -> Result<T> {
        // Before the change, which may fail.
        receipt.add(cost::metadata_write());
        self.catalog.change(edit).await
    }

    /// One page of a feed.
    pub fn list(
        &self,
        receipt: &mut Receipt,
        feed: ResourceFeed<'_>,
        page: &PageRequest,
    ) -> Result<MetadataPage> {
        let catalog = self.read_catalog(receipt);
        match feed {
            ResourceFeed::Databases => {
                let rows = catalog.databases().map(|database| (&*database.id, database.to_value()));
                self.metadata_page("dbs", String::new(), page, rows)
            }
            ResourceFeed::Containers(database) => {
                let database = catalog.database(database).map_err(owner_missing)?;
                let rows =
                    database.containers.iter().map(|(name, container)| (&**name, container.to_value()));
                self.metadata_page("colls", database.rid.to_string(), page, rows)
            }
            ResourceFeed::Users(database) => {
                let database = catalog.database(database)?;
                let rows = database.users.iter().map(|(name, user)| (&**name, user.to_value()));
                self.metadata_page("users", database.rid.to_string(), page, rows)
            }
            ResourceFeed::EncryptionKeys(database) => {
                let database = catalog.database(database)?;
                let rows = database.encryption_keys.iter().map(|(name, key)| (&**name, key.to_value()));
                self.metadata_page("clientencryptionkeys", database.rid.to_string(), page, rows)
            }
        }
    }

    /// Takes a page of a feed sorted by name. The token contains the last name that was returned.
    pub(crate) fn metadata_page<'a>(
        &self,
        scope: &str,
        owner_rid: String,
        request: &PageRequest,
        resources: impl Iterator<Item = (&'a str, Value)>,
    ) -> Result<MetadataPage> {
        let count_max = request.count_max(100, PAGE_RESOURCES_MAX)?.min(PAGE_RESOURCES_MAX);
        let secret = self.catalog.snapshot().secret;
        // The owner is part of it: a token of another database does not open here.
        let scope = format!("{scope}/{owner_rid}");
        let after = match &request.continuation {
            Some(token) => Some(continuation::open(&secret, &scope, token)?),
            None => None,
        };
        // By name and not by position, so that pages stay right when resources come and go in between.
        let is_later = |name: &str| after.as_ref().is_none_or(|after| name.as_bytes() > after.as_slice());
        let mut page = MetadataPage { owner_rid, ..MetadataPage::default() };
        let mut last = None;
        for (name, value) in resources.filter(|(name, _)| is_later(name)) {
            if page.resources.len() == count_max {
                let last: &str = last.expect("a full page has a last entry");
                page.continuation = Some(continuation::seal(&secret, &scope, last.as_bytes()));
                break;
            }
            page.resources.push(value);
            last = Some(name);
        }
        Ok(page)
    }
}

/// The first RID that is not taken. There are many more of every kind than resources.
pub(super) fn first_unused<R>(candidates: impl IntoIterator<Item = R>, taken: impl Fn(&R) -> bool) -> R {
    candidates.into_iter().find(|rid| !taken(rid)).expect("there are more RIDs than resources")
}
