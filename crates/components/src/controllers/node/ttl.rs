//! The TTL annotation of nodes: for how long a kubelet may keep Secrets and ConfigMaps without asking, longer in larger clusters.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::runtime::{Component, Context, Identity, Informer, Key, Outcome, Requeue, Source, Writer};

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// From how many nodes up to how many a step holds (they overlap, so that a cluster at the edge does not change its mind all the time),
/// and its seconds.
const STEPS: [(usize, usize, u32); 5] = [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

struct Controller {
    nodes: Informer<Node>,
    writer: Writer<Node>,
    step: AtomicUsize,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller("ttl-controller"));
    let nodes = context.watches.of();
    context.run(Controller { writer: Writer::new(client, &nodes), nodes, step: AtomicUsize::new(0) })
}

/// The step for so many nodes, coming from another one.
fn step_for(count: usize, mut step: usize) -> usize {
    while step + 1 < STEPS.len() && count > STEPS[step].1 {
        step += 1;
    }
    while step > 0 && count < STEPS[step].0 {
        step -= 1;
    }
    step
}

impl Component for Controller {
    const NAME: &'static str = "ttl-controller";

    fn sources(&self) -> Vec<Source> {
        vec![Source::own(&self.nodes)]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let step = step_for(self.nodes.len(), self.step.load(Ordering::Acquire).min(STEPS.len() - 1));
        self.step.store(step, Ordering::Release);
        let Some(node) = self.nodes.find(&key) else { return Ok(Requeue::Done) };
        let wanted = STEPS[step].2.to_string();
        let has = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
        if has == Some(&wanted) {
            return Ok(Requeue::Done);
        }
        match self.writer.patch(&key, "", &json!({"metadata": {"annotations": {ANNOTATION: wanted}}})).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(Requeue::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_at_the_edge_keeps_its_step() {
        assert_eq!(step_for(100, 0), 0);
        assert_eq!(step_for(101, 0), 1);
        assert_eq!(step_for(95, 1), 1);
        assert_eq!(step_for(89, 1), 0);
        assert_eq!(step_for(5000, 0), 4);
    }
}
