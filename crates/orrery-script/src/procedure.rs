//! Runs a stored procedure or a trigger.

use std::sync::{Arc, Mutex, PoisonError};

use orrery_model::value::{self, write_json_string};
use rquickjs::prelude::Func;
use rquickjs::{Ctx, Function, Object};

use crate::sandbox::{Sandbox, compile, evaluate};
use crate::watch::Watch;
use crate::{Cancellation, Host, Limits, ScriptError};

const CONTEXT: &str = include_str!("prelude/context.js");

/// The kind of script, which decides what it may use of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Procedure,
    PreTrigger,
    PostTrigger,
}

/// A script and its inputs.
#[derive(Clone, Debug)]
pub struct Invocation {
    pub role: Role,
    /// The script's id, which stack traces show.
    pub name: String,
    pub source: String,
    /// The procedure's arguments: a JSON array, as the client sent it.
    pub arguments: Option<String>,
    /// The collection's link by RIDs, and by names.
    pub self_link: String,
    pub alt_link: String,
    /// The JSON body of the request: the item that a trigger runs on.
    pub request_body: Option<String>,
    /// `Create`, `Replace`, `Upsert`, `Delete`, or `Execute` for a procedure.
    pub operation: &'static str,
    /// Headers that scripts may read.
    pub headers: Vec<(String, String)>,
    /// The JSON body of the response, for a post-trigger.
    pub response_body: Option<String>,
    /// The container's quota and usage, in the format of the headers of the same name.
    pub quota: String,
    pub usage: String,
    pub logs: bool,
    /// Collects log output, also of a script that fails.
    pub logged: Arc<Mutex<String>>,
}

/// The result of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The JSON body of the response; an empty string if a procedure sets none.
    pub response_body: Option<String>,
    /// The JSON body of the request after a pre-trigger.
    pub request_body: Option<String>,
    pub log: Option<String>,
}

/// Runs a script on the current thread until it finishes.
pub fn run(
    invocation: &Invocation,
    limits: &Limits,
    cancellation: Cancellation,
    host: Box<dyn Host>,
) -> Result<Outcome, ScriptError> {
    let sandbox = Sandbox::new(limits, cancellation)?;
    let watch = &sandbox.watch;
    let host = Arc::new(Mutex::new(host));
    let aborted: Arc<Mutex<Option<String>>> = Arc::default();
    let result = sandbox.context.with(|ctx| {
        let session = Session { ctx: ctx.clone(), watch: Arc::clone(watch), limits };
        session.run(invocation, &host, &aborted)
    });
    // Before the result: a script that caught the error of its own interruption has still run out of time.
    if let Some(verdict) = watch.verdict() {
        return Err(verdict);
    }
    // Recorded outside of the engine, where the script cannot catch it.
    let reason = aborted.lock().unwrap_or_else(PoisonError::into_inner).take();
    match reason {
        Some(reason) => Err(thrown(&reason)),
        None => result,
    }
}

struct Session<'a, 'js> {
    ctx: Ctx<'js>,
    watch: Arc<Watch>,
    limits: &'a Limits,
}

impl<'js> Session<'_, 'js> {
    fn run(
        &self,
        invocation: &Invocation,
        host: &Arc<Mutex<Box<dyn Host>>>,
        aborted: &Arc<Mutex<Option<String>>>,
    ) -> Result<Outcome, ScriptError> {
        // 1. The API, before any of the script's own code.
        let driver = self.driver(invocation, host, aborted).map_err(|error| {
            // Only the prelude has run: an error here is a bug of ours, or the limits are too small for anything.
            ScriptError::Engine(format!("{error}: {}", crate::sandbox::describe(&self.ctx)))
        })?;
        // 2. The script itself; what it requests from the collection only joins a queue.
        let script = compile(&self.ctx, &invocation.source, &invocation.name)?;
        let main: Function<'js> = member(&driver, "main")?;
        self.caught::<()>(&driver, main.call((script, invocation.arguments.clone())))?;
        self.run_jobs();
        // 3. One queued operation and its callback at a time, as in the service: callbacks never run inside of a
        // call.
        let step: Function<'js> = member(&driver, "step")?;
        while !self.watch.must_stop() && self.caught::<bool>(&driver, step.call(()))? {
            self.run_jobs();
        }
        // 4. What the script has left in its request, its response and its log.
        let finish: Function<'js> = member(&driver, "finish")?;
        let (response_body, request_body, log): (Option<String>, Option<String>, Option<String>) = {
            let parts: Vec<Option<String>> = self.caught(&driver, finish.call(()))?;
            let mut parts = parts.into_iter();
            (parts.next().flatten(), parts.next().flatten(), parts.next().flatten())
        };
        if response_body.as_ref().is_some_and(|body| body.len() > self.limits.message_characters) {
            return Err(ScriptError::Thrown {
                text: "Error: The response body is larger than allowed.".to_owned(),
                stack: String::new(),
                number: 413,
            });
        }
        Ok(Outcome { response_body, request_body, log })
    }

    /// Sets up the API and returns the object that drives the script.
    fn driver(
        &self,
        invocation: &Invocation,
        host: &Arc<Mutex<Box<dyn Host>>>,
        aborted: &Arc<Mutex<Option<String>>>,
    ) -> rquickjs::Result<Object<'js>> {
        let locked = |host: &Arc<Mutex<Box<dyn Host>>>| Arc::clone(host);
        // The script's clock starts at the host's time, which a test may have moved, and runs on with real time.
        let started_at_ms = host.lock().unwrap_or_else(PoisonError::into_inner).started_at_ms();
        let (clock, rng) = (Arc::clone(&self.watch), locked(host));
        Sandbox::prepare(
            &self.ctx,
            Arc::clone(&self.watch),
            #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are exact in a double")]
            move || started_at_ms as f64 + clock.elapsed().as_millis() as f64,
            move || unit(rng.lock().unwrap_or_else(PoisonError::into_inner).random()),
        )?;
        let native = Object::new(self.ctx.clone())?;
        let (watch, accepts, asked) = (Arc::clone(&self.watch), self.limits.accepts, locked(host));
        let accepting = move || {
            // The last part of the time is kept for finishing, and a transaction has a limit on what it can take.
            watch.elapsed() < accepts && asked.lock().unwrap_or_else(PoisonError::into_inner).accepts()
        };
        native.set("accepts", Func::from(accepting))?;
        let (watch, called) = (Arc::clone(&self.watch), locked(host));
        let call = move |ctx: Ctx<'js>, operation: String, payload: String| {
            let answer = called.lock().unwrap_or_else(PoisonError::into_inner).call(&operation, &payload);
            // The host has given up. The script may catch this exception, but stops at its next check.
            answer.ok_or_else(|| {
                watch.abort();
                rquickjs::Exception::throw_message(&ctx, "the script was cancelled")
            })
        };
        native.set("call", Func::from(call))?;
        let rng = locked(host);
        native.set(
            "guid",
            Func::from(move || guid(&mut **rng.lock().unwrap_or_else(PoisonError::into_inner))),
        )?;
        let (watch, reason) = (Arc::clone(&self.watch), Arc::clone(aborted));
        let abort = move |text: String| {
            // The first reason counts: what follows happens while the script is being stopped.
            reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
            watch.abort();
        };
        native.set("abort", Func::from(abort))?;
        let logged = Arc::clone(&invocation.logged);
        // Into the invocation's own text, which outlives a script that fails.
        let log = move |text: String| logged.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        native.set("log", Func::from(log))?;
        let context: Function<'js> = evaluate(&self.ctx, CONTEXT, "context.js")?;
        context.call((native, setup(invocation, self.limits)))
    }

    /// Runs pending promise jobs. Their errors are ignored, as in the service.
    fn run_jobs(&self) {
        while !self.watch.must_stop() && self.ctx.execute_pending_job() {}
    }

    fn caught<T>(&self, driver: &Object<'js>, result: rquickjs::Result<T>) -> Result<T, ScriptError> {
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        if !error.is_exception() {
            return Err(ScriptError::Thrown { text: error.to_string(), stack: String::new(), number: 0 });
        }
        // Taken in any case: a pending exception would fail the next call into the engine.
        let value = self.ctx.catch();
        if self.watch.must_stop() {
            return Err(self.watch.verdict().unwrap_or(ScriptError::Cancelled));
        }
        let describe: Function<'js> = member(driver, "describe")?;
        let described: rquickjs::Result<String> = describe.call((value,));
        // A script that has used up its memory leaves no space for a description.
        Err(described.map_or_else(
            |_| ScriptError::Thrown {
                text: crate::sandbox::describe(&self.ctx),
                stack: String::new(),
                number: 0,
            },
            |text| thrown(&text),
        ))
    }
}

/// Gets a function of the driver.
fn member<'js, T: rquickjs::FromJs<'js>>(driver: &Object<'js>, name: &str) -> Result<T, ScriptError> {
    driver.get(name).map_err(|error| ScriptError::Engine(error.to_string()))
}

/// Parses the description of an exception.
fn thrown(description: &str) -> ScriptError {
    let parsed = value::parse(description.as_bytes()).unwrap_or_default();
    let text = |name: &str| parsed.get(name).and_then(value::Value::as_str).unwrap_or_default().to_owned();
    let number =
        parsed.get("number").and_then(value::Value::as_i64).and_then(|number| u16::try_from(number).ok());
    // Frames of the prelude mean nothing to the script's author.
    let is_script = |line: &&str| {
        !["(ground.js:", "(context.js:", "at construct (native)", "at apply (native)"]
            .iter()
            .any(|ours| line.contains(ours))
    };
    let stack: Vec<String> =
        text("stack").lines().filter(is_script).map(|line| format!("   {}", line.trim_start())).collect();
    ScriptError::Thrown { text: text("text"), stack: stack.join("\n"), number: number.unwrap_or(0) }
}

/// The inputs of the prelude, as JSON.
fn setup(invocation: &Invocation, limits: &Limits) -> String {
    let mut out = String::with_capacity(1024);
    let kind = match invocation.role {
        Role::Procedure => "procedure",
        Role::PreTrigger => "pre",
        Role::PostTrigger => "post",
    };
    out.push_str("{\"kind\":\"");
    out.push_str(kind);
    out.push_str("\",\"selfLink\":");
    write_json_string(&invocation.self_link, &mut out);
    out.push_str(",\"altLink\":");
    write_json_string(&invocation.alt_link, &mut out);
    let limits = format!(
        ",\"logging\":{},\"messageCharactersMax\":{},\"logCharactersMax\":{}",
        invocation.logs, limits.message_characters, limits.log_characters
    );
    out.push_str(&limits);
    out.push_str(",\"request\":{\"Body\":");
    // Bodies are JSON already, and become a part of this text as they are.
    out.push_str(invocation.request_body.as_deref().unwrap_or("\"\""));
    out.push_str(",\"OperationType\":");
    write_json_string(invocation.operation, &mut out);
    for (name, text) in &invocation.headers {
        out.push(',');
        write_json_string(name, &mut out);
        out.push(':');
        write_json_string(text, &mut out);
    }
    out.push_str("},\"response\":");
    // A pre-trigger runs before there is a response.
    if invocation.role == Role::PreTrigger {
        out.push_str("null}");
        return out;
    }
    out.push_str("{\"Body\":");
    out.push_str(invocation.response_body.as_deref().unwrap_or("\"\""));
    out.push_str(",\"x-ms-documentdb-script-log-results\":null,\"MaxResourceQuota\":");
    write_json_string(&invocation.quota, &mut out);
    out.push_str(",\"ResourceQuotaCurrentUsage\":");
    write_json_string(&invocation.usage, &mut out);
    out.push_str(",\"StatusCode\":200}}");
    out
}

/// A number in [0, 1).
#[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

fn guid(host: &mut dyn Host) -> String {
    let bits = u128::from(host.random()) << 64 | u128::from(host.random());
    // Version 4 and the variant of RFC 9562, in their places.
    let bits = bits & !(0xF << 76) | 4 << 76;
    let bits = bits & !(3 << 62) | 2 << 62;
    let text = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}
