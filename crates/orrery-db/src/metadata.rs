//! What databases, containers, offers, users and permissions have in common: replies and paged feeds.

use orrery_model::{Error, Result, Value};

use crate::{Database, continuation};

const PAGE_RESOURCES_MAX: usize = 1000;

/// One metadata resource, ready to be sent.
#[derive(Clone, Debug)]
pub struct MetadataReply {
    /// With its system properties.
    pub value: Value,
    pub etag: String,
    /// Made by this very request.
    pub created: bool,
}

/// A page of a feed.
#[derive(Clone, Debug, Default)]
pub struct MetadataPage {
    /// The RID of the owner; empty for feeds of the account.
    pub owner_rid: String,
    pub resources: Vec<Value>,
    pub continuation: Option<String>,
}

/// How much of a feed is wanted, and from where.
#[derive(Clone, Debug, Default)]
pub struct PageRequest {
    /// As the client sent it: -1 lets the server decide.
    pub items_max: Option<i64>,
    pub continuation: Option<String>,
}

impl PageRequest {
    /// The number of entries this page may have.
    pub fn count_max(&self, default: usize, limit: usize) -> Result<usize> {
        match self.items_max {
            None => Ok(default),
            Some(-1) => Ok(limit),
            Some(count) => match usize::try_from(count) {
                Ok(count) if count > 0 => Ok(count),
                _ => Err(Error::bad_request(format!(
                    "One of the input values is invalid. x-ms-max-item-count must be -1 or positive, not {count}."
                ))),
            },
        }
    }
}

impl Database {
    /// Cuts a page out of a feed that is sorted by name. The token holds the last name that was returned.
    pub(crate) fn metadata_page<'a>(
        &self,
        scope: &str,
        owner_rid: String,
        request: &PageRequest,
        resources: impl Iterator<Item = (&'a str, Value)>,
    ) -> Result<MetadataPage> {
        let count_max = request.count_max(100, PAGE_RESOURCES_MAX)?.min(PAGE_RESOURCES_MAX);
        let secret = self.catalog.snapshot().secret;
        let scope = format!("{scope}/{owner_rid}");
        let after = match &request.continuation {
            Some(token) => Some(continuation::open(&secret, &scope, token)?),
            None => None,
        };
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
