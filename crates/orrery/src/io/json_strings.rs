//! Tells JSON strings from what stands between them, byte by byte, without parsing the text.

/// Where a reader of JSON text is: inside a string or not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JsonStrings {
    is_open: bool,
    is_escaped: bool,
}

impl JsonStrings {
    /// Moves past the next byte. True if it belongs to a string, the quotes included.
    pub(crate) fn contain(&mut self, byte: u8) -> bool {
        if !self.is_open {
            self.is_open = byte == b'"';
            return self.is_open;
        }
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => self.is_open = false,
            _ => {}
        }
        true
    }

    pub(crate) fn is_open(self) -> bool {
        self.is_open
    }
}
