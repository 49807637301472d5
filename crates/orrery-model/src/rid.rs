//! Resource ids (`_rid`) and the self links built from them.
//!
//! Layout, big-endian unless said otherwise, written as padded base64 with `-` for `/`:
//!
//! | bytes | content |
//! |---|---|
//! | 0–3 | database |
//! | 4–7 | container if the top bit is set, user if it is clear, 0 for a client encryption key |
//! | 8–15 | below a container: little-endian ordinal whose top nibble is the kind; below a user: the permission; a client encryption key: 4 bytes id, then little-endian 2 |
//!
//! Offers have 3 separate bytes. Clients read the ordinal of an item as a little-endian number and order by it, so
//! ordinals must increase.

use std::fmt;

use base64::Engine;
use base64::alphabet::Alphabet;
use base64::engine::general_purpose::{GeneralPurpose, PAD};

/// Base64 in which `-` stands for `/`: resource ids are parts of paths.
const TEXT: GeneralPurpose = GeneralPurpose::new(&ALPHABET, PAD);
const ALPHABET: Alphabet =
    match Alphabet::new("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-") {
        Ok(alphabet) => alphabet,
        Err(_) => panic!("the alphabet has 64 different letters"),
    };
/// The longest text of a resource id.
const TEXT_BYTES_MAX: usize = 28;

/// Set in the second word of a container, clear in that of a user.
const CONTAINER_BIT: u32 = 1 << 31;
/// Ordinals leave the top nibble to the kind.
const ORDINAL_BITS: u32 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DatabaseRid(pub u32);

/// A container. The top bit of `container` is always set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerRid {
    database: DatabaseRid,
    container: u32,
}

/// A user. The top bit of `user` is always clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserRid {
    database: DatabaseRid,
    user: u32,
}

/// Resources below a container, with their type nibble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChildKind {
    Item,
    Conflict,
    PartitionKeyRange,
    UserDefinedFunction,
    Trigger,
    StoredProcedure,
}

/// Something below a container other than an item, or an item seen among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChildRid {
    pub container: ContainerRid,
    pub kind: ChildKind,
    ordinal: u64,
}

/// An item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemRid {
    pub container: ContainerRid,
    ordinal: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PermissionRid {
    pub user: UserRid,
    pub ordinal: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientEncryptionKeyRid {
    pub database: DatabaseRid,
    pub key: u32,
}

/// An offer: 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfferRid(u32);

/// Any resource id, distinguished by length and marker bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rid {
    Database(DatabaseRid),
    Container(ContainerRid),
    User(UserRid),
    Item(ItemRid),
    Child(ChildRid),
    Permission(PermissionRid),
    ClientEncryptionKey(ClientEncryptionKeyRid),
    Offer(OfferRid),
}

impl Rid {
    /// Reads any resource id, or `None` if the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = decode(text)?;
        match bytes.len() {
            3 => OfferRid::from_bytes(&bytes).map(Self::Offer),
            4 => DatabaseRid::from_bytes(&bytes).map(Self::Database),
            // The top bit of the second word tells containers from users.
            8 => match ContainerRid::from_bytes(&bytes) {
                Some(container) => Some(Self::Container(container)),
                None => UserRid::from_bytes(&bytes).map(Self::User),
            },
            // Neither a container, whose mark is missing, nor a user, whose number is at least 1.
            16 if bytes[4..8] == [0; 4] => {
                ClientEncryptionKeyRid::from_bytes(&bytes).map(Self::ClientEncryptionKey)
            }
            // Below a user there is nothing but permissions.
            16 if bytes[4] & 0x80 == 0 => PermissionRid::from_bytes(&bytes).map(Self::Permission),
            16 => ChildRid::from_bytes(&bytes).map(|child| match child.kind {
                ChildKind::Item => Self::Item(ItemRid { container: child.container, ordinal: child.ordinal }),
                _ => Self::Child(child),
            }),
            _ => None,
        }
    }
}

impl DatabaseRid {
    pub fn to_bytes(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(u32::from_be_bytes).map(Self)
    }

    pub fn self_link(self) -> String {
        format!("dbs/{self}/")
    }
}

impl ContainerRid {
    /// Sets the mark of containers in `number`.
    pub const fn new(database: DatabaseRid, number: u32) -> Self {
        Self { database, container: number | CONTAINER_BIT }
    }

    pub const fn database(self) -> DatabaseRid {
        self.database
    }

    /// The container's own word, mark included.
    pub const fn number(self) -> u32 {
        self.container
    }

    pub fn to_bytes(self) -> [u8; 8] {
        join(self.database.to_bytes(), self.container.to_be_bytes())
    }

    /// Reads the bytes of a container's id, or `None` if they are not.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (database, container) = words(bytes)?;
        // Without the mark it is a user.
        (container & CONTAINER_BIT != 0).then_some(Self { database: DatabaseRid(database), container })
    }

    pub fn self_link(self) -> String {
        format!("{}colls/{self}/", self.database.self_link())
    }
}

impl UserRid {
    /// Clears the mark of containers in `number`. Numbers start at 1: 0 marks encryption keys.
    pub const fn new(database: DatabaseRid, number: u32) -> Self {
        Self { database, user: number & !CONTAINER_BIT }
    }

    pub const fn database(self) -> DatabaseRid {
        self.database
    }

    pub const fn number(self) -> u32 {
        self.user
    }

    pub fn to_bytes(self) -> [u8; 8] {
        join(self.database.to_bytes(), self.user.to_be_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (database, user) = words(bytes)?;
        (user & CONTAINER_BIT == 0).then_some(Self { database: DatabaseRid(database), user })
    }

    pub fn self_link(self) -> String {
        format!("{}users/{self}/", self.database.self_link())
    }
}

impl ChildKind {
    const ALL: [Self; 6] = [
        Self::Item,
        Self::Conflict,
        Self::PartitionKeyRange,
        Self::UserDefinedFunction,
        Self::Trigger,
        Self::StoredProcedure,
    ];

    const fn nibble(self) -> u64 {
        match self {
            // The service's codes, which its clients decode.
            Self::Item => 0,
            Self::Conflict => 4,
            Self::PartitionKeyRange => 5,
            Self::UserDefinedFunction => 6,
            Self::Trigger => 7,
            Self::StoredProcedure => 8,
        }
    }

    /// The path keyword of this kind.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Item => "docs",
            Self::Conflict => "conflicts",
            Self::PartitionKeyRange => "pkranges",
            Self::UserDefinedFunction => "udfs",
            Self::Trigger => "triggers",
            Self::StoredProcedure => "sprocs",
        }
    }
}

impl ChildRid {
    pub const fn new(container: ContainerRid, kind: ChildKind, ordinal: u64) -> Self {
        Self { container, kind, ordinal: mask(ordinal) }
    }

    pub const fn ordinal(self) -> u64 {
        self.ordinal
    }

    pub fn to_bytes(self) -> [u8; 16] {
        let child = self.kind.nibble() << ORDINAL_BITS | self.ordinal;
        join(self.container.to_bytes(), child.to_le_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (owner, child) = bytes.split_at_checked(8)?;
        // Little-endian, as clients read it; the kind is in the top nibble, hence in the last byte.
        let child = u64::from_le_bytes(child.try_into().ok()?);
        let kind = ChildKind::ALL.into_iter().find(|kind| kind.nibble() == child >> ORDINAL_BITS)?;
        // `new` masks the kind off again.
        Some(Self::new(ContainerRid::from_bytes(owner)?, kind, child))
    }

    pub fn self_link(self) -> String {
        format!("{}{}/{self}/", self.container.self_link(), self.kind.keyword())
    }
}

impl ItemRid {
    pub const fn new(container: ContainerRid, ordinal: u64) -> Self {
        Self { container, ordinal: mask(ordinal) }
    }

    pub const fn ordinal(self) -> u64 {
        self.ordinal
    }

    const fn as_child(self) -> ChildRid {
        ChildRid::new(self.container, ChildKind::Item, self.ordinal)
    }

    pub fn to_bytes(self) -> [u8; 16] {
        self.as_child().to_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let child = ChildRid::from_bytes(bytes)?;
        (child.kind == ChildKind::Item).then_some(Self { container: child.container, ordinal: child.ordinal })
    }

    pub fn self_link(self) -> String {
        self.as_child().self_link()
    }

    /// Appends the same as bytes.
    pub fn write_self_link(self, out: &mut Vec<u8>) {
        // Every item that is read gets one of these: written straight into the response, without a text of its
        // own.
        out.extend_from_slice(b"dbs/");
        self.container.database.write_text(out);
        out.extend_from_slice(b"/colls/");
        self.container.write_text(out);
        out.extend_from_slice(b"/docs/");
        self.write_text(out);
        out.push(b'/');
    }
}

impl PermissionRid {
    pub const fn new(user: UserRid, ordinal: u64) -> Self {
        Self { user, ordinal }
    }

    pub fn to_bytes(self) -> [u8; 16] {
        join(self.user.to_bytes(), self.ordinal.to_le_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (user, ordinal) = bytes.split_at_checked(8)?;
        Some(Self { user: UserRid::from_bytes(user)?, ordinal: u64::from_le_bytes(ordinal.try_into().ok()?) })
    }

    pub fn self_link(self) -> String {
        format!("{}permissions/{self}/", self.user.self_link())
    }
}

impl ClientEncryptionKeyRid {
    /// The last word, which distinguishes client encryption keys from other children of a database.
    const KIND: u32 = 2;

    pub const fn new(database: DatabaseRid, key: u32) -> Self {
        Self { database, key }
    }

    pub fn to_bytes(self) -> [u8; 16] {
        let owner: [u8; 8] = join(self.database.to_bytes(), [0; 4]);
        let own: [u8; 8] = join(self.key.to_be_bytes(), Self::KIND.to_le_bytes());
        join(owner, own)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (owner, own) = bytes.split_at_checked(8)?;
        let (database, zero) = words(owner)?;
        let (key, kind) = words(own)?;
        // Words are read big-endian, but this one is stored little-endian.
        (zero == 0 && kind.swap_bytes() == Self::KIND)
            .then_some(Self { database: DatabaseRid(database), key })
    }

    pub fn self_link(self) -> String {
        format!("{}clientencryptionkeys/{self}/", self.database.self_link())
    }
}

impl OfferRid {
    /// Keeps the low 24 bits of `number`.
    pub const fn new(number: u32) -> Self {
        Self(number & 0x00FF_FFFF)
    }

    pub const fn number(self) -> u32 {
        self.0
    }

    pub fn to_bytes(self) -> [u8; 3] {
        // Offers have 24 bits: the first byte is always zero.
        let [_, rest @ ..] = self.0.to_be_bytes();
        rest
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [high, middle, low] = *bytes else { return None };
        Some(Self(u32::from_be_bytes([0, high, middle, low])))
    }

    pub fn self_link(self) -> String {
        format!("offers/{self}/")
    }
}

macro_rules! text_form {
    ($($rid:ty),+) => {$(
        impl $rid {
            /// Reads the text form, or `None` if it is not the id of such a resource.
            pub fn parse(text: &str) -> Option<Self> {
                decode(text).and_then(|bytes| Self::from_bytes(&bytes))
            }
        }

        impl fmt::Display for $rid {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (text, length) = encode(&self.to_bytes());
                formatter.write_str(str::from_utf8(&text[..length]).unwrap_or_default())
            }
        }

        impl $rid {
            /// Appends the text form.
            pub fn write_text(self, out: &mut Vec<u8>) {
                let (text, length) = encode(&self.to_bytes());
                out.extend_from_slice(&text[..length]);
            }
        }
    )+};
}

text_form!(
    DatabaseRid,
    ContainerRid,
    UserRid,
    ChildRid,
    ItemRid,
    PermissionRid,
    ClientEncryptionKeyRid,
    OfferRid
);

/// The text form and its length.
fn encode(bytes: &[u8]) -> ([u8; TEXT_BYTES_MAX], usize) {
    // On the stack, because each item of a page needs it.
    let mut text = [0; TEXT_BYTES_MAX];
    // There is room for the longest.
    let length = TEXT.encode_slice(bytes, &mut text).unwrap_or(0);
    (text, length)
}

/// The longest id is that of an attachment, which is not supported; longer text is not an id.
fn decode(text: &str) -> Option<Vec<u8>> {
    // Padded base64 comes in groups of four. Most names fail here, and are not decoded.
    if text.len() > TEXT_BYTES_MAX || !text.len().is_multiple_of(4) {
        return None;
    }
    TEXT.decode(text).ok()
}

const fn mask(ordinal: u64) -> u64 {
    ordinal & ((1 << ORDINAL_BITS) - 1)
}

fn words(bytes: &[u8]) -> Option<(u32, u32)> {
    let (first, second) = bytes.split_at_checked(4)?;
    Some((u32::from_be_bytes(first.try_into().ok()?), u32::from_be_bytes(second.try_into().ok()?)))
}

fn join<const HALF: usize, const WHOLE: usize>(first: [u8; HALF], second: [u8; HALF]) -> [u8; WHOLE] {
    let mut whole = [0; WHOLE];
    whole[..HALF].copy_from_slice(&first);
    whole[HALF..].copy_from_slice(&second);
    whole
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ids taken from public client tests and issue reports.
    #[test]
    fn real_ids_read_and_write() {
        let container = ContainerRid::parse("K4dvAIClggA=").unwrap();
        assert_eq!(container.database().to_string(), "K4dvAA==");
        let item = ItemRid::parse("K4dvAIClggAEAAAAAAAAAA==").unwrap();
        assert_eq!((item.container, item.ordinal()), (container, 4));
        assert_eq!(item.self_link(), "dbs/K4dvAA==/colls/K4dvAIClggA=/docs/K4dvAIClggAEAAAAAAAAAA==/");
        let mut bytes = Vec::new();
        item.write_self_link(&mut bytes);
        assert_eq!(bytes, item.self_link().as_bytes());
        let procedure = ChildRid::parse("hLEEAI1YjgcBAAAAAAAAgA==").unwrap();
        assert_eq!((procedure.kind, procedure.ordinal()), (ChildKind::StoredProcedure, 1));
        assert_eq!(procedure.to_string(), "hLEEAI1YjgcBAAAAAAAAgA==");
        assert_eq!(OfferRid::parse("Ab0d").unwrap().to_string(), "Ab0d");
    }

    #[test]
    fn other_text_is_no_id() {
        for text in [
            "",
            "a",
            "abc=",
            "hLEEAA=",
            "dbs",
            "hLEEAA==x",
            "hLEEAI1YjgcBAAAAAAAAgA==AAAA",
            "////",
            "\u{e9}\u{e9}",
        ] {
            assert!(Rid::parse(text).is_none(), "{text}");
        }
        assert!(DatabaseRid::parse("hLEEAI1YjgA=").is_none());
        assert!(UserRid::parse("hLEEAI1YjgA=").is_none());
        assert!(ItemRid::parse("hLEEAI1YjgcBAAAAAAAAgA==").is_none());
    }

    proptest! {
        #[test]
        fn ids_round_trip(database: u32, number in 1_u32.., ordinal: u64, kind in 0_usize..6) {
            let database = DatabaseRid(database);
            let container = ContainerRid::new(database, number);
            let user = UserRid::new(database, number & 0x7FFF_FFFF | 1);
            prop_assert_eq!(Rid::parse(&database.to_string()), Some(Rid::Database(database)));
            prop_assert_eq!(Rid::parse(&container.to_string()), Some(Rid::Container(container)));
            prop_assert_eq!(Rid::parse(&user.to_string()), Some(Rid::User(user)));
            let child = ChildRid::new(container, ChildKind::ALL[kind], ordinal);
            prop_assert_eq!(ChildRid::parse(&child.to_string()), Some(child));
            let item = ItemRid::new(container, ordinal);
            prop_assert_eq!(Rid::parse(&item.to_string()), Some(Rid::Item(item)));
            let permission = PermissionRid::new(user, ordinal);
            prop_assert_eq!(Rid::parse(&permission.to_string()), Some(Rid::Permission(permission)));
            let key = ClientEncryptionKeyRid::new(database, number);
            prop_assert_eq!(Rid::parse(&key.to_string()), Some(Rid::ClientEncryptionKey(key)));
            let offer = OfferRid::new(number);
            prop_assert_eq!(Rid::parse(&offer.to_string()), Some(Rid::Offer(offer)));
        }
    }
}
