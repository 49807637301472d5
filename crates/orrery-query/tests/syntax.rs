//! Texts that must and must not parse, and the canonical text of those that do.
#![allow(clippy::unwrap_used, clippy::pedantic, reason = "tests may be blunt")]

mod common;

use common::{cases, text};
use orrery_model::Value;
use orrery_query::error::Code;
use orrery_query::{check, parser, printer};

#[test]
fn accepted_texts_parse_and_print_canonically() {
    let cases = cases("data/sql-accept.json");
    assert_eq!(cases.len(), 140);
    let mut compared = 0;
    for case in &cases {
        let query = text(case, "query");
        let tree = parser::parse(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        let printed = printer::query(&tree);
        // The reference prints on one line, writes every ASC, and leaves control escapes of string
        // literals undecoded, which is its own affair.
        if query.contains("\\u1234") {
            continue;
        }
        assert_eq!(normalise(&printed), normalise(text(case, "canonical")), "{query}");
        compared += 1;
    }
    assert_eq!(compared, 138);
}

fn normalise(text: &str) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    joined.replace("( SELECT", "(SELECT").replace(" )", ")").replace(" ASC", "")
}

#[test]
fn linq_texts_parse_and_check() {
    let cases = cases("data/sql-accept-linq.json");
    assert_eq!(cases.len(), 531);
    for case in &cases {
        let query = text(case, "query");
        if let Err(errors) = check::parse(query) {
            panic!("{query}: {errors:?}");
        }
    }
}

#[test]
fn printing_is_stable() {
    let mut texts: Vec<String> = Vec::new();
    for file in ["data/sql-accept.json", "data/sql-accept-linq.json", "data/query-plans.json"] {
        texts.extend(cases(file).iter().map(|case| text(case, "query").to_owned()));
    }
    for query in texts {
        let Ok(tree) = parser::parse(&query) else { panic!("{query}") };
        let printed = printer::query(&tree);
        let again = parser::parse(&printed).unwrap_or_else(|error| panic!("{printed}: {error}"));
        assert_eq!(printer::query(&again), printed, "{query}");
    }
}

/// Each operator in front of an operand is printed in parentheses, which must not make the text too deep to be read.
#[test]
fn printed_deep_trees_can_be_parsed() {
    for operator in ["+", "~", "- ", "NOT ", "-+", "NOT ~"] {
        for count in [1, 60, 113, 126] {
            let text = format!("SELECT VALUE {}c.s FROM c", operator.repeat(count));
            let Ok(tree) = parser::parse(&text) else {
                assert!(count > 60, "{text}");
                continue;
            };
            let printed = printer::query(&tree);
            let again = parser::parse(&printed).unwrap_or_else(|error| panic!("{printed}: {error}"));
            assert_eq!(printer::query(&again), printed);
        }
    }
    assert!(parser::parse(&format!("SELECT VALUE {}1", "+".repeat(100_000))).is_err());
}

#[test]
fn rejected_texts_do_not_parse() {
    let cases = cases("data/sql-reject.json");
    assert_eq!(cases.len(), 57);
    for case in &cases {
        let query = text(case, "query");
        let error = parser::parse(query).expect_err(query);
        assert!(matches!(error.code, Code::Sc(1001 | 1002 | 1010 | 1011 | 1012)), "{query}: {error:?}");
        assert!(error.location.is_some(), "{query}");
    }
}

/// Code and place of the first error.
fn first_error(query: &str) -> (Code, u32, u32) {
    let errors = check::parse(query).expect_err(query);
    let location = errors[0].location.unwrap_or_default();
    (errors[0].code, location.start, location.end)
}

#[test]
fn errors_have_codes_and_locations() {
    assert_eq!(first_error("selectttt * from c"), (Code::Sc(1001), 0, 9));
    assert_eq!(first_error("SELECT VALUE"), (Code::Sc(1002), 12, 12));
    assert_eq!(first_error("SELECT /* x */ 1"), (Code::Sc(1001), 7, 8));
    assert_eq!(first_error("SELECT * FROM @p"), (Code::Sc(1001), 14, 16));
    // Places count UTF-16 units: the face takes two.
    assert_eq!(first_error("SELECT '\u{1F600}', x FROM c"), (Code::Sc(2001), 13, 14));
    assert_eq!(first_error("SELECT products.id FROM products p"), (Code::Sc(2001), 7, 15));
    assert_eq!(first_error("SELECT c[1 + c.x] FROM c"), (Code::Sc(2990), 7, 17));
    assert_eq!(first_error("SELECT RRF(1) FROM c"), (Code::Sc(2005), 7, 10));
    assert_eq!(first_error("SELECT COUNT(1), c.x FROM c"), (Code::Sc(2102), 17, 20));
}

#[test]
fn limits_hold() {
    let too_long = format!("SELECT '{}'", "x".repeat(600_000));
    assert!(check::parse(&too_long).is_err());
    let joins = |count: usize| {
        let joins: String = (0..count).map(|n| format!(" JOIN x{n} IN c.a")).collect();
        check::parse(&format!("SELECT VALUE 1 FROM c{joins}"))
    };
    assert!(joins(10).is_ok());
    assert!(joins(11).is_err());
    let udfs = |count: usize| check::parse(&format!("SELECT {}", vec!["udf.f(1)"; count].join(", ")));
    assert!(udfs(10).is_ok());
    assert_eq!(udfs(11).unwrap_err()[0].code, Code::Sc(3005));
    let members =
        |count: usize| check::parse(&format!("SELECT VALUE 1 IN ({})", vec!["1"; count].join(", ")));
    assert!(members(16_000).is_ok());
    assert!(members(16_001).is_err());
    let terms = |count: usize| check::parse(&format!("SELECT VALUE {}", vec!["true"; count].join(" AND ")));
    assert!(terms(8_001).is_ok());
    assert!(terms(8_002).is_err());
}

#[test]
fn deep_texts_are_rejected_without_a_crash() {
    let nested = |open: &str, close: &str, count: usize| {
        format!("SELECT VALUE {}1{}", open.repeat(count), close.repeat(count))
    };
    for count in [100, 500, 1_000, 50_000] {
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("NOT ", ""),
            ("- ", ""),
            ("{a:", "}"),
            ("ABS(", ")"),
            ("(SELECT VALUE ", ")"),
            ("1+(", ")"),
            ("true?", ":1"),
        ] {
            let _ = check::parse(&nested(open, close, count));
        }
        for operator in [" + ", " || ", " ?? ", " = ", ".a", "[0]"] {
            let _ = check::parse(&format!("SELECT VALUE 1{}", format!("{operator}1").repeat(count)));
            let _ = check::parse(&format!("SELECT VALUE c{} FROM c", operator.repeat(count)));
        }
    }
    // What is generated by clients that put parentheses around every pair still fits.
    let mut filter = String::from("(c.a = 1)");
    for _ in 0..499 {
        filter = format!("({filter} OR (c.a = 1))");
    }
    check::parse(&format!("SELECT * FROM c WHERE {filter}")).unwrap();
}

#[test]
fn planner_errors_have_codes_and_locations() {
    let cases = cases("data/query-plan-errors.json");
    assert_eq!(cases.len(), 20);
    let mut compared = 0;
    for case in &cases {
        let query = text(case, "query");
        let expected = &case.get("errors").and_then(Value::as_array).unwrap()[0];
        if text(expected, "reason") == "aggregate-composition" {
            continue;
        }
        let errors = check::parse(query).expect_err(query);
        assert_eq!(errors.len(), 1, "{query}: {errors:?}");
        let code = match errors[0].code {
            Code::Sc(code) => Value::from(format!("SC{code}")),
            Code::Number(code) => Value::from(i64::from(code)),
            Code::None => Value::Null,
        };
        assert_eq!(expected.get("code"), Some(&code), "{query}: {errors:?}");
        if let Some(start) = expected.get("start").and_then(Value::as_i64) {
            let location = errors[0].location.unwrap();
            let end = expected.get("end").and_then(Value::as_i64).unwrap();
            assert_eq!((i64::from(location.start), i64::from(location.end)), (start, end), "{query}");
        }
        compared += 1;
    }
    assert_eq!(compared, 15);
}

#[test]
fn computed_properties_are_checked() {
    use orrery_query::computed::{ComputedProperty, check_all};
    let parse = ComputedProperty::parse;
    assert!(parse("lower", "SELECT VALUE LOWER(c.name) FROM c").is_ok());
    for text in [
        "SELECT LOWER(c.name) FROM c",
        "SELECT VALUE 1",
        "SELECT VALUE x FROM x IN c.a",
        "SELECT VALUE c.x FROM c WHERE c.y = 1",
        "SELECT TOP 1 VALUE c.x FROM c",
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT VALUE EXISTS(SELECT VALUE x FROM x IN c.a) FROM c",
        "SELECT VALUE udf.f(c.x) FROM c",
        "SELECT VALUE GetCurrentTimestamp() FROM c",
        "SELECT VALUE ST_ISVALID(c.p) FROM c",
        "SELECT VALUE c.x FROM c ORDER BY c.x",
    ] {
        assert!(parse("p", text).is_err(), "{text}");
    }
    assert!(parse("_ts", "SELECT VALUE c.x FROM c").is_err());
    let a = parse("a", "SELECT VALUE c.x FROM c").unwrap();
    let b = parse("b", "SELECT VALUE c.a + 1 FROM c").unwrap();
    assert!(check_all(std::slice::from_ref(&a)).is_ok());
    assert!(check_all(&[a.clone(), b]).is_err());
    assert!(check_all(&[a.clone(), a.clone()]).is_err());
    assert!(check_all(&vec![a; 21]).is_err());
}

#[test]
fn advice_is_given_on_filters() {
    let advice = |filter: &str| {
        let query = parser::parse(&format!("SELECT * FROM c WHERE {filter}")).unwrap();
        orrery_query::advice::advice(&query)
    };
    assert!(advice("c.a = 1").is_empty());
    assert_eq!(
        advice("CONTAINS(c.a, 'x') AND UPPER(c.b) = 'X'"),
        [("QA1002", "CONTAINS"), ("QA1006", "UPPER")]
    );
    assert_eq!(advice("LOWER(c.b) = 'x' OR UPPER(c.b) = 'X'"), [("QA1006", "LOWER")]);
    assert_eq!(advice("STARTSWITH(c.a, 'x', true)"), [("QA1003", "STARTSWITH")]);
    assert_eq!(advice("stringequals(c.a, 'x', true)"), [("QA1003", "StringEquals")]);
    assert_eq!(advice("c.ticks < GetCurrentTicks()"), [("QA1008", "GetCurrentTicks")]);
    assert!(advice("STARTSWITH(c.a, 'x')").is_empty());
    assert_eq!(
        advice("EXISTS(SELECT VALUE t FROM t IN c.a WHERE ENDSWITH(t, 'x'))"),
        [("QA1004", "ENDSWITH")]
    );
}

#[test]
fn requests_are_read() {
    use orrery_query::request::{InvalidRequest, QueryRequest};
    let read = |text: &str| QueryRequest::from_value(&orrery_model::value::parse(text.as_bytes()).unwrap());
    let request =
        read(r#"{"query":"SELECT @a","parameters":[{"name":"@a","value":1},{"name":"@b"}]}"#).unwrap();
    assert_eq!(request.parameters, [("@a".to_owned(), Value::from(1))]);
    assert!(read(r#"{"query":"SELECT 1","parameters":null}"#).unwrap().parameters.is_empty());
    assert_eq!(read(r#"{"parameters":[]}"#), Err(InvalidRequest::NoText));
    assert_eq!(read(r#"{"query":"SELECT 1","parameters":[1]}"#), Err(InvalidRequest::Parameters));
}

/// A long text of any kind is answered at once: nothing takes the square of the text.
#[test]
fn long_texts_are_answered() {
    let repeat = |part: &str| part.repeat(250_000 / part.len());
    let texts = [
        format!("SELECT {} FROM c", repeat("a,") + "a"),
        format!("SELECT {} FROM c GROUP BY c.a", repeat("c.a,") + "c.a"),
        format!("SELECT {} FROM c GROUP BY {}", "c.a,".repeat(25_000) + "1", "c.a,".repeat(25_000) + "1"),
        format!("SELECT {} FROM c", repeat("COUNT(1),") + "1"),
        format!("SELECT {} FROM c", (0..15_000).map(|n| format!("SUM(c.a{n}),")).collect::<String>() + "1"),
        format!("SELECT * FROM c {}", repeat("JOIN c IN c.a ")),
        format!(
            "SELECT DISTINCT {} FROM c ORDER BY {}",
            "c.a,".repeat(25_000) + "1",
            "c.a,".repeat(25_000) + "c.a"
        ),
        format!("SELECT VALUE {}", repeat("@p+") + "1"),
        format!("SELECT VALUE [{}]", repeat("@p,") + "1"),
        format!("SELECT VALUE [{}]", repeat("EXISTS(SELECT VALUE 1),") + "1"),
        format!("SELECT VALUE '{}", repeat("\\u0041")),
        format!("SELECT {}", repeat("--\n")),
        format!("SELECT VALUE {}", repeat("((")),
        format!("SELECT VALUE {{{}}}", (0..15_000).map(|n| format!("k{n}:1,")).collect::<String>() + "k:1"),
        format!(
            "SELECT * FROM c WHERE {}",
            vec!["c.pk IN (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20)"; 400].join(" AND ")
        ),
    ];
    for text in &texts {
        let setup = common::Setup::of(&orrery_model::Object::new().into());
        let definition =
            orrery_model::partition_key::PartitionKeyDefinition::with_paths(&["/pk", "/b"]).unwrap();
        let request = orrery_query::plan::PlanRequest {
            parameters: &setup.parameters,
            definition: Some(&definition),
            policies: &setup.policies,
            computed: &[],
            features: orrery_query::plan::Features::ALL,
        };
        let _ = orrery_query::plan::plan(text, request);
        let _ = common::run(text, &[Value::Null], &setup);
    }
}
