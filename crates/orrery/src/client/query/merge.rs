//! Merging the rows of several partitions by a query plan, as the SDKs do.
//!
//! Sorted rows are merged as a stream, one page per partition at a time. Groups and aggregates need all rows.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet, VecDeque};

use orrery_env::SystemEnv;
use orrery_model::{Object, Value};
use orrery_query::order::{compare, hash, hash_operands};

use super::aggregate::{Merged, MergedGroup, add_listed, number};
use super::plan::{QueryInfo, QueryPlan, SortOrder, item};
use super::{PAGE_ROWS, QueryText, rows_of};
use crate::client::{Client, ContainerPath, Lane, PartitionRange};
use crate::failure::Failure;

/// The rows of all partitions, merged.
pub(super) struct MergedRows {
    query: QueryText,
    info: QueryInfo,
    partitions: Vec<PartitionRows>,
    /// Rows that are merged completely, if the plan needs all rows for that.
    complete: Option<VecDeque<Value>>,
    seen: HashSet<u128>,
    to_skip: u64,
    left: Option<u64>,
}

/// What has been read of one partition.
struct PartitionRows {
    lane: Lane,
    range: PartitionRange,
    rows: VecDeque<Value>,
    is_ended: bool,
}

impl MergedRows {
    pub(super) async fn start(
        client: &Client,
        container: &ContainerPath,
        plan: QueryPlan,
    ) -> Result<Self, Failure> {
        let ranges = client.read_ranges(&SystemEnv, container).await?;
        let mut partitions = Vec::new();
        for keys in plan.ranges {
            let lane = Lane { keys, continuation: None };
            let parts = lane.cut(&ranges).into_iter();
            // A plan can name several ranges of one partition, which is read once.
            for (lane, range) in parts {
                if !partitions.iter().any(|known: &PartitionRows| known.range == range) {
                    partitions.push(PartitionRows { lane, range, rows: VecDeque::new(), is_ended: false });
                }
            }
        }
        let info = plan.info;
        let left = match (info.top, info.limit) {
            (Some(top), Some(limit)) => Some(top.min(limit)),
            (top, limit) => top.or(limit),
        };
        let to_skip = info.offset.unwrap_or(0);
        Ok(Self { query: plan.query, info, partitions, complete: None, seen: HashSet::new(), to_skip, left })
    }

    /// The next page; none after the last.
    pub(super) async fn next_page(
        &mut self,
        client: &Client,
        container: &ContainerPath,
    ) -> Result<Option<Vec<Value>>, Failure> {
        let mut page = Vec::new();
        while page.len() < PAGE_ROWS as usize {
            if self.left == Some(0) {
                break;
            }
            let Some(row) = self.next_row(client, container).await? else { break };
            // In the order of the language: DISTINCT, then OFFSET, then TOP or LIMIT.
            if self.info.is_distinct() && self.info.d_count_info.is_none() && !self.seen.insert(hash(&row)) {
                continue;
            }
            if self.to_skip > 0 {
                self.to_skip -= 1;
                continue;
            }
            self.left = self.left.map(|left| left - 1);
            page.push(row);
        }
        Ok((!page.is_empty()).then_some(page))
    }

    async fn next_row(
        &mut self,
        client: &Client,
        container: &ContainerPath,
    ) -> Result<Option<Value>, Failure> {
        // Groups and aggregates have parts in every partition, and rows by distance do not come in order.
        let needs_all = self.info.is_grouped()
            || !self.info.aggregates.is_empty()
            || self.info.d_count_info.is_some()
            || self.info.has_non_streaming_order_by;
        if needs_all && self.complete.is_none() {
            let rows = self.merge_all(client, container).await?;
            self.complete = Some(rows.into());
        }
        if let Some(rows) = &mut self.complete {
            return Ok(rows.pop_front());
        }
        if self.info.order_by.is_empty() {
            return self.next_unsorted(client, container).await;
        }
        // Only if the next row of every partition is known can the first one be chosen.
        for at in 0..self.partitions.len() {
            self.fill(at, client, container).await?;
        }
        let order = &self.info.order_by;
        let heads = self
            .partitions
            .iter()
            .enumerate()
            .filter_map(|(at, partition)| Some((at, partition.rows.front()?)));
        // Ties are in partition order.
        let best = heads.min_by(|(_, left), (_, right)| compare_rows(order, left, right)).map(|(at, _)| at);
        Ok(best.and_then(|at| self.partitions[at].rows.pop_front()).map(payload))
    }

    async fn next_unsorted(
        &mut self,
        client: &Client,
        container: &ContainerPath,
    ) -> Result<Option<Value>, Failure> {
        for at in 0..self.partitions.len() {
            self.fill(at, client, container).await?;
            if let Some(row) = self.partitions[at].rows.pop_front() {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// Reads a partition until it has a row, or ends.
    async fn fill(&mut self, at: usize, client: &Client, container: &ContainerPath) -> Result<(), Failure> {
        let partition = &mut self.partitions[at];
        // A page may be empty although more follow.
        while partition.rows.is_empty() && !partition.is_ended {
            let mut request = self
                .query
                .request(container)
                .with("x-ms-documentdb-partitionkeyrangeid", &partition.range.id);
            if let Some(token) = &partition.lane.continuation {
                request = request.with("x-ms-continuation", token);
            }
            let response = client.send(&SystemEnv, &request).await?;
            // Rows may have been returned already, so the query cannot start over here.
            if response.is_range_gone() {
                return Err(Failure::refused(
                    "a partition was split or merged during the query: run it again",
                ));
            }
            let response = response.accepted()?;
            partition.rows.extend(rows_of(&response)?);
            partition.lane.continuation = response.continuation().map(str::to_owned);
            partition.is_ended = partition.lane.continuation.is_none();
        }
        Ok(())
    }

    async fn merge_all(&mut self, client: &Client, container: &ContainerPath) -> Result<Vec<Value>, Failure> {
        let mut rows = Vec::new();
        while let Some(row) = self.next_unsorted(client, container).await? {
            rows.push(row);
        }
        let info = &self.info;
        // Each partition returned its own distinct rows, so the same row may come from several.
        if let Some(counted) = &info.d_count_info {
            let distinct: HashSet<u128> = rows.iter().map(hash).collect();
            #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
            let count = number(distinct.len() as f64);
            if counted.alias.is_empty() {
                return Ok(vec![count]);
            }
            let mut object = Object::new();
            object.set(counted.alias.as_str(), count);
            return Ok(vec![object.into()]);
        }
        if let Some(name) = info.aggregates.first().filter(|_| !info.is_grouped()) {
            let mut merged = aggregate(name)?;
            for row in &rows {
                add_listed(&mut merged, row);
            }
            return Ok(merged.finish().into_iter().collect());
        }
        if info.is_grouped() {
            return merge_groups(info, &rows);
        }
        // The sort is stable: ties stay in partition order.
        rows.sort_by(|left, right| compare_rows(&info.order_by, left, right));
        Ok(rows.into_iter().map(payload).collect())
    }
}

fn aggregate(name: &str) -> Result<Merged, Failure> {
    Merged::new(name)
        .ok_or_else(|| Failure::refused(format!("the server planned an unknown aggregate, {name}")))
}

/// Groups in the order in which they first appear.
fn merge_groups(info: &QueryInfo, rows: &[Value]) -> Result<Vec<Value>, Failure> {
    let mut groups: Vec<MergedGroup> = Vec::new();
    let mut by_key: HashMap<u128, usize> = HashMap::new();
    for row in rows {
        let keys = row.get("groupByItems").and_then(Value::as_array).unwrap_or(&[]);
        let payload = row.get("payload").cloned().unwrap_or_default();
        let at = match by_key.entry(hash_operands(keys.iter().map(item))) {
            std::collections::hash_map::Entry::Occupied(known) => *known.get(),
            std::collections::hash_map::Entry::Vacant(new) => {
                groups.push(new_group(info, &payload)?);
                *new.insert(groups.len() - 1)
            }
        };
        groups[at].add(&payload);
    }
    Ok(groups.into_iter().filter_map(MergedGroup::finish).collect())
}

fn new_group(info: &QueryInfo, payload: &Value) -> Result<MergedGroup, Failure> {
    if info.has_select_value {
        let name = info.aggregates.first().map(String::as_str);
        let name =
            name.or_else(|| info.group_by_alias_to_aggregate_type.values().find_map(|name| name.as_str()));
        return Ok(MergedGroup::Value(match name {
            Some(name) => Ok(aggregate(name)?),
            // Not an aggregate but a key, which is kept as it is.
            None => Err(payload.clone()),
        }));
    }
    let mut members = Vec::new();
    for alias in &info.group_by_aliases {
        let member = match info.aggregate_of(alias) {
            Some(name) => Ok(aggregate(name)?),
            None => Err(payload.get(alias).cloned()),
        };
        members.push((alias.clone(), member));
    }
    Ok(MergedGroup::Object(members))
}

fn compare_rows(order: &[SortOrder], left: &Value, right: &Value) -> Ordering {
    let keys = |row: &Value| row.get("orderByItems").and_then(Value::as_array).unwrap_or(&[]).to_vec();
    let (left, right) = (keys(left), keys(right));
    for (at, direction) in order.iter().enumerate() {
        let compared = compare(left.get(at).and_then(item), right.get(at).and_then(item));
        let compared = if *direction == SortOrder::Descending { compared.reverse() } else { compared };
        if compared.is_ne() {
            return compared;
        }
    }
    Ordering::Equal
}

/// The row itself, without its sort values.
fn payload(mut row: Value) -> Value {
    row.as_object_mut().and_then(|row| row.remove("payload")).unwrap_or_default()
}
