//! `orrery health`: whether a server is ready, as an exit code.

use std::io::Write;

use orrery_env::SystemEnv;

use crate::client::{Request, ServerArguments};
use crate::failure::Failure;
use crate::io::{plain, print};

pub(super) fn run(server: &ServerArguments, output: &mut impl Write) -> Result<(), Failure> {
    let response = server.connect()?.send_blocking(&SystemEnv, &Request::get("/ready"))?;
    let health = response.json().unwrap_or_default();
    let member = |name: &str| health.get(name).map(plain);
    if response.is_success() {
        return print(output, "ready\n");
    }
    let reason =
        member("reason").or_else(|| member("status")).unwrap_or_else(|| "no reason given".to_owned());
    Err(Failure::refused(format!("the server is not ready ({}): {reason}", response.status)))
}
