//! `/_orrery/recordings`: starting, stopping and downloading recordings of a container's workload.

use std::sync::Arc;

use http::{Method, StatusCode};
use orrery_db::Database;
use orrery_model::value::{self, Value};
use orrery_model::{Error, Result};

use super::place_in;
use crate::reply::Reply;

/// Handles `/_orrery/recordings` and the paths below it.
pub(crate) fn route(
    database: &Arc<Database>,
    method: &Method,
    path: &str,
    query: &str,
    body: &[u8],
) -> Result<Reply> {
    let json = |value: Value| Ok(Reply::json(StatusCode::OK, value.to_json()));
    let rest = path.strip_prefix("/_orrery/recordings").unwrap_or_default();
    let place = || {
        let body = value::parse(body).map_err(|_| Error::bad_request("The body is not valid JSON."))?;
        let text = |name: &'static str| {
            let text = body.get(name).and_then(Value::as_str).map(str::to_owned);
            text.ok_or_else(|| orrery_model::ids::missing_properties(&[name]))
        };
        let requests_max = body.get("requestsMax").and_then(Value::as_i64);
        // A negative number records one request, not endlessly many.
        let requests_max = requests_max.map(|most| usize::try_from(most).unwrap_or(1));
        Ok::<_, Error>((text("database")?, text("container")?, requests_max))
    };
    match (method, rest) {
        (&Method::GET, "") => json(database.list_recordings()),
        (&Method::GET, "/download") => {
            let (name, container) = place_in(query)?;
            Ok(Reply::json(StatusCode::OK, database.recording_lines(&name, &container)?))
        }
        (&Method::POST, "") => {
            let (name, container, requests_max) = place()?;
            json(database.start_recording(&name, &container, requests_max)?)
        }
        (&Method::POST, "/stop") => {
            let (name, container, _) = place()?;
            json(database.stop_recording(&name, &container)?)
        }
        (&Method::POST, "/discard") => {
            let (name, container, _) = place()?;
            json(database.discard_recording(&name, &container)?)
        }
        _ => Err(Error::new(orrery_model::ErrorKind::NotFound, "There is nothing here.")),
    }
}
