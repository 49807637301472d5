//! Decodes binary JSON to text.

use std::fmt::Write;

use orrery_model::value::write_json_string;

use super::{BinaryJsonError, NESTING_MAX};

/// The JSON text of a buffer. A five-byte reference can expand to a string of any length, so the text is limited to
/// `text_bytes_max` as it grows. Repeated names are not deduplicated.
pub fn decode(buffer: &[u8], text_bytes_max: usize) -> Result<String, BinaryJsonError> {
    if !super::is_binary(buffer) {
        return Err(BinaryJsonError::Preamble);
    }
    // After the preamble.
    let mut reader = Reader { buffer, at: 1, end: buffer.len() };
    let mut text =
        Text { out: String::with_capacity(buffer.len() + buffer.len() / 4), bytes_max: text_bytes_max };
    write_value(&mut reader, &mut text, 0)?;
    if reader.at == buffer.len() { Ok(text.out) } else { Err(BinaryJsonError::Trailing) }
}

/// A position in the buffer. `end` is the end of the innermost container, which nothing inside reads past.
pub(super) struct Reader<'a> {
    pub(super) buffer: &'a [u8],
    pub(super) at: usize,
    pub(super) end: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], BinaryJsonError> {
        let next = self.at.checked_add(length).filter(|next| *next <= self.end);
        let next = next.ok_or(BinaryJsonError::Truncated)?;
        let bytes = &self.buffer[self.at..next];
        self.at = next;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BinaryJsonError> {
        Ok(self.take(N)?.try_into().expect("take answers as many bytes as asked"))
    }

    pub(super) fn byte(&mut self) -> Result<u8, BinaryJsonError> {
        Ok(self.take(1)?[0])
    }

    /// An unsigned integer of 1 to 4 bytes.
    pub(super) fn unsigned(&mut self, width: usize) -> Result<usize, BinaryJsonError> {
        Ok(self.take(width)?.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte)))
    }
}

struct Text {
    out: String,
    bytes_max: usize,
}

impl Text {
    fn check(&self, more: usize) -> Result<(), BinaryJsonError> {
        let fits = self.out.len() + more <= self.bytes_max;
        if fits { Ok(()) } else { Err(BinaryJsonError::TooLarge(self.bytes_max)) }
    }

    fn push(&mut self, text: &str) -> Result<(), BinaryJsonError> {
        self.out.push_str(text);
        self.check(0)
    }

    fn push_string(&mut self, text: &str) -> Result<(), BinaryJsonError> {
        // Also checked before, so that the text overshoots by at most the escapes of one string.
        self.check(text.len())?;
        write_json_string(text, &mut self.out);
        self.check(0)
    }

    fn push_integer(&mut self, value: impl std::fmt::Display) -> Result<(), BinaryJsonError> {
        write!(self.out, "{value}").expect("a String accepts every write");
        self.check(0)
    }

    fn push_double(&mut self, value: f64) -> Result<(), BinaryJsonError> {
        if !value.is_finite() {
            return Err(BinaryJsonError::NotFinite);
        }
        // The printer writes both zeros as 0, but partition keys distinguish them.
        if value == 0.0 && value.is_sign_negative() {
            return self.push("-0");
        }
        let mut buffer = ryu_js::Buffer::new();
        self.push(buffer.format_finite(value))
    }
}

fn write_value(reader: &mut Reader<'_>, text: &mut Text, depth: usize) -> Result<(), BinaryJsonError> {
    // References count from the start of the buffer and must point to before this marker.
    let marker_at = reader.at;
    let marker = reader.byte()?;
    match marker {
        // Small integers are their own marker.
        0x00..=0x1F => text.push_integer(marker),
        0xD0 => text.push("null"),
        0xD1 => text.push("false"),
        0xD2 => text.push("true"),
        0xC7..=0xCF | 0xD7..=0xDC => write_number(marker, reader, text),
        0xE0..=0xE7 => write_array(marker, reader, text, depth),
        0xE8..=0xEF => write_object(marker, reader, text, depth),
        0xF0 | 0xF1 => write_uniform(marker, reader, text, depth),
        0xF2 | 0xF3 => write_nested_uniform(marker, reader, text, depth),
        0xD3 | 0xDD..=0xDF => text.push_string(&reader.blob(marker)?),
        _ => text.push_string(&reader.string(marker, marker_at)?),
    }
}

fn write_number(marker: u8, reader: &mut Reader<'_>, text: &mut Text) -> Result<(), BinaryJsonError> {
    match marker {
        // `C7` to `CC` are numbers of JSON; from `CD` on they have a type of their own, which JSON text does not
        // keep.
        0xC7 => text.push_integer(u64::from_le_bytes(reader.array()?)),
        0xC8 | 0xD7 => text.push_integer(reader.byte()?),
        0xC9 | 0xD9 => text.push_integer(i16::from_le_bytes(reader.array()?)),
        0xCA | 0xDA => text.push_integer(i32::from_le_bytes(reader.array()?)),
        0xCB | 0xDB => text.push_integer(i64::from_le_bytes(reader.array()?)),
        0xCC | 0xCE => text.push_double(f64::from_le_bytes(reader.array()?)),
        0xCD => text.push_double(f64::from(f32::from_le_bytes(reader.array()?))),
        0xD8 => text.push_integer(i8::from_le_bytes(reader.array()?)),
        0xDC => text.push_integer(u32::from_le_bytes(reader.array()?)),
        0xCF => Err(BinaryJsonError::Unsupported(marker)),
        _ => Err(BinaryJsonError::Marker(marker)),
    }
}

/// How the end of a container is determined.
struct Extent {
    /// The end of the enclosing container, to restore.
    outer_end: usize,
    /// Whether the container has a byte length. The one-item form has none and ends after its item.
    sized: bool,
    /// The number of items or members, where it is written.
    count: Option<usize>,
}

/// Reads the lengths after a container marker and narrows the reader to the content.
/// `form` is the marker without its type: 0 empty, 1 one item, 2–4 byte length, 5–7 length and count.
fn enter(form: u8, reader: &mut Reader<'_>, depth: usize) -> Result<Extent, BinaryJsonError> {
    if depth >= NESTING_MAX {
        return Err(BinaryJsonError::TooDeep);
    }
    let outer_end = reader.end;
    let width = [1, 2, 4];
    let (length, count) = match form {
        0 => (Some(0), Some(0)),
        1 => (None, Some(1)),
        2..=4 => (Some(reader.unsigned(width[usize::from(form - 2)])?), None),
        _ => {
            let width = width[usize::from(form - 5)];
            (Some(reader.unsigned(width)?), Some(reader.unsigned(width)?))
        }
    };
    // A length that reaches beyond the enclosing container is rejected here, so that nothing inside needs to
    // check.
    if let Some(length) = length {
        let end = reader.at.checked_add(length).filter(|end| *end <= outer_end);
        reader.end = end.ok_or(BinaryJsonError::Truncated)?;
    }
    Ok(Extent { outer_end, sized: length.is_some(), count })
}

impl Extent {
    /// Whether another item follows, given how many were read.
    fn has_more(&self, reader: &Reader<'_>, read: usize) -> Result<bool, BinaryJsonError> {
        match self.count {
            Some(count) if read < count => Ok(true),
            Some(_) if self.sized && reader.at < reader.end => Err(BinaryJsonError::Length),
            Some(_) => Ok(false),
            // Without a count the items go on to the end of the container.
            None => Ok(reader.at < reader.end),
        }
    }

    fn leave(&self, reader: &mut Reader<'_>) {
        reader.end = self.outer_end;
    }

    /// Inside a container of known length, running out of bytes means that the length is wrong.
    fn explain(&self, error: BinaryJsonError) -> BinaryJsonError {
        match error {
            BinaryJsonError::Truncated if self.sized => BinaryJsonError::Length,
            other => other,
        }
    }
}

fn write_array(
    marker: u8,
    reader: &mut Reader<'_>,
    text: &mut Text,
    depth: usize,
) -> Result<(), BinaryJsonError> {
    let extent = enter(marker - 0xE0, reader, depth)?;
    write_members(&extent, ["[", "]"], reader, text, |reader, text| write_value(reader, text, depth + 1))
}

fn write_object(
    marker: u8,
    reader: &mut Reader<'_>,
    text: &mut Text,
    depth: usize,
) -> Result<(), BinaryJsonError> {
    let extent = enter(marker - 0xE8, reader, depth)?;
    write_members(&extent, ["{", "}"], reader, text, |reader, text| {
        let name_at = reader.at;
        let name_marker = reader.byte()?;
        text.push_string(&reader.string(name_marker, name_at)?)?;
        text.push(":")?;
        write_value(reader, text, depth + 1)
    })
}

/// Writes the elements of an array or the members of an object between its brackets.
fn write_members(
    extent: &Extent,
    [open, close]: [&str; 2],
    reader: &mut Reader<'_>,
    text: &mut Text,
    mut write_one: impl FnMut(&mut Reader<'_>, &mut Text) -> Result<(), BinaryJsonError>,
) -> Result<(), BinaryJsonError> {
    text.push(open)?;
    let mut read = 0;
    while extent.has_more(reader, read)? {
        if read > 0 {
            text.push(",")?;
        }
        write_one(reader, text).map_err(|error| extent.explain(error))?;
        read += 1;
    }
    extent.leave(reader);
    text.push(close)
}

/// Numbers of one type without a marker each.
fn write_packed(
    item_marker: u8,
    count: usize,
    reader: &mut Reader<'_>,
    text: &mut Text,
) -> Result<(), BinaryJsonError> {
    // Only numbers of a fixed width can do without markers.
    match item_marker {
        0xCD | 0xCE | 0xD7..=0xDC => {}
        0xCF => return Err(BinaryJsonError::Unsupported(item_marker)),
        other => return Err(BinaryJsonError::Marker(other)),
    }
    text.push("[")?;
    for index in 0..count {
        if index > 0 {
            text.push(",")?;
        }
        write_number(item_marker, reader, text)?;
    }
    text.push("]")
}

fn write_uniform(
    marker: u8,
    reader: &mut Reader<'_>,
    text: &mut Text,
    depth: usize,
) -> Result<(), BinaryJsonError> {
    if depth >= NESTING_MAX {
        return Err(BinaryJsonError::TooDeep);
    }
    let item_marker = reader.byte()?;
    let count = reader.unsigned(if marker == 0xF0 { 1 } else { 2 })?;
    write_packed(item_marker, count, reader, text)
}

fn write_nested_uniform(
    marker: u8,
    reader: &mut Reader<'_>,
    text: &mut Text,
    depth: usize,
) -> Result<(), BinaryJsonError> {
    // Two levels at once.
    if depth + 1 >= NESTING_MAX {
        return Err(BinaryJsonError::TooDeep);
    }
    let array_marker = reader.byte()?;
    // The inner arrays have the count width of the outer one.
    if array_marker != marker - 2 {
        return Err(BinaryJsonError::Marker(array_marker));
    }
    let item_marker = reader.byte()?;
    let width = if marker == 0xF2 { 1 } else { 2 };
    let inner_count = reader.unsigned(width)?;
    let outer_count = reader.unsigned(width)?;
    text.push("[")?;
    for index in 0..outer_count {
        if index > 0 {
            text.push(",")?;
        }
        write_packed(item_marker, inner_count, reader, text)?;
    }
    text.push("]")
}
