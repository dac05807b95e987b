//! Questions to a running server about one object: how it is named on the command line, and where its answer is.

use clap::Args;
use serde_json::Value;

use super::client::{Reach, sentence};

/// One object, named as kubectl names it.
#[derive(Debug, Args)]
pub struct Object {
    /// KIND/NAME or KIND NAME, such as deploy/web or deployments.apps/web
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    object: Vec<String>,
    /// Its namespace [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
}

impl Object {
    /// The path of a question about it, to this server.
    pub async fn path(&self, reach: &Reach, what: &str, parameters: &[(&str, &str)]) -> Result<String, String> {
        let parts = named(&self.object)?;
        let [kind, name] = parts.as_slice() else {
            return Err(format!("say which object: KIND/NAME, not {:?}", self.object.join(" ")));
        };
        Ok(path(&[what, kind, name], &reach.namespace(self.namespace.as_deref()).await?, parameters))
    }
}

/// The parts of `KIND`, `KIND/NAME` or `KIND NAME`.
pub fn named(words: &[String]) -> Result<Vec<&str>, String> {
    let parts: Vec<&str> = match words {
        [one] => one.splitn(2, '/').collect(),
        many if many.iter().any(|word| word.contains('/')) => {
            return Err(format!("one object at a time: KIND/NAME or KIND NAME, not {:?}", many.join(" ")));
        }
        many => many.iter().map(String::as_str).collect(),
    };
    match parts.iter().any(|part| part.is_empty()) {
        true => Err(format!("say which object: KIND/NAME, not {:?}", words.join(" "))),
        false => Ok(parts),
    }
}

/// A path under `/usher/v1/`.
pub fn path(parts: &[&str], namespace: &str, parameters: &[(&str, &str)]) -> String {
    let parts: Vec<String> = parts.iter().map(|part| encode(part)).collect();
    let parameters = parameters.iter().copied().chain([("namespace", namespace)]).filter(|(_, value)| !value.is_empty());
    let parameters: Vec<String> = parameters.map(|(name, value)| format!("{name}={}", encode(value))).collect();
    format!("/usher/v1/{}?{}", parts.join("/"), parameters.join("&"))
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
        assert_eq!(path(&["blame", "deploy", "web app"], "a&b", &[("x", "1")]), "/usher/v1/blame/deploy/web%20app?x=1&namespace=a%26b");
    }

    #[test]
    fn an_object_is_named_with_a_slash_or_a_blank() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (text, expected) in [
            ("deploy/web", Some(vec!["deploy", "web"])),
            ("deploy web", Some(vec!["deploy", "web"])),
            ("pods", Some(vec!["pods"])),
            ("deploy/", None),
            ("/web", None),
            ("deploy/web pod/x", None),
        ] {
            assert_eq!(named(&words(text)).ok(), expected, "{text}");
        }
    }
}
