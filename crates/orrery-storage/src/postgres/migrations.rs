//! Schema migrations, in order. A new store runs all of them, an older one those it lacks. Each is one transaction that
//! ends by recording its version, so a failed migration leaves the previous version intact.
//!
//! Gateways of the previous version may keep running during and after a migration: it removes nothing that they use,
//! and takes no lock that would block them for long.

use super::options::PostgresOptions;
use super::schema::Server;

/// The parameters of a migration.
pub(super) struct Target<'a> {
    schema: &'a str,
    /// Shard count on Citus; `None` elsewhere.
    shards: Option<u32>,
}

type Migration = fn(&Target<'_>) -> Vec<String>;

/// The migrations to version 1, 2, and so on.
const MIGRATIONS: [Migration; SCHEMA_VERSION as usize] = [first, vacuum_sooner];

/// The schema version that this program creates and supports.
pub(super) const SCHEMA_VERSION: i32 = 2;

/// The statements from a version to the newest one. Each must be sent separately: Citus forwards a schema change to
/// the nodes together with everything else in the same message.
pub(super) fn from_version(found: i32, options: &PostgresOptions, server: &Server) -> Vec<String> {
    let target = Target { schema: &options.schema, shards: server.citus.is_some().then_some(options.shards) };
    let missing = (1..).zip(MIGRATIONS).filter(|(version, _)| *version > found);
    missing.flat_map(|(version, migration)| transaction(version, migration(&target))).collect()
}

fn transaction(version: i32, statements: Vec<String>) -> impl Iterator<Item = String> {
    let note = format!(
        "INSERT INTO meta (name, value) VALUES ('schema_version', '{version}') \
           ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value"
    );
    // The version is recorded last and in the same transaction, so it tells the truth after a crash.
    std::iter::once("BEGIN".to_owned()).chain(statements).chain([note, "COMMIT".to_owned()])
}

/// Version 1. On Citus the two partition tables are distributed by partition and co-located; the small ones are
/// reference tables on every node. A store is a co-location group of its own, so it moves independently of other tables.
fn first(target: &Target<'_>) -> Vec<String> {
    let spread = target.shards.map_or_else(String::new, |shards| {
        format!(
            "SELECT create_distributed_table('part', 'part', shard_count := {shards}, colocate_with := 'none'); \
             SELECT create_distributed_table('kv', 'part', colocate_with := 'part'); \
             SELECT create_reference_table('meta'); \
             SELECT create_reference_table('member');"
        )
    });
    // Part rows are updated by every commit: a low fillfactor keeps the updates in their page, without index
    // writes. Values are stored uncompressed (EXTERNAL), since scans need their length without fetching them.
    vec![format!(
        "CREATE SCHEMA IF NOT EXISTS {schema};
         CREATE TABLE part (
           part int PRIMARY KEY,
           epoch bigint NOT NULL DEFAULT 0,
           lsn bigint NOT NULL DEFAULT 0,
           written bigint NOT NULL DEFAULT 0,
           measured bigint NOT NULL DEFAULT 0,
           measured_at bigint NOT NULL DEFAULT 0
         ) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
         CREATE TABLE kv (
           part int NOT NULL,
           key bytea NOT NULL,
           value bytea NOT NULL,
           PRIMARY KEY (key, part)
         );
         ALTER TABLE kv ALTER COLUMN value SET STORAGE EXTERNAL;
         CREATE TABLE meta (name text PRIMARY KEY, value text NOT NULL);
         CREATE TABLE member (
           id text PRIMARY KEY,
           seen timestamptz NOT NULL,
           note bytea NOT NULL
         );
         {spread}",
        schema = target.schema
    )]
}

/// Version 2. Key-only scans are answered from the index where a vacuum has marked pages as all-visible, so vacuum must
/// run before a fifth of the table is new.
fn vacuum_sooner(target: &Target<'_>) -> Vec<String> {
    // Changing a distributed table and a reference table in the same transaction is not possible on Citus.
    let in_order = target.shards.map(|_| "SET LOCAL citus.multi_shard_modify_mode = 'sequential'".to_owned());
    let settings = "ALTER TABLE kv SET \
         (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05)";
    in_order.into_iter().chain([settings.to_owned()]).collect()
}
