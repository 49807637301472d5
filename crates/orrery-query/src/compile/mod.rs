//! Tree to [`Program`]: resolves names, parameters, functions and computed properties.
//!
//! The tree must have passed [`crate::check`]; remaining errors depend on parameter values, or are re-checked
//! defensively.

mod expression;
mod ranking;

use std::collections::HashMap;

use orrery_model::Value;

use crate::ast::{self, Collection, Count, Direction, Query, Selection};
use crate::check::{self, is_call_to};
pub use crate::computed::ComputedProperty;
use crate::context::Policies;
use crate::error::{Code, QueryError};
pub use crate::parameters::Parameters;
pub(crate) use crate::parameters::resolve_count;
use crate::printer;
use crate::program::{
    Block, DOCUMENT, Grouping, Node, OrderKey, Program, Projection, Source, SourceRows, Step,
};

/// What a query text is compiled against.
#[derive(Clone, Copy)]
pub struct Settings<'s> {
    pub parameters: &'s Parameters,
    pub computed: &'s [ComputedProperty],
    pub policies: &'s Policies,
}

impl Program {
    /// Compiles a checked query.
    pub fn compile(query: &Query, settings: Settings<'_>) -> Result<Self, Vec<QueryError>> {
        let mut compiler = Compiler::new(settings);
        let block = compiler.block(query, true);
        // If the query is ranked, the scope of its block is still open.
        let rank = compiler.ranking(query);
        let reads_documents = compiler.reads_documents;
        let collects_inside = compiler.collects_inside;
        if !compiler.errors.is_empty() {
            return Err(compiler.errors);
        }
        Ok(Self { block, reads_documents, collects_inside, rank })
    }
}

/// Compiles one expression over the document `alias`.
pub(crate) fn document_expression(
    expr: &ast::Expr,
    alias: &str,
    settings: Settings<'_>,
) -> Result<Node, Vec<QueryError>> {
    let mut compiler = Compiler::new(settings);
    compiler.scopes.push(Scope { aliases: vec![(alias.to_owned(), DOCUMENT)], ..Scope::default() });
    let node = compiler.expr(expr);
    if compiler.errors.is_empty() { Ok(node) } else { Err(compiler.errors) }
}

struct Compiler<'s> {
    settings: Settings<'s>,
    parameters: HashMap<&'s str, &'s Value>,
    scopes: Vec<Scope>,
    next_slot: usize,
    reads_documents: bool,
    /// See [`Program::collects_inside`].
    collects_inside: bool,
    /// How many computed properties are being compiled inside each other.
    computing: usize,
    errors: Vec<QueryError>,
}

/// A FROM clause.
struct FromClause {
    sources: Vec<Source>,
    /// The slot that `SELECT *` stands for.
    row: Option<usize>,
    /// Whether there may be several rows.
    many: bool,
}

#[derive(Default)]
struct Scope {
    aliases: Vec<(String, usize)>,
    /// The name by which a rewritten text asks for the document's `_rid`; otherwise it stands for the row.
    document: Option<String>,
    /// Present while the SELECT list of a grouped block is compiled.
    group: Option<Group>,
}

#[derive(Default)]
struct Group {
    /// The canonical text of each key and its slot.
    keys: Vec<(String, usize)>,
    aggregates: Vec<(String, usize)>,
    compiled: Vec<(crate::aggregate::Aggregate, Node)>,
}

impl<'s> Compiler<'s> {
    fn new(settings: Settings<'s>) -> Self {
        let mut parameters = HashMap::new();
        for (name, value) in settings.parameters {
            // A repeated name keeps its first value.
            parameters.entry(name.as_str()).or_insert(value);
        }
        Self {
            settings,
            parameters,
            scopes: Vec::new(),
            next_slot: DOCUMENT + 1,
            reads_documents: false,
            collects_inside: false,
            computing: 0,
            errors: Vec::new(),
        }
    }

    fn slot(&mut self) -> usize {
        self.next_slot += 1;
        self.next_slot - 1
    }

    fn parameter(&self, name: &str) -> Option<&'s Value> {
        self.parameters.get(name).copied()
    }

    fn resolve(&self, name: &str) -> Option<(usize, usize)> {
        self.scopes.iter().enumerate().rev().find_map(|(depth, scope)| {
            // A later source may have taken over the name.
            let found = scope.aliases.iter().rev().find(|(alias, _)| alias == name);
            found.map(|(_, slot)| (depth, *slot))
        })
    }

    fn block(&mut self, query: &Query, top_level: bool) -> Block {
        self.scopes.push(Scope::default());
        // Sources first: the rest of the block refers to their names.
        let FromClause { sources, row, many } = self.sources(query);
        if let (Some(root), Some(slot), Some(scope)) =
            (check::rewritten_root(query), row, self.scopes.last_mut())
        {
            scope.aliases.push((root.to_owned(), slot));
            scope.document = Some(root.to_owned());
        }
        let collects_first = self.collects_first(query, &sources);
        let filter = query.filter.as_ref().map(|filter| self.expr(filter));
        let keys: Vec<Node> = query.group_by.iter().map(|key| self.expr(key)).collect();
        let ranked = query.order_by.as_ref().is_some_and(|order_by| order_by.rank);
        let grouped = check::is_grouped(query);
        // Groups are sorted when they are complete, and ranked rows when all scores are known.
        let order = if ranked || grouped { Vec::new() } else { self.order(query) };
        let kept = if many { Vec::new() } else { sources.iter().map(|source| source.slot).collect() };
        // An aggregate without GROUP BY turns any number of rows into one.
        let many = many && (!grouped || !keys.is_empty());
        let (projection, grouping) = if grouped {
            self.grouped_projection(query, keys, kept, row)
        } else {
            (self.projection(query, row), None)
        };
        // ORDER BY RANK scores rows in the scope of this block.
        if !(ranked && top_level) {
            self.scopes.pop();
        }
        let top = query.select.top.as_ref().and_then(|count| {
            self.count(count, 2060, "The count value provided for a TOP clause must be an integer.")
        });
        let offset = query.offset_limit.as_ref().and_then(|clause| {
            self.count(&clause.offset, 2062, "The OFFSET count value exceeds the maximum allowed value.")
        });
        let limit = query.offset_limit.as_ref().and_then(|clause| {
            self.count(&clause.limit, 2061, "The LIMIT count value exceeds the maximum allowed value.")
        });
        let distinct = query.select.distinct;
        Block {
            sources,
            filter,
            grouping,
            projection,
            distinct,
            order,
            top,
            offset,
            limit,
            collects_first,
            many,
        }
    }

    fn count(&mut self, count: &Count, code: u16, message: &str) -> Option<u64> {
        let value = resolve_count(count, self.settings.parameters);
        if value.is_none() {
            self.errors.push(QueryError::new(Code::Sc(code), None, message));
        }
        value
    }

    fn sources(&mut self, query: &Query) -> FromClause {
        let mut sources = Vec::new();
        let (mut row, mut many) = (None, false);
        let listed = query.from.as_ref().map_or(&[][..], |from| &from.sources);
        for source in listed {
            let node = match &source.collection {
                Collection::Path { root, steps } => {
                    // A root that names nothing in scope is the container, whatever the query calls it.
                    let base = self.resolve(&root.text).map_or_else(
                        || {
                            self.reads_documents = true;
                            many = true;
                            DOCUMENT
                        },
                        |(_, slot)| slot,
                    );
                    if steps.is_empty() && !source.iterate {
                        // The row itself: only the name is bound.
                        self.bind(source, base);
                        // Naming a row again does not change what `SELECT *` stands for.
                        row = row.or(Some(base));
                        continue;
                    }
                    let steps = steps.iter().map(path_step).collect();
                    SourceRows::Value(Node::Path { slot: base, steps })
                }
                Collection::Subquery(inner) => {
                    let inner = self.block(inner, false);
                    many |= inner.many;
                    SourceRows::Subquery(Box::new(inner))
                }
            };
            many |= source.iterate;
            let slot = self.slot();
            self.bind(source, slot);
            row = Some(slot);
            sources.push(Source { slot, iterate: source.iterate, rows: node });
        }
        FromClause { sources, row, many }
    }

    fn collects_first(&mut self, query: &Query, sources: &[Source]) -> bool {
        let first = query.from.as_ref().and_then(|from| from.sources.first());
        let is_subquery = first.is_some_and(|source| matches!(source.collection, Collection::Subquery(_)));
        let collects = match sources.first().map(|source| &source.rows) {
            Some(SourceRows::Subquery(inner)) => is_subquery && inner.collects() && self.reads_documents,
            _ => false,
        };
        // A subquery in an expression works on one document; only a chain of FROM clauses reaches the container from
        // further inside. In a chain no query around this one has bound a name yet.
        let around = &self.scopes[..self.scopes.len() - 1];
        let chained = around.iter().all(|scope| scope.aliases.is_empty());
        self.collects_inside |= collects && chained && !around.is_empty();
        collects && around.is_empty()
    }

    fn bind(&mut self, source: &ast::Source, slot: usize) {
        if let (Some(alias), Some(scope)) = (check::source_alias(source), self.scopes.last_mut()) {
            scope.aliases.push((alias.to_owned(), slot));
        }
    }

    fn order(&mut self, query: &Query) -> Vec<OrderKey> {
        let items = query.order_by.as_ref().map_or(&[][..], |order_by| &order_by.items);
        items
            .iter()
            .map(|item| {
                let node = self.expr(&item.expr);
                let score = is_call_to(&item.expr, "_VECTORSCORE");
                let vector = score || is_call_to(&item.expr, "VECTORDISTANCE");
                // The metric of VectorDistance determines the direction. Only `_VectorScore` may state one,
                // which then counts.
                let direction = if vector && !(score && item.direction.is_some()) {
                    expression::vector_direction(&node)
                } else {
                    item.direction.unwrap_or(Direction::Ascending)
                };
                OrderKey { node, direction, undefined_last: vector }
            })
            .collect()
    }

    fn projection(&mut self, query: &Query, row: Option<usize>) -> Projection {
        match &query.select.selection {
            Selection::Star(_) => match row {
                // Only as the result of the whole query can a row be returned as it is stored
                // (`Program::returns_documents`).
                Some(row) if self.scopes.len() == 1 => Projection::Row(row),
                row => Projection::Value(row.map_or(Node::Constant(None), Node::Slot)),
            },
            Selection::Value(expr) => Projection::Value(self.expr(expr)),
            Selection::List(items) => {
                let names = ast::column_names(items);
                let nodes = items.iter().map(|item| self.expr(&item.expr)).collect::<Vec<_>>();
                Projection::Columns(names.into_iter().map(String::into_boxed_str).zip(nodes).collect())
            }
        }
    }

    fn grouped_projection(
        &mut self,
        query: &Query,
        keys: Vec<Node>,
        kept: Vec<usize>,
        row: Option<usize>,
    ) -> (Projection, Option<Grouping>) {
        let mut group = Group::default();
        // Keys have slots before the SELECT list is compiled, which refers to them.
        for key in &query.group_by {
            let slot = self.slot();
            group.keys.push((printer::expression(key), slot));
        }
        // From here until the group is taken again, aggregates and grouping expressions compile to its slots.
        if let Some(scope) = self.scopes.last_mut() {
            scope.group = Some(group);
        }
        let projection = match Self::ordered_group(query) {
            Some(query) => self.projection(&query, row),
            None => self.projection(query, row),
        };
        // Without keys there is only one group.
        let sorted = query.order_by.iter().filter(|order_by| !order_by.rank && !query.group_by.is_empty());
        let order = sorted
            .flat_map(|order_by| &order_by.items)
            .map(|item| (self.expr(&item.expr), item.direction.unwrap_or_default()))
            .collect();
        // Taken after ORDER BY, which may have added aggregates that SELECT lacks.
        let group = self.scopes.last_mut().and_then(|scope| scope.group.take()).unwrap_or_default();
        // The order in which `GroupTable::finish` chains the values.
        let computed = group.keys.iter().chain(&group.aggregates).map(|(_, slot)| *slot);
        let slots = computed.chain(kept.iter().copied()).collect();
        (projection, Some(Grouping { keys, aggregates: group.compiled, kept, slots, order }))
    }

    /// The rewritten form of GROUP BY with ORDER BY selects the `_rid` of a document, of which a group has many: the
    /// minimum represents it.
    fn ordered_group(query: &Query) -> Option<Query> {
        if !check::is_ordered_group(query) {
            return None;
        }
        let mut query = query.clone();
        if let Selection::List(items) = &mut query.select.selection
            && let Some(rid) = items.first_mut()
        {
            let name = ast::Name::from("MIN");
            let arguments = vec![rid.expr.clone()];
            rid.alias = Some("_rid".into());
            rid.expr.kind = ast::ExprKind::Call(Box::new(ast::Call { name, udf: false, arguments }));
        }
        Some(query)
    }
}

fn path_step(step: &ast::Step) -> Step {
    match step {
        ast::Step::Name(name) | ast::Step::Quoted(name) => Step::Name(name.text.clone()),
        // A non-integer index yields nothing.
        ast::Step::Index(number) => {
            let place = number.as_i64().and_then(|place| usize::try_from(place).ok());
            Step::Index(place.unwrap_or(usize::MAX))
        }
    }
}
