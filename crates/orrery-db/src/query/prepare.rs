//! Prepares a query: from a request to an executable program.
//!
//! [`Prepared`] depends only on the request and the container's definition, not on items, the clock or randomness. It
//! is created in one place, [`Prepared::of`], and pages only read it, so that is where a plan cache belongs: keyed by
//! the container's etag, the text and the parameters, it can return the same `Arc` to every page.

use std::sync::Arc;
use std::time::Duration;

use orrery_env::monotonic;
use orrery_model::Result;
use orrery_model::container::{ContainerDefinition, Geospatial};
use orrery_query::ast::Query;
use orrery_query::check;
use orrery_query::compile::{ComputedProperty, Settings};
use orrery_query::context::Policies;
use orrery_query::{Program, QueryRequest};

use super::checks;
use super::errors::invalid_query;
use super::item_work::ItemWork;
use crate::catalog::Container;

/// A query that is parsed, checked against its container and compiled.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The syntax tree.
    pub(super) query: Query,
    /// The compiled program.
    pub(super) program: Arc<Program>,
    /// The container settings that functions depend on.
    pub(super) policies: Policies,
    /// How much work one item may cause.
    pub(super) work: ItemWork,
    /// Time spent parsing and checking.
    pub(super) parse_time: Duration,
    /// Time spent compiling.
    pub(super) compile_time: Duration,
}

impl Prepared {
    /// Parses, checks and compiles a query over the items of a container.
    pub(super) fn of(request: &QueryRequest, definition: &ContainerDefinition) -> Result<Self> {
        let started = monotonic::now();
        let query = parse(request)?;
        let parse_time = monotonic::elapsed(started);
        // An ORDER BY that the container's policy does not serve is rejected, as in the service (`checks.rs`).
        checks::check(&query, definition)?;
        let (policies, computed) = (policies(definition), computed_properties(definition)?);
        let settings = Settings { parameters: &request.parameters, computed: &computed, policies: &policies };
        let program = compile(&query, settings)?;
        let compile_time = monotonic::elapsed(started).saturating_sub(parse_time);
        let work = ItemWork::of(&query);
        Ok(Self { query, program, policies, work, parse_time, compile_time })
    }

    /// The query as the index sees it: computed properties that it holds are properties like any other.
    pub(super) fn as_indexed(&self, request: &QueryRequest, container: &Container) -> Result<Arc<Program>> {
        let (definition, held) = (&container.definition, &container.index.serving.computed);
        let is_held = |name: &str| held.holds(definition, name);
        // The usual case: the program is the same, so it is shared.
        if !definition.computed_properties.iter().any(|property| is_held(&property.name)) {
            return Ok(Arc::clone(&self.program));
        }
        let mut computed = computed_properties(definition)?;
        // Properties that the index holds stay paths in the condition instead of being replaced by their queries.
        computed.retain(|property| !is_held(&property.name));
        let (parameters, policies) = (&request.parameters, &self.policies);
        compile(&self.query, Settings { parameters, computed: &computed, policies })
    }
}

/// The program for documents that are not items: databases, offers, users …
pub(super) fn plain_program(request: &QueryRequest) -> Result<Arc<Program>> {
    let policies = Policies::default();
    let settings = Settings { parameters: &request.parameters, computed: &[], policies: &policies };
    compile(&parse(request)?, settings)
}

fn parse(request: &QueryRequest) -> Result<Query> {
    check::parse_with(&request.text, &request.parameters).map_err(|errors| invalid_query(&errors))
}

fn compile(query: &Query, settings: Settings<'_>) -> Result<Arc<Program>> {
    Program::compile(query, settings).map(Arc::new).map_err(|errors| invalid_query(&errors))
}

/// The container settings that functions depend on.
pub(super) fn policies(definition: &ContainerDefinition) -> Policies {
    let embeddings = definition.vector_embeddings.iter();
    let vectors = embeddings.map(|embedding| (embedding.path.canonical(), embedding.distance));
    let full_text = definition.full_text.iter().flat_map(|policy| &policy.paths);
    Policies {
        vectors: vectors.collect(),
        full_text: full_text.map(|path| (path.path.canonical(), path.language.to_string())).collect(),
        default_language: definition
            .full_text
            .as_ref()
            .and_then(|policy| policy.default_language.as_deref().map(str::to_owned)),
        planar_geometry: definition.geospatial == Geospatial::Geometry,
    }
}

/// The container's computed properties, parsed.
pub(super) fn computed_properties(definition: &ContainerDefinition) -> Result<Vec<ComputedProperty>> {
    let parsed = definition.computed_properties.iter().map(|property| {
        let query = check::parse(&property.query).map_err(|errors| invalid_query(&errors))?;
        Ok(ComputedProperty { name: property.name.to_string(), query })
    });
    parsed.collect()
}
