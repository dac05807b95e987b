//! The parameters that operations take, by name: where they stand, of which type they are, and a sentence on each.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::schema::source;

/// What every list takes.
pub(super) const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "pretty",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
/// What every read of one object takes.
pub(super) const READ: &[&str] = &["pretty"];
/// What creating and replacing take.
pub(super) const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "pretty"];
/// What patching takes.
pub(super) const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force", "pretty"];
/// What deleting one object takes.
pub(super) const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "pretty",
    "propagationPolicy",
];
/// What deleting many takes.
pub(super) const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "pretty",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
];

/// What a subresource that is read or connected to takes besides.
pub(super) fn of_subresource(name: &str) -> &'static [&'static str] {
    match name {
        "attach" => &["container", "stderr", "stdin", "stdout", "tty"],
        "exec" => &["command", "container", "stderr", "stdin", "stdout", "tty"],
        "portforward" => &["ports"],
        "proxy" => &["path"],
        "log" => &[
            "container",
            "follow",
            "insecureSkipTLSVerifyBackend",
            "limitBytes",
            "pretty",
            "previous",
            "sinceSeconds",
            "stream",
            "tailLines",
            "timestamps",
        ],
        _ => READ,
    }
}

/// A parameter of the query.
pub(super) fn query(name: &str) -> Value {
    let (kind, description) = match name {
        "allowWatchBookmarks" => ("boolean", "Ask for watch events of type BOOKMARK, which tell a newer resourceVersion and nothing else."),
        "continue" => ("string", "The token from an earlier, incomplete answer; the list goes on behind it."),
        "fieldSelector" => ("string", "Only objects whose fields match, as in `status.phase=Running`."),
        "labelSelector" => ("string", "Only objects whose labels match, as in `app=web,tier!=cache`."),
        "limit" => ("integer", "At most so many objects in one answer; if there are more, the answer carries a continue token."),
        "resourceVersion" => ("string", "The state to answer from, or to watch from."),
        "resourceVersionMatch" => ("string", "How resourceVersion is meant: Exact or NotOlderThan."),
        "sendInitialEvents" => ("boolean", "Begin a watch with an ADDED event for every object that exists, then a BOOKMARK."),
        "shardSelector" => {
            ("string", "Only objects of a part of all, by a hash of their identity. An alpha feature that is off by default.")
        }
        "timeoutSeconds" => ("integer", "End the list or watch after so many seconds."),
        "watch" => ("boolean", "Answer with a stream of changes instead of a list."),
        "pretty" => ("string", "If 'true', then the output is pretty printed."),
        "fieldManager" => ("string", "The name under which the fields of this change are owned."),
        "fieldValidation" => ("string", "What to do with unknown and duplicate fields: Ignore, Warn or Strict."),
        "force" => ("boolean", "Take fields from other managers when applying."),
        "dryRun" | "propagationPolicy" => ("string", of_delete_options(name)),
        "gracePeriodSeconds" => ("integer", of_delete_options(name)),
        "ignoreStoreReadErrorWithClusterBreakingPotential" | "orphanDependents" => ("boolean", of_delete_options(name)),
        "container" => ("string", "The container of the Pod; needed if it has several."),
        "command" => ("string", "The command and its arguments, one parameter each; no shell is involved."),
        "stdin" => ("boolean", "Send the standard input."),
        "stdout" => ("boolean", "Receive the standard output."),
        "stderr" => ("boolean", "Receive the standard error."),
        "tty" => ("boolean", "Give the process a terminal."),
        "ports" => ("integer", "The ports to forward."),
        "path" => ("string", "The path of the request that is passed on."),
        "follow" => ("boolean", "Go on with the log as it is written."),
        "insecureSkipTLSVerifyBackend" => ("boolean", "Do not verify the certificate of the node that the log comes from."),
        "limitBytes" => ("integer", "At most so many bytes of the log."),
        "previous" => ("boolean", "The log of the container's previous run."),
        "sinceSeconds" => ("integer", "Only the last so many seconds of the log."),
        "stream" => ("string", "Which of the container's streams: All, Stdout or Stderr."),
        "tailLines" => ("integer", "Only the last so many lines of the log."),
        "timestamps" => ("boolean", "Begin every line with its time."),
        _ => ("string", ""),
    };
    json!({"name": name, "in": "query", "description": description, "schema": {"type": kind, "uniqueItems": true}})
}

/// Some parameters are fields of DeleteOptions as well, and described there.
fn of_delete_options(name: &str) -> &'static str {
    const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
    static DEFINITION: OnceLock<Value> = OnceLock::new();
    let definition = DEFINITION.get_or_init(|| source::definitions_of(DELETE_OPTIONS).remove(DELETE_OPTIONS).unwrap_or_default());
    definition["properties"][name]["description"].as_str().unwrap_or_default()
}

/// A part of the path.
pub(super) fn path(name: &str, kind: &str) -> Value {
    let description = match name {
        "name" => format!("name of the {kind}"),
        "namespace" => "object name and auth scope, such as for teams and projects".to_owned(),
        _ => "path to the resource".to_owned(),
    };
    json!({"name": name, "in": "path", "description": description, "required": true, "schema": {"type": "string", "uniqueItems": true}})
}
