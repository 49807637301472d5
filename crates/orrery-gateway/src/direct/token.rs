//! Tokens: the headers of a frame, each an id, a type and a value. All numbers are little-endian.
//!
//! Reading copies nothing; strings are slices of the frame's memory. A token with an unknown id is skipped by its type;
//! an unknown type fails the frame, because its length is unknown.

use bytes::{BufMut, BytesMut};

/// Why tokens cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedToken {
    #[error("the frame ends inside a token")]
    Truncated,
    #[error("unknown token type {0}")]
    UnknownType(u8),
}

/// The value of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TokenValue<'a> {
    Byte(u8),
    UShort(u16),
    ULong(u32),
    Long(i32),
    ULongLong(u64),
    LongLong(i64),
    Guid([u8; 16]),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    Float(f32),
    Double(f64),
}

/// The codes of the types.
mod code {
    pub(super) const BYTE: u8 = 0;
    pub(super) const USHORT: u8 = 1;
    pub(super) const ULONG: u8 = 2;
    pub(super) const LONG: u8 = 3;
    pub(super) const ULONGLONG: u8 = 4;
    pub(super) const LONGLONG: u8 = 5;
    pub(super) const GUID: u8 = 6;
    pub(super) const SMALL_STRING: u8 = 7;
    pub(super) const STRING: u8 = 8;
    pub(super) const ULONG_STRING: u8 = 9;
    pub(super) const SMALL_BYTES: u8 = 10;
    pub(super) const BYTES: u8 = 11;
    pub(super) const ULONG_BYTES: u8 = 12;
    pub(super) const FLOAT: u8 = 13;
    pub(super) const DOUBLE: u8 = 14;
}

/// The tokens in these bytes, in their order.
pub struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], MalformedToken> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(MalformedToken::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedToken> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(MalformedToken::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn take_u8(&mut self) -> Result<&'a [u8], MalformedToken> {
        let [length] = self.array()?;
        self.take(length.into())
    }

    fn take_u16(&mut self) -> Result<&'a [u8], MalformedToken> {
        let length = u16::from_le_bytes(self.array()?);
        self.take(length.into())
    }

    fn take_u32(&mut self) -> Result<&'a [u8], MalformedToken> {
        let length = u32::from_le_bytes(self.array()?);
        // A length beyond the frame is found by `take`, which only slices: nothing is allocated for it.
        self.take(usize::try_from(length).map_err(|_| MalformedToken::Truncated)?)
    }

    fn read(&mut self) -> Result<(u16, TokenValue<'a>), MalformedToken> {
        let id = u16::from_le_bytes(self.array()?);
        let [kind] = self.array()?;
        let value = match kind {
            code::BYTE => TokenValue::Byte(u8::from_le_bytes(self.array()?)),
            code::USHORT => TokenValue::UShort(u16::from_le_bytes(self.array()?)),
            code::ULONG => TokenValue::ULong(u32::from_le_bytes(self.array()?)),
            code::LONG => TokenValue::Long(i32::from_le_bytes(self.array()?)),
            code::ULONGLONG => TokenValue::ULongLong(u64::from_le_bytes(self.array()?)),
            code::LONGLONG => TokenValue::LongLong(i64::from_le_bytes(self.array()?)),
            code::GUID => TokenValue::Guid(self.array()?),
            // Strings and bytes come in three widths of their length: one byte, two or four.
            code::SMALL_STRING => TokenValue::Text(self.take_u8()?),
            code::STRING => TokenValue::Text(self.take_u16()?),
            code::ULONG_STRING => TokenValue::Text(self.take_u32()?),
            code::SMALL_BYTES => TokenValue::Bytes(self.take_u8()?),
            code::BYTES => TokenValue::Bytes(self.take_u16()?),
            code::ULONG_BYTES => TokenValue::Bytes(self.take_u32()?),
            code::FLOAT => TokenValue::Float(f32::from_le_bytes(self.array()?)),
            code::DOUBLE => TokenValue::Double(f64::from_le_bytes(self.array()?)),
            unknown => return Err(MalformedToken::UnknownType(unknown)),
        };
        Ok((id, value))
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Result<(u16, TokenValue<'a>), MalformedToken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let token = self.read();
        if token.is_err() {
            // The position of the next token is unknown after an error, so iteration ends.
            self.rest = &[];
        }
        Some(token)
    }
}

/// Writes tokens.
pub(super) struct TokenWriter<'a>(pub(super) &'a mut BytesMut);

impl TokenWriter<'_> {
    fn start(&mut self, id: u16, kind: u8) {
        self.0.put_u16_le(id);
        self.0.put_u8(kind);
    }

    pub(super) fn byte(&mut self, id: u16, value: u8) {
        self.start(id, code::BYTE);
        self.0.put_u8(value);
    }

    pub(super) fn ulong(&mut self, id: u16, value: u32) {
        self.start(id, code::ULONG);
        self.0.put_u32_le(value);
    }

    pub(super) fn longlong(&mut self, id: u16, value: i64) {
        self.start(id, code::LONGLONG);
        self.0.put_i64_le(value);
    }

    pub(super) fn double(&mut self, id: u16, value: f64) {
        self.start(id, code::DOUBLE);
        self.0.put_f64_le(value);
    }

    /// A string of at most 255 bytes; a longer one is omitted.
    pub(super) fn small_text(&mut self, id: u16, value: &[u8]) {
        if let Ok(length) = u8::try_from(value.len()) {
            self.start(id, code::SMALL_STRING);
            self.0.put_u8(length);
            self.0.put_slice(value);
        }
    }

    /// A string of at most 65,535 bytes; a longer one is omitted.
    pub(super) fn text(&mut self, id: u16, value: &[u8]) {
        if let Ok(length) = u16::try_from(value.len()) {
            self.start(id, code::STRING);
            self.0.put_u16_le(length);
            self.0.put_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(u16, TokenValue<'_>)>, MalformedToken> {
        Tokens::new(bytes).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = BytesMut::new();
        let mut writer = TokenWriter(&mut bytes);
        writer.byte(0, 1);
        writer.ulong(53, 7);
        writer.longlong(19, -5);
        writer.double(21, 2.5);
        writer.small_text(16, b"1.19");
        writer.text(62, b"0:1#2");
        writer.small_text(2, &[b'x'; 256]);
        writer.text(2, &vec![b'x'; 1 << 16]);
        let expected = vec![
            (0, TokenValue::Byte(1)),
            (53, TokenValue::ULong(7)),
            (19, TokenValue::LongLong(-5)),
            (21, TokenValue::Double(2.5)),
            (16, TokenValue::Text(b"1.19")),
            (62, TokenValue::Text(b"0:1#2")),
        ];
        assert_eq!(read(&bytes), Ok(expected));
    }

    /// One of each type, as the type table of the protocol lays them out.
    #[test]
    fn every_type_is_read() {
        for (bytes, value) in [
            (&[9, 1, 0, 7][..], TokenValue::Byte(7)),
            (&[9, 1, 1, 1, 2], TokenValue::UShort(0x0201)),
            (&[9, 1, 2, 1, 2, 3, 4], TokenValue::ULong(0x0403_0201)),
            (&[9, 1, 3, 0xFF, 0xFF, 0xFF, 0xFF], TokenValue::Long(-1)),
            (&[9, 1, 4, 1, 0, 0, 0, 0, 0, 0, 0], TokenValue::ULongLong(1)),
            (&[9, 1, 5, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], TokenValue::LongLong(-2)),
            (&[9, 1, 6, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16], {
                TokenValue::Guid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16])
            }),
            (&[9, 1, 7, 2, b'a', b'b'], TokenValue::Text(b"ab")),
            (&[9, 1, 8, 2, 0, b'a', b'b'], TokenValue::Text(b"ab")),
            (&[9, 1, 9, 2, 0, 0, 0, b'a', b'b'], TokenValue::Text(b"ab")),
            (&[9, 1, 10, 1, 5], TokenValue::Bytes(&[5])),
            (&[9, 1, 11, 1, 0, 5], TokenValue::Bytes(&[5])),
            (&[9, 1, 12, 1, 0, 0, 0, 5], TokenValue::Bytes(&[5])),
            (&[9, 1, 13, 0, 0, 0x80, 0x3F], TokenValue::Float(1.0)),
            (&[9, 1, 14, 0, 0, 0, 0, 0, 0, 0xF0, 0x3F], TokenValue::Double(1.0)),
        ] {
            assert_eq!(read(bytes), Ok(vec![(0x0109, value)]));
            for length in 1..bytes.len() {
                assert_eq!(read(&bytes[..length]), Err(MalformedToken::Truncated), "{bytes:?} {length}");
            }
        }
        assert_eq!(read(&[0, 0, 15, 0]), Err(MalformedToken::UnknownType(15)));
        assert_eq!(read(&[0, 0, 9, 0xFF, 0xFF, 0xFF, 0xFF]), Err(MalformedToken::Truncated));
    }
}
