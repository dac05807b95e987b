//! Asking the archive: what was recorded of a request, or of the requests about an object. The archive reads files, so the asking
//! happens where blocking harms nobody.

use std::collections::HashMap;
use std::sync::Arc;

use crate::audit::{Event, Filter};
use crate::gateway::Gateway;

use super::subject::Subject;

/// How many requests about one object are looked through.
const MOST: usize = 20_000;

/// The events that a filter asks for, everything that has been answered included.
pub async fn ask(gateway: &Gateway, filter: Filter, limit: usize) -> Vec<Arc<Event>> {
    gateway.audit.flush().await;
    let archive = gateway.audit.archive.clone();
    let asked = tokio::task::spawn_blocking(move || archive.query(&filter, limit)).await;
    asked.unwrap_or_default()
}

/// The requests by their Audit-ID; where a request left several events, the last one.
pub async fn by_audit_id(gateway: &Gateway, subject: &Subject, wanted: &[Arc<str>]) -> HashMap<String, Arc<Event>> {
    let filter = Filter { namespace: namespace(subject), name: Some(subject.name.clone()), ..Filter::default() };
    let mut found: HashMap<String, Arc<Event>> = HashMap::new();
    for event in ask(gateway, filter, MOST).await {
        found.insert(event.audit_id.clone(), event);
    }
    // A write may come with a request about something else: a collection that was deleted, a Binding, a namespace that ends.
    for id in wanted.iter().filter(|id| !found.contains_key(&***id)).cloned().collect::<Vec<_>>() {
        if let Some(event) = one(gateway, &id).await {
            found.insert(id.to_string(), event);
        }
    }
    found
}

/// The last event of a request.
pub async fn one(gateway: &Gateway, audit_id: &str) -> Option<Arc<Event>> {
    let filter = Filter { audit_id: Some(audit_id.to_owned()), ..Filter::default() };
    ask(gateway, filter, 4).await.pop()
}

/// The namespace that events about an object carry: a Namespace's own are in itself.
pub fn namespace(subject: &Subject) -> Option<String> {
    match (&*subject.resource.plural, subject.resource.namespaced) {
        (_, true) => Some(subject.namespace.clone()),
        _ => None,
    }
}
