//! Numbers over many events, counted from the columns alone: who asks most, who is denied, what is slow, how long requests take, what
//! each policy and webhook had to say. Only where there is a CEL expression are the events themselves asked first.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::ops::ControlFlow;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::block::{Place, Record};
use super::columns::{Column, Columns, NO_TIME, distinct, judge_parts};
use super::medium::Medium;
use super::phrases::Lexicon;
use super::scan::{in_time, unreadable};
use super::segment::Segment;
use super::select::{needed, select};
use super::{Archive, Order, Position};
use crate::audit::Filter;

/// The upper ends of the histogram's buckets, in microseconds; what is above the last has one of its own.
const BUCKETS: [u64; 15] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000, 30_000_000];

/// What was counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stats {
    /// How many requests that are over.
    pub requests: u64,
    /// The earliest of them.
    pub since: Option<Timestamp>,
    /// The latest of them.
    pub until: Option<Timestamp>,
    /// By user.
    pub users: Vec<Count>,
    /// By verb.
    pub verbs: Vec<Count>,
    /// By resource.
    pub resources: Vec<Count>,
    /// By HTTP status.
    pub codes: Vec<Count>,
    /// What was denied.
    pub denied: Vec<Denial>,
    /// What took longest, watches and connections to Pods apart.
    pub slow: Vec<Slow>,
    /// How long requests took, those apart.
    pub latency: Latency,
    /// By admission policy.
    pub policies: Vec<Judged>,
    /// By admission webhook.
    pub webhooks: Vec<Judged>,
    /// How much there is in all.
    pub archive: Kept,
    /// What did not get to where it should, since the server was started.
    pub sinks: Vec<Missed>,
}

/// What a sink has missed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// `log` or `webhook`; `recorder` is the way to all of them and to the archive.
    pub name: String,
    /// Events for which there was no room.
    pub dropped: u64,
    /// Events that it could not write.
    pub failed: u64,
}

/// So many of something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Of what.
    pub name: String,
    /// How many.
    pub requests: u64,
    /// How many of them were denied.
    pub denied: u64,
}

/// What somebody may not do.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Denial {
    /// How often they tried.
    pub requests: u64,
    /// Who.
    pub user: String,
    /// Their verb.
    pub verb: String,
    /// On what.
    pub resource: String,
    /// Where.
    pub namespace: String,
}

/// A request that took long.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Slow {
    /// Its audit id.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// How long, in microseconds.
    pub took: u64,
    /// Who.
    pub user: String,
    /// Their verb.
    pub verb: String,
    /// The path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// The HTTP status.
    pub code: u16,
}

/// How long requests took, in microseconds; quantiles are the upper end of a bucket that is at most a sixteenth wide.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Half took at most this.
    pub p50: u64,
    /// Nine of ten.
    pub p90: u64,
    /// Ninety-nine of a hundred.
    pub p99: u64,
    /// All of them.
    pub max: u64,
    /// The histogram.
    pub buckets: Vec<Bucket>,
}

/// One bar of the histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bucket {
    /// Took at most so many microseconds, and more than the bucket before; `None` for the last.
    pub up_to: Option<u64>,
    /// How many.
    pub requests: u64,
}

/// What a policy or a webhook had to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The policy or webhook.
    pub name: String,
    /// How often.
    pub requests: u64,
    /// And what.
    pub verdicts: BTreeMap<String, u64>,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Records.
    pub records: u64,
    /// Bytes.
    pub bytes: u64,
    /// Events that could not be kept.
    pub lost: u64,
}

impl Archive {
    /// Counts what a filter selects, and names the `top` of everything.
    pub fn stats(&self, filter: &Filter, top: usize) -> Stats {
        let held = filter.expression.as_ref().map(|_| self.positions(filter));
        let holds = |segment, place: Place| held.as_ref().is_none_or(|held| held.contains(&Position { segment, offset: place.offset }));
        let mut counted = Counted { top, ..Counted::default() };
        let (sealed, active) = self.snapshot(|number, columns| {
            let mut here = Counted { top, ..Counted::default() };
            here.count(filter, columns, |place| holds(number, place));
            (here, columns.phrases.lexicon.clone())
        });
        if let Some((medium, (here, lexicon))) = active {
            counted.merge(here, &Source { medium, words: Words::Known(Arc::new(lexicon)) });
        }
        let mut columns = needed(filter);
        columns.extend([Column::Place, Column::Time, Column::Took, Column::Code, Column::Acting, Column::Verb, Column::Resource]);
        columns.extend([Column::Namespace, Column::Decision, Column::Stage, Column::Policies, Column::Webhooks]);
        let columns = distinct(columns);
        for segment in sealed.iter().rev() {
            let read = in_time(segment, filter).and_then(|wanted| match wanted {
                false => Ok(()),
                true => {
                    let medium = segment.medium()?;
                    let mut here = Counted { top, ..Counted::default() };
                    here.count(filter, &segment.load(&medium, &columns)?, |place| holds(segment.number(), place));
                    counted.merge(here, &Source { medium, words: Words::Of(segment.clone()) });
                    Ok(())
                }
            });
            if let Err(error) = read {
                unreadable(&error);
            }
        }
        let mut stats = counted.finish();
        stats.archive = self.kept();
        stats
    }

    /// Where the records are that a filter asks for, its expression included.
    fn positions(&self, filter: &Filter) -> HashSet<Position> {
        let mut found = HashSet::new();
        self.scan_after(None, filter, Order::OldestFirst, usize::MAX, |position, _| {
            found.insert(position);
            ControlFlow::Continue(())
        });
        found
    }
}

type Who = (Arc<str>, Arc<str>, Arc<str>, Arc<str>);

/// Counts on their way.
#[derive(Default)]
struct Counted {
    top: usize,
    requests: u64,
    since: Option<i64>,
    until: Option<i64>,
    users: HashMap<Arc<str>, (u64, u64)>,
    verbs: HashMap<Arc<str>, (u64, u64)>,
    resources: HashMap<Arc<str>, (u64, u64)>,
    codes: HashMap<u16, (u64, u64)>,
    denied: HashMap<Who, u64>,
    latency: HashMap<u32, u64>,
    buckets: [u64; BUCKETS.len() + 1],
    max: u64,
    policies: HashMap<Arc<str>, u64>,
    webhooks: HashMap<Arc<str>, u64>,
    slow_here: Vec<(u32, Place)>,
    slow: Vec<(u32, Source, Place)>,
}

/// Where a record can be read, should it be wanted in the end.
#[derive(Clone)]
struct Source {
    medium: Arc<Medium>,
    words: Words,
}

/// The phrases of a segment, or the segment that has them.
#[derive(Clone)]
enum Words {
    Known(Arc<Lexicon>),
    Of(Arc<Segment>),
}

impl Counted {
    fn count(&mut self, filter: &Filter, columns: &Columns, holds: impl Fn(Place) -> bool) {
        let over = chosen(columns, Column::Stage, |stage| matches!(stage, "ResponseComplete" | "Panic"));
        let forbid = chosen(columns, Column::Decision, |decision| decision == "forbid");
        let long_verb = chosen(columns, Column::Verb, |verb| verb == "watch" || verb == "connect");
        let long_resource = chosen(columns, Column::Resource, |resource| {
            let subresource = resource.split_once('/').map_or("", |(_, subresource)| subresource);
            matches!(subresource, "exec" | "attach" | "portforward" | "proxy" | "log")
        });
        let refused = refused(columns);
        let mut counted = vec![false; columns.places.len()];
        let code = |column, row: usize| usize::from(columns.words(column).codes[row]);
        let word = |column, row: usize| &columns.words(column).dictionary.words[code(column, row)];
        for row in select(filter, columns) {
            let row = usize::from(row);
            if !over[code(Column::Stage, row)] || !holds(columns.places[row]) {
                continue;
            }
            counted[row] = true;
            self.requests += 1;
            let time = columns.times[row];
            if time != NO_TIME {
                self.since = Some(self.since.map_or(time, |since| since.min(time)));
                self.until = Some(self.until.map_or(time, |until| until.max(time)));
            }
            let status = columns.codes[row];
            let denied = matches!(status, 401 | 403) || forbid[code(Column::Decision, row)] || status >= 400 && refused[row];
            add(&mut self.users, word(Column::Acting, row), denied);
            add(&mut self.verbs, word(Column::Verb, row), denied);
            add(&mut self.resources, word(Column::Resource, row), denied);
            add(&mut self.codes, &status, denied);
            if denied {
                let [user, verb, resource, namespace] =
                    [Column::Acting, Column::Verb, Column::Resource, Column::Namespace].map(|column| word(column, row).clone());
                *self.denied.entry((user, verb, resource, namespace)).or_default() += 1;
            }
            if !long_verb[code(Column::Verb, row)] && !long_resource[code(Column::Resource, row)] {
                let took = columns.took[row];
                *self.latency.entry(fine(took)).or_default() += 1;
                self.buckets[BUCKETS.partition_point(|end| *end < u64::from(took))] += 1;
                self.max = self.max.max(u64::from(took));
                self.slow_here.push((took, columns.places[row]));
                if self.slow_here.len() >= 2 * self.top.max(64) {
                    self.keep_slowest();
                }
            }
        }
        for (column, counts) in [(Column::Policies, &mut self.policies), (Column::Webhooks, &mut self.webhooks)] {
            let marks = columns.marks(column);
            for (row, code) in &marks.pairs {
                if counted.get(usize::from(*row)) == Some(&true) {
                    *counts.entry(marks.dictionary.words[*code as usize].clone()).or_default() += 1;
                }
            }
        }
    }

    fn keep_slowest(&mut self) {
        self.slow_here.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
        self.slow_here.truncate(self.top);
    }

    fn merge(&mut self, mut other: Counted, source: &Source) {
        fn pairs<K: Eq + Hash>(into: &mut HashMap<K, (u64, u64)>, from: HashMap<K, (u64, u64)>) {
            for (key, (requests, denied)) in from {
                let sum = into.entry(key).or_default();
                *sum = (sum.0 + requests, sum.1 + denied);
            }
        }
        fn single<K: Eq + Hash>(into: &mut HashMap<K, u64>, from: HashMap<K, u64>) {
            from.into_iter().for_each(|(key, count)| *into.entry(key).or_default() += count);
        }
        self.requests += other.requests;
        self.since = self.since.into_iter().chain(other.since).min();
        self.until = self.until.into_iter().chain(other.until).max();
        self.max = self.max.max(other.max);
        other.keep_slowest();
        pairs(&mut self.users, other.users);
        pairs(&mut self.verbs, other.verbs);
        pairs(&mut self.resources, other.resources);
        pairs(&mut self.codes, other.codes);
        single(&mut self.denied, other.denied);
        single(&mut self.latency, other.latency);
        single(&mut self.policies, other.policies);
        single(&mut self.webhooks, other.webhooks);
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, count)| *sum += count);
        self.slow.extend(other.slow_here.into_iter().map(|(took, place)| (took, source.clone(), place)));
        self.slow.sort_by_key(|(took, ..)| std::cmp::Reverse(*took));
        self.slow.truncate(self.top);
    }

    fn finish(self) -> Stats {
        let quantile = |share: f64| {
            let mut buckets: Vec<_> = self.latency.iter().collect();
            buckets.sort_unstable();
            let wanted = (self.latency.values().sum::<u64>() as f64 * share).ceil() as u64;
            let mut seen = 0;
            let found = buckets.iter().find(|(_, count)| {
                seen += **count;
                seen >= wanted
            });
            found.map_or(0, |(bucket, _)| fine_end(**bucket).min(self.max))
        };
        let ends = BUCKETS.iter().copied().map(Some).chain([None]);
        let latency = Latency {
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            max: self.max,
            buckets: ends.zip(self.buckets).map(|(up_to, requests)| Bucket { up_to, requests }).collect(),
        };
        let time = |micros: Option<i64>| micros.and_then(|micros| Timestamp::from_microsecond(micros).ok());
        let mut denied: Vec<Denial> = self.denied.into_iter().map(denial).collect();
        denied.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.cmp(b)));
        denied.truncate(self.top);
        Stats {
            requests: self.requests,
            since: time(self.since),
            until: time(self.until),
            users: most(self.users, self.top),
            verbs: most(self.verbs, self.top),
            resources: most(self.resources, self.top),
            codes: most(self.codes, self.top),
            denied,
            slow: self.slow.iter().filter_map(|(took, source, place)| slow(*took, source, *place)).collect(),
            latency,
            policies: judged(self.policies),
            webhooks: judged(self.webhooks),
            archive: Kept::default(),
            // Only the recorder knows.
            sinks: Vec::new(),
        }
    }
}

/// Which rows a policy or a webhook said no to.
fn refused(columns: &Columns) -> Vec<bool> {
    let mut refused = vec![false; columns.places.len()];
    for marks in [Column::Policies, Column::Webhooks].map(|column| columns.marks(column)) {
        let no: Vec<bool> = marks.dictionary.words.iter().map(|word| judge_parts(word).2 == "denied").collect();
        for (row, code) in &marks.pairs {
            if let Some(row) = refused.get_mut(usize::from(*row)) {
                *row |= no[*code as usize];
            }
        }
    }
    refused
}

fn chosen(columns: &Columns, column: Column, wanted: impl Fn(&str) -> bool) -> Vec<bool> {
    columns.words(column).dictionary.words.iter().map(|word| wanted(word)).collect()
}

fn add<K: Eq + Hash + Clone>(counts: &mut HashMap<K, (u64, u64)>, key: &K, denied: bool) {
    match counts.get_mut(key) {
        Some(count) => *count = (count.0 + 1, count.1 + u64::from(denied)),
        None => drop(counts.insert(key.clone(), (1, u64::from(denied)))),
    }
}

fn most<K: ToString>(counts: HashMap<K, (u64, u64)>, top: usize) -> Vec<Count> {
    let counts = counts.into_iter().map(|(name, (requests, denied))| Count { name: name.to_string(), requests, denied });
    let mut counts: Vec<Count> = counts.collect();
    counts.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.name.cmp(&b.name)));
    counts.truncate(top);
    counts
}

fn denial(((user, verb, resource, namespace), requests): (Who, u64)) -> Denial {
    let [user, verb, resource, namespace] = [user, verb, resource, namespace].map(|text| text.to_string());
    Denial { requests, user, verb, resource, namespace }
}

fn judged(words: HashMap<Arc<str>, u64>) -> Vec<Judged> {
    let mut judged: BTreeMap<String, Judged> = BTreeMap::new();
    for (word, count) in words {
        let (name, _, verdict) = judge_parts(&word);
        let entry = judged.entry(name.to_owned()).or_insert_with(|| Judged { name: name.to_owned(), ..Judged::default() });
        entry.requests += count;
        *entry.verdicts.entry(verdict.to_owned()).or_default() += count;
    }
    let mut judged: Vec<Judged> = judged.into_values().collect();
    judged.sort_by_key(|judged| std::cmp::Reverse(judged.requests));
    judged
}

fn slow(took: u32, source: &Source, place: Place) -> Option<Slow> {
    let lexicon = match &source.words {
        Words::Known(lexicon) => lexicon.clone(),
        Words::Of(segment) => Arc::new(segment.lexicon(&source.medium).ok()?),
    };
    let event = Record::read(&source.medium.read(u64::from(place.offset), place.length as usize).ok()?, &lexicon, &source.medium)?.event();
    Some(Slow {
        took: u64::from(took),
        user: event.effective_user().username.clone(),
        code: event.code(),
        audit_id: event.audit_id,
        verb: event.verb.into_owned(),
        request_uri: event.request_uri,
    })
}

/// The fine bucket of a time: sixteen for each doubling.
fn fine(took: u32) -> u32 {
    match took.checked_ilog2() {
        Some(power) if power >= 4 => (power << 4) + (took >> (power - 4)) - 16,
        _ => took,
    }
}

/// The largest time of a fine bucket.
fn fine_end(bucket: u32) -> u64 {
    match bucket {
        0..64 => u64::from(bucket.min(15)),
        _ => ((u64::from(bucket & 15) + 17) << ((bucket >> 4) - 4)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fine_bucket_ends_at_most_a_sixteenth_above_its_times() {
        for took in (0..2_000).chain([65_535, 65_536, 1_000_000, u32::MAX]) {
            let end = fine_end(fine(took));
            assert!(end >= u64::from(took) && end <= u64::from(took) + u64::from(took) / 16, "{took} {end}");
        }
    }
}
