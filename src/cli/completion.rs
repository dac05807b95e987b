//! `usher completion SHELL`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// For which shell.
#[derive(Debug, Args)]
pub struct Completion {
    /// bash, elvish, fish, powershell or zsh
    shell: Shell,
}

impl Completion {
    /// Prints the script.
    pub fn run(self) -> Result<(), String> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::Cli::command(), "usher", &mut script);
        super::output::print(&String::from_utf8_lossy(&script))
    }
}
