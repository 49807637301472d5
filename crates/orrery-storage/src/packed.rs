//! Many keys in one allocation.
//!
//! An item has about fifteen index entries of a hundred bytes each. Allocated one by one on one thread and freed
//! on another, the allocations cost more than the bytes.

use bytes::Bytes;

/// A sorted set of keys that share one buffer.
#[derive(Clone, Debug, Default)]
pub struct PackedKeys {
    bytes: Bytes,
    /// Start and end of each key in the buffer, in key order.
    spans: Vec<(u32, u32)>,
}

impl PackedKeys {
    /// The number of distinct keys.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The keys in byte order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.spans.iter().map(|span| at(&self.bytes, *span))
    }

    pub(crate) fn first(&self) -> Option<&[u8]> {
        self.spans.first().map(|span| at(&self.bytes, *span))
    }

    pub(crate) fn last(&self) -> Option<&[u8]> {
        self.spans.last().map(|span| at(&self.bytes, *span))
    }

    /// Looks the key up by binary search.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.spans.binary_search_by(|span| at(&self.bytes, *span).cmp(key)).is_ok()
    }

    /// The keys that pass the test, sharing the same buffer.
    #[must_use]
    pub fn filter(&self, mut test: impl FnMut(&[u8]) -> bool) -> Self {
        // The buffer is shared, so a filtered set costs its spans only.
        let spans = self.spans.iter().copied().filter(|span| test(at(&self.bytes, *span)));
        Self { bytes: self.bytes.clone(), spans: spans.collect() }
    }
}

/// Builds [`PackedKeys`]: append a key to [`KeyPacker::bytes`], call [`KeyPacker::end_key`], repeat.
#[derive(Debug, Default)]
pub struct KeyPacker {
    bytes: Vec<u8>,
    spans: Vec<(u32, u32)>,
    key_start: usize,
}

impl KeyPacker {
    /// Reserves space for this many keys and bytes in total.
    pub fn with_capacity(keys: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), spans: Vec::with_capacity(keys), key_start: 0 }
    }

    /// The buffer to append the next key to. Earlier bytes must not be changed.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Marks the bytes appended since the last call as one key.
    pub fn end_key(&mut self) {
        let offset = |at: usize| u32::try_from(at).expect("the keys of a commit stay far below 4 GB");
        self.spans.push((offset(self.key_start), offset(self.bytes.len())));
        self.key_start = self.bytes.len();
    }

    /// Sorts the keys and removes duplicates.
    pub fn finish(self) -> PackedKeys {
        let Self { bytes, mut spans, .. } = self;
        spans.sort_unstable_by(|one, other| at(&bytes, *one).cmp(at(&bytes, *other)));
        // Elements of an array with equal values yield the same key.
        spans.dedup_by(|one, other| at(&bytes, *one) == at(&bytes, *other));
        debug_assert!(
            spans.windows(2).all(|pair| at(&bytes, pair[0]) < at(&bytes, pair[1])),
            "packed keys are sorted and distinct"
        );
        PackedKeys { bytes: bytes.into(), spans }
    }
}

/// The first bytes of a key, filled up with zeros. They distinguish most keys, and comparing them follows no pointer.
pub(crate) type KeyHead = [u64; 3];

pub(crate) const KEY_HEAD_BYTES: usize = size_of::<KeyHead>();

pub(crate) fn key_head(key: &[u8]) -> KeyHead {
    let mut bytes = [0; KEY_HEAD_BYTES];
    let length = key.len().min(bytes.len());
    bytes[..length].copy_from_slice(&key[..length]);
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|offset| bytes[at + offset]));
    [word(0), word(8), word(16)]
}

fn at(bytes: &[u8], (start, end): (u32, u32)) -> &[u8] {
    &bytes[start as usize..end as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_distinct() {
        let mut packer = KeyPacker::default();
        for key in ["b", "", "abc", "b", "ab"] {
            packer.bytes().extend_from_slice(key.as_bytes());
            packer.end_key();
        }
        let keys = packer.finish();
        assert_eq!(keys.iter().collect::<Vec<_>>(), [&b""[..], b"ab", b"abc", b"b"]);
        assert!(keys.contains(b"abc") && !keys.contains(b"a"));
        let some = keys.filter(|key| key.len() > 1);
        assert_eq!(some.iter().collect::<Vec<_>>(), [b"ab".as_slice(), b"abc"]);
        assert_eq!((some.len(), some.is_empty(), PackedKeys::default().is_empty()), (2, false, true));
    }
}
