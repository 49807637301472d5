//! The throughput headers of a create request.

use orrery_model::offer::{Throughput, Usage};
use orrery_model::{Error, Result, value};

/// Reads `x-ms-offer-throughput` and `x-ms-cosmos-offer-autopilot-settings` of a create request.
pub fn requested(manual: Option<&str>, autoscale: Option<&str>) -> Result<Option<Throughput>> {
    match (manual, autoscale) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Error::bad_request(
            "The headers x-ms-offer-throughput and x-ms-cosmos-offer-autopilot-settings cannot both be specified.",
        )),
        (Some(text), None) => {
            let throughput = text.trim().parse().map_err(|_| {
                Error::bad_request(format!(
                    "The value '{text}' of the header x-ms-offer-throughput is not an integer."
                ))
            })?;
            Throughput::manual(throughput, Usage::default()).map(Some)
        }
        (None, Some(text)) => {
            let settings = value::parse(text.as_bytes()).map_err(|_| {
                Error::bad_request("The header x-ms-cosmos-offer-autopilot-settings is not valid JSON.")
            })?;
            Throughput::from_settings(&settings, Usage::default()).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creation_headers_are_read() {
        let read = requested;
        assert_eq!(read(None, None).unwrap(), None);
        assert_eq!(read(Some("1000"), None).unwrap(), Some(Throughput::Manual(1000)));
        assert_eq!(
            read(None, Some(r#"{"maxThroughput": 4000}"#)).unwrap(),
            Some(Throughput::Autoscale { max: 4000, increment_percent: None })
        );
        assert_eq!(
            read(None, Some(r#"{"maxThroughput":5000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":10}}}"#)).unwrap(),
            Some(Throughput::Autoscale { max: 5000, increment_percent: Some(10) })
        );
        for (manual, autoscale, fragment) in [
            (Some("400"), Some(r#"{"maxThroughput":4000}"#), "cannot both"),
            (Some("-200"), None, "Requested throughput -200 is less than required minimum throughput 400"),
            (Some("450"), None, "inclusive in increments of 100"),
            (Some("1000100"), None, "1000000"),
            (Some("many"), None, "not an integer"),
            (None, Some(r#"{"maxThroughput":900}"#), "less than required minimum throughput 1000"),
            (None, Some(r#"{"maxThroughput":4500}"#), "in increments of 1000"),
            (None, Some("{}"), "maxThroughput"),
            (None, Some("{"), "JSON"),
        ] {
            let error = read(manual, autoscale).unwrap_err();
            assert!(error.message.contains(fragment), "{manual:?} {autoscale:?}: {error}");
        }
    }
}
