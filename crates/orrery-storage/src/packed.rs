//! Keys in one piece of memory. An item has some fifteen index entries of a hundred bytes: made one by one, taken
//! to another thread and freed on a third, their allocations cost more than their bytes.

use bytes::Bytes;

/// Keys that share their memory, in order, each once.
#[derive(Clone, Debug, Default)]
pub struct PackedKeys {
    bytes: Bytes,
    /// Where each key begins and ends, in the order of the keys.
    places: Vec<(u32, u32)>,
}

impl PackedKeys {
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// All keys in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.places.iter().map(|place| at(&self.bytes, *place))
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.places.binary_search_by(|place| at(&self.bytes, *place).cmp(key)).is_ok()
    }

    /// The keys that the test holds for. They share the memory of all.
    #[must_use]
    pub fn filter(&self, mut test: impl FnMut(&[u8]) -> bool) -> Self {
        let places = self.places.iter().copied().filter(|place| test(at(&self.bytes, *place)));
        Self { bytes: self.bytes.clone(), places: places.collect() }
    }
}

/// Makes packed keys: append one to the bytes, end it, append the next.
#[derive(Debug, Default)]
pub struct KeyPacker {
    bytes: Vec<u8>,
    places: Vec<(u32, u32)>,
    begun_at: usize,
}

impl KeyPacker {
    pub fn with_capacity(keys: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), places: Vec::with_capacity(keys), begun_at: 0 }
    }

    /// Where the next key is to be appended. What is there already must stay.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the key that was appended.
    pub fn end_key(&mut self) {
        let place =
            |at: usize| u32::try_from(at).expect("keys are far smaller than a store's limit for commits");
        self.places.push((place(self.begun_at), place(self.bytes.len())));
        self.begun_at = self.bytes.len();
    }

    pub fn finish(self) -> PackedKeys {
        let Self { bytes, mut places, .. } = self;
        places.sort_unstable_by(|one, other| at(&bytes, *one).cmp(at(&bytes, *other)));
        places.dedup_by(|one, other| at(&bytes, *one) == at(&bytes, *other));
        PackedKeys { bytes: bytes.into(), places }
    }
}

fn at(bytes: &[u8], (start, end): (u32, u32)) -> &[u8] {
    &bytes[start as usize..end as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_order_and_once() {
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
