//! What an ORDER BY needs from the indexes of a container.

use crate::ast::{Direction, Expr, ExprKind, Literal, Query};
use crate::error::QueryError;

/// One path of a composite index, such as `/name`, with its direction.
pub type CompositePath = (String, Direction);

/// Refuses an ORDER BY of several keys that no composite index serves.
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
    order_by
        .items
        .iter()
        .map(|item| Some((index_path(&item.expr)?, item.direction.unwrap_or_default())))
        .collect()
}

/// The path below the alias in the form of indexing policies: `c.a["b c"]` is `/a/"b c"`.
fn index_path(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Identifier(_) => Some(String::new()),
        ExprKind::Member { base, name, .. } => {
            let mut path = index_path(base)?;
            path.push('/');
            push_segment(name, &mut path);
            Some(path)
        }
        ExprKind::Index { base, index } => match &index.kind {
            ExprKind::Literal(Literal::Number(_)) => index_path(base).map(|path| path + "/[]"),
            _ => None,
        },
        _ => None,
    }
}

/// Appends a name as policies write it: quoted unless it is letters, digits and underscores.
pub fn push_segment(name: &str, path: &mut String) {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain {
        path.push_str(name);
    } else {
        path.push('"');
        path.push_str(&name.replace('\\', "\\\\").replace('"', "\\\""));
        path.push('"');
    }
}
