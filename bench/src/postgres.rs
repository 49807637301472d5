//! The same operations on PostgreSQL: documents as jsonb, prepared statements over its own protocol. `light` executes
//! those of single items.

use std::collections::HashMap;

use tokio_postgres::types::{Json, ToSql};
use tokio_postgres::{Client, NoTls, Statement};

use crate::documents::{code, id, item, key};
use crate::workload::Operation;

pub struct Session {
    client: Client,
    statements: HashMap<&'static str, Statement>,
    changes: i64,
}

/// The table, its key, and an index over everything in the document, as the other side has one.
const SET_UP: &str = "
    CREATE TABLE IF NOT EXISTS items (pk text NOT NULL, id text NOT NULL, doc jsonb NOT NULL,
        seq bigint GENERATED ALWAYS AS IDENTITY, PRIMARY KEY (pk, id));
    CREATE INDEX IF NOT EXISTS items_doc ON items USING gin (doc jsonb_path_ops);
    CREATE INDEX IF NOT EXISTS items_seq ON items (seq);";

pub const READ: &str = "SELECT doc::text FROM items WHERE pk = $1 AND id = $2";
// Documents go as text, so that nothing is parsed on this side.
pub const CREATE: &str = "INSERT INTO items (pk, id, doc) VALUES ($1, $2, $3::text::jsonb)";
pub const UPSERT: &str = "INSERT INTO items (pk, id, doc) VALUES ($1, $2, $3::text::jsonb)
    ON CONFLICT (pk, id) DO UPDATE SET doc = EXCLUDED.doc";
pub const LOAD: &str = "INSERT INTO items (pk, id, doc)
    SELECT pk, id, doc::jsonb FROM unnest($1::text[], $2::text[], $3::text[]) AS new (pk, id, doc)";
const BY_CODE: &str = "SELECT doc::text FROM items WHERE doc @> $1 LIMIT 100";
const TOP10: &str = "SELECT doc::text FROM items ORDER BY (doc->>'rank')::float8 DESC LIMIT 10";
const PAGE: &str = "SELECT doc::text FROM items WHERE pk = $1 LIMIT 100";
const SCAN: &str = "SELECT doc::text FROM items WHERE pk = $1 AND id >= $2 ORDER BY id LIMIT $3";
const GROUP_BY: &str = "SELECT doc->>'status', count(*) FROM items GROUP BY 1";
const COUNT_BY_CODE: &str = "SELECT count(*) FROM items WHERE doc @> $1";
const COUNT_BY_LENGTH: &str = "SELECT count(*) FROM items WHERE length(doc->>'code') > 1000";
const CHANGES: &str = "SELECT seq, doc::text FROM items WHERE seq > $1 ORDER BY seq LIMIT 100";

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Session {
    pub async fn open(address: &str) -> Result<Self, String> {
        let (host, port) = address.split_once(':').ok_or("the address has no port")?;
        let options = format!("host={host} port={port} user=bench dbname=postgres");
        let (client, connection) = tokio_postgres::connect(&options, NoTls).await.map_err(text)?;
        // It ends with the client.
        tokio::spawn(async move { connection.await.ok() });
        Ok(Self { client, statements: HashMap::new(), changes: 0 })
    }

    pub async fn set_up(&mut self) -> Result<(), String> {
        self.client.batch_execute(SET_UP).await.map_err(text)
    }

    /// Lets the server do at once what it would do some time after loading: count, and put the index in order.
    pub async fn tidy(&mut self) -> Result<(), String> {
        self.client.batch_execute("VACUUM (ANALYZE) items").await.map_err(text)
    }

    async fn statement(&mut self, sql: &'static str) -> Result<Statement, String> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await.map_err(text)?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    async fn execute(&mut self, sql: &'static str, parameters: Parameters<'_>) -> Result<u64, String> {
        let statement = self.statement(sql).await?;
        self.client.execute(&statement, parameters).await.map_err(text)
    }

    async fn rows(
        &mut self,
        sql: &'static str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, String> {
        let statement = self.statement(sql).await?;
        self.client.query(&statement, parameters).await.map_err(text)
    }

    pub async fn load(&mut self, from: u64, to: u64) -> Result<(), String> {
        let mut next = from;
        while next < to {
            let end = (next + 100).min(to);
            let keys: Vec<String> = (next..end).map(key).collect();
            let ids: Vec<String> = (next..end).map(id).collect();
            let items: Vec<String> = (next..end).map(|number| item(number, 0)).collect();
            self.execute(LOAD, &[&keys, &ids, &items]).await?;
            next = end;
        }
        Ok(())
    }

    pub async fn perform(&mut self, operation: Operation) -> Result<(), String> {
        match operation {
            Operation::Create(number) => {
                self.execute(CREATE, &[&key(number), &id(number), &item(number, 0)]).await.map(|_| ())
            }
            Operation::ByCode(number) => {
                let wanted = Json(serde_json::json!({ "code": code(number) }));
                let rows = self.rows(BY_CODE, &[&wanted]).await?;
                check(rows.len() >= 10, || format!("{} rows by code", rows.len()))
            }
            Operation::Top10 => {
                let rows = self.rows(TOP10, &[]).await?;
                check(rows.len() == 10, || format!("{} rows of 10", rows.len()))
            }
            Operation::Page(number) => {
                let rows = self.rows(PAGE, &[&key(number)]).await?;
                check(rows.len() == 100, || format!("{} rows of 100", rows.len()))
            }
            Operation::Scan(number, length) => {
                let length = i64::try_from(length).unwrap_or(100);
                let rows = self.rows(SCAN, &[&key(number), &id(number), &length]).await?;
                check(!rows.is_empty(), || "an empty scan".to_owned())
            }
            Operation::GroupBy => {
                let rows = self.rows(GROUP_BY, &[]).await?;
                check(rows.len() == 8, || format!("{} groups of 8", rows.len()))
            }
            Operation::CountByCode(number) => {
                let wanted = Json(serde_json::json!({ "code": code(number) }));
                let rows = self.rows(COUNT_BY_CODE, &[&wanted]).await?;
                check(rows.len() == 1, || format!("{} counts of 1", rows.len()))
            }
            Operation::CountByLength => {
                let rows = self.rows(COUNT_BY_LENGTH, &[]).await?;
                check(rows.len() == 1, || format!("{} counts of 1", rows.len()))
            }
            Operation::Changes => {
                let rows = self.rows(CHANGES, &[&self.changes.clone()]).await?;
                self.changes = rows.last().map_or(0, |row| row.get(0));
                Ok(())
            }
            other => Err(format!("{other:?} is for the light generator")),
        }
    }
}

fn text(error: impl std::fmt::Display + std::fmt::Debug) -> String {
    format!("{error:?}")
}

fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
