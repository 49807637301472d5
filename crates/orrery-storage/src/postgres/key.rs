//! Keys as stored in `kv`: the partition id, then the caller's key.
//!
//! The highest id is reserved. Under it are, per partition and writing process, the names of the last committed
//! transactions, which resolve commits in doubt.

use std::borrow::Cow;
use std::error::Error;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::contract::{Key, KeyRange, PartitionId};

/// The id that no partition may have.
pub(super) const RESERVED: PartitionId = PartitionId(u32::MAX);

pub(super) const PREFIX_BYTES: usize = 4;

/// The id as stored in the `part` column.
pub(super) fn column(id: PartitionId) -> i32 {
    // PostgreSQL has no unsigned integers. The bits are kept; the order is not, and no condition uses it.
    id.0.cast_signed()
}

pub(super) fn from_column(part: i32) -> PartitionId {
    PartitionId(part.cast_unsigned())
}

pub(super) fn stored(id: PartitionId, key: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(PREFIX_BYTES + key.len());
    stored.extend_from_slice(&id.0.to_be_bytes());
    stored.extend_from_slice(key);
    stored
}

/// The caller's part of a stored key.
pub(super) fn own(stored: &[u8]) -> Key {
    stored.get(PREFIX_BYTES..).unwrap_or_default().to_vec()
}

/// The partition that a stored key belongs to.
pub(super) fn partition(stored: &[u8]) -> Option<PartitionId> {
    stored.first_chunk().map(|number| PartitionId(u32::from_be_bytes(*number)))
}

/// The bounds of a range, the second one exclusive.
pub(super) fn bounds(id: PartitionId, range: &KeyRange) -> (Vec<u8>, Vec<u8>) {
    let end = match &range.end {
        Some(end) => stored(id, end),
        // Does not overflow: the highest id is reserved.
        None => (id.0 + 1).to_be_bytes().to_vec(),
    };
    (stored(id, &range.start), end)
}

/// The key under which a process records the last transaction that it committed to a partition.
pub(super) fn writer(id: PartitionId, writer: u128) -> StoredKey<'static> {
    let key = [id.0.to_be_bytes().as_slice(), &writer.to_be_bytes()].concat();
    StoredKey { number: RESERVED, key: Cow::Owned(key) }
}

/// A key as stored in `kv`, assembled only when it is sent.
#[derive(Debug)]
pub(super) struct StoredKey<'a> {
    number: PartitionId,
    key: Cow<'a, [u8]>,
}

impl<'a> StoredKey<'a> {
    pub(super) fn new(id: PartitionId, key: &'a [u8]) -> Self {
        Self { number: id, key: Cow::Borrowed(key) }
    }

    pub(super) fn len(&self) -> usize {
        PREFIX_BYTES + self.key.len()
    }
}

impl ToSql for StoredKey<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_u32(self.number.0);
        out.put_slice(&self.key);
        Ok(IsNull::No)
    }

    accepts!(BYTEA);
    to_sql_checked!();
}

/// The records of all processes for a partition.
pub(super) fn writers(id: PartitionId) -> (Vec<u8>, Vec<u8>) {
    let prefix = |number: u32| [RESERVED.0.to_be_bytes(), number.to_be_bytes()].concat();
    // Does not overflow either: `RESERVED` is never an argument.
    (prefix(id.0), prefix(id.0 + 1))
}
