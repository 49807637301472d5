//! The versions of the tables, in order. A new store goes through all of them, an older one through those it lacks;
//! each is one transaction that ends by noting its number, so that what fails leaves the version before.
//!
//! Gateways of the version before may be at work meanwhile and afterwards: a migration takes nothing away that they
//! use, and no lock that would keep them waiting for long.

use super::options::PostgresOptions;
use super::schema::Server;

/// What a migration has to know.
pub(super) struct Target<'a> {
    schema: &'a str,
    /// On Citus: into how many shards the tables are cut.
    shards: Option<u32>,
}

type Migration = fn(&Target<'_>) -> Vec<String>;

/// The migration to version 1, that to version 2, and so on.
const MIGRATIONS: [Migration; SCHEMA_VERSION as usize] = [first, vacuum_sooner];

/// The version of the tables that this program makes and understands.
pub(super) const SCHEMA_VERSION: i32 = 2;

/// The statements that lead from a version to the newest one, each to be run by itself: Citus hands changes of
/// tables on to the nodes with all that came in one message.
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
    std::iter::once("BEGIN".to_owned()).chain(statements).chain([note, "COMMIT".to_owned()])
}

/// Version 1. On Citus the two tables of partitions are spread by partition, and always together; the small
/// ones lie on every node. A store moves by itself, apart from other tables of the cluster.
fn first(target: &Target<'_>) -> Vec<String> {
    let spread = target.shards.map_or_else(String::new, |shards| {
        format!(
            "SELECT create_distributed_table('part', 'part', shard_count := {shards}, colocate_with := 'none'); \
             SELECT create_distributed_table('kv', 'part', colocate_with := 'part'); \
             SELECT create_reference_table('meta'); \
             SELECT create_reference_table('member');"
        )
    });
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

/// Version 2. Scans of keys alone are answered by the index for what a vacuum has found visible to all, so
/// that it must come round before a fifth of the table is new.
fn vacuum_sooner(target: &Target<'_>) -> Vec<String> {
    // A change of all shards at once and one of a table that lies on every node do not mix in a transaction.
    let in_order = target.shards.map(|_| "SET LOCAL citus.multi_shard_modify_mode = 'sequential'".to_owned());
    let settings = "ALTER TABLE kv SET \
         (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05)";
    in_order.into_iter().chain([settings.to_owned()]).collect()
}
