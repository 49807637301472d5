//! Administration of synthetic keys: shows, sets and removes a container's definition, and repartitions a container.

use std::sync::Arc;

use http::StatusCode;
use orrery_db::{Database, RepartitionRequest};
use orrery_model::value::{self, Value};
use orrery_model::{Error, ErrorKind, Object, Result};

use super::place_in;
use crate::reply::Reply;

/// The definition of the container named by `?database=…&container=…`.
pub(crate) fn show(database: &Arc<Database>, query: &str) -> Result<Reply> {
    let (name, container) = place_in(query)?;
    let Some(policy) = database.synthetic_key(&name, &container)? else {
        return Err(Error::new(ErrorKind::NotFound, "The container has no synthetic key."));
    };
    let definition = policy.definition.to_json().to_string();
    let mut object = Object::new();
    object.set("definition", value::parse(definition.as_bytes()).unwrap_or(Value::Null));
    object.set("routesQueries", policy.routes.into());
    let paths = policy.definition.key_paths();
    let paths: Vec<Value> = paths.iter().map(|path| Value::from(path.to_string())).collect();
    object.set("keyPaths", paths.into());
    Ok(json(object))
}

/// Sets the definition, or removes it with null: `{"database":…,"container":…,"definition":{…}}`.
pub(crate) async fn set(database: &Arc<Database>, body: &[u8]) -> Result<Reply> {
    let body = parse(body)?;
    let place = (text(&body, "database")?, text(&body, "container")?);
    let definition = match body.get("definition") {
        // Removing takes an explicit null: a forgotten member must not remove anything.
        None => return Err(orrery_model::ids::missing_properties(&["definition"])),
        Some(Value::Null) => None,
        Some(definition) => Some(definition),
    };
    let reply = database.set_synthetic_key(place, definition).await?;
    Ok(Reply::json(StatusCode::OK, reply.value.to_json()))
}

/// Starts or resumes a repartitioning: `{"database":…,"container":…,"partitionKey":{…},"syntheticKey":{…},"keepAs":…}`.
pub(crate) async fn repartition(database: &Arc<Database>, body: &[u8]) -> Result<Reply> {
    let body = parse(body)?;
    let place = (text(&body, "database")?, text(&body, "container")?);
    // Pages and scripts send null for what was left empty.
    let present = |name: &str| body.get(name).filter(|value| **value != Value::Null).cloned();
    let request = RepartitionRequest {
        partition_key: present("partitionKey").unwrap_or(Value::Null),
        synthetic_key: present("syntheticKey"),
        keep_as: present("keepAs").and_then(|name| name.as_str().map(str::to_owned)),
    };
    let status = database.repartition(place, &request).await?;
    Ok(Reply::json(StatusCode::OK, status.to_value().to_json()))
}

pub(crate) fn repartition_status(database: &Arc<Database>, query: &str) -> Result<Reply> {
    let (name, container) = place_in(query)?;
    let status = database.repartition_status(&name, &container)?;
    Ok(Reply::json(StatusCode::OK, status.to_value().to_json()))
}

/// Aborts a repartitioning: `{"database":…,"container":…}`.
pub(crate) async fn abort(database: &Arc<Database>, body: &[u8]) -> Result<Reply> {
    let body = parse(body)?;
    database.abort_repartition(text(&body, "database")?, text(&body, "container")?).await?;
    let mut object = Object::new();
    object.set("phase", "aborted".into());
    Ok(json(object))
}

fn parse(body: &[u8]) -> Result<Value> {
    value::parse(body).map_err(|error| Error::bad_request(format!("The body is not JSON: {error}.")))
}

fn text<'v>(body: &'v Value, name: &str) -> Result<&'v str> {
    body.get(name).and_then(Value::as_str).ok_or_else(|| orrery_model::ids::missing_properties(&[name]))
}

fn json(object: Object) -> Reply {
    Reply::json(StatusCode::OK, Value::from(object).to_json())
}
