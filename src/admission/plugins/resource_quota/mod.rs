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

/// How often a quota is read anew when somebody else changed it meanwhile.
const TRIES: usize = 20;

/// The plugin.
pub struct ResourceQuota {
    cluster: Cluster,
    /// One at a time per namespace: they would only lose the race for the same quota.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl ResourceQuota {
    /// A plugin without memory of any quota.
    pub fn new(cluster: Cluster) -> Self {
        ResourceQuota { cluster, turns: Mutex::default() }
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
                }
                _ => false,
            }
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            if self.cluster.list("resourcequotas", &write.namespace).await?.is_empty() {
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
        let mut delta = evaluator::usage(resource, object);
        if write.operation == Operation::Update {
            let before = evaluator::usage(resource, write.old());
            let less: Amounts =
                before.iter().filter_map(|(name, q)| Some((name.clone(), Quantity::parse(&format!("-{q}")).ok()?))).collect();
            add(&mut delta, &less);
            // An update that asks for no more than before never fails.
            delta.retain(|_, amount| amount.nanos() > 0);
        }
        let mut changed = Vec::new();
        for quota in self.cluster.list("resourcequotas", &write.namespace).await? {
            let value = quota.value();
            let name = quota.name();
            let mut status = self.status(write, value).await?;
            let hard = amounts(&status["hard"]);
            if !scope::matches(&value["spec"], resource, object) {
                continue;
            }
            if !hard.keys().any(|name| evaluator::is_about(resource, name)) {
                continue;
            }
            if write.operation == Operation::Create {
                evaluator::constraints(resource, &hard, object).map_err(|why| write.forbidden(format!("failed quota: {name}: {why}")))?;
            }
            let requested: Amounts = delta.iter().filter(|(name, _)| hard.contains_key(*name)).map(|(n, q)| (n.clone(), *q)).collect();
            if requested.values().all(|amount| amount.nanos() == 0) {
                continue;
            }
            let used = amounts(&status["used"]);
            let unknown: Vec<&str> = requested.keys().filter(|name| !used.contains_key(*name)).map(String::as_str).collect();
            if !unknown.is_empty() {
                return Err(write.forbidden(format!("status unknown for quota: {name}, resources: {}", unknown.join(","))));
            }
            let mut now = used.clone();
            add(&mut now, &requested);
            let exceeded: Vec<&String> = requested.keys().filter(|name| now[*name].nanos() > hard[*name].nanos()).collect();
            if !exceeded.is_empty() {
                let shown = |from: &Amounts| {
                    let pairs: Vec<String> = exceeded.iter().filter_map(|name| from.get(*name).map(|q| format!("{name}={q}"))).collect();
                    pairs.join(",")
                };
                let (requested, used, limited) = (shown(&requested), shown(&used), shown(&hard));
                return Err(write.forbidden(format!("exceeded quota: {name}, requested: {requested}, used: {used}, limited: {limited}")));
            }
            status["used"] =
                now.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect::<serde_json::Map<_, _>>().into();
            changed.push(replace(&quota, status));
        }
        Ok(changed)
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

fn replace(quota: &Arc<Object>, status: Value) -> store::Operation {
    let mut value = quota.to_value();
    value["status"] = status;
    store::Operation::Put { key: quota.key.clone(), value: canonical(&value), expect: Expect::Revision(quota.revision) }
}
