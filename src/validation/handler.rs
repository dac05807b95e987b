//! What a kubelet does to a container: probes, and the hooks of its life.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, non_negative, number, object, required, text, word};
use super::names;
use crate::status::FieldError;

const SIGNALS: [&str; 65] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// `lifecycle` of a container of a Pod's spec.
pub fn lifecycle(spec: &Value, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(lifecycle) = object(container, "lifecycle") else { return };
    let path = path.field("lifecycle");
    for name in ["postStart", "preStop"] {
        if let Some(handler) = object(lifecycle, name) {
            self::handler(spec, handler, &path.field(name), &["exec", "httpGet", "tcpSocket", "sleep"], errors);
        }
    }
    if has(lifecycle, "stopSignal") {
        let at = path.field("stopSignal");
        match text(&spec["os"], "name") {
            _ if object(spec, "os").is_none() => {
                errors.push(FieldError::forbidden(at, "may not be set for containers with empty `spec.os.name`"));
            }
            "windows" => word(errors, lifecycle, &path, "stopSignal", &["SIGKILL", "SIGTERM"]),
            "linux" => word(errors, lifecycle, &path, "stopSignal", &SIGNALS),
            _ => {}
        }
    }
}

/// The three probes.
pub fn probes(spec: &Value, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = object(container, name) else { continue };
        let path = path.field(name);
        handler(spec, probe, &path, &["exec", "httpGet", "tcpSocket", "grpc"], errors);
        for number in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
            non_negative(errors, probe, &path, number);
        }
        let grace = number(probe, "terminationGracePeriodSeconds");
        if let Some(seconds) = grace.filter(|s| *s <= 0) {
            errors.push(FieldError::invalid(path.field("terminationGracePeriodSeconds"), &seconds.into(), "must be greater than 0"));
        }
        if name == "readinessProbe" {
            if let Some(seconds) = grace {
                let why = "must not be set for readinessProbes";
                errors.push(FieldError::invalid(path.field("terminationGracePeriodSeconds"), &seconds.into(), why));
            }
        } else if let Some(threshold) = number(probe, "successThreshold").filter(|t| *t != 1) {
            errors.push(FieldError::invalid(path.field("successThreshold"), &threshold.into(), "must be 1"));
        }
    }
}

/// Exactly one way to do something to a container.
fn handler(spec: &Value, handler: &Value, path: &Path<'_>, ways: &[&str], errors: &mut Errors) {
    let mut chosen = 0;
    for way in ways.iter().filter(|way| has(handler, way)) {
        chosen += 1;
        let at = path.field(way);
        if chosen > 1 {
            errors.push(FieldError::forbidden(at, "may not specify more than 1 handler type"));
            continue;
        }
        let action = &handler[*way];
        match *way {
            "exec" => required(errors, action, &at, &["command"]),
            "httpGet" => http_get(action, &at, errors),
            "tcpSocket" => port_or_name(&action["port"], &at.field("port"), errors),
            "grpc" => {
                field::port(errors, number(action, "port").unwrap_or(0), &at.field("port"));
                word(errors, action, &at, "mode", &["Plaintext", "TLS"]);
            }
            _ => {
                let seconds = number(action, "seconds").unwrap_or(0);
                let grace = number(spec, "terminationGracePeriodSeconds");
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.push(FieldError::invalid(at, &seconds.into(), why));
                }
            }
        }
    }
    if chosen == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn http_get(action: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(errors, action, path, &["path"]);
    port_or_name(&action["port"], &path.field("port"), errors);
    if !matches!(text(action, "scheme"), "HTTP" | "HTTPS") {
        errors.push(FieldError::not_supported(path.field("scheme"), &text(action, "scheme").into(), &["HTTP", "HTTPS"]));
    }
    for header in items(action, "httpHeaders") {
        let name = text(header, "name");
        field::wrong(errors, &path.field("httpHeaders"), name, names::http_header(name));
    }
}

/// A port by its number or its name.
pub fn port_or_name(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    match port {
        Value::String(name) => errors.extend(names::port_name(name).into_iter().map(|why| invalid(path, name, why))),
        _ => field::port(errors, port.as_i64().unwrap_or(0), path),
    }
}
