//! The index requirements of an ORDER BY.

use orrery_model::path::push_segment;

use super::source_alias;
use crate::ast::{Collection, Direction, Expr, ExprKind, From, Literal, Query, Source, Step};
use crate::error::QueryError;

/// One path of a composite index, such as `/name`, with its direction.
pub type CompositePath = (String, Direction);

/// Rejects an ORDER BY of several keys without a matching composite index.
///
/// The index must list exactly the keys, in order, with the same directions or all of them reversed.
pub fn check_composite_order(query: &Query, composites: &[Vec<CompositePath>]) -> Result<(), QueryError> {
    let Some(keys) = order_paths(query).filter(|keys| keys.len() > 1) else {
        return Ok(());
    };
    let served = composites.iter().any(|index| {
        let same_paths = index.len() == keys.len()
            && index
                .iter()
                .zip(&keys)
                // A policy may write a path with `/?` at its end.
                .all(|((indexed, _), (wanted, _))| indexed.trim_end_matches("/?") == wanted);
        let same = index.iter().zip(&keys).filter(|((_, indexed), (_, wanted))| indexed == wanted).count();
        same_paths && (same == 0 || same == keys.len())
    });
    if served {
        return Ok(());
    }
    Err(QueryError::text(
        "The order by query does not have a corresponding composite index that it can be served from.",
    ))
}

/// The paths a query is ordered by, if it is ordered by paths of the document.
pub fn order_paths(query: &Query) -> Option<Vec<CompositePath>> {
    let order_by = query.order_by.as_ref().filter(|order_by| !order_by.rank)?;
    let from = query.from.as_ref()?;
    order_by
        .items
        .iter()
        .map(|item| Some((document_path(&item.expr, from)?, item.direction.unwrap_or_default())))
        .collect()
}

/// The path of an expression in the document, in the form of indexing policies: `c.a["b c"]` is `/a/"b c"`.
/// The aliases of joined arrays stand for their elements.
pub fn document_path(expr: &Expr, from: &From) -> Option<String> {
    match &expr.kind {
        ExprKind::Identifier(name) => alias_path(name, &from.sources),
        ExprKind::Member { base, name, .. } => {
            let mut path = document_path(base, from)?;
            path.push('/');
            push_segment(&name.text, &mut path);
            Some(path)
        }
        ExprKind::Index { base, index } => match &index.kind {
            ExprKind::Literal(Literal::Number(_)) => document_path(base, from).map(|path| path + "/[]"),
            _ => None,
        },
        _ => None,
    }
}

/// The path of an alias; later sources may start at earlier ones.
fn alias_path(name: &str, sources: &[Source]) -> Option<String> {
    // The last one: a later source may have taken over the name.
    let at = sources.iter().rposition(|source| source_alias(source) == Some(name))?;
    let Collection::Path { root, steps } = &sources[at].collection else { return None };
    // The first source starts at the document, whatever its name.
    let mut path = if at == 0 { String::new() } else { alias_path(&root.text, &sources[..at])? };
    for step in steps {
        path.push('/');
        match step {
            Step::Name(name) | Step::Quoted(name) => push_segment(&name.text, &mut path),
            Step::Index(_) => path.push_str("[]"),
        }
    }
    if sources[at].iterate {
        path.push_str("/[]");
    }
    Some(path)
}
