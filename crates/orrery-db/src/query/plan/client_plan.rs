//! Query plans for clients that merge partitions.

use orrery_model::{Error, Result, Value};
use orrery_query::ast::Query;
use orrery_query::plan::{Features, Plan, PlanRequest, plan_query_where};
use orrery_query::{Program, QueryRequest};

use orrery_metering::cost;

use super::synthetic_routing;
use crate::catalog::{Container, Partition};
use crate::partition::Receipt;
use crate::query::Queries;
use crate::query::errors::invalid_query;
use crate::query::prepare::{Prepared, computed_properties, policies};

const NOT_MERGEABLE: &str = "Queries over a FROM subquery with DISTINCT, GROUP BY or aggregates over the whole container cannot be merged by clients. Send the query without a plan, or restrict it to one partition key.";

impl Queries {
    /// The plan of a query for a client with these features, or with all features.
    pub fn plan_query(
        &self,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
        request: &QueryRequest,
        supported_features: Option<&str>,
    ) -> Result<Value> {
        let container = self.item_container(receipt, database, container, None)?;
        receipt.add(cost::metadata_read());
        // The same checks as for execution: an ORDER BY without an index is rejected here already.
        let Prepared { query, program, .. } = Prepared::of(request, &container.definition)?;
        let features = supported_features.map_or(Features::ALL, Features::parse);
        let plan = plan_in(&container, &query, request, features)?;
        let single_key = plan.ranges.len() == 1 && plan.ranges[0].min == plan.ranges[0].max;
        if program.collects_over_container() && !single_key && container.partitions.len() > 1 {
            // Clients would add up the results of the ranges, which would be wrong.
            return Err(Error::bad_request(NOT_MERGEABLE));
        }
        Ok(plan.to_value())
    }

    /// The partitions that a query visits, in the order of their ranges, by the values of the key that its filter fixes.
    pub fn query_partitions(
        &self,
        (database, container): (&str, &str),
        request: &QueryRequest,
    ) -> Result<Vec<u32>> {
        let catalog = self.catalog.snapshot();
        let container = catalog.container(database, container)?;
        let Prepared { query, .. } = Prepared::of(request, &container.definition)?;
        let plan = plan_in(container, &query, request, Features::ALL)?;
        let mut partitions: Vec<&Partition> = container.partitions.iter().collect();
        partitions.sort_by(|a, b| a.range.min.cmp(&b.range.min));
        let is_visited = |partition: &&Partition| {
            plan.ranges.iter().any(|range| {
                let is_point = range.min == range.max;
                partition.range.contains(&range.min)
                    || !is_point && range.min < partition.range.max && partition.range.min < range.max
            })
        };
        Ok(partitions.into_iter().filter(is_visited).map(|partition| partition.range_id).collect())
    }
}

/// The plan of a query in this container.
pub(crate) fn plan_in(
    container: &Container,
    query: &Query,
    request: &QueryRequest,
    features: Features,
) -> Result<Plan> {
    let plan_request = PlanRequest {
        parameters: &request.parameters,
        definition: Some(&container.definition.partition_key),
        policies: &policies(&container.definition),
        computed: &computed_properties(&container.definition)?,
        features,
    };
    let restrict = |program: &Program| synthetic_routing::restriction(container, program).restriction;
    plan_query_where(query, plan_request, restrict).map_err(|errors| match errors.as_slice() {
        [] => Error::internal("a plan failed without an error"),
        errors => invalid_query(errors),
    })
}
