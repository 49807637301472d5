//! Parses statements of the shell.

use orrery_query::aggregate::Aggregate;
use orrery_query::lexer::{Token, TokenKind, tokens};

use crate::failure::Failure;

/// One thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Statement {
    Nothing,
    Query(String),
    /// Enter a container or a database; without an argument, leave it.
    Use(String),
    /// List what is here, or in a database.
    List(String),
    /// Show an item.
    Show(String),
    /// Write an item.
    Put(String),
    /// Delete an item.
    Remove(String),
    Mode(String),
    Explain(String),
    Partitions,
    /// Restrict queries to a partition key; without an argument, lift the restriction.
    Key(String),
    Charge(bool),
    Import(String),
    Export(String),
    /// Show the properties of a sample of items.
    Schema,
    Help,
    Exit,
}

/// Commands without a leading dot, which are not SQL.
pub(super) const WORDS: [&str; 8] = ["use", "ls", "cat", "put", "rm", "help", "exit", "quit"];
pub(super) const DOT_COMMANDS: [&str; 11] = [
    ".charge",
    ".exit",
    ".explain",
    ".export",
    ".help",
    ".import",
    ".key",
    ".mode",
    ".partitions",
    ".quit",
    ".schema",
];
pub(super) const MODES: [&str; 5] = ["table", "json", "jsonl", "csv", "chart"];

/// Whether a line is a command, which ends with its line; otherwise it is part of a query.
pub(super) fn is_command(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    word.starts_with('.') && !word.starts_with("..")
        || WORDS.iter().any(|known| word.trim_end_matches(';') == *known)
}

/// Whether a text ends with a semicolon that is not part of a string.
pub(super) fn ends_statement(text: &str) -> bool {
    text.trim_end().ends_with(';') && !is_open(text.trim_end().trim_end_matches(';'))
}

/// Whether a query continues on the next line: a string is open, the parser reached the end unexpectedly, or the
/// selected properties have no FROM clause yet.
pub(super) fn is_open(text: &str) -> bool {
    let last = tokens(text).into_iter().rfind(|token| token.kind != TokenKind::End);
    if last.is_some_and(|token| token.kind == TokenKind::InvalidString) {
        return true;
    }
    match orrery_query::parser::parse(text) {
        Ok(_) => lacks_source(text),
        Err(error) => {
            // An error behind the last character means that the text goes on.
            let length = u32::try_from(text.trim_end().encode_utf16().count()).unwrap_or(u32::MAX);
            error.location.is_some_and(|location| location.start >= length)
        }
    }
}

/// Whether a query selects properties or aggregates without a FROM clause. Constants need none: `SELECT 6 * 7`.
fn lacks_source(text: &str) -> bool {
    let tokens = tokens(text);
    let words: Vec<&str> = tokens.iter().map(|token| token.span.of(text)).collect();
    let is_name = |(at, token): (usize, &Token)| {
        let is_called = words.get(at + 1).is_some_and(|next| *next == "(");
        if is_called { Aggregate::find(words[at]).is_some() } else { token.kind == TokenKind::Identifier }
    };
    !words.iter().any(|word| word.eq_ignore_ascii_case("from")) && tokens.iter().enumerate().any(is_name)
}

impl Statement {
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::Nothing);
        }
        if !is_command(text) {
            return Ok(match text.trim_end_matches(';').trim_end() {
                "" => Self::Nothing,
                query => Self::Query(query.to_owned()),
            });
        }
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let plain = rest.trim_end_matches(';').trim_end();
        let required = |what: &str| match plain {
            "" => Err(Failure::usage(format!("{word} needs {what}"))),
            text => Ok(text.to_owned()),
        };
        Ok(match word.trim_end_matches(';') {
            "use" => Self::Use(plain.to_owned()),
            "ls" => Self::List(plain.to_owned()),
            "cat" => Self::Show(required("the id of an item")?),
            "put" => Self::Put(required("an item as JSON")?),
            "rm" => Self::Remove(required("the id of an item")?),
            "help" | ".help" => Self::Help,
            "exit" | "quit" | ".exit" | ".quit" => Self::Exit,
            ".mode" if MODES.contains(&plain) => Self::Mode(plain.to_owned()),
            ".mode" => return Err(Failure::usage(format!(".mode is one of {}", MODES.join(", ")))),
            ".explain" => Self::Explain(required("a query")?),
            ".partitions" => Self::Partitions,
            ".schema" => Self::Schema,
            ".key" => Self::Key(plain.to_owned()),
            ".charge" => match plain {
                "on" => Self::Charge(true),
                "off" => Self::Charge(false),
                _ => return Err(Failure::usage(".charge is on or off")),
            },
            ".import" => Self::Import(required("a file")?),
            ".export" => Self::Export(required("a file")?),
            other => {
                return Err(Failure::usage(format!("unknown command {other}: .help lists all commands")));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_queries() {
        let parse = |text: &str| Statement::parse(text).map_err(|failure| failure.message.unwrap());
        assert_eq!(parse(" ;"), Ok(Statement::Nothing));
        assert_eq!(parse("use shop.orders;"), Ok(Statement::Use("shop.orders".to_owned())));
        assert_eq!(parse("SELECT 1;\n"), Ok(Statement::Query("SELECT 1".to_owned())));
        assert_eq!(parse("select * from use"), Ok(Statement::Query("select * from use".to_owned())));
        assert_eq!(parse("put {\"id\":\"1\"}"), Ok(Statement::Put("{\"id\":\"1\"}".to_owned())));
        assert_eq!(parse(".charge on"), Ok(Statement::Charge(true)));
        assert!(parse(".mode xml").unwrap_err().contains("table, json"));
        assert!(parse(".nothing").unwrap_err().contains(".help"));
        assert!(parse("cat").unwrap_err().contains("id"));
    }

    #[test]
    fn queries_go_on_until_they_are_complete() {
        for open in [
            "SELECT",
            "SELECT * FROM",
            "SELECT * FROM c WHERE",
            "SELECT (1 +",
            "SELECT 'a",
            "SELECT {\"a\":",
            "SELECT c.id",
            "SELECT VALUE COUNT(1)",
        ] {
            assert!(is_open(open), "{open}");
        }
        for complete in
            ["SELECT 1", "SELECT * FROM c", "SELECT FORM c x", "x", "SELECT ';'", "SELECT VALUE ABS(-1)"]
        {
            assert!(!is_open(complete), "{complete}");
        }
        assert!(
            ends_statement("SELECT 1; \n") && !ends_statement("SELECT ';") && !ends_statement("SELECT 1")
        );
    }
}
