//! CSV as JSON objects: one property per column, with types that are inferred or given.

use std::collections::HashMap;
use std::io::{self, BufRead};

use ::csv::{ReaderBuilder, StringRecord, StringRecordsIntoIter};
use clap::{Args, ValueEnum};
use orrery_model::{Object, Value, value};

use super::{Place, Record, Records};
use crate::failure::Failure;

/// How the types of CSV values are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CsvTypes {
    /// Recognise numbers and true/false; 007 and 1234567890123456789 stay strings.
    Infer,
    /// Everything is a string.
    Text,
}

/// What an empty CSV value becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CsvEmpty {
    /// Leave the property out.
    Omit,
    /// Null.
    Null,
    /// An empty string.
    Text,
}

/// How a CSV file is to be read.
#[derive(Args)]
pub(crate) struct CsvArguments {
    /// The character between values, or `tab`.
    #[arg(long, value_name = "CHARACTER", default_value = ",", help_heading = "CSV")]
    pub(crate) delimiter: String,

    /// Column names, if the first line does not hold them. Dots make nested objects.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "CSV")]
    pub(crate) columns: Option<Vec<String>>,

    /// How to type values.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = CsvTypes::Infer, help_heading = "CSV")]
    pub(crate) types: CsvTypes,

    /// The type of one column: text, number, boolean or json. Can be repeated. The column id is always text.
    #[arg(long = "type", value_name = "COLUMN=TYPE", help_heading = "CSV")]
    pub(crate) column_types: Vec<String>,

    /// How to treat empty values.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = CsvEmpty::Omit, help_heading = "CSV")]
    pub(crate) empty: CsvEmpty,
}

impl Default for CsvArguments {
    fn default() -> Self {
        Self {
            delimiter: ",".to_owned(),
            columns: None,
            types: CsvTypes::Infer,
            column_types: Vec::new(),
            empty: CsvEmpty::Omit,
        }
    }
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnType {
    Infer,
    Text,
    Number,
    Boolean,
    Json,
}

/// The arguments, validated.
#[derive(Clone, Debug)]
pub(super) struct CsvOptions {
    pub(super) delimiter: u8,
    pub(super) columns: Option<Vec<String>>,
    default: ColumnType,
    kinds: HashMap<String, ColumnType>,
    empty: CsvEmpty,
}

impl CsvOptions {
    pub(super) fn new(arguments: &CsvArguments) -> Result<Self, Failure> {
        let delimiter = match arguments.delimiter.as_bytes() {
            b"tab" | b"\\t" => b'\t',
            [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => *byte,
            _ => {
                return Err(Failure::usage(format!(
                    "delimiter must be one ASCII character or `tab`, but got `{}`",
                    arguments.delimiter
                )));
            }
        };
        // Ids are strings, even if they look like numbers.
        let mut kinds = HashMap::from([("id".to_owned(), ColumnType::Text)]);
        for text in &arguments.column_types {
            let kind = text.rsplit_once('=').and_then(|(column, kind)| {
                let kind = match kind {
                    "text" => ColumnType::Text,
                    "number" => ColumnType::Number,
                    "boolean" => ColumnType::Boolean,
                    "json" => ColumnType::Json,
                    _ => return None,
                };
                Some((column.to_owned(), kind))
            });
            let (column, kind) = kind.ok_or_else(|| {
                Failure::usage(format!(
                    "type must be COLUMN=TYPE with text, number, boolean or json, but got `{text}`"
                ))
            })?;
            kinds.insert(column, kind);
        }
        Ok(Self {
            delimiter,
            columns: arguments.columns.clone(),
            default: if arguments.types == CsvTypes::Infer { ColumnType::Infer } else { ColumnType::Text },
            kinds,
            empty: arguments.empty,
        })
    }

    pub(super) fn records(self, reader: Box<dyn BufRead + Send>) -> io::Result<Box<dyn Records>> {
        let mut reader = ReaderBuilder::new()
            .delimiter(self.delimiter)
            .has_headers(self.columns.is_none())
            // Short rows lack their last values. Longer ones are refused when they are read.
            .flexible(true)
            .from_reader(reader);
        let names = match &self.columns {
            Some(names) => names.clone(),
            None => reader.headers()?.iter().map(str::to_owned).collect(),
        };
        // Some programs start a file with a byte order mark, which would become part of the first name.
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
    /// The parts of the name between dots, which make nested objects.
    path: Vec<String>,
    kind: ColumnType,
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
            // Nothing behind this can be read.
            Err(error) if error.is_io_error() => return Some(Err(error.into())),
            // A row that is not valid UTF-8 does not affect the next one.
            Err(error) => {
                let line = error.position().map_or(0, ::csv::Position::line);
                return Some(Ok(Record { place: Place::Line(line), text: Err(error.to_string()) }));
            }
        };
        let place = Place::Line(row.position().map_or(0, ::csv::Position::line));
        Some(Ok(Record { place, text: self.object(&row).map(|object| object.to_json().into_bytes()) }))
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
                    format!("the value \"{shown}\" of column {} does not have the column's type", column.name)
                })?,
            };
            put(&mut object, &column.path, value).ok_or_else(|| {
                format!("the column {} is nested in a value that is not an object", column.name)
            })?;
        }
        Ok(object)
    }
}

/// Sets the property at a path and creates the objects on the way; none if a scalar is in the way.
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

fn read(kind: ColumnType, text: &str) -> Option<Value> {
    // By the syntax of JSON, so 007 is not a number.
    let number =
        || value::parse(text.trim().as_bytes()).ok().filter(|value| matches!(value, Value::Number(_)));
    let boolean = || match text.trim() {
        "true" | "TRUE" | "True" => Some(Value::Bool(true)),
        "false" | "FALSE" | "False" => Some(Value::Bool(false)),
        _ => None,
    };
    match kind {
        ColumnType::Text => Some(Value::from(text)),
        ColumnType::Number => number(),
        ColumnType::Boolean => boolean(),
        ColumnType::Json => value::parse(text.as_bytes()).ok(),
        // A number with more digits than a double holds would be changed; it is more likely an identifier.
        ColumnType::Infer => {
            let inferred = boolean().or_else(|| number().filter(|_| significant_digits(text) <= 15));
            Some(inferred.unwrap_or_else(|| Value::from(text)))
        }
    }
}

fn significant_digits(text: &str) -> usize {
    let mantissa = text.trim().split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    // Zeros in front are not significant, nor are those after the point of 0.001.
    digits.trim_start_matches('0').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(types: &[&str]) -> CsvArguments {
        CsvArguments {
            column_types: types.iter().map(|text| (*text).to_owned()).collect(),
            ..CsvArguments::default()
        }
    }

    fn read_all(arguments: &CsvArguments, text: &str) -> Vec<String> {
        let options = CsvOptions::new(arguments).ok().unwrap();
        let records = options.records(Box::new(io::Cursor::new(text.as_bytes().to_vec()))).unwrap();
        let text = |record: io::Result<Record>| match record.unwrap().text {
            Ok(text) => String::from_utf8(text).unwrap(),
            Err(reason) => format!("! {reason}"),
        };
        records.map(text).collect()
    }

    #[test]
    fn types_are_inferred() {
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
    fn columns_can_be_named_and_nested() {
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
    fn values_of_the_wrong_type_are_reported() {
        let records = read_all(&options(&["n=number"]), "id,n\n1,x\n2,3,4\n3,5\n");
        assert!(records[0].contains("\"x\" of column n"), "{records:?}");
        assert!(records[1].contains("3 values for 2 columns"), "{records:?}");
        assert_eq!(records[2], r#"{"id":"3","n":5}"#);
        let quoted = "id,n\n1,\"two\nlines\"\n2,x\n";
        let options_of = CsvOptions::new(&options(&[])).ok().unwrap();
        let records = options_of.records(Box::new(io::Cursor::new(quoted.as_bytes().to_vec()))).unwrap();
        let places: Vec<String> = records.map(|record| record.unwrap().place.to_string()).collect();
        assert_eq!(places, ["line 2", "line 4"]);
        assert!(CsvOptions::new(&options(&["n=date"])).is_err());
        assert!(CsvOptions::new(&CsvArguments { delimiter: "||".to_owned(), ..options(&[]) }).is_err());
    }
}
