//! Cross-partition queries that the client has to merge.
//!
//! The service merges nothing: it answers such queries with an error, upon which its clients ask for a plan, run
//! the query range by range and merge the rows. Clients that are known to do so get the service's way, and with it
//! their own rules (what the maximum of nothing is, which types may be sorted together). For everybody else, and for
//! queries that a client cannot merge, the server does.

use orrery_model::Result;
use orrery_query::plan::{Features, Plan, PlanInfo};

use crate::query::options::{ClientMerge, QueryOptions};

/// Whether the client has to merge this query.
pub(crate) fn is_asked(
    options: &QueryOptions,
    collects_over_container: bool,
    plan: impl FnOnce(Features) -> Result<Plan>,
) -> Result<bool> {
    let scope = &options.scope;
    // A request that names a key or a range, or continues a page, is a part of the client's merge already.
    let is_scoped = scope.partition_key.is_some() || scope.range_id.is_some() || scope.window.is_some();
    if is_scoped || options.page.continuation.is_some() {
        return Ok(false);
    }
    let plan = match options.client_merge {
        ClientMerge::Never => return Ok(false),
        ClientMerge::Always => plan(Features::ALL)?,
        // What each range gives cannot be put together, or not by this client: its plan would be refused.
        ClientMerge::With(_) if collects_over_container => return Ok(false),
        ClientMerge::With(features) => match plan(features) {
            Ok(plan) => plan,
            Err(_) => return Ok(false),
        },
    };
    // A plain query needs no merge: its rows are simply concatenated.
    Ok(!matches!(plan.info, PlanInfo::Query(info) if info.is_plain()))
}
