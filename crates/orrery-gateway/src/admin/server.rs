//! `/_orrery/server`: version, start time, store and background work of this server. `/_orrery/store`: the servers that
//! hold the data.

use std::sync::Arc;

use http::StatusCode;
use orrery_db::{BackgroundTask, Database, store_nodes_value};
use orrery_model::value::Value;
use orrery_model::{Object, Result};

use crate::options::GatewayOptions;
use crate::reply::Reply;

pub(crate) fn show(database: &Arc<Database>, options: &GatewayOptions) -> Reply {
    let mut object = Object::new();
    object.set("version", Value::from(options.metrics.version));
    object.set("store", Value::from(database.store_name()));
    object.set("startedMs", Value::from(options.metrics.start_ms));
    object.set("nowMs", Value::from(database.env().now_ms()));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    object.set("processors", Value::from(i64::try_from(processors).unwrap_or(i64::MAX)));
    object.set("memoryBytes", resident_bytes().map_or(Value::Null, Value::from));
    object.set("testControls", Value::from(options.clock.is_some()));
    object.set("consistency", options.consistency.to_value());
    let tasks = database.background_tasks();
    object.set("background", tasks.iter().map(BackgroundTask::to_value).collect::<Vec<_>>().into());
    Reply::json(StatusCode::OK, Value::from(object).to_json())
}

/// The store's servers and their standbys: none where this process itself is the store.
pub(crate) async fn store(database: &Arc<Database>) -> Result<Reply> {
    let nodes = database.store_nodes().await?;
    let mut object = Object::new();
    object.set("store", Value::from(database.store_name()));
    object.set("nodes", store_nodes_value(&nodes));
    Ok(Reply::json(StatusCode::OK, Value::from(object).to_json()))
}

/// The resident memory of the process, if the system reports it.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
