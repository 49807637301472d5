//! The items and the eight kinds of queries that are measured.

use std::sync::Arc;

use bytes::Bytes;
use orrery_db::{
    Database, FeedScope, ItemOptions, PageRequest, QueryOptions, QueryPage, QueryRequest, Receipt,
};
use orrery_model::Value;
use orrery_model::partition_key::PartitionKey;

const PLACE: (&str, &str) = ("bench", "items");
/// Items of one logical partition, and of one customer: the same in every container, and so is every result.
const PER_KEY: u64 = 100;
const PER_CUSTOMER: u64 = 10;
const LOADERS: u64 = 64;

/// One kind of query.
pub struct Shape {
    pub name: &'static str,
    pub text: &'static str,
    pub in_one_key: bool,
    /// Whether the index leads to the result.
    pub is_indexed: bool,
}

pub const SHAPES: [Shape; 8] = [
    Shape {
        name: "equality on an indexed property",
        text: "SELECT * FROM c WHERE c.customer = @customer",
        in_one_key: false,
        is_indexed: true,
    },
    Shape {
        name: "range with ORDER BY and TOP 10",
        text: "SELECT TOP 10 * FROM c WHERE c.score > @score ORDER BY c.score",
        in_one_key: false,
        is_indexed: true,
    },
    Shape {
        name: "filter inside one logical partition",
        text: "SELECT * FROM c WHERE c.category = 3 AND c.score >= 0",
        in_one_key: true,
        is_indexed: true,
    },
    Shape {
        name: "COUNT by equality",
        text: "SELECT VALUE COUNT(1) FROM c WHERE c.customer = @customer",
        in_one_key: false,
        is_indexed: true,
    },
    Shape {
        name: "GROUP BY over everything",
        text: "SELECT c.category, COUNT(1) AS n, SUM(c.score) AS sum FROM c GROUP BY c.category",
        in_one_key: false,
        is_indexed: false,
    },
    Shape {
        name: "GROUP BY one indexed property",
        text: "SELECT c.category, COUNT(1) AS n, MAX(c.category) AS most FROM c GROUP BY c.category",
        in_one_key: false,
        is_indexed: false,
    },
    Shape {
        name: "COUNT by a function of an indexed property",
        text: "SELECT VALUE COUNT(1) FROM c WHERE LENGTH(c.pk) > 1000",
        in_one_key: false,
        is_indexed: false,
    },
    Shape {
        name: "scan with an unindexed predicate",
        text: "SELECT VALUE COUNT(1) FROM c WHERE c.hidden = 7",
        in_one_key: false,
        is_indexed: false,
    },
];

fn item(number: u64) -> String {
    let filler: String =
        (0..25).map(|at| format!("{:032x}", u128::from(number) * 0x9E37_79B9 + at)).collect();
    format!(
        r#"{{"id":"{number}","pk":"p{}","customer":{},"score":{number},"category":{},"hidden":{},"filler":"{filler}"}}"#,
        number / PER_KEY,
        number / PER_CUSTOMER,
        number % 50,
        number % 1000,
    )
}

/// Makes the container and fills it.
pub async fn load(database: &Arc<Database>, count: u64) {
    let mut receipt = Receipt::default();
    database.create_database(&mut receipt, br#"{"id":"bench"}"#, None).await.unwrap();
    let body = br#"{"id":"items","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/hidden/?"},{"path":"/filler/?"}]}}"#;
    database.create_container(&mut receipt, "bench", body, None).await.unwrap();
    let loaders: Vec<_> = (0..LOADERS)
        .map(|loader| {
            let database = Arc::clone(database);
            tokio::spawn(async move {
                for number in (loader..count).step_by(usize::try_from(LOADERS).unwrap()) {
                    let body = Bytes::from(item(number));
                    let options = ItemOptions::default();
                    database.create_item(&mut Receipt::default(), PLACE, &options, &body).await.unwrap();
                }
            })
        })
        .collect();
    for loader in loaders {
        loader.await.unwrap();
    }
}

/// Runs the query once, somewhere in the container. The same number is the same place in every run.
pub async fn run(
    database: &Database,
    shape: &Shape,
    count: u64,
    number: u64,
    without_index: bool,
) -> QueryPage {
    let at = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % count;
    // The last items have fewer than ten behind them.
    let score = at.min(count - 20);
    let request = QueryRequest {
        text: shape.text.to_owned(),
        parameters: vec![
            ("@customer".to_owned(), Value::from(i64::try_from(at / PER_CUSTOMER).unwrap())),
            ("@score".to_owned(), Value::from(i64::try_from(score).unwrap())),
        ],
        resume_filter: None,
    };
    let key = format!("[\"p{}\"]", at / PER_KEY);
    let scope = FeedScope {
        partition_key: shape.in_one_key.then(|| PartitionKey::parse_json(key.as_bytes()).unwrap()),
        ..FeedScope::default()
    };
    let page = PageRequest { items_max: Some(-1), continuation: None };
    let options =
        QueryOptions { scope, page, cross_partition: true, without_index, ..QueryOptions::default() };
    let page = database.query_items(&mut Receipt::default(), PLACE, &options, &request).await.unwrap();
    assert!(page.continuation.is_none(), "the whole result is in one page");
    page
}
