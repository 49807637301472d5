//! Any text: no panic, no overflow; what parses prints to a text that parses to the same print.
#![allow(clippy::unwrap_used, clippy::pedantic, reason = "tests may be blunt")]

mod common;

use common::{Setup, compile, run};
use orrery_model::container::IndexStep;
use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::{Object, Value, value};
use orrery_query::context::{Context, Random};
use orrery_query::filter::{
    IndexCondition, KeyRestriction, Test, TypeTest, index_condition, key_restriction,
};
use orrery_query::lexer::Keyword;
use orrery_query::plan::{Features, PlanRequest, plan};
use orrery_query::{check, functions, order, parse_condition, parser, printer};
use proptest::prelude::*;

/// Texts that look like queries are made of the reserved words and these.
const WORDS: &[&str] = &[
    "GROUP BY",
    "ORDER BY",
    "RANK",
    "ALL",
    "FIRST",
    "LAST",
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

/// `IS_DEFINED`, `IS_NULL` and so on.
fn type_checks() -> Vec<&'static str> {
    functions::all().map(|function| function.name).filter(|name| name.starts_with("IS_")).collect()
}

fn word() -> impl Strategy<Value = &'static str> {
    prop_oneof![prop::sample::select(Keyword::ALL), prop::sample::select(WORDS)]
}

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
            // The service writes it as `-0`, which it reads as the integer 0.
            .prop_filter("negative zero does not print stably", |number| number.to_bits()
                != (-0.0f64).to_bits())
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

/// Filters over a few properties, of the kinds an index can and cannot answer.
fn filter() -> impl Strategy<Value = String> {
    let path = || prop::sample::select(vec!["c.a", "c.b", "c.o.a", "c.l[0]", "c[\"a\"]"]);
    let constant = || {
        prop::sample::select(vec![
            "1",
            "2",
            "-1",
            "1.5",
            "'a'",
            "'ab'",
            "''",
            "true",
            "false",
            "null",
            "undefined",
            "[1]",
            "{x: 1}",
        ])
    };
    let comparison = prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]);
    let leaf = prop_oneof![
        (path(), comparison.clone(), constant())
            .prop_map(|(path, operator, value)| format!("{path} {operator} {value}")),
        (constant(), comparison, path())
            .prop_map(|(value, operator, path)| format!("{value} {operator} {path}")),
        (path(), constant(), constant()).prop_map(|(path, a, b)| format!("({path} IN ({a}, {b}))")),
        (path(), constant(), constant()).prop_map(|(path, a, b)| format!("({path} NOT IN ({a}, {b}))")),
        (path(), constant(), constant()).prop_map(|(path, a, b)| format!("({path} BETWEEN {a} AND {b})")),
        (path(), prop::sample::select(vec!["'a%'", "'a_'", "'ab'", "'%b'", "'[ab]%'"]))
            .prop_map(|(path, pattern)| format!("({path} LIKE {pattern})")),
        (path(), constant()).prop_map(|(path, value)| format!("STARTSWITH({path}, {value})")),
        (path(), constant()).prop_map(|(path, value)| format!("STRINGEQUALS({path}, {value}, true)")),
        (path(), constant()).prop_map(|(path, value)| format!("ARRAY_CONTAINS([{value}, 'a', 1], {path})")),
        constant().prop_map(|value| format!("ARRAY_CONTAINS(c.l, {value})")),
        constant().prop_map(|value| format!(
            "EXISTS(SELECT VALUE t FROM t IN c.l WHERE t = {value} OR t.a = {value})"
        )),
        constant().prop_map(|value| format!("(SELECT VALUE 1 WHERE c.a = {value}) = 1")),
        (prop::sample::select(type_checks()), path())
            .prop_map(|(function, path)| format!("{function}({path})")),
        path().prop_map(str::to_owned),
        constant().prop_map(str::to_owned),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) AND ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) OR ({b})")),
            inner.prop_map(|a| format!("NOT ({a})")),
        ]
    })
}

fn document() -> impl Strategy<Value = Value> {
    let scalar = || {
        prop::sample::select(vec![
            "1",
            "2",
            "-1",
            "1.5",
            "\"a\"",
            "\"ab\"",
            "\"b\"",
            "\"\"",
            "true",
            "false",
            "null",
            "[1]",
            "{\"x\":1}",
        ])
    };
    let member = |name: &'static str| {
        prop::option::of(scalar()).prop_map(move |value| value.map(|value| format!("\"{name}\":{value}")))
    };
    let list = prop::option::of(prop::collection::vec(
        prop_oneof![
            scalar().prop_map(str::to_owned),
            scalar().prop_map(|value| format!("{{\"a\":{value}}}"))
        ],
        0..3,
    ))
    .prop_map(|items| items.map(|items| format!("\"l\":[{}]", items.join(","))));
    let nested =
        prop::option::of(scalar()).prop_map(|value| value.map(|value| format!("\"o\":{{\"a\":{value}}}")));
    (member("a"), member("b"), list, nested).prop_map(|(a, b, list, nested)| {
        let members: Vec<String> = [a, b, list, nested].into_iter().flatten().collect();
        value::parse(format!("{{{}}}", members.join(",")).as_bytes()).unwrap()
    })
}

/// The values at a path, every element of arrays for itself; none if it is undefined.
fn values_at<'v>(value: &'v Value, steps: &[IndexStep]) -> Vec<&'v Value> {
    match steps.split_first() {
        None => vec![value],
        Some((IndexStep::Property(name), rest)) => {
            value.get(name).map(|value| values_at(value, rest)).unwrap_or_default()
        }
        Some((IndexStep::Element, rest)) => {
            value.as_array().unwrap_or(&[]).iter().flat_map(|item| values_at(item, rest)).collect()
        }
    }
}

/// Answers a condition as an index would.
fn satisfies(document: &Value, condition: &IndexCondition) -> bool {
    match condition {
        IndexCondition::All => true,
        IndexCondition::None => false,
        IndexCondition::And(parts) => parts.iter().all(|part| satisfies(document, part)),
        IndexCondition::Or(parts) => parts.iter().any(|part| satisfies(document, part)),
        IndexCondition::Term { path, test, .. } => {
            let values = values_at(document, &path.0);
            if *test == Test::Type(TypeTest::NotDefined) {
                return values.is_empty();
            }
            values.into_iter().any(|value| passes(value, test))
        }
    }
}

fn passes(value: &Value, test: &Test) -> bool {
    let same_type = |other: &Value| std::mem::discriminant(value) == std::mem::discriminant(other);
    match test {
        Test::Equal(wanted) => value == wanted,
        Test::NotEqual(unwanted) => value != unwanted,
        Test::In(wanted) => wanted.contains(value),
        Test::Range { low, high } => {
            let above = low.as_ref().is_none_or(|low| {
                let order = order::compare(Some(value), Some(&low.value));
                same_type(&low.value) && (order.is_gt() || (low.inclusive && order.is_eq()))
            });
            let below = high.as_ref().is_none_or(|high| {
                let order = order::compare(Some(value), Some(&high.value));
                same_type(&high.value) && (order.is_lt() || (high.inclusive && order.is_eq()))
            });
            above && below
        }
        Test::Prefix(prefix) => value.as_str().is_some_and(|text| text.starts_with(&**prefix)),
        Test::StringScan => value.as_str().is_some(),
        Test::Type(TypeTest::Defined) => true,
        Test::Type(TypeTest::NotDefined) => false,
        Test::Type(TypeTest::Null) => matches!(value, Value::Null),
        Test::Type(TypeTest::Bool) => value.as_bool().is_some(),
        Test::Type(TypeTest::Number) => value.as_number().is_some(),
        Test::Type(TypeTest::String) => value.as_str().is_some(),
        Test::Type(TypeTest::Array) => value.as_array().is_some(),
        Test::Type(TypeTest::Object) => value.as_object().is_some(),
        Test::Type(TypeTest::Primitive) => !matches!(value, Value::Array(_) | Value::Object(_)),
    }
}

/// Whether the document can be where the restriction looks.
fn is_covered(document: &Value, restriction: &KeyRestriction, definition: &PartitionKeyDefinition) -> bool {
    // An item with an array or object as key does not exist.
    let Ok(key) = definition.extract(document) else { return true };
    match restriction {
        KeyRestriction::All => true,
        KeyRestriction::None => false,
        KeyRestriction::Keys(keys) => keys.iter().any(|prefix| key.starts_with(prefix)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    /// What a filter keeps, the index condition and the key restriction keep too; an exact condition
    /// keeps nothing else.
    #[test]
    fn analysis_never_loses_a_document(filter in filter(), documents in prop::collection::vec(document(), 1..8)) {
        let setup = Setup::of(&Object::new().into());
        let query = format!("SELECT * FROM c WHERE {filter}");
        let program = compile(&query, &setup).map_err(|failure| failure.message()).unwrap();
        let random = Random::new(1);
        let context = Context::new(0, &random, &setup.policies);
        let condition = index_condition(&program, &context);
        let single = PartitionKeyDefinition::with_paths(&["/a"]).unwrap();
        let hierarchical = PartitionKeyDefinition::with_paths(&["/b", "/o/a"]).unwrap();
        for document in &documents {
            let kept = !run(&query, std::slice::from_ref(document), &setup).map_err(|failure| failure.message()).unwrap().is_empty();
            let found = satisfies(document, &condition);
            prop_assert!(!kept || found, "{} is lost by {:?}", document.to_json(), condition);
            prop_assert!(kept || !found || !condition.is_exact(), "{} is kept by exact {:?}", document.to_json(), condition);
            for definition in [&single, &hierarchical] {
                let restriction = key_restriction(&program, definition);
                prop_assert!(!kept || is_covered(document, &restriction, definition), "{} is not in {:?}", document.to_json(), restriction);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_handled(text in "\\PC{0,200}") {
        exercise(&text);
    }

    #[test]
    fn any_words_are_handled(words in prop::collection::vec(word(), 0..40)) {
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
