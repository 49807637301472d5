//! What runs in the background at this moment, for operators. Read from memory and the catalog alone, so that it can be
//! polled.

use orrery_model::value::Value;
use orrery_model::{Object, Result};
use orrery_storage::NodeStatus;

use super::Lifecycle;
use crate::catalog::{Container, OfferOwner};
use crate::failure::store_failure;

/// One piece of background work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundTask {
    /// `split`, `merge`, `scale`, `index`, `index cleanup`, `repartition` or `delete by key`.
    pub kind: &'static str,
    /// The container it works on.
    pub container: String,
    pub detail: String,
    /// How far it is, where that is known.
    pub percent: Option<u8>,
}

impl BackgroundTask {
    pub fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.set("kind", Value::from(self.kind));
        object.set("container", Value::from(self.container.as_str()));
        object.set("detail", Value::from(self.detail.as_str()));
        object.set("percent", self.percent.map_or(Value::Null, |percent| Value::from(i64::from(percent))));
        object.into()
    }
}

impl Lifecycle {
    /// Everything that is under way, container by container.
    pub fn background_tasks(&self) -> Vec<BackgroundTask> {
        let catalog = self.catalog.snapshot();
        let purges = self.purges.pending_by_container();
        let mut tasks = Vec::new();
        for container in catalog.containers() {
            let mut add = |kind, detail: String, percent| {
                tasks.push(BackgroundTask { kind, container: container.alt_path(), detail, percent });
            };
            if let Some(reshaping) = &container.reshaping {
                // A split has one parent, a merge has two.
                let kind = if reshaping.parents.len() == 1 { "split" } else { "merge" };
                let children: Vec<u32> = reshaping.children.iter().map(|child| child.range_id).collect();
                let detail = format!("{} into {}", partitions(&reshaping.parents), partitions(&children));
                add(kind, detail, None);
            }
            if catalog.offer_of(OfferOwner::Container(container.rid)).is_some_and(|offer| offer.pending) {
                add("scale", "adding partitions for the new throughput".to_owned(), None);
            }
            if container.index.building.is_some() {
                let percent = self.index_progress(container);
                add("index", "building the index of the new policy".to_owned(), Some(percent));
            } else if !container.index.retired.is_empty() {
                add("index cleanup", "removing the entries of the former index".to_owned(), None);
            }
            if let Some((phase, percent)) = self.repartition_phase(container) {
                add("repartition", phase.to_owned(), percent);
            }
            if let Some(count) = purges.get(&container.rid) {
                let plural = if *count == 1 { "" } else { "s" };
                add("delete by key", format!("removing the items of {count} key{plural}"), None);
            }
        }
        tasks
    }

    /// The phase of a repartitioning that is under way, and how much of that phase is done.
    fn repartition_phase(&self, container: &Container) -> Option<(&'static str, Option<u8>)> {
        container.repartition.as_ref()?;
        let id = container.definition.id.as_str();
        let status = self.repartition_status(&container.database_id, id).ok()?;
        let done = if status.phase == "verifying" { status.compared } else { status.copied };
        // Items written meanwhile are copied too, so the count may exceed the estimate.
        let percent = done.saturating_mul(100).checked_div(status.items).map(|percent| percent.min(100));
        Some((status.phase, percent.and_then(|percent| u8::try_from(percent).ok())))
    }

    /// The servers that hold the data, with their standbys; empty where this process itself is the store.
    pub async fn store_nodes(&self) -> Result<Vec<NodeStatus>> {
        self.store.nodes().await.map_err(store_failure)
    }
}

fn partitions(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    format!("partition{} {}", if ids.len() == 1 { "" } else { "s" }, ids.join(" and "))
}

/// The servers of a store as JSON: `orrery store status` and `/_orrery/store` print the same.
pub fn store_nodes_value(nodes: &[NodeStatus]) -> Value {
    let nodes = nodes.iter().map(|node| {
        let mut object = Object::new();
        object.set("name", Value::from(node.name.as_str()));
        let partitions = node.partitions.iter().map(|id| Value::from(i64::from(id.0)));
        object.set("partitions", Value::from(partitions.collect::<Vec<_>>()));
        object.set("shards", Value::from(i64::try_from(node.shards).unwrap_or(i64::MAX)));
        object.set("tableBytes", Value::from(node.table_bytes));
        object.set("indexBytes", Value::from(node.index_bytes));
        let standbys = node.standbys.iter().map(|standby| {
            let mut object = Object::new();
            object.set("name", Value::from(standby.name.as_str()));
            object.set("state", standby.state.as_deref().map(Value::from).unwrap_or_default());
            object.set("behindBytes", standby.behind_bytes.map(Value::from).unwrap_or_default());
            object.set("behindMilliseconds", standby.behind_ms.map(Value::from).unwrap_or_default());
            Value::Object(object)
        });
        object.set("standbys", Value::from(standbys.collect::<Vec<_>>()));
        if let Some(failure) = &node.failure {
            object.set("failure", Value::from(failure.as_str()));
        }
        Value::Object(object)
    });
    Value::from(nodes.collect::<Vec<_>>())
}
