//! ResourceQuota: keeps the status up to date with what is really used.
//!
//! Admission raises the numbers as objects come; this controller lowers them as objects go, and counts afresh.

pub mod quantity;
pub mod usage;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use k8s_openapi::{
    api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, ResourceQuotaStatus, Secret, Service},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::Client;
use parking_lot::Mutex;

use crate::runtime::{
    Change, Component, Context, Error, Identity, Informer, Key, Object, Outcome, Queue, Requeue, Source, Writer, discovery::discover,
    revision_of,
};
use quantity::Amount;
use usage::Usage;

/// How often everything is counted again, whatever happens.
const AGAIN: Duration = Duration::from_secs(300);
/// How long an object that has been admitted takes to be seen, at most.
const SECOND_LOOK: Duration = Duration::from_millis(50);

struct Controller {
    quotas: Informer<ResourceQuota>,
    pods: Informer<Pod>,
    services: Informer<Service>,
    claims: Informer<PersistentVolumeClaim>,
    maps: Informer<ConfigMap>,
    secrets: Informer<Secret>,
    replication: Informer<ReplicationController>,
    writer: Writer<ResourceQuota>,
    client: Client,
    /// The revision of a quota at which less was found to be used than it says.
    looked: Mutex<HashMap<Key, u64>>,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller("resourcequota-controller"));
    let quotas = context.watches.of();
    context.run(Controller {
        writer: Writer::new(client.clone(), &quotas),
        quotas,
        pods: context.watches.of(),
        services: context.watches.of(),
        claims: context.watches.of(),
        maps: context.watches.of(),
        secrets: context.watches.of(),
        replication: context.watches.of(),
        client,
        looked: Mutex::default(),
    })
}

/// What goes, and what stops counting, concerns the quotas of its namespace.
fn frees<K: Object>(
    informer: &Informer<K>,
    quotas: &Informer<ResourceQuota>,
    also: impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static,
) -> Source {
    let quotas = quotas.clone();
    Source::new(informer, move |change: Change<'_, K>, queue: &Queue| {
        if !change.is_deletion() && !also(&change) {
            return;
        }
        let namespace = change.latest().and_then(|object| object.meta().namespace.clone()).unwrap_or_default();
        for quota in quotas.in_namespace(&namespace) {
            queue.add(Key::of(&quota.metadata));
        }
    })
}

impl Component for Controller {
    const NAME: &'static str = "resourcequota-controller";

    fn sources(&self) -> Vec<Source> {
        let never = |_: &Change<'_, _>| false;
        vec![
            // Not its status: admission writes that, too, and has counted what is only just being created.
            Source::new(&self.quotas, |change, queue| {
                let limits = |quota: Option<&Arc<ResourceQuota>>| quota.and_then(|quota| quota.spec.clone());
                if let Some(quota) = change.new.filter(|_| limits(change.old) != limits(change.new)) {
                    queue.add(Key::of(&quota.metadata));
                }
            }),
            frees(&self.pods, &self.quotas, |change| {
                let ended = |pod: Option<&Arc<Pod>>| pod.is_some_and(|pod| super::pods::is_finished(pod));
                ended(change.new) && !ended(change.old)
            }),
            frees(&self.services, &self.quotas, |change| change.old.is_some()),
            frees(&self.claims, &self.quotas, never),
            frees(&self.maps, &self.quotas, |_| false),
            frees(&self.secrets, &self.quotas, |_| false),
            frees(&self.replication, &self.quotas, |_| false),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(quota) = self.quotas.find(&key) else {
            self.looked.lock().remove(&key);
            return Ok(Requeue::Done);
        };
        let Some(spec) = &quota.spec else { return Ok(Requeue::Done) };
        let hard = spec.hard.clone().unwrap_or_default();
        let namespace = &*key.namespace;
        let mut pods = self.pods.in_namespace(namespace);
        pods.retain(|pod| usage::in_scope(spec, pod));
        let mut used = usage::total(&pods, usage::pod);
        // A quota with scopes counts Pods only.
        if spec.scopes.is_none() && spec.scope_selector.is_none() {
            usage::add(&mut used, usage::total(&self.services.in_namespace(namespace), usage::service));
            usage::add(&mut used, usage::total(&self.claims.in_namespace(namespace), usage::claim));
            for (name, count) in [
                ("configmaps", self.maps.in_namespace(namespace).len()),
                ("secrets", self.secrets.in_namespace(namespace).len()),
                ("replicationcontrollers", self.replication.in_namespace(namespace).len()),
                ("resourcequotas", self.quotas.in_namespace(namespace).len()),
            ] {
                usage::add(
                    &mut used,
                    Usage::from([(name.to_owned(), Amount::whole(count)), (format!("count/{name}"), Amount::whole(count))]),
                );
            }
            self.count_others(namespace, &hard, &mut used).await?;
        }
        let status = ResourceQuotaStatus { used: Some(constrained(&hard, &used)), hard: Some(hard) };
        if quota.status.as_ref() != Some(&status) {
            let revision = revision_of(&quota.metadata);
            if lowers(quota.status.as_ref(), &status) && self.looked.lock().insert(key.clone(), revision) != Some(revision) {
                // Admission raises the number before there is an object to be counted. Who was admitted a moment ago is here at the
                // second look; who is admitted until then changes the quota, and it is looked at once more.
                return Ok(Requeue::After(SECOND_LOOK));
            }
            let mut next = (*quota).clone();
            next.status = Some(status);
            self.writer.update_status(&next).await?;
        }
        self.looked.lock().remove(&key);
        Ok(Requeue::After(AGAIN))
    }
}

impl Controller {
    /// Counts what is limited by `count/<resource>.<group>` and not cached here.
    async fn count_others(&self, namespace: &str, hard: &BTreeMap<String, Quantity>, used: &mut Usage) -> Result<(), Error> {
        let names: Vec<_> = hard.keys().filter(|name| name.starts_with("count/") && !used.contains_key(*name)).cloned().collect();
        if names.is_empty() {
            return Ok(());
        }
        let resources = discover(&self.client).await?;
        for name in names {
            let wanted = name.trim_start_matches("count/");
            let (plural, group) = wanted.split_once('.').unwrap_or((wanted, ""));
            let Some(resource) = resources.iter().find(|resource| resource.plural == plural && resource.group == group) else { continue };
            let count = resource.list_metadata(&self.client, namespace).await?.len();
            used.insert(name, Amount::whole(count));
        }
        Ok(())
    }
}

/// Whether less of something is used than was.
fn lowers(old: Option<&ResourceQuotaStatus>, new: &ResourceQuotaStatus) -> bool {
    let amount = |quantity: &Quantity| Amount::parse(&quantity.0).unwrap_or(Amount::whole(0));
    let Some(old) = old.and_then(|status| status.used.as_ref()) else { return false };
    old.iter().any(|(name, old)| {
        let new = new.used.as_ref().and_then(|used| used.get(name)).map_or(Amount::whole(0), amount);
        amount(old).exceeds(new)
    })
}

/// What is used of what is limited.
fn constrained(hard: &BTreeMap<String, Quantity>, used: &Usage) -> BTreeMap<String, Quantity> {
    let amount = |name: &String| used.get(name).map_or_else(|| "0".to_owned(), ToString::to_string);
    hard.keys().map(|name| (name.clone(), Quantity(amount(name)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_becomes_less_needs_a_second_look() {
        let status = |pods: &str, cpu: &str| ResourceQuotaStatus {
            used: Some(BTreeMap::from([("pods".to_owned(), Quantity(pods.into())), ("cpu".to_owned(), Quantity(cpu.into()))])),
            hard: None,
        };
        assert!(!lowers(None, &status("0", "0")));
        assert!(!lowers(Some(&status("1", "1")), &status("2", "1000m")));
        assert!(lowers(Some(&status("1", "1")), &status("2", "900m")));
    }

    #[test]
    fn the_status_names_exactly_what_is_limited() {
        let hard = BTreeMap::from([("pods".to_owned(), Quantity("10".into())), ("secrets".to_owned(), Quantity("5".into()))]);
        let used = Usage::from([("pods".to_owned(), Amount::whole(3)), ("services".to_owned(), Amount::whole(1))]);
        let constrained = constrained(&hard, &used);
        assert_eq!((constrained["pods"].0.as_str(), constrained["secrets"].0.as_str()), ("3", "0"));
        assert_eq!(constrained.len(), 2);
    }
}
