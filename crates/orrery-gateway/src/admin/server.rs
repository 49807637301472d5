//! `/_orrery/server`: version, start time and store of this server.

use std::sync::Arc;

use http::StatusCode;
use orrery_db::Database;
use orrery_model::Object;
use orrery_model::value::Value;

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
    Reply::json(StatusCode::OK, Value::from(object).to_json())
}

/// The resident memory of the process, if the system reports it.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
