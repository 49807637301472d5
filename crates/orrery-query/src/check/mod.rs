//! The binder: the semantic checks of a syntactically valid query.
//!
//! It checks a query in the service's order, because clients see the first error first: TOP with OFFSET, then FROM,
//! WHERE, GROUP BY, ORDER BY, the SELECT list, and the counts last. In a call the arguments come before the function
//! itself. All errors are collected, as in the service. `docs/design/0011-query-binder.md` has the rules; those that
//! need a container (index policies) are in [`indexes`].

mod expression;
mod grouping;
pub mod indexes;
pub(crate) mod order;
mod rank;

pub(crate) use rank::{is_fusion, split_weights};

use crate::aggregate::Aggregate;
use crate::ast::{
    Call, Collection, Count, CountValue, Expr, ExprKind, Query, SelectItem, Selection, Source, Span, Step,
    SubqueryKind,
};
use crate::error::{Code, QueryError};
use crate::parameters::Parameters;
use crate::{limits, parser};

/// Parses and checks a query text whose parameters are not known.
pub fn parse(text: &str) -> Result<Query, Vec<QueryError>> {
    let query = parser::parse(text).map_err(|error| vec![error])?;
    check(text, &query)?;
    Ok(query)
}

/// Checks a parsed query. `text` is what it was parsed from.
pub fn check(text: &str, query: &Query) -> Result<(), Vec<QueryError>> {
    run(text, query, None)
}

/// Parses a query text and checks it together with the values of its parameters.
pub fn parse_with(text: &str, parameters: &Parameters) -> Result<Query, Vec<QueryError>> {
    let query = parser::parse(text).map_err(|error| vec![error])?;
    run(text, &query, Some(parameters))?;
    Ok(query)
}

fn run(text: &str, query: &Query, parameters: Option<&Parameters>) -> Result<(), Vec<QueryError>> {
    if let Some(order_by) = query.order_by.as_ref().filter(|order_by| order_by.rank)
        && let [first, _, ..] = &order_by.items[..]
    {
        // The service's parser reports this.
        let rest = text.get(first.span.end as usize..).unwrap_or("");
        let start = first.span.end + u32::try_from(rest.find(',').unwrap_or(0)).unwrap_or(0);
        let place = Some(parser::location(text, Span { start, end: start + 1 }));
        let message = "Syntax error, incorrect syntax near ','.";
        return Err(vec![QueryError::new(Code::Sc(1001), place, message)]);
    }
    if let (Selection::Star(span), None) = (&query.select.selection, &query.from) {
        let message = "Syntax error, 'SELECT *' is not valid if FROM clause is omitted.";
        let place = Some(parser::location(text, *span));
        return Err(vec![QueryError::new(Code::Sc(1021), place, message)]);
    }
    let mut binder = Binder {
        text,
        parameters,
        errors: Vec::new(),
        names: Vec::new(),
        levels: Vec::new(),
        root_is_taken: false,
        joins: 0,
        udf_calls: 0,
        search_terms: 0,
        fused_scores: 0,
    };
    binder.query(query, Place::Top);
    binder.limits(query.span);
    // Whether the order can be served is asked only of a query without other errors.
    if binder.errors.is_empty() {
        order::check(query, parameters, &mut binder.errors);
    }
    if binder.errors.is_empty() { Ok(()) } else { Err(binder.errors) }
}

/// The position of a query within another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    /// The first source of a query that may read the container.
    FirstSource,
    /// Anywhere else.
    Nested,
}

/// The clause that is being bound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clause {
    From,
    Where,
    GroupBy,
    OrderBy,
    Rank,
    Select,
}

/// A query that is being bound; subqueries are pushed on top of their enclosing query.
struct Level {
    clause: Clause,
    place: Place,
    is_ranked: bool,
    /// Whether ORDER BY sorts rows before they are aggregated.
    sorts_input: bool,
    /// Whether there may be several rows. Over one row aggregates are functions like others, and may stand anywhere.
    many: bool,
    /// Arrays that subqueries in expressions iterate.
    iterated_within: usize,
    inputs: Inputs,
    /// Arrays that sources iterate, subqueries included.
    iterated: usize,
}

/// Counts the sources that `SELECT *` could stand for.
#[derive(Default)]
struct Inputs {
    count: usize,
    /// Whether a source repeats the name bound just before it. After it, the service does not count arrays.
    repeats: bool,
    /// The name bound last, by its place among the names in scope.
    last: Option<usize>,
}

impl Inputs {
    fn repeat(&mut self, name: usize) {
        self.repeats = self.last == Some(name);
        self.count += usize::from(!self.repeats);
        self.last = Some(name);
    }

    fn add(&mut self, iterates: bool, name: usize) {
        self.count += 1;
        self.repeats &= iterates;
        self.last = Some(name);
    }

    fn is_single(&self) -> bool {
        self.repeats || self.count <= 1
    }
}

/// What a query gives to its enclosing one.
struct Rows {
    /// Whether there may be several.
    many: bool,
    /// The arrays that are iterated for them.
    iterated: usize,
    /// The sources that count in the enclosing query too.
    inputs: usize,
}

struct Binder<'q> {
    text: &'q str,
    /// If known: counts are checked with their values.
    parameters: Option<&'q Parameters>,
    errors: Vec<QueryError>,
    /// The names in scope: inputs of queries and variables of LET.
    names: Vec<&'q str>,
    levels: Vec<Level>,
    /// Whether a FROM clause has named the container already: it can be read only once.
    root_is_taken: bool,
    joins: usize,
    udf_calls: usize,
    /// The largest number of search terms of one full-text score, and of arguments of a score fusion.
    search_terms: usize,
    fused_scores: usize,
}

impl<'q> Binder<'q> {
    fn report(&mut self, code: u16, span: Span, message: impl Into<String>) {
        // Locating an error takes time, and a long text may have thousands.
        if self.errors.len() >= limits::ERRORS_MAX {
            return;
        }
        let location = Some(parser::location(self.text, span));
        self.errors.push(QueryError::new(Code::Sc(code), location, message));
    }

    fn limits(&mut self, whole: Span) {
        for (count, limit, code, what) in [
            (self.joins, limits::JOINS_MAX, 3002, "joins"),
            (self.udf_calls, limits::UDF_CALLS_MAX, 3005, "user-defined function calls"),
            (
                self.search_terms,
                limits::SEARCH_TERMS_MAX,
                3032,
                "search terms supplied to 'FullTextScore' function call",
            ),
            (
                self.fused_scores,
                limits::FUSED_SCORES_MAX,
                3033,
                "arguments supplied to a score fusion function",
            ),
        ] {
            if count > limit {
                let message = format!(
                    "The SQL query exceeded the maximum number of {what}. The allowed limit is {limit}."
                );
                self.report(code, whole, message);
            }
        }
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("a query pushes its level before anything else")
    }

    fn query(&mut self, query: &'q Query, place: Place) -> Rows {
        if let (Some(_), Some(_)) = (&query.select.top, &query.offset_limit) {
            let message = "A TOP cannot be used in the same query or subquery as an OFFSET.";
            self.report(2205, query.span, message);
        }
        // The errors of this query and its subqueries begin here.
        let faults_before = self.errors.len();
        self.levels.push(Level {
            clause: Clause::From,
            place,
            is_ranked: is_ranked(query),
            sorts_input: false,
            // Where no source tells otherwise, all documents are read.
            many: place != Place::Nested,
            iterated_within: 0,
            // It may also be a name of an enclosing query.
            inputs: Inputs { last: self.names.len().checked_sub(1), ..Inputs::default() },
            iterated: 0,
        });
        let names_before = self.names.len();
        if is_ranked(query) {
            self.ranked_sources(query);
        }
        for (index, source) in query.from.iter().flat_map(|from| &from.sources).enumerate() {
            self.joins += usize::from(index > 0);
            if self.joins > 10 * limits::JOINS_MAX {
                // Rejected in any case.
                break;
            }
            self.source(source, index == 0 && place != Place::Nested);
        }
        // Clients send the service's own texts back, which name the document by its name in FROM.
        if let Some(root) = rewritten_root(query).filter(|root| !self.knows(root)) {
            self.names.push(root);
        }
        if let Some(filter) = &query.filter {
            self.level().clause = Clause::Where;
            self.expr(filter);
        }
        self.group_by(query);
        self.order_by(query, place);
        self.level().clause = Clause::Select;
        if is_ranked(query) && query.select.distinct {
            let message = "The DISTINCT keyword is not allowed with the ORDER BY RANK clause.";
            self.report(2220, query.select.span, message);
        }
        let faults_of_clauses = self.errors.len();
        self.selection(query);
        // What is not grouped is found before what has too many rows.
        let late = |error: &QueryError| error.code == Code::Sc(2201);
        let is_late = self.errors[faults_before..].iter().all(late) && !query.group_by.is_empty();
        if self.errors.len() == faults_before || (is_late && faults_of_clauses == faults_before) {
            let late = self.errors.split_off(faults_before);
            self.grouped(query);
            self.errors.extend(late);
        }
        self.counts(query, place);
        let level = self.levels.pop().expect("pushed above");
        // The service folds a FROM subquery over one row into its enclosing query, names included.
        let is_folded = !level.many && place == Place::FirstSource;
        // Otherwise its names end with it.
        if !is_folded {
            self.names.truncate(names_before);
        }
        // Aggregated without GROUP BY, it gives one row.
        let one_group = is_grouped(query) && query.group_by.is_empty();
        let inputs = if is_folded { level.inputs.count } else { 0 };
        Rows { many: level.many && !one_group, iterated: level.iterated, inputs }
    }

    fn source(&mut self, source: &'q Source, may_be_root: bool) {
        let mut iterates = source.iterate;
        match &source.collection {
            Collection::Path { root, steps } => {
                if let Some(name) = self.place_of(&root.text) {
                    let renamed = source.alias.as_ref().is_some_and(|alias| alias.text != root.text);
                    if steps.is_empty() && !renamed && !source.iterate {
                        // A row under its own name.
                        self.level().inputs.repeat(name);
                        return;
                    }
                } else if may_be_root && !self.root_is_taken {
                    self.root_is_taken = true;
                } else {
                    self.report(2001, root.span, unresolved(&root.text));
                }
            }
            Collection::Subquery(query) => {
                let rows = self.query(query, if may_be_root { Place::FirstSource } else { Place::Nested });
                let level = self.level();
                // The first source replaces the assumption that all documents are read.
                level.many = rows.many || (level.many && !may_be_root);
                level.iterated += rows.iterated;
                level.inputs.count += rows.inputs;
                iterates |= rows.many;
                if let Some((alias, _)) = alias_at(source).filter(|_| !source.iterate)
                    && let Some(name) = self.place_of(alias)
                {
                    // A first source that only passes on the row of this name.
                    if may_be_root && selects(query, alias) {
                        self.level().inputs.repeat(name);
                        return;
                    }
                    // The rows of arrays may take over a name; one row may only keep its own.
                    if rows.iterated > 0 {
                        self.level().inputs.add(iterates, name);
                        self.names.push(alias);
                        return;
                    }
                    if stands_for(query, alias) {
                        self.level().inputs.repeat(name);
                        return;
                    }
                }
            }
        }
        let name = self.names.len();
        let level = self.level();
        level.many |= source.iterate;
        level.inputs.add(iterates, name);
        level.iterated += usize::from(source.iterate);
        if let Some((alias, span)) = alias_at(source) {
            self.declare(alias, span);
        }
    }

    fn declare(&mut self, name: &'q str, span: Span) {
        if self.knows(name) {
            let message = format!(
                "The input set name or alias '{name}' is specified more than once in the FROM clause."
            );
            self.report(2021, span, message);
        }
        self.names.push(name);
    }

    fn knows(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    fn place_of(&self, name: &str) -> Option<usize> {
        self.names.iter().rposition(|known| *known == name)
    }

    fn selection(&mut self, query: &'q Query) {
        match &query.select.selection {
            Selection::Star(span) => {
                let sources = query.from.as_ref().map_or(&[][..], |from| &from.sources);
                let single = match sources {
                    // The service rejects it even as the only source.
                    [source] if source.iterate && matches!(source.collection, Collection::Subquery(_)) => {
                        false
                    }
                    _ => self.level().inputs.is_single(),
                };
                if !query.group_by.is_empty() && self.level().many {
                    self.report(2041, *span, "'SELECT *' is not allowed with GROUP BY.");
                } else if is_grouped(query) && self.level().many {
                    self.report(2040, *span, "'SELECT *' is not allowed with aggregate functions.");
                } else if !single {
                    self.report(2042, *span, "'SELECT *' is only valid with a single input set.");
                }
            }
            Selection::Value(expr) => self.expr(expr),
            Selection::List(items) => self.columns(items),
        }
    }

    fn counts(&mut self, query: &Query, place: Place) {
        let nested = place != Place::Top;
        if let Some(top) = &query.select.top {
            if nested {
                self.report(2203, query.select.top_span, "'TOP' is not supported in subqueries.");
            }
            self.count(top, 2060, "The count value provided for a TOP clause must be an integer.");
        }
        if let Some(window) = &query.offset_limit {
            if nested {
                self.report(2204, window.span, "'OFFSET LIMIT' clause is not supported in subqueries.");
            }
            let message = "The OFFSET count value exceeds the maximum allowed value.";
            self.count(&window.offset, 2062, message);
            self.count(&window.limit, 2061, "The LIMIT count value exceeds the maximum allowed value.");
        }
    }

    fn count(&mut self, count: &Count, code: u16, message: &str) {
        let valid = match (&count.value, self.parameters) {
            // An unknown parameter is assumed to be an integer.
            (CountValue::Parameter(_), None) => true,
            (_, parameters) => crate::parameters::resolve_count(count, parameters.unwrap_or(&[])).is_some(),
        };
        if !valid {
            self.report(code, count.span, message);
        }
    }
}

fn is_ranked(query: &Query) -> bool {
    query.order_by.as_ref().is_some_and(|order_by| order_by.rank)
}

fn unresolved(name: &str) -> String {
    format!("Identifier '{name}' could not be resolved.")
}

/// The aggregate of a call, if it is one.
pub(crate) fn aggregate_of(call: &Call) -> Option<Aggregate> {
    if call.udf { None } else { Aggregate::find(&call.name.text) }
}

/// Whether the expression is a call of the built-in `name`, given in capitals.
pub(crate) fn is_call_to(expr: &Expr, name: &str) -> bool {
    matches!(&expr.kind, ExprKind::Call(call) if !call.udf && call.name.text.eq_ignore_ascii_case(name))
}

/// Whether this expression contains an aggregate, outside subqueries.
pub(crate) fn has_aggregate(expr: &Expr) -> bool {
    let own = matches!(&expr.kind, ExprKind::Call(call) if aggregate_of(call).is_some());
    own || expr.children().into_iter().any(has_aggregate)
}

/// Whether the SELECT list contains an aggregate.
pub(crate) fn selects_aggregate(query: &Query) -> bool {
    match &query.select.selection {
        Selection::Star(_) => false,
        Selection::Value(expr) => has_aggregate(expr),
        Selection::List(items) => items.iter().any(|item| has_aggregate(&item.expr)),
    }
}

/// Whether rows are grouped: by GROUP BY, or all together by an aggregate.
pub(crate) fn is_grouped(query: &Query) -> bool {
    let sorts_by_aggregate =
        || query.order_by.iter().flat_map(|order_by| &order_by.items).any(|item| has_aggregate(&item.expr));
    !query.group_by.is_empty() || selects_aggregate(query) || sorts_by_aggregate()
}

/// Whether this is the rewritten form of GROUP BY with ORDER BY: `SELECT c._rid, … AS orderByItems, … AS payload`.
pub(crate) fn is_ordered_group(query: &Query) -> bool {
    let Selection::List(items) = &query.select.selection else {
        return false;
    };
    let [rid, order, payload] = &items[..] else {
        return false;
    };
    let is_rid = match &rid.expr.kind {
        ExprKind::Member { base, name, .. } => {
            &*name.text == "_rid" && matches!(base.kind, ExprKind::Identifier(_))
        }
        _ => false,
    };
    let named = |item: &SelectItem, name: &str| item.alias.as_ref().is_some_and(|alias| &*alias.text == name);
    is_rid && is_grouped(query) && named(order, "orderByItems") && named(payload, "payload")
}

/// The document's name in the rewritten form of ORDER BY over an array: `SELECT c._rid, … AS orderByItems, … AS payload
/// FROM t IN c.tags`.
pub(crate) fn rewritten_root(query: &Query) -> Option<&str> {
    let source = query.from.as_ref()?.sources.first()?;
    let Collection::Path { root, .. } = &source.collection else {
        return None;
    };
    let Selection::List(items) = &query.select.selection else {
        return None;
    };
    let is_rid = match items.first().map(|item| &item.expr.kind) {
        Some(ExprKind::Member { base, name, .. }) => {
            &*name.text == "_rid" && matches!(&base.kind, ExprKind::Identifier(name) if *name == root.text)
        }
        _ => false,
    };
    let named = |item: &SelectItem, name: &str| item.alias.as_ref().is_some_and(|alias| &*alias.text == name);
    let is_rewritten = matches!(&items[..], [_, order, ..] if named(order, "orderByItems"));
    // If FROM binds this name, the text can be bound as it is.
    (is_rid && is_rewritten && source_alias(source) != Some(&root.text)).then_some(&root.text)
}

/// The name at the root of a property path such as `c.a["b"][0]`.
pub(crate) fn path_root(expr: &Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Identifier(name) => Some(name),
        ExprKind::Member { base, .. } | ExprKind::Index { base, .. } => path_root(base),
        _ => None,
    }
}

/// The name a source binds: written, or the last name of its path.
pub(crate) fn source_alias(source: &Source) -> Option<&str> {
    alias_at(source).map(|(alias, _)| alias)
}

/// Whether a query without inputs of its own gives nothing but the row of this name.
fn stands_for(query: &Query, name: &str) -> bool {
    let sources = query.from.as_ref().map_or(&[][..], |from| &from.sources);
    let own = sources.iter().all(|source| match &source.collection {
        Collection::Path { root, steps } => {
            steps.is_empty()
                && !source.iterate
                && source.alias.as_ref().is_none_or(|alias| alias.text == root.text)
        }
        Collection::Subquery(inner) => source_alias(source).is_some_and(|alias| stands_for(inner, alias)),
    });
    own && selects(query, name)
}

/// Whether a query selects the row of this name from its sources, without leaving any out.
fn selects(query: &Query, name: &str) -> bool {
    if query.filter.is_some() || !query.group_by.is_empty() {
        return false;
    }
    let sources = query.from.as_ref().map_or(&[][..], |from| &from.sources);
    match &query.select.selection {
        Selection::Star(_) => sources.first().and_then(source_alias) == Some(name),
        Selection::Value(value) => match &value.kind {
            ExprKind::Identifier(known) => **known == *name,
            ExprKind::Subquery { kind: SubqueryKind::Scalar, query } => stands_for(query, name),
            _ => false,
        },
        Selection::List(_) => false,
    }
}

fn alias_at(source: &Source) -> Option<(&str, Span)> {
    if let Some(alias) = &source.alias {
        return Some((&alias.text, alias.span));
    }
    match &source.collection {
        Collection::Path { root, steps } => match steps.last() {
            None => Some((&root.text, root.span)),
            Some(Step::Name(name) | Step::Quoted(name)) => Some((&name.text, name.span)),
            Some(Step::Index(_)) => None,
        },
        Collection::Subquery(_) => None,
    }
}
