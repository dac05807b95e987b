//! What happened to a request on its way, in order, with times. A step records itself with one line of code; a request that
//! nobody inspects pays for a short vector and nothing else. Audit, `usher explain` and the console read it afterwards.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// One step of a request's way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The hop: `authenticate`, `authorize`, `mutate`, `validate`, `store`, …
    pub hop: Cow<'static, str>,
    /// Who took it: an authenticator, an authoriser, a plugin, a policy, a webhook.
    pub name: Cow<'static, str>,
    /// How it ended, in a word or two: `matched`, `skipped`, `allowed`, `denied`, …
    pub verdict: Cow<'static, str>,
    /// Why, and whatever else is worth keeping (a diff, a cost, the values of an expression).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<Value>,
    /// When it ended, counted from the arrival of the request; in microseconds where it is written down.
    #[serde(with = "micros")]
    pub at: Duration,
    /// How long it took; in microseconds where it is written down.
    #[serde(with = "micros")]
    pub took: Duration,
}

/// A duration as whole microseconds.
mod micros {
    use super::*;

    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(duration.as_micros() as u64)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }
}

/// What a write left behind: enough to find what followed from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wrote {
    /// The revision of the write.
    pub revision: u64,
    /// The object's kind.
    pub kind: String,
    /// The object's name, also where the server made it up.
    pub name: String,
    /// The object's uid.
    pub uid: String,
    /// The uids of its owners.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// Whether the write removed it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// The trace of one request: its steps, the warnings for the client, the annotations for the audit event and what was written.
#[derive(Debug)]
pub struct Trace {
    start: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    steps: Vec<Step>,
    warnings: Vec<String>,
    annotations: Vec<(String, String)>,
    wrote: Option<Wrote>,
}

impl Default for Trace {
    fn default() -> Self {
        Trace { start: Instant::now(), inner: Mutex::default() }
    }
}

impl Trace {
    /// Records a step that began at `since`.
    pub fn step(&self, hop: &'static str, name: impl Into<Cow<'static, str>>, verdict: impl Into<Cow<'static, str>>, since: Instant) {
        self.step_with(hop, name, verdict, since, None);
    }

    /// Records a step with more to say.
    pub fn step_with(
        &self,
        hop: &'static str,
        name: impl Into<Cow<'static, str>>,
        verdict: impl Into<Cow<'static, str>>,
        since: Instant,
        detail: Option<Value>,
    ) {
        let step = Step {
            hop: Cow::Borrowed(hop),
            name: name.into(),
            verdict: verdict.into(),
            detail,
            at: self.start.elapsed(),
            took: since.elapsed(),
        };
        self.inner.lock().steps.push(step);
    }

    /// Adds a `Warning` header to the response; the same text only once.
    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut inner = self.inner.lock();
        if !inner.warnings.contains(&text) {
            inner.warnings.push(text);
        }
    }

    /// Adds an annotation to the audit event; the first value of a key stays.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let key = key.into();
        let mut inner = self.inner.lock();
        if inner.annotations.iter().all(|(k, _)| *k != key) {
            inner.annotations.push((key, value.into()));
        }
    }

    /// Says what was written. Of a request that writes several objects, the first one is what it wrote, and the steps tell of the
    /// others.
    pub fn wrote(&self, wrote: Wrote) {
        let mut inner = self.inner.lock();
        if inner.wrote.is_none() {
            inner.wrote = Some(wrote);
            return;
        }
        let detail = serde_json::to_value(&wrote).ok();
        if let Some(step) = inner.steps.iter_mut().rev().find(|step| step.hop == "store") {
            step.detail = detail;
        }
    }

    /// The steps, the annotations and what was written, for the one who keeps them; they are gone from here afterwards.
    pub fn take(&self) -> (Vec<Step>, Vec<(String, String)>, Option<Wrote>) {
        let mut inner = self.inner.lock();
        (std::mem::take(&mut inner.steps), std::mem::take(&mut inner.annotations), inner.wrote.take())
    }

    /// When the request arrived.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// The steps so far.
    pub fn steps(&self) -> Vec<Step> {
        self.inner.lock().steps.clone()
    }

    /// The warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        self.inner.lock().warnings.clone()
    }

    /// The annotations so far.
    pub fn annotations(&self) -> Vec<(String, String)> {
        self.inner.lock().annotations.clone()
    }
}
