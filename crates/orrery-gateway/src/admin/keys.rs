//! `/_orrery/keys`: which keys the account has, and replacing one.
//!
//! A key is returned only once, when it is created. Otherwise anyone who has obtained one full key would learn the
//! other, and replacing the first would not lock them out.

use std::sync::Arc;

use http::{Method, StatusCode};
use orrery_db::Database;
use orrery_model::value::{self, Value};
use orrery_model::{Error, ErrorKind, Object, Result};

use crate::auth::{KeyKind, KeyRing, MasterKey, RotationError};
use crate::operation::method_not_allowed;
use crate::reply::Reply;

/// `GET /_orrery/keys`, and `POST /_orrery/keys/rotate` with `{"kind":"secondary"}`. Only for full keys.
pub(crate) async fn route(
    database: &Arc<Database>,
    ring: &Arc<KeyRing>,
    method: &Method,
    rest: &str,
    body: &[u8],
) -> Result<Reply> {
    match (rest, method) {
        ("", &Method::GET) => Ok(list(ring)),
        ("/rotate", &Method::POST) => rotate(database, ring, body).await,
        ("" | "/rotate", _) => Err(method_not_allowed()),
        _ => Err(Error::new(ErrorKind::NotFound, "There is nothing here.")),
    }
}

fn list(ring: &KeyRing) -> Reply {
    let keys = ring.sources().into_iter().map(|(kind, source)| {
        let mut object = Object::new();
        object.set("kind", Value::from(kind.name()));
        object.set("source", Value::from(source.name()));
        Value::from(object)
    });
    Reply::json(StatusCode::OK, Value::from(keys.collect::<Vec<_>>()).to_json())
}

async fn rotate(database: &Arc<Database>, ring: &Arc<KeyRing>, body: &[u8]) -> Result<Reply> {
    let body = value::parse(body).map_err(|_| Error::bad_request("The body is not valid JSON."))?;
    let names = || KeyKind::ALL.map(KeyKind::name).join(", ");
    let kind = body.get("kind").and_then(Value::as_str).and_then(KeyKind::parse);
    let kind =
        kind.ok_or_else(|| Error::bad_request(format!("The property 'kind' must be one of {}.", names())))?;
    let key = MasterKey::generate(database.env());
    let (changed, new) = (Arc::clone(ring), key.clone());
    // The new key is fsynced before it counts.
    let rotated = orrery_env::task::run_blocking("key rotation", move || changed.rotate(kind, &new)).await;
    rotated
        .map_err(|_| Error::internal("The rotation of the key failed."))?
        .map_err(|error| refusal(&error))?;
    tracing::info!(%kind, "an account key was replaced");

    let mut object = Object::new();
    object.set("kind", Value::from(kind.name()));
    object.set("key", Value::from(key.reveal()));
    object.set("durable", Value::from(ring.is_durable()));
    Ok(Reply::json(StatusCode::OK, Value::from(object).to_json()))
}

fn refusal(error: &RotationError) -> Error {
    if let RotationError::File(kind, error) = error {
        tracing::error!(%kind, %error, "the new key cannot be written to its file");
        return Error::new(
            ErrorKind::Unavailable,
            sentence(&format!("the {kind} key was not replaced: {error}")),
        );
    }
    Error::bad_request(sentence(&error.to_string()))
}

/// A message as the wire has them.
fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    letters.next().map(char::to_uppercase).into_iter().flatten().chain(letters).chain(['.']).collect()
}
