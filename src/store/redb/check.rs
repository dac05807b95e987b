//! What must hold in every store, whatever happened to it: the log and the key table tell of the same changes, revisions
//! follow each other without a gap above the floor, and below what compaction has done each key has one version at most.

use std::sync::Arc;

use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata};

use super::compact;
use super::format::{FORMAT, KEYS, LOG, META, META_FLOOR, META_FORMAT, META_RESTORED, Record, Version, split_version_key, unescape};
use super::medium::Failure;
use super::operations::Report;
use super::read;
use crate::store::{Key, Revision};

/// A damaged file may have a million problems; the first ones tell enough.
const MANY: usize = 20;

fn note(report: &mut Report, problem: String) {
    if report.problems.len() < MANY {
        report.problems.push(problem);
    }
}

/// Adds to the report what there is and what is wrong with it. Fails where it cannot read on.
pub(super) fn invariants(transaction: &ReadTransaction, report: &mut Report) -> Result<(), Failure> {
    let meta = transaction.open_table(META)?;
    let number = |name: &str| -> Result<Option<u64>, Failure> { Ok(meta.get(name)?.map(|value| value.value())) };
    match number(META_FORMAT)? {
        Some(FORMAT) => {}
        other => return Err(Failure::Damage(format!("its format is {other:?}, this version reads {FORMAT}"))),
    }
    report.revision = compact::newest(transaction)?;
    report.floor = number(META_FLOOR)?.unwrap_or(0);
    let compacted = match compact::progress(transaction)? {
        (revision, u32::MAX) => revision,
        // Some changes of this batch are still to be done.
        (revision, _) => revision.saturating_sub(1),
    };
    if !(compacted <= report.floor && report.floor <= report.revision) {
        note(report, format!("compaction is at {compacted}, the floor at {}, the newest revision at {}", report.floor, report.revision));
    }
    keys(transaction, report, compacted)?;
    log(transaction, report, number(META_RESTORED)?.unwrap_or(0))?;
    match read::survey(transaction) {
        Ok(survey) => {
            report.objects = survey.live;
            report.history_bytes = survey.history_bytes;
        }
        Err(failure) => note(report, failure.in_words()),
    }
    Ok(())
}

/// Every entry of the key table has its record, and compaction left what it should.
fn keys(transaction: &ReadTransaction, report: &mut Report, compacted: Revision) -> Result<(), Failure> {
    let keys = transaction.open_table(KEYS)?;
    let log = transaction.open_table(LOG)?;
    let mut below: Option<Key> = None;
    for item in keys.iter()? {
        let (encoded, version) = item?;
        report.versions += 1;
        let encoded = encoded.value();
        let (key, revision, version) = match (split_version_key(encoded), Version::decode(encoded, version.value())) {
            (Ok((escaped, revision)), Ok(version)) => match unescape(escaped) {
                Ok(key) => (key, revision, version),
                Err(damage) => {
                    note(report, damage.0);
                    continue;
                }
            },
            (Err(damage), _) | (_, Err(damage)) => {
                note(report, damage.0);
                continue;
            }
        };
        if revision > report.revision {
            note(report, format!("{key} has revision {revision}, which is ahead of the newest"));
        }
        if revision <= compacted {
            if version.deleted {
                note(report, format!("{key} has a tombstone at revision {revision}, below what was compacted"));
            }
            if below.as_ref() == Some(&key) {
                note(report, format!("{key} has more than one version below what was compacted"));
            }
            below = Some(Arc::clone(&key));
        }
        let agrees = read::with_record(&log, revision, version, |record| record.key == &*key);
        match agrees {
            Ok(true) => {}
            Ok(false) => note(report, format!("the log has another key than {key} at revision {revision}")),
            Err(failure) => note(report, failure.in_words()),
        }
    }
    Ok(())
}

/// Every record is whole, is known to the key table, and follows the one before.
fn log(transaction: &ReadTransaction, report: &mut Report, restored: Revision) -> Result<(), Failure> {
    let keys = transaction.open_table(KEYS)?;
    let log = transaction.open_table(LOG)?;
    let mut previous = report.floor.max(restored);
    let mut ordinals = 0;
    for item in log.iter()? {
        let (place, bytes) = item?;
        let (revision, ordinal) = place.value();
        if revision > report.floor.max(restored) {
            if revision == previous {
                ordinals += 1;
            } else {
                if revision != previous + 1 {
                    note(report, format!("revision {revision} follows on {previous}"));
                }
                ordinals = 0;
            }
            if ordinal != ordinals {
                note(report, format!("revision {revision} lacks its change number {ordinals}"));
                ordinals = ordinal;
            }
            previous = revision;
        }
        match Record::decode(revision, ordinal, bytes.value()) {
            Ok(record) => match read::version_at(&keys, record.key, revision) {
                Ok(Some((at, version))) if at == revision && version.ordinal == ordinal => {
                    if version.length as usize != bytes.value().len() {
                        note(report, format!("the record of revision {revision} has not the length that the key table knows"));
                    }
                }
                Ok(_) => note(report, format!("the key table does not know {} at revision {revision}", record.key)),
                Err(failure) => note(report, failure.in_words()),
            },
            Err(damage) => note(report, damage.0),
        }
    }
    if report.revision > previous {
        note(report, format!("the newest revision is {}, but the log ends with {previous}", report.revision));
    }
    if log.len()? != keys.len()? {
        note(report, format!("the log has {} records, the key table {}", log.len()?, keys.len()?));
    }
    Ok(())
}
