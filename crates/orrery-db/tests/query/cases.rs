//! Every case of the query language against the database: inside one logical partition and over four physical
//! ones, with the index and without, in pages of several sizes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use orrery_db::{FeedScope, ItemOptions, QueryRequest, Receipt, ScriptKind};
use orrery_model::{Error, ErrorKind, Object, Value};

use crate::common::{DATABASE, Engine, World, everything, key, parse};
use crate::run::{self, Way, same_rows};

/// What the server adds to items; `SELECT *` shows it and cases do not.
const SYSTEM_PROPERTIES: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_ts"];

fn read(name: &str) -> Value {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../orrery-query/tests/cases");
    parse(&std::fs::read(folder.join(name)).unwrap())
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or("")
}

/// The members of the container that a case needs, beside its key.
fn settings(case: &Value) -> String {
    let mut members = Vec::new();
    let mut policy = case.get("indexingPolicy").cloned();
    if let Some(composites) = case.get("compositeIndexes") {
        let object = policy.get_or_insert_with(|| parse(br#"{"includedPaths":[{"path":"/*"}]}"#));
        object.as_object_mut().unwrap().set("compositeIndexes", composites.clone());
    }
    if let Some(policy) = policy {
        members.push(format!("\"indexingPolicy\":{}", policy.to_json()));
    }
    for name in ["computedProperties", "vectorEmbeddingPolicy", "fullTextPolicy"] {
        if let Some(value) = case.get(name) {
            members.push(format!("\"{name}\":{}", value.to_json()));
        }
    }
    members.join(",")
}

/// One container for all cases with the same settings and documents.
struct Containers {
    world: World,
    known: BTreeMap<String, String>,
    /// The key definition: all items under one key, or each under its own.
    key: &'static str,
}

impl Containers {
    async fn new(partitions: u32, key: &'static str) -> Self {
        let world = World::with_partitions(Engine::Memory, partitions).await;
        let mut receipt = Receipt::default();
        let body = format!(r#"{{"id":"{DATABASE}"}}"#);
        world.database.create_database(&mut receipt, body.as_bytes(), None).await.unwrap();
        Self { world, known: BTreeMap::new(), key }
    }

    async fn container(&mut self, case: &Value, datasets: &Value) -> Result<String, Error> {
        let documents = case.get("documents").or_else(|| datasets.get(text(case, "dataset")));
        let documents = documents.and_then(Value::as_array).unwrap_or(&[]);
        let settings = settings(case);
        let identity = format!("{settings}\n{}", Value::from(documents.to_vec()).to_json());
        if let Some(name) = self.known.get(&identity) {
            return Ok(name.clone());
        }
        let name = format!("c{}", self.known.len());
        let comma = if settings.is_empty() { "" } else { "," };
        let members = format!("{}{comma}{settings}", self.key);
        self.world.create_named(&name, &members, None).await?;
        for document in documents {
            let body = Bytes::from(document.to_json());
            let options = ItemOptions::default();
            let mut receipt = Receipt::default();
            self.world.database.create_item(&mut receipt, (DATABASE, &name), &options, &body).await.unwrap();
        }
        self.known.insert(identity, name.clone());
        Ok(name)
    }

    /// Stores the functions that a case calls.
    async fn define_functions(&self, case: &Value, container: &str) {
        for (id, body) in case.get("udfs").and_then(Value::as_object).into_iter().flat_map(Object::iter) {
            let mut script = Object::new();
            script.set("id", Value::from(id));
            script.set("body", body.clone());
            let (kind, text) = (ScriptKind::Function, Value::from(script).to_json());
            let place = (DATABASE, container);
            let database = &self.world.database;
            database
                .create_script(&mut Receipt::default(), place, kind, text.as_bytes(), true)
                .await
                .unwrap();
        }
    }
}

fn stripped(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut kept = Object::new();
            for (name, value) in object.iter().filter(|(name, _)| !SYSTEM_PROPERTIES.contains(name)) {
                kept.set(name, stripped(value));
            }
            kept.into()
        }
        Value::Array(items) => items.iter().map(stripped).collect::<Vec<_>>().into(),
        value => value.clone(),
    }
}

fn check_rows(case: &Value, rows: &[Value]) -> Result<(), String> {
    let rows: Vec<Value> = rows.iter().map(stripped).collect();
    let expected: Vec<Value> =
        case.get("expected").and_then(Value::as_array).unwrap().iter().map(stripped).collect();
    let ordered = case.get("ordered").and_then(Value::as_bool).unwrap();
    let tolerance =
        case.get("tolerance").and_then(Value::as_number).map_or(0.0, orrery_model::Number::as_f64);
    let unordered = case.get("unorderedArrays").and_then(Value::as_array).unwrap_or(&[]);
    let unordered: Vec<&str> = unordered.iter().filter_map(Value::as_str).collect();
    if same_rows(&rows, &expected, ordered, tolerance, &unordered) {
        return Ok(());
    }
    Err(format!("gave     {}\n    expected {}", Value::from(rows).to_json(), Value::from(expected).to_json()))
}

fn check_error(expected: &Value, error: &Error) -> Result<(), String> {
    let parsed =
        orrery_model::value::parse(error.message.as_bytes()).unwrap_or_else(|_| Object::new().into());
    let errors = parsed.get("errors").and_then(Value::as_array).unwrap_or(&[]);
    let has_code = |codes: &[Value]| {
        errors.iter().any(|error| error.get("code").is_some_and(|code| codes.contains(code)))
    };
    let is_refusal = matches!(error.kind, ErrorKind::InvalidQuery | ErrorKind::BadRequest);
    let codes_fit = expected.get("codes").and_then(Value::as_array).is_none_or(has_code);
    let decoded: String = errors.iter().map(|error| text(error, "message")).collect();
    let wanted = text(expected, "message");
    let text_fits = error.message.contains(wanted) || decoded.contains(wanted);
    let place_fits = expected
        .get("location")
        .is_none_or(|location| errors.iter().any(|error| error.get("location") == Some(location)));
    if is_refusal && codes_fit && text_fits && place_fits {
        return Ok(());
    }
    Err(format!("failed with {:?} {}", error.kind, error.message))
}

async fn check_case(
    containers: &mut Containers,
    scope: &FeedScope,
    case: &Value,
    datasets: &Value,
) -> Result<(), String> {
    let parameters = case.get("parameters").and_then(Value::as_array).unwrap_or(&[]);
    let named = parameters.iter().map(|parameter| {
        (text(parameter, "name").to_owned(), parameter.get("value").cloned().unwrap_or_default())
    });
    let request = QueryRequest {
        text: text(case, "query").to_owned(),
        parameters: named.collect(),
        resume_filter: None,
    };
    let container = match (containers.container(case, datasets).await, case.get("error")) {
        (Ok(container), _) => container,
        (Err(error), Some(expected)) => return check_error(expected, &error),
        (Err(error), None) => return Err(format!("no container: {error}")),
    };
    containers.define_functions(case, &container).await;
    for without_index in [false, true] {
        for page_size in [1, 3, -1] {
            let way = Way { scope: scope.clone(), page_size, without_index };
            let result = run::rows(&containers.world, &container, &request, &way).await;
            let checked = match (result, case.get("error")) {
                (Ok(rows), None) => check_rows(case, &rows),
                (Ok(rows), Some(_)) => {
                    Err(format!("gave {} instead of an error", Value::from(rows).to_json()))
                }
                (Err(error), Some(expected)) => check_error(expected, &error),
                (Err(error), None) => Err(format!("failed with {:?} {}", error.kind, error.message)),
            };
            checked
                .map_err(|reason| format!("pages of {page_size}, without index {without_index}: {reason}"))?;
        }
    }
    Ok(())
}

/// Runs the cases of one file. `ORRERY_CASE` limits them to those with this text in their name.
async fn check_family(family: &str, mut containers: Containers, scope: FeedScope) {
    let datasets = read("datasets.json");
    let wanted = std::env::var("ORRERY_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    for case in read(&format!("{family}.json")).as_array().unwrap() {
        let name = text(case, "name");
        if !name.contains(&wanted) {
            continue;
        }
        if let Err(reason) = check_case(&mut containers, &scope, case, &datasets).await {
            failures.push(format!("{name}\n    {}\n    {reason}", text(case, "query")));
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

include!("../../../orrery-query/tests/cases/families.rs");

macro_rules! tests {
    ($($name:ident: $file:literal,)*) => {
        mod inside_one_key {
            use super::*;

            $(
                #[tokio::test]
                async fn $name() {
                    // No document has the key's property, so all lie under one key and show nothing of it.
                    let definition = r#""partitionKey":{"paths":["/nowhere"],"kind":"Hash","version":2}"#;
                    let scope = FeedScope { partition_key: Some(key("[{}]")), ..FeedScope::default() };
                    check_family($file, Containers::new(1, definition).await, scope).await;
                }
            )*
        }

        mod over_four_partitions {
            use super::*;

            $(
                #[tokio::test]
                async fn $name() {
                    let definition = r#""partitionKey":{"paths":["/id"],"kind":"Hash","version":2}"#;
                    check_family($file, Containers::new(4, definition).await, everything()).await;
                }
            )*
        }
    };
}

with_case_families!(tests);
