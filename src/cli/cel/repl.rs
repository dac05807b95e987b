//! `usher cel repl` on a terminal: line editing, history, completion. Where standard input is no terminal, each line of it is
//! answered and nothing else is printed.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::session::{Answer, Session};
use crate::cli::output;

/// Answers lines until there are no more.
pub fn run(session: Session, history: Option<PathBuf>) -> Result<(), String> {
    if std::io::stdin().is_terminal() { terminal(session, history) } else { piped(&session) }
}

fn piped(session: &Session) -> Result<(), String> {
    let mut failed = 0;
    for line in std::io::stdin().lock().lines() {
        match session.answer(&line.map_err(|e| format!("cannot read: {e}"))?) {
            Answer::Text(text) => output::line(&text)?,
            Answer::Failed(text) => {
                failed += 1;
                output::line(&text)?;
            }
            Answer::Nothing => {}
            Answer::Quit => break,
        }
    }
    match failed {
        0 => Ok(()),
        1 => Err("one expression failed".into()),
        n => Err(format!("{n} expressions failed")),
    }
}

struct Prompt(Session);

impl Completer for Prompt {
    type Candidate = String;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.0.complete(line.get(..position).unwrap_or(line)))
    }
}

impl Hinter for Prompt {
    type Hint = String;
}

impl Highlighter for Prompt {}
impl Validator for Prompt {}
impl Helper for Prompt {}

fn terminal(session: Session, history: Option<PathBuf>) -> Result<(), String> {
    let failed = |error: ReadlineError| format!("the terminal failed: {error}");
    let config = Config::builder().completion_type(CompletionType::List).max_history_size(10_000).map_err(failed)?.build();
    let mut editor: Editor<Prompt, FileHistory> = Editor::with_config(config).map_err(failed)?;
    editor.set_helper(Some(Prompt(session)));
    if let Some(path) = &history {
        // The first time there is none.
        let _ = editor.load_history(path);
    }
    output::line("Type an expression, or :help. Tab completes, Ctrl-R searches, Ctrl-D leaves.")?;
    loop {
        let line = match editor.readline("cel> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        };
        if !line.trim().is_empty() {
            let _ = editor.add_history_entry(line.as_str());
        }
        match editor.helper().map_or(Answer::Quit, |prompt| prompt.0.answer(&line)) {
            Answer::Text(text) | Answer::Failed(text) => output::line(&text)?,
            Answer::Nothing => {}
            Answer::Quit => break,
        }
    }
    if let Some(path) = &history {
        if let Some(directory) = path.parent() {
            let _ = std::fs::create_dir_all(directory);
        }
        editor.save_history(path).map_err(|e| format!("cannot keep the history in {}: {e}", path.display()))?;
    }
    Ok(())
}

/// Where what was asked is kept, unless somebody says otherwise.
pub fn default_history() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state")))?;
    Some(state.join("usher/cel-history"))
}
