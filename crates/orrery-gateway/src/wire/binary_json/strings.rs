//! Strings of binary JSON: plain, one of a table, references to earlier ones, and the packed forms for
//! GUIDs, hexadecimal digits, dates, base64 and ASCII.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use super::decode::Reader;
use super::{BinaryJsonError, SYSTEM_STRINGS};

const HEX_LOWER: &[u8; 16] = b"0123456789abcdef";
const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";
const DATE_TIME: &[u8; 16] = b" 0123456789:-.TZ";

impl<'a> Reader<'a> {
    /// The string whose marker was just read at `marker_at`.
    pub(super) fn string(&mut self, marker: u8, marker_at: usize) -> Result<Cow<'a, str>, BinaryJsonError> {
        match marker {
            0xC3..=0xC6 => {
                let offset = self.unsigned(usize::from(marker - 0xC2))?;
                self.referenced(offset, marker_at)
            }
            _ => self.own_string(marker),
        }
    }

    /// A reference: the string at `offset`, all of which comes before the reference.
    fn referenced(&self, offset: usize, marker_at: usize) -> Result<Cow<'a, str>, BinaryJsonError> {
        if offset == 0 || offset >= marker_at {
            return Err(BinaryJsonError::Reference);
        }
        // Only strings with a text of their own, so that a reference is resolved in one step.
        let mut target = Reader { buffer: self.buffer, at: offset, end: marker_at };
        let marker = target.byte()?;
        target.own_string(marker).map_err(|_| BinaryJsonError::Reference)
    }

    /// A string that holds its own text.
    fn own_string(&mut self, marker: u8) -> Result<Cow<'a, str>, BinaryJsonError> {
        match marker {
            0x20..=0x3F => Ok(Cow::Borrowed(SYSTEM_STRINGS[usize::from(marker - 0x20)])),
            0x40..=0x67 => Err(BinaryJsonError::Unsupported(marker)),
            0x71..=0x74 => self.base64(marker),
            0x75 => Ok(guid_of_nibbles(self.take(16)?, HEX_LOWER).into()),
            0x76 => Ok(guid_of_nibbles(self.take(16)?, HEX_UPPER).into()),
            0x77 => Ok(format!("\"{}\"", guid_of_nibbles(self.take(16)?, HEX_LOWER)).into()),
            0x78 => self.nibbles(HEX_LOWER),
            0x79 => self.nibbles(HEX_UPPER),
            0x7A => self.nibbles(DATE_TIME),
            0x7B..=0x7D => {
                let count = self.unsigned(1)?;
                let base = self.byte()?;
                self.packed(count, base, u32::from(marker - 0x77))
            }
            0x7E | 0x7F => {
                let count = self.unsigned(usize::from(marker - 0x7D))?;
                self.packed(count, 0, 7)
            }
            0x80..=0xBF => self.utf8(usize::from(marker & 0x3F)),
            0xC0..=0xC2 => {
                let length = self.unsigned([1, 2, 4][usize::from(marker - 0xC0)])?;
                self.utf8(length)
            }
            _ => Err(BinaryJsonError::Marker(marker)),
        }
    }

    /// A GUID in Microsoft's byte order, or bytes; both are strings in JSON text.
    pub(super) fn blob(&mut self, marker: u8) -> Result<String, BinaryJsonError> {
        if marker == 0xD3 {
            let bytes = self.take(16)?;
            // The first three groups are little-endian integers.
            let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
            let high_nibble_first: Vec<u8> = order.iter().map(|&at| bytes[at].rotate_left(4)).collect();
            return Ok(guid_of_nibbles(&high_nibble_first, HEX_LOWER));
        }
        let length = self.unsigned([1, 2, 4][usize::from(marker - 0xDD)])?;
        Ok(STANDARD.encode(self.take(length)?))
    }

    fn utf8(&mut self, length: usize) -> Result<Cow<'a, str>, BinaryJsonError> {
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| BinaryJsonError::Text)
    }

    /// Text that was base64: the number of groups of four characters, how it was padded, the bytes.
    fn base64(&mut self, marker: u8) -> Result<Cow<'a, str>, BinaryJsonError> {
        let groups = self.unsigned(if marker % 2 == 1 { 1 } else { 2 })?;
        let padding = self.byte()?;
        // A number above two is the complement of the padding, which the text then omits.
        let (missing, padded) = if padding <= 2 { (padding, true) } else { (!padding, false) };
        let length = (groups * 3).checked_sub(usize::from(missing)).filter(|_| missing <= 2);
        let bytes = self.take(length.ok_or(BinaryJsonError::Text)?)?;
        // The first two markers are ordinary base64, the other two its URL-safe form.
        let text = match (marker < 0x73, padded) {
            (true, true) => STANDARD.encode(bytes),
            (true, false) => STANDARD_NO_PAD.encode(bytes),
            (false, true) => URL_SAFE.encode(bytes),
            (false, false) => URL_SAFE_NO_PAD.encode(bytes),
        };
        Ok(text.into())
    }

    /// Characters of an alphabet of sixteen, two a byte, the low half first.
    fn nibbles(&mut self, alphabet: &[u8; 16]) -> Result<Cow<'a, str>, BinaryJsonError> {
        let count = self.unsigned(1)?;
        let bytes = self.take(count.div_ceil(2))?;
        let nibbles = bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
        let text: String =
            nibbles.take(count).map(|nibble| char::from(alphabet[usize::from(nibble)])).collect();
        Ok(text.into())
    }

    /// Characters of `bits` bits each, lowest bit first, counted from the character `base`.
    fn packed(&mut self, count: usize, base: u8, bits: u32) -> Result<Cow<'a, str>, BinaryJsonError> {
        let bytes = self.take((count * bits as usize).div_ceil(8))?;
        let mut text = String::with_capacity(count);
        let (mut window, mut available): (u32, u32) = (0, 0);
        let mut bytes = bytes.iter();
        for _ in 0..count {
            while available < bits {
                // The length was computed from the count, so the bytes suffice.
                window |= u32::from(bytes.next().copied().unwrap_or(0)) << available;
                available += 8;
            }
            let value = u8::try_from(window & ((1 << bits) - 1)).unwrap_or(u8::MAX);
            window >>= bits;
            available -= bits;
            let character = base.checked_add(value).filter(u8::is_ascii).ok_or(BinaryJsonError::Text)?;
            text.push(char::from(character));
        }
        Ok(text.into())
    }
}

/// A GUID from 32 nibbles, the low half of each byte first.
fn guid_of_nibbles(bytes: &[u8], alphabet: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(char::from(alphabet[usize::from(byte & 15)]));
        text.push(char::from(alphabet[usize::from(byte >> 4)]));
    }
    text
}
