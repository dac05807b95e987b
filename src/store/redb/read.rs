//! Reading: one entry, a range, the log and the history of a key, each at a revision. Everything works on any pair of
//! redb tables, so that the writer looks at a precondition with the same code inside its transaction.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use redb::{ReadTransaction, ReadableTable};

use super::format::{KEYS, LOG, MAX_REVISION, Record, Version, prefix_bounds, set_revision, split_version_key, unescape, version_key};
use super::medium::Failure;
use crate::store::{Change, Entry, Key, Logged, Page, Range, Revision};

/// After so many versions of one key in a row, the walk seeks to the next key instead of stepping on.
const STEPS_BEFORE_SEEK: usize = 8;

/// The table of keys, in whatever kind of transaction.
pub(super) trait Keys: ReadableTable<&'static [u8], &'static [u8; 12]> {}
impl<T: ReadableTable<&'static [u8], &'static [u8; 12]>> Keys for T {}

/// The log, in whatever kind of transaction.
pub(super) trait Log: ReadableTable<(u64, u32), &'static [u8]> {}
impl<T: ReadableTable<(u64, u32), &'static [u8]>> Log for T {}

/// The newest version of `key` that is not newer than `at`, tombstones included.
pub(super) fn version_at(keys: &impl Keys, key: &str, at: Revision) -> Result<Option<(Revision, Version)>, Failure> {
    version_before(keys, &version_key(key, at))
}

/// The same for a key that is encoded already, with the revision to look at.
fn version_before(keys: &impl Keys, encoded: &[u8]) -> Result<Option<(Revision, Version)>, Failure> {
    let mut cursor = keys.upper_bound(Bound::Included(encoded))?;
    let Some((found, version)) = cursor.prev()? else { return Ok(None) };
    let found = found.value();
    if found.len() != encoded.len() || found[..found.len() - 8] != encoded[..encoded.len() - 8] {
        return Ok(None);
    }
    let (_, revision) = split_version_key(found)?;
    Ok(Some((revision, Version::decode(found, version.value())?)))
}

fn missing(revision: Revision) -> Failure {
    Failure::Damage(format!("the log has no record of revision {revision}"))
}

/// Reads the record of a version, which must be there, and hands it to `take`.
pub(super) fn with_record<T>(
    log: &impl Log,
    revision: Revision,
    version: Version,
    take: impl FnOnce(Record<'_>) -> T,
) -> Result<T, Failure> {
    let bytes = log.get((revision, version.ordinal))?.ok_or_else(|| missing(revision))?;
    Ok(take(checked(bytes.value(), revision, version)?))
}

/// A record that agrees with what the key table says of it.
fn checked(bytes: &[u8], revision: Revision, version: Version) -> Result<Record<'_>, Failure> {
    let record = Record::decode(revision, version.ordinal, bytes)?;
    if record.deleted != version.deleted || bytes.len() != version.length as usize {
        return Err(Failure::Damage(format!("the log and the key table do not agree on revision {revision}")));
    }
    Ok(record)
}

/// The entry that a record made, which must be one of `key`.
fn decoded(bytes: &[u8], key: Key, revision: Revision, version: Version) -> Result<Entry, Failure> {
    let record = checked(bytes, revision, version)?;
    if record.key != &*key {
        return Err(Failure::Damage(format!("the log has another key than {key} at revision {revision}")));
    }
    Ok(record.to_entry(key, revision))
}

/// The entry that a version made.
fn entry(log: &impl Log, key: Key, revision: Revision, version: Version) -> Result<Entry, Failure> {
    let bytes = log.get((revision, version.ordinal))?.ok_or_else(|| missing(revision))?;
    decoded(bytes.value(), key, revision, version)
}

/// One entry as it was at a revision.
pub(super) fn get(keys: &impl Keys, log: &impl Log, key: &str, at: Revision) -> Result<Option<Entry>, Failure> {
    match version_at(keys, key, at)? {
        Some((revision, version)) if !version.deleted => entry(log, Arc::from(key), revision, version).map(Some),
        _ => Ok(None),
    }
}

/// Visits every key between the bounds that existed at the revision, in order, with its version of then. Costs a step
/// per key and not per version: long histories are skipped by a seek.
pub(super) fn walk(
    keys: &impl Keys,
    start: Bound<Vec<u8>>,
    end: Option<&[u8]>,
    at: Revision,
    mut visit: impl FnMut(&[u8], Revision, Version) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let mut cursor = keys.lower_bound(start.as_ref().map(Vec::as_slice))?;
    // The key under the cursor with the revision zero, and what is known of it so far.
    let mut current: Vec<u8> = Vec::new();
    let mut candidate: Option<(Revision, Version)> = None;
    let mut steps = 0;
    loop {
        let next = cursor.next()?;
        let encoded = match &next {
            Some((key, _)) if end.is_none_or(|end| key.value() < end) => Some(key.value()),
            _ => None,
        };
        let same = encoded.is_some_and(|encoded| {
            encoded.len() == current.len() && encoded.len() > 8 && encoded[..encoded.len() - 8] == current[..current.len() - 8]
        });
        if !same {
            if let Some((revision, version)) = candidate.take().filter(|(_, version)| !version.deleted)
                && visit(&current[..current.len() - 9], revision, version)?.is_break()
            {
                return Ok(());
            }
            let Some(encoded) = encoded else { return Ok(()) };
            split_version_key(encoded)?;
            current.clear();
            current.extend_from_slice(encoded);
            steps = 0;
        }
        let (Some(encoded), Some((_, version))) = (encoded, &next) else { return Ok(()) };
        let (_, revision) = split_version_key(encoded)?;
        if revision <= at {
            candidate = Some((revision, Version::decode(encoded, version.value())?));
        }
        steps += 1;
        if steps == STEPS_BEFORE_SEEK {
            set_revision(&mut current, at);
            candidate = version_before(keys, &current)?;
            set_revision(&mut current, MAX_REVISION);
            cursor = keys.lower_bound(Bound::Excluded(current.as_slice()))?;
        }
    }
}

/// The entries of a range as they were at a revision. If `remaining` tells how many there are, they are not counted.
pub(super) fn range(keys: &impl Keys, log: &impl Log, range: &Range, at: Revision, remaining: Option<usize>) -> Result<Page, Failure> {
    let (first, end) = prefix_bounds(&range.prefix);
    let start = match &range.after {
        // Everything that is not after the key lies at or before its highest revision.
        Some(after) => {
            let after = version_key(after, MAX_REVISION);
            if after < first { Bound::Included(first) } else { Bound::Excluded(after) }
        }
        None => Bound::Included(first),
    };
    let mut found: Vec<(Key, Revision, Version)> = Vec::new();
    let mut behind = 0;
    walk(keys, start, end.as_deref(), at, |escaped, revision, version| {
        if range.limit == 0 || found.len() < range.limit {
            found.push((unescape(escaped)?, revision, version));
            let full = range.limit != 0 && found.len() == range.limit;
            return Ok(if full && remaining.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
        }
        behind += 1;
        Ok(ControlFlow::Continue(()))
    })?;
    let behind = remaining.map_or(behind, |remaining| remaining.saturating_sub(found.len()));
    Ok(Page { entries: entries(log, found)?, revision: at, remaining: behind })
}

/// The entries of versions, in the same order. The records are read in the order of the log: a large range reads each page
/// once, and mostly steps from one record to the next.
fn entries(log: &impl Log, found: Vec<(Key, Revision, Version)>) -> Result<Vec<Entry>, Failure> {
    if found.len() < STEPS_BEFORE_SEEK {
        return found.into_iter().map(|(key, revision, version)| entry(log, key, revision, version)).collect();
    }
    let mut order: Vec<(Revision, u32, usize)> =
        found.iter().enumerate().map(|(at, (_, revision, version))| (*revision, version.ordinal, at)).collect();
    order.sort_unstable();
    let mut entries: Vec<Option<Entry>> = vec![None; found.len()];
    let mut cursor = log.lower_bound(Bound::Included((0, 0)))?;
    for (revision, ordinal, at) in order {
        let (key, _, version) = &found[at];
        let mut steps = 0;
        let bytes = loop {
            let next = cursor.next()?;
            match next {
                Some((place, bytes)) if place.value() == (revision, ordinal) => break bytes,
                // The record lies further on.
                Some((place, _)) if place.value() < (revision, ordinal) && steps < STEPS_BEFORE_SEEK => steps += 1,
                _ if steps <= STEPS_BEFORE_SEEK => {
                    steps = STEPS_BEFORE_SEEK + 1;
                    cursor = log.lower_bound(Bound::Included((revision, ordinal)))?;
                }
                _ => return Err(missing(revision)),
            }
        };
        entries[at] = Some(decoded(bytes.value(), Arc::clone(key), revision, *version)?);
    }
    Ok(entries.into_iter().flatten().collect())
}

/// The changes of a span of revisions, oldest first, each with the entry that it replaced.
pub(super) fn log(transaction: &ReadTransaction, prefix: &str, after: Revision, until: Revision) -> Result<Vec<Logged>, Failure> {
    let keys = transaction.open_table(KEYS)?;
    let log = transaction.open_table(LOG)?;
    let mut changes = Vec::new();
    if until <= after {
        return Ok(changes);
    }
    for item in log.range((after.saturating_add(1), 0)..=(until, u32::MAX))? {
        let (place, bytes) = item?;
        let (revision, ordinal) = place.value();
        let record = Record::decode(revision, ordinal, bytes.value())?;
        if !record.key.starts_with(prefix) {
            continue;
        }
        let replaced = match version_at(&keys, record.key, revision - 1)? {
            Some((before, version)) if !version.deleted => Some(entry(&log, Arc::from(record.key), before, version)?),
            _ => None,
        };
        changes.push((record.to_change(revision), replaced));
    }
    Ok(changes)
}

/// Every kept version of a key, oldest first.
pub(super) fn history(transaction: &ReadTransaction, key: &str) -> Result<Vec<Change>, Failure> {
    let keys = transaction.open_table(KEYS)?;
    let log = transaction.open_table(LOG)?;
    let (first, last) = (version_key(key, 0), version_key(key, MAX_REVISION));
    let mut changes = Vec::new();
    for item in keys.range(first.as_slice()..=last.as_slice())? {
        let (encoded, version) = item?;
        let (_, revision) = split_version_key(encoded.value())?;
        let version = Version::decode(encoded.value(), version.value())?;
        changes.push(with_record(&log, revision, version, |record| record.to_change(revision))?);
    }
    Ok(changes)
}

/// What a look at the whole key table found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Survey {
    /// Keys that exist now.
    pub(super) live: u64,
    /// The bytes of records that only history still needs: overwritten versions and tombstones.
    pub(super) history_bytes: u64,
}

/// Goes through the key table from end to end and checks what redb does not when it opens a file that was closed in good
/// order: that every entry is whole, that they are in order, and that none is missing.
pub(super) fn survey(transaction: &ReadTransaction) -> Result<Survey, Failure> {
    use redb::ReadableTableMetadata;
    let keys = transaction.open_table(KEYS)?;
    let log = transaction.open_table(LOG)?;
    let mut survey = Survey::default();
    let mut previous: Vec<u8> = Vec::new();
    let mut newest: Option<Version> = None;
    let mut count = 0u64;
    let close = |newest: Option<Version>, survey: &mut Survey| match newest {
        Some(version) if version.deleted => survey.history_bytes += u64::from(version.length),
        Some(_) => survey.live += 1,
        None => {}
    };
    for item in keys.iter()? {
        let (encoded, version) = item?;
        let encoded = encoded.value();
        let (escaped, _) = split_version_key(encoded)?;
        if previous.as_slice().cmp(encoded) != Ordering::Less {
            return Err(Failure::Damage("the entries of the key table are not in order".to_owned()));
        }
        let version = Version::decode(encoded, version.value())?;
        if previous.len() == encoded.len() && previous.starts_with(escaped) && previous[escaped.len()] == 0 {
            survey.history_bytes += newest.map_or(0, |newest| u64::from(newest.length));
        } else {
            close(newest, &mut survey);
        }
        previous.clear();
        previous.extend_from_slice(encoded);
        newest = Some(version);
        count += 1;
    }
    close(newest, &mut survey);
    let (expected, records) = (keys.len()?, log.len()?);
    if count != expected || count != records {
        return Err(Failure::Damage(format!(
            "the key table has {count} entries where it should have {expected}, for {records} records in the log"
        )));
    }
    Ok(survey)
}
