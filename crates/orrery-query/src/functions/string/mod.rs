//! Functions over strings.
//!
//! Positions and lengths count UTF-16 code units, as the clients of the service do. A cut through
//! the middle of a character outside the basic plane leaves a replacement character on either side,
//! because the values here are well-formed text. Letters change case one by one, without regard to
//! any language.

mod case;
mod convert;
mod regex;
mod search;
mod slice;
mod units;

use orrery_model::Value;

use super::arguments::{array, integer, string};
use super::{Function, UNBOUNDED, row, row_in_context};
use crate::operand::Operand;

pub(super) static FUNCTIONS: &[Function] = &[
    row!("CONCAT", 2..=UNBOUNDED, None, concat),
    row!("CONTAINS", 2..=3, FullIndexScan, search::contains),
    row_in_context!("CONTAINS_ALL_CI", 2..=UNBOUNDED, None, |c, a| search::contains_all(c, a, true)),
    row_in_context!("CONTAINS_ALL_CS", 2..=UNBOUNDED, None, |c, a| search::contains_all(c, a, false)),
    row_in_context!("CONTAINS_ANY_CI", 2..=UNBOUNDED, None, |c, a| search::contains_any(c, a, true)),
    row_in_context!("CONTAINS_ANY_CS", 2..=UNBOUNDED, None, |c, a| search::contains_any(c, a, false)),
    row!("ENDSWITH", 2..=3, FullIndexScan, search::ends_with),
    row!("INDEX_OF", 2..=3, None, search::index_of),
    row!("LASTINDEXOF", 2..=3, None, search::last_index_of),
    row!("LASTSUBSTRINGAFTER", 2..=2, None, |a| slice::around(a, true, true)),
    row!("LASTSUBSTRINGBEFORE", 2..=2, None, |a| slice::around(a, true, false)),
    row!("LEFT", 2..=2, PreciseScan, slice::left),
    row!("LENGTH", 1..=1, None, |a| i64::try_from(units::length(string(a, 0)?)).ok()),
    row!("LOWER", 1..=1, None, |a| Some(case::lower(string(a, 0)?))),
    row!("LTRIM", 1..=2, None, |a| slice::trim(a, true, false)),
    row_in_context!("REGEXMATCH", 2..=3, FullIndexScan, regex::matches),
    row!("REPLACE", 3..=3, None, replace),
    row!("REPLICATE", 2..=2, None, replicate),
    row!("REVERSE", 1..=1, None, |a| Some(string(a, 0)?.chars().rev().collect::<String>())),
    row!("RIGHT", 2..=2, PreciseScan, slice::right),
    row!("RTRIM", 1..=2, None, |a| slice::trim(a, false, true)),
    row!("STARTSWITH", 2..=3, PreciseScan, search::starts_with),
    row!("STRINGEQUALS", 2..=3, Seek, search::equals),
    row!("STRINGJOIN", 2..=2, None, join),
    row!("STRINGSPLIT", 2..=2, None, split),
    row!("STRINGTOARRAY", 1..=1, None, |a| convert::parse(a, |value| matches!(value, Value::Array(_)))),
    row!("STRINGTOBOOLEAN", 1..=1, None, |a| convert::parse(a, |value| matches!(value, Value::Bool(_)))),
    row!("STRINGTONULL", 1..=1, None, |a| convert::parse(a, |value| matches!(value, Value::Null))),
    row!("STRINGTONUMBER", 1..=1, None, |a| convert::parse(a, |value| matches!(value, Value::Number(_)))),
    row!("STRINGTOOBJECT", 1..=1, None, |a| convert::parse(a, |value| matches!(value, Value::Object(_)))),
    row!("SUBSTRINGAFTER", 2..=2, None, |a| slice::around(a, false, true)),
    row!("SUBSTRINGBEFORE", 2..=2, None, |a| slice::around(a, false, false)),
    row!("SUBSTRING", 3..=3, PreciseScan, slice::substring),
    row!("TOSTRING", 1..=1, None, convert::to_string),
    row!("TRIM", 1..=2, None, |a| slice::trim(a, true, true)),
    row!("UPPER", 1..=1, None, |a| Some(case::upper(string(a, 0)?))),
];

/// The longest text that repeated growth may make, in bytes; what is longer is undefined. Nesting
/// `REPLACE`, `CONCAT` or `STRINGJOIN` would otherwise square a text at every step.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

fn concat(arguments: &[Operand<'_>]) -> Option<String> {
    let texts: Vec<&str> = (0..arguments.len()).map(|at| string(arguments, at)).collect::<Option<_>>()?;
    within_bound(texts.iter().map(|text| text.len()).sum())?;
    Some(texts.concat())
}

fn replace(arguments: &[Operand<'_>]) -> Option<String> {
    let (text, find, by) = (string(arguments, 0)?, string(arguments, 1)?, string(arguments, 2)?);
    if find.is_empty() {
        return None;
    }
    let matches = text.matches(find).count();
    within_bound((text.len() - matches * find.len()).saturating_add(matches.saturating_mul(by.len())))?;
    Some(text.replace(find, by))
}

fn replicate(arguments: &[Operand<'_>]) -> Option<String> {
    /// The documented length of the longest result.
    const UNITS_MAX: usize = 10_000;

    let text = string(arguments, 0)?;
    let count = usize::try_from(integer(arguments, 1)?).ok()?;
    let fits = units::length(text).checked_mul(count).is_some_and(|units| units <= UNITS_MAX);
    fits.then(|| text.repeat(count))
}

fn join(arguments: &[Operand<'_>]) -> Option<String> {
    let texts: Vec<&str> = array(arguments, 0)?.iter().map(Value::as_str).collect::<Option<_>>()?;
    let separator = string(arguments, 1)?;
    let separators = texts.len().saturating_sub(1).saturating_mul(separator.len());
    within_bound(separators.saturating_add(texts.iter().map(|text| text.len()).sum()))?;
    Some(texts.join(separator))
}

fn split(arguments: &[Operand<'_>]) -> Option<Vec<Value>> {
    let (text, separator) = (string(arguments, 0)?, string(arguments, 1)?);
    if separator.is_empty() {
        return Some(vec![text.into()]);
    }
    Some(text.split(separator).map(Value::from).collect())
}

fn within_bound(bytes: usize) -> Option<()> {
    (bytes <= TEXT_BYTES_MAX).then_some(())
}
