-- A store as version 1 made it, with what a gateway of that version wrote: the fixture of the tests of migrations.
CREATE SCHEMA :schema;
SET search_path = :schema;
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
-- :spread
INSERT INTO meta (name, value) VALUES ('schema_version', '1');
INSERT INTO part (part, epoch, lsn, written) VALUES (:part, 0, 7, 100);
INSERT INTO kv (part, key, value) VALUES (:part, :key, 'from version 1');
