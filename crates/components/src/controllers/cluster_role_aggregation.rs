//! ClusterRole aggregation: a role with an aggregation rule has the rules of all roles that it selects.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::core::Selector;

use super::owner::selects;
use crate::runtime::{Component, Context, Identity, Informer, Key, Outcome, Requeue, Source, Writer};

struct Controller {
    roles: Informer<ClusterRole>,
    writer: Writer<ClusterRole>,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller("clusterrole-aggregation-controller"));
    let roles = context.watches.of();
    context.run(Controller { writer: Writer::new(client, &roles), roles })
}

impl Component for Controller {
    const NAME: &'static str = "clusterrole-aggregation-controller";

    fn sources(&self) -> Vec<Source> {
        let roles = self.roles.clone();
        // Any role may be part of any aggregate, and there are few aggregates.
        vec![Source::new(&self.roles, move |change, queue| {
            let aggregates = |role: &ClusterRole| role.aggregation_rule.is_some();
            if let Some(role) = change.new.filter(|role| aggregates(role)) {
                queue.add(Key::of(&role.metadata));
            }
            for role in roles.list().into_iter().filter(|role| aggregates(role)) {
                queue.add(Key::of(&role.metadata));
            }
        })]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(role) = self.roles.find(&key).filter(|role| role.aggregation_rule.is_some()) else { return Ok(Requeue::Done) };
        let rules = aggregate(&role, &self.roles.list());
        if role.rules.as_deref().unwrap_or_default() != rules.as_slice() {
            self.writer.update(&ClusterRole { rules: Some(rules), ..(*role).clone() }).await?;
        }
        Ok(Requeue::Done)
    }
}

/// The rules of all roles that `role` selects, by name of role, each rule once.
fn aggregate(role: &ClusterRole, roles: &[Arc<ClusterRole>]) -> Vec<PolicyRule> {
    let selectors = role.aggregation_rule.iter().flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
    let mut rules = Vec::new();
    for selector in selectors.filter_map(|selector| Selector::try_from(selector.clone()).ok()) {
        let mut chosen: Vec<_> = roles.iter().filter(|other| selects(&selector, &other.metadata)).collect();
        chosen.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        for other in chosen.into_iter().filter(|other| other.metadata.name != role.metadata.name) {
            for rule in other.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_rules_of_selected_roles_are_collected_once() {
        let role = |value| Arc::new(serde_json::from_value::<ClusterRole>(value).unwrap());
        let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
        let roles = [
            role(json!({"metadata": {"name": "a", "labels": {"to-view": "true"}}, "rules": [pods]})),
            role(json!({"metadata": {"name": "b", "labels": {"to-view": "true"}}, "rules": [pods]})),
            role(json!({"metadata": {"name": "c"}, "rules": [{"verbs": ["*"]}]})),
        ];
        let view = role(json!({"metadata": {"name": "view"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to-view": "true"}}]}}));
        assert_eq!(aggregate(&view, &roles).len(), 1);
    }
}
