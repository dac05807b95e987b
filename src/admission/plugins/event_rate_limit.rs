//! `EventRateLimit`: a flood of Events does not drown everybody else. Limits are token buckets for the whole server, a namespace, a user,
//! or a source and object; a server without any limits configured has none.

use std::collections::HashMap;
use std::time::Instant;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

use crate::admission::{Operation, Validate, Write};
use crate::status::Status;

/// One limit of the configuration.
#[derive(Clone, Debug)]
pub struct Limit {
    /// `Server`, `Namespace`, `User` or `SourceAndObject`.
    pub kind: String,
    /// How many a second.
    pub qps: f64,
    /// How many at once.
    pub burst: f64,
    /// How many keys are remembered.
    pub cache_size: usize,
}

/// The plugin.
pub struct EventRateLimit {
    limits: Vec<Limit>,
    buckets: Mutex<HashMap<(usize, String), (f64, Instant)>>,
}

impl EventRateLimit {
    /// A plugin with these limits.
    pub fn new(limits: Vec<Limit>) -> Self {
        EventRateLimit { limits, buckets: Mutex::default() }
    }

    /// Takes one from a bucket, if there is one in it.
    fn take(&self, index: usize, key: &str, now: Instant) -> bool {
        let limit = &self.limits[index];
        let mut buckets = self.buckets.lock();
        if buckets.len() > limit.cache_size.max(4096) {
            buckets.clear();
        }
        let (tokens, last) = buckets.entry((index, key.to_owned())).or_insert((limit.burst, now));
        *tokens = (*tokens + now.saturating_duration_since(*last).as_secs_f64() * limit.qps).min(limit.burst);
        *last = now;
        if *tokens < 1.0 {
            return false;
        }
        *tokens -= 1.0;
        true
    }
}

fn key(limit: &Limit, write: &Write) -> String {
    let object = write.object();
    match limit.kind.as_str() {
        "Namespace" => write.namespace.clone(),
        "User" => write.user.name.clone(),
        "SourceAndObject" => {
            let regarding = &object["involvedObject"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let fields = ["kind", "namespace", "name", "uid", "apiVersion"].map(|field| text(&regarding[field]));
            format!("{}{}{}", text(&object["source"]["component"]), text(&object["source"]["host"]), fields.concat())
        }
        _ => String::new(),
    }
}

impl Validate for EventRateLimit {
    fn name(&self) -> &'static str {
        "EventRateLimit"
    }

    fn handles(&self, write: &Write) -> bool {
        !self.limits.is_empty()
            && !write.dry_run
            && write.is_of("", "events")
            && matches!(write.operation, Operation::Create | Operation::Update)
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let now = Instant::now();
            // Each limit takes its part, also where another one has refused already.
            let mut reached: Vec<String> = Vec::new();
            for (index, limit) in self.limits.iter().enumerate() {
                let key = key(limit, write);
                if !self.take(index, &key, now) {
                    reached.push(format!("limit reached on type {} for key {key}", limit.kind));
                }
            }
            match reached.as_slice() {
                [] => Ok(()),
                [one] => Err(Status::new(429, "TooManyRequests", format!("Too many requests: {one}"))),
                many => Err(Status::new(429, "TooManyRequests", format!("Too many requests: [{}]", many.join(", ")))),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_empties_and_fills_again() {
        let limits = vec![Limit { kind: "Server".into(), qps: 10.0, burst: 2.0, cache_size: 0 }];
        let plugin = EventRateLimit::new(limits);
        let now = Instant::now();
        assert!(plugin.take(0, "", now) && plugin.take(0, "", now));
        assert!(!plugin.take(0, "", now));
        assert!(plugin.take(0, "", now + Duration::from_millis(150)));
    }
}
