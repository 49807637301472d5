//! `orrery shell`: a prompt on any endpoint.
//!
//! Reads statements from a terminal (`prompt`) or a pipe in a loop; `statement` parses them, `session` executes them.
//! An error ends a script, but not a terminal session.

mod complete;
mod help;
mod prompt;
mod session;
mod statement;

use std::io::{BufRead, IsTerminal, Write};

use clap::Args;

use self::prompt::{Input, Prompt};
use self::session::Session;
use self::statement::Statement;
use crate::client::ServerArguments;
use crate::failure::Failure;
use crate::io::rows::RowsFormat;

#[derive(Args)]
pub(crate) struct ShellArguments {
    /// The account, as AccountEndpoint=URL;AccountKey=KEY; or only its URL.
    #[arg(value_name = "CONNECTION", conflicts_with_all = ["connection", "endpoint", "key"])]
    account: Option<String>,

    /// Start in this database.
    #[arg(long, short, value_name = "ID", env = "ORRERY_DATABASE")]
    database: Option<String>,

    /// Start in this container.
    #[arg(long, short, value_name = "ID", env = "ORRERY_CONTAINER", requires = "database")]
    container: Option<String>,

    /// Start in this mode. [default: table on a terminal, json lines in pipes]
    #[arg(long, short, value_enum, value_name = "FORMAT", env = "ORRERY_OUTPUT")]
    output: Option<RowsFormat>,

    #[command(flatten)]
    server: ServerArguments,
}

pub(super) fn run(arguments: &ShellArguments) -> Result<(), Failure> {
    let mut server = arguments.server.clone();
    if let Some(account) = &arguments.account {
        server.connection = Some(account.clone());
    }
    // With either end in a pipe it is a script.
    let is_interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let mut session = Session::open(server, is_interactive, arguments.output)?;
    if is_interactive {
        session.greet()?;
    }
    match (&arguments.database, &arguments.container) {
        (Some(database), Some(container)) => session.enter(database, Some(container))?,
        (Some(database), None) => session.enter(database, None)?,
        _ => {}
    }
    if is_interactive { interact(&mut session) } else { follow(&mut session, &mut std::io::stdin().lock()) }
}

/// Reads from a terminal until the user leaves.
fn interact(session: &mut Session) -> Result<(), Failure> {
    let mut prompt = Prompt::open()?;
    loop {
        let text = match prompt.read(session)? {
            Input::Text(text) => text,
            Input::Cancelled => continue,
            Input::Ended => return Ok(()),
        };
        match Statement::parse(&text).and_then(|statement| session.execute(statement)) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // Errors do not end the session.
            Err(failure) => {
                if let Some(message) = &failure.message {
                    writeln!(std::io::stderr(), "error: {message}").ok();
                }
            }
        }
    }
}

/// Runs a script: statements end with a semicolon, an empty line, or the end; commands end with their line.
fn follow(session: &mut Session, input: &mut dyn BufRead) -> Result<(), Failure> {
    let mut pending = String::new();
    let mut line = String::new();
    loop {
        line.clear();
        let read = input.read_line(&mut line);
        let length = read.map_err(|error| Failure::refused(format!("the script cannot be read: {error}")))?;
        let is_command = statement::is_command(&line);
        // An empty line, a command or the end of the input ends the query before it.
        if length == 0 || line.trim().is_empty() || is_command {
            if !session.execute(Statement::parse(&std::mem::take(&mut pending))?)? {
                return Ok(());
            }
            if length == 0 {
                return Ok(());
            }
        }
        if is_command {
            if !session.execute(Statement::parse(&line)?)? {
                return Ok(());
            }
            continue;
        }
        pending += &line;
        if statement::ends_statement(&pending)
            && !session.execute(Statement::parse(&std::mem::take(&mut pending))?)?
        {
            return Ok(());
        }
    }
}
