//! `/_orrery/advise`: the partition key advisor over items that the caller sends.
//!
//! The body is one JSON object: `items`, a list, or `lines`, JSON lines as text; `workload`, its text, if there is one;
//! `current`, the paths of the key in use; `candidates`, keys to measure in addition to those found; `throughput`,
//! `partitions` and `itemsTotal`; `reads` and `writes`, factors on the rates of the workload. The response is the output
//! of `orrery advise --output json`. The server reads no data for it: the
//! caller reads the container's items and sends them, like the command line does.

use http::StatusCode;
use orrery_advisor::workload::Rates;
use orrery_advisor::{Advisor, Config, Limits, report};
use orrery_model::value::{self, Value};
use orrery_model::{Error, Result};

use super::query_argument;
use crate::reply::Reply;

/// The default throughput, in request units per second.
const THROUGHPUT_USUAL: u32 = 10_000;

pub(crate) async fn advise(query: &str, body: &[u8]) -> Result<Reply> {
    let body =
        value::parse(body).map_err(|error| Error::bad_request(format!("The body is not JSON: {error}.")))?;
    let as_page = query_argument(query, "format").as_deref() == Some("html");
    // This takes seconds for many items, so it must not block an async worker thread.
    let answer = orrery_env::task::run_blocking("advise", move || report_on(&body, as_page)).await;
    answer.unwrap_or_else(|_| Err(Error::internal("The advisor failed.")))
}

fn report_on(body: &Value, as_page: bool) -> Result<Reply> {
    let number = |name: &str| body.get(name).and_then(Value::as_i64);
    let texts = |name: &str| {
        let members = body.get(name).and_then(Value::as_array).unwrap_or(&[]);
        members.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let throughput = number("throughput").and_then(|number| u32::try_from(number).ok());
    #[expect(clippy::cast_precision_loss, reason = "a number of items, for an estimate")]
    let items_total = number("itemsTotal").map(|number| number as f64);
    let partitions = number("partitions").and_then(|number| u32::try_from(number).ok());
    let factor = |name: &str| {
        let Some(value) = body.get(name).filter(|value| !matches!(value, Value::Null)) else {
            return Ok(1.0);
        };
        let factor = value.as_number().map(orrery_model::Number::as_f64);
        let factor = factor.filter(|factor| (0.0..=1e6).contains(factor));
        factor.ok_or_else(|| Error::bad_request(format!("'{name}' must be a factor from 0 to a million.")))
    };
    let rates = Rates { reads: factor("reads")?, writes: factor("writes")? };
    let config = Config {
        limits: Limits {
            throughput: throughput.unwrap_or(THROUGHPUT_USUAL).max(1),
            partitions: partitions.filter(|count| *count > 0),
            ..Limits::default()
        },
        rates,
        throughput_is_given: throughput.is_some(),
        current: texts("current"),
        candidates: texts("candidates"),
        items_total,
        ..Config::default()
    };
    // The items come from the caller, so whatever is wrong with them is.
    let refused = |error: orrery_advisor::AdviceError| Error::bad_request(format!("No advice: {error}."));
    let mut advisor = Advisor::new(config, body.get("workload").and_then(Value::as_str)).map_err(refused)?;
    for item in body.get("items").and_then(Value::as_array).unwrap_or(&[]) {
        advisor.add(item.to_json().as_bytes()).map_err(refused)?;
    }
    for line in body.get("lines").and_then(Value::as_str).unwrap_or_default().lines() {
        if !line.trim().is_empty() {
            advisor.add(line.trim().as_bytes()).map_err(refused)?;
        }
    }
    let found = advisor.finish().map_err(refused)?;
    if as_page {
        let mut reply = Reply::json(StatusCode::OK, report::html(&found));
        reply.headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/html"));
        return Ok(reply);
    }
    Ok(Reply::json(StatusCode::OK, report::json(&found).to_string()))
}
