//! `OwnerReferencesPermissionEnforcement`: who gives an object an owner must be allowed to delete the object, and who lets it block that
//! owner's deletion must be allowed to do so.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::admission::{Cluster, Operation, Validate, Write};
use crate::authz::{Attributes, Authorizer};
use crate::request::RequestInfo;
use crate::status::Status;

/// The plugin.
pub struct OwnerReferencesPermissionEnforcement {
    /// What kinds there are.
    pub cluster: Cluster,
    /// Who may what.
    pub authorizer: Arc<dyn Authorizer>,
}

fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default()
}

impl Validate for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn handles(&self, write: &Write) -> bool {
        matches!(write.operation, Operation::Create | Operation::Update)
            && write.subresource != "status"
            && owners(write.object()) != owners(write.old())
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let ask = |verb: &str, group: &str, resource: &str, subresource: &str, name: &str| {
                let info = RequestInfo {
                    is_resource: true,
                    special_verb: verb.into(),
                    group: group.into(),
                    version: "*".into(),
                    namespace: write.namespace.clone(),
                    resource: resource.into(),
                    subresource: subresource.into(),
                    name: name.into(),
                    ..RequestInfo::default()
                };
                let attributes = Attributes { user: write.user.clone(), info: Arc::new(info) };
                async move { self.authorizer.decide(&attributes).await }
            };
            let decision = ask("delete", &write.resource.group, &write.resource.plural, "", &write.name).await;
            if !decision.is_allow() {
                return Err(write.forbidden(format!("cannot set an ownerRef on a resource you can't delete: {}", decision.reason())));
            }
            let blocks = |owner: &&Value| owner["blockOwnerDeletion"] == true;
            for owner in owners(write.object()).iter().filter(blocks).filter(|owner| !owners(write.old()).contains(owner)) {
                let text = |field: &str| owner[field].as_str().unwrap_or_default();
                let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
                let Some(resource) = self.cluster.registry.by_kind(group, version, text("kind")) else {
                    let what = format!("no matches for kind {:?} in version {:?}", text("kind"), text("apiVersion"));
                    return Err(write.forbidden(format!(
                        "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {} Kind {}: {what}",
                        text("apiVersion"),
                        text("kind")
                    )));
                };
                let decision = ask("update", group, &resource.plural, "finalizers", text("name")).await;
                if !decision.is_allow() {
                    return Err(write.forbidden(format!(
                        "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {}",
                        decision.reason()
                    )));
                }
            }
            Ok(())
        })
    }
}
