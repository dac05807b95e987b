//! Questions to a running server about one object: how it is named on the command line, and where its answer is.

use clap::Args;
use serde_json::Value;

use super::client::{Reach, sentence};

/// One object, named as kubectl names it.
#[derive(Debug, Args)]
pub struct Object {
    /// KIND/NAME, such as deploy/web or deployments.apps/web
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Its namespace
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    namespace: String,
}

impl Object {
    /// The path of a question about it.
    pub fn path(&self, what: &str, parameters: &[(&str, &str)]) -> Result<String, String> {
        let Some((kind, name)) = self.object.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty()) else {
            return Err(format!("say which object: KIND/NAME, not {:?}", self.object));
        };
        path(&[what, kind, name], &self.namespace, parameters)
    }
}

/// A path under `/usher/v1/`.
pub fn path(parts: &[&str], namespace: &str, parameters: &[(&str, &str)]) -> Result<String, String> {
    let parts: Vec<String> = parts.iter().map(|part| encode(part)).collect();
    let parameters = parameters.iter().copied().chain([("namespace", namespace)]).filter(|(_, value)| !value.is_empty());
    let parameters: Vec<String> = parameters.map(|(name, value)| format!("{name}={}", encode(value))).collect();
    Ok(format!("/usher/v1/{}?{}", parts.join("/"), parameters.join("&")))
}

/// Percent-encodes everything that is not plain.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// The answer to a question.
pub async fn ask(reach: &Reach, path: &str) -> Result<Value, String> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|e| e.to_string())?;
    reach.client().await?.request(request).await.map_err(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_a_path_with_its_parameters_encoded() {
        let object = Object { object: "deploy/web app".into(), namespace: "a&b".into() };
        assert_eq!(object.path("blame", &[("x", "1")]).as_deref(), Ok("/usher/v1/blame/deploy/web%20app?x=1&namespace=a%26b"));
        assert!(Object { object: "deploy".into(), namespace: String::new() }.path("blame", &[]).is_err());
    }
}
