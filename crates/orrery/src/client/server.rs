//! Which server a command talks to. Every command takes the same arguments and variables, with one precedence.
//!
//! In order of precedence: the flags `--connection` or `--endpoint`, the variable `ORRERY_CONNECTION`, the variable
//! `ORRERY_ENDPOINT`, and the default. Keys are only used with the endpoint they were given for: the one in
//! `ORRERY_CONNECTION` is never used for an endpoint given by a flag. Variables are read here and not by clap, because
//! clap does not report whether a value came from a flag.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::{Account, Client};
use crate::failure::Failure;

const DEFAULT_ENDPOINT: &str = "http://127.0.0.1:8081";

/// Any endpoint that speaks the protocol: the service, an emulator, or Orrery.
#[derive(Args, Clone, Default)]
pub(crate) struct ServerArguments {
    /// The account as AccountEndpoint=URL;AccountKey=KEY; or only its URL. [env: ORRERY_CONNECTION]
    #[arg(long, value_name = "CONNECTION", conflicts_with_all = ["endpoint", "key"], help_heading = "Server")]
    pub(crate) connection: Option<String>,

    /// The server, if it is not named by a connection string. [env: ORRERY_ENDPOINT] [default: http://127.0.0.1:8081]
    #[arg(long, value_name = "URL", help_heading = "Server")]
    pub(crate) endpoint: Option<String>,

    /// An account key of the server. [env: ORRERY_KEY] [default: the emulator's well-known key]
    #[arg(long, value_name = "BASE64", help_heading = "Server")]
    pub(crate) key: Option<String>,

    #[command(flatten)]
    pub(crate) trust: TrustArguments,
}

/// Which TLS certificates to accept.
#[derive(Args, Clone, Default)]
pub(crate) struct TrustArguments {
    /// Trust this certificate (PEM) too, for example the one Orrery serves at /_explorer/emulator.pem.
    /// [env: ORRERY_CERTIFICATE]
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) certificate: Option<PathBuf>,

    /// Accept any certificate. Anyone intercepting the connection can read and modify the traffic.
    /// [env: ORRERY_INSECURE]
    #[arg(long, help_heading = "Server")]
    pub(crate) insecure: bool,
}

/// An account, and where its address came from.
struct ChosenAccount {
    account: Account,
    /// For messages: `--endpoint`, `ORRERY_CONNECTION`, …
    source: &'static str,
}

impl ServerArguments {
    /// A client for commands that only read.
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        let chosen = self.choose(&variable)?;
        self.trust.connect(chosen.account)
    }

    /// A client for commands that modify data. Prints the server on standard error, because the address may come from a
    /// forgotten variable.
    pub(crate) fn connect_to_change(&self) -> Result<Client, Failure> {
        let chosen = self.choose(&variable)?;
        announce(&chosen.account, chosen.source);
        self.trust.connect(chosen.account)
    }

    fn choose(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<ChosenAccount, Failure> {
        let named = |source: &'static str| {
            move |failure: Failure| {
                Failure::usage(format!("{source}: {}", failure.message.unwrap_or_default()))
            }
        };
        if let Some(text) = &self.connection {
            let account = Account::parse(text).map_err(named("--connection"))?;
            return Ok(ChosenAccount { account, source: "--connection" });
        }
        // Beside the key stands its own source, for messages.
        let given = || {
            let flag = self.key.clone().map(|key| (key, "--key"));
            flag.or_else(|| variable("ORRERY_KEY").map(|key| (key, "ORRERY_KEY")))
        };
        let account = |endpoint: &str, source, key: &Option<(String, &'static str)>| {
            let account = Account::new(endpoint, None).map_err(named(source))?;
            match key {
                Some((key, source)) => account.with_key(key).map_err(named(source)),
                None => Ok(account),
            }
        };
        if let Some(endpoint) = &self.endpoint {
            let key = given();
            let account = account(endpoint, "--endpoint", &key)?;
            return Ok(ChosenAccount { account, source: "--endpoint" });
        }
        if let Some(text) = variable("ORRERY_CONNECTION") {
            let mut account = Account::parse(&text).map_err(named("ORRERY_CONNECTION"))?;
            if let Some(key) = &self.key {
                account = account.with_key(key).map_err(named("--key"))?;
            }
            return Ok(ChosenAccount { account, source: "ORRERY_CONNECTION" });
        }
        let key = given();
        let (endpoint, source) = match variable("ORRERY_ENDPOINT") {
            Some(endpoint) => (endpoint, "ORRERY_ENDPOINT"),
            None => (DEFAULT_ENDPOINT.to_owned(), "the default"),
        };
        Ok(ChosenAccount { account: account(&endpoint, source, &key)?, source })
    }
}

impl TrustArguments {
    pub(crate) fn connect(&self, account: Account) -> Result<Client, Failure> {
        let certificate =
            self.certificate.clone().or_else(|| variable("ORRERY_CERTIFICATE").map(PathBuf::from));
        let insecure = self.insecure
            || match variable("ORRERY_INSECURE").as_deref() {
                None | Some("0" | "false" | "no" | "off") => false,
                Some("1" | "true" | "yes" | "on") => true,
                Some(other) => {
                    return Err(Failure::usage(format!(
                        "ORRERY_INSECURE must be true or false, but got `{other}`"
                    )));
                }
            };
        Client::new(account.trusting(certificate, insecure))
    }
}

/// Prints which server is about to be modified, and where its address came from.
pub(crate) fn announce(account: &Account, source: &str) {
    // Only for people: ignore a closed standard error.
    writeln!(std::io::stderr(), "Server: {} ({source})", account.endpoint()).ok();
}

/// An environment variable; empty ones count as unset.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use orrery_gateway::auth::WELL_KNOWN_KEY;

    use super::*;

    const OTHER: &str =
        "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ==";

    /// `[connection, endpoint, key]` as flags and as variables; returns endpoint, key and source.
    fn choose(flags: [Option<&str>; 3], variables: [Option<&str>; 3]) -> (String, bool, &'static str) {
        let [connection, endpoint, key] = flags.map(|flag| flag.map(str::to_owned));
        let arguments = ServerArguments { connection, endpoint, key, ..ServerArguments::default() };
        let names = ["ORRERY_CONNECTION", "ORRERY_ENDPOINT", "ORRERY_KEY"];
        let variable = |name: &str| {
            let at = names.iter().position(|known| *known == name)?;
            variables[at].map(str::to_owned)
        };
        let chosen = arguments.choose(&variable).ok().unwrap();
        (chosen.account.endpoint(), chosen.account.key.is_well_known(), chosen.source)
    }

    #[test]
    fn flags_come_before_variables_and_connections_before_endpoints() {
        let string = format!("AccountEndpoint=http://string;AccountKey={OTHER};");
        let string = Some(string.as_str());
        let (a, b) = (Some("http://a"), Some("http://b"));
        let check = |flags, variables, endpoint: &str, well_known: bool, source: &str| {
            assert_eq!(
                choose(flags, variables),
                (endpoint.to_owned(), well_known, source),
                "{flags:?} {variables:?}"
            );
        };
        check([None; 3], [None; 3], DEFAULT_ENDPOINT, true, "the default");
        check([None; 3], [None, None, Some(OTHER)], DEFAULT_ENDPOINT, false, "the default");
        check([None; 3], [None, a, None], "http://a", true, "ORRERY_ENDPOINT");
        check([None; 3], [string, a, None], "http://string", false, "ORRERY_CONNECTION");
        check([None, b, None], [string, a, None], "http://b", true, "--endpoint");
        check([None, b, Some(OTHER)], [string, a, None], "http://b", false, "--endpoint");
        check([a, None, None], [string, b, Some(OTHER)], "http://a", true, "--connection");
        check([string, None, None], [a, b, None], "http://string", false, "--connection");
        check(
            [None, None, Some(WELL_KNOWN_KEY)],
            [string, a, None],
            "http://string",
            true,
            "ORRERY_CONNECTION",
        );
    }
}
