//! Queries over databases, containers, offers, users and permissions: the same language over their documents.

use orrery_model::{Error, Result, Value};
use orrery_query::QueryRequest;
use orrery_query::context::{Context, Policies, Random};
use orrery_query::pipeline::{Options, Pipeline, Row};

use super::Queries;
use super::page::position::Position;
use super::prepare::plain_program;
use crate::layout::continuation;
use crate::layout::page_request::PageRequest;

const PAGE_ROWS_MAX: usize = 1000;

/// A page of a feed.
#[derive(Clone, Debug, Default)]
pub struct MetadataPage {
    /// The RID of the owner; empty for feeds of the account.
    pub owner_rid: String,
    pub resources: Vec<Value>,
    pub continuation: Option<String>,
}

impl Queries {
    /// Runs a query over a whole feed.
    pub fn query_metadata(
        &self,
        feed: MetadataPage,
        request: &QueryRequest,
        page: &PageRequest,
    ) -> Result<MetadataPage> {
        let count_max = page.count_max(100, PAGE_ROWS_MAX)?;
        let secret = self.catalog.snapshot().secret;
        let scope = format!("query/{}/{}", feed.owner_rid, request.text);
        let returned = match &page.continuation {
            None => 0,
            Some(token) => match Position::decode(&continuation::open(&secret, &scope, token)?)? {
                Position::Counted { returned, .. } => usize::try_from(returned).unwrap_or(usize::MAX),
                _ => return Err(continuation::invalid()),
            },
        };
        // The whole feed is evaluated for each page: it is small, and bounded by the account's limits.
        let mut pipeline = Pipeline::new(plain_program(request)?, Options::default());
        let (random, policies) = (Random::new(self.env.random_u64()), Policies::default());
        let context = Context::new(self.env.now_ms(), &random, &policies);
        let failed = |error: orrery_query::EvalError| Error::bad_request(error.to_string());
        for (ordinal, document) in (0u64..).zip(&feed.resources) {
            pipeline.feed(Row { document, ordinal, text_bytes: 0 }, &context).map_err(failed)?;
        }
        pipeline.finish(&context).map_err(failed)?;
        // Rows of earlier pages are computed again and skipped, since nothing is kept between pages.
        let mut rows: Vec<_> =
            pipeline.take().into_iter().map(|output| output.value).skip(returned).collect();
        let continuation = (rows.len() > count_max).then(|| {
            let position = Position::Counted { returned: (returned + count_max) as u64, path: None };
            continuation::seal(&secret, &scope, &position.encode())
        });
        rows.truncate(count_max);
        Ok(MetadataPage { owner_rid: feed.owner_rid, resources: rows, continuation })
    }
}
