//! The body of a query request, and the program it becomes in a container.

use std::sync::Arc;

use orrery_model::container::{ContainerDefinition, DistanceFunction as Metric, Geospatial};
use orrery_model::{Error, ErrorKind, Result, Value};
use orrery_query::ast::Query;
use orrery_query::check;
use orrery_query::compile::{ComputedProperty, Settings};
use orrery_query::context::{DistanceFunction, Policies};
use orrery_query::error::errors_to_value;
use orrery_query::{Program, QueryError};

use super::checks;
use crate::layout::document::parse_object;

/// The longest query text.
const QUERY_BYTES_MAX: usize = 512 * 1024;

/// A query as it was sent.
#[derive(Clone, Debug)]
pub struct QueryRequest {
    pub text: String,
    pub parameters: Vec<(String, Value)>,
    /// Where a client that merges by itself wants a sorted query to go on.
    pub resume_filter: Option<Value>,
}

impl QueryRequest {
    /// Reads `{"query": …, "parameters": […]}`.
    pub fn parse(body: &[u8]) -> Result<Self> {
        let body = parse_object(body)?;
        let text = match body.get("query") {
            Some(Value::String(text)) => String::from(&**text),
            _ => return Err(orrery_model::ids::missing_properties(&["query"])),
        };
        let malformed =
            || Error::bad_request("The query's parameters must be a list of objects with name and value.");
        let parameters = match body.get("parameters") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => {
                let named = list.iter().map(|parameter| {
                    let name = parameter.get("name").and_then(Value::as_str)?;
                    // A parameter without a value is undefined, like one that is not listed.
                    Some(parameter.get("value").map(|value| (name.to_owned(), value.clone())))
                });
                let named = named.collect::<Option<Vec<_>>>().ok_or_else(malformed)?;
                named.into_iter().flatten().collect()
            }
            Some(_) => return Err(malformed()),
        };
        let resume_filter = body.get("resumeFilter").filter(|filter| !matches!(filter, Value::Null)).cloned();
        Self { text, parameters, resume_filter }.checked()
    }

    /// A body that is the bare text of the query.
    pub fn from_text(body: &[u8]) -> Result<Self> {
        let text =
            std::str::from_utf8(body).map_err(|_| Error::bad_request("The query is not valid UTF-8."))?;
        Self { text: text.to_owned(), parameters: Vec::new(), resume_filter: None }.checked()
    }

    fn checked(self) -> Result<Self> {
        if self.text.len() <= QUERY_BYTES_MAX {
            Ok(self)
        } else {
            Err(Error::bad_request(format!(
                "The SQL query text exceeded the maximum limit of {QUERY_BYTES_MAX} characters."
            )))
        }
    }

    /// Parses and checks the text.
    pub fn query(&self) -> Result<Query> {
        check::parse_with(&self.text, &self.parameters).map_err(|errors| invalid_query(&errors))
    }

    /// The program that runs over documents which are no items: databases, offers, users …
    pub(crate) fn plain_program(&self) -> Result<Arc<Program>> {
        let policies = Policies::default();
        let settings = Settings { parameters: &self.parameters, computed: &[], policies: &policies };
        compile(&self.query()?, settings)
    }

    /// The program that runs over the items of a container.
    pub(crate) fn program(&self, query: &Query, definition: &ContainerDefinition) -> Result<Arc<Program>> {
        checks::check(query, definition)?;
        let policies = policies(definition);
        let computed = computed_properties(definition)?;
        compile(query, Settings { parameters: &self.parameters, computed: &computed, policies: &policies })
    }
}

fn compile(query: &Query, settings: Settings<'_>) -> Result<Arc<Program>> {
    Program::compile(query, settings).map(Arc::new).map_err(|errors| invalid_query(&errors))
}

/// The error whose message is the service's JSON of query errors.
pub(crate) fn invalid_query(errors: &[QueryError]) -> Error {
    Error::new(ErrorKind::InvalidQuery, errors_to_value(errors).to_json())
}

/// The container settings that functions look at.
pub(crate) fn policies(definition: &ContainerDefinition) -> Policies {
    let vectors = definition.vector_embeddings.iter().map(|embedding| {
        let distance = match embedding.distance {
            Metric::Cosine => DistanceFunction::Cosine,
            Metric::Euclidean => DistanceFunction::Euclidean,
            Metric::DotProduct => DistanceFunction::DotProduct,
        };
        (embedding.path.as_str().to_owned(), distance)
    });
    let full_text = definition.full_text.iter().flat_map(|policy| &policy.paths);
    Policies {
        vectors: vectors.collect(),
        full_text: full_text.map(|path| (path.path.as_str().to_owned(), path.language.to_string())).collect(),
        default_language: definition
            .full_text
            .as_ref()
            .and_then(|policy| policy.default_language.as_deref().map(str::to_owned)),
        planar_geometry: definition.geospatial == Geospatial::Geometry,
    }
}

/// The container's computed properties, parsed.
pub(crate) fn computed_properties(definition: &ContainerDefinition) -> Result<Vec<ComputedProperty>> {
    let parsed = definition.computed_properties.iter().map(|property| {
        let query = check::parse(&property.query).map_err(|errors| invalid_query(&errors))?;
        Ok(ComputedProperty { name: property.name.to_string(), query })
    });
    parsed.collect()
}
