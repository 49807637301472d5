//! Reading a change feed by windows of effective keys, which survive splits.

use orrery_model::Value;

use super::{Client, DOCS};

/// A range of effective keys and the position in it.
pub type Window = (String, String, String);

/// The headers of the all-versions-and-deletes feed.
pub const ALL_VERSIONS: [(&str, &str); 2] =
    [("a-im", "Full-Fidelity Feed"), ("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15")];

/// The whole container, from now on.
pub fn from_now() -> Vec<Window> {
    vec![(String::new(), "FF".into(), "*".into())]
}

/// Reads windows to their ends; the positions reached go to `ends`.
pub fn read(
    client: &mut Client,
    mut windows: Vec<Window>,
    headers: &[(&str, &str)],
    ends: &mut Vec<Window>,
) -> Vec<Value> {
    let mut rows = Vec::new();
    while let Some((min, max, etag)) = windows.pop() {
        let mut sent = headers.to_vec();
        sent.extend([("x-ms-start-epk", min.as_str()), ("x-ms-end-epk", max.as_str())]);
        sent.extend([("x-ms-read-key-type", "EffectivePartitionKeyRange"), ("x-ms-max-item-count", "100")]);
        if !etag.is_empty() {
            sent.push(("if-none-match", etag.as_str()));
        }
        let page = client.send("GET", DOCS, &sent, b"").unwrap();
        let next = page.header("etag").unwrap_or_default().to_owned();
        match page.status {
            304 => ends.push((min, max, next)),
            200 => {
                rows.extend_from_slice(page.json().get("Documents").and_then(Value::as_array).unwrap());
                windows.push((min, max, next));
            }
            // Split, or over several partitions from the start: each part continues at the same position.
            410 => {
                let ranges = client.send("GET", "/dbs/db/colls/c/pkranges", &[], b"").unwrap().json();
                for range in ranges.get("PartitionKeyRanges").and_then(Value::as_array).unwrap() {
                    let text = |name: &str| range.get(name).and_then(Value::as_str).unwrap().to_owned();
                    let part = (text("minInclusive").max(min.clone()), text("maxExclusive").min(max.clone()));
                    if part.0 < part.1 {
                        windows.push((part.0, part.1, etag.clone()));
                    }
                }
            }
            _ => panic!("{}", page.text()),
        }
    }
    rows
}
