//! No function panics or takes long, whatever it is given.

use std::borrow::Cow;

use orrery_model::{Object, Value};
use proptest::prelude::*;

use crate::context::{Context, Policies, Random};
use crate::functions::{Analyzer, all};
use crate::operand::Operand;

const TEXTS: &[&str] = &[
    "",
    "a",
    "abc",
    "ABC abc",
    "😀a\u{301}é",
    "2020-02-29T23:59:59.9999999Z",
    "0001-01-01",
    "9999-12-31",
    "1601-01-01",
    "yyyy",
    "mm",
    "dd",
    "ns",
    "mcs",
    "yyyy-MM-dd\\ HH:mm:ss.fffffffFFFFFFF\\",
    "(a+)+$",
    "(?<=a)b\\1",
    "[",
    "msix",
    "{\"a\":[1,2]}",
    "[[[[",
    "1e308",
    "running cyclists don't ride bicycles",
    "Point",
    "Cosine",
];

const NUMBERS: &[f64] = &[
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    0.5,
    -2.5,
    7.0,
    63.0,
    64.0,
    100.0,
    180.0,
    -90.0,
    1e9,
    1e17,
    -1e17,
    9.223_372_036_854_776e18,
    -9.223_372_036_854_776e18,
    1e300,
    f64::MAX,
    f64::MIN_POSITIVE,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// Texts made of the pieces of patterns.
const PATTERN: &str = r"([ab.^$|*+?(){}\[\]0-9]|\\[1-3bdwsk]|\(\?[=!:>]|\(\?<[=!n]|[é😀]){0,12}";

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-5i64..5).prop_map(Value::from),
        proptest::sample::select(NUMBERS).prop_map(Value::from),
        proptest::sample::select(TEXTS).prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec(("[a-c]", inner.clone()), 0..4).prop_map(|members| {
                Object::from_members(members.into_iter().map(|(name, value)| (name.into(), value)).collect())
                    .into()
            }),
            proptest::collection::vec(proptest::sample::select(NUMBERS), 0..5).prop_map(|numbers| numbers
                .into_iter()
                .map(Value::from)
                .collect::<Vec<_>>()
                .into()),
            (proptest::sample::select(vec!["term", "distance", "_rid", "distanceFunction"]), inner)
                .prop_map(|(name, value)| Object::from_members(vec![(name.into(), value)]).into()),
        ]
    })
}

fn any_position() -> impl Strategy<Value = Value> + Clone {
    let coordinate = prop_oneof![
        (-4i8..5).prop_map(|n| f64::from(n) * 45.0),
        (-3i8..4).prop_map(f64::from),
        -180.0..180.0f64,
        -1.0..1.0f64,
    ];
    (coordinate.clone(), coordinate)
        .prop_map(|(x, y)| vec![Value::from(x), Value::from(y.clamp(-90.0, 90.0))].into())
}

fn any_shape() -> impl Strategy<Value = Value> {
    let path = proptest::collection::vec(any_position(), 0..7);
    let ring = path.clone().prop_map(|mut points| {
        points.extend(points.first().cloned());
        Value::from(points)
    });
    let polygon = proptest::collection::vec(ring, 0..3).prop_map(Value::from);
    let shape = |kind: &'static str, coordinates: Value| {
        Value::from(Object::from_members(vec![
            ("type".into(), kind.into()),
            ("coordinates".into(), coordinates),
        ]))
    };
    prop_oneof![
        any_position().prop_map(move |at| shape("Point", at)),
        path.prop_map(move |points| shape("LineString", points.into())),
        polygon.clone().prop_map(move |rings| shape("Polygon", rings)),
        proptest::collection::vec(polygon, 0..3).prop_map(move |all| shape("MultiPolygon", all.into())),
    ]
}

fn run(name_filter: fn(&str) -> bool, arguments: &[Option<Value>]) {
    let random = Random::new(3);
    for planar_geometry in [false, true] {
        let policies = Policies { planar_geometry, ..Policies::default() };
        let context = Context::new(1_700_000_000_000, &random, &policies);
        for function in all().filter(|function| name_filter(function.name)) {
            let least = *function.arity.start();
            let most = (*function.arity.end()).min(arguments.len());
            for count in least..=most.max(least) {
                let operands: Vec<Operand<'_>> = (0..count)
                    .map(|at| arguments.get(at % arguments.len()).cloned().flatten().map(Cow::Owned))
                    .collect();
                // An error is an answer; a panic is not.
                let _answer = (function.body)(&context, &operands);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_function_panics(arguments in proptest::collection::vec(proptest::option::weighted(0.9, any_value()), 5)) {
        run(|_| true, &arguments);
    }

    #[test]
    fn no_text_breaks_an_analyzer(text in "[a-zA-Zà-ÿßœ'’ ]{0,40}") {
        for language in ["en-US", "de-DE", "es-ES", "fr-FR", "it-IT", "pt-BR", "pt-PT", "xx"] {
            let words = Analyzer::new(language).words(&text);
            prop_assert!(words.len() <= text.len());
        }
    }

    #[test]
    fn no_pattern_breaks_the_matcher(
        pattern in PATTERN,
        text in "[ab1é\n]{0,24}",
        modifiers in "[msix]{0,2}",
    ) {
        let arguments = [text, pattern, modifiers].map(|text| Some(Value::from(text)));
        run(|name| name == "REGEXMATCH", &arguments);
    }

    #[test]
    fn no_spatial_function_panics(left in any_shape(), right in any_shape()) {
        run(|name| name.starts_with("ST_"), &[Some(left), Some(right)]);
    }
}
