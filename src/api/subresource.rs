//! The subresources that are more than a half of their object: scale, binding, eviction, finalize and the rest.

use std::sync::Arc;

use axum::body::Body;
use http::Response;
use http::request::Parts;
use serde_json::{Value, json};

use super::body::{decode_part, decode_plain};
use super::negotiate::{self, PatchType};
use super::options::{DeleteOptions, WriteOptions};
use super::patch_verb::{patch_value, read_patch};
use super::read::key;
use super::representation::header_text;
use super::write::{Target, Written};
use super::{Api, dispatch};
use crate::admission::Operation;
use crate::object::{Object, meta, meta_mut};
use crate::status::{FieldError, Status};

/// What a subresource answers with.
pub enum Answer {
    /// The object of the resource itself.
    Object(Arc<Object>),
    /// Something else, with its code.
    Value(u16, Value),
    /// A response of its own making.
    Response(Response<Body>),
}

impl Api {
    /// Answers a request about a subresource other than `status`.
    pub(super) async fn subresource(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        let verb = target.context.info.verb;
        self.admit_connection(target).await?;
        match (&*target.resource.plural, target.subresource.as_str()) {
            (_, "scale") => self.scale(target, parts, bytes).await,
            ("pods", "binding") => self.bind(target, parts, bytes).await,
            ("serviceaccounts", "token") => {
                let target = Target { options: WriteOptions::parse(&target.context, "CreateOptions")?, ..target.clone() };
                let kind = ("authentication.k8s.io", "v1", "TokenRequest");
                let body = decode_part(&target.context, &parts.headers, bytes, kind, target.options.field_validation)?;
                let body = self.admit(&target, Operation::Create, body).await?;
                let issued = self.reviews.token_request(&target.namespace, &target.name, body)?;
                target.context.trace.annotate("authentication.kubernetes.io/issued-credential-id", format!("JTI={}", issued.credential_id));
                Ok(Answer::Value(201, issued.review))
            }
            ("pods", "log") => self.log(target).await,
            ("pods", "eviction") => self.evict(target, parts, bytes).await,
            ("namespaces", "finalize") => {
                let target = Target { options: WriteOptions::parse(&target.context, "UpdateOptions")?, ..target.clone() };
                let validation = target.options.field_validation;
                let namespace = decode_part(&target.context, &parts.headers, bytes, ("", "v1", "Namespace"), validation)?;
                let spec = namespace["spec"].clone();
                let finalizers = spec["finalizers"].clone();
                let change = |namespace: &mut Value| {
                    if let Some(spec) = namespace["spec"].as_object_mut() {
                        match finalizers.as_array().is_none_or(Vec::is_empty) {
                            true => spec.remove("finalizers"),
                            false => spec.insert("finalizers".into(), finalizers.clone()),
                        };
                    }
                    Ok(())
                };
                Ok(Answer::Object(self.change(&target, &change).await?.object))
            }
            ("pods", "ephemeralcontainers" | "resize") | ("certificatesigningrequests", "approval") => match verb {
                "get" => Ok(Answer::Object(self.get(&target.context, &target.resource).await?)),
                "patch" => Ok(Answer::Object(self.patch(target.clone(), &parts.headers, bytes).await?.object)),
                _ => {
                    let options = WriteOptions::parse(&target.context, "UpdateOptions")?;
                    let object = self.decode_object(&target.context, &parts.headers, bytes, &target.resource, options.field_validation)?;
                    let target = Target { options, ..target.clone() };
                    Ok(Answer::Object(self.update(&target, &move |_| Ok(object.clone()), false).await?.object))
                }
            },
            ("pods", _) | ("services", "proxy") => self.connect(target).await,
            _ => Err(Status::new(501, "NotImplemented", format!("{} is not served here yet", target.subresource))),
        }
    }

    /// Changes the newest state of an object by code.
    pub(super) async fn change(
        &self,
        target: &Target,
        change: &(dyn Fn(&mut Value) -> Result<(), Status> + Send + Sync),
    ) -> Result<Written, Status> {
        let make = |old: Option<&Arc<Object>>| {
            let mut object = old.map(|o| (*self.in_version(o, &target.resource)).clone()).unwrap_or_default();
            meta_mut(&mut object).remove("resourceVersion");
            change(&mut object)?;
            Ok(object)
        };
        self.update(target, &make, false).await
    }

    /// The log of a container, from the kubelet of the Pod's node.
    async fn log(&self, target: &Target) -> Result<Answer, Status> {
        let pod = self.get(&target.context, &target.resource).await?;
        let pod = pod.value();
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() {
            // Nothing has run, so there is nothing to show.
            let mut response = Response::new(Body::empty());
            *response.status_mut() = http::StatusCode::NO_CONTENT;
            return Ok(Answer::Response(response));
        }
        let asked = target.context.parameter("container").unwrap_or_default();
        let container = container_of(pod, &target.name, &asked)?;
        let Some(kubelet) = self.nodes.server(node) else { return Err(Status::not_found("", "pods", node)) };
        let path = format!("/containerLogs/{}/{}/{container}", target.namespace, target.name);
        let response = kubelet.get(&path, &target.context.query).await.map(Body::new);
        match response.status().as_u16() {
            200 => Ok(Answer::Response(response)),
            code => {
                // The kubelet answers in plain text; clients of this API read a Status.
                let text = super::body::read(response.into_body()).await?;
                let reason = if code == 404 { "NotFound" } else { "BadRequest" };
                Err(Status::new(code, reason, String::from_utf8_lossy(&text).trim_end()))
            }
        }
    }

    /// A connection to a Pod or Service: what can be said before anybody is connected.
    async fn connect(&self, target: &Target) -> Result<Answer, Status> {
        let object = self.get(&target.context, &target.resource).await?;
        let object = object.value();
        let is_empty = |value: &Value| value.as_str().is_none_or(str::is_empty);
        match (&*target.resource.plural, target.subresource.as_str()) {
            ("pods", "proxy") if is_empty(&object["status"]["podIP"]) => Err(Status::bad_request("address not allowed")),
            ("pods", "exec" | "attach" | "portforward") if is_empty(&object["spec"]["nodeName"]) => {
                Err(Status::bad_request(format!("pod {} does not have a host assigned", target.name)))
            }
            ("services", "proxy") if !self.has_endpoints(target).await? => {
                let name = target.name.split(':').nth(1).unwrap_or(&target.name);
                Err(Status::new(503, "ServiceUnavailable", format!("no endpoints available for service {name:?}")))
            }
            _ => Err(Status::new(501, "NotImplemented", format!("{} is not served here yet", target.subresource))),
        }
    }

    async fn has_endpoints(&self, target: &Target) -> Result<bool, Status> {
        let Some(resource) = self.registry.lookup("", "v1", "endpoints") else { return Ok(false) };
        let topic = self.state.topic(&resource.storage).await.map_err(super::read::store_error)?;
        let endpoints = topic.get(&key(&resource, &target.namespace, &target.name));
        let subsets = endpoints.as_ref().and_then(|e| e.value()["subsets"].as_array());
        Ok(subsets.is_some_and(|subsets| subsets.iter().any(|s| s["addresses"].as_array().is_some_and(|a| !a.is_empty()))))
    }

    async fn scale(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        let current = self.get(&target.context, &target.resource).await?;
        let shown = scale_of(target, current.value());
        let verb = target.context.info.verb;
        if verb == "get" {
            return Ok(Answer::Value(200, shown));
        }
        let options = WriteOptions::parse(&target.context, if verb == "patch" { "PatchOptions" } else { "UpdateOptions" })?;
        let wanted = match verb {
            "patch" => {
                let kind = negotiate::patch(header_text(&parts.headers, http::header::CONTENT_TYPE), false)?;
                let body = read_patch(kind, bytes)?;
                let mut scale = shown.clone();
                match kind {
                    PatchType::Apply => scale["spec"]["replicas"] = body["spec"]["replicas"].clone(),
                    _ => patch_value(&mut scale, kind, &body, &crate::schema::Schema::default())?,
                }
                scale
            }
            _ => decode_part(&target.context, &parts.headers, bytes, ("autoscaling", "v1", "Scale"), options.field_validation)?,
        };
        let given = meta(&wanted, "resourceVersion");
        if !given.is_empty() && given != current.revision.to_string() {
            return Err(Status::modified(&target.resource.group, &target.resource.plural, &target.name));
        }
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 {
            let error = FieldError::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
            return Err(Status::invalid("autoscaling", "Scale", &target.name, vec![error]));
        }
        let target = Target { options, ..target.clone() };
        let path = self.replicas_path(&target);
        let change = |object: &mut Value| {
            set_path(object, &path, json!(replicas));
            Ok(())
        };
        let written = self.change(&target, &change).await?;
        Ok(Answer::Value(200, scale_of(&target, written.object.value())))
    }

    fn replicas_path(&self, target: &Target) -> String {
        let custom = target.resource.custom.as_ref();
        let path = custom.and_then(|c| c.version.pointer("/subresources/scale/specReplicasPath")).and_then(Value::as_str);
        path.unwrap_or(".spec.replicas").to_owned()
    }

    async fn bind(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        let options = WriteOptions::parse(&target.context, "CreateOptions")?;
        let binding = decode_part(&target.context, &parts.headers, bytes, ("", "v1", "Binding"), options.field_validation)?;
        let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
        if node.is_empty() {
            let error = FieldError::required("target.name", "");
            return Err(Status::invalid("", "Binding", &target.name, vec![error]));
        }
        let target = Target { options, ..target.clone() };
        let annotations = binding.pointer("/metadata/annotations").and_then(Value::as_object).cloned().unwrap_or_default();
        let uid = meta(&binding, "uid").to_owned();
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let conflict = |why: String| Status::conflict("", "pods/binding", &target.name, &why);
        self.change(&target, &|pod| {
            let name = meta(pod, "name").to_owned();
            if !uid.is_empty() && uid != meta(pod, "uid") {
                return Err(conflict(format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", meta(pod, "uid"))));
            }
            if !meta(pod, "deletionTimestamp").is_empty() {
                return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
            }
            if let Some(host) = pod["spec"]["nodeName"].as_str().filter(|h| !h.is_empty()) {
                return Err(conflict(format!("pod {name} is already assigned to node {host:?}")));
            }
            pod["spec"]["nodeName"] = json!(node);
            // Where it might have gone is of no interest any more.
            if let Some(status) = pod["status"].as_object_mut() {
                status.remove("nominatedNodeName");
            }
            if !annotations.is_empty() {
                let all = meta_mut(pod).entry("annotations").or_insert_with(|| json!({}));
                if let Some(all) = all.as_object_mut() {
                    all.extend(annotations.clone());
                }
            }
            set_condition(
                &mut pod["status"],
                json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}),
            );
            Ok(())
        })
        .await?;
        Ok(Answer::Value(201, dispatch::success(201)))
    }

    async fn evict(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        let validation = WriteOptions::parse(&target.context, "CreateOptions")?.field_validation;
        // Old clients still say policy/v1beta1, of which nothing else is left.
        let eviction = match memchr::memmem::find(bytes, b"policy/v1beta1").is_some() {
            true => decode_plain(&parts.headers, bytes, "policy/v1beta1", "Eviction")?,
            false => decode_part(&target.context, &parts.headers, bytes, ("policy", "v1", "Eviction"), validation)?,
        };
        let name = meta(&eviction, "name");
        if !name.is_empty() && name != target.name {
            return Err(Status::bad_request("name in URL does not match name in Eviction object"));
        }
        let options = DeleteOptions::parse(&target.context, eviction.get("deleteOptions"))?;
        let pod = self.get(&target.context, &target.resource).await?;
        let ended = matches!(pod.value()["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"));
        if !ended && meta(pod.value(), "deletionTimestamp").is_empty() {
            self.disrupt(target, pod.value(), options.dry_run).await?;
        }
        let plain = Target { subresource: String::new(), ..target.clone() }.deleting(&options);
        self.delete(&plain, &options).await?;
        Ok(Answer::Value(201, dispatch::success(201)))
    }

    /// Asks the one disruption budget that covers the Pod, and takes a disruption from it.
    async fn disrupt(&self, target: &Target, pod: &Value, dry_run: bool) -> Result<(), Status> {
        let Some(budgets) = self.registry.lookup("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
        let topic = self.state.topic(&budgets.storage).await.map_err(super::read::store_error)?;
        let prefix = key(&budgets, &target.namespace, "");
        let covering = topic.list(&prefix, None, 0, 0, |budget| {
            let selector = crate::object::selector::LabelSelector::from_value(&budget.value()["spec"]["selector"]);
            selector.is_some_and(|s| s.matches_value(pod))
        });
        let budget = match covering.objects.as_slice() {
            [] => return Ok(()),
            [one] => one,
            _ => {
                let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Status::internal(text));
            }
        };
        let budget_name = budget.name().to_owned();
        let one = Target {
            resource: budgets,
            name: budget_name.clone(),
            subresource: "status".into(),
            options: WriteOptions { dry_run, ..WriteOptions::default() },
            ..target.clone()
        };
        let pod_name = target.name.clone();
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let refused = |why: String| {
            let mut status = Status::new(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.");
            status = status.cause("DisruptionBudget", why, "");
            status
        };
        self.change(&one, &|budget| {
            let status = &budget["status"];
            let observed = status["observedGeneration"].as_i64().unwrap_or(0);
            let generation = budget.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
            if observed < generation {
                return Err(refused(format!("The disruption budget {budget_name} is still being processed by the server.")).retry_after(10));
            }
            let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
            if allowed <= 0 {
                let (needed, healthy) = (status["desiredHealthy"].as_i64().unwrap_or(0), status["currentHealthy"].as_i64().unwrap_or(0));
                return Err(refused(format!(
                    "The disruption budget {budget_name} needs {needed} healthy pods and has {healthy} currently"
                )));
            }
            budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
            if !budget["status"]["disruptedPods"].is_object() {
                budget["status"]["disruptedPods"] = json!({});
            }
            budget["status"]["disruptedPods"][&pod_name] = json!(now);
            Ok(())
        })
        .await
        .map(|_| ())
    }
}

/// The container whose log is meant: the one that was named, or the only one.
fn container_of(pod: &Value, name: &str, asked: &str) -> Result<String, Status> {
    let list = |field: &str| pod["spec"][field].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect::<Vec<_>>();
    let (main, init, ephemeral) = (list("containers"), list("initContainers"), list("ephemeralContainers"));
    if !asked.is_empty() {
        return match main.iter().chain(&init).chain(&ephemeral).any(|c| *c == asked) {
            true => Ok(asked.to_owned()),
            false => Err(Status::bad_request(format!("container {asked} is not valid for pod {name}"))),
        };
    }
    match (main.as_slice(), init.is_empty()) {
        ([only], true) => Ok((*only).to_owned()),
        _ if pod.pointer("/metadata/annotations/kubectl.kubernetes.io~1default-container").is_some() || main.len() == 1 => {
            let default = pod.pointer("/metadata/annotations/kubectl.kubernetes.io~1default-container").and_then(Value::as_str);
            Ok(default.or(main.first().copied()).unwrap_or_default().to_owned())
        }
        _ => {
            let mut text = format!("a container name must be specified for pod {name}, choose one of: [{}]", main.join(" "));
            if !init.is_empty() {
                text.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            Err(Status::bad_request(text))
        }
    }
}

/// The `Scale` of an object.
fn scale_of(target: &Target, object: &Value) -> Value {
    let custom = target.resource.custom.as_ref().and_then(|c| c.version.pointer("/subresources/scale"));
    let path = |name: &str, usual: &str| custom.and_then(|c| c[name].as_str()).unwrap_or(usual).to_owned();
    let replicas = get_path(object, &path("specReplicasPath", ".spec.replicas")).and_then(Value::as_i64);
    let actual = get_path(object, &path("statusReplicasPath", ".status.replicas")).and_then(Value::as_i64);
    let selector = match custom {
        Some(custom) => {
            custom["labelSelectorPath"].as_str().and_then(|p| get_path(object, p)).and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        None => selector_text(&object["spec"]["selector"]),
    };
    let mut metadata = json!({"name": meta(object, "name"), "namespace": meta(object, "namespace")});
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        metadata[field] = object["metadata"][field].clone();
    }
    let mut status = json!({"replicas": actual.unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let mut spec = json!({});
    if let Some(replicas) = replicas.filter(|r| *r != 0) {
        spec["replicas"] = json!(replicas);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// A selector as `Scale` tells it: `a=b,c in (d,e)`. A ReplicationController's is a plain map.
fn selector_text(selector: &Value) -> String {
    let mut terms = Vec::new();
    let labels = selector.get("matchLabels").unwrap_or(if selector.get("matchExpressions").is_some() { &Value::Null } else { selector });
    for (key, value) in labels.as_object().into_iter().flatten() {
        terms.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        terms.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({})", values.join(",")),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.join(",")
}

fn get_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.').split('.').try_fold(object, |value, part| value.get(part))
}

fn set_path(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for part in path.trim_start_matches('.').split('.') {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = value;
}

/// Puts a condition in the place of the one of its type.
pub fn set_condition(status: &mut Value, condition: Value) {
    if !status.is_object() {
        *status = json!({});
    }
    let conditions = &mut status["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(list) = conditions.as_array_mut() {
        match list.iter_mut().find(|c| c["type"] == condition["type"]) {
            Some(existing) => *existing = condition,
            None => list.push(condition),
        }
    }
}
