//! LIKE patterns.
//!
//! `%` any run of characters, `_` one character, `[a-f]` one of a set, `[^a-f]` one outside it; the
//! escape character makes the next one literal. Matching backtracks only to the last `%`, so it
//! takes at most the product of the two lengths.

#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Char(char),
    Any,
    Run,
    Set { negated: bool, ranges: Vec<(char, char)> },
}

impl Pattern {
    pub fn parse(pattern: &str, escape: Option<char>) -> Self {
        let chars: Vec<char> = pattern.chars().collect();
        let mut parts = Vec::with_capacity(chars.len());
        let mut at = 0;
        while let Some(&c) = chars.get(at) {
            at += 1;
            let part = if Some(c) == escape {
                match chars.get(at) {
                    Some(&literal) => {
                        at += 1;
                        Part::Char(literal)
                    }
                    // An escape character at the end stands for itself.
                    None => Part::Char(c),
                }
            } else {
                match c {
                    '%' => Part::Run,
                    '_' => Part::Any,
                    '[' => match parse_set(&chars[at..]) {
                        Some((set, length)) => {
                            at += length;
                            set
                        }
                        // A set that is never closed is a plain bracket.
                        None => Part::Char('['),
                    },
                    other => Part::Char(other),
                }
            };
            // Neighbouring runs match no more than one of them.
            if part != Part::Run || parts.last() != Some(&Part::Run) {
                parts.push(part);
            }
        }
        Self { parts }
    }

    /// Whether the whole text matches; `None` if finding out takes more than `steps_max` steps. They are counted by
    /// `take`, some at a time, whose error ends the search.
    pub fn matches<E>(
        &self,
        text: &str,
        steps_max: usize,
        take: &mut dyn FnMut(u64) -> Result<(), E>,
    ) -> Result<Option<bool>, E> {
        /// How many steps are counted together.
        const COUNTED_AT_ONCE: usize = 4096;
        let mut steps = 0;
        let mut rest = text.chars();
        let mut part = 0;
        // Where to continue after the last `%` matched one more character.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            steps += 1;
            if steps > steps_max {
                return Ok(None);
            }
            if steps.is_multiple_of(COUNTED_AT_ONCE) {
                take(COUNTED_AT_ONCE as u64)?;
            }
            if self.parts.get(part) == Some(&Part::Run) {
                part += 1;
                // A run at the end takes whatever is left.
                if part == self.parts.len() {
                    return Ok(Some(true));
                }
                // An earlier run is never tried again: it took as little as possible, and this one can take
                // the rest.
                retry = Some((part, rest.clone()));
                continue;
            }
            let mut ahead = rest.clone();
            let next = ahead.next();
            let matched = match (self.parts.get(part), next) {
                (None, None) => return Ok(Some(true)),
                (Some(wanted), Some(c)) => wanted.accepts(c),
                _ => false,
            };
            if matched {
                rest = ahead;
                part += 1;
                continue;
            }
            let Some((after, from)) = &mut retry else {
                return Ok(Some(false));
            };
            // The run has taken the whole rest of the text, in vain.
            if from.next().is_none() {
                return Ok(Some(false));
            }
            part = *after;
            rest = from.clone();
        }
    }

    /// The literal text every match begins with, and whether a match is that text and then
    /// anything: `abc%` gives `abc` and true, `abc` gives `abc` and false with [`Self::is_literal`].
    pub fn prefix(&self) -> (String, bool) {
        let literal = self.parts.iter().map_while(|part| match part {
            Part::Char(c) => Some(*c),
            _ => None,
        });
        let prefix: String = literal.collect();
        let count = prefix.chars().count();
        let exact = self.parts.len() == count + 1 && self.parts[count] == Part::Run;
        (prefix, exact)
    }

    /// Whether the pattern has no wildcard, so that it matches one text only.
    pub fn is_literal(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Char(_)))
    }
}

impl Part {
    fn accepts(&self, c: char) -> bool {
        match self {
            Self::Char(wanted) => *wanted == c,
            Self::Any | Self::Run => true,
            Self::Set { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

/// Reads a set up to its `]`; `None` if it is not closed.
fn parse_set(chars: &[char]) -> Option<(Part, usize)> {
    let negated = chars.first() == Some(&'^');
    let start = usize::from(negated);
    let length = chars.iter().skip(start).position(|c| *c == ']')?;
    let body = &chars[start..start + length];
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(&low) = body.get(at) {
        // A minus at the end of a set stands for itself.
        if body.get(at + 1) == Some(&'-') && at + 2 < body.len() {
            ranges.push((low, body[at + 2]));
            at += 3;
        } else {
            ranges.push((low, low));
            at += 1;
        }
    }
    Some((Part::Set { negated, ranges }, start + length + 1))
}
