//! How subcommands reach a running server: by `--kubeconfig`, `KUBECONFIG`, or the kubeconfig of the default data directory.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Which server, as kubectl has it.
#[derive(Debug, Args)]
pub struct Reach {
    /// The kubeconfig of the server [default: KUBECONFIG, else usher-data/kubeconfig]
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<OsString>,
    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl Reach {
    /// A client for it.
    pub async fn client(&self) -> Result<kube::Client, String> {
        kube::Client::try_from(self.config().await?).map_err(|error| format!("cannot use the kubeconfig: {error}"))
    }

    /// Where it is, and how it is known.
    pub async fn config(&self) -> Result<kube::Config, String> {
        // An empty one says nothing, as for kubectl.
        let said = self.kubeconfig.as_ref().filter(|path| !path.is_empty()).map(PathBuf::from);
        let path = said.unwrap_or_else(|| PathBuf::from(super::config::DATA_DIR).join("kubeconfig"));
        let bad = |error: &dyn std::error::Error| format!("cannot use the kubeconfig {}: {}", path.display(), cause(error));
        // Several files are one, as for kubectl, which passes over those that are not there.
        let files: Vec<PathBuf> = std::env::split_paths(&path).filter(|file| !file.as_os_str().is_empty()).collect();
        let present: Vec<&PathBuf> = files.iter().filter(|file| file.exists()).collect();
        if present.is_empty() {
            return Err(format!("cannot use the kubeconfig {}: there is no such file; {WHERE}", path.display()));
        }
        let mut config = Kubeconfig::default();
        for file in &present {
            config = config.merge(Kubeconfig::read_from(file).map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        kube::Config::from_custom_kubeconfig(config, &options).await.map_err(|e| bad(&e))
    }

    /// The namespace that is asked for, else that of the context.
    pub async fn namespace(&self, asked: Option<&str>) -> Result<String, String> {
        match asked {
            Some(namespace) => Ok(namespace.to_owned()),
            None => Ok(self.config().await?.default_namespace),
        }
    }
}

/// What went wrong, in a sentence: what the server said, or why nothing came of asking it.
pub fn sentence(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            "the server does not accept the credentials of the kubeconfig (Unauthorized)".into()
        }
        kube::Error::Api(status) => status.message.clone(),
        other => unreachable_server(&cause(&other)),
    }
}

/// What to do where there is no server to ask.
const WHERE: &str = "`usher up` starts a server and writes its kubeconfig; --kubeconfig or KUBECONFIG names another one";

/// That nobody answers, and what to do about it.
fn unreachable_server(why: &str) -> String {
    match why.contains("refused") {
        true => format!("cannot reach the server: {why}; {WHERE}"),
        false => format!("cannot reach the server: {why}"),
    }
}

/// The innermost reason; what is around it names layers of a library.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Runs a future on a small runtime of its own.
pub fn block_on<F: Future<Output = Result<(), String>>>(future: F) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(future)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_server_it_is_said_how_to_get_one() {
        let reach = Reach { kubeconfig: Some("no/such/kubeconfig".into()), context: None };
        let tokio = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let why = tokio.block_on(reach.config()).expect_err("no file");
        assert!(why.starts_with("cannot use the kubeconfig no/such/kubeconfig: there is no such file; `usher up` starts"), "{why}");
        assert!(unreachable_server("Connection refused (os error 111)").ends_with("names another one"));
        assert!(unreachable_server("invalid peer certificate").ends_with("certificate"), "who answers is no server that is not there");
    }
}
