//! Runs the conformance suite against every store of this crate.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

#[macro_use]
mod suite;

use std::path::PathBuf;
use std::sync::Arc;

use orrery_storage::{Durability, Embedded, EmbeddedOptions, Limits, Memory, PartitionStore};

use crate::suite::Subject;

fn memory(limits: Limits) -> Subject {
    Subject { store: Arc::new(Memory::with_limits(limits)), reopen: None, keep: Box::new(()) }
}

fn embedded_with(options: EmbeddedOptions) -> Subject {
    let directory = tempfile::tempdir().unwrap();
    let path: PathBuf = directory.path().join("data");
    let open = move || Arc::new(Embedded::open(&path, options.clone()).unwrap()) as Arc<dyn PartitionStore>;
    Subject { store: open(), reopen: Some(Box::new(open)), keep: Box::new(directory) }
}

fn embedded(limits: Limits) -> Subject {
    embedded_with(EmbeddedOptions { limits, ..EmbeddedOptions::default() })
}

/// Sizes so small that every test writes and merges tables.
fn embedded_small(limits: Limits) -> Subject {
    let sizes = EmbeddedOptions {
        memtable_bytes: 8 << 10,
        table_bytes: 32 << 10,
        cache_bytes: 64 << 10,
        ..EmbeddedOptions::default()
    };
    embedded_with(EmbeddedOptions { limits, ..sizes })
}

fn embedded_relaxed(limits: Limits) -> Subject {
    let durability = Durability::Relaxed { interval_ms: 5 };
    embedded_with(EmbeddedOptions { limits, durability, ..EmbeddedOptions::default() })
}

conformance!(memory_store, memory);
conformance!(embedded_store, embedded);
conformance!(embedded_small_store, embedded_small);
conformance!(embedded_relaxed_store, embedded_relaxed);
