//! User-defined functions in queries.

use orrery_model::{Result, Value};
use orrery_query::EvalError;
use orrery_query::ast::{ExprKind, Query};
use orrery_query::context::UdfCaller;
use orrery_script::{FunctionError, Functions, Limits};

use super::stop::run_blocking;
use crate::catalog::{Container, ScriptKind};
use crate::failure::script_failure;
use crate::query::Queries;
use crate::query::walk::{Visited, walk};

/// Memory limit of the functions of one query page.
const MEMORY_BYTES: usize = 32 << 20;

/// The compiled functions of one query page.
#[derive(Debug)]
pub(crate) struct QueryFunctions {
    functions: Functions,
    /// Functions missing from the container: an error only when called, as in the service.
    missing: Vec<String>,
}

impl QueryFunctions {
    /// Compiles the functions of the query, if it has any.
    pub(crate) fn of(
        database: &Queries,
        container: &Container,
        query: &Query,
        now_ms: i64,
    ) -> Result<Option<Self>> {
        let names = functions_of(query);
        if names.is_empty() {
            return Ok(None);
        }
        let scripts = database.catalog.snapshot().scripts(container.rid);
        let (mut found, mut missing) = (Vec::with_capacity(names.len()), Vec::new());
        for name in names {
            // By name only: `get` would also find a function by its RID.
            let script = scripts.get(ScriptKind::Function, name).ok().filter(|script| *script.id == *name);
            match script {
                Some(script) => found.push(script.clone()),
                None => missing.push(name.to_owned()),
            }
        }
        let limits =
            Limits { memory_bytes: MEMORY_BYTES, ..Limits::for_time(database.options.script_time_max) };
        let sources = found.iter().map(|script| (&*script.id, &*script.body));
        // Compiling executes the script's text, which may run until its time limit.
        let made = run_blocking(|| Functions::new(sources, &limits, now_ms, database.env.random_u64()));
        made.map(|functions| Some(Self { functions, missing })).map_err(script_failure)
    }
}

/// The distinct names of the functions that a query calls.
fn functions_of(query: &Query) -> Vec<&str> {
    let mut names = Vec::new();
    walk(query, &mut |visited| {
        if let Visited::Expression(expr) = visited
            && let ExprKind::Call(call) = &expr.kind
            && call.udf
        {
            names.push(&*call.name.text);
        }
    });
    names.sort_unstable();
    // Each is compiled once, however often it is called.
    names.dedup();
    names
}

impl UdfCaller for QueryFunctions {
    fn call(&self, name: &str, arguments: &[Value]) -> Result<Option<Value>, EvalError> {
        if self.missing.iter().any(|missing| missing == name) {
            return Err(EvalError::Message(format!(
                "The user-defined function 'udf.{name}' does not exist in the container."
            )));
        }
        self.functions.call(name, arguments).map_err(|error| match error {
            FunctionError::Failed(text) => EvalError::UdfFailed(format!(
                "Encountered exception while executing user-defined function. Exception = {text}"
            )),
            FunctionError::TimedOut => EvalError::UdfTimedOut,
        })
    }
}
