//! `REGEXMATCH`: whether a pattern is found in a text.
//!
//! The service documents Perl-compatible patterns. Nearly all of them run in linear time; those with
//! look-around or back references, which cannot, are tried at one position of the text after another, with a limit on
//! backtracking for each, so that the query can be stopped in between. What the engine delegates to its linear part, such
//! as the inside of a look-ahead, is not counted by that limit and may run to the end of the text each time: patterns that
//! do so repeatedly at one position are only matched with short texts. Compiling costs far more than matching, so each
//! thread caches the patterns it used last.

use std::cell::RefCell;
use std::rc::Rc;

use fancy_regex::{Expr, RegexInput};

use super::super::Evaluated;
use super::super::arguments::{optional, string};
use crate::context::Context;
use crate::error::EvalError;
use crate::operand::{Operand, owned};

/// The longest pattern, the largest compiled form, and the most backtracking steps of one match.
const PATTERN_BYTES_MAX: usize = 16 * 1024;
const COMPILED_BYTES_MAX: usize = 1024 * 1024;
const BACKTRACKS_MAX: usize = 200_000;
const BACKTRACKS_MIN: usize = 200;
/// The total number of bytes that may be scanned if every backtracking step scans the text; it determines their limit.
const SCANNED_BYTES_MAX: usize = 400 << 20;
/// Texts up to this length are matched in one go.
const SHORT_TEXT_BYTES: usize = 1024;
/// The longest text for patterns that may scan it many times at each position.
const NESTED_TEXT_BYTES: usize = 16 * 1024;

/// Compiled patterns a thread keeps.
const KEPT_PATTERNS: usize = 16;

pub(super) fn matches<'a>(context: &Context<'_>, arguments: &[Operand<'a>]) -> Evaluated<'a> {
    let (Some(text), Some(pattern)) = (string(arguments, 0), string(arguments, 1)) else { return Ok(None) };
    let modifiers = optional(arguments, 2, string).and_then(|text| Modifiers::parse(text.unwrap_or("")));
    let Some(modifiers) = modifiers else { return Ok(None) };
    let found = match &*compiled(pattern, modifiers) {
        Compiled::Linear(regex) => {
            context.bytes(text.len())?;
            Some(regex.is_match(text))
        }
        Compiled::Backtracking(pattern) => pattern.is_match(context, text)?,
        Compiled::Invalid => None,
    };
    Ok(found.and_then(owned))
}

/// A pattern that a linear engine cannot match.
struct Backtracking {
    pattern: Box<str>,
    modifiers: Modifiers,
    /// By the limit of steps back, which is part of the compiled form.
    compiled: RefCell<Vec<(usize, Rc<fancy_regex::Regex>)>>,
    /// Trying it at one place may look at the whole text for each step back.
    scans_far: bool,
    /// It may do so even without steps back.
    is_nested: bool,
}

impl Backtracking {
    fn new(pattern: &str, modifiers: Modifiers) -> Option<Self> {
        // What cannot be looked through, as with white space that is to be ignored, may do anything.
        let tree = Expr::parse_tree(pattern).ok().filter(|_| !modifiers.ignore_white_space);
        let pattern = Self {
            pattern: pattern.into(),
            modifiers,
            compiled: RefCell::default(),
            scans_far: tree.as_ref().is_none_or(|tree| scans_far(&tree.expr)),
            is_nested: tree.as_ref().is_none_or(|tree| is_nested(&tree.expr)),
        };
        // Whether the pattern is valid shows here, before any text is matched.
        pattern.with_limit(BACKTRACKS_MAX)?;
        Some(pattern)
    }

    /// Whether the pattern is found. `None`: a match that would take too many steps has no answer.
    fn is_match(&self, context: &Context<'_>, text: &str) -> Result<Option<bool>, EvalError> {
        if text.len() <= SHORT_TEXT_BYTES {
            context.steps(text.len() as u64 * if self.scans_far { 8 } else { 1 })?;
            return Ok(self.with_limit(BACKTRACKS_MAX).and_then(|regex| regex.is_match(text).ok()));
        }
        if self.is_nested && text.len() > NESTED_TEXT_BYTES {
            return Err(EvalError::WorkExceeded);
        }
        // Powers of two, so that few limits are needed.
        let scanned = if self.scans_far { text.len().next_power_of_two() } else { 1 };
        let backtracks_max = (SCANNED_BYTES_MAX / scanned).clamp(BACKTRACKS_MIN, BACKTRACKS_MAX);
        let Some(regex) = self.with_limit(backtracks_max) else { return Ok(None) };
        // One position after another, so that the work is counted and the query can be stopped in between.
        let places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        for at in places {
            if self.scans_far {
                context.bytes(text.len() - at)?;
            } else {
                context.steps(4)?;
            }
            match regex.is_match_input(RegexInput::new(text).from_pos(at).anchored(true)) {
                Ok(false) => {}
                Ok(true) => return Ok(Some(true)),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(false))
    }

    fn with_limit(&self, backtracks_max: usize) -> Option<Rc<fancy_regex::Regex>> {
        let mut compiled = self.compiled.borrow_mut();
        if let Some((_, regex)) = compiled.iter().find(|(limit, _)| *limit == backtracks_max) {
            return Some(Rc::clone(regex));
        }
        let regex = fancy_regex::RegexBuilder::new(&self.pattern)
            .multi_line(self.modifiers.multi_line)
            .dot_matches_new_line(self.modifiers.dot_matches_new_line)
            .case_insensitive(self.modifiers.ignore_case)
            .verbose_mode(self.modifiers.ignore_white_space)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .delegate_dfa_size_limit(COMPILED_BYTES_MAX)
            .backtrack_limit(backtracks_max)
            .build();
        let regex = Rc::new(regex.ok()?);
        compiled.push((backtracks_max, Rc::clone(&regex)));
        Some(regex)
    }
}

fn is_endless(expression: &Expr) -> bool {
    matches!(expression, Expr::Repeat { hi: usize::MAX, .. })
}

fn repeats_endlessly(expression: &Expr) -> bool {
    is_endless(expression) || expression.has_descendant(is_endless)
}

/// What is handed on to the linear engine as a whole, however far that goes.
fn looks_far(expression: &Expr) -> bool {
    match expression {
        Expr::LookAround(inside, _) | Expr::AtomicGroup(inside) => repeats_endlessly(inside),
        Expr::Conditional { .. } | Expr::Alt(_) => repeats_endlessly(expression),
        _ => false,
    }
}

fn is_hard(expression: &Expr) -> bool {
    !matches!(
        expression,
        Expr::Empty
            | Expr::Any { .. }
            | Expr::Assertion(_)
            | Expr::Literal { .. }
            | Expr::Concat(_)
            | Expr::Alt(_)
            | Expr::Group(_)
            | Expr::Repeat { .. }
            | Expr::Delegate { .. }
    )
}

fn scans_far(expression: &Expr) -> bool {
    let has_hard = |part: &Expr| is_hard(part) || part.has_descendant(is_hard);
    // What follows the last hard part is handed on as well.
    let ends_far = |outer: &Expr| match outer {
        Expr::Concat(parts) => parts.iter().rev().take_while(|part| !has_hard(part)).any(repeats_endlessly),
        _ => false,
    };
    let is_far = |part: &Expr| looks_far(part) || ends_far(part);
    is_far(expression) || expression.has_descendant(is_far)
}

/// Whether what looks far is itself repeated without an end.
fn is_nested(expression: &Expr) -> bool {
    let holds = |outer: &Expr| is_endless(outer) && outer.has_descendant(looks_far);
    holds(expression) || expression.has_descendant(holds)
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
    Backtracking(Box<Backtracking>),
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
            // Taken out and appended again below, which keeps the list in order of use.
            Some(at) => kept.remove(at),
            None => {
                Kept { pattern: pattern.into(), modifiers, compiled: Rc::new(compile(pattern, modifiers)) }
            }
        };
        if kept.len() == KEPT_PATTERNS {
            // The one that was not used for longest.
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
        // The other engine has the same limit of size.
        Err(regex::Error::CompiledTooBig(_)) => Compiled::Invalid,
        // Look-around, a back reference, or no valid pattern at all.
        Err(_) => Backtracking::new(pattern, modifiers)
            .map_or(Compiled::Invalid, |pattern| Compiled::Backtracking(Box::new(pattern))),
    }
}
