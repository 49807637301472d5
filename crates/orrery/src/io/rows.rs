//! Rows for people and for programs: tables that fit the terminal, JSON, JSON lines, CSV and charts.
//!
//! A row is any JSON value. The columns of a table are the properties of its objects, in order of first appearance;
//! values that are not objects get a separate column.

use std::collections::HashSet;
use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use comfy_table::presets::{NOTHING, UTF8_FULL_CONDENSED};
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, Width};
use orrery_model::Value;

use super::plain;

/// The format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowsFormat {
    /// A table for people, as wide as the terminal.
    #[value(alias = "text")]
    Table,
    /// One JSON value: an array of the rows, or the server's response.
    Json,
    /// One JSON value per line.
    Jsonl,
    /// Comma-separated values with a header line.
    Csv,
}

/// For commands that print rows.
#[derive(Args, Clone, Copy)]
pub(crate) struct RowsArguments {
    /// Output format.
    #[arg(long, short, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT", default_value_t = RowsFormat::Table)]
    pub(crate) output: RowsFormat,
}

impl RowsArguments {
    /// The server's response as JSON, as rows, or as the text that `describe` renders from it. An array has a row for
    /// each element.
    pub(crate) fn render(self, answer: &Value, describe: impl FnOnce() -> String) -> String {
        let rows = || answer.as_array().map_or_else(|| vec![answer.clone()], <[Value]>::to_vec);
        self.render_rows(answer, rows, describe)
    }

    /// Like [`Self::render`], with rows derived from the response.
    pub(crate) fn render_rows(
        self,
        answer: &Value,
        rows: impl FnOnce() -> Vec<Value>,
        describe: impl FnOnce() -> String,
    ) -> String {
        match self.output {
            RowsFormat::Table => describe(),
            RowsFormat::Json => answer.to_json() + "\n",
            RowsFormat::Jsonl => json_lines(&rows()),
            RowsFormat::Csv => csv(&rows()),
        }
    }
}

/// The width of the terminal on standard output; none for pipes and files, where nothing is cut off.
pub(crate) fn terminal_width() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns)).filter(|width| *width > 0)
}

/// One JSON value per line.
pub(crate) fn json_lines(rows: &[Value]) -> String {
    rows.iter().map(|row| row.to_json() + "\n").collect()
}

/// A JSON array with one row per line.
pub(crate) fn json_array(rows: &[Value]) -> String {
    if rows.is_empty() {
        return "[]\n".to_owned();
    }
    let lines: Vec<String> = rows.iter().map(|row| format!("  {}", row.to_json())).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

/// Comma-separated values by RFC 4180, with a header line.
pub(crate) fn csv(rows: &[Value]) -> String {
    let grid = Grid::new(rows);
    if grid.columns.is_empty() {
        return String::new();
    }
    let mut text = csv_line(grid.columns.iter().map(String::as_str));
    for row in rows {
        let cells: Vec<String> = grid.columns.iter().map(|column| cell(row, column)).collect();
        text += &csv_line(cells.iter().map(String::as_str));
    }
    text
}

fn csv_line<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let quoted = cells.map(|cell| {
        if cell.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell.to_owned()
        }
    });
    // As RFC 4180 ends its lines.
    quoted.collect::<Vec<_>>().join(",") + "\r\n"
}

/// The narrowest useful column, with its border.
const COLUMN_WIDTH_MIN: usize = 9;

/// A table with borders, cut to `width`.
pub(crate) fn table(rows: &[Value], width: Option<usize>) -> String {
    let grid = Grid::new(rows);
    if grid.columns.is_empty() {
        return String::new();
    }
    // The leftmost border belongs to no column.
    let fits = width.map_or(usize::MAX, |width| (width.saturating_sub(1) / COLUMN_WIDTH_MIN).max(1));
    // The server's own properties, which come last, are the first to make room.
    let own = grid.columns.iter().filter(|name| !is_system(name)).count();
    // Two blanks and a border for each column.
    let lengths = grid.columns.iter().map(|name| longest(rows, name) + 3);
    let is_wide = width.is_some_and(|width| lengths.sum::<usize>() + 1 > width);
    let shown = if is_wide && own > 0 { own.min(fits) } else { grid.columns.len().min(fits) };
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    lay_out(&mut table, width);
    let mut header = Row::from(grid.columns.iter().take(shown).map(Cell::new));
    // One line per row: what is longer is cut.
    header.max_height(1);
    table.set_header(header);
    for row in rows {
        let mut cells = Row::new();
        cells.max_height(1);
        for column in grid.columns.iter().take(shown) {
            let cell = Cell::new(one_line(&cell(row, column)));
            let is_number = matches!(value(row, column), Some(Value::Number(_)));
            cells.add_cell(if is_number { cell.set_alignment(CellAlignment::Right) } else { cell });
        }
        table.add_row(cells);
    }
    // A short column is never the one to shrink.
    for (at, name) in grid.columns.iter().take(shown).enumerate() {
        if longest(rows, name) + 3 <= COLUMN_WIDTH_MIN
            && let Some(column) = table.column_mut(at)
        {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    let mut text = table.trim_fmt() + "\n";
    // They are named, so that nobody takes the table for complete.
    if shown < grid.columns.len() {
        let hidden = grid.columns[shown..].join(", ");
        let noun = if grid.columns.len() - shown == 1 { " more column: " } else { " more columns: " };
        text.extend([&(grid.columns.len() - shown).to_string(), noun, &hidden, "\n"]);
    }
    text
}

/// The characters of a column's longest cell, its name included.
fn longest(rows: &[Value], column: &str) -> usize {
    let cells = rows.iter().map(|row| cell(row, column).chars().count());
    cells.max().unwrap_or(0).max(column.chars().count())
}

/// A table without borders: property and value of one object.
pub(crate) fn properties(object: &Value, width: Option<usize>) -> String {
    let Some(object) = object.as_object() else { return plain(object) + "\n" };
    let mut table = Table::new();
    table.load_style(NOTHING);
    lay_out(&mut table, width);
    for (name, value) in object.iter() {
        table.add_row([Cell::new(name), Cell::new(plain(value))]);
    }
    // Names give way to values.
    if let Some(column) = table.column_mut(0) {
        column.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(30)));
    }
    table.trim_fmt() + "\n"
}

fn lay_out(table: &mut Table, width: Option<usize>) {
    match width.and_then(|width| u16::try_from(width).ok()) {
        Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        // Programs read it, or a file keeps it: nothing is cut.
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    table.set_truncation_indicator("…");
}

/// A bar for each row: the first number of the row, labelled with the first value that is not a number.
pub(crate) fn chart(rows: &[Value], width: Option<usize>) -> Result<String, &'static str> {
    let grid = Grid::new(rows);
    let number = |row: &Value| {
        let mut values = grid.columns.iter().filter_map(|column| value(row, column));
        values.find_map(|value| {
            value.as_number().map(orrery_model::Number::as_f64).filter(|number| number.is_finite())
        })
    };
    let label = |row: &Value| {
        let values = grid.columns.iter().filter_map(|column| value(row, column));
        let labels: Vec<String> = values
            .filter(|value| !matches!(value, Value::Number(_) | Value::Array(_) | Value::Object(_)))
            .map(|value| one_line(&plain(value)))
            .collect();
        labels.join(" ")
    };
    let bars: Vec<(String, f64)> = rows.iter().filter_map(|row| Some((label(row), number(row)?))).collect();
    if bars.is_empty() {
        return Err(
            "a chart needs rows with a number, such as SELECT c.city, COUNT(1) AS n FROM c GROUP BY c.city",
        );
    }
    let longest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let label_width = longest(&mut bars.iter().map(|(label, _)| label.chars().count())).min(30);
    let figure = |number: f64| Value::from(rounded(number)).to_json();
    let figure_width = longest(&mut bars.iter().map(|(_, number)| figure(*number).len()));
    // Two blanks on each side of the figure.
    let room = width.unwrap_or(80).saturating_sub(label_width + figure_width + 4).max(10);
    // Positive, because all lengths are divided by it.
    let largest = bars.iter().map(|(_, number)| number.abs()).fold(f64::MIN_POSITIVE, f64::max);
    let mut text = String::new();
    for (label, number) in &bars {
        let label: String = label.chars().take(label_width).collect();
        let padding = " ".repeat(label_width - label.chars().count());
        let bar = bar(number.abs() / largest, room);
        let figure = format!("{:>figure_width$}", figure(*number));
        text.extend([&label, &padding, "  ", &figure, "  ", &bar, "\n"]);
    }
    Ok(text)
}

/// A number with six significant digits, or all the digits before its point: nobody reads more beside a bar.
fn rounded(number: f64) -> f64 {
    if number == 0.0 {
        return number;
    }
    // With more places the power of ten would overflow.
    let places = (5.0 - number.abs().log10().floor()).clamp(0.0, 300.0);
    let scaled = number * 10_f64.powf(places);
    if scaled.is_finite() { scaled.round() / 10_f64.powf(places) } else { number }
}

/// A bar of this share of `room`, to an eighth of a character.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a few hundred eighths"
)]
fn bar(share: f64, room: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share * room as f64 * 8.0).round() as usize;
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

/// A cell without line feeds or other control characters, which would break the table or control the terminal.
fn one_line(text: &str) -> String {
    let show = |c: char| match c {
        '\n' => '↵',
        '\t' => ' ',
        // Escape sequences in data must not reach the terminal.
        c if c.is_control() => '\u{FFFD}',
        c => c,
    };
    text.chars().map(show).collect()
}

/// Rows seen as a grid.
struct Grid {
    columns: Vec<String>,
}

/// The column of values that are not objects.
const VALUE_COLUMN: &str = "value";

impl Grid {
    fn new(rows: &[Value]) -> Self {
        let mut columns: Vec<String> = Vec::new();
        let mut seen: HashSet<String> = HashSet::new();
        let mut add = |name: &str| {
            if seen.insert(name.to_owned()) {
                columns.push(name.to_owned());
            }
        };
        for row in rows {
            match row.as_object() {
                Some(object) => object.iter().for_each(|(name, _)| add(name)),
                None => add(VALUE_COLUMN),
            }
        }
        // The server's own properties come last: a table shows as many columns as fit.
        columns.sort_by_key(|name| is_system(name));
        Self { columns }
    }
}

/// What a row has in a column.
fn value<'r>(row: &'r Value, column: &str) -> Option<&'r Value> {
    match row.as_object() {
        Some(object) => object.get(column),
        None if column == VALUE_COLUMN => Some(row),
        None => None,
    }
}

/// The text of a cell. A missing property is an empty one.
fn cell(row: &Value, column: &str) -> String {
    value(row, column).map(plain).unwrap_or_default()
}

fn is_system(name: &str) -> bool {
    matches!(name, "_rid" | "_self" | "_etag" | "_attachments" | "_ts")
}

#[cfg(test)]
mod tests {
    use orrery_model::value;

    use super::*;

    fn rows(text: &str) -> Vec<Value> {
        value::parse(text.as_bytes()).unwrap().as_array().unwrap().to_vec()
    }

    #[test]
    fn tables_have_a_column_per_property_and_fit_the_width() {
        let rows = rows(r#"[{"id":"a","_ts":1,"n":10},{"id":"b","n":7,"more":{"x":"line\nfeed"}},5]"#);
        let text = table(&rows, None);
        let header: Vec<&str> =
            text.lines().nth(1).unwrap().split('┆').map(|cell| cell.trim_matches(['│', ' '])).collect();
        assert_eq!(header, ["id", "n", "more", "value", "_ts"]);
        assert_eq!(text.lines().count(), 7, "{text}");
        for width in [20, 40, 80] {
            let text = table(&rows, Some(width));
            assert!(
                text.lines()
                    .filter(|line| !line.contains("more column"))
                    .all(|line| line.chars().count() <= width),
                "{width}\n{text}"
            );
        }
        let long = vec![
            value::parse(format!("{{\"id\":\"a\",\"text\":\"{}\"}}", "x".repeat(500)).as_bytes()).unwrap(),
        ];
        let text = table(&long, Some(60));
        assert!(text.contains('…') && text.lines().count() == 5, "{text}");
        assert_eq!(table(&[], None), "");
        let item = vec![value::parse(br#"{"id":"a","_rid":"xxxxxxxxxxxxxxxxxxxxxxxxx","_ts":5}"#).unwrap()];
        assert!(
            table(&item, Some(30)).ends_with("2 more columns: _rid, _ts\n"),
            "{}",
            table(&item, Some(30))
        );
    }

    #[test]
    fn csv_quotes_what_needs_quotes() {
        let rows = rows(r#"[{"id":"a,b","q":"say \"hi\""},{"id":null,"o":{"x":1}}]"#);
        assert_eq!(csv(&rows), "id,q,o\r\n\"a,b\",\"say \"\"hi\"\"\",\r\nnull,,\"{\"\"x\"\":1}\"\r\n");
        assert_eq!(csv(&[]), "");
    }

    #[test]
    fn charts_draw_the_first_number() {
        let text = chart(&rows(r#"[{"city":"Paris","n":10},{"city":"Oslo","n":5}]"#), Some(31)).unwrap();
        let bars: Vec<usize> = text.lines().map(|line| line.matches('█').count()).collect();
        assert_eq!(bars[0], 2 * bars[1], "{text}");
        assert!(chart(&rows(r#"["x"]"#), None).is_err());
        let text =
            chart(&rows(r#"[{"city":"Lima","at":{"x":1},"n":47559.440000000046}]"#), Some(40)).unwrap();
        assert!(text.starts_with("Lima  47559.4  █"), "{text}");
        for (number, expected) in
            [(0.1 + 0.2, 0.3), (1_234_567.8, 1_234_568.0), (-2.0, -2.0), (1e-310, 1e-310)]
        {
            assert!((rounded(number) - expected).abs() <= f64::EPSILON, "{number}: {}", rounded(number));
        }
    }
}
