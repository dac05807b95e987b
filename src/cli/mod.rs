//! The command line: one file per subcommand. What it prints and how it exits is a contract that scripts rely on.

mod ask;
mod audit;
mod blame;
mod cel;
mod client;
mod clock;
mod completion;
mod components;
mod config;
mod explain;
mod get;
mod history;
mod kubeconfig;
mod kubelet;
pub mod output;
mod store;
mod trace;
mod up;
mod user;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A Kubernetes API server and admission gateway in one binary.
#[derive(Debug, Parser)]
#[command(name = "usher", version, about, long_about = LONG, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const LONG: &str = "Serves the Kubernetes API (v1.37 on the wire) through an explicit chain of hops: authentication, authorisation, \
                    admission, validation, an embedded versioned store, watches; with scheduler, controllers and nodes behind that one door.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the server.
    #[command(after_help = up::EXAMPLES)]
    Up(Box<up::Up>),
    /// Print a kubeconfig for the server of a data directory.
    #[command(after_help = kubeconfig::EXAMPLES)]
    Kubeconfig(kubeconfig::Kubeconfig),
    /// Make new identities.
    #[command(subcommand, after_help = user::EXAMPLES)]
    User(user::User),
    /// Save or restore a snapshot of the store.
    #[command(subcommand, after_help = store::SNAPSHOT_EXAMPLES)]
    Snapshot(store::Snapshot),
    /// Verify or print a store that no server has open.
    #[command(subcommand, after_help = store::STORE_EXAMPLES)]
    Store(store::Store),
    /// Make a throw-away copy of a data directory.
    #[command(after_help = store::FORK_EXAMPLES)]
    Fork(store::Fork),
    /// Ask who did what: follow, query and count requests, derive roles, import logs.
    #[command(subcommand, after_help = audit::EXAMPLES)]
    Audit(Box<audit::Audit>),
    /// Tell the full story of a decision.
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::Explain),
    /// Draw what happened from apply to Ready.
    #[command(after_help = trace::EXAMPLES)]
    Trace(trace::Trace),
    /// Show who last set each field of an object.
    #[command(after_help = blame::EXAMPLES)]
    Blame(blame::Blame),
    /// Show every kept revision of an object, with its author.
    #[command(after_help = history::EXAMPLES)]
    History(history::History),
    /// Show objects as they were.
    #[command(after_help = get::EXAMPLES)]
    Get(get::Get),
    /// Evaluate and check CEL expressions.
    #[command(subcommand, after_help = cel::EXAMPLES)]
    Cel(cel::Cel),
    /// Read or move the time of a server with a virtual clock.
    #[command(subcommand, after_help = clock::EXAMPLES)]
    Clock(clock::Clock),
    /// Run the controllers against the server of a kubeconfig.
    #[command(after_help = components::CONTROLLERS_EXAMPLES)]
    Controllers(components::Controllers),
    /// Run the scheduler against the server of a kubeconfig.
    #[command(after_help = components::SCHEDULER_EXAMPLES)]
    Scheduler(components::Scheduler),
    /// Run kubelets against the server of a kubeconfig, on the mock runtime or on a real one.
    #[command(after_help = kubelet::EXAMPLES)]
    Kubelet(kubelet::Kubelet),
    /// Print the versions of this program and of the API it serves.
    Version,
    /// Print a completion script for a shell.
    Completion(completion::Completion),
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Up(up) => up.run(),
        Command::Kubeconfig(command) => command.run(),
        Command::User(command) => command.run(),
        Command::Snapshot(command) => command.run(),
        Command::Store(command) => command.run(),
        Command::Fork(command) => command.run(),
        Command::Audit(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Trace(command) => command.run(),
        Command::Blame(command) => command.run(),
        Command::History(command) => command.run(),
        Command::Get(command) => command.run(),
        Command::Cel(command) => command.run(),
        Command::Clock(command) => command.run(),
        Command::Controllers(command) => command.run(),
        Command::Scheduler(command) => command.run(),
        Command::Kubelet(command) => command.run(),
        Command::Version => output::line(&format!("usher {}\nKubernetes API {}", crate::version::USHER, crate::version::KUBERNETES)),
        Command::Completion(command) => command.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            output::note(&format!("usher: {}\n", output::harmless(&message)));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn no_two_flags_of_a_subcommand_are_called_the_same() {
        super::Cli::command().debug_assert();
    }
}
