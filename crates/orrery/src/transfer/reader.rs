//! Reading all items of a container, several partitions at once.
//!
//! The container is read in lanes (see `client::feed`). When a partition splits or merges under a lane, the lane waits
//! until everything read from it is settled and is then replaced by lanes over the new partitions.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orrery_env::{SystemEnv, task};
use orrery_model::partition_key::EpkRange;
use orrery_model::value::write_json_string;
use orrery_model::{Object, Value};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::outcome::{Outcome, compact};
use super::tracker::{Ticket, Tracker};
use crate::client::{Client, ContainerPath, Lane, PageOutcome, PartitionRange};
use crate::failure::Failure;

/// Items requested per page; servers return fewer if the items are large.
const PAGE_ITEMS_MAX: u32 = 1000;

/// How far a lane has been read, and whether that is its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LanePosition {
    pub(crate) lane: Lane,
    pub(crate) finished: bool,
}

impl LanePosition {
    pub(crate) fn to_value(&self) -> Value {
        let mut object = Object::new();
        object.set("min", Value::from(self.lane.keys.min.to_string()));
        object.set("max", Value::from(self.lane.keys.max.to_string()));
        if let Some(continuation) = &self.lane.continuation {
            object.set("continuation", Value::from(continuation.as_str()));
        }
        object.set("finished", Value::from(self.finished));
        object.into()
    }

    pub(crate) fn parse(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let keys = EpkRange::parse(text("min")?, text("max")?).ok()?;
        let lane = Lane { keys, continuation: text("continuation").map(str::to_owned) };
        Some(Self { lane, finished: value.get("finished")?.as_bool()? })
    }
}

/// The positions stored in a checkpoint; the start of the whole container if there are none.
pub(crate) fn positions(lanes: Option<&Value>) -> Result<Vec<LanePosition>, Failure> {
    let Some(lanes) = lanes else {
        return Ok(vec![LanePosition { lane: Lane::whole(), finished: false }]);
    };
    let lanes = lanes.as_array().unwrap_or(&[]).iter().map(LanePosition::parse);
    lanes
        .collect::<Option<Vec<_>>>()
        .filter(|lanes| !lanes.is_empty())
        .ok_or_else(|| Failure::refused("the checkpoint holds positions that cannot be parsed"))
}

/// A lane, its number in the tracker, and the partition range it is read from.
type NumberedLane = (u64, Lane, PartitionRange);

/// The items of one page. Each must be settled with the ticket.
pub(crate) struct ItemBatch {
    pub(crate) ticket: Ticket,
    pub(crate) items: Vec<Box<RawValue>>,
}

/// Reads one container.
pub(crate) struct ContainerReader {
    pub(crate) client: Arc<Client>,
    pub(crate) container: ContainerPath,
    pub(crate) tracker: Arc<Tracker<LanePosition>>,
    pub(crate) outcome: Arc<Outcome>,
    pub(crate) concurrency: u16,
    next_number: AtomicU64,
}

impl ContainerReader {
    pub(crate) fn new(
        client: Arc<Client>,
        container: ContainerPath,
        outcome: Arc<Outcome>,
        concurrency: u16,
    ) -> Self {
        let tracker = Arc::new(Tracker::new());
        Self { client, container, tracker, outcome, concurrency, next_number: AtomicU64::new(0) }
    }

    /// Reads everything after the positions and sends it on. Returns early when the transfer is stopped; a failure to read
    /// stops it.
    pub(crate) async fn read(self: Arc<Self>, from: Vec<LanePosition>, batches: mpsc::Sender<ItemBatch>) {
        if let Err(failure) = Arc::clone(&self).read_lanes(from, batches).await {
            self.outcome.stop_because(failure);
        }
    }

    async fn read_lanes(
        self: Arc<Self>,
        from: Vec<LanePosition>,
        batches: mpsc::Sender<ItemBatch>,
    ) -> Result<(), Failure> {
        let ranges = self.client.read_ranges(&SystemEnv, &self.container).await?;
        let mut queue: VecDeque<NumberedLane> = VecDeque::new();
        for position in from {
            if position.finished {
                // Stays in the checkpoint, or the next run would read this lane again.
                self.tracker.add(self.take_number(), position);
                continue;
            }
            for (lane, range) in position.lane.cut(&ranges) {
                let number = self.take_number();
                self.tracker.add(number, LanePosition { lane: lane.clone(), finished: false });
                queue.push_back((number, lane, range));
            }
        }
        let mut reading: JoinSet<Result<Vec<NumberedLane>, Failure>> = JoinSet::new();
        loop {
            while reading.len() < usize::from(self.concurrency)
                && let Some((number, lane, range)) = queue.pop_front()
            {
                let lane = Arc::clone(&self).read_lane(number, lane, range, batches.clone());
                task::spawn_in(&mut reading, "read a lane", lane);
            }
            let joined = tokio::select! {
                joined = reading.join_next() => joined,
                // Dropping the set cancels the reads.
                () = self.outcome.until_stopped() => return Ok(()),
            };
            match joined {
                None => return Ok(()),
                Some(Ok(Ok(more))) => queue.extend(more),
                Some(Ok(Err(failure))) => return Err(failure),
                Some(Err(error)) => return Err(Failure::internal(format!("reading failed: {error}"))),
            }
        }
    }

    fn take_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Reads one lane to its end, or until its range is gone: then returns the lanes that replace it.
    async fn read_lane(
        self: Arc<Self>,
        number: u64,
        mut lane: Lane,
        range: PartitionRange,
        batches: mpsc::Sender<ItemBatch>,
    ) -> Result<Vec<NumberedLane>, Failure> {
        loop {
            let page =
                self.client.read_page(&SystemEnv, &self.container, &lane, &range, PAGE_ITEMS_MAX).await?;
            let page = match page {
                PageOutcome::Page(page) => page,
                PageOutcome::RangeGone => {
                    // Items already read must be written before the lane is replaced, or a checkpoint would skip them.
                    self.tracker.drained(number).await;
                    let ranges = self.client.read_ranges(&SystemEnv, &self.container).await?;
                    let parts: Vec<NumberedLane> = lane
                        .cut(&ranges)
                        .into_iter()
                        .map(|(lane, range)| (self.take_number(), lane, range))
                        .collect();
                    let positions = parts.iter().map(|(number, lane, _)| {
                        (*number, LanePosition { lane: lane.clone(), finished: false })
                    });
                    // In one step, so that no checkpoint lacks some of the keys.
                    self.tracker.replace(number, positions.collect());
                    return Ok(parts);
                }
            };
            let finished = page.continuation.is_none();
            lane.continuation = page.continuation;
            // This position counts only once all items of the page are settled.
            let after = LanePosition { lane: lane.clone(), finished };
            let ticket = self.tracker.begin(number, page.items.len(), after);
            // Without a receiver the transfer has ended.
            if batches.send(ItemBatch { ticket, items: page.items }).await.is_err() || finished {
                return Ok(Vec::new());
            }
        }
    }
}

/// What the server adds to an item.
const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

/// Appends an item on one line, with or without its system properties. Values keep their original text, so that
/// numbers survive a round trip exactly.
pub(crate) fn item_line(item: &RawValue, keep_system: bool, out: &mut String) -> Result<(), Failure> {
    if keep_system {
        compact(item.get(), out);
        return Ok(());
    }
    let mut deserializer = serde_json::Deserializer::from_str(item.get());
    // Items may be nested as deeply as the server accepts; nothing here recurses into them.
    deserializer.disable_recursion_limit();
    out.push('{');
    let written = deserializer.deserialize_map(Members { out });
    written.map_err(|error| {
        Failure::refused(format!("the server returned an item that cannot be parsed: {error}"))
    })?;
    out.push('}');
    Ok(())
}

/// Copies the members of an object except for system properties.
struct Members<'a> {
    out: &'a mut String,
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut is_first = true;
        while let Some(name) = members.next_key::<Cow<'de, str>>()? {
            let value: &RawValue = members.next_value()?;
            if SYSTEM_PROPERTIES.contains(&name.as_ref()) {
                continue;
            }
            if !is_first {
                self.out.push(',');
            }
            is_first = false;
            write_json_string(&name, self.out);
            self.out.push(':');
            compact(value.get(), self.out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_system_properties_are_removed() {
        let text = "{\"id\":\"a\\u0041\",\"n\":1.50,\n\"_rid\":\"x\",\"o\":{\"_ts\": 1},\"_ts\":5,\"\\u005fetag\":\"y\"}";
        let raw: Box<RawValue> = serde_json::from_str(text).unwrap();
        let mut out = String::new();
        item_line(&raw, false, &mut out).ok().unwrap();
        assert_eq!(out, "{\"id\":\"a\\u0041\",\"n\":1.50,\"o\":{\"_ts\":1}}");
        out.clear();
        item_line(&raw, true, &mut out).ok().unwrap();
        assert!(out.contains("\"_rid\":\"x\"") && !out.contains('\n'));
    }

    #[test]
    fn positions_round_trip_through_a_checkpoint() {
        let keys = EpkRange::parse("10", "FF").unwrap();
        let position =
            LanePosition { lane: Lane { keys, continuation: Some("x\"y".to_owned()) }, finished: false };
        assert_eq!(LanePosition::parse(&position.to_value()), Some(position.clone()));
        let all = positions(Some(&Value::from(vec![position.to_value()]))).ok().unwrap();
        assert_eq!(all, [position]);
        assert!(positions(Some(&Value::from(7))).is_err());
        assert_eq!(positions(None).ok().unwrap().len(), 1);
    }
}
