//! Index metrics: which indexes a query uses and which would help it.
//!
//! The rules were derived from published responses of the service: the paths of the filter in reverse order, except for
//! a path that has both a range filter and a sort; and a composite index wherever equality is combined with a range.
//! Projected functions use the index of their property too.

use orrery_model::container::{CompositePath, ContainerDefinition, IndexPath, IndexStep, PolicyPath};
use orrery_model::{Object, Value};
use orrery_query::ast::{ExprKind, Query, Selection};
use orrery_query::check::indexes;
use orrery_query::filter::{IndexCondition, Test, TypeTest};

use super::access::is_indexed;
use crate::catalog::Generation;

/// Functions that an index on their property can answer.
const LOOKED_UP: [&str; 6] =
    ["STARTSWITH", "STRINGEQUALS", "CONTAINS", "ENDSWITH", "REGEXMATCH", "ARRAY_CONTAINS"];

/// The metrics document for clients.
pub(crate) fn index_metrics(
    query: &Query,
    condition: &IndexCondition,
    generation: &Generation,
    definition: &ContainerDefinition,
) -> Value {
    let mut filtered = Vec::new();
    collect(condition, &mut filtered);
    let sorted: Vec<IndexPath> = indexes::order_paths(query)
        .unwrap_or_default()
        .iter()
        .filter_map(|(text, _)| parse_path(text))
        .collect();
    let mut singles = Singles::default();
    for Filtered { path, kind } in filtered.iter().rev() {
        let follows_the_order = *kind == Kind::Range && sorted.contains(path);
        if !follows_the_order {
            singles.add(path, generation);
        }
    }
    for path in projected(query) {
        singles.add(&path, generation);
    }
    let composites = Composites::of(query, &filtered, &sorted, definition);
    let section = |singles: Vec<Value>, composites: Vec<Value>| {
        object([("SingleIndexes", singles.into()), ("CompositeIndexes", composites.into())])
    };
    object([
        ("UtilizedIndexes", section(singles.used, composites.used)),
        ("PotentialIndexes", section(singles.missing, composites.missing)),
    ])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Equality,
    Range,
    Other,
}

struct Filtered {
    path: IndexPath,
    kind: Kind,
}

/// The terms of the filter, in order, without duplicate paths.
fn collect(condition: &IndexCondition, found: &mut Vec<Filtered>) {
    match condition {
        IndexCondition::And(parts) | IndexCondition::Or(parts) => {
            for part in parts {
                collect(part, found);
            }
        }
        IndexCondition::Term { path, test, exact } => {
            let kind = match test {
                Test::Equal(_) => Kind::Equality,
                Test::Range { .. } | Test::NotEqual(_) | Test::Prefix(_) => Kind::Range,
                // Conditions of joins are not part of the query's filter.
                Test::Type(TypeTest::Array | TypeTest::Defined) if !exact => return,
                _ => Kind::Other,
            };
            if found.iter().all(|known| known.path != *path) {
                found.push(Filtered { path: path.clone(), kind });
            }
        }
        IndexCondition::All | IndexCondition::None => {}
    }
}

#[derive(Default)]
struct Singles {
    used: Vec<Value>,
    missing: Vec<Value>,
}

impl Singles {
    fn add(&mut self, path: &IndexPath, generation: &Generation) {
        let spec = ("IndexSpec", format!("{}/?", shown(path)).into());
        let (list, entry) = if is_indexed(generation, path) && generation.tree.is_enabled() {
            (&mut self.used, object([spec]))
        } else {
            (&mut self.missing, object([spec, ("IndexImpactScore", "High".into())]))
        };
        if !list.contains(&entry) {
            list.push(entry);
        }
    }
}

#[derive(Default)]
struct Composites {
    used: Vec<Value>,
    missing: Vec<Value>,
}

impl Composites {
    fn of(
        query: &Query,
        filtered: &[Filtered],
        sorted: &[IndexPath],
        definition: &ContainerDefinition,
    ) -> Self {
        let mut composites = Self::default();
        let of_kind =
            |kind| filtered.iter().filter(move |filter| filter.kind == kind).map(|filter| &filter.path);
        let equal: Vec<&IndexPath> = of_kind(Kind::Equality).collect();
        let mut wanted: Vec<Vec<&IndexPath>> = Vec::new();
        if !equal.is_empty() {
            wanted.extend(of_kind(Kind::Range).map(|range| equal.iter().copied().chain([range]).collect()));
        }
        let grouped: Vec<IndexPath> = grouped(query);
        if wanted.is_empty() && grouped.len() > 1 && grouped.iter().all(|path| equal.contains(&path)) {
            wanted.push(equal);
        }
        for paths in wanted {
            if let Some(known) = find_composite(&paths, definition) {
                composites.used.push(specs(known));
                continue;
            }
            let names = paths.iter().map(|path| format!("{} ASC", shown(path)).into());
            composites.missing.push(object([
                ("IndexSpecs", names.collect::<Vec<Value>>().into()),
                ("IndexImpactScore", "High".into()),
            ]));
        }
        if sorted.len() > 1
            && let Some(known) = find_composite(&sorted.iter().collect::<Vec<_>>(), definition)
        {
            let specs = specs(known);
            if !composites.used.contains(&specs) {
                composites.used.push(specs);
            }
        }
        composites
    }
}

/// The composite index over these paths, in this order.
fn find_composite<'d>(
    paths: &[&IndexPath],
    definition: &'d ContainerDefinition,
) -> Option<&'d [CompositePath]> {
    let fits = |index: &&Vec<CompositePath>| {
        index.len() == paths.len() && index.iter().zip(paths).all(|(own, path)| own.steps == path.0)
    };
    definition.indexing.composite.iter().find(fits).map(Vec::as_slice)
}

fn specs(index: &[CompositePath]) -> Value {
    let spec = |path: &CompositePath| {
        let order = if path.descending { "DESC" } else { "ASC" };
        Value::from(format!("{} {order}", path.as_str().trim_end_matches("/?")))
    };
    object([("IndexSpecs", index.iter().map(spec).collect::<Vec<_>>().into())])
}

/// The properties of directly projected functions.
fn projected(query: &Query) -> Vec<IndexPath> {
    let (Selection::Value(expr), Some(from)) = (&query.select.selection, &query.from) else {
        return Vec::new();
    };
    let ExprKind::Call(call) = &expr.kind else { return Vec::new() };
    let is_known = LOOKED_UP.iter().any(|name| call.name.text.eq_ignore_ascii_case(name));
    let path = call.arguments.first().filter(|_| is_known && !call.udf);
    let path = path.and_then(|argument| indexes::document_path(argument, from));
    path.and_then(|path| parse_path(&path)).into_iter().collect()
}

fn grouped(query: &Query) -> Vec<IndexPath> {
    let Some(from) = &query.from else { return Vec::new() };
    let paths = query.group_by.iter().filter_map(|expr| indexes::document_path(expr, from));
    paths.filter_map(|path| parse_path(&path)).collect()
}

fn parse_path(text: &str) -> Option<IndexPath> {
    PolicyPath::parse(&format!("{text}/?")).ok().map(|path| IndexPath(path.steps))
}

/// The path in the format of these responses: names consisting of letters of any script are not quoted.
fn shown(path: &IndexPath) -> String {
    let mut text = String::new();
    for step in &path.0 {
        text.push('/');
        match step {
            IndexStep::Element => text.push_str("[]"),
            IndexStep::Property(name) if name.chars().all(|c| c.is_alphanumeric() || c == '_') => {
                text.push_str(name);
            }
            IndexStep::Property(name) => {
                text.push('"');
                text.push_str(&name.replace('\\', "\\\\").replace('"', "\\\""));
                text.push('"');
            }
        }
    }
    text
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let mut object = Object::new();
    for (name, value) in members {
        object.set(name, value);
    }
    object.into()
}
