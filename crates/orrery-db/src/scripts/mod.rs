//! Scripts: their resources, procedures in transactions, triggers around writes, and functions in queries.

mod function;
mod gate;
mod host;
mod overlay;
mod places;
mod resource;
mod session;
mod transaction;

pub(crate) use function::QueryFunctions;
pub(crate) use overlay::Overlay;
pub use transaction::{ProcedureCall, Triggers};

use orrery_model::{Error, ErrorKind};
use orrery_script::ScriptError;

/// What all scripts share.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) gates: gate::Gates,
    places: places::Places,
}

impl Default for Scripts {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self { gates: gate::Gates::default(), places: places::Places::new((processors * 2).max(8)) }
    }
}

/// A script's failure as clients see it.
pub(crate) fn failure(error: ScriptError) -> Error {
    match error {
        ScriptError::Compile(text) => Error::new(
            ErrorKind::Script { substatus: u16::MAX },
            format!("Encountered exception while compiling Javascript. Exception = {text}"),
        ),
        ScriptError::Thrown { text, stack, number } => {
            let mut message = format!(
                "Encountered exception while executing function. Exception = {text}\r\nStack trace: {text}"
            );
            if !stack.is_empty() {
                message.push('\n');
                message.push_str(&stack);
            }
            Error::new(ErrorKind::Script { substatus: number }, message)
        }
        ScriptError::TimedOut | ScriptError::Cancelled => timed_out(),
        ScriptError::Engine(detail) => {
            tracing::error!(detail, "the script engine failed");
            Error::internal("The script engine failed.")
        }
    }
}

/// The service's words for a script beyond its time.
pub(crate) fn timed_out() -> Error {
    Error::new(
        ErrorKind::Timeout,
        "The requested operation exceeded maximum alloted time. Learn more: https://aka.ms/cosmosdb-tsg-service-request-timeout",
    )
}
