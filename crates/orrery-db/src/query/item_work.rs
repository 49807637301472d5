//! Estimates from the syntax tree how much work a single item may cause: expensive queries are not evaluated on request
//! threads.

use orrery_query::ast::{ExprKind, Query};

use super::walk::{Visited, walk};

/// Functions with possibly quadratic cost, by name prefix.
const SQUARING: [&str; 4] = ["REGEXMATCH", "FULLTEXT", "ST_", "ARRAY_CONTAINS_A"];

/// What one item may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ItemWork {
    /// It may produce many rows: the query has joins or subqueries.
    pub(super) multiplies: bool,
    /// The cost may be quadratic in the size of a string.
    pub(super) squares: bool,
}

impl ItemWork {
    pub(super) fn of(query: &Query) -> Self {
        let (mut queries, mut work) = (0, Self::default());
        walk(query, &mut |visited| match visited {
            Visited::Query(query) => {
                queries += 1;
                let joins = query.from.as_ref().is_some_and(|from| from.sources.len() > 1);
                // A subquery runs once per item, or once per row of a join.
                work.multiplies |= joins || queries > 1;
            }
            Visited::Expression(expr) => {
                if let ExprKind::Call(call) = &expr.kind {
                    let name = call.name.text.to_ascii_uppercase();
                    work.squares |= !call.udf && SQUARING.iter().any(|beginning| name.starts_with(beginning));
                }
            }
        });
        work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_syntax_tree_decides_not_the_text() {
        for (text, multiplies, squares) in [
            ("SELECT * FROM c", false, false),
            ("SELECT * FROM c WHERE c.a = 'SELECT REGEXMATCH'", false, false),
            ("SELECT c.id FROM c JOIN t IN c.tags", true, false),
            ("SELECT * FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags)", true, false),
            ("SELECT VALUE x FROM (SELECT VALUE c FROM c) x", true, false),
            ("SELECT VALUE ARRAY(SELECT VALUE t FROM t IN c.tags) FROM c", true, false),
            ("SELECT * FROM c WHERE RegexMatch(c.a, 'x')", false, true),
            ("SELECT * FROM c WHERE ST_DISTANCE(c.a, c.b) < 1", false, true),
            ("SELECT * FROM c WHERE ARRAY_CONTAINS_ANY(c.a, 1)", false, true),
            ("SELECT * FROM c WHERE ARRAY_CONTAINS(c.a, 1)", false, false),
            ("SELECT udf.st_x(c.a) FROM c", false, false),
        ] {
            let query =
                orrery_query::check::parse(text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
            assert_eq!(ItemWork::of(&query), ItemWork { multiplies, squares }, "{text}");
        }
    }
}
