//! Pages, places to resume from, bounds, and the hash of values.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::pedantic, reason = "tests may be blunt")]

mod common;

use common::{NOW_MS, Setup, cases, compile, json, run, run_with, text};
use orrery_model::{Object, Value, value};
use orrery_query::context::{Context, Interrupt, Policies, Random, Work};
use orrery_query::error::EvalError;
use orrery_query::filter::{IndexCondition, Test, index_condition};
use orrery_query::pipeline::{Options, Pipeline, ResumePoint, Row, Shape};
use orrery_query::{order, parse_condition};

fn parse(text: &str) -> Value {
    value::parse(text.as_bytes()).unwrap()
}

fn no_setup() -> Setup<'static> {
    Setup::of(&Object::new().into())
}

/// Documents with ties, missing values and every type.
fn documents() -> Vec<Value> {
    let keys = [
        "1",
        "2",
        "1",
        "null",
        "\"b\"",
        "\"a\"",
        "true",
        "false",
        "[1]",
        "{\"x\":1}",
        "[2]",
        "1",
        "-5",
        "\"b\"",
        "{}",
    ];
    let mut documents: Vec<Value> = keys
        .iter()
        .enumerate()
        .map(|(number, key)| {
            parse(&format!(r#"{{"id":"{number}","k":{key},"n":{},"tags":[1,2]}}"#, number % 3))
        })
        .collect();
    documents.push(parse(r#"{"id":"u1","n":1,"tags":[]}"#));
    documents.push(parse(r#"{"id":"u2","n":0,"tags":[3]}"#));
    documents
}

#[test]
fn shapes_tell_how_to_resume() {
    let shape =
        |query: &str| compile(query, &no_setup()).map_err(|failure| failure.message()).unwrap().shape();
    assert_eq!(shape("SELECT 1"), Shape::Once);
    assert_eq!(shape("SELECT TOP 5 * FROM c WHERE c.x = 1"), Shape::Stream);
    assert_eq!(shape("SELECT t FROM c JOIN t IN c.tags"), Shape::Stream);
    assert_eq!(shape("SELECT * FROM c ORDER BY c.x"), Shape::Sort);
    assert_eq!(shape("SELECT DISTINCT c.x FROM c"), Shape::Collect { incremental: true });
    assert_eq!(shape("SELECT VALUE COUNT(1) FROM c"), Shape::Collect { incremental: false });
    assert_eq!(
        shape("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.x FROM c)"),
        Shape::Collect { incremental: false }
    );
    assert_eq!(
        shape("SELECT TOP 1 * FROM c ORDER BY RANK FullTextScore(c.t, 'x')"),
        Shape::Collect { incremental: false }
    );
}

/// Reads a sorted query page by page.
fn pages(query: &str, documents: &[Value], page_rows: usize) -> Vec<Value> {
    let setup = no_setup();
    let program = compile(query, &setup).map_err(|failure| failure.message()).unwrap();
    let random = Random::new(1);
    let context = Context::new(NOW_MS, &random, &setup.policies);
    let mut rows = Vec::new();
    let mut options = Options { page_rows: Some(page_rows), ..Options::default() };
    for _ in 0..100 {
        let mut pipeline = Pipeline::new(program.clone(), options);
        for (ordinal, document) in documents.iter().enumerate() {
            pipeline.feed(Row { document, ordinal: ordinal as u64, text_bytes: 0 }, &context).unwrap();
        }
        pipeline.finish(&context).unwrap();
        let more = pipeline.has_more();
        let passed = pipeline.passed();
        let page = pipeline.take();
        assert!(page.len() <= page_rows);
        let Some(last) = page.last().cloned() else { return rows };
        rows.extend(page.into_iter().map(|output| output.value));
        if !more {
            return rows;
        }
        options = Options {
            page_rows: Some(page_rows),
            resume: last.position.into_iter().collect(),
            passed,
            ..Options::default()
        };
    }
    panic!("endless");
}

#[test]
fn sorted_pages_add_up() {
    let documents = documents();
    for query in [
        "SELECT c.id FROM c ORDER BY c.k",
        "SELECT c.id FROM c ORDER BY c.k DESC",
        "SELECT c.id FROM c ORDER BY c.n, c.k DESC",
        "SELECT c.id, t FROM c JOIN t IN c.tags ORDER BY c.n DESC",
        "SELECT VALUE c.k FROM c ORDER BY c.n",
        "SELECT TOP 7 c.id FROM c ORDER BY c.k",
        "SELECT c.id FROM c ORDER BY c.k OFFSET 3 LIMIT 6",
        "SELECT c.id FROM c ORDER BY c.k OFFSET 5 LIMIT 100",
    ] {
        let whole = run(query, &documents, &no_setup()).map_err(|failure| failure.message()).unwrap();
        for page_rows in [1, 2, 3, 5, 100] {
            assert_eq!(json(&pages(query, &documents, page_rows)), json(&whole), "{query} by {page_rows}");
        }
    }
}

#[test]
fn collected_pages_add_up() {
    let documents = documents();
    for query in [
        "SELECT DISTINCT VALUE c.n FROM c",
        "SELECT c.n, COUNT(1) AS count FROM c GROUP BY c.n",
        "SELECT DISTINCT TOP 5 VALUE c.k FROM c ORDER BY c.k",
        "SELECT c.k FROM c GROUP BY c.k OFFSET 2 LIMIT 5",
        "SELECT VALUE x FROM x IN (SELECT VALUE [1, 2, 3, 4])",
    ] {
        let whole = run(query, &documents, &no_setup()).map_err(|failure| failure.message()).unwrap();
        for page_rows in [1, 2, 3] {
            let mut rows = Vec::new();
            let mut passed = 0;
            loop {
                let options = Options { passed, ..Options::default() };
                let page = run_with(query, &documents, &no_setup(), options)
                    .map_err(|failure| failure.message())
                    .unwrap();
                let Some(last) = page.iter().take(page_rows).next_back() else { break };
                passed = last.passed;
                rows.extend(page.into_iter().take(page_rows).map(|output| output.value));
            }
            assert_eq!(json(&rows), json(&whole), "{query} by {page_rows}");
        }
    }
}

#[test]
fn large_rows_make_short_pages() {
    let text = "x".repeat(3 << 20);
    let documents: Vec<Value> =
        (0..12).map(|n| parse(&format!(r#"{{"id":"{n}","k":{},"t":"{text}"}}"#, (n * 7) % 12))).collect();
    let query = "SELECT c.k, c.t FROM c ORDER BY c.k";
    let rows = pages(query, &documents, 100);
    let keys: Vec<i64> = rows.iter().map(|row| row.get("k").unwrap().as_i64().unwrap()).collect();
    assert_eq!(keys, (0..12).collect::<Vec<_>>());
}

#[test]
fn values_are_bounded() {
    let document = parse(&format!(r#"{{"t":"{}"}}"#, "x".repeat(1 << 20)));
    let listed = vec!["c.t"; 100].join(", ");
    for query in [
        format!("SELECT VALUE [{listed}] FROM c"),
        format!("SELECT VALUE {} FROM c", vec!["c.t"; 100].join(" || ")),
        "SELECT VALUE z FROM c JOIN (SELECT VALUE [c, c, c, c, c, c]) x JOIN (SELECT VALUE [x, x, x, x, x, x]) z".to_owned(),
    ] {
        let failure = run(&query, std::slice::from_ref(&document), &no_setup()).unwrap_err();
        assert!(failure.message().contains("more than allowed"), "{}", failure.message());
    }
}

#[test]
fn resume_filters_are_applied() {
    let documents = documents();
    let ordinal = |rid: &str| rid.parse().ok();
    let after = |query: &str, filter: &str| {
        let resume = ResumePoint::parse(&parse(filter), ordinal).unwrap();
        let options = Options { resume: vec![resume], ..Options::default() };
        let rows =
            run_with(query, &documents, &no_setup(), options).map_err(|failure| failure.message()).unwrap();
        rows.into_iter().map(|row| row.value.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let query = "SELECT VALUE c.id FROM c WHERE IS_NUMBER(c.k) ORDER BY c.k";
    assert_eq!(after(query, r#"{"value":[1],"rid":"2","exclude":true}"#), ["11", "1"]);
    assert_eq!(after(query, r#"{"value":[1],"rid":"2","exclude":false}"#), ["2", "11", "1"]);
    assert_eq!(after(query, r#"{"value":[1]}"#), ["0", "2", "11", "1"]);
    // Without a document all rows with these values are left out.
    assert_eq!(after(query, r#"{"value":[1],"exclude":true}"#), ["1"]);
    assert_eq!(after(query, r#"{"value":[[]]}"#), ["12", "0", "2", "11", "1"]);
    // Arrays and objects are found by the hash that clients compute.
    let hash = order::hash(&parse("[1]"));
    let filter = format!(
        r#"{{"value":[{{"type":"array","low":{},"high":{}}}],"rid":"8","exclude":false}}"#,
        hash as i64,
        (hash >> 64) as i64
    );
    let all = "SELECT VALUE c.id FROM c ORDER BY c.k";
    let from_array = after(all, &filter);
    assert_eq!(from_array[0], "8");
    assert!(!from_array.contains(&"0".to_owned()) && from_array.contains(&"9".to_owned()));
    assert!(ResumePoint::parse(&parse(r#"{"value":[[1]]}"#), ordinal).is_none());
    assert!(ResumePoint::parse(&parse(r#"{"value":[1],"rid":"no"}"#), ordinal).is_none());
}

#[test]
fn streams_resume_inside_a_document() {
    let documents = documents();
    let query = "SELECT VALUE {i: c.id, t: t} FROM c JOIN t IN c.tags OFFSET 1 LIMIT 9";
    let whole = run_with(query, &documents, &no_setup(), Options::default())
        .map_err(|failure| failure.message())
        .unwrap();
    let first = &whole[..4];
    let last = &first[3];
    let at = usize::try_from(last.input).unwrap();
    let options = Options { passed: last.passed, skip_rows: last.row + 1, ..Options::default() };
    let rest =
        run_with(query, &documents[at..], &no_setup(), options).map_err(|failure| failure.message()).unwrap();
    let values = |rows: &[orrery_query::pipeline::Output]| {
        rows.iter().map(|row| row.value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(json(&[values(first), values(&rest)].concat()), json(&values(&whole)));
}

#[test]
fn state_is_bounded() {
    let setup = no_setup();
    let random = Random::new(1);
    let context = Context::new(NOW_MS, &random, &setup.policies);
    for query in
        ["SELECT DISTINCT c.x FROM c", "SELECT c.x FROM c GROUP BY c.x", "SELECT VALUE MAKELIST(c.x) FROM c"]
    {
        let mut pipeline = Pipeline::new(
            compile(query, &setup).map_err(|failure| failure.message()).unwrap(),
            Options::default(),
        );
        let mut failed = None;
        for number in 0..500_001 {
            let mut object = Object::new();
            object.set("x", Value::from(number));
            let document = Value::from(object);
            if let Err(error) =
                pipeline.feed(Row { document: &document, ordinal: 0, text_bytes: 0 }, &context)
            {
                failed = Some(error);
                break;
            }
        }
        assert_eq!(failed, Some(EvalError::StateTooLarge { limit: 500_000 }), "{query}");
    }
}

#[test]
fn work_is_bounded() {
    let setup = no_setup();
    let random = Random::new(1);
    let work = Work::new(10_000);
    let context = Context::new(NOW_MS, &random, &setup.policies).with_work(&work);
    let joins: String = (0..10).map(|n| format!(" JOIN x{n} IN c.a")).collect();
    let program = compile(&format!("SELECT VALUE COUNT(1) FROM c{joins}"), &setup)
        .map_err(|failure| failure.message())
        .unwrap();
    let document = parse(&format!(r#"{{"a":[{}]}}"#, vec!["1"; 1000].join(",")));
    let mut pipeline = Pipeline::new(program, Options::default());
    assert_eq!(
        pipeline.feed(Row { document: &document, ordinal: 0, text_bytes: 0 }, &context),
        Err(EvalError::WorkExceeded)
    );
}

/// Lets an evaluation go on for some time, and notes how long it went without asking.
struct Patience {
    state: std::sync::Mutex<(std::time::Instant, std::time::Duration)>,
    ends_at: std::time::Instant,
}

impl Patience {
    fn new(time: std::time::Duration) -> Self {
        let now = std::time::Instant::now();
        Self { state: std::sync::Mutex::new((now, std::time::Duration::ZERO)), ends_at: now + time }
    }

    fn note(&self) -> std::time::Duration {
        let mut state = self.state.lock().unwrap();
        let waited = state.0.elapsed();
        *state = (std::time::Instant::now(), state.1.max(waited));
        state.1
    }
}

impl Interrupt for Patience {
    fn check(&self) -> Result<(), EvalError> {
        self.note();
        if std::time::Instant::now() > self.ends_at { Err(EvalError::TimedOut) } else { Ok(()) }
    }
}

/// Whatever makes a query slow, it asks often whether it may go on, and ends when it may not.
#[test]
fn slow_queries_can_be_interrupted() {
    let setup = no_setup();
    let random = Random::new(1);
    let numbers = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let long = "a".repeat(400_000);
    let texts = vec![format!("\"{}\"", "ab".repeat(500)); 900].join(",");
    let rows = vec!["1"; 2000].join(",");
    let document = parse(&format!(
        r#"{{"s":"{long}","n":[{}],"t":[{texts}],"r":[{rows}],"words":"{}"}}"#,
        numbers(60_000),
        "word ".repeat(60_000)
    ));
    let terms = (0..3000).map(|n| format!("{{\"term\":\"wurd{n}\",\"distance\":2}}")).collect::<Vec<_>>();
    for query in [
        "SELECT VALUE RegexMatch(c.s, '(?=a*b)x') FROM c".to_owned(),
        "SELECT VALUE RegexMatch(c.s, '(a*)b\\\\1') FROM c".to_owned(),
        "SELECT VALUE RegexMatch(c.s, 'x(?!y)|(?<=b)a*b') FROM c".to_owned(),
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.n WHERE ARRAY_CONTAINS(c.n, -x)".to_owned(),
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.n WHERE EXISTS(SELECT VALUE y FROM y IN c.n WHERE y = -x)"
            .to_owned(),
        format!("SELECT VALUE ARRAY_CONTAINS_ALL(c.n, {}) FROM c", vec!["59999"; 40_000].join(",")),
        format!("SELECT VALUE c.s LIKE '%{}b' FROM c", "a".repeat(3000)),
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.n WHERE CONTAINS(c.s, CONCAT('b', ToString(x)))".to_owned(),
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.n WHERE UPPER(c.s) = LOWER(c.s)".to_owned(),
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.t JOIN y IN c.t JOIN z IN c.r WHERE x != y".to_owned(),
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.n WHERE ARRAY_LENGTH(SetUnion(c.n, c.n)) = 0".to_owned(),
        format!("SELECT VALUE FullTextContainsAny(c.words, {}) FROM c", terms.join(",")),
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.n WHERE ARRAY_LENGTH([c.n, c.n]) = 0".to_owned(),
    ] {
        let time = std::time::Duration::from_millis(500);
        let patience = Patience::new(time);
        let work = Work::new(u64::MAX).with_interrupt(&patience);
        let context = Context::new(NOW_MS, &random, &setup.policies).with_work(&work);
        let program = compile(&query, &setup).map_err(|failure| failure.message()).unwrap();
        let mut pipeline = Pipeline::new(program, Options::default());
        let started = std::time::Instant::now();
        let fed = pipeline.feed(Row { document: &document, ordinal: 0, text_bytes: 0 }, &context);
        let shown = &query[..query.len().min(100)];
        // Some end in their own way before.
        let ended = fed == Err(EvalError::TimedOut) || started.elapsed() < time * 2;
        assert!(ended, "{shown} {fed:?} {:?}", started.elapsed());
        let longest = patience.note();
        assert!(longest < std::time::Duration::from_secs(5), "{shown} did not ask for {longest:?}");
    }
}

/// Look-around and back references in texts that are tried place by place.
#[test]
fn long_texts_match_like_short_ones() {
    let setup = no_setup();
    let random = Random::new(1);
    let (much, more) = ("ab ".repeat(2000), "é".repeat(3000));
    for (text, pattern, expected) in [
        (format!("{much}xy"), "(?<=x)y", true),
        (format!("{much}xy"), "(?<!x)y", false),
        (format!("{much}foobar"), "foo(?!bar)", false),
        (format!("{much}foobaz{much}"), "foo(?!bar)", true),
        (format!("{much}cc"), "([a-z])\\1", true),
        (much.clone(), "([a-z])\\1", false),
        (much.clone(), "^(?=b)", false),
        (much.clone(), "^(?=a)", true),
        (format!("{much}z"), "(?=z)z$", true),
        (format!("{much}z "), "(?=z)z$", false),
        (format!("{more}x"), "(?<=é)x", true),
        (more.clone(), "(?<=x)é", false),
        (more.clone(), "(?!é)$", true),
        (format!("{much}c"), "(?:(?!c).)*c", true),
        (format!("{much}1"), "(?=.*[0-9])(?=.*[a-z])1", false),
        (format!("{much}1a"), "(?=.*[0-9])(?=.*[a-z])1", true),
    ] {
        let mut row = Object::new();
        row.set("s", Value::from(text.as_str()));
        row.set("p", Value::from(pattern));
        let document = Value::from(row);
        let query = "SELECT VALUE RegexMatch(c.s, c.p) FROM c";
        let program = compile(query, &setup).map_err(|failure| failure.message()).unwrap();
        let context = Context::new(NOW_MS, &random, &setup.policies);
        let mut pipeline = Pipeline::new(program, Options::default());
        pipeline.feed(Row { document: &document, ordinal: 0, text_bytes: 0 }, &context).unwrap();
        let found: Vec<Value> = pipeline.take().into_iter().map(|output| output.value).collect();
        assert_eq!(found, [Value::from(expected)], "{pattern} in {} bytes", text.len());
    }
}

/// Steps are in proportion to the work.
#[test]
fn steps_grow_with_the_work() {
    let setup = no_setup();
    let random = Random::new(1);
    let steps = |query: &str, count: usize| {
        let numbers = (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let document = parse(&format!(r#"{{"n":[{numbers}],"s":"{}"}}"#, "a".repeat(count)));
        let work = Work::new(u64::MAX);
        let context = Context::new(NOW_MS, &random, &setup.policies).with_work(&work);
        let program = compile(query, &setup).map_err(|failure| failure.message()).unwrap();
        let mut pipeline = Pipeline::new(program, Options::default());
        pipeline.feed(Row { document: &document, ordinal: 0, text_bytes: 0 }, &context).unwrap();
        work.steps()
    };
    for (query, factor) in [
        ("SELECT VALUE COUNT(1) FROM c JOIN x IN c.n", 2),
        ("SELECT VALUE CONTAINS(c.s, 'b') FROM c", 2),
        ("SELECT VALUE ARRAY_CONTAINS(c.n, -1) FROM c", 2),
        ("SELECT VALUE COUNT(1) FROM c JOIN x IN c.n WHERE ARRAY_CONTAINS(c.n, -x)", 4),
        ("SELECT VALUE RegexMatch(c.s, '(?=a*b)x') FROM c", 4),
    ] {
        let (small, large) = (steps(query, 2000), steps(query, 4000));
        let expected = small * factor;
        assert!(large.abs_diff(expected) < expected / 4, "{query}: {small} then {large}");
    }
    // An ordinary filter takes a few steps.
    assert!(steps("SELECT * FROM c WHERE c.x = 1 AND c.y > 2 OR c.z != 3", 10) < 20);
}

#[test]
fn top_stops_early_and_keeps_little() {
    let setup = no_setup();
    let random = Random::new(1);
    let context = Context::new(NOW_MS, &random, &setup.policies);
    let documents = documents();
    let mut pipeline = Pipeline::new(
        compile("SELECT TOP 2 * FROM c", &setup).map_err(|failure| failure.message()).unwrap(),
        Options::default(),
    );
    let mut fed = 0;
    for document in &documents {
        if pipeline.is_done() {
            break;
        }
        pipeline.feed(Row { document, ordinal: 0, text_bytes: 0 }, &context).unwrap();
        fed += 1;
    }
    assert_eq!((fed, pipeline.ready()), (2, 2));
}

/// The deepest text of each kind that is accepted also compiles, runs, plans and prints on a small
/// stack.
#[test]
fn deepest_expressions_evaluate() {
    let document = parse(r#"{"x":-1,"a":[1],"s":"x"}"#);
    for (open, close) in [
        ("ABS(", ")"),
        ("[", "]"),
        ("{k: ", "}"),
        ("1 + (", ")"),
        ("(", ") + 1"),
        ("- ", ""),
        ("NOT ", ""),
        ("true ? ", " : 1"),
        ("1 ?? (", ")"),
        ("c.x IN (", ")"),
        ("c.s LIKE (", ")"),
        ("c.x BETWEEN 1 AND (", ")"),
        ("true AND (false OR ", ")"),
        ("(SELECT VALUE ", ")"),
        ("(SELECT VALUE t FROM t IN ARRAY(SELECT VALUE ", "))"),
        ("EXISTS(SELECT VALUE 1 WHERE ", ")"),
        ("ARRAY(SELECT VALUE t FROM t IN c.a JOIN (SELECT VALUE ", ") u)"),
        ("udf.f(", ")"),
    ] {
        let text =
            |count: usize| format!("SELECT VALUE {}c.x{} FROM c", open.repeat(count), close.repeat(count));
        let Some(count) = (1..200).rev().find(|count| orrery_query::check::parse(&text(*count)).is_ok())
        else {
            continue;
        };
        let query = text(count);
        let _ = run(&query, std::slice::from_ref(&document), &no_setup());
        let setup = no_setup();
        let request = orrery_query::plan::PlanRequest {
            parameters: &setup.parameters,
            definition: None,
            policies: &setup.policies,
            computed: &[],
            features: orrery_query::plan::Features::ALL,
        };
        let _ = orrery_query::plan::plan(&query, request);
        let filter = format!("SELECT * FROM c WHERE {}c.x{}", open.repeat(count), close.repeat(count));
        let _ = run(&filter, std::slice::from_ref(&document), &no_setup());
    }
    let nested =
        |count: usize| format!("SELECT VALUE {}c.x{} FROM c", "ABS(".repeat(count), ")".repeat(count));
    let rows =
        run(&nested(120), std::slice::from_ref(&document), &no_setup()).map_err(|failure| failure.message());
    assert_eq!(json(&rows.unwrap()), "[1]");
    let nested = format!("SELECT VALUE {}c.x{} FROM c", "(SELECT VALUE ".repeat(15), ")".repeat(15));
    let rows = run(&nested, &[document], &no_setup()).map_err(|failure| failure.message());
    assert_eq!(json(&rows.unwrap()), "[-1]");
}

#[test]
fn conditions_are_evaluated() {
    let random = Random::new(1);
    let policies = Policies::default();
    let context = Context::new(NOW_MS, &random, &policies);
    let item = parse(r#"{"id":"1","state":"open","n":3}"#);
    let holds = |text: &str| parse_condition(text).unwrap().holds(&item, &context);
    assert!(holds("from c where c.state = 'open' AND c.n < 5"));
    assert!(!holds("FROM c WHERE c.state = 'closed'"));
    assert!(!holds("from item where item.missing = 1"));
    assert!(holds("where true"));
    assert!(holds("from c"));
    for bad in [
        "",
        "select * from c",
        "from c where",
        "from c where d.x = 1",
        "from c join d in c.x where true",
        "from c.x where true",
        "where c.x = 1",
    ] {
        assert!(parse_condition(bad).is_err(), "{bad}");
    }
}

#[test]
fn hashes_match_those_of_clients() {
    let cases = cases("data/distinct-hash.json");
    assert_eq!(cases.len(), 36);
    let mut compared = 0;
    for case in &cases {
        // Values of extended types have no JSON text.
        let Ok(value) = value::parse(text(case, "value").as_bytes()) else { continue };
        let bytes = order::hash(&value).to_be_bytes();
        let hash: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(hash, text(case, "hash"), "{}", text(case, "value"));
        compared += 1;
    }
    assert_eq!(compared, 18);
}

fn condition(filter: &str) -> IndexCondition {
    let setup = no_setup();
    let random = Random::new(1);
    let context = Context::new(NOW_MS, &random, &setup.policies);
    let program = compile(&format!("SELECT * FROM c WHERE {filter}"), &setup)
        .map_err(|failure| failure.message())
        .unwrap();
    index_condition(&program, &context)
}

fn show(condition: &IndexCondition) -> String {
    match condition {
        IndexCondition::All => "all".into(),
        IndexCondition::None => "none".into(),
        IndexCondition::And(parts) => format!("({})", parts.iter().map(show).collect::<Vec<_>>().join(" & ")),
        IndexCondition::Or(parts) => format!("({})", parts.iter().map(show).collect::<Vec<_>>().join(" | ")),
        IndexCondition::Term { path, test, exact } => {
            let test = match test {
                Test::Equal(value) => format!("= {}", value.to_json()),
                Test::NotEqual(value) => format!("!= {}", value.to_json()),
                Test::In(values) => format!("in {}", json(values)),
                Test::Range { low, high } => {
                    let low = low.as_ref().map_or(String::new(), |bound| {
                        format!("{}{}", if bound.inclusive { "[" } else { "(" }, bound.value.to_json())
                    });
                    let high = high.as_ref().map_or(String::new(), |bound| {
                        format!("{}{}", bound.value.to_json(), if bound.inclusive { "]" } else { ")" })
                    });
                    format!("{low}..{high}")
                }
                Test::Prefix(prefix) => format!("{prefix}*"),
                Test::StringScan => "scan".into(),
                Test::Type(kind) => format!("{kind:?}"),
            };
            format!("{path} {test}{}", if *exact { "" } else { "?" })
        }
    }
}

#[test]
fn filters_become_index_conditions() {
    let check = |filter: &str, expected: &str| assert_eq!(show(&condition(filter)), expected, "{filter}");
    check("c.a = 1", "/a = 1");
    check("1 < c.a.b", "/a/b (1..");
    check("c.a = 1 AND c.b > 2", "(/a = 1 & /b (2..)");
    check("c.a = 1 AND UPPER(c.b) = 'X'", "/a = 1?");
    check("c.a = 1 OR UPPER(c.b) = 'X'", "all");
    check("c.a = 1 OR c.b = 2", "(/a = 1 | /b = 2)");
    check("c.a IN (1, 2)", "/a in [1,2]");
    check("NOT (c.a = 1 OR c.b = 2)", "(/a != 1 & /b != 2)");
    check("NOT c.a", "/a = false");
    check("c.a BETWEEN 1 AND 5", "/a [1..5]");
    check("c.a BETWEEN 1 AND 'x'", "none");
    check("STARTSWITH(c.a, 'ab')", "/a ab*");
    check("STARTSWITH(c.a, 'ab', true)", "/a scan?");
    check("c.a LIKE 'ab%'", "/a ab*");
    check("c.a LIKE 'ab%c'", "/a ab*?");
    check("c.a LIKE 'abc'", "/a = \"abc\"");
    check("c.a LIKE '%c'", "/a scan?");
    check("ARRAY_CONTAINS(c.tags, 'x')", "/tags/[] = \"x\"?");
    check("ARRAY_CONTAINS(['x', 'y'], c.a)", "/a in [\"x\",\"y\"]");
    check("EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.n = 1)", "(/tags Array? & /tags/[]/n = 1?)");
    check("IS_DEFINED(c.a)", "/a Defined");
    check("NOT IS_DEFINED(c.a)", "/a NotDefined");
    check("c[\"odd name\"] = 1", "/\"odd name\" = 1");
    check("c.ts > GETCURRENTTIMESTAMPSTATIC()", "/ts (1767225600000..");
    check("false", "none");
    check("c.a = undefined", "none");
    check("c.a > [1]", "none");
}

#[test]
fn joined_filters_become_index_conditions() {
    let setup = no_setup();
    let random = Random::new(1);
    let context = Context::new(NOW_MS, &random, &setup.policies);
    let program = compile("SELECT t FROM c JOIN t IN c.tags WHERE t.n = 1 AND c.x = 2", &setup)
        .map_err(|failure| failure.message())
        .unwrap();
    assert_eq!(show(&index_condition(&program, &context)), "(/tags Array? & /tags/[]/n = 1? & /x = 2?)");
}

#[test]
fn runs_can_move_between_threads() {
    fn check<T: Send>() {}
    fn share<T: Send + Sync>() {}
    check::<Pipeline>();
    share::<orrery_query::Program>();
    share::<Context<'_>>();
}

/// The caller keeps the documents of rows that are being sorted: it hears which, and they count as what they are.
#[test]
fn sorted_documents_left_to_the_caller_have_a_bound() {
    let (documents, setup, random) = (documents(), no_setup(), Random::new(1));
    let context = Context::new(NOW_MS, &random, &setup.policies);
    let program =
        compile("SELECT * FROM c ORDER BY c.id", &setup).map_err(|failure| failure.message()).unwrap();
    let options = Options { documents_by_reference: true, page_rows: Some(10), ..Options::default() };
    let text_bytes = orrery_query::limits::SORTED_PAGE_BYTES_MAX / 3;
    let mut pipeline = Pipeline::new(program, options);
    for (ordinal, document) in documents.iter().enumerate().rev() {
        pipeline.feed(Row { document, ordinal: ordinal as u64, text_bytes }, &context).unwrap();
        let is_kept = pipeline.kept_inputs().any(|input| input + 1 == pipeline.fed());
        assert_eq!(pipeline.keeps_last(), is_kept);
        assert!(pipeline.kept_inputs().count() <= 3);
    }
    let mut kept: Vec<u64> = pipeline.kept_inputs().collect();
    pipeline.finish(&context).unwrap();
    assert!(pipeline.has_more());
    let rows = pipeline.take();
    assert!(rows.len() < 10 && rows.iter().all(|row| row.value == Value::Null));
    let mut inputs: Vec<u64> = rows.iter().map(|row| row.input).collect();
    kept.sort_unstable();
    inputs.sort_unstable();
    assert_eq!(inputs, kept);
}

#[test]
fn whole_documents_can_be_left_to_the_caller() {
    let documents = documents();
    let options = Options { documents_by_reference: true, ..Options::default() };
    let rows = run_with("SELECT * FROM c WHERE c.n = 2", &documents, &no_setup(), options.clone());
    let rows = rows.map_err(|failure| failure.message()).unwrap();
    let inputs: Vec<u64> = rows.iter().map(|row| row.input).collect();
    assert_eq!(inputs, [2, 5, 8, 11, 14]);
    assert!(rows.iter().all(|row| row.value == Value::Null));
    for query in
        ["SELECT c.id FROM c", "SELECT DISTINCT * FROM c", "SELECT * FROM c.tags", "SELECT VALUE c FROM c"]
    {
        let rows = run_with(query, &documents, &no_setup(), options.clone())
            .map_err(|failure| failure.message())
            .unwrap();
        assert!(rows.iter().all(|row| row.value != Value::Null), "{query}");
    }
}

/// Only the outermost FROM subquery can see all documents together. What is planned, as in the service, and cannot be
/// executed is an error, with documents and without.
#[test]
fn from_subqueries_that_collect_further_inside_are_refused() {
    let over_all = "SELECT VALUE 1 FROM (SELECT VALUE COUNT(1) FROM c) AS n";
    let in_a_document = "SELECT VALUE n FROM c JOIN (SELECT VALUE d FROM (SELECT DISTINCT VALUE t FROM t IN c.tags) AS d) AS n";
    for query in [over_all, in_a_document] {
        compile(query, &no_setup()).map_err(|failure| failure.message()).unwrap();
        assert!(!run(query, &documents(), &no_setup()).unwrap().is_empty(), "{query}");
    }
    for query in [
        "SELECT VALUE 1 FROM (SELECT VALUE c FROM (SELECT VALUE COUNT(1) FROM c) AS c) AS c",
        "SELECT VALUE 1 FROM (SELECT VALUE d FROM (SELECT DISTINCT VALUE c.k FROM c) AS d) AS e",
    ] {
        compile(query, &no_setup()).map_err(|failure| failure.message()).unwrap();
        for documents in [documents(), Vec::new()] {
            let failure = run(query, &documents, &no_setup()).unwrap_err();
            assert!(
                failure.message().contains("outermost FROM subquery only"),
                "{query}: {}",
                failure.message()
            );
        }
    }
}
