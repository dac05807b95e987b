//! `ResourceQuota`: what a namespace may hold. The usage is kept in the quota's own status, and taken by compare-and-swap before the
//! object is written, so that requests that run at the same time can never exceed it together. Runs last: what is counted here
//! has been admitted by everybody else. What is deleted is given back by the quota controller, not here.

mod evaluator;
mod scope;

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::resources::{Amounts, add, amounts};
use crate::admission::{Cluster, Operation, Validate, Write};
use crate::object::{Object, canonical};
use crate::schema::quantity::Quantity;
use crate::status::Status;
use crate::store::{self, Batch, Error, Expect};
use scope::Scope;

/// How often a quota is read anew when somebody else changed it meanwhile.
const TRIES: usize = 20;

/// One of `limitedResources`: what cannot be had without a quota for it.
#[derive(Clone, Debug)]
pub struct Limited {
    group: String,
    plural: String,
    /// Parts of the names of resources.
    contains: Vec<String>,
    scopes: Vec<Scope>,
}

impl Limited {
    /// Reads it from the configuration.
    pub fn from_value(value: &Value) -> Limited {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |field: &str| value[field].as_array().map(Vec::as_slice).unwrap_or_default();
        Limited {
            group: text(&value["apiGroup"]),
            plural: text(&value["resource"]),
            contains: list("matchContains").iter().map(text).collect(),
            scopes: list("matchScopes").iter().map(Scope::from_value).collect(),
        }
    }
}

/// A quota that is about a write.
struct Concerned {
    quota: Arc<Object>,
    status: Value,
    hard: Amounts,
    delta: Amounts,
}

/// The plugin.
pub struct ResourceQuota {
    cluster: Cluster,
    limited: Vec<Limited>,
    /// One at a time per namespace: they would only lose the race for the same quota.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl ResourceQuota {
    /// A plugin without memory of any quota; what is limited needs one.
    pub fn new(cluster: Cluster, limited: Vec<Limited>) -> Self {
        ResourceQuota { cluster, limited, turns: Mutex::default() }
    }
}

impl Validate for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn handles(&self, write: &Write) -> bool {
        write.resource.namespaced
            && (write.subresource.is_empty() || (write.is_of("", "pods") && write.subresource == "resize"))
            && match write.operation {
                Operation::Create => true,
                Operation::Update => {
                    write.resource.group.is_empty() && matches!(&*write.resource.plural, "services" | "persistentvolumeclaims")
                        || write.subresource == "resize"
                        || (write.is("", "pods") && scope::is_terminating(write.object()) != scope::is_terminating(write.old()))
                }
                _ => false,
            }
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            if self.limited.is_empty() && self.cluster.list("resourcequotas", &write.namespace).await?.is_empty() {
                return Ok(());
            }
            let turn = {
                let mut turns = self.turns.lock();
                if turns.len() > 4096 {
                    turns.retain(|_, turn| Arc::strong_count(turn) > 1);
                }
                turns.entry(write.namespace.clone()).or_default().clone()
            };
            let _turn = turn.lock().await;
            for _ in 0..TRIES {
                let changed = self.check(write).await?;
                if changed.is_empty() || write.dry_run {
                    return Ok(());
                }
                let batch = Batch {
                    operations: changed,
                    time: self.cluster.clock.now().as_microsecond(),
                    audit_id: Some(write.context.audit_id.clone()),
                };
                match self.cluster.state.store().commit(batch).await {
                    Ok(_) => return Ok(()),
                    Err(Error::Conflict { .. }) => {}
                    Err(other) => return Err(Status::internal(other)),
                }
            }
            Err(Status::conflict(
                "",
                "resourcequotas",
                "",
                "the quota has been modified; please apply your changes to the latest version and try again",
            ))
        })
    }
}

impl ResourceQuota {
    /// Checks a write against every quota of its namespace; gives back the quotas as they are with it.
    async fn check(&self, write: &Write) -> Result<Vec<store::Operation>, Status> {
        let (resource, object) = (&write.resource, write.object());
        let usage = evaluator::usage(resource, object);
        let growth = match write.operation {
            Operation::Update => growth(&usage, &evaluator::usage(resource, write.old())),
            _ => usage.clone(),
        };
        let (mut concerned, mut scopes, mut covered) = (Vec::new(), Vec::new(), Vec::new());
        for quota in self.cluster.list("resourcequotas", &write.namespace).await? {
            let spec = &quota.value()["spec"];
            scopes.extend(scope::scopes(spec).into_iter().filter(|scope| scope.matches(resource, object)));
            let status = self.status(write, quota.value()).await?;
            let hard = amounts(&status["hard"]);
            let about: Vec<String> = hard.keys().filter(|name| evaluator::is_about(resource, name)).cloned().collect();
            if about.is_empty() || !scope::matches(spec, resource, object) {
                continue;
            }
            let name = quota.name();
            evaluator::constraints(resource, &hard, object).map_err(|why| write.forbidden(format!("failed quota: {name}: {why}")))?;
            let used = amounts(&status["used"]);
            let unknown: Vec<&str> = about.iter().filter(|name| !used.contains_key(*name)).map(String::as_str).collect();
            if !unknown.is_empty() {
                return Err(write.forbidden(format!("status unknown for quota: {name}, resources: {}", unknown.join(","))));
            }
            covered.extend(about);
            // What a quota did not count before, it counts in full.
            let is_known = write.operation == Operation::Update && scope::matches(spec, resource, write.old());
            let delta = if is_known { growth.clone() } else { usage.clone() };
            concerned.push(Concerned { quota, status, hard, delta });
        }
        let asks = |delta: &Amounts| delta.values().any(|amount| amount.nanos() != 0);
        if !(concerned.is_empty() && asks(&growth) || concerned.iter().any(|one| asks(&one.delta))) {
            return Ok(Vec::new());
        }
        self.check_limited(write, &usage, &covered, &scopes)?;
        concerned.into_iter().filter_map(|one| one.taken(write).transpose()).collect()
    }

    /// Whether everything that needs a quota has one.
    fn check_limited(&self, write: &Write, usage: &Amounts, covered: &[String], scopes: &[Scope]) -> Result<(), Status> {
        let (resource, object) = (&write.resource, write.object());
        let limits = |limited: &&Limited| limited.group == *resource.group && limited.plural == *resource.plural;
        let named: Vec<&String> = self.limited.iter().filter(limits).flat_map(|limited| &limited.contains).collect();
        let is_limited = |name: &String| named.iter().any(|part| name.contains(part.as_str()));
        let consumed = usage.iter().filter(|(_, amount)| amount.nanos() > 0).map(|(name, _)| name);
        let lacking: Vec<&str> = consumed.filter(|name| is_limited(name) && !covered.contains(name)).map(String::as_str).collect();
        if !lacking.is_empty() {
            return Err(write.forbidden(format!("insufficient quota to consume: {}", lacking.join(","))));
        }
        let wanted = self.limited.iter().flat_map(|limited| &limited.scopes).filter(|scope| scope.matches(resource, object));
        let lacking: Vec<String> =
            wanted.filter(|scope| !scopes.iter().any(|other| other.name == scope.name)).map(ToString::to_string).collect();
        match lacking.is_empty() {
            true => Ok(()),
            false => Err(Status::unclassified(format!("insufficient quota to match these scopes: [{}]", lacking.join(" ")))),
        }
    }

    /// The status of a quota; one that nobody has counted yet is counted now, so that it is in force from the first request.
    async fn status(&self, write: &Write, quota: &Value) -> Result<Value, Status> {
        if quota["status"]["hard"].as_object().is_some_and(|hard| !hard.is_empty()) && quota["status"]["hard"] == quota["spec"]["hard"] {
            return Ok(quota["status"].clone());
        }
        let hard = quota["spec"]["hard"].clone();
        let mut used: Amounts = amounts(&hard).into_keys().map(|name| (name, Quantity::from_units(0))).collect();
        let table = self.cluster.registry.table();
        for resource in table.resources.iter().filter(|r| r.namespaced && r.is_stored() && !r.is_stored_otherwise()) {
            if !used.keys().any(|name| evaluator::is_about(resource, name)) {
                continue;
            }
            for object in self.cluster.list(&resource.storage, &write.namespace).await? {
                if scope::matches(&quota["spec"], resource, object.value()) {
                    let mut one = evaluator::usage(resource, object.value());
                    one.retain(|name, _| used.contains_key(name));
                    add(&mut used, &one);
                }
            }
        }
        let used: serde_json::Map<String, Value> = used.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect();
        Ok(json!({"hard": hard, "used": used}))
    }
}

/// What is more than before: an update that asks for no more never fails.
fn growth(usage: &Amounts, before: &Amounts) -> Amounts {
    let mut delta = usage.clone();
    let less: Amounts = before.iter().filter_map(|(name, q)| Some((name.clone(), Quantity::parse(&format!("-{q}")).ok()?))).collect();
    add(&mut delta, &less);
    delta.retain(|_, amount| amount.nanos() > 0);
    delta
}

impl Concerned {
    /// The quota with what is asked of it, if anything is.
    fn taken(mut self, write: &Write) -> Result<Option<store::Operation>, Status> {
        let (hard, used) = (&self.hard, amounts(&self.status["used"]));
        let requested: Amounts =
            self.delta.iter().filter(|(name, _)| hard.contains_key(*name)).map(|(name, amount)| (name.clone(), *amount)).collect();
        if requested.values().all(|amount| amount.nanos() == 0) {
            return Ok(None);
        }
        let mut now = used.clone();
        add(&mut now, &requested);
        let exceeded: Vec<&String> = requested.keys().filter(|name| now[*name].nanos() > hard[*name].nanos()).collect();
        if !exceeded.is_empty() {
            let shown = |from: &Amounts| {
                let pairs: Vec<String> = exceeded.iter().filter_map(|name| from.get(*name).map(|q| format!("{name}={q}"))).collect();
                pairs.join(",")
            };
            let (name, requested, used, limited) = (self.quota.name(), shown(&requested), shown(&used), shown(hard));
            return Err(write.forbidden(format!("exceeded quota: {name}, requested: {requested}, used: {used}, limited: {limited}")));
        }
        self.status["used"] =
            now.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect::<serde_json::Map<_, _>>().into();
        Ok(Some(replace(&self.quota, self.status)))
    }
}

fn replace(quota: &Arc<Object>, status: Value) -> store::Operation {
    let mut value = quota.to_value();
    value["status"] = status;
    store::Operation::Put { key: quota.key.clone(), value: canonical(&value), expect: Expect::Revision(quota.revision) }
}
