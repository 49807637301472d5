//! The properties of an item that a program reads.
//!
//! The caller may omit all others: the program yields the same rows. Most queries over all items read one or two
//! properties of many.

use std::collections::BTreeSet;

use crate::program::{Block, DOCUMENT, Members, Node, Program, Projection, RankComponent, SourceRows, Step};

impl Program {
    /// The properties at the top of a document that the program looks at; `None` = the document as a whole.
    ///
    /// With `documents_by_reference`, as in [`crate::pipeline::Options`], returning a document is not looking at it.
    pub fn roots(&self, documents_by_reference: bool) -> Option<BTreeSet<&str>> {
        let mut roots = BTreeSet::new();
        let is_whole = documents_by_reference && self.returns_documents();
        // One mention of the whole document ends the walk: then the names do not matter.
        let known = of_block(&self.block, &mut roots, !is_whole) && {
            let components = self.rank.iter().flat_map(|ranking| &ranking.components);
            components.into_iter().all(|component| match component {
                RankComponent::FullText { text, .. } => of_node(text, &mut roots),
                RankComponent::Vector { score, .. } => of_node(score, &mut roots),
            })
        };
        known.then_some(roots)
    }
}

/// Adds the properties that the block looks at. False: it looks at the document as a whole.
fn of_block<'p>(block: &'p Block, roots: &mut BTreeSet<&'p str>, projects: bool) -> bool {
    block.sources.iter().all(|source| match &source.rows {
        SourceRows::Value(node) => of_node(node, roots),
        SourceRows::Subquery(block) => of_block(block, roots, true),
    }) && block.filter.iter().all(|node| of_node(node, roots))
        && block.grouping.iter().all(|grouping| {
            let aggregated = grouping.aggregates.iter().map(|(_, node)| node);
            grouping.keys.iter().chain(aggregated).all(|node| of_node(node, roots))
        })
        && block.order.iter().all(|key| of_node(&key.node, roots))
        && (!projects
            || match &block.projection {
                Projection::Row(slot) => *slot != DOCUMENT,
                Projection::Value(node) => of_node(node, roots),
                Projection::Columns(columns) => columns.iter().all(|(_, node)| of_node(node, roots)),
            })
}

fn of_node<'p>(node: &'p Node, roots: &mut BTreeSet<&'p str>) -> bool {
    match node {
        Node::Constant(_) => true,
        // Other slots hold what a source has read, and the source names the property.
        Node::Slot(slot) => *slot != DOCUMENT,
        Node::Path { slot, steps } => {
            if *slot == DOCUMENT {
                match steps.first() {
                    None => return false,
                    Some(Step::Name(name)) => {
                        roots.insert(name);
                    }
                    // A document is no array.
                    Some(Step::Index(_)) => {}
                }
            }
            true
        }
        Node::Member { base, .. } | Node::Element { base, .. } => of_node(base, roots),
        Node::Array(nodes) | Node::Logical { operands: nodes, .. } | Node::Udf { arguments: nodes, .. } => {
            nodes.iter().all(|node| of_node(node, roots))
        }
        Node::Object(members) => members.iter().all(|(_, node)| of_node(node, roots)),
        Node::Unary { operand, .. } => of_node(operand, roots),
        Node::Binary { left, right, .. } => of_node(left, roots) && of_node(right, roots),
        Node::Conditional(nodes) | Node::Between { operands: nodes, .. } => {
            nodes.iter().all(|node| of_node(node, roots))
        }
        Node::In { operand, members, .. } => {
            of_node(operand, roots)
                && match members {
                    Members::Constant { .. } => true,
                    Members::Computed(nodes) => nodes.iter().all(|node| of_node(node, roots)),
                }
        }
        Node::Like { operands, .. } => operands.iter().all(|node| of_node(node, roots)),
        Node::Call(call) => call.arguments.iter().all(|node| of_node(node, roots)),
        Node::Subquery { block, .. } => of_block(block, roots, true),
        Node::Let { value, body, .. } => of_node(value, roots) && of_node(body, roots),
    }
}

#[cfg(test)]
mod tests {
    use crate::compile::Settings;
    use crate::context::Policies;

    fn roots(query: &str, by_reference: bool) -> Option<String> {
        let query = crate::check::parse(query).unwrap();
        let policies = Policies::default();
        let settings = Settings { parameters: &[], computed: &[], policies: &policies };
        let program = crate::Program::compile(&query, settings).unwrap();
        program.roots(by_reference).map(|roots| roots.into_iter().collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn properties_are_found_wherever_they_stand() {
        for (query, expected) in [
            ("SELECT c.status, COUNT(1) AS n FROM c GROUP BY c.status", "status"),
            ("SELECT VALUE MAX(c.a.b) FROM c WHERE c.x IN (1, c.y) AND NOT c[\"z w\"] > 3", "a x y z w"),
            ("SELECT t.name FROM c JOIN t IN c.tags WHERE t.id = c.id", "id tags"),
            ("SELECT VALUE f FROM f IN c.parts", "parts"),
            ("SELECT {\"k\": [c.a, c.b ?? c.d]} AS o FROM c ORDER BY c.e", "a b d e"),
            ("SELECT VALUE (SELECT VALUE SUM(t.n) FROM t IN c.list) FROM c", "list"),
            ("SELECT c.a FROM c WHERE EXISTS(SELECT VALUE 1 FROM t IN c.b WHERE t = c.d)", "a b d"),
            ("SELECT VALUE UPPER(c.a) FROM c WHERE c.b LIKE \"x%\" AND (c.d BETWEEN c.e AND 5)", "a b d e"),
            ("SELECT VALUE COUNT(1) FROM c", ""),
            ("SELECT VALUE udf.f(c.a) FROM c", "a"),
            ("SELECT VALUE x.b FROM (SELECT c.a AS b FROM c) x", "a"),
        ] {
            assert_eq!(roots(query, false).as_deref(), Some(expected), "{query}");
        }
    }

    #[test]
    fn the_whole_document_is_not_cut() {
        for query in [
            "SELECT * FROM c",
            "SELECT VALUE c FROM c WHERE c.a = 1",
            "SELECT c FROM c",
            "SELECT VALUE udf.f(c) FROM c",
            "SELECT VALUE ARRAY(SELECT VALUE c FROM t IN c.tags) FROM c",
            "SELECT VALUE OBJECTTOARRAY(c) FROM c",
            "SELECT COUNT(c) AS n FROM c",
            "SELECT * FROM c ORDER BY c.a",
        ] {
            assert_eq!(roots(query, false), None, "{query}");
        }
        assert_eq!(roots("SELECT * FROM c WHERE c.a = 1", true).as_deref(), Some("a"));
        assert_eq!(roots("SELECT * FROM c WHERE c = 1", true), None);
        assert_eq!(roots("SELECT * FROM c WHERE c.b = 1 ORDER BY c.a", true).as_deref(), Some("a b"));
        assert_eq!(roots("SELECT VALUE c FROM c", true), None);
    }
}
