//! Tree to canonical text, as the service writes rewritten queries.
//!
//! Keywords are upper case, every operation stands in parentheses, strings have double quotes, each
//! clause has its own line and subqueries in FROM are indented by four blanks. Spelling of property
//! access and function names is kept. Parsing the text again gives the same tree.

use std::fmt::Write;

use orrery_model::Number;
use orrery_model::value::write_json_string;

use crate::ast::{
    Collection, Count, CountValue, Direction, Expr, ExprKind, Literal, LogicalOperator, OrderBy, Query,
    Selection, Source, Step, SubqueryKind, UnaryOperator,
};
use crate::lexer;

/// The canonical text of a query.
pub fn query(query: &Query) -> String {
    print(query, false)
}

/// The text of a query in a plan: the service knows no ALL behind its parser.
pub(crate) fn planned(query: &Query) -> String {
    print(query, true)
}

fn print(query: &Query, expands_all: bool) -> String {
    let mut printer = Printer { out: String::with_capacity(256), indent: 0, expands_all };
    printer.query(query);
    printer.out
}

/// The canonical text of an expression.
pub fn expression(expr: &Expr) -> String {
    let mut printer = Printer { out: String::with_capacity(64), indent: 0, expands_all: true };
    printer.expr(expr);
    printer.out
}

struct Printer {
    out: String,
    indent: usize,
    /// Whether `ALL(…)` is written as `NOT EXISTS(…)`.
    expands_all: bool,
}

impl Printer {
    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn new_line(&mut self) {
        self.out.push('\n');
        for _ in 0..self.indent {
            self.out.push_str("    ");
        }
    }

    fn separated<T>(&mut self, items: &[T], mut print: impl FnMut(&mut Self, &T)) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.push(", ");
            }
            print(self, item);
        }
    }

    fn query(&mut self, query: &Query) {
        self.push("SELECT ");
        if query.select.distinct {
            self.push("DISTINCT ");
        }
        if let Some(top) = &query.select.top {
            self.push("TOP ");
            self.count(top);
            self.push(" ");
        }
        self.selection(&query.select.selection);
        if let Some(from) = &query.from {
            for (index, source) in from.sources.iter().enumerate() {
                self.new_line();
                self.push(if index == 0 { "FROM " } else { "JOIN " });
                self.source(source);
            }
        }
        if let Some(filter) = &query.filter {
            self.new_line();
            self.push("WHERE ");
            self.expr(filter);
        }
        if !query.group_by.is_empty() {
            self.new_line();
            self.push("GROUP BY ");
            self.separated(&query.group_by, Self::expr);
        }
        if let Some(order_by) = &query.order_by {
            self.order_by(order_by);
        }
        if let Some(offset_limit) = &query.offset_limit {
            self.new_line();
            self.push("OFFSET ");
            self.count(&offset_limit.offset);
            self.push(" LIMIT ");
            self.count(&offset_limit.limit);
        }
    }

    fn selection(&mut self, selection: &Selection) {
        match selection {
            Selection::Star(_) => self.push("*"),
            Selection::Value(expr) => {
                self.push("VALUE ");
                self.expr(expr);
            }
            Selection::List(items) => self.separated(items, |printer, item| {
                printer.expr(&item.expr);
                if let Some(alias) = &item.alias {
                    printer.push(" AS ");
                    // A quoted alias that is a valid name loses its quotes, as in the service's texts.
                    if item.quoted && !lexer::is_name(&alias.text) {
                        write_json_string(&alias.text, &mut printer.out);
                    } else {
                        printer.push(&alias.text);
                    }
                }
            }),
        }
    }

    fn order_by(&mut self, order_by: &OrderBy) {
        self.new_line();
        self.push(if order_by.rank { "ORDER BY RANK " } else { "ORDER BY " });
        self.separated(&order_by.items, |printer, item| {
            printer.expr(&item.expr);
            match item.direction {
                Some(Direction::Ascending) => printer.push(" ASC"),
                Some(Direction::Descending) => printer.push(" DESC"),
                None => {}
            }
        });
    }

    fn count(&mut self, count: &Count) {
        match &count.value {
            CountValue::Literal(value) => self.push(&value.to_string()),
            CountValue::NotInteger(value) => self.push(&number_text(*value)),
            CountValue::Parameter(name) => self.push(name),
        }
    }

    fn number(&mut self, number: Number) {
        match number {
            // Writing to a String cannot fail.
            Number::Int(value) => drop(write!(self.out, "{value}")),
            Number::Double(value) => self.push(&number_text(value)),
        }
    }

    fn source(&mut self, source: &Source) {
        match (&source.alias, source.iterate) {
            (Some(alias), true) => {
                self.push(&alias.text);
                self.push(" IN ");
                self.collection(&source.collection);
            }
            (alias, _) => {
                self.collection(&source.collection);
                if let Some(alias) = alias {
                    self.push(" AS ");
                    self.push(&alias.text);
                }
            }
        }
    }

    fn collection(&mut self, collection: &Collection) {
        match collection {
            Collection::Path { root, steps } => {
                self.push(&root.text);
                for step in steps {
                    match step {
                        Step::Name(name) => {
                            self.push(".");
                            self.push(&name.text);
                        }
                        Step::Quoted(name) => self.quoted_member(&name.text),
                        Step::Index(index) => {
                            self.push("[");
                            self.number(*index);
                            self.push("]");
                        }
                    }
                }
            }
            Collection::Subquery(query) => self.nested(query),
        }
    }

    fn quoted_member(&mut self, name: &str) {
        self.push("[");
        write_json_string(name, &mut self.out);
        self.push("]");
    }

    fn nested(&mut self, query: &Query) {
        self.push("(");
        self.indent += 1;
        self.new_line();
        self.query(query);
        self.indent -= 1;
        self.new_line();
        self.push(")");
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Literal(literal) => self.literal(literal),
            ExprKind::Identifier(name) | ExprKind::Parameter(name) | ExprKind::Placeholder(name) => {
                self.push(name);
            }
            ExprKind::Member { base, name, quoted } => {
                self.base(base);
                if *quoted {
                    self.quoted_member(&name.text);
                } else {
                    self.push(".");
                    self.push(&name.text);
                }
            }
            ExprKind::Index { base, index } => {
                self.base(base);
                self.push("[");
                self.expr(index);
                self.push("]");
            }
            ExprKind::Array(items) => {
                self.push("[");
                self.separated(items, Self::expr);
                self.push("]");
            }
            ExprKind::Object(members) => {
                self.push("{");
                self.separated(members, |printer, (key, value)| {
                    write_json_string(&key.text, &mut printer.out);
                    printer.push(": ");
                    printer.expr(value);
                });
                self.push("}");
            }
            ExprKind::Call(call) => {
                if call.udf {
                    self.push("udf.");
                }
                self.push(&call.name.text);
                self.push("(");
                self.separated(&call.arguments, Self::expr);
                self.push(")");
            }
            ExprKind::Subquery { kind, query } => self.subquery(*kind, query),
            ExprKind::Let { name, value, body } => {
                // The service indents subqueries inside LET once more, although LET begins no line.
                self.indent += 1;
                self.push("(LET ");
                self.push(&name.text);
                self.push(" = ");
                self.expr(value);
                self.push(" IN (");
                self.expr(body);
                self.push("))");
                self.indent -= 1;
            }
            _ => self.operation(expr),
        }
    }

    fn subquery(&mut self, kind: SubqueryKind, query: &Query) {
        match kind {
            SubqueryKind::Scalar => {}
            SubqueryKind::Exists => self.push("EXISTS"),
            SubqueryKind::First => self.push("FIRST"),
            SubqueryKind::Last => self.push("LAST"),
            SubqueryKind::Array => {
                self.push("ARRAY");
                // The service indents these by four blanks more than other subqueries.
                self.indent += 1;
                self.nested(query);
                self.indent -= 1;
                return;
            }
            SubqueryKind::All if !self.expands_all => self.push("ALL"),
            SubqueryKind::All => {
                // ALL fails only where its filter is false, and holds without one.
                let mut inverse = query.clone();
                let always = Expr::new(ExprKind::Literal(Literal::Bool(true)), query.span);
                let operand = Box::new(inverse.filter.take().unwrap_or(always));
                let not = ExprKind::Unary { operator: UnaryOperator::Not, operand };
                inverse.filter = Some(Expr::new(not, query.span));
                self.push("(NOT EXISTS");
                self.nested(&inverse);
                self.push(")");
                return;
            }
        }
        self.nested(query);
    }

    /// What a property is taken from. A number needs parentheses to keep its dot apart.
    fn base(&mut self, base: &Expr) {
        if let ExprKind::Literal(_) = base.kind {
            self.push("(");
            self.expr(base);
            self.push(")");
        } else {
            self.expr(base);
        }
    }

    fn operation(&mut self, expr: &Expr) {
        self.push("(");
        match &expr.kind {
            ExprKind::Unary { operator, operand } => {
                self.push(match operator {
                    UnaryOperator::Minus => "- ",
                    UnaryOperator::Plus => "+ ",
                    UnaryOperator::BitNot => "~ ",
                    UnaryOperator::Not => "NOT ",
                });
                self.expr(operand);
            }
            ExprKind::Binary { operator, left, right } => {
                self.expr(left);
                self.push(" ");
                self.push(operator.text());
                self.push(" ");
                self.expr(right);
            }
            ExprKind::Logical { operator, operands } => {
                let text = match operator {
                    LogicalOperator::And => " AND ",
                    LogicalOperator::Or => " OR ",
                };
                // Left-associative: one pair of parentheses per operator, all but one opened first.
                for _ in 2..operands.len() {
                    self.push("(");
                }
                for (index, operand) in operands.iter().enumerate() {
                    if index > 0 {
                        self.push(text);
                    }
                    self.expr(operand);
                    if index > 0 && index + 1 < operands.len() {
                        self.push(")");
                    }
                }
            }
            ExprKind::Conditional(parts) => {
                self.expr(&parts[0]);
                self.push(" ? ");
                self.expr(&parts[1]);
                self.push(" : ");
                self.expr(&parts[2]);
            }
            ExprKind::Between { not, operands } => {
                self.expr(&operands[0]);
                self.push(if *not { " NOT BETWEEN " } else { " BETWEEN " });
                self.expr(&operands[1]);
                self.push(" AND ");
                self.expr(&operands[2]);
            }
            ExprKind::In { not, operand, members } => {
                self.expr(operand);
                // Two blanks, as the service prints.
                self.push(if *not { " NOT  IN (" } else { " IN (" });
                self.separated(members, Self::expr);
                self.push(")");
            }
            ExprKind::Like { not, operands, escape } => {
                self.expr(&operands[0]);
                self.push(if *not { " NOT LIKE " } else { " LIKE " });
                self.expr(&operands[1]);
                if let Some(escape) = escape {
                    self.push(" ESCAPE ");
                    write_json_string(&escape.text, &mut self.out);
                }
            }
            _ => self.expr(expr),
        }
        self.push(")");
    }

    fn literal(&mut self, literal: &Literal) {
        match literal {
            Literal::Undefined => self.push("undefined"),
            Literal::Null => self.push("null"),
            Literal::Bool(true) => self.push("true"),
            Literal::Bool(false) => self.push("false"),
            Literal::Number(number) => self.number(*number),
            Literal::String(text) => write_json_string(text, &mut self.out),
        }
    }
}

/// A double as the service's planner writes it, which is not always the shortest text: whole numbers in 17
/// significant digits, others in 15 if they read back the same, else in 17.
pub(crate) fn number_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    if value.fract() != 0.0 {
        let short = significant_digits(value, 15);
        if short.parse() == Ok(value) {
            return short;
        }
    }
    significant_digits(value, 17)
}

/// As C prints with `%.{digits}g`.
fn significant_digits(value: f64, digits: usize) -> String {
    let precision = digits - 1;
    let scientific = format!("{value:.precision$e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let decimals = usize::try_from(i32::try_from(precision).unwrap_or(0) - exponent);
    match decimals {
        // The bounds at which `%g` changes its notation: below 1e-4, and above the number of digits.
        Ok(decimals) if exponent >= -4 => {
            let plain = format!("{value:.decimals$}");
            if plain.contains('.') { trimmed(&plain).to_owned() } else { plain }
        }
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs())
        }
    }
}

fn trimmed(decimal: &str) -> &str {
    if decimal.contains('.') { decimal.trim_end_matches('0').trim_end_matches('.') } else { decimal }
}
