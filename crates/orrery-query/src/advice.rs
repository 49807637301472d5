//! Query advice on filters that use an index poorly, by id; clients have the texts.

use crate::ast::{Call, Expr, ExprKind, Literal, Query};

/// The ids of the advice for a query, each once, in order, with the function that it is about: where several would get
/// the same advice, the first in the text.
pub fn advice(query: &Query) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    in_query(query, &mut found);
    // The sort is stable, so the first function in the text stays in front of others with the same advice.
    found.sort_by_key(|(id, _)| *id);
    found.dedup_by_key(|(id, _)| *id);
    found
}

fn in_query(query: &Query, found: &mut Vec<(&'static str, &'static str)>) {
    if let Some(filter) = &query.filter {
        in_expr(filter, found);
    }
}

fn in_expr(expr: &Expr, found: &mut Vec<(&'static str, &'static str)>) {
    match &expr.kind {
        ExprKind::Call(call) if !call.udf => found.extend(of_call(call)),
        ExprKind::Subquery { query, .. } => in_query(query, found),
        _ => {}
    }
    for child in expr.children() {
        in_expr(child, found);
    }
}

fn of_call(call: &Call) -> Option<(&'static str, &'static str)> {
    // The third argument asks ARRAY_CONTAINS for partial matches, and string functions to ignore case.
    let flag = matches!(
        call.arguments.get(2).map(|argument| &argument.kind),
        Some(ExprKind::Literal(Literal::Bool(true)))
    );
    Some(match (call.name.text.to_ascii_uppercase().as_str(), flag) {
        ("ARRAY_CONTAINS", true) => ("QA1000", "ARRAY_CONTAINS"),
        ("CONTAINS", _) => ("QA1002", "CONTAINS"),
        ("STARTSWITH", true) => ("QA1003", "STARTSWITH"),
        ("STRINGEQUALS", true) => ("QA1003", "StringEquals"),
        ("ENDSWITH", _) => ("QA1004", "ENDSWITH"),
        ("UPPER", _) => ("QA1006", "UPPER"),
        ("LOWER", _) => ("QA1006", "LOWER"),
        ("GETCURRENTDATETIME", _) => ("QA1007", "GetCurrentDateTime"),
        ("GETCURRENTTICKS", _) => ("QA1008", "GetCurrentTicks"),
        ("GETCURRENTTIMESTAMP", _) => ("QA1009", "GetCurrentTimestamp"),
        _ => return None,
    })
}
