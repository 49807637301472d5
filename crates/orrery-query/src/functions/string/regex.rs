//! `REGEXMATCH`: whether a pattern is found in a text.
//!
//! The service documents Perl-compatible patterns. Nearly all of them run in linear time; those with
//! look-around or back references, which cannot, run with a limit on backtracking. Compiling costs
//! far more than matching, so each thread keeps the patterns it used last.

use std::cell::RefCell;
use std::rc::Rc;

use super::super::arguments::{optional, string};
use crate::operand::Operand;

/// The longest pattern, the largest compiled form, and the most steps back of one match.
const PATTERN_BYTES_MAX: usize = 16 * 1024;
const COMPILED_BYTES_MAX: usize = 1024 * 1024;
const BACKTRACKS_MAX: usize = 200_000;

/// Compiled patterns a thread keeps.
const KEPT_PATTERNS: usize = 16;

pub(super) fn matches(arguments: &[Operand<'_>]) -> Option<bool> {
    let (text, pattern) = (string(arguments, 0)?, string(arguments, 1)?);
    let modifiers = Modifiers::parse(optional(arguments, 2, string)?.unwrap_or(""))?;
    match &*compiled(pattern, modifiers) {
        Compiled::Linear(regex) => Some(regex.is_match(text)),
        // A match that would take too many steps has no answer.
        Compiled::Backtracking(regex) => regex.is_match(text).ok(),
        Compiled::Invalid => None,
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four independent switches of the language")]
struct Modifiers {
    multi_line: bool,
    dot_matches_new_line: bool,
    ignore_case: bool,
    ignore_white_space: bool,
}

impl Modifiers {
    fn parse(text: &str) -> Option<Self> {
        let mut modifiers = Self::default();
        for letter in text.chars() {
            match letter {
                'm' => modifiers.multi_line = true,
                's' => modifiers.dot_matches_new_line = true,
                'i' => modifiers.ignore_case = true,
                'x' => modifiers.ignore_white_space = true,
                _ => return None,
            }
        }
        Some(modifiers)
    }
}

enum Compiled {
    Linear(regex::Regex),
    Backtracking(Box<fancy_regex::Regex>),
    Invalid,
}

struct Kept {
    pattern: Box<str>,
    modifiers: Modifiers,
    compiled: Rc<Compiled>,
}

thread_local! {
    /// The most recently used last.
    static KEPT: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

fn compiled(pattern: &str, modifiers: Modifiers) -> Rc<Compiled> {
    KEPT.with_borrow_mut(|kept| {
        let known = kept.iter().position(|kept| kept.modifiers == modifiers && *kept.pattern == *pattern);
        let entry = match known {
            Some(at) => kept.remove(at),
            None => {
                Kept { pattern: pattern.into(), modifiers, compiled: Rc::new(compile(pattern, modifiers)) }
            }
        };
        if kept.len() == KEPT_PATTERNS {
            kept.remove(0);
        }
        let compiled = Rc::clone(&entry.compiled);
        kept.push(entry);
        compiled
    })
}

fn compile(pattern: &str, modifiers: Modifiers) -> Compiled {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Compiled::Invalid;
    }
    let linear = regex::RegexBuilder::new(pattern)
        .multi_line(modifiers.multi_line)
        .dot_matches_new_line(modifiers.dot_matches_new_line)
        .case_insensitive(modifiers.ignore_case)
        .ignore_whitespace(modifiers.ignore_white_space)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX)
        .build();
    match linear {
        Ok(regex) => Compiled::Linear(regex),
        Err(regex::Error::CompiledTooBig(_)) => Compiled::Invalid,
        Err(_) => fancy_regex::RegexBuilder::new(pattern)
            .multi_line(modifiers.multi_line)
            .dot_matches_new_line(modifiers.dot_matches_new_line)
            .case_insensitive(modifiers.ignore_case)
            .verbose_mode(modifiers.ignore_white_space)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .delegate_dfa_size_limit(COMPILED_BYTES_MAX)
            .backtrack_limit(BACKTRACKS_MAX)
            .build()
            .map_or(Compiled::Invalid, |regex| Compiled::Backtracking(Box::new(regex))),
    }
}
