//! Runs scripts: procedures in transactions, and triggers around writes.
//!
//! A script works on a snapshot of its partition with its own writes on top, and commits as one transaction, which is
//! rejected if the logical partition was written meanwhile; then the script runs again. Functions inside queries are in
//! `query`, the resources that hold scripts in `resources`.
//!
//! Only running scripts, and the item operations that may run them, belong here.

mod host;
mod item_writes;
mod session;
mod slots;
mod transaction;

use std::sync::Arc;

use crate::catalog::{Container, ScriptKind};
use crate::query::Queries;

pub use transaction::ProcedureCall;

/// Queries with the scripts that may use them.
pub struct Scripts {
    pub(crate) queries: Arc<Queries>,
    slots: slots::ScriptSlots,
}

layer!(Scripts { queries: Queries });

impl Scripts {
    pub(crate) fn new(queries: Arc<Queries>) -> Self {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self { queries, slots: slots::ScriptSlots::new((processors * 2).max(8)) }
    }

    /// How many procedures, triggers and functions a container has.
    pub fn script_counts(&self, container: &Container) -> (usize, usize, usize) {
        let scripts = self.catalog.snapshot().scripts(container.rid);
        let count = |kind| scripts.of_kind(kind).count();
        (count(ScriptKind::StoredProcedure), count(ScriptKind::Trigger), count(ScriptKind::Function))
    }
}
