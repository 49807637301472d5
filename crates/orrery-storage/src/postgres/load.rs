//! Changes that consume no LSN: bulk loads, range deletions, removing destroyed partitions. Also size estimates.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;

use super::pool::Session;
use super::server_error::ServerError;
use super::shared::Shared;
use super::{key, sql};
use crate::contract::{Entry, Key, KeyRange, PartitionId, PartitionRef, StoreError};

/// Entries deleted in one transaction.
const DELETE_AT_ONCE: usize = 5_000;
/// Bytes stored by one statement.
const STORE_BYTES: usize = 8 << 20;
/// A partition is measured again when its size has doubled, but not for growth below this: a measurement costs as much
/// as many writes, and their growth is counted accurately.
const MEASURE_BYTES_MIN: i64 = 64 << 20;

/// An entry takes its value, its key twice (table and index) and about sixty bytes of overhead.
pub(super) fn entry_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    value_bytes + 2 * key_bytes + 60
}

/// Commits a transaction that holds its partition against being retired.
async fn held(session: &Session, partition: PartitionRef) -> Result<bool, ServerError> {
    session.run("BEGIN").await?;
    let parameters: super::pool::Parameters<'_> =
        &[&key::column(partition.id), &partition.epoch.cast_signed()];
    Ok(!session.query(sql::HOLD, parameters).await?.is_empty())
}

async fn end(session: Session, how: &str) -> Result<(), ServerError> {
    session.run(how).await?;
    session.release();
    Ok(())
}

pub(super) async fn load(
    shared: &Shared,
    partition: PartitionRef,
    entries: Vec<Entry>,
) -> Result<(), StoreError> {
    // Sorted and without duplicates: the last entry of a key wins.
    let entries: BTreeMap<Key, Bytes> =
        entries.into_iter().map(|entry| (key::stored(partition.id, &entry.key), entry.value)).collect();
    let loaded = shared.repeat(partition.id, || {
        Box::pin(async {
            let session = shared.writing_session(partition.id).await?;
            // A shared lock on the row: a concurrent retirement waits for this load, or this load sees the new epoch.
            if !held(&session, partition).await? {
                end(session, "ROLLBACK").await?;
                return Ok(false);
            }
            if let (Some((first, _)), Some((last, _))) = (entries.first_key_value(), entries.last_key_value())
            {
                let part = key::column(partition.id);
                let parameters: super::pool::Parameters<'_> = &[&part, &first.as_slice(), &last.as_slice()];
                // COPY cannot overwrite. A repeated load, after a lost reply, finds its own entries.
                let rows = session.query(sql::IS_EMPTY, parameters).await?;
                if rows.first().is_some_and(|row| row.get(0)) {
                    session.within_timeout(copy(&session, part, &entries)).await??;
                } else {
                    store(&session, part, &entries).await?;
                }
            }
            end(session, "COMMIT").await?;
            Ok(true)
        })
    });
    if loaded.await? {
        // Counted here and added to the partition's row by the next commit, which saves an update per load.
        let bytes: usize = entries.iter().map(|(key, value)| entry_bytes(key.len(), value.len())).sum();
        let lane = shared.lane(partition);
        lane.uncounted.fetch_add(bytes.cast_signed() as i64, std::sync::atomic::Ordering::AcqRel);
        Ok(())
    } else {
        Err(StoreError::Fenced)
    }
}

/// Loads with COPY, the fastest way into an empty range.
async fn copy(session: &Session, part: i32, entries: &BTreeMap<Key, Bytes>) -> Result<(), ServerError> {
    let client: &tokio_postgres::Client = session;
    let sink = client.copy_in(sql::COPY).await?;
    let writer = BinaryCopyInWriter::new(sink, &[Type::INT4, Type::BYTEA, Type::BYTEA]);
    let mut writer = std::pin::pin!(writer);
    for (key, value) in entries {
        writer.as_mut().write(&[&part, &key.as_slice(), &value.as_ref()]).await?;
    }
    writer.finish().await?;
    Ok(())
}

async fn store(session: &Session, part: i32, entries: &BTreeMap<Key, Bytes>) -> Result<(), ServerError> {
    let (mut keys, mut values, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut left = entries.len();
    for (key, value) in entries {
        bytes += key.len() + value.len();
        left -= 1;
        keys.push(key.as_slice());
        values.push(value.as_ref());
        if bytes >= STORE_BYTES || left == 0 {
            session.query(sql::STORE, &[&part, &keys, &values]).await?;
            keys.clear();
            values.clear();
            bytes = 0;
        }
    }
    Ok(())
}

pub(super) async fn delete_range(
    shared: &Shared,
    partition: PartitionRef,
    range: &KeyRange,
    entries_max: usize,
) -> Result<usize, StoreError> {
    // Removes at most `entries_max` entries, in steps of one transaction each.
    let (start, end_key) = key::bounds(partition.id, range);
    let mut deleted = 0;
    loop {
        let at_once = entries_max.saturating_sub(deleted).min(DELETE_AT_ONCE);
        // Even if there is nothing to delete, the row is locked once, so that a stale reference is reported as fenced.
        let limit = if range.is_empty() { 0 } else { i64::try_from(at_once).unwrap_or(0) };
        let step = shared
            .repeat(partition.id, || {
                Box::pin(async {
                    let session = shared.writing_session(partition.id).await?;
                    if !held(&session, partition).await? {
                        end(session, "ROLLBACK").await?;
                        return Ok(None);
                    }
                    let part = key::column(partition.id);
                    let count = if limit == 0 {
                        0
                    } else {
                        execute(&session, sql::DELETE_RANGE, &[&part, &start, &end_key, &limit]).await?
                    };
                    end(session, "COMMIT").await?;
                    Ok(Some(count))
                })
            })
            .await?;
        let step = step.ok_or(StoreError::Fenced)?;
        deleted += step;
        // Each step is its own transaction, so that writers wait for a few thousand entries at most.
        if step < at_once || deleted >= entries_max || limit == 0 {
            return Ok(deleted);
        }
    }
}

async fn execute(
    session: &Session,
    sql: &str,
    parameters: super::pool::Parameters<'_>,
) -> Result<usize, ServerError> {
    let client: &tokio_postgres::Client = session;
    let executing = async {
        let statement = session.prepare_cached(sql).await?;
        client.execute(&statement, parameters).await
    };
    let count = session.within_timeout(executing).await??;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Deletes the entries of a condemned partition, and finally its row.
pub(super) async fn clear(shared: &Shared, id: PartitionId) -> Result<(), StoreError> {
    let part = key::column(id);
    // The entries first, then the names of transactions under the reserved id. The row is the last thing to go:
    // while it is there, a crash is found and finished by the next sweep.
    for (start, end) in [key::bounds(id, &KeyRange::all()), key::writers(id)] {
        let limit = i64::try_from(DELETE_AT_ONCE).unwrap_or(i64::MAX);
        loop {
            let count = shared
                .repeat(id, || {
                    Box::pin(async {
                        let session = shared.writing_session(id).await?;
                        let count = execute(&session, sql::CLEAR, &[&part, &start, &end, &limit]).await?;
                        session.release();
                        Ok(count)
                    })
                })
                .await?;
            if count < DELETE_AT_ONCE {
                break;
            }
        }
    }
    shared
        .repeat(id, || {
            Box::pin(async {
                let session = shared.writing_session(id).await?;
                execute(&session, sql::BURY, &[&part]).await?;
                session.release();
                Ok(())
            })
        })
        .await
}

/// Cleans up after processes that died: half-destroyed partitions, records of writers that no longer exist.
pub(super) fn sweep_in_background(shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    orrery_env::task::spawn("sweep", async move {
        if let Err(fault) = sweep(&shared).await
            && shared.check_open().is_ok()
        {
            tracing::warn!(
                reason = fault,
                "cannot clean up after earlier processes; the next start tries again"
            );
        }
    });
}

async fn sweep(shared: &Shared) -> Result<(), String> {
    let text = |fault: ServerError| fault.text().to_owned();
    // Everything is listed first and the session released: clearing takes connections of its own.
    let session = shared.cluster.main().session().await.map_err(text)?;
    let condemned = session.query(sql::CONDEMNED, &[]).await.map_err(text)?;
    // Processes that died leave their note. An hour is far longer than a running process goes without renewing it.
    execute(&session, sql::DROP_OLD_NOTES, &[]).await.map_err(text)?;
    let members = session.query(sql::MEMBERS, &[]).await.map_err(text)?;
    let members: std::collections::HashSet<String> = members.iter().map(|row| row.get(0)).collect();
    let writers = session.query(sql::WRITERS, &[]).await.map_err(text)?;
    session.release();
    for row in &condemned {
        clear(shared, key::from_column(row.get(0))).await.map_err(|error| error.to_string())?;
    }
    for row in &writers {
        // The key ends with the process's random id, see `key::writer`.
        let (part, stored): (i32, &[u8]) = (row.get(0), row.get(1));
        let Some(writer) = stored.last_chunk::<16>() else { continue };
        let writer = u128::from_be_bytes(*writer);
        // Of a process that has a note, the name may still be needed for a commit in doubt.
        if writer == shared.writer || members.contains(&super::coordination::member_id(writer)) {
            continue;
        }
        let session = shared.writing_session(key::from_column(part)).await.map_err(text)?;
        execute(&session, sql::REMOVE, &[&part, &vec![stored]]).await.map_err(text)?;
        session.release();
    }
    Ok(())
}

/// The last measurement plus the growth since. Overwriting unread entries and deleting ranges make the estimate too
/// large, so the partition is measured again before it is far off. Measuring scans the partition's entries without
/// fetching large values.
pub(super) async fn size_bytes(shared: &Shared, id: PartitionId) -> Result<u64, StoreError> {
    let part = key::column(id);
    let (start, end_key) = key::bounds(id, &KeyRange::all());
    let size = shared
        .repeat(id, || {
            Box::pin(async {
                let session = shared.session(id).await?;
                let rows = session.query(sql::SIZE, &[&part]).await?;
                let Some(row) = rows.first() else {
                    session.release();
                    return Ok(None);
                };
                let (written, measured, at): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
                // Growth that this process has not written to the row yet counts too; that of other processes
                // arrives with their next commit.
                let grown = written - at + shared.uncounted(id);
                // The last measurement is near enough: the size has not doubled since.
                if grown.abs() <= MEASURE_BYTES_MIN.max(measured) {
                    session.release();
                    return Ok(Some(measured + grown));
                }
                // Measuring a large partition may take longer than a request is allowed to.
                session.run("BEGIN; SET LOCAL statement_timeout = 0").await?;
                let rows = session.query_untimed(sql::MEASURE, &[&part, &start, &end_key]).await?;
                let measured: i64 = rows.first().map_or(0, |row| row.get(0));
                session.query(sql::NOTE_SIZE, &[&part, &measured, &written]).await?;
                end(session, "COMMIT").await?;
                Ok(Some(measured + shared.uncounted(id)))
            })
        })
        .await?;
    size.map(|bytes| u64::try_from(bytes).unwrap_or(0)).ok_or(StoreError::Fenced)
}
