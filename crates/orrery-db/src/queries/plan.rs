//! Query plans for clients that merge partitions by themselves.

use orrery_model::{Error, Result, Value};
use orrery_query::plan::{Features, PlanRequest, plan_query};

use super::request::{QueryRequest, computed_properties, invalid_query, policies};
use crate::{Database, Trace, cost};

impl Database {
    /// The plan of a query, for a client with these features.
    pub fn plan_query(
        &self,
        trace: &mut Trace,
        (database, container): (&str, &str),
        request: &QueryRequest,
        supported_features: Option<&str>,
    ) -> Result<Value> {
        let container = self.item_container(trace, database, container, None)?;
        trace.add(cost::metadata_read());
        let query = request.query()?;
        // The same checks as running it: an order that no index serves is refused here already.
        request.program(&query, &container.definition)?;
        let features = Features::parse(supported_features.unwrap_or_default());
        let plan_request = PlanRequest {
            parameters: &request.parameters,
            definition: Some(&container.definition.partition_key),
            policies: &policies(&container.definition),
            computed: &computed_properties(&container.definition)?,
            features,
        };
        let plan = plan_query(&query, plan_request).map_err(|errors| match errors.as_slice() {
            [] => Error::internal("a plan failed without an error"),
            errors => invalid_query(errors),
        })?;
        Ok(plan.to_value())
    }
}
