//! The limits that the account document names, and the errors beyond them, which are those of the service's planner.
#![allow(clippy::unwrap_used, clippy::pedantic, reason = "tests may be blunt")]

use orrery_query::check;
use orrery_query::error::{Code, Location};
use orrery_query::limits;

/// The errors of a text: code, message, and whether the place is the whole text.
fn refused(text: &str) -> Vec<(Code, String, bool)> {
    let whole = Location { start: 0, end: u32::try_from(text.encode_utf16().count()).unwrap() };
    let errors = match orrery_query::parser::parse(text) {
        Ok(query) => check::check(text, &query).err().unwrap_or_default(),
        Err(error) => vec![error],
    };
    errors.into_iter().map(|error| (error.code, error.message, error.location == Some(whole))).collect()
}

fn list(count: usize, separator: &str, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(separator)
}

/// One less is fine.
fn check_limit(limit: usize, code: u16, what: &str, text: impl Fn(usize) -> String) {
    assert_eq!(refused(&text(limit)), [], "{what}");
    let message =
        format!("The SQL query exceeded the maximum number of {what}. The allowed limit is {limit}.");
    assert_eq!(refused(&text(limit + 1)), [(Code::Sc(code), message, true)]);
}

#[test]
fn joins() {
    check_limit(limits::JOINS_MAX, 3002, "joins", |count| {
        format!("SELECT VALUE 1 FROM c {}", list(count, " ", |at| format!("JOIN t{at} IN c.t")))
    });
}

#[test]
fn calls_of_user_defined_functions() {
    check_limit(limits::UDF_CALLS_MAX, 3005, "user-defined function calls", |count| {
        format!("SELECT {} FROM c", list(count, ", ", |at| format!("udf.f(c.a) AS f{at}")))
    });
}

#[test]
fn search_terms() {
    let what = "search terms supplied to 'FullTextScore' function call";
    check_limit(limits::SEARCH_TERMS_MAX, 3032, what, |count| {
        format!(
            "SELECT * FROM c ORDER BY RANK FullTextScore(c.a, {})",
            list(count, ", ", |at| format!("'{at}'"))
        )
    });
}

#[test]
fn fused_scores() {
    let what = "arguments supplied to a score fusion function";
    check_limit(limits::FUSED_SCORES_MAX, 3033, what, |count| {
        let scores = list(count, ", ", |at| format!("FullTextScore(c.a{at}, 'x')"));
        format!("SELECT * FROM c ORDER BY RANK RRF({scores})")
    });
}

/// Counted in UTF-16 code units, as clients do, not in bytes.
#[test]
fn length_of_the_text() {
    let text = |character: char, units: usize| {
        let (before, after) = ("SELECT * FROM c WHERE c.a = '", "'");
        let filling = (units - before.len() - after.len()) / character.len_utf16();
        format!("{before}{}{after}", character.to_string().repeat(filling))
    };
    let message = "The SQL query text exceeded the maximum limit of 524288 characters.";
    for character in ['x', 'é'] {
        assert_eq!(refused(&text(character, 524_288)), []);
        assert_eq!(refused(&text(character, 524_289)), [(Code::Sc(3020), message.to_owned(), true)]);
    }
}

/// The service has no such limits; these are our own.
#[test]
fn lists_and_terms() {
    let members = |count| format!("SELECT * FROM c WHERE c.a IN ({})", list(count, ",", |at| at.to_string()));
    assert_eq!(refused(&members(limits::IN_MEMBERS_MAX)), []);
    assert!(refused(&members(limits::IN_MEMBERS_MAX + 1))[0].1.contains("The allowed limit is 16000"));
    let terms = |count| format!("SELECT * FROM c WHERE {}", list(count, " OR ", |at| format!("c.a={at}")));
    assert_eq!(refused(&terms(limits::LOGICAL_TERMS_MAX)), []);
    assert!(refused(&terms(2 * limits::LOGICAL_TERMS_MAX))[0].1.contains("The allowed limit is 8000"));
    let deep =
        |levels: usize| format!("SELECT VALUE {}c.a{} FROM c", "ABS(".repeat(levels), ")".repeat(levels));
    assert_eq!(refused(&deep(100)), []);
    assert_eq!(refused(&deep(200))[0].0, Code::Sc(1030));
}
