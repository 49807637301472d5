//! `orrery key hash`: where partition key values land, one JSON object per line in and out.

use std::io::{BufRead, Write};

use clap::Subcommand;
use orrery_model::partition_key::{PartitionKey, PartitionKeyDefinition};
use orrery_model::{Object, Value};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::failure::Failure;
use crate::io::{InputLine, answer_lines};

/// A longer line is rejected rather than read into memory.
const LINE_BYTES_MAX: u64 = 1 << 20;

#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    /// Compute the effective partition key of values.
    ///
    /// Reads one JSON object per line from standard input: {"kind":"Hash","version":2,"pk":[42]}. The kind is Hash
    /// or MultiHash, the version 1 or 2, and {} in pk stands for a missing property. Writes one line for each:
    /// {"epk":"…"} with the effective partition key, or {"error":"…"}; the exit code is then 1.
    Hash,
}

/// Other members are ignored, so that a line can carry what the caller expects or wants to keep.
#[derive(Deserialize)]
struct HashRequest<'a> {
    kind: String,
    version: i64,
    /// Kept as text: numbers like -0 must be hashed as they were written.
    #[serde(borrow)]
    pk: &'a RawValue,
}

pub(super) fn run(command: &KeyCommand, output: &mut impl Write) -> Result<(), Failure> {
    match command {
        KeyCommand::Hash => hash(&mut std::io::stdin().lock(), output),
    }
}

fn hash(input: &mut impl BufRead, output: &mut impl Write) -> Result<(), Failure> {
    answer_lines(input, output, LINE_BYTES_MAX, |line| {
        let answer = match line {
            InputLine::Text(line) => effective_key(line),
            InputLine::TooLong => Err(format!("the line is longer than {LINE_BYTES_MAX} bytes")),
        };
        let member = |name: &str, text: String| {
            let mut object = Object::new();
            object.set(name, Value::from(text));
            Value::Object(object)
        };
        Ok(Some(answer.map(|key| member("epk", key)).map_err(|message| member("error", message))))
    })
}

fn effective_key(line: &[u8]) -> Result<String, String> {
    let line: HashRequest<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let key = PartitionKey::parse_json(line.pk.get().as_bytes()).map_err(|error| error.to_string())?;
    // Only the number of paths affects the hash, not their names.
    let paths = (0..key.parts().len().max(1)).map(|number| Value::from(format!("/p{number}")));
    let mut definition = Object::new();
    definition.set("paths", Value::Array(paths.collect()));
    definition.set("kind", Value::from(line.kind));
    definition.set("version", Value::from(line.version));
    let definition =
        PartitionKeyDefinition::parse(&Value::Object(definition)).map_err(|error| error.to_string())?;
    let key = definition.check_full(&key).map_err(|error| error.to_string())?;
    Ok(definition.effective_key(&key).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expected: &str, good: bool) {
        let mut output = Vec::new();
        let result = hash(&mut input.as_bytes(), &mut output);
        assert_eq!(String::from_utf8(output).unwrap(), expected);
        assert_eq!(result.is_ok(), good);
    }

    #[test]
    fn each_line_gets_an_answer() {
        let good = r#"{"kind":"Hash","version":2,"pk":["redmond"]}"#;
        let epk = "{\"epk\":\"22E342F38A486A088463DFF7838A5963\"}\n";
        check("", "", true);
        check(good, epk, true);
        check(&format!("{good}\n{good}\n"), &epk.repeat(2), true);
        let long = "x".repeat(3 << 20);
        let expected = format!("{{\"error\":\"the line is longer than 1048576 bytes\"}}\n{epk}");
        check(&format!("{long}\n{good}\n"), &expected, false);
    }

    #[test]
    fn bad_lines_are_answered_in_order() {
        for line in [
            "",
            "nonsense",
            "{}",
            r#"{"kind":"Hash","version":2}"#,
            r#"{"kind":"Hash","version":3,"pk":["a"]}"#,
            r#"{"kind":"Range","version":1,"pk":["a"]}"#,
            r#"{"kind":"Hash","version":2,"pk":["a","b"]}"#,
            r#"{"kind":"Hash","version":2,"pk":[["a"]]}"#,
            r#"{"kind":"Hash","version":2,"pk":"a"}"#,
            r#"{"kind":"MultiHash","version":2,"pk":["a","b","c","d"]}"#,
        ] {
            let mut output = Vec::new();
            let result = hash(&mut format!("{line}\n").as_bytes(), &mut output);
            assert!(result.is_err(), "{line}");
            let output = String::from_utf8(output).unwrap();
            assert!(output.starts_with("{\"error\":\"") && output.ends_with("\"}\n"), "{output}");
            assert_eq!(output.lines().count(), 1, "{output}");
        }
    }
}
