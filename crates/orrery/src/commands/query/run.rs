//! `orrery query run`: the rows of a query, on any endpoint.
//!
//! JSON lines and JSON are written page by page; a table and CSV need all rows first, because any row may add a column.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;

use super::QueryScope;
use crate::client::{QueryPages, Remote, block_on};
use crate::failure::Failure;
use crate::io::rows::{RowsFormat, csv, json_lines, table, terminal_width};
use crate::io::{count, print, read_text};

/// The service accepts queries of up to 512 kB.
const QUERY_BYTES_MAX: u64 = 1 << 20;

#[derive(Args)]
pub(crate) struct RunArguments {
    /// The query; - reads it from standard input.
    #[arg(required_unless_present = "file")]
    query: Option<String>,

    /// Read the query from a file.
    #[arg(long, short, value_name = "FILE", conflicts_with = "query")]
    file: Option<PathBuf>,

    #[command(flatten)]
    over: QueryScope,

    /// Return at most this many rows.
    #[arg(long, short, value_name = "NUMBER")]
    limit: Option<usize>,

    /// Print the row count and the request charge on standard error.
    #[arg(long)]
    charge: bool,

    #[command(flatten)]
    remote: Remote,
}

pub(super) fn run(arguments: &RunArguments, output: &mut impl Write) -> Result<(), Failure> {
    let text = match (&arguments.file, arguments.query.as_deref()) {
        (Some(file), _) => read_text(file, QUERY_BYTES_MAX)?,
        (None, Some("-") | None) => read_text("-".as_ref(), QUERY_BYTES_MAX)?,
        (None, Some(query)) => query.to_owned(),
    };
    // The language has no semicolon, but people are used to ending statements with one.
    let text = text.trim().trim_end_matches(';').trim_end();
    if text.is_empty() {
        return Err(Failure::usage("the query is empty"));
    }
    let query = arguments.over.query(text)?;
    let client = arguments.remote.server.connect()?;
    let path = arguments.over.container.path();
    let mut pages = QueryPages::new(&client, &path, query, arguments.over.key());
    let limit = arguments.limit.unwrap_or(usize::MAX);
    let mut rows = Vec::new();
    let mut written = 0_usize;
    block_on(async {
        while written + rows.len() < limit
            && let Some(mut page) = pages.next().await?
        {
            page.truncate(limit - written - rows.len());
            match arguments.remote.rows.output {
                RowsFormat::Jsonl => print(output, &json_lines(&page))?,
                RowsFormat::Json => {
                    for (at, row) in page.iter().enumerate() {
                        // The array stays open until the last page.
                        let before = if written + at == 0 { "[\n  " } else { ",\n  " };
                        print(output, &(before.to_owned() + &row.to_json()))?;
                    }
                }
                RowsFormat::Table | RowsFormat::Csv => {
                    rows.append(&mut page);
                    continue;
                }
            }
            written += page.len();
        }
        Ok(())
    })?;
    match arguments.remote.rows.output {
        RowsFormat::Jsonl => {}
        RowsFormat::Json => print(output, if written == 0 { "[]\n" } else { "\n]\n" })?,
        RowsFormat::Csv => print(output, &csv(&rows))?,
        RowsFormat::Table => print(output, &table(&rows, terminal_width()))?,
    }
    let is_shown = arguments.remote.rows.output == RowsFormat::Table && std::io::stdout().is_terminal();
    if arguments.charge || is_shown {
        let total = u64::try_from(written + rows.len()).unwrap_or(u64::MAX);
        // Only for people: ignore a closed standard error.
        writeln!(std::io::stderr(), "{}, {:.2} RU", count(total, "row"), client.charge()).ok();
    }
    Ok(())
}
