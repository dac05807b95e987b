//! What a request is about, read off its method, path and query: verb, resource, namespace, name, subresource. Everything
//! behind the door (authorisation, admission, audit, REST) speaks of a request in these terms.

mod context;
pub mod span;
mod trace;

use std::sync::Arc;

pub use context::{Body, Context, SharedContext};
pub use span::SpanContext;
pub use trace::{Step, Trace, Wrote};

/// A request in Kubernetes' terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the path is one of a resource (`/api/v1/…`, `/apis/<group>/<version>/…`).
    pub is_resource: bool,
    /// The path without its query.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, …; for other paths the method in lower case.
    pub verb: &'static str,
    /// A verb that no request about a resource can say (`use`, `bind`, `impersonate`, whatever a review asks about, or a method
    /// that nobody knows); where it is set, it counts instead of `verb`.
    pub special_verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The plural.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The rest of the path behind a subresource (for `proxy`).
    pub remainder: String,
    /// The name, or empty.
    pub name: String,
    /// The label selector of a list, watch or deletecollection, as written.
    pub label_selector: String,
    /// The field selector of a list, watch or deletecollection, as written.
    pub field_selector: String,
}

impl RequestInfo {
    /// Whether it is meant to take long: a watch, a log, a connection to a Pod, a profile.
    pub fn is_long_running(&self) -> bool {
        self.verb == "watch"
            || matches!(self.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward")
            || !self.is_resource && self.path.starts_with("/debug/pprof/")
    }

    /// The verb that authorisation looks at.
    pub fn verb(&self) -> &str {
        if self.special_verb.is_empty() { self.verb } else { &self.special_verb }
    }
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// The uid, where the authenticator knows one.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Everything else that the authenticator knows.
    pub extra: Vec<(String, Vec<String>)>,
}

impl User {
    /// A user with groups and nothing else.
    pub fn new(name: impl Into<String>, groups: &[&str]) -> Self {
        User { name: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..User::default() }
    }

    /// Whether the user is in a group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// The `userInfo` of reviews.
    pub fn to_json(&self) -> serde_json::Value {
        let mut map = serde_json::Map::new();
        map.insert("username".into(), self.name.clone().into());
        if !self.uid.is_empty() {
            map.insert("uid".into(), self.uid.clone().into());
        }
        if !self.groups.is_empty() {
            map.insert("groups".into(), self.groups.clone().into());
        }
        if !self.extra.is_empty() {
            let extra: serde_json::Map<_, _> = self.extra.iter().map(|(k, v)| (k.clone(), v.clone().into())).collect();
            map.insert("extra".into(), extra.into());
        }
        map.into()
    }
}

/// A user as it travels with a request.
pub type SharedUser = Arc<User>;

/// Reads a request's method, path and query.
pub fn parse(method: &str, path: &str, query: &str) -> RequestInfo {
    let mut info = RequestInfo { path: path.to_owned(), verb: plain_verb(method), ..RequestInfo::default() };
    if info.verb.is_empty() {
        info.special_verb = method.to_ascii_lowercase();
    }
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    match parts.next() {
        Some("api") => {}
        Some("apis") => match parts.next() {
            Some(group) => info.group = group.to_owned(),
            None => return info,
        },
        _ => return info,
    }
    let Some(version) = parts.next() else {
        info.group.clear();
        return info;
    };
    info.version = version.to_owned();
    let mut parts: Vec<&str> = parts.collect();
    if parts.is_empty() {
        info.group.clear();
        info.version.clear();
        return info;
    }
    info.is_resource = true;
    info.special_verb.clear();
    info.verb = match method {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "GET" | "HEAD" => "get",
        _ => "",
    };
    let mut legacy_watch = false;
    if matches!(parts[0], "watch" | "proxy") && parts.len() > 1 {
        legacy_watch = parts[0] == "watch";
        parts.remove(0);
    }
    // A namespace is itself a resource with a name and subresources of its own.
    if parts[0] == "namespaces" && parts.len() > 1 {
        info.namespace = decode(parts[1]);
        if parts.len() > 2 && !matches!(parts[2], "status" | "finalize") {
            parts.drain(..2);
        }
    }
    info.resource = parts[0].to_owned();
    if let Some(name) = parts.get(1) {
        info.name = decode(name);
    }
    if let Some(sub) = parts.get(2) {
        info.subresource = (*sub).to_owned();
        info.remainder = parts[3..].join("/");
    }
    let watch = query_value(query, "watch").is_some_and(|v| v != "0" && !v.eq_ignore_ascii_case("false"));
    if info.name.is_empty() {
        info.verb = match info.verb {
            "get" if watch || legacy_watch => "watch",
            "get" => "list",
            "delete" => "deletecollection",
            other => other,
        };
    }
    if matches!(info.verb, "list" | "watch" | "deletecollection" | "get") {
        info.label_selector = query_value(query, "labelSelector").unwrap_or_default();
        info.field_selector = query_value(query, "fieldSelector").unwrap_or_default();
        // The old way to watch a single object, which is a watch of the collection narrowed to that name; `?watch=1` on a name means nothing.
        if info.verb == "get" && legacy_watch && info.subresource.is_empty() {
            info.verb = "watch";
        }
        if matches!(info.verb, "list" | "watch")
            && info.name.is_empty()
            && let Some(name) = info.field_selector.split(',').find_map(|term| term.strip_prefix("metadata.name="))
        {
            // A name that no object can have only selects nothing.
            let name = name.trim_start_matches('=');
            if !matches!(name, "." | "..") && !name.contains(['/', '%']) {
                info.name = name.to_owned();
            }
        }
    }
    info
}

fn plain_verb(method: &str) -> &'static str {
    match method {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        "CONNECT" => "connect",
        "TRACE" => "trace",
        _ => "",
    }
}

/// The first value of a query parameter, decoded.
pub fn query_value(query: &str, key: &str) -> Option<String> {
    query_pairs(query).find(|(k, _)| k == key).map(|(_, v)| v)
}

/// Every pair of a query, decoded.
pub fn query_pairs(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode_form(key), decode_form(value))
    })
}

fn decode_form(text: &str) -> String {
    if text.contains('+') { decode(&text.replace('+', " ")) } else { decode(text) }
}

/// Percent-decodes; what is not valid is kept as it stands.
pub fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    String::from_utf8_lossy(&decode_bytes(text)).into_owned()
}

/// The same of what need not be a text.
pub fn decode_bytes(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = bytes.get(i + 1..i + 3).and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u8::from_str_radix(h, 16).ok());
        match (bytes[i], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                i += 3;
            }
            (byte, _) => {
                out.push(byte);
                i += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_verb_resource_namespace_name_and_subresource() {
        let get = parse("GET", "/api/v1/namespaces/default/pods/x/log", "");
        assert_eq!((get.verb, &*get.namespace, &*get.resource, &*get.name, &*get.subresource), ("get", "default", "pods", "x", "log"));
        let list = parse("GET", "/apis/apps/v1/deployments", "labelSelector=a%3Db");
        assert_eq!((list.verb, &*list.group, &*list.label_selector), ("list", "apps", "a=b"));
        let watch = parse("GET", "/api/v1/pods", "watch=1&fieldSelector=metadata.name%3Dx");
        assert_eq!((watch.verb, &*watch.name), ("watch", "x"));
        let ns = parse("PUT", "/api/v1/namespaces/term/finalize", "");
        assert_eq!((&*ns.resource, &*ns.namespace, &*ns.name, &*ns.subresource), ("namespaces", "term", "term", "finalize"));
        let all = parse("DELETE", "/api/v1/namespaces/q/configmaps", "");
        assert_eq!(all.verb, "deletecollection");
        assert!(!parse("GET", "/apis/apps/v1", "").is_resource);
    }
}
