//! Which rows of a segment can be what a filter asks for: pure, over its columns.

use super::columns::{Column, Columns, Words, hash, judge_parts};
use crate::audit::Filter;
use crate::audit::filter::{any_verb, is_resource};

/// The columns that a filter needs to see.
pub fn needed(filter: &Filter) -> Vec<Column> {
    let mut columns = vec![Column::Place];
    let mut need = |asked: bool, wanted: &[Column]| {
        if asked {
            columns.extend(wanted);
        }
    };
    need(filter.audit_id.is_some(), &[Column::AuditId]);
    need(filter.user.is_some(), &[Column::User, Column::Acting]);
    need(filter.verb.is_some(), &[Column::Verb]);
    need(filter.resource.is_some(), &[Column::Resource]);
    need(filter.group.is_some(), &[Column::Group]);
    need(filter.namespace.is_some(), &[Column::Namespace]);
    need(filter.name.is_some(), &[Column::Name, Column::WroteName]);
    need(filter.uid.is_some(), &[Column::Uid]);
    need(filter.owner.is_some(), &[Column::Owners]);
    need(filter.code.is_some(), &[Column::Code]);
    need(filter.decision.is_some(), &[Column::Decision]);
    need(filter.stage.is_some(), &[Column::Stage]);
    need(filter.slower_than.is_some(), &[Column::Took]);
    need(filter.since.is_some() || filter.until.is_some(), &[Column::Time]);
    need(filter.policy.is_some(), &[Column::Policies]);
    need(filter.webhook.is_some(), &[Column::Webhooks]);
    columns
}

/// Whether the columns promise more than they know, so that the records have to be asked too.
pub fn is_vague(filter: &Filter) -> bool {
    let hashed = [&filter.audit_id, &filter.name, &filter.uid];
    let fine = |time: Option<jiff::Timestamp>| time.is_some_and(|time| time.as_nanosecond() % 1_000 != 0);
    hashed.iter().any(|asked| asked.is_some())
        || filter.slower_than.is_some_and(|micros| micros >= u64::from(u32::MAX))
        || fine(filter.since)
        || fine(filter.until)
}

/// The rows, in the order of arrival.
pub fn select(filter: &Filter, columns: &Columns) -> Vec<u16> {
    let mut rows = Rows(vec![true; columns.places.len()]);
    let hashed = |asked: &Option<String>| asked.as_deref().map(hash);
    if let Some(id) = hashed(&filter.audit_id) {
        rows.keep(columns.hashes(Column::AuditId), |found| *found == id);
    }
    if let Some(uid) = hashed(&filter.uid) {
        rows.keep(columns.hashes(Column::Uid), |found| *found == uid);
    }
    if let Some(name) = hashed(&filter.name) {
        let pairs = columns.hashes(Column::Name).iter().zip(columns.hashes(Column::WroteName));
        rows.keep(pairs, |(named, wrote)| *named == name || *wrote == name);
    }
    if let Some(user) = &filter.user {
        let (authenticated, acting) = (columns.words(Column::User), columns.words(Column::Acting));
        let (is, acts) = (chosen(authenticated, |word| word == user), chosen(acting, |word| word == user));
        let pairs = authenticated.codes.iter().zip(&acting.codes);
        rows.keep(pairs, |(a, b)| is[usize::from(*a)] || acts[usize::from(*b)]);
    }
    if let Some(verbs) = &filter.verb {
        rows.keep_words(columns.words(Column::Verb), |word| any_verb(verbs, word));
    }
    if let Some(asked) = &filter.resource {
        rows.keep_words(columns.words(Column::Resource), |word| is_resource(asked, word));
    }
    let same = [(&filter.group, Column::Group), (&filter.namespace, Column::Namespace), (&filter.decision, Column::Decision)];
    for (asked, column) in same {
        if let Some(asked) = asked {
            rows.keep_words(columns.words(column), |word| word == asked);
        }
    }
    if let Some(stage) = filter.stage {
        let stage = serde_json::to_value(stage).unwrap_or_default();
        rows.keep_words(columns.words(Column::Stage), |word| stage == word);
    }
    if let Some((low, high)) = filter.code {
        rows.keep(&columns.codes, |code| (low..=high).contains(code));
    }
    if let Some(micros) = filter.slower_than {
        let micros = u32::try_from(micros).unwrap_or(u32::MAX);
        rows.keep(&columns.took, |took| *took >= micros);
    }
    if let Some(since) = filter.since {
        let since = since.as_microsecond();
        rows.keep(&columns.times, |time| *time >= since);
    }
    if let Some(until) = filter.until {
        let until = ceiling(until);
        rows.keep(&columns.times, |time| *time < until && *time != super::columns::NO_TIME);
    }
    if let Some(asked) = &filter.owner {
        rows.keep_marks(columns, Column::Owners, |word| word == asked);
    }
    if let Some(asked) = &filter.policy {
        rows.keep_marks(columns, Column::Policies, |word| judge_parts(word).0 == asked);
    }
    if let Some(asked) = &filter.webhook {
        rows.keep_marks(columns, Column::Webhooks, |word| {
            let (name, configuration, _) = judge_parts(word);
            name == asked || configuration == asked
        });
    }
    rows.0.iter().enumerate().filter(|(_, kept)| **kept).map(|(row, _)| row as u16).collect()
}

/// The first whole microsecond that is not before a time.
fn ceiling(time: jiff::Timestamp) -> i64 {
    let micros = time.as_microsecond();
    let exact = i128::from(micros) * 1_000;
    if exact < time.as_nanosecond() { micros + 1 } else { micros }
}

fn chosen(words: &Words, wanted: impl Fn(&str) -> bool) -> Vec<bool> {
    words.dictionary.words.iter().map(|word| wanted(word)).collect()
}

/// Which rows are still in question.
struct Rows(Vec<bool>);

impl Rows {
    /// Leaves the rows whose value is wanted; a row without a value is not.
    fn keep<T>(&mut self, column: impl IntoIterator<Item = T>, wanted: impl Fn(T) -> bool) {
        let mut values = column.into_iter();
        for row in &mut self.0 {
            let kept = values.next().is_some_and(&wanted);
            *row &= kept;
        }
    }

    fn keep_words(&mut self, words: &Words, wanted: impl Fn(&str) -> bool) {
        let chosen = chosen(words, wanted);
        self.keep(&words.codes, |code| chosen[usize::from(*code)]);
    }

    fn keep_marks(&mut self, columns: &Columns, column: Column, wanted: impl Fn(&str) -> bool) {
        let marks = columns.marks(column);
        let chosen: Vec<bool> = marks.dictionary.words.iter().map(|word| wanted(word)).collect();
        let mut marked = vec![false; self.0.len()];
        for (row, code) in &marks.pairs {
            if let Some(mark) = marked.get_mut(usize::from(*row)) {
                *mark |= chosen[*code as usize];
            }
        }
        self.keep(marked, |marked| marked);
    }
}
