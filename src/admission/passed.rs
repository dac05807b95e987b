//! Those that a request was not for, as the trace tells of them: a few by name with the reason of each, a multitude by number. A server
//! may know a thousand policies, and a request that none of them is about must not pay for a thousand steps.

use std::borrow::Cow;
use std::time::Instant;

use serde_json::{Value, json};

use super::Write;

/// How many are told of by name.
const MAX_NAMED: usize = 16;

/// Why most are passed over.
pub const NO_RULE: &str = "no rule is about this resource and operation";

/// The policies or webhooks of one step that a request was not for.
pub struct Passed {
    hop: &'static str,
    since: Instant,
    named: usize,
    more: Vec<(Cow<'static, str>, usize)>,
}

impl Passed {
    /// None so far.
    pub fn new(hop: &'static str) -> Passed {
        Passed { hop, since: Instant::now(), named: 0, more: Vec::new() }
    }

    /// One whose rules are about such requests and that passed this one over all the same, after being looked at `since`. `detail` makes
    /// what else is told of it.
    pub fn one(&mut self, write: &Write, name: &str, why: impl Into<Cow<'static, str>>, since: Instant, detail: impl FnOnce(&mut Value)) {
        let why = why.into();
        if self.named < MAX_NAMED {
            self.named += 1;
            let mut told = json!({"because": why});
            detail(&mut told);
            write.context.trace.step_with(self.hop, name.to_owned(), "skipped", since, Some(told));
            return;
        }
        self.many(1, why);
    }

    /// So many, whose names nobody needs.
    pub fn many(&mut self, count: usize, why: impl Into<Cow<'static, str>>) {
        let why = why.into();
        match self.more.iter_mut().find(|(known, _)| *known == why) {
            Some((_, number)) => *number += count,
            None => self.more.push((why, count)),
        }
    }

    /// Tells of the multitude, if there is one; `what` they are.
    pub fn tell(self, what: &'static str, write: &Write) {
        for (because, count) in self.more.into_iter().filter(|(_, count)| *count > 0) {
            let detail = json!({"count": count, "because": because});
            write.context.trace.step_with(self.hop, what, "skipped", self.since, Some(detail));
        }
    }
}

/// Adds a name to a list of plugins that had nothing to do.
pub fn enumerate(names: &mut String, name: &str) {
    if !names.is_empty() {
        names.push_str(", ");
    }
    names.push_str(name);
}

/// Tells of built-in plugins that had nothing to do, all in one step.
pub fn tell_idle(hop: &'static str, names: String, write: &Write, since: Instant) {
    if !names.is_empty() {
        let count = names.split(", ").count();
        let detail = json!({"count": count, "because": "not about such a request", "names": names});
        write.context.trace.step_with(hop, "plugins", "skipped", since, Some(detail));
    }
}
