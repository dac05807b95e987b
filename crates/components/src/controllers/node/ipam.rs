//! Node IPAM: every node gets a range for its Pods, cut from the cluster's.

use std::{collections::HashSet, net::Ipv4Addr, sync::Arc};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::{
    events::{EventType, Recorder, regarding},
    runtime::{Component, Context, Identity, Informer, Key, Outcome, Requeue, Source, Writer},
};

/// A range that is cut into equal parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    base: u32,
    prefix: u8,
    part: u8,
}

impl Range {
    fn parse(cidr: &str, part: u8) -> Option<Range> {
        let (address, prefix) = cidr.split_once('/')?;
        let prefix: u8 = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
        let base = u32::from(address.parse::<Ipv4Addr>().ok()?);
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        (part >= prefix && part <= 32).then_some(Range { base: base & mask, prefix, part })
    }

    fn parts(self) -> impl Iterator<Item = String> {
        let count = 1_u64 << (self.part - self.prefix).min(32);
        let size = 1_u64 << (32 - self.part);
        (0..count).map(move |number| {
            let base = u64::from(self.base) + number * size;
            format!("{}/{}", Ipv4Addr::from(u32::try_from(base).unwrap_or(u32::MAX)), self.part)
        })
    }
}

struct Controller {
    nodes: Informer<Node>,
    writer: Writer<Node>,
    recorder: Recorder,
    range: Range,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let Some(range) = Range::parse(&context.options.cluster_cidr, context.options.node_cidr_mask_size) else {
        tracing::error!(cidr = %context.options.cluster_cidr, "the cluster CIDR is not usable; nodes get no Pod ranges");
        return Box::pin(std::future::ready(()));
    };
    let client = context.client(&Identity::controller(super::ACCOUNT));
    let nodes = context.watches.of();
    let recorder = context.recorder(client.clone(), "cidrAllocator");
    context.run(Controller { writer: Writer::new(client, &nodes), nodes, recorder, range })
}

impl Component for Controller {
    const NAME: &'static str = "node-ipam-controller";
    /// One, so that no range is given away twice.
    const WORKERS: usize = 1;

    fn sources(&self) -> Vec<Source> {
        vec![Source::new(&self.nodes, |change, queue| {
            if let Some(node) = change.new.filter(|node| range_of(node).is_none()) {
                queue.add(Key::of(&node.metadata));
            }
        })]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(node) = self.nodes.find(&key).filter(|node| range_of(node).is_none()) else { return Ok(Requeue::Done) };
        let nodes = self.nodes.list();
        let taken: HashSet<&str> = nodes.iter().filter_map(|node| range_of(node)).collect();
        let Some(free) = self.range.parts().find(|part| !taken.contains(part.as_str())) else {
            let message = format!("Node {} status is now: CIDRNotAvailable", key.name);
            self.recorder.event(&regarding(&*node), EventType::Normal, "CIDRNotAvailable", message);
            return Ok(Requeue::After(std::time::Duration::from_secs(30)));
        };
        let patch = json!({"metadata": {"uid": node.metadata.uid}, "spec": {"podCIDR": free, "podCIDRs": [free]}});
        match self.writer.merge(&key, "", &patch).await {
            Err(error) if error.is_not_found() => Ok(Requeue::Done),
            Err(error) => Err(error),
            Ok(_) => Ok(Requeue::Done),
        }
    }
}

fn range_of(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.pod_cidr.as_deref().filter(|cidr| !cidr.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clusters_range_is_cut_into_the_nodes_ranges() {
        let parts: Vec<_> = Range::parse("10.244.0.0/16", 24).unwrap().parts().collect();
        assert_eq!(parts.len(), 256);
        assert_eq!((parts[0].as_str(), parts[255].as_str()), ("10.244.0.0/24", "10.244.255.0/24"));
        assert_eq!(Range::parse("10.0.0.0/8", 4), None);
        assert_eq!(Range::parse("nonsense", 24), None);
    }
}
