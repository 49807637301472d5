//! Every statement on partitions. `part` is a table with one row per partition: its lock, its numbers and its
//! fence. `kv` holds the entries of all of them; the key begins with the partition's number.
//!
//! The primary key of `kv` is (key, part) in this order: with the columns the other way round the planner
//! walks all of a partition that is missing from its statistics.

/// Takes the partition's lock and reserves numbers. No row: the caller's catalog is old. This and [`FETCH`]
/// are two statements because the second one must see what was committed while the first one waited.
pub(super) const LOCK: &str = "UPDATE part SET lsn = lsn + $2::bigint, written = written + $4::bigint \
     WHERE part = $1::int AND epoch = $3::bigint RETURNING part, epoch, lsn";

/// The same for several partitions, as far as nobody else has their locks: waiting for one while others are held could
/// wait for ever, and would make all of them wait.
pub(super) const LOCK_SEVERAL: &str = "UPDATE part SET lsn = lsn + t.count, written = written + t.bytes \
     FROM (SELECT p.part AS id, t.count, t.bytes FROM part p \
       JOIN unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[]) AS t(id, count, epoch, bytes) \
         ON p.part = t.id AND p.epoch = t.epoch FOR UPDATE OF p SKIP LOCKED) t \
     WHERE part.part = t.id RETURNING part.part, part.epoch, part.lsn";

pub(super) const FETCH: &str = "SELECT key, value FROM kv WHERE part = $1::int AND key = ANY($2::bytea[])";

/// The partition's number is part of the key.
pub(super) const FETCH_SEVERAL: &str = "SELECT key, value FROM kv WHERE key = ANY($1::bytea[])";

pub(super) const REMOVE_SEVERAL: &str = "DELETE FROM kv WHERE key = ANY($1::bytea[])";

pub(super) const REMOVE: &str = "DELETE FROM kv WHERE part = $1::int AND key = ANY($2::bytea[])";

/// Names `part` so that Citus pushes it down to the shard instead of pulling the rows through.
pub(super) const STORE: &str = "INSERT INTO kv (part, key, value) \
     SELECT p.part, t.k, t.v FROM part p CROSS JOIN unnest($2::bytea[], $3::bytea[]) AS t(k, v) \
     WHERE p.part = $1::int \
     ON CONFLICT (key, part) DO UPDATE SET value = EXCLUDED.value";

/// The three advance together and row by row. As functions in FROM they would be written down first, which makes
/// the statement dearer by a tenth.
pub(super) const STORE_SEVERAL: &str = "INSERT INTO kv (part, key, value) \
     SELECT unnest($1::int[]), unnest($2::bytea[]), unnest($3::bytea[]) \
     ON CONFLICT (key, part) DO UPDATE SET value = EXCLUDED.value";

/// The same for entries that are most likely not there. If one is, the statement fails.
pub(super) const INSERT_SEVERAL: &str = "INSERT INTO kv (part, key, value) \
     SELECT unnest($1::int[]), unnest($2::bytea[]), unnest($3::bytea[])";

/// Gives back the numbers that rejected operations did not use.
pub(super) const NUMBER: &str = "UPDATE part SET lsn = $2::bigint WHERE part = $1::int";

pub(super) const NUMBER_SEVERAL: &str = "UPDATE part SET lsn = t.number \
     FROM unnest($1::int[], $2::bigint[]) AS t(id, number) WHERE part.part = t.id";

/// Waits until nobody changes the partition.
pub(super) const SETTLE: &str = "SELECT lsn FROM part WHERE part = $1::int FOR UPDATE";

/// Keeps the partition from being retired until the end of the transaction.
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

/// Few entries, which may be as large as they are allowed to be.
pub(super) const SCAN_FEW: [&str; 2] = [
    "SELECT p.epoch, p.lsn, k.key, k.value FROM part p LEFT JOIN LATERAL (\
       SELECT key, value FROM kv WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea \
       ORDER BY key LIMIT $4::bigint) k ON true WHERE p.part = $1::int",
    "SELECT p.epoch, p.lsn, k.key, k.value FROM part p LEFT JOIN LATERAL (\
       SELECT key, value FROM kv WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea \
       ORDER BY key DESC LIMIT $4::bigint) k ON true WHERE p.part = $1::int",
];

/// Many entries up to a size. The length of a large value is known without fetching it, so what lies beyond
/// the size is neither read nor sent; `n` tells how many entries the limit in number had left.
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

/// No row: a partition of this number is being destroyed.
pub(super) const CREATE: &str = "INSERT INTO part (part, epoch, lsn) VALUES ($1::int, 0, $2::bigint) \
     ON CONFLICT (part) DO UPDATE SET lsn = GREATEST(part.lsn, EXCLUDED.lsn) WHERE part.epoch >= 0 \
     RETURNING lsn";

pub(super) const RETIRE: &str = "UPDATE part SET epoch = epoch + 1 \
     WHERE part = $1::int AND epoch = $2::bigint RETURNING lsn";

/// A negative epoch: nobody finds it any more, and its entries can be deleted in steps.
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

/// As [`super::load::entry_bytes`] counts.
pub(super) const MEASURE: &str = "SELECT coalesce(sum(octet_length(value) + 2 * octet_length(key) + 60), 0)::bigint \
     FROM kv WHERE part = $1::int AND key >= $2::bytea AND key < $3::bytea";

pub(super) const NOTE_SIZE: &str =
    "UPDATE part SET measured = $2::bigint, measured_at = $3::bigint WHERE part = $1::int";

/// Deletes entries of a partition that is being destroyed. If it was made anew meanwhile, this statement sees
/// nothing of what was written to the new one.
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

/// Who has ever written, to forget those that are gone.
pub(super) const WRITERS: &str = "SELECT part, key FROM kv WHERE key >= '\\xffffffff'::bytea";

pub(super) const TRY_DUTY: &str = "SELECT pg_try_advisory_lock(hashtextextended($1::text, 0))";

pub(super) const END_DUTY: &str = "SELECT pg_advisory_unlock(hashtextextended($1::text, 0))";
