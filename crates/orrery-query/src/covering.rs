//! Whether the values of a single property decide all rows of a program.
//!
//! Such a program can be fed with documents made from an index of that property: one for each value, as many times as
//! items have it ([`Pipeline::feed_times`](crate::pipeline::Pipeline::feed_times)). That holds where rows are only
//! counted, added up, compared or made distinct, and where equal values always give equal rows.

use crate::aggregate::Aggregate;
use crate::ast::BinaryOperator;
use crate::functions::NOT_DETERMINISTIC;
use crate::program::{Block, DOCUMENT, Members, Node, Program, Projection, SourceRows, Step};

/// Functions that tell an integer from a double of the same value, or minus zero from zero: an index holds neither
/// difference.
const TELL_NUMBERS_APART: [&str; 2] = ["ATN2", "POWER"];

impl Program {
    /// The path of the only property that the program reads: none of its rows depends on anything else, nor on the
    /// order of documents. Empty = it reads no property at all, only how many documents there are.
    pub fn covering_path(&self) -> Option<Vec<&str>> {
        let block = &self.block;
        // Rows that come one by one depend on the order of documents too, so only collected ones can be
        // covered.
        let is_collected = block.grouping.is_some() || block.distinct && block.order.is_empty();
        if !self.reads_documents || !is_collected || self.rank.is_some() || !block.sources.is_empty() {
            return None;
        }
        let mut path = None;
        of_block(block, &mut path).then(|| path.unwrap_or_default())
    }
}

/// The path found so far.
type Found<'p> = Option<Vec<&'p str>>;

/// Adds the path that a block reads. False: it reads another one as well, or depends on something else.
fn of_block<'p>(block: &'p Block, path: &mut Found<'p>) -> bool {
    block.sources.iter().all(|source| match &source.rows {
        SourceRows::Value(node) => of_node(node, path),
        SourceRows::Subquery(block) => of_block(block, path),
    }) && block.filter.iter().all(|node| of_node(node, path))
        && block.grouping.iter().all(|grouping| {
            // Their results have the order of the rows.
            let is_ordered = |aggregate| matches!(aggregate, Aggregate::MakeList | Aggregate::MakeSet);
            grouping.keys.iter().all(|key| of_node(key, path))
                && grouping
                    .aggregates
                    .iter()
                    .all(|(aggregate, node)| !is_ordered(*aggregate) && of_node(node, path))
                && grouping.order.iter().all(|(node, _)| of_node(node, path))
        })
        && block.order.iter().all(|key| of_node(&key.node, path))
        && match &block.projection {
            Projection::Row(slot) => *slot != DOCUMENT,
            Projection::Value(node) => of_node(node, path),
            Projection::Columns(columns) => columns.iter().all(|(_, node)| of_node(node, path)),
        }
}

fn of_node<'p>(node: &'p Node, path: &mut Found<'p>) -> bool {
    match node {
        Node::Constant(_) => true,
        // The whole document is more than one property.
        Node::Slot(slot) => *slot != DOCUMENT,
        Node::Path { slot, steps } => *slot != DOCUMENT || add(steps, path),
        Node::Member { base, .. } | Node::Element { base, .. } => of_node(base, path),
        Node::Array(nodes) | Node::Logical { operands: nodes, .. } => {
            nodes.iter().all(|node| of_node(node, path))
        }
        Node::Object(members) => members.iter().all(|(_, node)| of_node(node, path)),
        Node::Unary { operand, .. } => of_node(operand, path),
        Node::Binary { operator, left, right } => {
            // Dividing by minus zero differs from dividing by zero.
            !matches!(operator, BinaryOperator::Divide | BinaryOperator::Modulo)
                && of_node(left, path)
                && of_node(right, path)
        }
        Node::Conditional(nodes) | Node::Between { operands: nodes, .. } => {
            nodes.iter().all(|node| of_node(node, path))
        }
        Node::In { operand, members, .. } => {
            of_node(operand, path)
                && match members {
                    Members::Constant { .. } => true,
                    Members::Computed(nodes) => nodes.iter().all(|node| of_node(node, path)),
                }
        }
        Node::Like { operands, .. } => operands.iter().all(|node| of_node(node, path)),
        Node::Call(call) => {
            let name = call.function.name;
            let tells_apart =
                TELL_NUMBERS_APART.contains(&name) || name.starts_with("INT") || name == "IS_INTEGER";
            !tells_apart
                && !NOT_DETERMINISTIC.contains(&name)
                && call.arguments.iter().all(|node| of_node(node, path))
        }
        // It may depend on anything, such as the number of its calls.
        Node::Udf { .. } => false,
        Node::Subquery { block, .. } => of_block(block, path),
        Node::Let { value, body, .. } => of_node(value, path) && of_node(body, path),
    }
}

/// Adds a path of the document: false if it is another one, or not only of properties.
fn add<'p>(steps: &'p [Step], path: &mut Found<'p>) -> bool {
    let names = steps.iter().map(|step| match step {
        Step::Name(name) => Some(&**name),
        Step::Index(_) => None,
    });
    let Some(names) = names.collect::<Option<Vec<&str>>>().filter(|names| !names.is_empty()) else {
        return false;
    };
    path.as_ref().is_none_or(|known| *known == names) && {
        *path = Some(names);
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::compile::Settings;
    use crate::context::Policies;

    fn path(query: &str) -> Option<String> {
        let query = crate::check::parse(query).unwrap_or_else(|errors| panic!("{query}: {errors:?}"));
        let policies = Policies::default();
        let settings = Settings { parameters: &[], computed: &[], policies: &policies };
        let program = crate::Program::compile(&query, settings).unwrap();
        program.covering_path().map(|names| names.join("."))
    }

    #[test]
    fn one_property_covers_a_program() {
        for (query, expected) in [
            ("SELECT c.status, COUNT(1) AS n FROM c GROUP BY c.status", "status"),
            ("SELECT VALUE COUNT(1) FROM c WHERE LENGTH(c.code) > 10", "code"),
            ("SELECT DISTINCT VALUE c.a.b FROM c WHERE c.a.b != 3", "a.b"),
            ("SELECT SUM(c.n) AS s, AVG(c.n) AS a, MIN(c.n) AS low FROM c", "n"),
            ("SELECT COUNT(1) AS n FROM c", ""),
            ("SELECT DISTINCT VALUE 1 FROM c", ""),
            (
                "SELECT VALUE COUNT(1) FROM c WHERE EXISTS(SELECT VALUE 1 FROM t IN c.tags WHERE t = 1)",
                "tags",
            ),
            ("SELECT UPPER(c.a) AS u, COUNT(1) AS n FROM c GROUP BY UPPER(c.a)", "a"),
            ("SELECT COUNT(1) AS n FROM c WHERE c[\"a b\"] LIKE 'x%' OR c[\"a b\"] IN (1, 2)", "a b"),
        ] {
            assert_eq!(path(query).as_deref(), Some(expected), "{query}");
        }
    }

    #[test]
    fn what_depends_on_more_is_not_covered() {
        for query in [
            // Two properties, or a property and a part of it.
            "SELECT c.a, SUM(c.b) AS s FROM c GROUP BY c.a",
            "SELECT VALUE COUNT(1) FROM c WHERE c.a = 1 AND c.a.b = 1",
            // Whole documents and places in arrays.
            "SELECT COUNT(c) AS n FROM c",
            "SELECT DISTINCT * FROM c",
            "SELECT VALUE COUNT(1) FROM c WHERE c.tags[0] = 1",
            // Rows that come one by one, or in the order of documents.
            "SELECT VALUE c.a FROM c",
            "SELECT VALUE c.a FROM c ORDER BY c.a",
            "SELECT DISTINCT VALUE c.a FROM c ORDER BY c.a",
            "SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags",
            "SELECT MAKELIST(c.a) AS l FROM c",
            // What the index does not tell.
            "SELECT VALUE COUNT(1) FROM c WHERE IS_INTEGER(c.a)",
            "SELECT VALUE COUNT(1) FROM c WHERE 1 / c.a > 0",
            "SELECT VALUE COUNT(1) FROM c WHERE udf.f(c.a)",
            "SELECT VALUE COUNT(1) FROM c WHERE RAND() < c.a",
            "SELECT VALUE 1",
        ] {
            assert_eq!(path(query), None, "{query}");
        }
    }
}
