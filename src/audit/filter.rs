//! Which events somebody wants to see: what `usher audit query` and `/usher/v1/requests` take. Pure; the archive uses what it can
//! of it to skip whole blocks, and asks [`Filter::matches`] about what is left.

use jiff::Timestamp;

use super::Event;

/// A conjunction: what is empty says nothing.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Exactly this request.
    pub audit_id: Option<String>,
    /// The user, as authenticated or as impersonated.
    pub user: Option<String>,
    /// The verb.
    pub verb: Option<String>,
    /// The resource's plural, with `/subresource` where one is meant.
    pub resource: Option<String>,
    /// The resource's group.
    pub group: Option<String>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The object's name, also one that the server made up.
    pub name: Option<String>,
    /// The uid of the object that was written.
    pub uid: Option<String>,
    /// The uid of an owner of the object that was written.
    pub owner: Option<String>,
    /// The lowest and the highest HTTP status.
    pub code: Option<(u16, u16)>,
    /// Not before.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
}

impl Filter {
    /// Whether an event is one of those.
    pub fn matches(&self, event: &Event) -> bool {
        fn is(asked: &Option<String>, found: &str) -> bool {
            asked.as_deref().is_none_or(|asked| asked == found)
        }
        let object = event.object_ref.clone().unwrap_or_default();
        let wrote = event.trace.as_ref().and_then(|trace| trace.wrote.clone()).unwrap_or_default();
        let resource = match object.subresource.is_empty() {
            true => object.resource.clone(),
            false => format!("{}/{}", object.resource, object.subresource),
        };
        let user = self.user.as_deref().is_none_or(|user| event.user.username == user || event.effective_user().username == user);
        is(&self.audit_id, &event.audit_id)
            && user
            && is(&self.verb, &event.verb)
            && is(&self.resource, &resource)
            && is(&self.group, &object.api_group)
            && is(&self.namespace, &object.namespace)
            && self.name.as_deref().is_none_or(|name| object.name == name || wrote.name == name)
            && is(&self.uid, &wrote.uid)
            && self.owner.as_ref().is_none_or(|owner| wrote.owners.contains(owner))
            && self.code.is_none_or(|(low, high)| (low..=high).contains(&event.code()))
            && self.since.is_none_or(|since| event.request_received_timestamp.is_some_and(|at| at >= since))
            && self.until.is_none_or(|until| event.request_received_timestamp.is_some_and(|at| at < until))
    }
}
