//! Etags: quoted pseudo GUIDs that change with every write, in the service's format.
//!
//! `"LLLLLLLL-MMMM-0200-HHHH-TTTTTTTTtttt"`: the low 32, middle 16 and high 16 bits of a number
//! that is unique among the versions of a resource, then the modification time in seconds.

use std::fmt;

/// The version of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Etag {
    /// Differs between any two versions of the resource: its log sequence number.
    pub unique: u64,
    /// Seconds since the epoch, the resource's `_ts`.
    pub seconds: i64,
}

impl Etag {
    pub const fn new(unique: u64, seconds: i64) -> Self {
        Self { unique, seconds }
    }

    /// The text between the quotes.
    pub fn to_bytes(self) -> [u8; 36] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = *b"00000000-0000-0200-0000-000000000000";
        let mut put = |at: usize, digits: usize, number: u64| {
            for place in 0..digits {
                // Each field takes the low digits of what it is given; higher ones are in the next field.
                text[at + place] = DIGITS[(number >> (4 * (digits - 1 - place)) & 0xF) as usize];
            }
        };
        let seconds = self.seconds.cast_unsigned();
        put(0, 8, self.unique);
        put(9, 4, self.unique >> 32);
        put(19, 4, self.unique >> 48);
        put(24, 8, seconds);
        put(32, 4, seconds >> 32);
        text
    }

    /// Whether a client's etag matches this version. Some clients omit the quotes.
    pub fn matches(self, text: &str) -> bool {
        same(&self.to_string(), text)
    }
}

/// Compares two etags, ignoring one pair of quotes on either side.
pub fn same(first: &str, second: &str) -> bool {
    unquoted(first) == unquoted(second)
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

impl fmt::Display for Etag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("\"")?;
        formatter.write_str(str::from_utf8(&self.to_bytes()).unwrap_or_default())?;
        formatter.write_str("\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_look_like_the_service_s() {
        let etag = Etag::new(0x4812, 0x6a7f_a98a);
        assert_eq!(etag.to_string(), "\"00004812-0000-0200-0000-6a7fa98a0000\"");
        assert_eq!(Etag::new(u64::MAX, 1).to_string(), "\"ffffffff-ffff-0200-ffff-000000010000\"");
    }

    #[test]
    fn one_pair_of_quotes_is_ignored() {
        let etag = Etag::new(1, 2);
        let text = etag.to_string();
        assert!(etag.matches(&text) && etag.matches(text.trim_matches('"')));
        assert!(!etag.matches(&format!("\"{text}\"")));
        assert!(!etag.matches("*") && !etag.matches("\""));
        assert!(same("\"\"", ""));
    }
}
