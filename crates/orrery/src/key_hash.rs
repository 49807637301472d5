//! `orrery key hash`: where partition key values land, one JSON object a line in and out.

use std::io::{BufRead, Write};

use orrery_model::partition_key::{PartitionKey, PartitionKeyDefinition};
use orrery_model::{Object, Value};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::failure::Failure;

/// A line longer than this is refused rather than read into memory.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Other members are ignored, so that lines can carry what the caller expects or wants to keep.
#[derive(Deserialize)]
struct Line<'a> {
    kind: String,
    version: i64,
    /// As text: numbers like -0 must arrive as they were written.
    #[serde(borrow)]
    pk: &'a RawValue,
}

pub(crate) fn run(input: &mut impl BufRead, output: &mut impl Write) -> Result<(), Failure> {
    let mut all_good = true;
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = std::io::Read::take(&mut *input, LINE_BYTES_MAX);
        let length = limited
            .read_until(b'\n', &mut line)
            .map_err(|error| Failure::refused(format!("the input cannot be read: {error}")))?;
        if length == 0 {
            break;
        }
        let cut = length as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n');
        let answer = if cut {
            skip_line(input)?;
            Err(format!("the line is longer than {LINE_BYTES_MAX} bytes"))
        } else {
            effective_key(&line)
        };
        all_good &= answer.is_ok();
        let (name, text) = match answer {
            Ok(key) => ("epk", key),
            Err(message) => ("error", message),
        };
        let mut object = Object::new();
        object.set(name, Value::from(text));
        match writeln!(output, "{}", Value::Object(object).to_json()) {
            Ok(()) => {}
            // Whoever reads has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
            Err(error) => return Err(Failure::refused(format!("the output cannot be written: {error}"))),
        }
    }
    if all_good { Ok(()) } else { Err(Failure::already_told()) }
}

fn skip_line(input: &mut impl BufRead) -> Result<(), Failure> {
    loop {
        let buffer = input
            .fill_buf()
            .map_err(|error| Failure::refused(format!("the input cannot be read: {error}")))?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = buffer.len();
        input.consume(end.map_or(length, |end| end + 1));
        if end.is_some() || length == 0 {
            return Ok(());
        }
    }
}

fn effective_key(line: &[u8]) -> Result<String, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let key = PartitionKey::parse_header(line.pk.get().as_bytes()).map_err(|error| error.to_string())?;
    // The paths do not matter for the hash, only how many there are.
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
        let result = run(&mut input.as_bytes(), &mut output);
        assert_eq!(String::from_utf8(output).unwrap(), expected);
        assert_eq!(result.is_ok(), good);
    }

    #[test]
    fn each_line_has_its_answer() {
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
    fn bad_lines_are_answered_in_place() {
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
            let result = run(&mut format!("{line}\n").as_bytes(), &mut output);
            assert!(result.is_err(), "{line}");
            let output = String::from_utf8(output).unwrap();
            assert!(output.starts_with("{\"error\":\"") && output.ends_with("\"}\n"), "{output}");
            assert_eq!(output.lines().count(), 1, "{output}");
        }
    }
}
