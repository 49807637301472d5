//! Any text: no panic, no overflow; what parses prints to a text that parses to the same print.
#![allow(clippy::unwrap_used, clippy::pedantic, reason = "tests may be blunt")]

mod common;

use common::{Setup, run};
use orrery_model::{Object, value};
use orrery_query::plan::{Features, PlanRequest, plan};
use orrery_query::{check, parse_condition, parser, printer};
use proptest::prelude::*;

/// Words that make texts look like queries.
const WORDS: &[&str] = &[
    "SELECT",
    "VALUE",
    "DISTINCT",
    "TOP",
    "FROM",
    "JOIN",
    "IN",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "RANK",
    "OFFSET",
    "LIMIT",
    "AS",
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "LIKE",
    "ESCAPE",
    "EXISTS",
    "ARRAY",
    "ALL",
    "FIRST",
    "LAST",
    "ASC",
    "DESC",
    "LEFT",
    "udf",
    "true",
    "false",
    "null",
    "undefined",
    "NaN",
    "Infinity",
    "c",
    "x",
    "c.x",
    "c.a[0]",
    "t",
    "@p",
    "1",
    "2.5",
    "-3",
    "0x1F",
    "1e400",
    "'s'",
    "\"d\"",
    "'%a_'",
    "*",
    "+",
    "-",
    "/",
    "%",
    "=",
    "!=",
    "<>",
    "<",
    ">=",
    "||",
    "|",
    "&",
    "^",
    "~",
    "<<",
    ">>>",
    "??",
    "?",
    ":",
    ",",
    ".",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "COUNT",
    "SUM",
    "AVG",
    "MIN",
    "ABS",
    "CONCAT",
    "IS_DEFINED",
    "VectorDistance",
    "FullTextScore",
    "RRF",
    "--",
    "\n",
    "'",
    "é",
];

fn exercise(text: &str) {
    let documents = [value::parse(br#"{"id":"1","x":3,"a":[1,{"x":2}],"t":"word"}"#).unwrap()];
    let setup = Setup::of(&Object::new().into());
    let _ = parse_condition(text);
    if let Ok(tree) = parser::parse(text) {
        let printed = printer::query(&tree);
        let again = parser::parse(&printed).unwrap_or_else(|error| panic!("{text}\n{printed}\n{error}"));
        assert_eq!(printer::query(&again), printed, "{text}");
    }
    if check::parse(text).is_ok() {
        let _ = run(text, &documents, &setup);
        let request = PlanRequest {
            parameters: &setup.parameters,
            definition: None,
            policies: &setup.policies,
            computed: &[],
            features: Features::ALL,
        };
        if let Ok(plan) = plan(text, request) {
            let _ = plan.to_value().to_json();
        }
    }
}

/// Expressions that parse, of every kind.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("c".to_owned()),
        Just("c.x".to_owned()),
        Just("c[\"a b\"]".to_owned()),
        Just("c.a[0]".to_owned()),
        Just("@p".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>()
            .prop_filter("JSON has no such number", |number| number.is_finite())
            .prop_map(|number| format!("{number:e}")),
        "[ -~éλ\u{1F600}]{0,8}".prop_map(|text| {
            let mut literal = String::new();
            orrery_model::value::write_json_string(&text, &mut literal);
            literal
        }),
        Just("undefined".to_owned()),
        Just("null".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let operator = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "=", "!=", "<", "<=", ">", ">=", "||", "|", "&", "^", "<<", ">>", ">>>",
            "??", "AND", "OR",
        ]);
        prop_oneof![
            (inner.clone(), operator, inner.clone()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a}) ? {b} : {c}")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("({a} BETWEEN {b} AND {c})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(({a}) NOT IN ({b}, 1))")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(({a}) LIKE ({b}) ESCAPE '!')")),
            inner.clone().prop_map(|a| format!("NOT ({a})")),
            inner.clone().prop_map(|a| format!("- {a}")),
            inner.clone().prop_map(|a| format!("[{a}, {a}]")),
            inner.clone().prop_map(|a| format!("{{k: {a}, \"o k\": 1}}")),
            inner.clone().prop_map(|a| format!("({a}).name[2]")),
            inner.clone().prop_map(|a| format!("ABS({a})")),
            inner.clone().prop_map(|a| format!("EXISTS(SELECT VALUE t FROM t IN c.a WHERE {a})")),
            inner.prop_map(|a| format!("ARRAY(SELECT {a} AS z FROM t IN c.a)")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_survived(text in "\\PC{0,200}") {
        exercise(&text);
    }

    #[test]
    fn any_words_are_survived(words in prop::collection::vec(prop::sample::select(WORDS), 0..40)) {
        exercise(&words.join(" "));
        exercise(&format!("SELECT {}", words.join(" ")));
        exercise(&format!("SELECT VALUE {} FROM c", words.join("")));
    }

    #[test]
    fn expressions_print_stably(expr in expression()) {
        let text = format!("SELECT VALUE {expr} FROM c WHERE {expr}");
        // Unparenthesised mixtures may be refused; whole ones must pass.
        let whole = format!("SELECT VALUE ({expr}) FROM c");
        exercise(&text);
        exercise(&whole);
    }
}
