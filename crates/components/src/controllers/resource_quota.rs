//! ResourceQuota: keeps the status up to date with what is really used.
//!
//! Admission raises the numbers as objects come; this controller lowers them as objects go, and counts afresh.

pub mod quantity;
pub mod usage;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::future::BoxFuture;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, Service},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::Client;
use parking_lot::Mutex;

use crate::runtime::{
    Change, Component, Context, Error, Identity, Informer, Key, MetadataFeed, Object, Outcome, Queue, Requeue, Source, Subscription,
    Watches, Writer, discovery::discover, revision_of,
};
use quantity::Amount;
use usage::Usage;

/// How often everything is counted again, whatever happens.
const AGAIN: Duration = Duration::from_secs(300);
/// How long an object that has been admitted takes to be seen, at most.
const SECOND_LOOK: Duration = Duration::from_millis(50);
/// When numbers that have just been written are counted once more: what was admitted before them and written after them is there then.
const PROOF: Duration = Duration::from_secs(1);

struct Controller {
    quotas: Informer<ResourceQuota>,
    pods: Informer<Pod>,
    services: Informer<Service>,
    claims: Informer<PersistentVolumeClaim>,
    writer: Writer<ResourceQuota>,
    client: Client,
    watches: Watches,
    /// What else some quota limits the number of, by collection path.
    counted: Mutex<HashMap<String, Counted>>,
    queue: Arc<OnceLock<Queue>>,
    /// The revision of a quota at which less was found to be used than it says.
    looked: Mutex<HashMap<Key, u64>>,
}

/// The metadata of objects of which a quota limits nothing but the number.
struct Counted {
    feed: Arc<dyn MetadataFeed>,
    _freed: Subscription,
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
        client,
        watches: context.watches.clone(),
        counted: Mutex::default(),
        queue: Arc::default(),
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
        let namespace = change.latest().and_then(|object| object.meta().namespace.as_deref());
        free(&quotas, namespace.unwrap_or_default(), queue);
    })
}

/// Has the quotas of a namespace counted again.
fn free(quotas: &Informer<ResourceQuota>, namespace: &str, queue: &Queue) {
    for quota in quotas.in_namespace(namespace) {
        queue.add(Key::of(&quota.metadata));
    }
}

impl Component for Controller {
    const NAME: &'static str = "resourcequota-controller";

    fn sources(&self) -> Vec<Source> {
        let own = self.queue.clone();
        vec![
            Source::custom(move |queue| {
                let _ = own.set(queue);
                Subscription::new(|| ())
            }),
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
            frees(&self.claims, &self.quotas, |_| false),
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
            let quotas = Amount::whole(self.quotas.count_in(namespace));
            used.extend(["resourcequotas", "count/resourcequotas"].map(|name| (name.to_owned(), quotas)));
            self.count_others(namespace, &hard, &mut used).await?;
        }
        let status = ResourceQuotaStatus { used: Some(constrained(&hard, &used)), hard: Some(hard) };
        let correct = quota.status.as_ref() == Some(&status);
        if !correct {
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
        Ok(Requeue::After(if correct { AGAIN } else { PROOF }))
    }
}

impl Controller {
    /// Counts what is limited by nothing but its number.
    async fn count_others(&self, namespace: &str, hard: &BTreeMap<String, Quantity>, used: &mut Usage) -> Result<(), Error> {
        let others: Vec<_> = hard.keys().filter(|name| !used.contains_key(*name)).filter_map(|name| Some((name, counts(name)?))).collect();
        if others.is_empty() {
            return Ok(());
        }
        let resources = discover(&self.client).await?;
        for (name, (plural, group)) in others {
            let Some(resource) = resources.iter().find(|resource| resource.plural == plural && resource.group == group) else { continue };
            let feed = self.counted(resource.collection());
            feed.metadata_synced().await;
            used.insert(name.clone(), Amount::whole(feed.count(namespace)));
        }
        Ok(())
    }

    /// The metadata of a resource; whatever of it goes concerns the quotas of its namespace.
    fn counted(&self, path: String) -> Arc<dyn MetadataFeed> {
        let feed = self.watches.metadata(&path);
        let mut counted = self.counted.lock();
        // One that was served no longer for a while has another feed now.
        if counted.get(&path).is_none_or(|known| !Arc::ptr_eq(&known.feed, &feed)) {
            let (quotas, queue) = (self.quotas.clone(), self.queue.clone());
            let freed = feed.subscribe_metadata(Box::new(move |old, new| {
                if let (Some(old), None, Some(queue)) = (old, new, queue.get()) {
                    free(&quotas, old.namespace.as_deref().unwrap_or_default(), queue);
                }
            }));
            counted.insert(path, Counted { feed: feed.clone(), _freed: freed });
        }
        feed
    }
}

/// The resource and the group of which a name limits the number, if it does.
fn counts(name: &str) -> Option<(&str, &str)> {
    match name.strip_prefix("count/") {
        Some(wanted) => Some(wanted.split_once('.').unwrap_or((wanted, ""))),
        None => matches!(name, "configmaps" | "secrets" | "replicationcontrollers").then_some((name, "")),
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
