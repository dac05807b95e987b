//! When the change happened that endpoints are written for: the annotation by which others measure how long that took.
//!
//! A Service changes when it is made, a Pod when it becomes ready or stops being so. Of all changes since the last write the
//! earliest counts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use parking_lot::Mutex;

use crate::{controllers::pods, runtime::Key};

const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// What was last seen of each Service.
#[derive(Default)]
pub struct TriggerTimes(Mutex<HashMap<Key, Seen>>);

#[derive(Default)]
struct Seen {
    service: Option<Timestamp>,
    pods: BTreeMap<String, Timestamp>,
}

impl TriggerTimes {
    /// The earliest change since the last call, if there was one.
    pub fn since_last(&self, key: &Key, service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let changes = pods.iter().filter_map(|pod| {
            let time = pods::condition(pod, "Ready")?.last_transition_time.as_ref()?.0;
            Some((pod.metadata.name.clone().unwrap_or_default(), time))
        });
        let now = Seen { service: created, pods: changes.collect() };
        let before = self.0.lock().remove(key).unwrap_or_default();
        let of_pods = now.pods.iter().filter(|(name, time)| before.pods.get(*name).is_none_or(|old| old < *time)).map(|(_, time)| *time);
        let of_service = now.service.filter(|time| before.service != Some(*time));
        let earliest = of_pods.chain(of_service).min();
        self.0.lock().insert(key.clone(), now);
        earliest
    }

    /// The Service is gone.
    pub fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

/// Notes the time on what is about to be written.
pub fn annotate(meta: &mut ObjectMeta, time: Option<Timestamp>) {
    match time {
        Some(time) => {
            meta.annotations.get_or_insert_default().insert(LAST_CHANGE.to_owned(), time.to_string());
        }
        None => {
            if let Some(annotations) = &mut meta.annotations {
                annotations.remove(LAST_CHANGE);
                if annotations.is_empty() {
                    meta.annotations = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_earliest_change_since_the_last_time_counts() {
        let service: Service = serde_json::from_value(json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:05Z"}})).unwrap();
        let pod = |name: &str, since: &str| -> Arc<Pod> {
            let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]);
            Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "status": {"conditions": ready}})).unwrap())
        };
        let (times, key) = (TriggerTimes::default(), Key::new("a", "web"));
        let next = |pods: &[Arc<Pod>]| times.since_last(&key, &service, pods).map(|time| time.to_string());
        assert_eq!(next(&[pod("a", "2026-01-01T00:00:07Z")]).as_deref(), Some("2026-01-01T00:00:05Z"));
        assert_eq!(next(&[pod("a", "2026-01-01T00:00:07Z")]), None);
        let pods = [pod("a", "2026-01-01T00:00:09Z"), pod("b", "2026-01-01T00:00:08Z")];
        assert_eq!(next(&pods).as_deref(), Some("2026-01-01T00:00:08Z"));
    }
}
