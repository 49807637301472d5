//! What an ORDER BY sorts by: paths of the document, a vector distance, or the one row of an aggregate.
//!
//! The service sorts by index, so an expression must resolve to a path through FROM subqueries: in `FROM (SELECT c.a AS
//! q FROM c) s ORDER BY s.q` the order is that of `c.a`.

use crate::aggregate::Aggregate;
use crate::ast::{
    BinaryOperator, Collection, Expr, ExprKind, From, Literal, Name, Query, SelectItem, Selection, Source,
    Step, UnaryOperator, column_names,
};
use crate::check::{aggregate_of, has_aggregate, is_call_to, is_grouped, path_root, source_alias};
use crate::error::{Code, QueryError};
use crate::parameters::Parameters;
use orrery_model::{Number, Object, Value};

/// How a query is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderKind {
    /// Not at all, or by a rank.
    None,
    /// By paths of the document.
    Paths,
    /// By the distance between a path and a vector.
    Vector,
    /// By a full-text score.
    Score,
    /// By a distance on the globe.
    Distance,
    /// There is at most one row, so any expression is allowed.
    OneRow,
    Unsupported,
}

pub(super) fn check(query: &Query, parameters: Option<&Parameters>, errors: &mut Vec<QueryError>) {
    if kind(query, parameters) == OrderKind::Unsupported {
        errors.push(QueryError::new(
            Code::Number(2206),
            None,
            "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path.",
        ));
    }
}

/// How an outermost query is ordered. Unknown parameters are assumed to be valid.
pub(crate) fn kind(query: &Query, parameters: Option<&Parameters>) -> OrderKind {
    let (Some(order_by), Some(from)) = (&query.order_by, &query.from) else {
        return OrderKind::None;
    };
    if order_by.rank {
        return OrderKind::None;
    }
    let scope = Scope::of(from, parameters);
    let is_path = |expr: &Expr| matches!(scope.form(expr), Form::Path);
    // The usual case: an index sorts by paths.
    if order_by.items.iter().all(|item| is_path(&item.expr)) {
        return OrderKind::Paths;
    }
    // A distance or a score is served only as the only key.
    if let [item] = &order_by.items[..]
        && let ExprKind::Call(call) = &item.expr.kind
        && !call.udf
    {
        let named = |name: &str| call.name.text.eq_ignore_ascii_case(name);
        let vector = named("VECTORDISTANCE") || named("_VECTORSCORE");
        if named("ST_DISTANCE") && !is_grouped(query) {
            return OrderKind::Distance;
        }
        let served = match &call.arguments[..] {
            // The vector may come first or second.
            [a, b, ..] if vector => {
                (is_path(a) && is_vector(b, parameters)) || (is_vector(a, parameters) && is_path(b))
            }
            [text, terms, documents, words, hits] => {
                named("_FULLTEXTSCORE")
                    && is_path(text)
                    && [documents, words].into_iter().all(|count| is_count(count, parameters))
                    && is_terms_and_hits(terms, hits, parameters)
            }
            _ => false,
        };
        if served {
            return if vector { OrderKind::Vector } else { OrderKind::Score };
        }
    }
    // Without rows there is nothing to sort.
    if scope.is_empty {
        return OrderKind::OneRow;
    }
    // Any order is served of a row that certainly exists: one count or list, which nothing filters.
    if reads_one_row(query) && (is_filtered(query) || !counts_rows(from)) {
        return OrderKind::Unsupported;
    }
    if gives_one_row(query) {
        let one_row_source = |source: &Source| match &source.collection {
            Collection::Subquery(inner) => inner.from.is_some() && gives_one_row(inner),
            Collection::Path { .. } => false,
        };
        let missing = order_by.items.iter().any(|item| matches!(scope.form(&item.expr), Form::Nothing));
        let counted = order_by.items.iter().any(|item| !has_aggregate(&item.expr));
        if (missing || counted) && is_filtered(query) && from.sources.iter().any(one_row_source) {
            return OrderKind::Unsupported;
        }
        let scalar = order_by.items.iter().any(|item| matches!(scope.form(&item.expr), Form::Scalar));
        // Properties of the input can sort it before the aggregation. Anything else sorts the one row that
        // results.
        let before = is_grouped(query) && sorts_input(query) && !missing && !scalar;
        return if before { OrderKind::Paths } else { OrderKind::OneRow };
    }
    OrderKind::Unsupported
}

/// Whether a query is ordered only by properties of its input, so that rows can be sorted before they are aggregated.
pub(super) fn sorts_input(query: &Query) -> bool {
    let (Some(order_by), Some(_)) = (&query.order_by, &query.from) else {
        return false;
    };
    order_by.items.iter().all(|item| path_root(&item.expr).is_some())
}

/// Whether a filter has any effect.
fn is_filtered(query: &Query) -> bool {
    let holds = |filter: &Expr| Scope::default().truth(filter) == Some(true);
    query.filter.as_ref().is_some_and(|filter| !holds(filter))
}

/// Whether an expression is a property that no row has.
pub(super) fn is_missing(query: &Query, expr: &Expr) -> bool {
    query.from.as_ref().is_some_and(|from| matches!(Scope::of(from, None).form(expr), Form::Nothing))
}

fn is_vector(expr: &Expr, parameters: Option<&Parameters>) -> bool {
    match &expr.kind {
        ExprKind::Array(items) => items.iter().all(|item| match &item.kind {
            ExprKind::Literal(literal) => matches!(literal, Literal::Number(_)),
            ExprKind::Array(_) | ExprKind::Object(_) => false,
            _ => is_constant(item),
        }),
        ExprKind::Parameter(name) => parameters.is_none_or(|parameters| {
            match parameters.iter().find(|(known, _)| known.as_str() == &**name) {
                Some((_, Value::Array(items))) => items.iter().all(|item| item.as_number().is_some()),
                _ => false,
            }
        }),
        _ => false,
    }
}

/// The value of a literal or a parameter.
fn given(expr: &Expr, parameters: Option<&Parameters>) -> Option<Value> {
    let scope = Scope { parameters, ..Scope::default() };
    match &expr.kind {
        ExprKind::Literal(_) | ExprKind::Parameter(_) => scope.constant(expr).flatten(),
        ExprKind::Array(items) => {
            items.iter().map(|item| given(item, parameters)).collect::<Option<Vec<_>>>().map(Value::Array)
        }
        ExprKind::Object(members) => {
            let member =
                |(name, value): &(Name, Expr)| Some((name.text.as_ref().into(), given(value, parameters)?));
            let members = members.iter().map(member).collect::<Option<Vec<_>>>()?;
            Some(Object::from_members(members).into())
        }
        _ => None,
    }
}

/// A number of documents or words.
fn is_count(expr: &Expr, parameters: Option<&Parameters>) -> bool {
    match given(expr, parameters) {
        Some(Value::Number(Number::Int(count))) => u32::try_from(count).is_ok(),
        Some(_) => false,
        // A constant that is not evaluated here is assumed to fit.
        None => is_constant(expr),
    }
}

/// Terms, and for each how many documents have it.
fn is_terms_and_hits(terms: &Expr, hits: &Expr, parameters: Option<&Parameters>) -> bool {
    let is_term = |term: &Value| {
        let fuzzy = |distance: &Value| distance.as_i64().is_some_and(|distance| (0..=2).contains(&distance));
        term.as_str().is_some()
            || term.get("term").is_some_and(|text| text.as_str().is_some())
                && term.get("distance").is_some_and(fuzzy)
    };
    match (given(terms, parameters), given(hits, parameters)) {
        (Some(Value::Array(terms)), Some(Value::Array(hits))) => {
            !terms.is_empty()
                && terms.len() == hits.len()
                && terms.iter().all(is_term)
                && hits.iter().all(|hits| hits.as_number().is_some())
        }
        // Parameters that are not known are taken to fit.
        _ => parameters.is_none() && is_constant(terms) && is_constant(hits),
    }
}

fn is_constant(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Identifier(_) | ExprKind::Subquery { .. } => false,
        ExprKind::Call(call) if call.udf => false,
        _ => expr.children().into_iter().all(is_constant),
    }
}

/// Whether all rows are aggregated into one, here or in the only source.
fn gives_one_row(query: &Query) -> bool {
    is_grouped(query) && query.group_by.is_empty() || reads_one_row(query)
}

/// Whether the first source has one row, and no other multiplies it.
fn reads_one_row(query: &Query) -> bool {
    let sources = query.from.as_ref().map_or(&[][..], |from| &from.sources);
    let Some((first, rest)) = sources.split_first() else {
        return false;
    };
    let one_row = match &first.collection {
        Collection::Subquery(inner) => !first.iterate && inner.from.is_some() && gives_one_row(inner),
        Collection::Path { .. } => false,
    };
    one_row
        && rest.iter().all(|source| match &source.collection {
            Collection::Subquery(inner) => !source.iterate && (inner.from.is_none() || gives_one_row(inner)),
            Collection::Path { .. } => !source.iterate,
        })
}

/// Whether the only source is one count, or one list, of all documents: the one row that is never missing, so that any
/// order is served.
fn counts_rows(from: &From) -> bool {
    let [Source { collection: Collection::Subquery(inner), .. }] = &from.sources[..] else {
        return false;
    };
    match &inner.select.selection {
        Selection::Value(Expr { kind: ExprKind::Call(call), .. }) => {
            matches!(
                aggregate_of(call),
                Some(Aggregate::Count | Aggregate::CountIf | Aggregate::MakeList | Aggregate::MakeSet)
            ) && !reads_one_row(inner)
        }
        _ => false,
    }
}

/// What is known of an expression's shape.
#[derive(Clone)]
enum Form {
    /// A path of the document, or an element of an array in it.
    Path,
    Object(Vec<(String, Form)>),
    Array(Vec<Form>),
    Scalar,
    /// A missing property.
    Missing,
    /// A property of a value that has none.
    Nothing,
    Other,
}

impl Form {
    fn member(self, name: &str) -> Form {
        match self {
            Form::Path => Form::Path,
            Form::Object(members) => {
                let found = members.into_iter().find(|(known, _)| known == name);
                found.map_or(Form::Missing, |(_, form)| form)
            }
            Form::Other => Form::Other,
            Form::Scalar | Form::Nothing => Form::Nothing,
            _ => Form::Missing,
        }
    }

    fn element(self, number: Number) -> Form {
        match self {
            Form::Path => Form::Path,
            Form::Array(mut items) => {
                let place = usize::try_from(number.as_i64().unwrap_or(-1)).unwrap_or(usize::MAX);
                if place < items.len() { items.swap_remove(place) } else { Form::Missing }
            }
            Form::Other => Form::Other,
            Form::Scalar | Form::Nothing => Form::Nothing,
            _ => Form::Missing,
        }
    }
}

#[derive(Default)]
struct Scope<'q> {
    names: Vec<(&'q str, Form)>,
    root: Option<&'q str>,
    parameters: Option<&'q Parameters>,
    /// Whether a source is a property of a value that has none, so that there are no rows.
    is_empty: bool,
}

impl<'q> Scope<'q> {
    fn of(from: &'q From, parameters: Option<&'q Parameters>) -> Self {
        let mut scope = Self { parameters, ..Self::default() };
        from.sources.iter().for_each(|source| scope.bind(source));
        scope
    }

    fn bind(&mut self, source: &'q Source) {
        let mut form = match &source.collection {
            Collection::Path { root, steps } => {
                // A name that nothing has bound is that of the container.
                let mut form = self.named(&root.text).unwrap_or(Form::Path);
                for step in steps {
                    form = match step {
                        Step::Name(name) | Step::Quoted(name) => form.member(&name.text),
                        Step::Index(number) => form.element(*number),
                    };
                }
                form
            }
            Collection::Subquery(query) => self.projection(query),
        };
        self.is_empty |= matches!(form, Form::Nothing);
        // Which element of a known array it is cannot be said.
        if source.iterate && !matches!(form, Form::Path) {
            form = Form::Other;
        }
        if let Some(alias) = source_alias(source) {
            let whole = matches!(&source.collection, Collection::Path { steps, .. } if steps.is_empty());
            if self.names.is_empty() && whole && !source.iterate {
                self.root = Some(alias);
            }
            self.names.push((alias, form));
        }
    }

    /// Whether the expression is the document itself, which is never undefined.
    fn is_root(&self, expr: &Expr) -> bool {
        matches!(&expr.kind, ExprKind::Identifier(name) if self.root == Some(&**name))
    }

    fn named(&self, name: &str) -> Option<Form> {
        self.names.iter().rev().find(|(known, _)| *known == name).map(|(_, form)| form.clone())
    }

    /// The form of a subquery's rows.
    fn projection(&mut self, query: &'q Query) -> Form {
        let before = self.names.len();
        for source in query.from.iter().flat_map(|from| &from.sources) {
            self.bind(source);
        }
        let form = match &query.select.selection {
            Selection::Star(_) => self.names.last().map_or(Form::Other, |(_, form)| form.clone()),
            Selection::Value(expr) => self.form(expr),
            Selection::List(items) => self.columns(items),
        };
        // The names of the subquery end with it.
        self.names.truncate(before);
        form
    }

    fn columns(&self, items: &[SelectItem]) -> Form {
        let names = column_names(items);
        Form::Object(names.into_iter().zip(items).map(|(name, item)| (name, self.form(&item.expr))).collect())
    }

    /// The form of a conditional with a constant condition.
    fn choice(&self, parts: &[Expr]) -> Form {
        match self.truth(&parts[0]) {
            Some(true) => self.form(&parts[1]),
            Some(false) => self.form(&parts[2]),
            None => Form::Other,
        }
    }

    /// Whether a condition holds for every document, or for none; `None` if it depends.
    fn truth(&self, expr: &Expr) -> Option<bool> {
        use BinaryOperator as B;
        match &expr.kind {
            ExprKind::Literal(literal) => Some(*literal == Literal::Bool(true)),
            ExprKind::Unary { operator, operand } => match operator {
                // What is not true may be undefined, and so is its negation: only a literal is certain.
                UnaryOperator::Not => match (&operand.kind, self.truth(operand)) {
                    (ExprKind::Literal(Literal::Bool(flag)), _) => Some(!flag),
                    _ => None,
                },
                // Signs and `~` give numbers.
                _ => Some(false),
            },
            ExprKind::Binary { operator, left, right } if operator.is_comparison() => {
                if let (Some(a), Some(b)) = (self.constant(left), self.constant(right)) {
                    let holds = a.zip(b).and_then(|(a, b)| crate::operator::binary(*operator, &a, &b));
                    return Some(holds == Some(Value::Bool(true)));
                }
                let equality = matches!(operator, B::Equal | B::NotEqual);
                // Undefined for every document: a comparison with undefined, or an ordering of arrays or
                // objects.
                let incomparable = [left, right].into_iter().any(|side| match self.constant(side) {
                    Some(None) => true,
                    Some(Some(Value::Array(_) | Value::Object(_))) => !equality,
                    _ => false,
                });
                incomparable.then_some(false)
            }
            ExprKind::Binary { operator: B::Coalesce, .. } => None,
            // None of these gives a Boolean.
            ExprKind::Array(_) | ExprKind::Object(_) | ExprKind::Binary { .. } => Some(false),
            ExprKind::Call(call) if is_call_to(expr, "IS_DEFINED") => {
                let [argument] = &call.arguments[..] else { return None };
                self.is_root(argument).then_some(true)
            }
            _ => None,
        }
    }

    /// The value of a constant, where undefined is one too; `None` if the expression is not a simple one.
    #[expect(clippy::option_option, reason = "not constant, constantly undefined, or a value")]
    fn constant(&self, expr: &Expr) -> Option<Option<Value>> {
        match &expr.kind {
            ExprKind::Literal(literal) => Some(literal.value()),
            ExprKind::Array(items) if items.iter().all(is_constant) => Some(Some(Value::Array(Vec::new()))),
            ExprKind::Object(members) if members.iter().all(|(_, value)| is_constant(value)) => {
                Some(Some(orrery_model::Object::new().into()))
            }
            ExprKind::Parameter(name) => {
                let known = self.parameters?.iter().find(|(known, _)| known.as_str() == &**name);
                Some(known.map(|(_, value)| value.clone()))
            }
            _ => None,
        }
    }

    fn form(&self, expr: &Expr) -> Form {
        match &expr.kind {
            ExprKind::Identifier(name) => self.named(name).unwrap_or(Form::Other),
            ExprKind::Member { base, name, .. } => self.form(base).member(&name.text),
            ExprKind::Index { base, index } => match (&index.kind, self.form(base)) {
                (ExprKind::Literal(Literal::Number(number)), base) => base.element(*number),
                // The binder has checked that it is a number or a string.
                (ExprKind::Parameter(_), Form::Path) => Form::Path,
                _ => Form::Other,
            },
            ExprKind::Object(members) => Form::Object(
                members.iter().map(|(name, value)| (name.text.to_string(), self.form(value))).collect(),
            ),
            // What a name of FROM stands for is defined.
            ExprKind::Binary { operator: BinaryOperator::Coalesce, left, .. }
                if matches!(left.kind, ExprKind::Identifier(_)) =>
            {
                self.form(left)
            }
            ExprKind::Binary { operator: BinaryOperator::Coalesce, left, right }
                if matches!(left.kind, ExprKind::Literal(Literal::Undefined)) =>
            {
                self.form(right)
            }
            ExprKind::Conditional(parts) => self.choice(&parts[..]),
            ExprKind::Call(call) if is_call_to(expr, "IIF") && call.arguments.len() == 3 => {
                self.choice(&call.arguments)
            }
            // Counts and the like have no properties.
            ExprKind::Call(call) if aggregate_of(call).is_some() => Form::Scalar,
            ExprKind::Array(items) => Form::Array(items.iter().map(|item| self.form(item)).collect()),
            ExprKind::Subquery { kind: crate::ast::SubqueryKind::Scalar, query } if !has_clauses(query) => {
                match &query.select.selection {
                    Selection::Value(value) if !has_aggregate(value) => self.form(value),
                    Selection::List(items) if !items.iter().any(|item| has_aggregate(&item.expr)) => {
                        self.columns(items)
                    }
                    _ => Form::Other,
                }
            }
            _ => Form::Other,
        }
    }
}

/// Whether a subquery has more than a SELECT clause.
fn has_clauses(query: &Query) -> bool {
    query.from.is_some() || query.filter.is_some() || !query.group_by.is_empty()
}
