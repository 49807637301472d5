//! What the language costs: reading a text, planning it, testing a document, and whole pipelines.

#![allow(clippy::pedantic, clippy::unwrap_used, reason = "this is a tool for developers")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::{Value, value};
use orrery_query::compile::Settings;
use orrery_query::context::{Context, Policies, Random};
use orrery_query::pipeline::{Options, Pipeline, Row};
use orrery_query::plan::{Features, PlanRequest, plan};
use orrery_query::{Program, check, parse_condition};

const TEXTS: [(&str, &str); 4] = [
    ("point", "SELECT * FROM c WHERE c.pk = 'a' AND c.id = 'b'"),
    (
        "order",
        "SELECT TOP 10 c.id, c.score FROM c WHERE c.score > 100 AND STARTSWITH(c.name, 'a') ORDER BY c.score DESC",
    ),
    (
        "group",
        "SELECT c.category, COUNT(1) AS n, SUM(c.score) AS sum FROM c WHERE c.tags != null GROUP BY c.category",
    ),
    (
        "join",
        "SELECT VALUE {name: t.name, size: ARRAY_LENGTH(c.tags)} FROM c JOIN t IN c.tags WHERE EXISTS(SELECT VALUE x FROM x IN c.tags WHERE x.name = t.name)",
    ),
];
const NOW_MS: i64 = 1_700_000_000_000;

fn document(number: u64) -> Value {
    let filler = "x".repeat(600);
    let text = format!(
        r#"{{"id":"{number}","pk":"p{}","name":"name {number}","category":{},"score":{number},"tags":[{{"name":"a"}},{{"name":"b"}},{{"name":"c"}}],"filler":"{filler}"}}"#,
        number / 100,
        number % 50,
    );
    value::parse(text.as_bytes()).unwrap()
}

fn many_keys(count: usize) -> String {
    let terms: Vec<String> =
        (0..count).map(|number| format!("(c.id = 'i{number}' AND c.pk = 'p{number}')")).collect();
    format!("SELECT * FROM c WHERE ({})", terms.join(" OR "))
}

fn briefly<'c>(criterion: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    group
}

fn parsing(criterion: &mut Criterion) {
    let mut group = briefly(criterion, "parse");
    for (name, text) in TEXTS {
        group.bench_function(name, |bencher| bencher.iter(|| check::parse(black_box(text)).unwrap()));
    }
    let many = many_keys(1000);
    group.bench_function("thousand keys", |bencher| bencher.iter(|| check::parse(black_box(&many)).unwrap()));
}

fn planning(criterion: &mut Criterion) {
    let definition = PartitionKeyDefinition::with_paths(&["/pk"]).unwrap();
    let policies = Policies::default();
    let request = PlanRequest {
        parameters: &[],
        definition: Some(&definition),
        policies: &policies,
        computed: &[],
        features: Features::ALL,
    };
    let mut group = briefly(criterion, "plan");
    for (name, text) in TEXTS {
        group.bench_function(name, |bencher| bencher.iter(|| plan(black_box(text), request).unwrap()));
    }
    let many = many_keys(1000);
    group
        .bench_function("thousand keys", |bencher| bencher.iter(|| plan(black_box(&many), request).unwrap()));
}

fn filters(criterion: &mut Criterion) {
    let (random, policies) = (Random::new(1), Policies::default());
    let context = Context::new(NOW_MS, &random, &policies);
    let item = document(7);
    let mut group = briefly(criterion, "filter");
    for (name, condition) in [
        ("equality", "FROM c WHERE c.category = 7"),
        ("range and prefix", "FROM c WHERE c.score BETWEEN 1 AND 100 AND STARTSWITH(c.name, 'na')"),
        ("regular expression", "FROM c WHERE RegexMatch(c.name, '^name [0-9]+$')"),
        ("array", "FROM c WHERE ARRAY_CONTAINS(c.tags, {name: 'c'}, true)"),
    ] {
        let condition = parse_condition(condition).unwrap();
        assert!(condition.holds(&item, &context), "{name}");
        group.bench_function(name, |bencher| bencher.iter(|| condition.holds(black_box(&item), &context)));
    }
}

fn pipelines(criterion: &mut Criterion) {
    let (random, policies) = (Random::new(1), Policies::default());
    let context = Context::new(NOW_MS, &random, &policies);
    let documents: Vec<Value> = (0..1000).map(document).collect();
    let mut group = briefly(criterion, "pipeline over 1000 documents");
    for (name, text) in TEXTS {
        let settings = Settings { parameters: &[], computed: &[], policies: &policies };
        let program = Arc::new(Program::compile(&check::parse(text).unwrap(), settings).unwrap());
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut pipeline = Pipeline::new(Arc::clone(&program), Options::default());
                for (ordinal, document) in (0..).zip(&documents) {
                    pipeline.feed(Row { document, ordinal, text_bytes: 0 }, &context).unwrap();
                }
                pipeline.finish(&context).unwrap();
                pipeline.take()
            });
        });
    }
}

criterion_group!(benches, parsing, planning, filters, pipelines);
criterion_main!(benches);
