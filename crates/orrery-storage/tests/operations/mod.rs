//! An operation for tests that only need something written.

use bytes::Bytes;
use orrery_storage::{Decision, Key, Lsn, Op, View, WriteSet};

/// Writes and deletes without looking.
#[derive(Default)]
pub(crate) struct Blind {
    pub(crate) puts: Vec<(Key, Bytes)>,
    pub(crate) deletes: Vec<Key>,
}

impl Blind {
    pub(crate) fn put(key: Key, value: impl Into<Bytes>) -> Self {
        Self { puts: vec![(key, value.into())], deletes: Vec::new() }
    }
}

impl Op for Blind {
    type Out = ();

    fn id(&self) -> u128 {
        0
    }

    fn reads(&self, _: &mut Vec<Key>) {}

    fn decide(&self, _: &dyn View, _: Lsn) -> Decision<()> {
        let (puts, deletes) = (self.puts.clone(), self.deletes.clone());
        Decision::Write(WriteSet { puts, deletes, ..WriteSet::default() }, ())
    }
}
