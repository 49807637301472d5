//! Query texts: reading, checking, planning and running never panic or hang, and what is read prints to a text that
//! reads back to the same print.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use orrery_model::value;
use orrery_query::compile::Settings;
use orrery_query::context::{Context, Policies, Random, Work};
use orrery_query::pipeline::{Options, Pipeline, Row};
use orrery_query::plan::{Features, PlanRequest, plan};
use orrery_query::{Program, check, parser, printer};

/// Rows of work that one text may cause.
const WORK_ROWS_MAX: u64 = 100_000;

fuzz_target!(|text: &str| {
    if let Ok(tree) = parser::parse(text) {
        let printed = printer::query(&tree);
        let again = parser::parse(&printed).expect("what we print can be read");
        // The service prints the double -0 as `-0`, which reads as the integer 0. Nothing else changes on the way.
        if !printed.contains("-0") {
            assert_eq!(printer::query(&again), printed);
        }
    }
    let Ok(query) = check::parse(text) else { return };
    let policies = Policies::default();
    let request = PlanRequest {
        parameters: &Vec::new(),
        definition: None,
        policies: &policies,
        computed: &[],
        features: Features::ALL,
    };
    if let Ok(plan) = plan(text, request) {
        plan.to_value().to_json();
    }
    let settings = Settings { parameters: &Vec::new(), computed: &[], policies: &policies };
    let Ok(program) = Program::compile(&query, settings) else { return };
    let document = value::parse(br#"{"id":"1","x":3,"a":[1,{"x":2}],"t":"word"}"#).expect("this is JSON");
    let (random, work) = (Random::new(7), Work::new(WORK_ROWS_MAX));
    let context = Context { work: Some(&work), ..Context::new(0, &random, &policies) };
    let mut pipeline = Pipeline::new(Arc::new(program), Options::default());
    if pipeline.feed(Row { document: &document, ordinal: 1, text_bytes: 0 }, &context).is_ok() {
        // Errors of evaluation are answers too.
        drop(pipeline.finish(&context));
    }
});
