//! The binding cycle of one Pod: wait for those who may hold it back, prepare, bind, tell.
//!
//! Runs beside the loop while it decides about the next Pods.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::framework::{Profile, Rejection};
use super::info::PodInfo;
use super::status::Reporter;
use crate::clock::Clock;

/// A Permit plugin that has not made up its mind: its name, how long it may take, and where its answer comes from.
pub(super) type Hold = (&'static str, Duration, oneshot::Receiver<Result<(), Rejection>>);

/// A Pod that has been given a node.
pub(super) struct Binding {
    pub pod: Arc<PodInfo>,
    pub node: String,
    pub profile: Arc<Profile>,
    /// Permit plugins that have not made up their minds.
    pub holds: Vec<Hold>,
}

pub(super) async fn bind(binding: Binding, reporter: &Reporter, clock: &Clock) -> Result<(), Rejection> {
    let Binding { pod, node, profile, holds } = binding;
    for (plugin, timeout, decision) in holds {
        match clock.timeout(timeout, decision).await {
            Ok(Ok(verdict)) => verdict.map_err(|rejection| rejection.by(plugin))?,
            Ok(Err(_)) => return Err(Rejection::unschedulable("the permit plugin gave no answer").by(plugin)),
            Err(_) => return Err(Rejection::unschedulable(format!("timeout after {timeout:?} waiting for {plugin}")).by(plugin)),
        }
    }
    for plugin in &profile.pre_bind {
        plugin.pre_bind(pod.clone(), node.clone()).await.map_err(|rejection| rejection.by(plugin.name()))?;
    }
    let _placing = clock.placing();
    for plugin in &profile.bind {
        match plugin.bind(pod.clone(), node.clone()).await {
            Some(result) => {
                result.map_err(|rejection| rejection.by(plugin.name()))?;
                reporter.scheduled(&pod, &node);
                profile.post_bind.iter().for_each(|plugin| plugin.post_bind(&pod, &node));
                return Ok(());
            }
            None => continue,
        }
    }
    Err(Rejection::error("no plugin bound the Pod"))
}
