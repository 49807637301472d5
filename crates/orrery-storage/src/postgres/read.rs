//! Reads and snapshots. A read is one statement, which also returns the partition's epoch and LSN as of the same point
//! in time.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio_postgres::Row;

use orrery_env::{monotonic, task};

use super::pool::Session;
use super::server_error::ServerError;
use super::shared::{Local, Shared};
use super::{key, sql};
use crate::contract::{
    Direction, Entry, Lsn, PartitionId, PartitionRef, Pending, ReadPage, ReadRequest, Scan, Snapshot,
    StoreError, Tally, TallyBy, TallyRun, Want,
};

/// Up to this many entries are fetched without summing up their sizes first.
const FEW: usize = 8;
/// Most entries per page, however many were requested.
const PAGE_MAX: usize = 50_000;

/// A page with the partition's epoch; `None` = the partition does not exist.
pub(super) type Found = Option<(u64, ReadPage)>;

/// Reads in the session's current transaction, if it has one.
pub(super) async fn read(
    session: &Session,
    id: PartitionId,
    request: &ReadRequest,
    key_bytes_max: usize,
) -> Result<Found, ServerError> {
    match request {
        ReadRequest::Get(keys) => get(session, id, keys, key_bytes_max).await,
        ReadRequest::Scan(wanted) => scan(session, id, wanted).await,
        ReadRequest::Tally(wanted) => match wanted.by {
            TallyBy::Range => count(session, id, wanted).await,
            TallyBy::Beginning(_) => tally(session, id, wanted).await,
        },
    }
}

/// Counts the entries of a range on the server.
async fn count(session: &Session, id: PartitionId, tally: &Tally) -> Result<Found, ServerError> {
    let part = key::column(id);
    let (start, end) = key::bounds(id, &tally.range);
    let limit = i64::try_from(tally.entries_max.max(1)).unwrap_or(i64::MAX);
    let parameters: super::pool::Parameters<'_> = &[&part, &start.as_slice(), &end.as_slice(), &limit];
    let rows = session.query(sql::COUNT, parameters).await?;
    let Some((epoch, lsn)) = head(&rows) else { return Ok(None) };
    let count = rows.first().map_or(0, |row| row.get::<_, i64>(2)).cast_unsigned();
    let reached = rows.first().and_then(|row| row.get::<_, Option<&[u8]>>(3)).map(key::own);
    let runs = (count > 0).then(|| TallyRun { beginning: Vec::new(), count }).into_iter().collect();
    Ok(Some((epoch, ReadPage { lsn, runs, more: reached.is_some(), reached, ..ReadPage::default() })))
}

/// Counts runs, whose beginnings the server cannot determine, in a page of keys.
async fn tally(session: &Session, id: PartitionId, tally: &Tally) -> Result<Found, ServerError> {
    let entries_max = tally.entries_max.min(PAGE_MAX);
    let keys = Scan { want: Want::Keys, ..Scan::forward(tally.range.clone(), entries_max) };
    let keys = Scan { bytes_max: usize::MAX, ..keys };
    let found = scan(session, id, &keys).await?;
    Ok(found.map(|(epoch, page)| {
        let keys = page.entries.iter().map(|entry| entry.key.as_slice());
        (epoch, ReadPage { lsn: page.lsn, ..tally.of_keys(keys, page.more) })
    }))
}

async fn get(
    session: &Session,
    id: PartitionId,
    keys: &[Vec<u8>],
    key_bytes_max: usize,
) -> Result<Found, ServerError> {
    let part = key::column(id);
    let stored: Vec<Vec<u8>> =
        keys.iter().filter(|key| key.len() <= key_bytes_max).map(|key| key::stored(id, key)).collect();
    let rows = match stored.as_slice() {
        // Every key was too long to exist. The partition's state is still needed, for the fence.
        [] => {
            let rows = session.query(sql::STATE, &[&part]).await?;
            return Ok(head(&rows).map(|(epoch, lsn)| {
                (epoch, ReadPage { lsn, values: vec![None; keys.len()], ..ReadPage::default() })
            }));
        }
        // The most frequent read has a statement of its own.
        [only] => session.query(sql::GET_ONE, &[&part, &only.as_slice()]).await?,
        many => {
            let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
            session.query(sql::GET, &[&part, &many]).await?
        }
    };
    let Some((epoch, lsn)) = head(&rows) else { return Ok(None) };
    // The server returns rows in any order and omits absent keys, while the answer is in the order of the request.
    let found: std::collections::HashMap<&[u8], Bytes> = rows
        .iter()
        .filter_map(|row| Some((row.get::<_, Option<&[u8]>>(2)?, Bytes::copy_from_slice(row.get(3)))))
        .collect();
    let values = keys.iter().map(|key| found.get(key::stored(id, key).as_slice()).cloned()).collect();
    Ok(Some((epoch, ReadPage { lsn, values, ..ReadPage::default() })))
}

async fn scan(session: &Session, id: PartitionId, scan: &Scan) -> Result<Found, ServerError> {
    let part = key::column(id);
    let (start, end) = key::bounds(id, &scan.range);
    let way = usize::from(scan.direction == Direction::Backward);
    let entries_max = scan.entries_max.min(PAGE_MAX);
    // Fetch one more than requested, to know whether there are more.
    let limit = i64::try_from(entries_max + 1).expect("a page is small");
    // At least one: a page always has an entry, or a caller could never get past a large one.
    let bytes_max = i64::try_from(scan.bytes_max.max(1)).unwrap_or(i64::MAX);
    let (start, end) = (start.as_slice(), end.as_slice());
    let (rows, has_values) = if scan.range.is_empty() {
        (session.query(sql::STATE, &[&part]).await?, false)
    } else if scan.want == Want::Keys {
        (session.query(sql::SCAN_KEYS[way], &[&part, &start, &end, &limit]).await?, false)
    } else if entries_max <= FEW {
        // Adding up sizes takes a window function; a few entries are below any bound that matters.
        (session.query(sql::SCAN_FEW[way], &[&part, &start, &end, &limit]).await?, true)
    } else {
        let parameters: super::pool::Parameters<'_> = &[&part, &start, &end, &limit, &bytes_max];
        (session.query(sql::SCAN_MANY[way], parameters).await?, true)
    };
    let Some((epoch, lsn)) = head(&rows) else { return Ok(None) };
    // The partition was checked all the same.
    if scan.range.is_empty() {
        return Ok(Some((epoch, ReadPage { lsn, ..ReadPage::default() })));
    }
    // Only `SCAN_MANY` returns a count: it leaves out entries beyond the size, so their absence proves nothing.
    let counted = rows.first().filter(|row| row.len() > 4).and_then(|row| row.get::<_, Option<i64>>(4));
    let mut entries: Vec<Entry> = Vec::with_capacity(rows.len());
    for row in &rows {
        // A LEFT JOIN yields one row without a key where the range is empty; it carries epoch and LSN.
        let Some(key) = row.get::<_, Option<&[u8]>>(2) else { continue };
        let value = if has_values { Bytes::copy_from_slice(row.get(3)) } else { Bytes::new() };
        entries.push(Entry { key: key::own(key), value });
    }
    // In practice the join preserves the order of its inner side, but SQL does not guarantee it.
    match scan.direction {
        Direction::Forward => entries.sort_by(|a, b| a.key.cmp(&b.key)),
        Direction::Backward => entries.sort_by(|a, b| b.key.cmp(&a.key)),
    }
    let there = counted.map_or(entries.len(), |count| usize::try_from(count).unwrap_or(usize::MAX));
    let mut bytes = 0;
    let mut kept = 0;
    for entry in entries.iter().take(entries_max) {
        kept += 1;
        bytes += entry.key.len() + entry.value.len();
        if bytes >= scan.bytes_max {
            break;
        }
    }
    entries.truncate(kept);
    Ok(Some((epoch, ReadPage { lsn, entries, more: there > kept, ..ReadPage::default() })))
}

/// Epoch and LSN, which every row carries. A partition that is being destroyed counts as absent.
fn head(rows: &[Row]) -> Option<(u64, Lsn)> {
    let row = rows.first()?;
    let epoch = u64::try_from(row.get::<_, i64>(0)).ok()?;
    Some((epoch, row.get::<_, i64>(1).cast_unsigned()))
}

/// A snapshot: a REPEATABLE READ transaction on its own connection.
pub(super) struct PostgresSnapshot {
    shared: Arc<Shared>,
    partition: PartitionRef,
    local: Arc<Local>,
    lsn: Lsn,
    taken: Instant,
    /// `None` once the snapshot has expired or a read was interrupted.
    session: Arc<tokio::sync::Mutex<Option<Session>>>,
    expiry: tokio::task::JoinHandle<()>,
}

impl PostgresSnapshot {
    /// `None` = fenced.
    pub(super) async fn take(
        shared: &Arc<Shared>,
        partition: PartitionRef,
    ) -> Result<Option<Self>, ServerError> {
        let local = shared.local(partition.id);
        let age_max = shared.options.limits.snapshot_age_max;
        let session = shared.node_of(partition.id).await.snapshot_session().await?;
        // A second more than the snapshot lives, so that the expiry task ends it and not the server.
        let idle_ms = age_max.as_millis() + 1000;
        session
            .run(&format!(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                 SET LOCAL idle_in_transaction_session_timeout = {idle_ms}"
            ))
            .await?;
        // The first query of the transaction fixes what it sees; the epoch is checked on exactly that state.
        let state = session.query(sql::STATE, &[&key::column(partition.id)]).await?;
        let taken = monotonic::now();
        let Some((_, lsn)) = head(&state).filter(|(epoch, _)| *epoch == partition.epoch) else {
            if session.run("ROLLBACK").await.is_ok() {
                session.release();
            }
            return Ok(None);
        };
        let session = Arc::new(tokio::sync::Mutex::new(Some(session)));
        let expiry = {
            let session = Arc::clone(&session);
            task::spawn("expire a snapshot", async move {
                task::sleep(age_max).await;
                give_back(session.lock().await.take()).await;
            })
        };
        let shared = Arc::clone(shared);
        Ok(Some(Self { shared, partition, local, lsn, taken, session, expiry }))
    }
}

impl Snapshot for PostgresSnapshot {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn read(&self, request: ReadRequest) -> Pending<'_, ReadPage> {
        Box::pin(async move {
            self.shared.check_open()?;
            // Destroyed by this process. The entries would still be visible in the transaction.
            if self.local.progress.borrow().is_none() {
                return Err(StoreError::Fenced);
            }
            let mut held = self.session.lock().await;
            // The expiry task may not have run yet; the bound holds all the same.
            if monotonic::elapsed(self.taken) >= self.shared.options.limits.snapshot_age_max {
                return Err(StoreError::SnapshotExpired);
            }
            // If the caller is cancelled in the middle, the connection is dropped with it.
            let Some(session) = held.take() else { return Err(StoreError::SnapshotExpired) };
            let key_bytes_max = self.shared.options.limits.key_bytes_max;
            match read(&session, self.partition.id, &request, key_bytes_max).await {
                Ok(found) => {
                    *held = Some(session);
                    let (_, page) = found.ok_or(StoreError::Fenced)?;
                    Ok(ReadPage { lsn: self.lsn, ..page })
                }
                // The session is not put back: its transaction is aborted, and a new one would see other data.
                Err(fault) => Err(StoreError::Unavailable(fault.text().to_owned())),
            }
        })
    }
}

impl Drop for PostgresSnapshot {
    fn drop(&mut self) {
        self.expiry.abort();
        // Locked only by a read that is still running, whose future then drops the session itself.
        if let Ok(mut held) = self.session.try_lock()
            && let Some(session) = held.take()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            // Ending the transaction takes a round trip; do it in the background.
            drop(task::spawn("end a snapshot", give_back(Some(session))));
        }
    }
}

async fn give_back(session: Option<Session>) {
    if let Some(session) = session
        && session.run("ROLLBACK").await.is_ok()
    {
        session.release();
    }
}
