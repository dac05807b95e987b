//! Decides what becomes of an event: written anew, counted onto an earlier one, or left out.
//!
//! The numbers are those of Kubernetes: after 25 events about one object from one source only one more every five
//! minutes; of more than ten similar events within ten minutes (same reason, different messages) the rest become one
//! "(combined from similar events)".

use std::collections::{HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};

use super::{EventType, Record, Source};

const SPAM_BURST: f64 = 25.0;
const SPAM_PER_SECOND: f64 = 1.0 / 300.0;
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: SignedDuration = SignedDuration::from_secs(600);
/// After this long without a repetition, a series of `events.k8s.io` is over.
const SERIES: SignedDuration = SignedDuration::from_secs(360);
/// How many objects and events are remembered.
const REMEMBERED: usize = 4096;

/// What to do with an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// There have been too many.
    Skip,
    /// Write it.
    Create {
        /// What it says.
        message: String,
        /// Whether it stands for many.
        combined: bool,
    },
    /// Raise the count of one that is there.
    Repeat {
        /// Its name.
        name: String,
        /// What it says now.
        message: String,
        /// How often it has happened.
        count: i32,
        /// When it happened first.
        first: Timestamp,
    },
}

/// Everything about an event but its message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    source: Source,
    object: Object,
    r#type: EventType,
    reason: String,
    action: Option<String>,
}

/// The object and who speaks about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Object {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    field: Option<String>,
}

/// One event that can repeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subject {
    kind: Kind,
    /// `None` for combined ones, and for a series, where the text does not matter.
    message: Option<String>,
}

impl Subject {
    pub(crate) fn of(record: &Record) -> Subject {
        let message = record.action.is_none().then(|| record.message.clone());
        Subject { kind: kind_of(record), message }
    }
}

#[derive(Default)]
pub(crate) struct Correlator {
    spam: HashMap<(Source, Object), (f64, Timestamp)>,
    similar: HashMap<Kind, (HashSet<String>, Timestamp)>,
    seen: HashMap<Subject, Seen>,
    combined: Option<Subject>,
}

struct Seen {
    name: String,
    count: i32,
    first: Timestamp,
    last: Timestamp,
}

impl Correlator {
    pub(crate) fn take(&mut self, record: &Record, now: Timestamp) -> Step {
        self.forget_some();
        let kind = kind_of(record);
        let mut subject = Subject::of(record);
        let mut message = record.message.clone();
        self.combined = None;
        if record.action.is_none() {
            let (messages, last) = self.similar.entry(kind.clone()).or_insert_with(|| (HashSet::new(), now));
            if now.duration_since(*last) > SIMILAR_WITHIN {
                messages.clear();
            }
            *last = now;
            if messages.len() + 1 < SIMILAR {
                messages.insert(record.message.clone());
            }
            if !messages.contains(&record.message) {
                message = format!("(combined from similar events): {message}");
                subject = Subject { kind: kind.clone(), message: None };
                self.combined = Some(subject.clone());
            }
            let (tokens, at) = self.spam.entry((kind.source, kind.object)).or_insert_with(|| (SPAM_BURST, now));
            *tokens = (*tokens + now.duration_since(*at).as_secs_f64() * SPAM_PER_SECOND).min(SPAM_BURST);
            *at = now;
            if *tokens < 1.0 {
                return Step::Skip;
            }
            *tokens -= 1.0;
        }
        match self.seen.get_mut(&subject) {
            Some(seen) if record.action.is_some() && now.duration_since(seen.last) > SERIES => {
                self.seen.remove(&subject);
                Step::Create { message, combined: false }
            }
            Some(seen) => {
                seen.count = seen.count.saturating_add(1);
                seen.last = now;
                let (name, count, first) = (seen.name.clone(), seen.count, seen.first);
                Step::Repeat { name, message, count, first }
            }
            None => Step::Create { message, combined: self.combined.is_some() },
        }
    }

    /// Remembers under which name the last event was written.
    pub(crate) fn written(&mut self, subject: Subject, name: String, now: Timestamp) {
        let subject = self.combined.take().unwrap_or(subject);
        let seen = self.seen.entry(subject).or_insert_with(|| Seen { name: String::new(), count: 1, first: now, last: now });
        seen.name = name;
    }

    /// Forgetting means at worst that a repetition is written as a new event.
    fn forget_some(&mut self) {
        if self.seen.len() > REMEMBERED {
            self.seen.clear();
        }
        if self.similar.len() > REMEMBERED {
            self.similar.clear();
        }
        if self.spam.len() > REMEMBERED {
            self.spam.clear();
        }
    }
}

fn kind_of(record: &Record) -> Kind {
    let object = Object {
        kind: record.regarding.kind.clone(),
        namespace: record.regarding.namespace.clone(),
        name: record.regarding.name.clone(),
        uid: record.regarding.uid.clone(),
        field: record.regarding.field_path.clone(),
    };
    Kind { source: record.source.clone(), object, r#type: record.r#type, reason: record.reason.clone(), action: record.action.clone() }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    fn record(reason: &str, message: &str) -> Record {
        Record {
            source: Source { component: "test".into(), host: "".into() },
            regarding: ObjectReference { name: Some("x".into()), ..ObjectReference::default() },
            related: None,
            r#type: EventType::Normal,
            reason: reason.into(),
            action: None,
            message: message.into(),
            at: Timestamp::UNIX_EPOCH,
            anonymous: false,
        }
    }

    fn take(correlator: &mut Correlator, record: &Record) -> Step {
        let step = correlator.take(record, Timestamp::UNIX_EPOCH);
        if let Step::Create { .. } = step {
            correlator.written(Subject::of(record), format!("{}.1", record.message), Timestamp::UNIX_EPOCH);
        }
        step
    }

    #[test]
    fn the_same_event_again_raises_the_count() {
        let mut correlator = Correlator::default();
        let pulled = record("Pulled", "image");
        assert_eq!(take(&mut correlator, &pulled), Step::Create { message: "image".into(), combined: false });
        let again = take(&mut correlator, &pulled);
        assert!(matches!(&again, Step::Repeat { name, count: 2, .. } if name == "image.1"), "{again:?}");
    }

    #[test]
    fn many_similar_events_are_combined() {
        let mut correlator = Correlator::default();
        for n in 1..10 {
            let step = take(&mut correlator, &record("SuccessfulCreate", &format!("Created pod: {n}")));
            assert_eq!(step, Step::Create { message: format!("Created pod: {n}"), combined: false });
        }
        let step = take(&mut correlator, &record("SuccessfulCreate", "Created pod: 10"));
        let combined = "(combined from similar events): Created pod: 10";
        assert_eq!(step, Step::Create { message: combined.into(), combined: true });
        let step = take(&mut correlator, &record("SuccessfulCreate", "Created pod: 11"));
        assert!(matches!(step, Step::Repeat { count: 2, .. }));
    }

    #[test]
    fn an_object_with_too_many_events_gets_no_more() {
        let mut correlator = Correlator::default();
        let steps: Vec<_> = (0..30).map(|n| take(&mut correlator, &record(&format!("R{n}"), "m"))).collect();
        assert_eq!(steps.iter().filter(|step| **step == Step::Skip).count(), 5);
    }

    #[test]
    fn a_series_does_not_look_at_the_text() {
        let mut correlator = Correlator::default();
        let mut failed = record("FailedScheduling", "0/1 nodes");
        failed.action = Some("Scheduling".into());
        assert!(matches!(take(&mut correlator, &failed), Step::Create { .. }));
        failed.message = "0/2 nodes".into();
        assert!(matches!(take(&mut correlator, &failed), Step::Repeat { count: 2, .. }));
    }
}
