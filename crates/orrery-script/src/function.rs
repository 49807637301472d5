//! User-defined functions of one query: compiled once, called for every row.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use orrery_env::monotonic;
use orrery_model::value::{self, Value};
use rquickjs::{Function, Object};

use crate::sandbox::{Sandbox, compile, describe, evaluate};
use crate::{Cancellation, Limits, ScriptError};

const FUNCTIONS: &str = include_str!("prelude/functions.js");
const DRIVER: &str = "\u{0}functions";

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// The function threw, or its result is not JSON.
    #[error("{0}")]
    Failed(String),
    /// All calls of the query together exceeded the time limit.
    #[error("the functions of the query took too long")]
    TimedOut,
}

/// The functions that one query calls, in their own sandbox.
pub struct Functions {
    sandbox: Sandbox,
    /// Time left for all calls together.
    left: Mutex<Duration>,
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Functions").finish_non_exhaustive()
    }
}

impl Functions {
    /// Compiles the functions, given by name and text.
    pub fn new<'a>(
        functions: impl IntoIterator<Item = (&'a str, &'a str)>,
        limits: &Limits,
        now_ms: i64,
        seed: u64,
    ) -> Result<Self, ScriptError> {
        let sandbox = Sandbox::new(limits, Cancellation::default())?;
        let started = monotonic::now();
        let random = Mutex::new(seed);
        // Compiling counts too: a text may take long to compile.
        let made = sandbox.context.with(|ctx| {
            let driver = (|| {
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "milliseconds since 1970 are exact in a double"
                )]
                Sandbox::prepare(
                    &ctx,
                    std::sync::Arc::clone(&sandbox.watch),
                    // The clock stands still: every row sees the same time.
                    move || now_ms as f64,
                    move || next_random(&random),
                )?;
                let driver: Function<'_> = evaluate(&ctx, FUNCTIONS, "functions.js")?;
                driver.call::<_, Object<'_>>(())
            })();
            let driver =
                driver.map_err(|error| ScriptError::Engine(format!("{error}: {}", describe(&ctx))))?;
            let engine = |error: rquickjs::Error| ScriptError::Engine(error.to_string());
            let define: Function<'_> = driver.get("define").map_err(engine)?;
            for (name, source) in functions {
                let function = compile(&ctx, source, name)?;
                define.call::<_, ()>((name, function)).map_err(engine)?;
            }
            // Under a name that no script writes by accident, neither enumerable nor writable.
            ctx.globals().prop(DRIVER, rquickjs::object::Property::from(driver)).map_err(engine)
        });
        // Before `made`, whose error may only be the consequence.
        if let Some(verdict) = sandbox.watch.verdict() {
            return Err(verdict);
        }
        made?;
        let left = Mutex::new(limits.time.saturating_sub(monotonic::elapsed(started)));
        Ok(Self { sandbox, left })
    }

    /// Calls a function; `Ok(None)` is `undefined`.
    pub fn call(&self, name: &str, arguments: &[Value]) -> Result<Option<Value>, FunctionError> {
        // Held for the whole call: the engine runs one at a time.
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let started = monotonic::now();
        // The limit is for all calls of the query together, not for each row.
        self.sandbox.watch.allow(*left);
        let text = self.sandbox.context.with(|ctx| {
            // As JSON text: a function gets copies, and cannot change what the query goes on with.
            let text = arguments_text(arguments);
            let run = || -> rquickjs::Result<Option<String>> {
                let driver: Object<'_> = ctx.globals().get(DRIVER)?;
                let call: Function<'_> = driver.get("call")?;
                call.call((name, text))
            };
            run().map_err(|_| describe(&ctx))
        });
        *left = left.saturating_sub(monotonic::elapsed(started));
        if self.sandbox.watch.verdict().is_some() {
            return Err(FunctionError::TimedOut);
        }
        match text.map_err(FunctionError::Failed)? {
            None => Ok(None),
            Some(text) => value::parse(text.as_bytes())
                .map(Some)
                .map_err(|error| FunctionError::Failed(error.to_string())),
        }
    }
}

fn arguments_text(arguments: &[Value]) -> String {
    let mut text = String::from("[");
    for (at, argument) in arguments.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(&argument.to_json());
    }
    text.push(']');
    text
}

/// The next number in [0, 1), by one step of SplitMix64.
#[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
fn next_random(state: &Mutex<u64>) -> f64 {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1u64 << 53) as f64
}
