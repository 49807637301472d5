//! Session tokens: the position that a client has seen of each partition.
//!
//! ```text
//! token  = entry *( "," entry )
//! entry  = range-id ":" value
//! value  = "-1#" lsn                                   simple
//!        | version "#" lsn *( "#" region "=" lsn )     vector
//! ```
//! A bare number is accepted as a simple value: the oldest clients wrote it. Regions are parsed and dropped; Orrery
//! always writes vectors without them, because clients refuse to merge tokens whose region lists differ.

use std::fmt;

use crate::error::{Error, Result};

/// Entries in one token; a container has far fewer partitions.
const ENTRIES_MAX: usize = 10_000;

/// What a client has seen of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionEntry {
    /// The id of the partition key range.
    pub range_id: u32,
    /// Grows with merges. Simple entries have none.
    pub version: Option<u64>,
    pub lsn: u64,
}

/// What a client has seen of each partition, sent back with every request of its session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionToken {
    pub entries: Vec<SessionEntry>,
}

impl SessionEntry {
    pub const fn new(range_id: u32, version: u64, lsn: u64) -> Self {
        Self { range_id, version: Some(version), lsn }
    }

    /// Whether the client has seen more than a partition at this version and position has.
    pub fn is_ahead_of(self, version: u64, lsn: u64) -> bool {
        match self.version {
            // The version grows with merges; LSNs compare only within one version.
            Some(seen) => (seen, self.lsn) > (version, lsn),
            None => self.lsn > lsn,
        }
    }
}

impl SessionToken {
    /// Reads the text form. An empty one has no entries.
    pub fn parse(text: &str) -> Result<Self> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        // One more than allowed suffices to tell that there are too many.
        let entries = entries.take(ENTRIES_MAX + 1).map(parse_entry);
        match entries.collect::<Option<Vec<_>>>() {
            Some(entries) if entries.len() <= ENTRIES_MAX => Ok(Self { entries }),
            _ => {
                let shown: String = text.chars().take(256).collect();
                Err(Error::bad_request(format!("The request has an invalid session token: '{shown}'.")))
            }
        }
    }

    /// The entry of a partition or, failing that, of the first ancestor that has one. `ids` are
    /// the partition's own id and its parents, nearest first. Of several entries for one id the
    /// furthest counts.
    pub fn entry_for(&self, ids: impl IntoIterator<Item = u32>) -> Option<SessionEntry> {
        // What a client saw of a parent, it saw of the partition that replaced it.
        ids.into_iter().find_map(|id| {
            let own = self.entries.iter().filter(|entry| entry.range_id == id);
            // A token joined from those of several responses may hold an older entry too.
            own.max_by_key(|entry| (entry.version, entry.lsn)).copied()
        })
    }
}

fn parse_entry(entry: &str) -> Option<SessionEntry> {
    let (range_id, value) = entry.split_once(':')?;
    let range_id = number(range_id)?.try_into().ok()?;
    // The oldest form: a bare number.
    let Some((version, rest)) = value.split_once('#') else {
        return Some(SessionEntry { range_id, version: None, lsn: number(value)? });
    };
    let mut fields = rest.split('#');
    let lsn = number(fields.next()?)?;
    let regions_are_pairs = fields.all(|field| {
        let pair = field.split_once('=');
        // The LSN of a region may be -1.
        pair.is_some_and(|(region, lsn)| number(region).is_some() && lsn.parse::<i64>().is_ok())
    });
    // -1 marks the simple form.
    let version = if version == "-1" { None } else { Some(number(version)?) };
    regions_are_pairs.then_some(SessionEntry { range_id, version, lsn })
}

/// Digits only: `u64::from_str` would take a sign.
fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

impl fmt::Display for SessionEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(version) => write!(formatter, "{}:{version}#{}", self.range_id, self.lsn),
            None => write!(formatter, "{}:-1#{}", self.range_id, self.lsn),
        }
    }
}

impl fmt::Display for SessionToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.entries.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(formatter, "{comma}{entry}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_forms_are_read() {
        let token = SessionToken::parse("0:1#100#1=90#2=80, 1:-1#12,2:0#7#3=-1,3:55").unwrap();
        let simple = |range_id, lsn| SessionEntry { range_id, version: None, lsn };
        assert_eq!(
            token.entries,
            [SessionEntry::new(0, 1, 100), simple(1, 12), SessionEntry::new(2, 0, 7), simple(3, 55)]
        );
        assert_eq!(token.to_string(), "0:1#100,1:-1#12,2:0#7,3:-1#55");
        assert_eq!(SessionToken::parse("").unwrap().entries, []);
    }

    #[test]
    fn malformed_tokens_are_refused() {
        for text in [
            "x",
            "0",
            "0:",
            "0:1#",
            "0:#1",
            "a:1#2",
            "0:1#2#3",
            "0:1#2#a=1",
            "0:-2#1",
            "0:+1#2",
            "0:1#-2",
            ":1#2",
        ] {
            let error = SessionToken::parse(text).unwrap_err();
            assert!(error.message.contains("invalid session token"), "{text}");
        }
        assert!(SessionToken::parse(&"0:1#1,".repeat(ENTRIES_MAX + 1)).is_err());
    }

    #[test]
    fn versions_come_before_positions() {
        assert!(SessionEntry::new(0, 2, 1).is_ahead_of(1, 100));
        assert!(!SessionEntry::new(0, 1, 1000).is_ahead_of(2, 5));
        assert!(SessionEntry::new(0, 1, 101).is_ahead_of(1, 100));
        assert!(!SessionEntry::new(0, 1, 100).is_ahead_of(1, 100));
        assert!(SessionEntry { range_id: 0, version: None, lsn: 5 }.is_ahead_of(7, 4));
    }

    #[test]
    fn ancestors_stand_in() {
        let token = SessionToken::parse("0:0#5,2:0#9,2:0#8").unwrap();
        assert_eq!(token.entry_for([2, 0]), Some(SessionEntry::new(2, 0, 9)));
        assert_eq!(token.entry_for([4, 1, 0]), Some(SessionEntry::new(0, 0, 5)));
        assert_eq!(token.entry_for([7]), None);
    }

    proptest! {
        #[test]
        fn tokens_round_trip(entries in proptest::collection::vec((any::<u32>(), any::<Option<u64>>(), any::<u64>()), 1..5)) {
            let entries = entries.into_iter().map(|(range_id, version, lsn)| SessionEntry { range_id, version, lsn });
            let token = SessionToken { entries: entries.collect() };
            prop_assert_eq!(SessionToken::parse(&token.to_string()).unwrap(), token);
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in "[-0-9a:#=,]{0,40}") {
            if let Ok(token) = SessionToken::parse(&text) {
                prop_assert_eq!(SessionToken::parse(&token.to_string()).unwrap(), token);
            }
        }
    }
}
