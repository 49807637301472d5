//! Completion of what is being typed: keywords, functions, commands, databases, containers, properties, files.

use orrery_query::functions;
use rustyline::completion::{FilenameCompleter, Pair};

use super::statement::{DOT_COMMANDS, MODES, WORDS};

/// The words of the language that begin clauses or join conditions.
const KEYWORDS: [&str; 38] = [
    "SELECT",
    "FROM",
    "WHERE",
    "ORDER BY",
    "GROUP BY",
    "DISTINCT",
    "TOP",
    "VALUE",
    "AS",
    "JOIN",
    "IN",
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "LIKE",
    "ESCAPE",
    "EXISTS",
    "ARRAY",
    "ASC",
    "DESC",
    "OFFSET",
    "LIMIT",
    "NULL",
    "UNDEFINED",
    "TRUE",
    "FALSE",
    "COUNT(",
    "SUM(",
    "AVG(",
    "MIN(",
    "MAX(",
    "COUNTIF(",
    "MAKELIST(",
    "MAKESET(",
    "RANK",
    "LET",
    "UDF.",
];

/// What is known about the account.
#[derive(Default)]
pub(super) struct Names {
    pub(super) databases: Vec<String>,
    /// As `database.container`.
    pub(super) containers: Vec<String>,
    /// Paths of a sample of items, such as `address.city`.
    pub(super) properties: Vec<String>,
}

/// What may be meant at the end of `before`, and where the part to replace begins.
pub(super) fn complete(names: &Names, before: &str) -> (usize, Vec<Pair>) {
    let line = before.rsplit('\n').next().unwrap_or_default();
    let first = line.split_whitespace().next().unwrap_or_default();
    let is_first = !line.trim_start().contains(char::is_whitespace);
    if first.starts_with('.') && is_first {
        return words(before, DOT_COMMANDS.iter().copied());
    }
    match first {
        ".mode" => return words(before, MODES.iter().copied()),
        ".charge" => return words(before, ["on", "off"].into_iter()),
        ".import" | ".export" => {
            let found = FilenameCompleter::new().complete_path(before, before.len());
            return found.unwrap_or((before.len(), Vec::new()));
        }
        "use" | "ls" if !is_first => {
            return words(before, names.containers.iter().chain(&names.databases).map(String::as_str));
        }
        _ => {}
    }
    let start = word_start(before);
    let word = &before[start..];
    // After a dot come properties, whatever the alias is.
    if let Some((alias, rest)) = word.split_once('.') {
        let fitting = names.properties.iter().filter(|path| path.starts_with(rest));
        let pairs = fitting.map(|path| pair(path, &format!("{alias}.{path}")));
        return (start, pairs.collect());
    }
    let commands = WORDS.iter().copied().filter(|_| is_first && !before.contains('\n'));
    // Names with an underscore are those of internal functions.
    let functions =
        functions::all().filter(|function| !function.name.starts_with('_')).map(|function| function.name);
    let functions = functions.map(|name| name.to_owned() + "(");
    let all =
        commands.map(str::to_owned).chain(KEYWORDS.iter().map(|word| (*word).to_owned())).chain(functions);
    let fits = |candidate: &String| {
        candidate.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)) && !word.is_empty()
    };
    let mut found: Vec<String> = all.filter(fits).collect();
    found.dedup();
    (start, found.iter().map(|word| pair(word, word)).collect())
}

fn words<'a>(before: &str, candidates: impl Iterator<Item = &'a str>) -> (usize, Vec<Pair>) {
    let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let word = &before[start..];
    (start, candidates.filter(|candidate| candidate.starts_with(word)).map(|word| pair(word, word)).collect())
}

fn word_start(before: &str) -> usize {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '@' | '$');
    before.char_indices().rev().take_while(|(_, c)| is_part(*c)).last().map_or(before.len(), |(at, _)| at)
}

fn pair(display: &str, replacement: &str) -> Pair {
    Pair { display: display.to_owned(), replacement: replacement.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed_by_where_they_stand() {
        let names = Names {
            databases: vec!["shop".to_owned()],
            containers: vec!["shop.orders".to_owned(), "shop.people".to_owned()],
            properties: vec!["address".to_owned(), "address.city".to_owned(), "id".to_owned()],
        };
        let completed = |before: &str| -> Vec<String> {
            complete(&names, before).1.into_iter().map(|pair| pair.replacement).collect()
        };
        assert_eq!(completed("sel"), ["SELECT"]);
        assert_eq!(completed("SELECT * FROM c WHERE c.addr"), ["c.address", "c.address.city"]);
        assert_eq!(completed("SELECT * FROM c WHERE c.address.c"), ["c.address.city"]);
        assert!(completed("SELECT starts").contains(&"STARTSWITH(".to_owned()));
        assert_eq!(completed("use shop.o"), ["shop.orders"]);
        assert_eq!(completed(".mode j"), ["json", "jsonl"]);
        assert_eq!(completed(".pa"), [".partitions"]);
        assert_eq!(complete(&names, "SELECT * FROM c WHERE c.ad").0, 22);
    }
}
