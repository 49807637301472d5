//! One engine with its limits, and the deadline that stops it.

use std::sync::Arc;

use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::prelude::Func;
use rquickjs::{Context, Ctx, Function, Object, Runtime, Value};

use crate::memory::ClockedAllocator;
use crate::watch::Watch;
use crate::{Cancellation, Limits, ScriptError};

const GROUND: &str = include_str!("prelude/ground.js");

/// The whole language except shared memory, the machine's clock and web APIs.
type Language = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
    intrinsic::WeakRef,
);

/// An engine that has not run any user code yet.
pub(crate) struct Sandbox {
    pub(crate) context: Context,
    pub(crate) watch: Arc<Watch>,
}

impl Sandbox {
    /// Creates an engine. Its limits apply before anything runs in it.
    pub(crate) fn new(limits: &Limits, cancellation: Cancellation) -> Result<Self, ScriptError> {
        let engine = |error: rquickjs::Error| ScriptError::Engine(error.to_string());
        let watch = Arc::new(Watch::new(limits.time, cancellation));
        // Three checks of the time: between instructions (the handler below), in allocations, and in the prelude's
        // versions of builtins that work for long without either.
        let memory = ClockedAllocator::new(Arc::clone(&watch));
        let runtime = Runtime::new_with_alloc(memory).map_err(engine)?;
        runtime.set_memory_limit(limits.memory_bytes);
        runtime.set_max_stack_size(limits.stack_bytes);
        let handler = Arc::clone(&watch);
        runtime.set_interrupt_handler(Some(Box::new(move || handler.must_stop())));
        let context = Context::custom::<Language>(&runtime).map_err(engine)?;
        Ok(Self { context, watch })
    }

    /// Adapts the language to what scripts expect. `now` returns milliseconds since 1970, `random` a number in [0, 1).
    pub(crate) fn prepare<'js>(
        ctx: &Ctx<'js>,
        watch: Arc<Watch>,
        now: impl Fn() -> f64 + Send + 'js,
        random: impl Fn() -> f64 + Send + 'js,
    ) -> rquickjs::Result<()> {
        let native = Object::new(ctx.clone())?;
        native.set("now", Func::from(now))?;
        native.set("random", Func::from(random))?;
        // The prelude calls this in front of builtins whose work grows with their arguments.
        let check = move |ctx: Ctx<'js>| {
            if watch.must_stop() {
                Err(rquickjs::Exception::throw_internal(&ctx, "interrupted"))
            } else {
                Ok(())
            }
        };
        native.set("check", Func::from(check))?;
        // Also for code that a script makes itself, with `eval` or `new Function`.
        let refuse_large_numbers = |ctx: Ctx<'js>, text: String| {
            if has_large_number(&text) {
                Err(rquickjs::Exception::throw_syntax(&ctx, NO_LARGE_NUMBERS))
            } else {
                Ok(())
            }
        };
        native.set("refuseLargeNumbers", Func::from(refuse_large_numbers))?;
        // Asked natively: looking into a proxy from JavaScript would run the script's own traps.
        native.set("isPlainArray", Func::from(|value: Value<'js>| value.is_array() && !value.is_proxy()))?;
        native.set("isProxy", Func::from(|value: Value<'js>| value.is_proxy()))?;
        let ground: Function<'js> = evaluate(ctx, GROUND, "ground.js")?;
        ground.call((native,))
    }
}

/// Evaluates a text as a script of the global scope.
pub(crate) fn evaluate<'js, T: rquickjs::FromJs<'js>>(
    ctx: &Ctx<'js>,
    source: &str,
    file: &str,
) -> rquickjs::Result<T> {
    let mut options = EvalOptions::default();
    // Scripts written for the service rely on sloppy mode.
    options.strict = false;
    options.filename = Some(file.to_owned());
    ctx.eval_with_options(source, options)
}

/// Compiles the text of a script to its function. The text is an expression (`function (x) { … }`, `x => …`), optionally
/// with trailing semicolons, or a list of declarations, of which the first is used.
pub(crate) fn compile<'js>(ctx: &Ctx<'js>, source: &str, name: &str) -> Result<Function<'js>, ScriptError> {
    if has_large_number(source) {
        return Err(ScriptError::Compile(format!("SyntaxError: {NO_LARGE_NUMBERS}")));
    }
    // A semicolon cannot stand before the bracket that makes the text an expression.
    let text = source.trim_end_matches(|character: char| character == ';' || character.is_whitespace());
    let file = format!("{name}.js");
    // The line break ends a comment in the last line.
    let as_expression = evaluate::<Value<'js>>(ctx, &format!("({text}\n)"), &file).map_err(|_| describe(ctx));
    let compiled = as_expression.or_else(|failure| {
        // If there is no declaration either, the first error is the one that helps.
        let first = first_function(text).ok_or(failure)?;
        // Inside a function, so that the helpers it declares stay its own.
        let declarations = format!("(function () {{ {text}\n; return {first}; }})()");
        evaluate::<Value<'js>>(ctx, &declarations, &file).map_err(|_| describe(ctx))
    });
    let value = compiled.map_err(ScriptError::Compile)?;
    value
        .into_function()
        .ok_or_else(|| ScriptError::Compile("TypeError: the script is not a function".to_owned()))
}

const NO_LARGE_NUMBERS: &str = "numbers like 1n are not part of the language";

/// Whether something in a text, be it code or not, looks like a number of any size: `1n`, `0xFFn`. What only looks
/// like one, inside of a string, counts too: deciding that would need to read the text exactly as the engine does.
fn has_large_number(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$';
    text.as_bytes().split(|byte| !is_part(*byte)).any(|word| match word {
        // A digit first, `n` last, and between them digits of any base, prefixes and separators.
        [first, middle @ .., b'n'] => {
            first.is_ascii_digit()
                && middle.iter().all(|byte| byte.is_ascii_hexdigit() || b"xXoObB_".contains(byte))
        }
        _ => false,
    })
}

/// The name of the first function that a text declares.
fn first_function(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("function")?;
    let rest = rest.trim_start();
    let is_part = |character: char| character.is_alphanumeric() || character == '_' || character == '$';
    let end = rest.find(|character| !is_part(character)).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

/// The pending exception as text.
pub(crate) fn describe(ctx: &Ctx<'_>) -> String {
    let thrown = ctx.catch();
    if let Some(exception) = thrown.as_exception() {
        let name: Option<String> = exception.as_object().get("name").ok();
        return format!(
            "{}: {}",
            name.unwrap_or_else(|| "Error".to_owned()),
            exception.message().unwrap_or_default()
        );
    }
    thrown.as_string().and_then(|text| text.to_string().ok()).unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_seen_wherever_they_stand() {
        for text in ["1n", "x=0n", "f(...1n)", "0xFFn", "0b1_0n;", "1_000n<<2n", "-9n", "a?.5n:1", "`${7n}`"]
        {
            assert!(has_large_number(text), "{text}");
        }
        for text in ["", "n", "1", "x1n", "$1n", "1nx", "10 n", "0x", "min", "id2nd", "3rd", "_1n"] {
            assert!(!has_large_number(text), "{text}");
        }
    }
}
