//! Who is asked twice. When a mutating webhook or policy changes the object, those that saw an earlier state of it and said
//! `reinvocationPolicy: IfNeeded` get a second look; the whole mutating half then runs once more, and never a third time.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

/// The state of both reinvocable steps, and the round.
#[derive(Clone, Debug, Default)]
pub struct Reinvocation {
    /// Zero the first time, one the second.
    pub round: u8,
    /// Whether a second round is called for.
    pub wanted: bool,
    /// What webhooks remember.
    pub webhooks: Remembered,
    /// What mutating policies remember.
    pub policies: Remembered,
}

/// What one step remembers between the rounds.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    invoked: BTreeSet<Arc<str>>,
    due: BTreeSet<Arc<str>>,
    last: Option<Value>,
}

impl Remembered {
    /// At the start of a round: if anybody else changed the object since, all that were invoked are due again.
    pub fn begin(&mut self, round: u8, object: Option<&Value>) {
        if round > 0 && self.last.as_ref() != object {
            self.changed();
        }
    }

    /// Somebody was invoked and wants to be so again if needed.
    pub fn invoked(&mut self, who: Arc<str>) {
        self.invoked.insert(who);
    }

    /// The object changed: whoever was invoked before is due.
    pub fn changed(&mut self) {
        self.due.append(&mut self.invoked);
    }

    /// Whether somebody is to be invoked in this round.
    pub fn is_due(&self, round: u8, who: &str) -> bool {
        round == 0 || self.due.contains(who)
    }

    /// At the end of a round.
    pub fn end(&mut self, round: u8, object: Option<&Value>) {
        if round == 0 && !(self.invoked.is_empty() && self.due.is_empty()) {
            self.last = object.cloned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_those_invoked_before_the_change_are_due_again() {
        let mut remembered = Remembered::default();
        remembered.begin(0, Some(&json!(1)));
        remembered.invoked("a".into());
        remembered.changed();
        remembered.invoked("b".into());
        remembered.end(0, Some(&json!(2)));
        remembered.begin(1, Some(&json!(2)));
        assert!(remembered.is_due(1, "a"));
        assert!(!remembered.is_due(1, "b"), "nothing changed after it");
        assert!(!remembered.is_due(1, "c"), "never invoked in the first round");
    }

    #[test]
    fn a_change_by_a_plugin_between_the_rounds_makes_all_due() {
        let mut remembered = Remembered::default();
        remembered.invoked("a".into());
        remembered.end(0, Some(&json!(1)));
        remembered.begin(1, Some(&json!(2)));
        assert!(remembered.is_due(1, "a"));
    }
}
