//! Index metrics: which indexes a query uses and which would help it.
//!
//! The rules were derived from published responses of the service: the paths of the filter in reverse order, except for
//! a path that has both a range filter and a sort; and a composite index wherever equality is combined with a range.
//! Projected functions use the index of their property too.

use orrery_model::container::{CompositePath, ContainerDefinition, IndexPath, IndexStep, PolicyPath};
use orrery_model::path::KeyPath;
use orrery_model::{Object, Value};
use orrery_query::ast::{ExprKind, Query, Selection};
use orrery_query::check::indexes;
use orrery_query::filter::{Bound, IndexCondition, Test, TypeTest};

use super::indexed::is_indexed;
use crate::catalog::Generation;

/// Functions that an index on their property can answer.
const LOOKED_UP: [&str; 6] =
    ["STARTSWITH", "STRINGEQUALS", "CONTAINS", "ENDSWITH", "REGEXMATCH", "ARRAY_CONTAINS"];

/// Which indexes a query uses and which would help it.
#[derive(Clone, Debug, Default)]
pub struct IndexMetrics {
    used: Indexes,
    missing: Indexes,
    /// The key that the request names, which is looked up too. Only the older form of the answer lists it.
    keys: Vec<SingleIndex>,
}

#[derive(Clone, Debug, Default)]
struct Indexes {
    singles: Vec<SingleIndex>,
    composites: Vec<CompositeIndex>,
}

#[derive(Clone, Debug, PartialEq)]
struct SingleIndex {
    spec: String,
    /// The part of the filter that it serves; empty where the filter's text says nothing about it.
    filter: String,
    /// Whether the index alone answers that part.
    is_exact: bool,
    impact: Impact,
}

#[derive(Clone, Debug, PartialEq)]
struct CompositeIndex {
    specs: Vec<String>,
    impact: Impact,
}

/// What an index saves: much where it leads to the values that are wanted, little where all values of the property (or
/// all but one) have to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Impact {
    High,
    Low,
}

impl Impact {
    fn of(test: &Test) -> Self {
        match test {
            Test::Equal(_) | Test::In(_) | Test::Range { .. } | Test::Prefix(_) => Self::High,
            Test::NotEqual(_) | Test::StringScan | Test::Type(_) => Self::Low,
        }
    }

    fn to_value(self) -> Value {
        match self {
            Self::High => "High".into(),
            Self::Low => "Low".into(),
        }
    }
}

impl IndexMetrics {
    pub(crate) fn of(
        query: &Query,
        condition: &IndexCondition,
        generation: &Generation,
        definition: &ContainerDefinition,
        names_key: bool,
    ) -> Self {
        let mut filtered = Vec::new();
        collect(condition, &mut filtered);
        let sorted: Vec<IndexPath> = indexes::order_paths(query)
            .unwrap_or_default()
            .iter()
            .filter_map(|(text, _)| parse_path(text))
            .collect();
        let mut metrics = Self::default();
        for filter in filtered.iter().rev() {
            // Published responses do not list a path that has both a range filter and a sort.
            let follows_the_order = filter.kind == Kind::Range && sorted.contains(&filter.path);
            if !follows_the_order {
                metrics.add_single(&filter.path, filter, generation);
            }
        }
        for path in projected(query) {
            let looked_up = Filtered::looked_up(path);
            metrics.add_single(&looked_up.path, &looked_up, generation);
        }
        metrics.add_composites(query, &filtered, &sorted, definition);
        if names_key {
            metrics.keys = definition.partition_key.paths().iter().map(key_index).collect();
        }
        metrics
    }

    fn add_single(&mut self, path: &IndexPath, filter: &Filtered, generation: &Generation) {
        let index = SingleIndex {
            spec: format!("{}/?", shown(path)),
            filter: filter.text.clone(),
            is_exact: filter.is_exact,
            impact: filter.impact,
        };
        let is_there = is_indexed(generation, path) && generation.tree.is_enabled();
        let list = if is_there { &mut self.used.singles } else { &mut self.missing.singles };
        if list.iter().all(|known| known.spec != index.spec) {
            list.push(index);
        }
    }

    fn add_composites(
        &mut self,
        query: &Query,
        filtered: &[Filtered],
        sorted: &[IndexPath],
        definition: &ContainerDefinition,
    ) {
        let of_kind =
            |kind| filtered.iter().filter(move |filter| filter.kind == kind).map(|filter| &filter.path);
        let equal: Vec<&IndexPath> = of_kind(Kind::Equality).collect();
        let mut wanted: Vec<Vec<&IndexPath>> = Vec::new();
        // One composite index for each range: all equalities first, then the range.
        if !equal.is_empty() {
            wanted.extend(of_kind(Kind::Range).map(|range| equal.iter().copied().chain([range]).collect()));
        }
        let grouped: Vec<IndexPath> = grouped(query);
        // Grouping by several paths that are all fixed asks for one over those paths.
        if wanted.is_empty() && grouped.len() > 1 && grouped.iter().all(|path| equal.contains(&path)) {
            wanted.push(equal);
        }
        for paths in wanted {
            // An index that exists is reported as used, one that does not as missing.
            if let Some(known) = find_composite(&paths, definition) {
                self.used.composites.push(CompositeIndex { specs: specs(known), impact: Impact::High });
                continue;
            }
            let specs = paths.iter().map(|path| format!("{} ASC", shown(path))).collect();
            self.missing.composites.push(CompositeIndex { specs, impact: Impact::High });
        }
        if sorted.len() > 1
            && let Some(known) = find_composite(&sorted.iter().collect::<Vec<_>>(), definition)
        {
            let index = CompositeIndex { specs: specs(known), impact: Impact::High };
            // It may have been listed already, for the filter.
            if !self.used.composites.contains(&index) {
                self.used.composites.push(index);
            }
        }
    }

    /// The document that newer clients expect.
    pub fn to_value(&self) -> Value {
        let single = |index: &SingleIndex, is_missing: bool| {
            let mut object = object([("IndexSpec", index.spec.as_str().into())]);
            // Only proposals have a score.
            if is_missing && let Value::Object(object) = &mut object {
                object.set("IndexImpactScore", index.impact.to_value());
            }
            object
        };
        let composite = |index: &CompositeIndex, is_missing: bool| {
            let mut object = object([("IndexSpecs", index.specs_value())]);
            if is_missing && let Value::Object(object) = &mut object {
                object.set("IndexImpactScore", index.impact.to_value());
            }
            object
        };
        let section = |indexes: &Indexes, is_missing: bool| {
            let singles = indexes.singles.iter().map(|index| single(index, is_missing));
            let composites = indexes.composites.iter().map(|index| composite(index, is_missing));
            object([
                ("SingleIndexes", singles.collect::<Vec<_>>().into()),
                ("CompositeIndexes", composites.collect::<Vec<_>>().into()),
            ])
        };
        object([
            ("UtilizedIndexes", section(&self.used, false)),
            ("PotentialIndexes", section(&self.missing, true)),
        ])
    }

    /// The document that the older header asks for, with the Python client.
    pub fn to_older_value(&self) -> Value {
        let single = |index: &SingleIndex| {
            object([
                ("FilterExpression", index.filter.as_str().into()),
                ("IndexSpec", index.spec.as_str().into()),
                ("FilterPreciseSet", Value::Bool(index.is_exact)),
                ("IndexPreciseSet", Value::Bool(index.is_exact)),
                ("IndexImpactScore", index.impact.to_value()),
            ])
        };
        let composite = |index: &CompositeIndex| {
            object([
                ("IndexSpecs", index.specs_value()),
                ("IndexPreciseSet", Value::Bool(true)),
                ("IndexImpactScore", index.impact.to_value()),
            ])
        };
        let singles = |indexes: &[SingleIndex]| indexes.iter().map(single).collect::<Vec<_>>();
        let composites =
            |indexes: &[CompositeIndex]| Value::from(indexes.iter().map(composite).collect::<Vec<_>>());
        let used = [singles(&self.keys), singles(&self.used.singles)].concat();
        object([
            ("UtilizedSingleIndexes", used.into()),
            ("PotentialSingleIndexes", singles(&self.missing.singles).into()),
            ("UtilizedCompositeIndexes", composites(&self.used.composites)),
            ("PotentialCompositeIndexes", composites(&self.missing.composites)),
        ])
    }
}

impl CompositeIndex {
    fn specs_value(&self) -> Value {
        self.specs.iter().map(|spec| spec.as_str().into()).collect::<Vec<Value>>().into()
    }
}

fn key_index(path: &KeyPath) -> SingleIndex {
    let steps = path.segments().iter().map(|name| IndexStep::Property(name.clone()));
    SingleIndex {
        spec: format!("{}/?", shown(&IndexPath(steps.collect()))),
        filter: String::new(),
        is_exact: true,
        impact: Impact::High,
    }
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
    text: String,
    is_exact: bool,
    impact: Impact,
}

impl Filtered {
    /// A property that a projected function looks up.
    fn looked_up(path: IndexPath) -> Self {
        Self { path, kind: Kind::Other, text: String::new(), is_exact: false, impact: Impact::Low }
    }
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
            // The first test of a path counts.
            if found.iter().all(|known| known.path != *path) {
                let (text, impact) = (test_text(path, test), Impact::of(test));
                found.push(Filtered { path: path.clone(), kind, text, is_exact: *exact, impact });
            }
        }
        IndexCondition::All | IndexCondition::None => {}
    }
}

/// A comparison as these answers write it: `(ROOT.age > 12)`. Empty for what is not one.
fn test_text(path: &IndexPath, test: &Test) -> String {
    let mut name = String::from("ROOT");
    for step in &path.0 {
        match step {
            IndexStep::Element => return String::new(),
            IndexStep::Property(step) if step.chars().all(|c| c.is_alphanumeric() || c == '_') => {
                name.push('.');
                name.push_str(step);
            }
            IndexStep::Property(step) => {
                name.push('[');
                name.push_str(&Value::from(step.as_ref()).to_json());
                name.push(']');
            }
        }
    }
    let compared = |operator: &str, value: &Value| format!("({name} {operator} {})", value.to_json());
    let bound = |bound: &Bound, sign: &str| {
        compared(&if bound.inclusive { format!("{sign}=") } else { sign.to_owned() }, &bound.value)
    };
    match test {
        Test::Equal(value) => compared("=", value),
        Test::NotEqual(value) => compared("!=", value),
        Test::In(values) => {
            let values: Vec<String> = values.iter().map(Value::to_json).collect();
            format!("({name} IN ({}))", values.join(", "))
        }
        Test::Range { low: Some(low), high: Some(high) } => {
            format!("({} AND {})", bound(low, ">"), bound(high, "<"))
        }
        Test::Range { low: Some(low), .. } => bound(low, ">"),
        Test::Range { high: Some(high), .. } => bound(high, "<"),
        Test::Prefix(prefix) => format!("STARTSWITH({name}, {})", Value::from(prefix.as_ref()).to_json()),
        Test::Range { .. } | Test::StringScan | Test::Type(_) => String::new(),
    }
}

/// The composite index over these paths, in this order.
fn find_composite<'d>(
    paths: &[&IndexPath],
    definition: &'d ContainerDefinition,
) -> Option<&'d [CompositePath]> {
    // The exact paths in the exact order; directions do not matter for a filter.
    let fits = |index: &&Vec<CompositePath>| {
        index.len() == paths.len() && index.iter().zip(paths).all(|(own, path)| own.steps == path.0)
    };
    definition.indexing.composite.iter().find(fits).map(Vec::as_slice)
}

fn specs(index: &[CompositePath]) -> Vec<String> {
    let spec = |path: &CompositePath| {
        let order = if path.descending { "DESC" } else { "ASC" };
        format!("{} {order}", path.as_str().trim_end_matches("/?"))
    };
    index.iter().map(spec).collect()
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
