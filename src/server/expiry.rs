//! Events do not last: one that nobody has written for an hour (`--event-ttl`) is deleted, by the server's own clock and on either store. The
//! time of an Event's last write stands in its metadata, so that nothing has to be remembered across a restart. Between two looks the
//! task sleeps until the oldest Event is due; while there are none, until the first one comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::object::Object;
use crate::store::{self, Batch, Error, Expect, Operation};
use crate::watch::Observer;

/// How many Events are deleted at once.
const MANY: usize = 256;

/// Rings when there is an Event and the task sleeps without an end.
#[derive(Default)]
struct Bell {
    waiting: AtomicBool,
    rung: Notify,
}

impl Observer for Bell {
    fn changed(&self, _: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        if new.is_some() && self.waiting.swap(false, Ordering::AcqRel) {
            self.rung.notify_one();
        }
    }
}

/// Deletes Events until the server stops.
pub async fn run(api: Arc<Api>, ttl: Duration, stop: CancellationToken) {
    let Ok(topic) = api.state.topic("events").await else { return };
    let bell = Arc::new(Bell::default());
    topic.observe(bell.clone());
    // Events that become due one after the other are not looked for one by one.
    let at_least = (ttl / 60).max(Duration::from_millis(100));
    loop {
        let now = api.clock.now();
        let mut oldest: Option<Timestamp> = None;
        let mut due = Vec::new();
        for event in topic.list(&topic.prefix(), None, 0, 0, |_| true).objects {
            let written = last_write(&event).unwrap_or(now);
            match now.duration_since(written) >= signed(ttl) {
                true => due.push(event),
                false => oldest = Some(oldest.map_or(written, |oldest| oldest.min(written))),
            }
        }
        for some in due.chunks(MANY) {
            let deletions = some.iter().map(|event| delete(&api, event));
            for error in futures::future::join_all(deletions).await.into_iter().filter_map(Result::err) {
                tracing::warn!(%error, "an Event that is due could not be deleted");
                oldest = Some(now);
            }
        }
        let wait = oldest.map(|oldest| {
            let left = signed(ttl).saturating_sub(now.duration_since(oldest));
            Duration::try_from(left).unwrap_or_default().max(at_least)
        });
        bell.waiting.store(wait.is_none(), Ordering::Release);
        // One may have come between the look and the bell.
        if wait.is_none() && !topic.is_empty() {
            continue;
        }
        tokio::select! {
            () = async { api.clock.sleep(wait.unwrap_or_default()).await }, if wait.is_some() => {}
            () = bell.rung.notified() => {}
            () = stop.cancelled() => return,
        }
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// Gone without admission and without a request, as what a lease held is gone.
async fn delete(api: &Api, event: &Arc<Object>) -> store::Result<()> {
    let operation = Operation::Delete { key: event.key.clone(), last: event.stored().into(), expect: Expect::Revision(event.revision) };
    let batch = Batch { operations: vec![operation], time: api.clock.now().as_microsecond(), audit_id: None };
    match api.state.store().commit(batch).await {
        // Somebody wrote it, or deleted it: then it is not due any more.
        Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
        Err(other) => Err(other),
    }
}

/// When an Event was last written: the newest time among its creation and what its managers did.
fn last_write(event: &Object) -> Option<Timestamp> {
    #[derive(serde::Deserialize)]
    struct Head {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        creation_timestamp: Option<Timestamp>,
        #[serde(default)]
        managed_fields: Vec<Manager>,
    }
    #[derive(serde::Deserialize)]
    struct Manager {
        time: Option<Timestamp>,
    }
    let head: Head = serde_json::from_slice(&event.json).ok()?;
    let written = head.metadata.managed_fields.into_iter().filter_map(|manager| manager.time);
    written.chain(head.metadata.creation_timestamp).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_is_the_newest_time_in_the_metadata() {
        let stored = br#"{"apiVersion":"v1","kind":"Event","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[{"time":"2026-01-01T00:05:00Z"}]}}"#;
        let event = Object::new("/registry/events/default/e".into(), 1, stored);
        assert_eq!(last_write(&event).unwrap().to_string(), "2026-01-01T00:05:00Z");
    }
}
