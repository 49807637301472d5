//! Moving items in bulk, for `orrery import`, `orrery export` and `orrery copy`.
//!
//! Contains the parts that these commands share. Their arguments and the order of their steps are in `commands`.
//!
//! A source (a file in `input`, a container in `reader`) hands out chunks of records. `writer` upserts them with many
//! requests in flight. `tracker` knows which positions are confirmed even though requests finish in any order, and
//! `checkpoint` persists them. Upserts are idempotent, so an interrupted run resumes at its checkpoint and rewrites a
//! few items; nothing else is needed.

mod checkpoint;
mod container;
pub(crate) mod input;
mod item;
mod options;
mod outcome;
pub(crate) mod progress;
mod reader;
mod run;
mod tracker;
mod writer;

pub(crate) use checkpoint::Checkpoint;
pub(crate) use container::{ProvisionedThroughput, RemoteContainer};
pub(crate) use item::{IdRule, PreparedItem, prepare};
pub(crate) use options::{PaceOptions, WriteOptions};
pub(crate) use outcome::{FailedRecord, Outcome, Summary};
pub(crate) use reader::{ContainerReader, ItemBatch, LanePosition, item_line, positions};
pub(crate) use run::{BATCH_WAIT_MAX, SAVE_INTERVAL, run_on_threads, supervise};
pub(crate) use tracker::Tracker;
pub(crate) use writer::{BatchLimits, ItemWriter, PendingItem};
