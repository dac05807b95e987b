//! The scheduler: gives every Pod that has no node a node, through the API's `pods/binding`.
//!
//! ```text
//! changes ─▶ queue (active · back-off · unschedulable) ─▶ schedule: PreFilter → Filter → [PostFilter] → Score
//!               ▲                                                       │
//!               │ queueing hints                                        ▼ assume in the cache
//!            cache ◀──────── confirmed by the watch ◀──────── Reserve → Permit → PreBind → Bind → PostBind (beside the loop)
//! ```
//!
//! Which Pods it takes care of is decided by their `schedulerName`: one profile each, any other name is somebody else's.

mod binding;
pub mod cache;
pub mod event;
pub mod framework;
pub mod info;
pub mod plugins;
pub mod quantity;
pub mod queue;
pub mod resource;
mod run;
pub mod schedule;
pub mod selector;
mod status;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use tokio::sync::mpsc;

use crate::runtime::{Context, Entry, Identity, Key, Selectable};
use framework::Profile;
use plugins::{DefaultBinder, default_profile};
use queue::SchedulingQueue;
use run::{Input, Scheduler};
use status::Reporter;

/// The scheduler name of Pods that name none.
pub const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// The scheduler as a component that can be started by name.
#[must_use]
pub fn entry() -> Entry {
    Entry {
        names: Selectable { name: "scheduler", aliases: &["kube-scheduler", DEFAULT_SCHEDULER_NAME], controller: false },
        lease: "kube-scheduler",
        run: |context| {
            Box::pin(async move {
                let client = context.client(&Identity::scheduler());
                let profile = default_profile(DEFAULT_SCHEDULER_NAME, Arc::new(DefaultBinder::new(client)));
                run(context, vec![Arc::new(profile)]).await;
            })
        },
    }
}

/// Schedules the Pods of `profiles` until the context says stop. The order of the queue is that of the first profile.
pub async fn run(context: Context, profiles: Vec<Arc<Profile>>) {
    let Some(sort) = profiles.first().map(|profile| profile.queue_sort.clone()) else { return };
    let client = context.client(&Identity::scheduler());
    let recorder = context.recorder(client.clone(), DEFAULT_SCHEDULER_NAME);
    let reporter = Reporter { client, recorder, clock: context.clock.clone() };
    let (sender, inputs) = mpsc::unbounded_channel();
    let (nodes, pods) = (context.watches.of::<Node>(), context.watches.of::<Pod>());
    let (namespaces, budgets) = (context.watches.of::<Namespace>(), context.watches.of::<PodDisruptionBudget>());
    // A Pod must not be turned away because the nodes have not been listed yet.
    let synced = async {
        tokio::join!(nodes.synced(), pods.synced(), namespaces.synced(), budgets.synced());
    };
    tokio::select! {
        () = context.stop.cancelled() => return,
        () = synced => {}
    }
    let tell = |sender: &mpsc::UnboundedSender<Input>| {
        let sender = sender.clone();
        // The loop is the only reader; when it has ended nobody needs to know any more.
        move |input: Input| {
            let _ = sender.send(input);
        }
    };
    let (to_nodes, to_pods, to_namespaces, to_budgets) = (tell(&sender), tell(&sender), tell(&sender), tell(&sender));
    let _subscriptions = (
        namespaces.subscribe(move |change| {
            let name = change.latest().and_then(|namespace| namespace.metadata.name.clone()).unwrap_or_default();
            to_namespaces(Input::Namespace { name, namespace: change.new.cloned() });
        }),
        nodes.subscribe(move |change| to_nodes(Input::Node { old: change.old.cloned(), new: change.new.cloned() })),
        budgets.subscribe(move |change| {
            let key = change.latest().map(|budget| Key::of(&budget.metadata).to_string()).unwrap_or_default();
            to_budgets(Input::Budget { key, budget: change.new.cloned() });
        }),
        pods.subscribe(move |change| to_pods(Input::Pod { old: change.old.cloned(), new: change.new.cloned() })),
    );
    let mut scheduler = Scheduler::new(profiles, SchedulingQueue::new(sort), reporter, context.clock.clone(), sender);
    tokio::select! {
        () = context.stop.cancelled() => {}
        () = scheduler.work(inputs) => {}
    }
}
