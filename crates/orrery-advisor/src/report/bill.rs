//! The cost twin in reports: a sentence, JSON, and the rows of a table.

use serde_json::{Value, json};

use crate::prices::{Bill, Prices};
use crate::rank::count;

/// The ways to pay, with their names.
pub(super) const WAYS: [&str; 4] = ["Manual", "Autoscale", "Dynamic", "Serverless"];

/// The costs in the order of [`WAYS`], as text; serverless only if its partitions can do the load.
pub(super) fn costs(bill: &Bill) -> [String; 4] {
    let serverless = if bill.is_serverless_enough { count(bill.serverless) } else { "–".to_owned() };
    [count(bill.manual), count(bill.autoscale), count(bill.dynamic), serverless]
}

/// `Manual 12, autoscale 18, …`, with the date of the prices.
pub(super) fn bill_sentence(bill: &Bill, prices: &Prices) -> String {
    let [manual, autoscale, dynamic, serverless] = costs(bill);
    let serverless = if bill.is_serverless_enough {
        format!("serverless {serverless}")
    } else {
        "serverless cannot do it (5,000 RU/s per partition)".to_owned()
    };
    format!(
        "The same load in {}: manual {manual}, autoscale {autoscale}, dynamic autoscale {dynamic}, {serverless}; prices of {}.",
        prices.currency, prices.date
    )
}

/// The bill as JSON.
pub(super) fn bill_json(bill: &Bill, prices: &Prices) -> Value {
    json!({
        "currency": prices.currency,
        "pricesOf": prices.date,
        "manual": bill.manual,
        "autoscale": bill.autoscale,
        "dynamicAutoscale": bill.dynamic,
        "serverless": bill.serverless,
        "serverlessIsEnough": bill.is_serverless_enough,
        "storage": bill.storage,
    })
}
