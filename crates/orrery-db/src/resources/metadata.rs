//! Common to databases, containers, offers, users and permissions: replies and paged feeds.

use orrery_model::{Result, Value};

use super::Resources;
use crate::layout::continuation;
use crate::layout::page_request::PageRequest;
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

impl Resources {
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
