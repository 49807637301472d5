//! Every statement on partitions. `part` has one row per partition, which is its lock, its LSN and its fence. `kv` has
//! the entries of all partitions; a key starts with the partition id.
//!
//! The primary key of `kv` is (key, part), in this order: with the columns swapped, the planner scans the whole of a
//! partition that is missing from its statistics.

/// Locks the partition and reserves LSNs. No row = the caller's catalog is stale. This and [`FETCH`] are two statements
/// because the second one must see what was committed while the first one waited.
pub(super) const LOCK: &str = "UPDATE part SET lsn = lsn + $2::bigint, written = written + $4::bigint \
     WHERE part = $1::int AND epoch = $3::bigint RETURNING part, epoch, lsn";

/// Like [`LOCK`] for several partitions, but skips those that another transaction has locked: waiting for one lock while
/// holding others could deadlock, and would make all of them wait.
pub(super) const LOCK_SEVERAL: &str = "UPDATE part SET lsn = lsn + t.count, written = written + t.bytes \
     FROM (SELECT p.part AS id, t.count, t.bytes FROM part p \
       JOIN unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[]) AS t(id, count, epoch, bytes) \
         ON p.part = t.id AND p.epoch = t.epoch FOR UPDATE OF p SKIP LOCKED) t \
     WHERE part.part = t.id RETURNING part.part, part.epoch, part.lsn";

pub(super) const FETCH: &str = "SELECT key, value FROM kv WHERE part = $1::int AND key = ANY($2::bytea[])";

/// The partition id is part of the key.
pub(super) const FETCH_SEVERAL: &str = "SELECT key, value FROM kv WHERE key = ANY($1::bytea[])";

pub(super) const REMOVE_SEVERAL: &str = "DELETE FROM kv WHERE key = ANY($1::bytea[])";

pub(super) const REMOVE: &str = "DELETE FROM kv WHERE part = $1::int AND key = ANY($2::bytea[])";

/// Names `part` so that Citus pushes the statement down to the shard instead of pulling the rows through.
pub(super) const STORE: &str = "INSERT INTO kv (part, key, value) \
     SELECT p.part, t.k, t.v FROM part p CROSS JOIN unnest($2::bytea[], $3::bytea[]) AS t(k, v) \
     WHERE p.part = $1::int \
     ON CONFLICT (key, part) DO UPDATE SET value = EXCLUDED.value";

/// The three `unnest` calls in the select list advance in lockstep, row by row. In FROM they would be materialised
/// first, which makes the statement a tenth more expensive.
pub(super) const STORE_SEVERAL: &str = "INSERT INTO kv (part, key, value) \
     SELECT unnest($1::int[]), unnest($2::bytea[]), unnest($3::bytea[]) \
     ON CONFLICT (key, part) DO UPDATE SET value = EXCLUDED.value";

/// For entries that most likely do not exist. If one does, the statement fails.
pub(super) const INSERT_SEVERAL: &str = "INSERT INTO kv (part, key, value) \
     SELECT unnest($1::int[]), unnest($2::bytea[]), unnest($3::bytea[])";

/// Returns the LSNs that rejected operations did not use.
pub(super) const NUMBER: &str = "UPDATE part SET lsn = $2::bigint WHERE part = $1::int";

pub(super) const NUMBER_SEVERAL: &str = "UPDATE part SET lsn = t.number \
     FROM unnest($1::int[], $2::bigint[]) AS t(id, number) WHERE part.part = t.id";

/// Waits until no transaction is changing the partition.
pub(super) const SETTLE: &str = "SELECT lsn FROM part WHERE part = $1::int FOR UPDATE";

/// Keeps the partition from being retired until the transaction ends.
pub(super) const HOLD: &str = "SELECT lsn FROM part WHERE part = $1::int AND epoch = $2::bigint FOR SHARE";

pub(super) const GET: &str = "SELECT p.epoch, p.lsn, k.key, k.value FROM part p \
     LEFT JOIN kv k ON k.part = $1::int AND k.key = ANY($2::bytea[]) WHERE p.part = $1::int";

/// A point read.
pub(super) const GET_ONE: &str = "SELECT p.epoch, p.lsn, k.key, k.value FROM part p \
     LEFT JOIN kv k ON k.part = $1::int AND k.key = $2::bytea WHERE p.part = $1::int";

pub(super) const STATE: &str = "SELECT epoch, lsn FROM part WHERE part = $1::int";

pub(super) const SCAN_KEYS: [&str; 2] = [
    "SELECT p.epoch, p.lsn, k.key FROM part p LEFT JOIN LATERAL (\
       SELECT key FROM kv WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea \
       ORDER BY key LIMIT $4::bigint) k ON true WHERE p.part = $1::int",
    "SELECT p.epoch, p.lsn, k.key FROM part p LEFT JOIN LATERAL (\
       SELECT key FROM kv WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea \
       ORDER BY key DESC LIMIT $4::bigint) k ON true WHERE p.part = $1::int",
];

/// Reads values and pages of keys from several partitions. Both are looked up read by read, whatever the statistics
/// say.
pub(super) const READ_EACH: &str = "SELECT t.n, p.epoch, p.lsn, t.key, k.value \
     FROM unnest($1::int[], $2::int[], $3::bytea[]) AS t(n, part, key) JOIN part p ON p.part = t.part \
     LEFT JOIN LATERAL (SELECT value FROM kv WHERE kv.key = t.key AND kv.part = t.part LIMIT 1) k ON true \
     UNION ALL \
     SELECT t.n, p.epoch, p.lsn, k.key, NULL::bytea \
     FROM unnest($4::int[], $5::int[], $6::bytea[], $7::bytea[], $8::bigint[]) AS t(n, part, first, last, rows) \
     JOIN part p ON p.part = t.part LEFT JOIN LATERAL (\
       SELECT kv.key FROM kv WHERE kv.part = t.part AND kv.key >= t.first AND kv.key < t.last \
       ORDER BY kv.key LIMIT t.rows) k ON true \
     UNION ALL \
     SELECT t.n, p.epoch, p.lsn, k.key, NULL::bytea \
     FROM unnest($9::int[], $10::int[], $11::bytea[], $12::bytea[], $13::bigint[]) AS t(n, part, first, last, rows) \
     JOIN part p ON p.part = t.part LEFT JOIN LATERAL (\
       SELECT kv.key FROM kv WHERE kv.part = t.part AND kv.key >= t.first AND kv.key < t.last \
       ORDER BY kv.key DESC LIMIT t.rows) k ON true";

/// Counts entries up to a limit; the last key counted comes with it only if the limit was reached.
pub(super) const COUNT: &str = "WITH page AS MATERIALIZED (\
       SELECT key FROM kv WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea \
       ORDER BY key LIMIT $4::bigint) \
     SELECT p.epoch, p.lsn, (SELECT count(*) FROM page), \
       (SELECT key FROM page ORDER BY key OFFSET $4::bigint - 1 LIMIT 1) \
     FROM part p WHERE p.part = $1::int";

/// Fetches few entries, of any permitted size.
pub(super) const SCAN_FEW: [&str; 2] = [
    "SELECT p.epoch, p.lsn, k.key, k.value FROM part p LEFT JOIN LATERAL (\
       SELECT key, value FROM kv WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea \
       ORDER BY key LIMIT $4::bigint) k ON true WHERE p.part = $1::int",
    "SELECT p.epoch, p.lsn, k.key, k.value FROM part p LEFT JOIN LATERAL (\
       SELECT key, value FROM kv WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea \
       ORDER BY key DESC LIMIT $4::bigint) k ON true WHERE p.part = $1::int",
];

/// Fetches many entries up to a total size. The length of a large value is known without fetching it, so entries beyond
/// the size are neither read nor sent; `n` is the number of entries within the entry limit.
pub(super) const SCAN_MANY: [&str; 2] = [
    "SELECT p.epoch, p.lsn, k.key, k.value, k.n FROM part p LEFT JOIN LATERAL (\
       SELECT key, value, n FROM (\
         SELECT key, value, count(*) OVER () AS n, \
           sum(octet_length(key) - 4 + octet_length(value)) OVER (ORDER BY key ROWS UNBOUNDED PRECEDING) \
             - (octet_length(key) - 4 + octet_length(value)) AS before \
         FROM (SELECT key, value FROM kv \
           WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea \
           ORDER BY key LIMIT $4::bigint) page) sized \
       WHERE before < $5::bigint) k ON true WHERE p.part = $1::int",
    "SELECT p.epoch, p.lsn, k.key, k.value, k.n FROM part p LEFT JOIN LATERAL (\
       SELECT key, value, n FROM (\
         SELECT key, value, count(*) OVER () AS n, \
           sum(octet_length(key) - 4 + octet_length(value)) OVER (ORDER BY key DESC ROWS UNBOUNDED PRECEDING) \
             - (octet_length(key) - 4 + octet_length(value)) AS before \
         FROM (SELECT key, value FROM kv \
           WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea \
           ORDER BY key DESC LIMIT $4::bigint) page) sized \
       WHERE before < $5::bigint) k ON true WHERE p.part = $1::int",
];

pub(super) const PARTITIONS: &str = "SELECT part, epoch, lsn FROM part WHERE epoch >= 0";

/// No row = a partition with this id is being destroyed.
pub(super) const CREATE: &str = "INSERT INTO part (part, epoch, lsn) VALUES ($1::int, 0, $2::bigint) \
     ON CONFLICT (part) DO UPDATE SET lsn = GREATEST(part.lsn, EXCLUDED.lsn) WHERE part.epoch >= 0 \
     RETURNING lsn";

pub(super) const RETIRE: &str = "UPDATE part SET epoch = epoch + 1 \
     WHERE part = $1::int AND epoch = $2::bigint RETURNING lsn";

/// A negative epoch hides the partition, so that its entries can be deleted in steps.
pub(super) const CONDEMN: &str = "UPDATE part SET epoch = -1 WHERE part = $1::int RETURNING lsn";

pub(super) const CONDEMNED: &str = "SELECT part FROM part WHERE epoch < 0";

pub(super) const BURY: &str = "DELETE FROM part WHERE part = $1::int AND epoch < 0";

pub(super) const DELETE_RANGE: &str = "DELETE FROM kv WHERE part = $1::int AND key = ANY(ARRAY(\
     SELECT key FROM kv WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea \
     ORDER BY key LIMIT $4::bigint))";

pub(super) const IS_EMPTY: &str = "SELECT NOT EXISTS (SELECT 1 FROM kv \
     WHERE part = $1::int AND key >= $2::bytea AND key <= $3::bytea)";

pub(super) const COPY: &str = "COPY kv (part, key, value) FROM STDIN (FORMAT binary)";

pub(super) const SIZE: &str =
    "SELECT written, measured, measured_at FROM part WHERE part = $1::int AND epoch >= 0";

/// Counts like [`super::load::entry_bytes`].
pub(super) const MEASURE: &str = "SELECT coalesce(sum(octet_length(value) + 2 * octet_length(key) + 60), 0)::bigint \
     FROM kv WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea";

pub(super) const NOTE_SIZE: &str =
    "UPDATE part SET measured = $2::bigint, measured_at = $3::bigint WHERE part = $1::int";

/// Deletes entries of a partition that is being destroyed. If the id has been created again in the meantime, this
/// statement does not see what was written to the new partition.
pub(super) const CLEAR: &str = "DELETE FROM kv WHERE part = $1::int AND key = ANY(ARRAY(\
     SELECT key FROM kv WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea \
       AND EXISTS (SELECT 1 FROM part WHERE part = $1::int AND epoch < 0) \
     ORDER BY key LIMIT $4::bigint))";

pub(super) const LEAVE_NOTE: &str = "INSERT INTO member (id, seen, note) VALUES ($1::text, now(), $2::bytea) \
     ON CONFLICT (id) DO UPDATE SET seen = EXCLUDED.seen, note = EXCLUDED.note";

pub(super) const READ_NOTES: &str = "SELECT note FROM member \
     WHERE seen > now() - $2::bigint * interval '1 millisecond' OR id = $1::text ORDER BY id <> $1::text, id";

pub(super) const DROP_OLD_NOTES: &str = "DELETE FROM member WHERE seen < now() - interval '1 hour'";

pub(super) const DROP_NOTE: &str = "DELETE FROM member WHERE id = $1::text";

pub(super) const MEMBERS: &str = "SELECT id FROM member";

/// Lists all processes that have written, to remove those that no longer exist.
pub(super) const WRITERS: &str = "SELECT part, key FROM kv WHERE key >= '\\xffffffff'::bytea";

pub(super) const TRY_DUTY: &str = "SELECT pg_try_advisory_lock(hashtextextended($1::text, 0))";

pub(super) const END_DUTY: &str = "SELECT pg_advisory_unlock(hashtextextended($1::text, 0))";
