//! Query advice on filters that use an index poorly, by id; clients have the texts.

use crate::ast::{Call, Expr, ExprKind, Literal, Query};

/// The distinct advice ids of a query, in order.
pub fn advice(query: &Query) -> Vec<&'static str> {
    let mut ids = Vec::new();
    in_query(query, &mut ids);
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn in_query(query: &Query, ids: &mut Vec<&'static str>) {
    if let Some(filter) = &query.filter {
        in_expr(filter, ids);
    }
}

fn in_expr(expr: &Expr, ids: &mut Vec<&'static str>) {
    match &expr.kind {
        ExprKind::Call(call) if !call.udf => ids.extend(of_call(call)),
        ExprKind::Subquery { query, .. } => in_query(query, ids),
        _ => {}
    }
    for child in expr.children() {
        in_expr(child, ids);
    }
}

fn of_call(call: &Call) -> Option<&'static str> {
    let flag = matches!(
        call.arguments.get(2).map(|argument| &argument.kind),
        Some(ExprKind::Literal(Literal::Bool(true)))
    );
    Some(match (call.name.text.to_ascii_uppercase().as_str(), flag) {
        ("ARRAY_CONTAINS", true) => "QA1000",
        ("CONTAINS", _) => "QA1002",
        ("STARTSWITH" | "STRINGEQUALS", true) => "QA1003",
        ("ENDSWITH", _) => "QA1004",
        ("UPPER" | "LOWER", _) => "QA1006",
        ("GETCURRENTDATETIME", _) => "QA1007",
        ("GETCURRENTTICKS", _) => "QA1008",
        ("GETCURRENTTIMESTAMP", _) => "QA1009",
        _ => return None,
    })
}

/// The function that an advice refers to.
pub fn function(id: &str) -> &'static str {
    match id {
        "QA1000" => "ARRAY_CONTAINS",
        "QA1002" => "CONTAINS",
        "QA1003" => "STARTSWITH",
        "QA1004" => "ENDSWITH",
        "QA1006" => "LOWER",
        "QA1007" => "GetCurrentDateTime",
        "QA1008" => "GetCurrentTicks",
        "QA1009" => "GetCurrentTimestamp",
        _ => "",
    }
}
