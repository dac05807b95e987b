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
            && !(write.is_of("", "pods") && write.subresource == "status")
            && owners(write.object()) != owners(write.old())
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            // Who creates an object could as well not have done so.
            if write.operation == Operation::Update {
                let resource = &write.resource;
                let asked = Asked {
                    verb: "delete",
                    group: &resource.group,
                    version: &resource.version,
                    resource: &resource.plural,
                    subresource: &write.subresource,
                    namespace: &write.namespace,
                    name: &write.name,
                };
                if let Err(reason) = self.may(write, asked).await {
                    return Err(write.forbidden(format!("cannot set an ownerRef on a resource you can't delete: {reason}, <nil>")));
                }
            }
            let blocking = newly_blocking(write);
            let anything =
                Asked { verb: "update", group: "*", version: "*", resource: "*", subresource: "finalizers", namespace: "", name: "*" };
            if blocking.is_empty() || self.may(write, anything).await.is_ok() {
                return Ok(());
            }
            for owner in blocking {
                self.may_block(write, owner).await?;
            }
            Ok(())
        })
    }
}

/// What somebody is asked for.
struct Asked<'a> {
    verb: &'a str,
    group: &'a str,
    version: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl OwnerReferencesPermissionEnforcement {
    async fn may_block(&self, write: &Write, owner: &Value) -> Result<(), Status> {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let unknown = |why: String| {
            write.forbidden(format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind {kind}: {why}"
            ))
        };
        if api_version.matches('/').count() > 1 {
            return Err(unknown(format!("unexpected GroupVersion string: {api_version}")));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = self.cluster.registry.by_kind(group, version, kind);
        let resource = resource.ok_or_else(|| unknown(format!("no matches for kind {kind:?} in version {api_version:?}")))?;
        // A namespaced owner can only be where the object is.
        let namespace = if resource.namespaced { write.namespace.as_str() } else { "" };
        let asked =
            Asked { verb: "update", group, version, resource: &resource.plural, subresource: "finalizers", namespace, name: text("name") };
        self.may(write, asked).await.map_err(|reason| {
            write.forbidden(format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {reason}, <nil>"
            ))
        })
    }

    async fn may(&self, write: &Write, asked: Asked<'_>) -> Result<(), String> {
        let info = RequestInfo {
            is_resource: true,
            special_verb: asked.verb.into(),
            group: asked.group.into(),
            version: asked.version.into(),
            namespace: asked.namespace.into(),
            resource: asked.resource.into(),
            subresource: asked.subresource.into(),
            name: asked.name.into(),
            ..RequestInfo::default()
        };
        let decision = self.authorizer.decide(&Attributes { user: write.user.clone(), info: Arc::new(info) }).await;
        match decision.is_allow() {
            true => Ok(()),
            false => Err(decision.reason().to_string()),
        }
    }
}

/// The owners whose deletion the object keeps up, and did not before.
fn newly_blocking(write: &Write) -> Vec<&Value> {
    let blocks = |owner: &Value| owner["blockOwnerDeletion"] == true;
    let did = |owner: &Value| owners(write.old()).iter().rev().find(|old| old["uid"] == owner["uid"]).is_some_and(blocks);
    owners(write.object()).iter().filter(|owner| blocks(owner) && !did(owner)).collect()
}
