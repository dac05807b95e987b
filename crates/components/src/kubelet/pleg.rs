//! The Pod lifecycle event generator: tells the workers which containers have ended.
//!
//! Follows the runtime's events where the runtime has any; otherwise, and whenever events were missed, it lists the containers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use super::agent::{Agent, terminated};
use super::pod_config::POD_UID_LABEL;
use crate::cri::v1::*;

/// How often containers are listed where there are no events.
const RELIST: Duration = Duration::from_secs(1);

/// Runs until the agent stops.
pub(super) async fn run(agent: Arc<Agent>) {
    let stop = agent.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = follow(agent) => {}
    }
}

async fn follow(agent: Arc<Agent>) {
    let mut told = HashSet::new();
    loop {
        match agent.runtime.get_container_events(GetEventsRequest {}).await {
            Ok(mut events) => {
                relist(&agent, &mut told).await;
                while let Some(event) = events.next().await {
                    match event {
                        Ok(event) => tell(&agent, &event),
                        Err(status) => {
                            tracing::debug!(node = %agent.name, status = %status.message(), "container events were interrupted");
                            relist(&agent, &mut told).await;
                        }
                    }
                }
            }
            Err(status) => tracing::trace!(node = %agent.name, status = %status.message(), "the runtime has no container events"),
        }
        relist(&agent, &mut told).await;
        agent.clock.sleep(RELIST).await;
    }
}

fn tell(agent: &Agent, event: &ContainerEventResponse) {
    if event.container_event_type != ContainerEventType::ContainerStoppedEvent as i32 {
        return;
    }
    let uid = event.pod_sandbox_status.as_ref().and_then(|status| status.metadata.as_ref()).map(|metadata| metadata.uid.as_str());
    let ended = event.containers_statuses.iter().find(|status| status.id == event.container_id).and_then(terminated);
    if let (Some(uid), Some(run)) = (uid, ended) {
        agent.container_exited(uid, run);
    }
}

/// Tells of every container that has ended and was not told of before.
async fn relist(agent: &Agent, told: &mut HashSet<String>) {
    let filter = ContainerFilter {
        state: Some(ContainerStateValue { state: ContainerState::ContainerExited as i32 }),
        ..ContainerFilter::default()
    };
    let Ok(list) = agent.runtime.list_containers(ListContainersRequest { filter: Some(filter) }).await else { return };
    let present: HashSet<String> = list.containers.iter().map(|container| container.id.clone()).collect();
    told.retain(|id| present.contains(id));
    for container in list.containers {
        if !told.insert(container.id.clone()) {
            continue;
        }
        let request = ContainerStatusRequest { container_id: container.id, verbose: false };
        let status = agent.runtime.container_status(request).await.ok().and_then(|answer| answer.status);
        if let (Some(uid), Some(run)) = (container.labels.get(POD_UID_LABEL), status.as_ref().and_then(terminated)) {
            agent.container_exited(uid, run);
        }
    }
}
