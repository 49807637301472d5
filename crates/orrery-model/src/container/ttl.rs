//! Time to live, in seconds: of a container by default, of an item by its own `ttl`.

use crate::error::{Error, Result};
use crate::value::{Object, Value};

/// Never expires.
pub const FOREVER: i64 = -1;
const SECONDS_MAX: i64 = 2_147_483_647;

/// The `ttl` of an item, checked whether or not its container expires items.
pub fn of_item(item: &Object) -> Result<Option<i64>> {
    item.get("ttl").map(check).transpose()
}

/// The `defaultTtl` of a container.
pub(super) fn of_container(container: &Object) -> Result<Option<i64>> {
    container.get("defaultTtl").map(check).transpose()
}

/// The second at which an item is gone, or `None` if it stays. `own` is the item's `ttl`.
pub fn expiry(container_default: Option<i64>, own: Option<i64>, modified_seconds: i64) -> Option<i64> {
    let seconds = own.or(container_default)?;
    // An item's own `ttl` has no effect while the container's is off.
    let expires = container_default.is_some() && seconds != FOREVER;
    expires.then(|| modified_seconds.saturating_add(seconds))
}

fn check(value: &Value) -> Result<i64> {
    // Zero and null are rejected as well, as in the service.
    let seconds = value.as_i64().filter(|seconds| *seconds == FOREVER || (1..=SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| {
        Error::bad_request(format!(
            "The input ttl '{}' is invalid. Ensure to provide a nonzero positive integer less than or equal to '{SECONDS_MAX}', or -1.",
            value.to_json()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_integers_and_minus_one_pass() {
        let of = |json: &str| of_item(crate::value::parse(json.as_bytes()).unwrap().as_object().unwrap());
        assert_eq!(of("{}").unwrap(), None);
        assert_eq!(of(r#"{"ttl":-1}"#).unwrap(), Some(-1));
        assert_eq!(of(r#"{"ttl":1}"#).unwrap(), Some(1));
        assert_eq!(of(r#"{"ttl":2147483647.0}"#).unwrap(), Some(2_147_483_647));
        for json in ["0", "-2", "1.5", "null", "\"5\"", "2147483648", "true", "1e300"] {
            let error = of(&format!(r#"{{"ttl":{json}}}"#)).unwrap_err();
            assert!(error.message.contains("The input ttl"), "{json}");
        }
    }

    #[test]
    fn the_item_overrides_the_container_if_that_expires_at_all() {
        assert_eq!(expiry(None, Some(5), 100), None);
        assert_eq!(expiry(Some(-1), None, 100), None);
        assert_eq!(expiry(Some(-1), Some(5), 100), Some(105));
        assert_eq!(expiry(Some(10), None, 100), Some(110));
        assert_eq!(expiry(Some(10), Some(-1), 100), None);
        assert_eq!(expiry(Some(10), Some(5), 100), Some(105));
    }
}
