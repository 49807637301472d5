//! Throughput buckets: shares of a container's throughput that requests select by number.
//!
//! The service configures them outside of the data plane; here they are a property of the container, an extension.

use super::fields;
use crate::error::{Error, Result};
use crate::value::Object;

/// One bucket: its requests may use at most this share of the throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThroughputBucket {
    /// From 1 to 5.
    pub id: u8,
    /// From 1 to 100.
    pub max_throughput_percentage: u8,
}

/// Reads `"throughputBuckets":[{"id":1,"maxThroughputPercentage":20}]`.
pub(super) fn parse(body: &Object) -> Result<Vec<ThroughputBucket>> {
    let mut buckets: Vec<ThroughputBucket> = Vec::new();
    for bucket in fields::array(body, "throughputBuckets")? {
        let bucket = fields::object(bucket, "throughputBuckets")?;
        let number = |name: &str, most: u8| {
            let number = fields::optional_i64(bucket, name)?;
            let number = number.ok_or_else(|| crate::ids::missing_properties(&[name]))?;
            u8::try_from(number).ok().filter(|number| (1..=most).contains(number)).ok_or_else(|| {
                Error::bad_request(format!(
                    "The property '{name}' of a throughput bucket must be an integer between 1 and {most}, not {number}."
                ))
            })
        };
        let bucket = ThroughputBucket {
            id: number("id", 5)?,
            max_throughput_percentage: number("maxThroughputPercentage", 100)?,
        };
        if buckets.iter().any(|other| other.id == bucket.id) {
            return Err(Error::bad_request(format!("The throughput bucket {} is listed twice.", bucket.id)));
        }
        buckets.push(bucket);
    }
    Ok(buckets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_numbered_and_bounded() {
        let read = |text: &str| {
            let body = crate::value::parse(format!(r#"{{"throughputBuckets":{text}}}"#).as_bytes()).unwrap();
            parse(body.as_object().unwrap())
        };
        assert_eq!(
            read(r#"[{"id":2,"maxThroughputPercentage":30}]"#).unwrap(),
            [ThroughputBucket { id: 2, max_throughput_percentage: 30 }]
        );
        assert_eq!(read("[]").unwrap(), []);
        for wrong in [
            r#"[{"id":0,"maxThroughputPercentage":30}]"#,
            r#"[{"id":6,"maxThroughputPercentage":30}]"#,
            r#"[{"id":1,"maxThroughputPercentage":101}]"#,
            r#"[{"id":1}]"#,
            r#"[{"id":1,"maxThroughputPercentage":1},{"id":1,"maxThroughputPercentage":2}]"#,
            "[1]",
            "{}",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
