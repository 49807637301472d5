//! `orrery query plan`: query plans as the gateway returns them, one JSON object per line in and out.

use orrery_model::container::DistanceFunction;
use std::io::{BufRead, Write};

use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::{Object, Value, value};
use orrery_query::context::Policies;
use orrery_query::error::{Code, QueryError};
use orrery_query::plan::{Features, PlanRequest, plan, plan_ordered};
use orrery_query::request::QueryRequest;

use crate::failure::Failure;
use crate::io::{InputLine, answer_lines};

/// A longer line is rejected rather than read into memory.
const LINE_BYTES_MAX: u64 = 4 << 20;

pub(super) fn run(input: &mut impl BufRead, output: &mut impl Write) -> Result<(), Failure> {
    answer_lines(input, output, LINE_BYTES_MAX, |line| match line {
        InputLine::TooLong => Err(Failure::refused(format!("a line is longer than {LINE_BYTES_MAX} bytes"))),
        InputLine::Text(line) if line.iter().all(u8::is_ascii_whitespace) => Ok(None),
        InputLine::Text(line) => Ok(Some(plan_line(line).map_err(|errors| errors_value(&errors)))),
    })
}

fn plan_line(line: &[u8]) -> Result<Value, Vec<QueryError>> {
    let refuse = |message: String| vec![QueryError::text(message)];
    let line = value::parse(line).map_err(|error| refuse(format!("the line is not valid JSON: {error}")))?;
    let request = QueryRequest::from_value(&line).map_err(|error| refuse(error.to_string()))?;
    let definition = definition(&line).map_err(refuse)?;
    let features = match line.get("features").and_then(Value::as_str) {
        Some(list) => Features::parse(list),
        None => Features::ALL,
    };
    let request_for_plan = PlanRequest {
        parameters: &request.parameters,
        definition: definition.as_ref(),
        policies: &policies(&line).map_err(refuse)?,
        computed: &[],
        features,
    };
    let plan = match ordered_paths(&line) {
        Some(paths) => plan_ordered(&request.text, request_for_plan, paths)?.0,
        None => plan(&request.text, request_for_plan)?,
    };
    Ok(plan.to_value())
}

/// The container's vector distance functions, which decide the sort direction of distances. Given as a list, or in the
/// form of the container's policy.
fn policies(line: &Value) -> Result<Policies, String> {
    let in_policy = line.get("vectorEmbeddingPolicy").and_then(|policy| policy.get("vectorEmbeddings"));
    let listed = line.get("vectorEmbeddings").or(in_policy).and_then(Value::as_array).unwrap_or(&[]);
    let mut policies = Policies::default();
    for embedding in listed {
        let text = |name: &str| embedding.get(name).and_then(Value::as_str);
        let path = text("path").ok_or("a vector embedding has no path")?;
        // Cosine is the default, as in policies.
        let name = text("distanceFunction").unwrap_or("cosine");
        let function = DistanceFunction::parse(name);
        let function = function.ok_or_else(|| format!("unknown distance function `{name}`"))?;
        policies.vectors.push((path.to_owned(), function));
    }
    Ok(policies)
}

/// The paths of a range-partitioned key. No container has one today, but recorded plans do.
fn ordered_paths(line: &Value) -> Option<Vec<Vec<Box<str>>>> {
    if line.get("pkKind").and_then(Value::as_str) != Some("Range") {
        return None;
    }
    let path = |path: &Value| {
        Some(PartitionKeyDefinition::with_paths(&[path.as_str()?]).ok()?.paths().first()?.segments().to_vec())
    };
    line.get("pk").and_then(Value::as_array)?.iter().map(path).collect()
}

/// The hashed partition key of the query's container. A key that no container can have today, such as several paths of
/// kind Hash, or an array element, does not restrict the query.
fn definition(line: &Value) -> Result<Option<PartitionKeyDefinition>, String> {
    let listed = match line.get("pk") {
        None | Some(Value::Null) => return Ok(None),
        Some(paths) => paths.as_array().ok_or("pk must be a list of paths")?,
    };
    let paths: Option<Vec<&str>> = listed.iter().map(Value::as_str).collect();
    let paths = paths.ok_or("pk must be a list of paths")?;
    let kind = line.get("pkKind").and_then(Value::as_str).unwrap_or("Hash");
    let known = match kind {
        "Hash" => paths.len() == 1,
        "MultiHash" => !paths.is_empty(),
        "Range" => false,
        other => return Err(format!("pkKind must be Hash, MultiHash or Range, but got `{other}`")),
    };
    if !known {
        return Ok(None);
    }
    let mut object = Object::new();
    object.set("paths", paths.iter().map(|path| Value::from(*path)).collect::<Vec<_>>().into());
    object.set("kind", kind.into());
    object.set("version", line.get("pkVersion").cloned().unwrap_or_else(|| Value::from(2)));
    Ok(PartitionKeyDefinition::parse(&object.into()).ok())
}

/// The errors as the service writes them, `{"errors":[{"severity","location":{"start","end"},"code","message"}]}`, with
/// the location repeated next to the code for convenience. Errors without a location have none.
fn errors_value(errors: &[QueryError]) -> Value {
    let entry = |error: &QueryError| {
        let mut object = Object::new();
        match error.code {
            Code::Sc(code) => object.set("code", format!("SC{code:04}").into()),
            Code::Number(code) => object.set("code", i64::from(code).into()),
            Code::None => {}
        }
        if let Some(location) = error.location {
            object.set("start", i64::from(location.start).into());
            object.set("end", i64::from(location.end).into());
        }
        object.set("message", error.message.as_str().into());
        object.set("severity", "Error".into());
        if let Some(location) = error.location {
            let mut span = Object::new();
            span.set("start", i64::from(location.start).into());
            span.set("end", i64::from(location.end).into());
            object.set("location", span.into());
        }
        Value::from(object)
    };
    let mut object = Object::new();
    object.set("errors", errors.iter().map(entry).collect::<Vec<_>>().into());
    object.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(input: &str) -> (String, bool) {
        let mut output = Vec::new();
        let good = run(&mut input.as_bytes(), &mut output).is_ok();
        (String::from_utf8(output).unwrap(), good)
    }

    #[test]
    fn each_line_gets_a_plan() {
        let (output, good) = plans(
            r#"{"query":"SELECT * FROM c WHERE c.pk = @p ORDER BY c.n","parameters":[{"name":"@p","value":"redmond"}],"pk":["/pk"],"pkKind":"Hash"}"#,
        );
        assert!(good);
        let plan = value::parse(output.as_bytes()).unwrap();
        let info = plan.get("queryInfo").unwrap();
        assert_eq!(info.get("orderBy").unwrap().to_json(), r#"["Ascending"]"#);
        assert_eq!(
            plan.get("queryRanges").unwrap().to_json(),
            r#"[{"min":"22E342F38A486A088463DFF7838A5963","max":"22E342F38A486A088463DFF7838A5963","isMinInclusive":true,"isMaxInclusive":true}]"#
        );
    }

    #[test]
    fn errors_carry_their_location() {
        let (output, good) =
            plans("{\"query\":\"SELECT * FROM c GROUP BY c.a\",\"pk\":[]}\n\nnonsense\n{}\n");
        assert!(!good);
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[0].starts_with(r#"{"errors":[{"code":"SC2041","start":7,"end":8,"message":"#),
            "{output}"
        );
        assert!(lines[1].contains("not valid JSON") && lines[2].contains("no query text"), "{output}");
    }

    #[test]
    fn recorded_plans_are_reproduced() {
        let file = include_str!("../../../../orrery-query/tests/data/query-plans.json");
        let file = value::parse(file.as_bytes()).unwrap();
        let cases = file.get("cases").unwrap_or(&file).as_array().unwrap();
        for case in cases {
            let (output, good) = plans(&case.to_json());
            assert!(good, "{output}");
            let plan = value::parse(output.as_bytes()).unwrap();
            let name = if case.get("queryInfo").is_some() { "queryInfo" } else { "hybridSearchQueryInfo" };
            let (info, expected) = (plan.get(name).unwrap(), case.get(name).unwrap());
            if name != "queryInfo" {
                continue; // The contents of hybrid plans are tested in orrery-query.
            }
            for (name, value) in expected.as_object().unwrap().iter() {
                assert_eq!(info.get(name), Some(value), "{name} of {}", case.to_json());
            }
        }
        assert_eq!(cases.len(), 228);
        let file = include_str!("../../../../orrery-query/tests/data/query-plan-errors.json");
        let file = value::parse(file.as_bytes()).unwrap();
        for case in file.get("cases").unwrap_or(&file).as_array().unwrap() {
            let (output, good) = plans(&case.to_json());
            assert!(!good, "{output}");
            let found = value::parse(output.as_bytes()).unwrap();
            let found = found.get("errors").unwrap().as_array().unwrap();
            for expected in case.get("errors").unwrap().as_array().unwrap() {
                let fits = |error: &Value| {
                    expected.as_object().unwrap().iter().all(|(name, value)| {
                        // Some cases record only the reason.
                        name == "reason" || error.get(name) == Some(value)
                    })
                };
                assert!(found.iter().any(fits), "{} gave {output}", case.to_json());
            }
        }
    }
}
