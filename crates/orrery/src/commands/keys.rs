//! `orrery keys`: the account's keys, and replacing one without a pause.

use std::io::Write;

use clap::{Subcommand, ValueEnum};
use orrery_env::SystemEnv;
use orrery_model::{Object, Value};

use crate::client::{Request, ServerArguments, accepted_json};
use crate::failure::Failure;
use crate::io::rows::{RowsArguments, table, terminal_width};
use crate::io::{plain, print};

#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// List the keys of the account: which there are and where they come from, not the keys themselves.
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        server: ServerArguments,

        #[command(flatten)]
        rows: RowsArguments,
    },
    /// Replace a key, or make the first of its kind, and print the new one. The former one is refused from then on.
    ///
    /// To replace both keys without a pause: rotate the secondary key, move every client to it, rotate the primary key,
    /// and move the clients back. The keys that a server makes are stored with its data.
    Rotate {
        /// Which key.
        kind: KindArgument,

        #[command(flatten)]
        server: ServerArguments,

        #[command(flatten)]
        rows: RowsArguments,
    },
}

/// The kinds of keys by their names in the service's own tools.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum KindArgument {
    Primary,
    Secondary,
    #[value(name = "primaryReadonly", alias = "primary-readonly")]
    PrimaryReadonly,
    #[value(name = "secondaryReadonly", alias = "secondary-readonly")]
    SecondaryReadonly,
}

pub(super) fn run(command: &KeysCommand, output: &mut impl Write) -> Result<(), Failure> {
    let text = match command {
        KeysCommand::List { server, rows } => {
            let request = Request::get("/_orrery/keys");
            let keys = accepted_json(server.connect()?.send_blocking(&SystemEnv, &request)?)?;
            rows.render(&keys, || table(keys.as_array().unwrap_or(&[]), terminal_width()))
        }
        KeysCommand::Rotate { kind, server, rows } => {
            let name = kind.to_possible_value().expect("every kind has a name");
            let mut body = Object::new();
            body.set("kind", Value::from(name.get_name()));
            let request = Request::post("/_orrery/keys/rotate", Value::from(body).to_json());
            // Sent once: every request makes another key.
            let answer = accepted_json(server.connect_to_change()?.send_blocking(&SystemEnv, &request)?)?;
            if answer.get("durable").and_then(Value::as_bool) == Some(false) {
                // Only for people: ignore a closed standard error.
                writeln!(std::io::stderr(), "The server is in memory: the key is gone when it stops.").ok();
            }
            rows.render(&answer, || answer.get("key").map(plain).unwrap_or_default() + "\n")
        }
    };
    print(output, &text)
}
