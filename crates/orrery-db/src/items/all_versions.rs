//! The change feed of all versions and deletes: the retained history of a partition, page by page.
//!
//! Positions are those of the latest-version feed. A reader starts now or where an earlier page ended, provided nothing
//! after that position has been trimmed.

use orrery_model::partition_key::{EpkRange, PartitionKey};
use orrery_model::value::write_json_string;
use orrery_model::{Error, Object, Result, Value};
use orrery_storage::{Lsn, ReadRequest, Scan};

use super::Items;
use super::change_feed::{ChangePage, ChangeRequest, ChangeStart};
use super::point::has_key;
use crate::catalog::{Container, Partition};
use crate::layout::history::{Happened, Version};
use crate::layout::keys;
use crate::partition::Receipt;

const FETCH_ENTRIES: usize = 128;

impl Items {
    pub(super) async fn read_versions(
        &self,
        receipt: &mut Receipt,
        (container, partition): (&Container, &Partition),
        range: &EpkRange,
        request: &ChangeRequest,
        count_max: usize,
    ) -> Result<ChangePage> {
        let Some(seconds) = self.history_seconds(container) else { return Err(not_kept()) };
        // As in the service, this feed cannot be read from the beginning or from a time.
        let start = match request.start {
            ChangeStart::After(lsn) if request.modified_since.is_none() => lsn,
            ChangeStart::Now if request.modified_since.is_none() => {
                return self.now(receipt, partition, request).await;
            }
            _ => return Err(begins_too_early()),
        };
        let only = request.scope.partition_key.as_ref();
        let only = only.filter(|key| container.definition.partition_key.may_collide(key));
        // Trimming is done now and then; what is too old counts as trimmed although it is still there.
        let oldest = self.env.now_seconds().saturating_sub(seconds);
        let mut out = ChangePage::default();
        let mut reached = start;
        let mut left = keys::history_after(start);
        let mut is_first = true;
        loop {
            let scan = ReadRequest::Scan(Scan::forward(left.clone(), FETCH_ENTRIES));
            let read = self.read_partition(receipt, partition, request.session.as_ref(), scan).await?;
            // Checked after the read, so that a concurrent trim is detected.
            match self.history_floor(partition).await? {
                None => return Err(not_kept()),
                Some(floor) if floor > reached && is_first => return Err(outside_retention()),
                // A long page ends where the history was still complete.
                Some(floor) if floor > reached => return Ok(out.ended(receipt, reached)),
                Some(_) => {}
            }
            for entry in &read.entries {
                let Some((lsn, ..)) = keys::parse_history(&entry.key) else { continue };
                let version = Version::decode(&entry.value);
                let version =
                    version.ok_or_else(|| Error::internal("A version of an item has an unknown format."))?;
                if is_first && version.timestamp < oldest {
                    return Err(outside_retention());
                }
                is_first = false;
                // A page ends only between transactions, because positions do not address operations inside one.
                if out.is_full(count_max) && lsn > reached {
                    return Ok(out.ended(receipt, reached));
                }
                reached = lsn;
                let is_wanted = keys::parse_item(&version.item_key)
                    .is_some_and(|(effective, _)| range.contains(&effective))
                    && only.is_none_or(|key| is_of(container, key, &version));
                if is_wanted {
                    write_version(container, lsn, &version, request.previous_images, &mut out)?;
                }
            }
            match read.entries.last() {
                Some(last) if read.more => left.start = [last.key.as_slice(), &[0]].concat(),
                // A reader at this position has seen every change up to it.
                _ => return Ok(out.ended(receipt, reached.max(read.lsn))),
            }
        }
    }
}

fn write_version(
    container: &Container,
    lsn: Lsn,
    version: &Version,
    previous_images: bool,
    out: &mut ChangePage,
) -> Result<()> {
    out.begin_document();
    out.documents.extend_from_slice(b"{\"current\":");
    let mut metadata = format!(
        "\"lsn\":{lsn},\"crts\":{},\"operationType\":\"{}\"",
        version.timestamp,
        version.happened.name()
    );
    if let Some(previous) = version.previous {
        metadata.extend([",\"previousImageLSN\":", &previous.to_string()]);
    }
    if version.happened == Happened::Delete {
        // A delete has no current version, and clients expect an empty object.
        out.documents.extend_from_slice(b"{}");
        if let Some(image) = version.image().filter(|_| previous_images) {
            out.documents.extend_from_slice(b",\"previous\":");
            image.write_document(container.rid, &mut out.documents);
        }
        // Tells a deletion by lifetime from one by a client.
        if version.expired {
            metadata.push_str(",\"timeToLiveExpired\":true");
        }
        let id = keys::parse_item(&version.item_key).map_or("", |(_, id)| id);
        metadata.push_str(",\"id\":");
        write_json_string(id, &mut metadata);
        metadata.push_str(",\"partitionKey\":");
        let key = version.partition_key().map(|key| key.to_value());
        // By name, unlike everywhere else: that is the service's format for this feed.
        named_key(container, key.as_ref()).write_json(&mut metadata);
    } else {
        let item = version.item();
        let item = item.ok_or_else(|| Error::internal("A version of an item has an unknown format."))?;
        item.write_document(container.rid, &mut out.documents);
    }
    out.documents.extend_from_slice(format!(",\"metadata\":{{{metadata}}}}}").as_bytes());
    Ok(())
}

/// The parts of a key by the names of their properties.
fn named_key(container: &Container, key: Option<&Value>) -> Value {
    let paths = container.definition.partition_key.paths();
    let values = key.and_then(Value::as_array).unwrap_or_default();
    let mut named = Object::new();
    for (path, value) in paths.iter().zip(values) {
        // The empty object represents a missing property.
        let is_undefined = value.as_object().is_some_and(Object::is_empty);
        if let Some(name) = path.segments().last().filter(|_| !is_undefined) {
            named.set(name.clone(), value.clone());
        }
    }
    named.into()
}

/// Whether a version really belongs to the key and not to another key with the same hash.
fn is_of(container: &Container, key: &PartitionKey, version: &Version) -> bool {
    match version.item() {
        Some(item) => has_key(container, key, &item),
        None => version.partition_key().as_ref() == Some(key),
    }
}

fn not_kept() -> Error {
    Error::bad_request(
        "Change Feed 'All Versions and Deletes' mode must be enabled. The container needs a change feed policy with a retention duration, or the server a default one.",
    )
}

fn begins_too_early() -> Error {
    Error::bad_request(
        "Start from beginning or from a point in time is not supported with 'All Versions and Deletes' mode. You must read the change feed from within the retention period.",
    )
}

fn outside_retention() -> Error {
    Error::bad_request(
        "The change feed has moved on from the requested position. You must read the change feed from within the retention period.",
    )
}
