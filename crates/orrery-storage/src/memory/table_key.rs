//! Keys of the memory engine's map.

use crate::contract::Key;
use crate::packed::{KEY_HEAD_BYTES, KeyHead, key_head};

/// A key whose first 24 bytes are compared as numbers. They distinguish most keys, so that a search in the map rarely
/// follows a pointer.
///
/// The derived order is that of the bytes: a shorter key is filled up with zeros, and its length decides where the
/// fillings look like bytes of the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableKey {
    head: KeyHead,
    tail: Box<[u8]>,
    length: u32,
}

impl TableKey {
    pub(super) fn new(key: &[u8]) -> Self {
        let tail = key.get(KEY_HEAD_BYTES..).unwrap_or_default().into();
        let length = u32::try_from(key.len()).expect("keys are at most 2 KB long");
        Self { head: key_head(key), tail, length }
    }

    pub(super) fn len(&self) -> usize {
        self.length as usize
    }

    pub(super) fn bytes(&self) -> Key {
        let mut key = Key::with_capacity(self.len().max(KEY_HEAD_BYTES));
        for word in self.head {
            key.extend_from_slice(&word.to_be_bytes());
        }
        // The head of a short key is filled up with zeros, which are not part of it.
        key.truncate(self.len());
        key.extend_from_slice(&self.tail);
        key
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = Key> {
        // Bytes and lengths at which keys are hardest to tell apart.
        proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(255)], 0..40)
    }

    proptest! {
        #[test]
        fn keys_are_ordered_by_their_bytes(one in keys(), cut in 0..40_usize, other in keys()) {
            let start = &one[..cut.min(one.len())];
            let joined = [start, other.as_slice()].concat();
            for other in [&joined, &other] {
                prop_assert_eq!(TableKey::new(&one).cmp(&TableKey::new(other)), one.cmp(other));
            }
            prop_assert_eq!(TableKey::new(&one).bytes(), one.clone());
            prop_assert_eq!(TableKey::new(&one).len(), one.len());
        }
    }
}
