//! The prompt on a terminal: editing over several lines, history, completion.

use std::path::PathBuf;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::complete::{Names, complete};
use super::session::Session;
use super::statement::{is_command, is_open};
use crate::failure::Failure;

const HISTORY_ENTRIES_MAX: usize = 2000;

/// What the user did at the prompt.
pub(super) enum Input {
    Text(String),
    /// Ctrl-C: discard the line.
    Cancelled,
    /// Ctrl-D.
    Ended,
}

pub(super) struct Prompt {
    editor: Editor<ShellHelper, FileHistory>,
    history: Option<PathBuf>,
}

impl Prompt {
    pub(super) fn open() -> Result<Self, Failure> {
        let failed = |error: ReadlineError| Failure::refused(format!("the terminal cannot be used: {error}"));
        let config = Config::builder()
            .completion_type(CompletionType::List)
            // A space in front keeps a line out of the history, for example one with a key.
            .history_ignore_space(true)
            .max_history_size(HISTORY_ENTRIES_MAX)
            .map_err(failed)?
            .build();
        let mut editor = Editor::with_config(config).map_err(failed)?;
        editor.set_helper(Some(ShellHelper::default()));
        let history = history_file();
        if let Some(history) = &history {
            // The first session has none.
            editor.load_history(history).ok();
        }
        Ok(Self { editor, history })
    }

    pub(super) fn read(&mut self, session: &mut Session) -> Result<Input, Failure> {
        // Copied into the editor only when they have changed.
        if let Some(helper) = self.editor.helper_mut()
            && let Some(names) = session.changed_names()
        {
            helper.names = names;
        }
        match self.editor.readline(&session.prompt()) {
            Ok(text) => {
                if !text.trim().is_empty() {
                    self.remember(&text);
                }
                Ok(Input::Text(text))
            }
            Err(ReadlineError::Interrupted) => Ok(Input::Cancelled),
            Err(ReadlineError::Eof) => Ok(Input::Ended),
            Err(error) => Err(Failure::refused(format!("the terminal cannot be read: {error}"))),
        }
    }

    /// History is optional: the session continues if it cannot be saved.
    fn remember(&mut self, text: &str) {
        self.editor.add_history_entry(text).ok();
        if let Some(history) = &self.history {
            if let Some(directory) = history.parent() {
                std::fs::create_dir_all(directory).ok();
            }
            // After every statement, so that a killed session loses none.
            self.editor.save_history(history).ok();
        }
    }
}

/// `ORRERY_HISTORY`, or a file where this system keeps the state of programs.
fn history_file() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = variable("ORRERY_HISTORY") {
        return Some(file);
    }
    let state = if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else {
        variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")))
    };
    state.map(|state| state.join("orrery").join("history"))
}

/// Callbacks of the line editor: completion, and whether the input is complete.
#[derive(Default)]
struct ShellHelper {
    names: Names,
}

impl Helper for ShellHelper {}
impl Highlighter for ShellHelper {}

impl Hinter for ShellHelper {
    type Hint = String;
}

impl Completer for ShellHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok(complete(&self.names, &line[..position]))
    }
}

impl Validator for ShellHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input();
        // An empty line always ends the statement, so the user cannot get stuck in one.
        let is_ended = text.trim_end().ends_with(';') || text.ends_with('\n') || text.trim().is_empty();
        let goes_on = !is_command(text) && !is_ended && is_open(text);
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}
