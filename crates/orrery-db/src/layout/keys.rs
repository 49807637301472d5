//! Keys of one partition. Their byte order is the order of every scan.
//!
//! * `08` index version: the version of the container's index that writes must have.
//! * `10` item: effective key, id. The item itself.
//! * `18` rid: ordinal. The key of the item with this RID, for clients that address items by `_self`.
//! * `20` index: generation, path, value, effective key, id. One entry per indexed term (`layout/index_entry.rs`).
//! * `24` composite index: generation, number, values, effective key, id.
//! * `30` feed: lsn, position in the transaction. The key of the item whose latest change this is.
//! * `36` history mark: LSN sequence. Present while all versions are retained; the position after which the history is
//!   complete (`items/history.rs`).
//! * `38` history: lsn, position, step. Every version, for as long as it is retained.
//! * `40` unique: policy, effective key, hash of the value tuple. The id that holds it.
//! * `50` expiry: second, effective key, id. Items with their own `ttl`.
//! * `60` statistics: effective key. Counters of one logical partition.
//! * `70` purge: effective key. A logical partition whose old items are being removed.
//! * `78` split mark, `79` split log: lsn (`layout/split_log.rs`).
//! * `7A` tombstone: lsn, number. A version replaced while the container was being repartitioned.
//!
//! An effective key is escaped (`00` becomes `00 FF`) and terminated by `00 00`, so that keys of any length keep their
//! order and a split can sort entries without decoding values. Ids come last and unescaped. Integers are big-endian.

use orrery_model::partition_key::{EffectiveKey, EpkRange};
use orrery_storage::{Key, KeyRange, Lsn};

/// The key of the index version that writes are checked against.
pub(crate) const INDEX_VERSION: [u8; 1] = [0x08];
const ITEM: u8 = 0x10;
const RID: u8 = 0x18;
const FEED: u8 = 0x30;
const RECORDING: u8 = 0x36;
const HISTORY: u8 = 0x38;
const UNIQUE: u8 = 0x40;
const EXPIRY: u8 = 0x50;
const STATISTICS: u8 = 0x60;
const PURGE: u8 = 0x70;

/// Appends an effective key in its escaped form.
pub(crate) fn push_effective_key(key: &mut Key, effective: &EffectiveKey) {
    push_escaped(key, effective.as_bytes());
    key.extend_from_slice(&[0, 0]);
}

/// Appends bytes in an escaped form that preserves their order whatever follows.
pub(crate) fn push_escaped(key: &mut Key, bytes: &[u8]) {
    // Nearly all keys: nothing to escape, one copy.
    if !bytes.contains(&0) {
        return key.extend_from_slice(bytes);
    }
    for &byte in bytes {
        key.push(byte);
        if byte == 0 {
            key.push(0xFF);
        }
    }
}

/// Splits an escaped effective key off the front.
fn take_effective_key(bytes: &[u8]) -> Option<(EffectiveKey, &[u8])> {
    let mut effective = Vec::with_capacity(16);
    let mut rest = bytes;
    loop {
        let zero = rest.iter().position(|byte| *byte == 0)?;
        effective.extend_from_slice(&rest[..zero]);
        match rest[zero + 1..].split_first()? {
            (0, tail) => return Some((EffectiveKey::from_bytes(effective), tail)),
            // An escaped zero, not the end.
            (0xFF, tail) => {
                effective.push(0);
                rest = tail;
            }
            // `00` followed by anything else is never written.
            _ => return None,
        }
    }
}

/// The key of an item.
pub(crate) fn item(effective: &EffectiveKey, id: &str) -> Key {
    let mut key = Key::with_capacity(1 + 20 + id.len());
    key.push(ITEM);
    push_place(&mut key, effective, id);
    debug_assert!(parse_item(&key) == Some((effective.clone(), id)), "an item key must parse to its parts");
    key
}

/// Appends an item's effective key and id.
pub(crate) fn push_place(key: &mut Key, effective: &EffectiveKey, id: &str) {
    push_effective_key(key, effective);
    key.extend_from_slice(id.as_bytes());
}

/// The key of the item at a place.
pub(crate) fn item_at(place: &[u8]) -> Key {
    [&[ITEM], place].concat()
}

/// The effective key and id of an item key.
pub(crate) fn parse_item(key: &[u8]) -> Option<(EffectiveKey, &str)> {
    let (effective, id) = take_effective_key(key.strip_prefix(&[ITEM])?)?;
    Some((effective, std::str::from_utf8(id).ok()?))
}

/// Whether a key is that of an item, or lies between those of items.
pub(crate) fn is_item(key: &[u8]) -> bool {
    key.first() == Some(&ITEM)
}

/// Whether a key is that of a RID, or lies between those of RIDs.
pub(crate) fn is_rid(key: &[u8]) -> bool {
    key.first() == Some(&RID)
}

/// All items whose effective key lies in the range.
pub(crate) fn items_in(range: &EpkRange) -> KeyRange {
    KeyRange::new(bound(ITEM, &range.min), bound(ITEM, &range.max))
}

/// All items of one logical partition.
pub(crate) fn items_of(effective: &EffectiveKey) -> KeyRange {
    KeyRange::prefix(&item(effective, ""))
}

fn bound(prefix: u8, effective: &EffectiveKey) -> Key {
    let mut key = vec![prefix];
    // Without the terminator: a bound lies before all keys that begin with it.
    push_escaped(&mut key, effective.as_bytes());
    key
}

/// The key that maps an item's RID to its item key.
pub(crate) fn rid(ordinal: u64) -> Key {
    let mut key = Key::with_capacity(9);
    key.push(RID);
    key.extend_from_slice(&ordinal.to_be_bytes());
    key
}

/// All RIDs.
pub(crate) fn rids() -> KeyRange {
    KeyRange::prefix(&[RID])
}

/// The key of a feed entry: what changed at this position of this transaction.
pub(crate) fn feed(lsn: Lsn, position: u16) -> Key {
    let mut key = Key::with_capacity(11);
    key.push(FEED);
    key.extend_from_slice(&lsn.to_be_bytes());
    key.extend_from_slice(&position.to_be_bytes());
    key
}

/// The LSN and position of a feed key.
pub(crate) fn parse_feed(key: &[u8]) -> Option<(Lsn, u16)> {
    let rest = key.strip_prefix(&[FEED])?;
    let (lsn, position) = rest.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*lsn), u16::from_be_bytes(position.try_into().ok()?)))
}

/// All feed entries after the transaction `lsn`.
pub(crate) fn feed_after(lsn: Lsn) -> KeyRange {
    KeyRange::new(feed(lsn.saturating_add(1), 0), vec![FEED + 1])
}

/// The key that is present while a partition retains all versions. A merge combines the keys of several LSN sequences,
/// of which the first always exists.
pub(crate) fn history_mark(numbering: u16) -> Key {
    let [high, low] = numbering.to_be_bytes();
    vec![RECORDING, high, low]
}

/// The LSN sequence of a history mark.
pub(crate) fn parse_history_mark(key: &[u8]) -> Option<u16> {
    let rest = key.strip_prefix(&[RECORDING])?;
    Some(u16::from_be_bytes(rest.try_into().ok()?))
}

/// All history marks.
pub(crate) fn history_marks() -> KeyRange {
    KeyRange::prefix(&[RECORDING])
}

/// The key of a version: one operation may end one item and begin another, in two steps.
pub(crate) fn history(lsn: Lsn, position: u16, step: u8) -> Key {
    let mut key = Key::with_capacity(12);
    key.push(HISTORY);
    key.extend_from_slice(&lsn.to_be_bytes());
    key.extend_from_slice(&position.to_be_bytes());
    key.push(step);
    key
}

/// The LSN, position and step of a history key.
pub(crate) fn parse_history(key: &[u8]) -> Option<(Lsn, u16, u8)> {
    let rest: &[u8; 11] = key.strip_prefix(&[HISTORY])?.try_into().ok()?;
    let (lsn, rest) = rest.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*lsn), u16::from_be_bytes([rest[0], rest[1]]), rest[2]))
}

/// All versions after the transaction `lsn`.
pub(crate) fn history_after(lsn: Lsn) -> KeyRange {
    KeyRange::new(history(lsn.saturating_add(1), 0, 0), vec![HISTORY + 1])
}

/// The key that reserves a unique tuple, given by its hash, in a logical partition.
pub(crate) fn unique(policy: u8, effective: &EffectiveKey, tuple_hash: &[u8; 32]) -> Key {
    let mut key = Key::with_capacity(2 + 20 + 32);
    key.extend_from_slice(&[UNIQUE, policy]);
    push_effective_key(&mut key, effective);
    key.extend_from_slice(tuple_hash);
    key
}

/// The key of an expiry entry: the item expires at this second.
pub(crate) fn expiry(second: i64, item_key: &[u8]) -> Key {
    let mut key = Key::with_capacity(8 + item_key.len());
    key.push(EXPIRY);
    // Negative seconds would sort behind positive ones, since the sign bit comes first.
    key.extend_from_slice(&second.max(0).to_be_bytes());
    // The item key without its kind, so that the item is found without reading a value.
    key.extend_from_slice(&item_key[1..]);
    key
}

/// All expiry entries of seconds up to and including `second`.
pub(crate) fn expired_by(second: i64) -> KeyRange {
    let mut end = vec![EXPIRY];
    end.extend_from_slice(&second.max(0).saturating_add(1).to_be_bytes());
    KeyRange::new(vec![EXPIRY], end)
}

/// The item key inside an expiry key.
pub(crate) fn item_of_expiry(expiry_key: &[u8]) -> Option<Key> {
    let mut key = vec![ITEM];
    key.extend_from_slice(expiry_key.get(9..)?);
    Some(key)
}

/// The key of a logical partition's counters.
pub(crate) fn statistics(effective: &EffectiveKey) -> Key {
    let mut key = vec![STATISTICS];
    push_effective_key(&mut key, effective);
    key
}

/// The counters of all logical partitions in the range.
pub(crate) fn statistics_in(range: &EpkRange) -> KeyRange {
    KeyRange::new(bound(STATISTICS, &range.min), bound(STATISTICS, &range.max))
}

/// The logical partition of a statistics key.
pub(crate) fn parse_statistics(key: &[u8]) -> Option<EffectiveKey> {
    Some(take_effective_key(key.strip_prefix(&[STATISTICS])?)?.0)
}

/// The item key of an entry or, for an entry of a whole logical partition, that of an item with an empty id. Index
/// entries are handled by `index_entry`; entries without an owner yield none.
pub(crate) fn item_key_of(key: &[u8], value: &[u8]) -> Option<Key> {
    match *key.first()? {
        ITEM => Some(key.to_vec()),
        RID | FEED => Some(value.to_vec()),
        // The hash of the tuple comes last.
        UNIQUE => Some(item_at(key.get(2..key.len().checked_sub(32)?)?)),
        EXPIRY => item_of_expiry(key),
        STATISTICS | PURGE => Some(item_at(key.get(1..)?)),
        HISTORY => super::history::item_key_in(value),
        _ => None,
    }
}

/// The key that marks a logical partition as being purged.
pub(crate) fn purge(effective: &EffectiveKey) -> Key {
    let mut key = vec![PURGE];
    push_effective_key(&mut key, effective);
    key
}

/// All purges in progress.
pub(crate) fn purges() -> KeyRange {
    KeyRange::prefix(&[PURGE])
}

/// The logical partition of a purge key.
pub(crate) fn parse_purge(key: &[u8]) -> Option<EffectiveKey> {
    Some(take_effective_key(key.strip_prefix(&[PURGE])?)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective(hex: &str) -> EffectiveKey {
        EffectiveKey::parse(hex).unwrap()
    }

    #[test]
    fn the_layout_is_frozen() {
        let key = item(&effective("0500FF"), "a/b");
        assert_eq!(key, [0x10, 0x05, 0x00, 0xFF, 0xFF, 0x00, 0x00, b'a', b'/', b'b']);
        assert_eq!(parse_item(&key), Some((effective("0500FF"), "a/b")));
        assert_eq!(feed(258, 3), [0x30, 0, 0, 0, 0, 0, 0, 1, 2, 0, 3]);
        assert_eq!(history(258, 3, 1), [0x38, 0, 0, 0, 0, 0, 0, 1, 2, 0, 3, 1]);
        assert_eq!(parse_history(&history(258, 3, 1)), Some((258, 3, 1)));
        assert_eq!(history_mark(258), [0x36, 1, 2]);
        assert_eq!(parse_history_mark(&history_mark(258)), Some(258));
        assert_eq!(expiry(1, &key)[..9], [0x50, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(item_of_expiry(&expiry(1, &key)).unwrap(), key);
        assert_eq!(parse_purge(&purge(&effective("00"))), Some(effective("00")));
        let tuple = unique(1, &effective("0500FF"), &[0xFF; 32]);
        assert_eq!(parse_item(&item_key_of(&tuple, b"id").unwrap()), Some((effective("0500FF"), "")));
    }

    #[test]
    fn byte_order_follows_effective_keys() {
        let ordered = ["", "00", "0000", "0001", "01", "05", "05C1", "05C100", "05C2", "3FFF", "FE"];
        for (lower, upper) in ordered.iter().zip(&ordered[1..]) {
            assert!(item(&effective(lower), "zz") < item(&effective(upper), "a"), "{lower} {upper}");
            let range = items_in(&EpkRange { min: effective(lower), max: effective(upper) });
            let inside = |key: &Key| *key >= range.start && Some(key) < range.end.as_ref();
            assert!(inside(&item(&effective(lower), "x")), "{lower}");
            assert!(!inside(&item(&effective(upper), "x")), "{upper}");
        }
    }
}
