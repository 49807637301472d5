//! The state of one page while it is being read.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use orrery_env::monotonic;
use orrery_model::Result;
use orrery_model::partition_key::EpkRange;
use orrery_query::EvalError;
use orrery_query::context::{Context, Policies, Random, UdfCaller, Work};
use orrery_storage::{Key, ReadRequest};
use parking_lot::Mutex;

use super::rows::KeptItems;
use super::stop::{QUERY_TIME_MAX, Watch};
use super::udf::QueryFunctions;
use crate::partition::Receipt;
use crate::query::errors::evaluation_failure;
use crate::query::fetch::ahead::Extent;
use crate::query::fetch::reader::Reader;
use crate::query::item_work::ItemWork;
use crate::query::metrics::QueryMetrics;
use crate::query::options::QueryOptions;
use crate::query::plan::access::AccessPath;

/// One page of one query.
#[expect(clippy::struct_excessive_bools, reason = "each says something of its own")]
pub(crate) struct Run<'a> {
    pub(crate) reader: Reader<'a>,
    pub(crate) options: &'a QueryOptions,
    pub(crate) now_ms: i64,
    pub(crate) random: &'a Random,
    pub(crate) policies: &'a Policies,
    pub(crate) started: Instant,
    pub(crate) rows_max: usize,
    pub(crate) metrics: QueryMetrics,
    /// The item inside which the page starts, until the first item has been read.
    pub(crate) resumed_in: Option<Key>,
    /// How much work one item may cause.
    pub(crate) work: ItemWork,
    /// The length of the query's text.
    pub(crate) text_bytes: usize,
    /// Whether the page can end at any item.
    pub(crate) is_stream: bool,
    /// Whether an item of this page has been completed.
    pub(crate) has_progress: bool,
    /// The item whose evaluation ran out of time, and the piece of the partition that its mark speaks of.
    pub(crate) interrupted_at: Option<Key>,
    pub(crate) interrupted_in: Option<EpkRange>,
    pub(crate) functions: Option<&'a QueryFunctions>,
    /// The properties that the program reads; `None` = all.
    pub(crate) roots: Option<Vec<Box<str>>>,
    /// Whether rows are whole items, for which the program builds no values.
    pub(crate) returns_items: bool,
    /// The items whose rows are being sorted, if rows are whole items.
    pub(crate) kept: Option<KeptItems>,
    /// The windows are keys from the filter.
    pub(crate) by_keys: bool,
    /// Whether the filter also fixes the items' key.
    pub(crate) names_key: bool,
    /// Whether each item counts as an index entry: scanning a key's items is cheaper than following its entries, but
    /// the charge is the same.
    pub(crate) stands_for_entries: bool,
}

impl Run<'_> {
    /// Records the chosen path.
    pub(crate) fn take(&mut self, path: &AccessPath) {
        self.metrics.note(&path.label());
        self.stands_for_entries = self.names_key && matches!(path, AccessPath::Items);
    }

    /// How much a page that may end at any item will read.
    pub(crate) fn extent(&self) -> Extent {
        if self.by_keys { Extent::SmallSources } else { Extent::Unknown }
    }

    /// A query that reads no items still returns the session token of a partition.
    pub(crate) async fn touch(&self, receipt: &mut Receipt) -> Result<()> {
        // Any partition of the scope will do.
        let range = self.options.scope.range(self.reader.container)?;
        if let Some(partition) = self.reader.container.partitions_in(&range).next() {
            let nothing = ReadRequest::Get(Vec::new());
            self.reader.database.read_partition(receipt, partition, self.reader.session, nothing).await?;
        }
        Ok(())
    }

    pub(crate) fn context<'c>(&'c self, work: Option<&'c Work<'c>>) -> Context<'c> {
        let udf = self.functions.map(|functions| functions as &dyn UdfCaller);
        Context { work, udf, ..Context::new(self.now_ms, self.random, self.policies) }
    }

    /// Stops an evaluation when the page has to end.
    pub(crate) fn watch(&self) -> Watch {
        Watch {
            started: self.started,
            is_stream: self.is_stream,
            has_progress: AtomicBool::new(self.has_progress),
            cancellation: self.options.cancellation.clone(),
            slot: Mutex::new(None),
        }
    }

    pub(crate) fn check_time(&self) -> Result<()> {
        if monotonic::elapsed(self.started) > QUERY_TIME_MAX {
            Err(evaluation_failure(EvalError::TimedOut))
        } else {
            Ok(())
        }
    }
}
