//! Every operator and function counts its work: however large its operands, and however often a join repeats it, an
//! evaluation asks at short intervals whether it may go on.
//!
//! Time is the thread's own CPU time, so that a busy machine does not matter.
#![allow(clippy::unwrap_used, clippy::pedantic, reason = "tests may be blunt")]
#![cfg(unix)]

mod common;

use std::time::Duration;

use common::{NOW_MS, Setup, compile};
use orrery_model::{Object, Value, value};
use orrery_query::context::{Context, Interrupt, Random, Work};
use orrery_query::error::EvalError;
use orrery_query::functions;
use orrery_query::pipeline::{Options, Pipeline, Row};

/// The longest that an evaluation may run without asking. Optimised code needs a fraction of it.
const LONGEST: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1500 } else { 150 });

/// Ends the evaluation the first time it asks.
struct EndAtOnce;

impl Interrupt for EndAtOnce {
    fn check(&self) -> Result<(), EvalError> {
        Err(EvalError::TimedOut)
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// An item of nearly two megabytes that has something large of every type.
fn document() -> Value {
    let join =
        |count: usize, text: &dyn Fn(usize) -> String| (0..count).map(text).collect::<Vec<_>>().join(",");
    let numbers = join(20_000, &|n| n.to_string());
    let members = join(8_000, &|n| format!("\"member{n}\":{n}"));
    let reversed = join(8_000, &|n| format!("\"member{}\":{}", 7_999 - n, 7_999 - n));
    let texts = join(100, &|n| format!("\"{}{n}\"", "ab".repeat(500)));
    let ring = join(2_000, &|n| {
        let angle = n as f64 / 2_000.0 * std::f64::consts::TAU;
        format!("[{},{}]", 10.0 * angle.cos(), 10.0 * angle.sin())
    });
    let text = format!(
        r#"{{"id":"1","x":1,"n":[{numbers}],"m":[{numbers}],"s":"{s}","t":"{s}","u":"{s}b","words":"{words}",
        "object":{{{members}}},"reversed":{{{reversed}}},"deep":[[{numbers}]],"deeper":[[{numbers}]],
        "objects":[{{{members}}}],"others":[{{{reversed}}}],"texts":[{texts}],"one":["{s}"],"two":["{s}"],
        "ring":{{"type":"Polygon","coordinates":[[{ring},[10.0,0.0]]]}},
        "line":{{"type":"LineString","coordinates":[{ring}]}},"json":"[{numbers}]"}}"#,
        s = "a".repeat(120_000),
        words = "word ".repeat(20_000),
    );
    value::parse(text.as_bytes()).unwrap()
}

const OPERANDS: &[&str] = &[
    "x",
    "c.n",
    "c.s",
    "c.words",
    "c.object",
    "c.deep",
    "c.objects",
    "c.texts",
    "c.ring",
    "c.json",
    "'a'",
    "100",
];

/// Operators over operands that are alike until the end.
const OPERATIONS: &[&str] = &[
    "c.s = c.t",
    "c.s < c.u",
    "c.n = c.m",
    "c.object = c.reversed",
    "c.deep = c.deeper",
    "c.deep != c.deeper",
    "c.objects = c.others",
    "c.one = c.two",
    "c.s BETWEEN c.t AND c.u",
    "c.s IN (c.t, c.u)",
    "c.u IN (c.s, c.t, c.s, c.t)",
    "c.deep IN (c.n, c.m, c.deeper)",
    "c.object IN (c.reversed)",
    "c.s IN ('1','2','3','4','5','6','7','8','9','10')",
    "c.n IN ('1','2','3','4','5','6','7','8','9','10')",
    "c.deep IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)",
    "c.object IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)",
    "c.object.member7999 = 1",
    "c.object['member7999'] = 1 AND c.object.member7998 = 1 AND c.reversed.member0 = 2",
    "c.s LIKE '%b%'",
    "c.s LIKE CONCAT('%', c.u)",
    "(c.s || c.t) = c.u",
    "[c.s, c.n] = [c.t, c.m]",
    "{'a': c.object} = {'a': c.reversed}",
    "(c.missing ?? c.deep) = c.deeper",
    "(x > -1 ? c.deep : c.n) = c.deeper",
    "EXISTS(SELECT VALUE y FROM y IN c.deep WHERE y = c.n AND x < 0)",
    "ARRAY(SELECT VALUE y FROM y IN c.texts) = c.texts",
    "(LET big = c.deep IN big = c.deeper)",
    "ARRAY_CONTAINS(c.objects, c.reversed)",
    "ARRAY_CONTAINS(c.objects, {'member0': -1}, true)",
    "ARRAY_CONTAINS(c.objects, c.reversed, true)",
    "ARRAY_CONTAINS(c.deep, c.m)",
    "c.x = c.y",
];

/// How long the query runs until it asks for the first time, or ends.
fn time_until_asked(query: &str, document: &Value) -> Duration {
    let setup = Setup::of(&Object::new().into());
    let random = Random::new(1);
    let Ok(program) = compile(query, &setup) else { return Duration::ZERO };
    let work = Work::new(u64::MAX).with_interrupt(&EndAtOnce);
    let context = Context::new(NOW_MS, &random, &setup.policies).with_work(&work);
    let mut pipeline = Pipeline::new(program, Options::default());
    let started = cpu_time();
    // An error is an answer.
    drop(pipeline.feed(Row { document, ordinal: 0, text_bytes: 0 }, &context));
    drop(pipeline.finish(&context));
    cpu_time() - started
}

fn check(queries: impl Iterator<Item = String>) {
    let document = document();
    let mut slow = Vec::new();
    for query in queries {
        let time = time_until_asked(&query, &document);
        if time > LONGEST {
            slow.push(format!("{time:?}: {query}"));
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}

fn joined(condition: &str) -> String {
    format!("SELECT VALUE COUNT(1) FROM c JOIN x IN c.n WHERE {condition}")
}

#[test]
fn operators_count_their_work() {
    check(OPERATIONS.iter().map(|condition| joined(condition)));
}

#[test]
fn functions_count_their_work() {
    let calls = functions::all().flat_map(|function| {
        let (least, most) = (*function.arity.start(), *function.arity.end());
        let mut calls = Vec::new();
        for first in OPERANDS {
            if least <= 1 && most >= 1 {
                calls.push(format!("{}({first})", function.name));
            }
            // Dates and numbers have no large operands.
            let is_small = ["DATETIME", "INT", "TICKS", "TIMESTAMP"]
                .iter()
                .any(|start| function.name.starts_with(start));
            for second in OPERANDS.iter().filter(|_| !is_small) {
                if least <= 2 && most >= 2 {
                    calls.push(format!("{}({first}, {second})", function.name));
                }
                if least == 3 {
                    calls.push(format!("{}({first}, {second}, 'ab')", function.name));
                } else if most >= 3 {
                    calls.push(format!("{}({first}, {second}, true)", function.name));
                }
            }
        }
        calls
    });
    check(calls.map(|call| joined(&format!("{call} = 'nothing'"))));
}

#[test]
fn stages_count_their_work() {
    let queries = [
        "SELECT DISTINCT VALUE [x % 10, c.deep] FROM c JOIN x IN c.n",
        "SELECT c.object, COUNT(1) FROM c JOIN x IN c.n GROUP BY c.object",
        "SELECT c.deep, COUNT(1) FROM c JOIN x IN c.n GROUP BY c.deep",
        "SELECT c.s, COUNT(1) FROM c JOIN x IN c.n GROUP BY c.s",
        "SELECT VALUE MAX(c.s) FROM c JOIN x IN c.n",
        "SELECT VALUE MIN(c.s) FROM c JOIN x IN c.n",
        "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.deep FROM c JOIN x IN c.n)",
        "SELECT VALUE x FROM c JOIN x IN c.n ORDER BY c.s",
        "SELECT VALUE c.deep FROM c JOIN x IN c.n",
        "SELECT * FROM c JOIN x IN c.n",
        "SELECT VALUE {'all': c} FROM c JOIN x IN c.n",
    ];
    check(queries.iter().map(|query| (*query).to_owned()));
}

/// A text of half a megabyte has room for thousands of arguments, each of them large.
#[test]
fn calls_with_many_arguments_count_their_work() {
    let many = |argument: &str, count: usize| vec![argument; count].join(", ");
    let calls = [
        format!("CONTAINS_ANY_CI(c.s, {})", many("'b'", 20_000)),
        format!("CONTAINS_ALL_CS(c.s, {})", many("'a'", 20_000)),
        format!("ARRAY_CONTAINS_ANY(c.n, {})", many("-1", 20_000)),
        format!("FULLTEXTCONTAINSALL(c.words, {})", many("'word'", 2_000)),
        format!("ARRAY_CONCAT({})", many("c.n", 20_000)),
        format!("CONCAT({})", many("c.s", 20_000)),
        format!("CHOOSE(1, {})", many("c.n", 20_000)),
    ];
    check(calls.iter().map(|call| format!("SELECT VALUE {call} FROM c")));
}
