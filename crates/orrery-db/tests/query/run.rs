//! Running queries to their end.

use orrery_db::{FeedScope, PageRequest, QueryOptions, QueryRequest, Receipt};
use orrery_model::{Result, Value};

use crate::common::{DATABASE, World, parse};

/// How a test wants its query to be run.
#[derive(Clone, Debug)]
pub struct Way {
    pub scope: FeedScope,
    pub page_size: i64,
    pub without_index: bool,
}

pub fn request(text: &str) -> QueryRequest {
    QueryRequest { text: text.to_owned(), parameters: Vec::new(), resume_filter: None }
}

/// All rows of a query, page by page.
pub async fn rows(world: &World, container: &str, request: &QueryRequest, way: &Way) -> Result<Vec<Value>> {
    let mut options = QueryOptions {
        scope: way.scope.clone(),
        cross_partition: true,
        without_index: way.without_index,
        page: PageRequest { items_max: Some(way.page_size), continuation: None },
        ..QueryOptions::default()
    };
    let mut rows = Vec::new();
    let mut pages = 0;
    loop {
        let mut receipt = Receipt::default();
        let page = world.database.query_items(&mut receipt, (DATABASE, container), &options, request).await?;
        let text = [b"[".as_slice(), &page.rows, b"]"].concat();
        let new = parse(&text).as_array().unwrap().to_vec();
        assert_eq!(new.len(), page.count);
        assert!(way.page_size < 0 || new.len() as i64 <= way.page_size, "the page is too long");
        rows.extend(new);
        pages += 1;
        assert!(pages < 20_000, "no end of pages: {}", request.text);
        match page.continuation {
            Some(token) => options.page.continuation = Some(token),
            None => return Ok(rows),
        }
    }
}

/// The same rows, whatever their order.
pub fn same_multiset(left: &[Value], right: &[Value]) -> bool {
    let sorted = |rows: &[Value]| {
        let mut texts: Vec<String> = rows.iter().map(canonical).collect();
        texts.sort();
        texts
    };
    sorted(left) == sorted(right)
}

/// A text that equal values share.
pub fn canonical(value: &Value) -> String {
    match value {
        Value::Object(object) => {
            let mut members: Vec<String> =
                object.iter().map(|(name, value)| format!("{name:?}:{}", canonical(value))).collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        value => value.to_json(),
    }
}

/// Equality with a relative tolerance for numbers; arrays of named columns are compared as multisets.
pub fn same(left: &Value, right: &Value, tolerance: f64, unordered: &[&str]) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64(), b.as_f64());
            let near = (a - b).abs() <= tolerance * a.abs().max(b.abs());
            left == right || near || tolerance > 0.0 && (a - b).abs() < 1e-12
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, tolerance, unordered))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same_member = |name: &str, value: &Value, other: &Value| match (value, other) {
                (Value::Array(a), Value::Array(b)) if unordered.contains(&name) => {
                    same_rows(a, b, false, tolerance, unordered)
                }
                _ => same(value, other, tolerance, unordered),
            };
            let mut members = a.iter();
            a.len() == b.len()
                && members
                    .all(|(name, value)| b.get(name).is_some_and(|other| same_member(name, value, other)))
        }
        _ => left == right,
    }
}

pub fn same_rows(left: &[Value], right: &[Value], ordered: bool, tolerance: f64, unordered: &[&str]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let mut rest: Vec<&Value> = right.iter().collect();
    left.iter().all(|value| {
        let fits = |other: &&Value| same(value, other, tolerance, unordered);
        let found = if ordered {
            rest.first().filter(|other| fits(other)).map(|_| 0)
        } else {
            rest.iter().position(fits)
        };
        found.map(|at| rest.remove(at)).is_some()
    })
}
