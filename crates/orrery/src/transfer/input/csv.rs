//! CSV as objects: a property for each column, with types that are recognised or told.

use std::collections::HashMap;
use std::io::{self, BufRead};

use ::csv::{ReaderBuilder, StringRecord, StringRecordsIntoIter};
use orrery_model::{Object, Value, value};

use super::{Record, Records};
use crate::failure::Failure;
use crate::transfer::arguments::{CsvArguments, CsvEmpty, CsvTypes};

/// What a column's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Infer,
    Text,
    Number,
    Boolean,
    Json,
}

/// How CSV is read, checked.
#[derive(Clone, Debug)]
pub(crate) struct CsvOptions {
    delimiter: u8,
    columns: Option<Vec<String>>,
    default: Kind,
    kinds: HashMap<String, Kind>,
    empty: CsvEmpty,
}

impl CsvOptions {
    pub(crate) fn new(arguments: &CsvArguments) -> Result<Self, Failure> {
        let delimiter = match arguments.delimiter.as_bytes() {
            b"tab" | b"\\t" => b'\t',
            [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => *byte,
            _ => {
                return Err(Failure::usage(format!(
                    "delimiter \"{}\" is neither one character nor tab",
                    arguments.delimiter
                )));
            }
        };
        let mut kinds = HashMap::from([("id".to_owned(), Kind::Text)]);
        for text in &arguments.column_types {
            let kind = text.rsplit_once('=').and_then(|(column, kind)| {
                let kind = match kind {
                    "text" => Kind::Text,
                    "number" => Kind::Number,
                    "boolean" => Kind::Boolean,
                    "json" => Kind::Json,
                    _ => return None,
                };
                Some((column.to_owned(), kind))
            });
            let (column, kind) = kind.ok_or_else(|| {
                Failure::usage(format!(
                    "type \"{text}\" is not COLUMN=TYPE with text, number, boolean or json"
                ))
            })?;
            kinds.insert(column, kind);
        }
        Ok(Self {
            delimiter,
            columns: arguments.columns.clone(),
            default: if arguments.types == CsvTypes::Infer { Kind::Infer } else { Kind::Text },
            kinds,
            empty: arguments.empty,
        })
    }

    pub(super) fn records(self, reader: Box<dyn BufRead + Send>) -> io::Result<Box<dyn Records>> {
        let mut reader = ReaderBuilder::new()
            .delimiter(self.delimiter)
            .has_headers(self.columns.is_none())
            .flexible(true)
            .from_reader(reader);
        let names = match &self.columns {
            Some(names) => names.clone(),
            None => reader.headers()?.iter().map(str::to_owned).collect(),
        };
        let names: Vec<String> =
            names.iter().map(|name| name.trim_start_matches('\u{feff}').trim().to_owned()).collect();
        let columns = names.into_iter().map(|name| {
            let kind = self.kinds.get(&name).copied().unwrap_or(self.default);
            let path = name.split('.').map(str::to_owned).collect();
            Column { name, path, kind }
        });
        Ok(Box::new(Rows { columns: columns.collect(), empty: self.empty, source: reader.into_records() }))
    }
}

struct Column {
    name: String,
    /// The name's parts between dots: nested objects.
    path: Vec<String>,
    kind: Kind,
}

struct Rows<R> {
    columns: Vec<Column>,
    empty: CsvEmpty,
    source: StringRecordsIntoIter<R>,
}

impl<R: io::Read> Iterator for Rows<R> {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = match self.source.next()? {
            Ok(row) => row,
            Err(error) if error.is_io_error() => return Some(Err(error.into())),
            // A row that is not UTF-8: the next one may be.
            Err(error) => return Some(Ok(Err(error.to_string()))),
        };
        Some(Ok(self.object(&row).map(|object| object.to_json().into_bytes())))
    }
}

impl<R> Rows<R> {
    fn object(&self, row: &StringRecord) -> Result<Value, String> {
        if row.len() > self.columns.len() {
            return Err(format!("the row has {} values for {} columns", row.len(), self.columns.len()));
        }
        let mut object = Value::Object(Object::new());
        for (column, text) in self.columns.iter().zip(row) {
            let value = match (text, self.empty) {
                ("", CsvEmpty::Omit) => continue,
                ("", CsvEmpty::Null) => Value::Null,
                ("", CsvEmpty::Text) => Value::from(""),
                (text, _) => read(column.kind, text).ok_or_else(|| {
                    let shown: String = text.chars().take(40).collect();
                    format!("the value \"{shown}\" of column {} is of another type", column.name)
                })?,
            };
            put(&mut object, &column.path, value)
                .ok_or_else(|| format!("the column {} is inside a value that is no object", column.name))?;
        }
        Ok(object)
    }
}

/// Sets the property at a path, making the objects on the way.
fn put(object: &mut Value, path: &[String], value: Value) -> Option<()> {
    let members = object.as_object_mut()?;
    match path {
        [] => None,
        [name] => {
            members.set(name.as_str(), value);
            Some(())
        }
        [name, rest @ ..] => {
            if members.get(name).is_none() {
                members.set(name.as_str(), Value::Object(Object::new()));
            }
            put(members.get_mut(name)?, rest, value)
        }
    }
}

fn read(kind: Kind, text: &str) -> Option<Value> {
    let number =
        || value::parse(text.trim().as_bytes()).ok().filter(|value| matches!(value, Value::Number(_)));
    let boolean = || match text.trim() {
        "true" | "TRUE" | "True" => Some(Value::Bool(true)),
        "false" | "FALSE" | "False" => Some(Value::Bool(false)),
        _ => None,
    };
    match kind {
        Kind::Text => Some(Value::from(text)),
        Kind::Number => number(),
        Kind::Boolean => boolean(),
        Kind::Json => value::parse(text.as_bytes()).ok(),
        // A number whose text would not come back as it was (more digits than a double holds) is rather a key.
        Kind::Infer => {
            let inferred = boolean().or_else(|| number().filter(|_| significant_digits(text) <= 15));
            Some(inferred.unwrap_or_else(|| Value::from(text)))
        }
    }
}

fn significant_digits(text: &str) -> usize {
    let mantissa = text.trim().split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.trim_start_matches('0').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(types: &[&str]) -> CsvArguments {
        CsvArguments {
            delimiter: ",".to_owned(),
            columns: None,
            types: CsvTypes::Infer,
            column_types: types.iter().map(|text| (*text).to_owned()).collect(),
            empty: CsvEmpty::Omit,
        }
    }

    fn read_all(arguments: &CsvArguments, text: &str) -> Vec<String> {
        let options = CsvOptions::new(arguments).ok().unwrap();
        let records = options.records(Box::new(io::Cursor::new(text.as_bytes().to_vec()))).unwrap();
        let text = |record: io::Result<Record>| match record.unwrap() {
            Ok(text) => String::from_utf8(text).unwrap(),
            Err(reason) => format!("! {reason}"),
        };
        records.map(text).collect()
    }

    #[test]
    fn types_are_recognised() {
        let text =
            "id,n,zip,flag,big,empty,text\n1,-2.5e3,02134,true,1234567890123456789,,\"a, \"\"b\"\"\nc\"\n";
        assert_eq!(
            read_all(&options(&[]), text),
            [
                r#"{"id":"1","n":-2500,"zip":"02134","flag":true,"big":"1234567890123456789","text":"a, \"b\"\nc"}"#
            ]
        );
        let all_text = CsvArguments { types: CsvTypes::Text, ..options(&["n=number"]) };
        assert_eq!(read_all(&all_text, "id,n,m\n1,2,3\n"), [r#"{"id":"1","n":2,"m":"3"}"#]);
    }

    #[test]
    fn columns_may_be_told_and_nested() {
        let arguments = CsvArguments {
            delimiter: "tab".to_owned(),
            columns: Some(vec!["id".to_owned(), "address.city".to_owned(), "address.tags".to_owned()]),
            empty: CsvEmpty::Null,
            ..options(&["address.tags=json"])
        };
        assert_eq!(
            read_all(&arguments, "7\tParis\t[1]\n8\t\t{}\n"),
            [
                r#"{"id":"7","address":{"city":"Paris","tags":[1]}}"#,
                r#"{"id":"8","address":{"city":null,"tags":{}}}"#
            ]
        );
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let records = read_all(&options(&["n=number"]), "id,n\n1,x\n2,3,4\n3,5\n");
        assert!(records[0].contains("\"x\" of column n"), "{records:?}");
        assert!(records[1].contains("3 values for 2 columns"), "{records:?}");
        assert_eq!(records[2], r#"{"id":"3","n":5}"#);
        assert!(CsvOptions::new(&options(&["n=date"])).is_err());
        assert!(CsvOptions::new(&CsvArguments { delimiter: "||".to_owned(), ..options(&[]) }).is_err());
    }
}
