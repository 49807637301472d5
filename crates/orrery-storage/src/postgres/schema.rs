//! What the server must offer, and the version of the tables that are there.

use tokio_postgres::error::SqlState;

use super::fault::Fault;
use super::migrations::{self, SCHEMA_VERSION};
use super::options::{PostgresOptions, explain};
use super::pool::{Node, Session};

/// PostgreSQL 15.
const SERVER_VERSION_MIN: i32 = 150_000;

/// Why a store on PostgreSQL cannot be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PostgresError {
    #[error("{0}")]
    Options(String),
    #[error("{place} cannot be reached: {detail}")]
    Unreachable { place: String, detail: String },
    #[error("{place} refuses the user: {detail}")]
    Refused { place: String, detail: String },
    #[error(
        "{place} cannot be trusted: {detail}; name the authority that signed its certificate in sslrootcert"
    )]
    Untrusted { place: String, detail: String },
    #[error(
        "{place} has no connection left: {detail}; raise max_connections, or lower pool_max in the store URLs"
    )]
    NoConnectionLeft { place: String, detail: String },
    #[error("{place} is PostgreSQL {found}: version 15 or later is needed")]
    ServerTooOld { place: String, found: String },
    #[error("{place} is a read-only standby: name the primary, or all hosts of the cluster")]
    ReadOnly { place: String },
    #[error(
        "{place} was made by a newer version of Orrery: its tables have version {found}, this program knows {known}"
    )]
    SchemaTooNew { place: String, found: i32, known: i32 },
    #[error("{place} has no tables of Orrery yet: create them with \"orrery store init\"")]
    NoSchema { place: String },
    #[error("{place}: the user lacks a right: {detail}")]
    MissingRight { place: String, detail: String },
    #[error(
        "{place} takes {allowed} connections, and the pool may need {needed}: lower pool_max in the store URL or raise max_connections"
    )]
    TooFewConnections { place: String, allowed: i64, needed: i64 },
    #[error("{place}: {detail}")]
    Failed { place: String, detail: String },
}

/// What was found at the server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub version: String,
    pub citus: Option<String>,
}

/// Looks at the server: version, role, connections.
pub(super) async fn check_server(node: &Node, options: &PostgresOptions) -> Result<Server, PostgresError> {
    let place = options.place();
    let session = connect(node, options).await?;
    let failed =
        |fault: Fault| PostgresError::Failed { place: place.clone(), detail: fault.text().to_owned() };
    let rows = session
        .query(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::int, \
               pg_is_in_recovery(), \
               current_setting('max_connections')::bigint \
                 - current_setting('superuser_reserved_connections')::bigint, \
               (SELECT extversion FROM pg_extension WHERE extname = 'citus')",
            &[],
        )
        .await
        .map_err(failed)?;
    session.release();
    let Some(row) = rows.first() else {
        return Err(PostgresError::Failed { place, detail: "it says nothing about itself".to_owned() });
    };
    let version: String = row.get(0);
    if row.get::<_, i32>(1) < SERVER_VERSION_MIN {
        return Err(PostgresError::ServerTooOld { place, found: version });
    }
    if row.get(2) {
        return Err(PostgresError::ReadOnly { place });
    }
    let needed = i64::try_from(options.connections_max).unwrap_or(i64::MAX);
    let allowed: i64 = row.get(3);
    if allowed < needed {
        return Err(PostgresError::TooFewConnections { place, allowed, needed });
    }
    Ok(Server { version, citus: row.get(4) })
}

async fn connect(node: &Node, options: &PostgresOptions) -> Result<Session, PostgresError> {
    let place = options.place();
    let error = match node.connect_once().await {
        Ok(session) => return Ok(session),
        Err(deadpool_postgres::PoolError::Backend(error)) => error,
        Err(error) => return Err(PostgresError::Unreachable { place, detail: explain(&error) }),
    };
    let detail = explain(&error);
    let code = error.code().map_or("", SqlState::code);
    Err(match code {
        "25006" => PostgresError::ReadOnly { place },
        _ if detail.contains("does not allow writes") => PostgresError::ReadOnly { place },
        "28P01" | "28000" => PostgresError::Refused { place, detail },
        "53300" => PostgresError::NoConnectionLeft { place, detail },
        _ if detail.contains("invalid peer certificate") => PostgresError::Untrusted { place, detail },
        _ => PostgresError::Unreachable { place, detail },
    })
}

/// What a failed statement means for whoever opens the store.
fn refusal(place: &str, fault: &Fault) -> PostgresError {
    let place = place.to_owned();
    match fault.text().strip_prefix("the user lacks a right: ") {
        Some(detail) => PostgresError::MissingRight {
            place,
            detail: format!(
                "{detail}; grant CREATE on the database, or let its owner run \"orrery store init\" and grant the rest"
            ),
        },
        None => PostgresError::Failed { place, detail: fault.text().to_owned() },
    }
}

/// Whether the user may do everything that serving needs, so that it is said now and not at the first write.
pub(super) async fn check_rights(node: &Node, options: &PostgresOptions) -> Result<(), PostgresError> {
    let place = options.place();
    let failed = |fault: Fault| refusal(&place, &fault);
    let session = node.session().await.map_err(failed)?;
    let rows = session
        .query(
            "SELECT string_agg(r || ' on ' || t, ', ' ORDER BY t, r) \
             FROM unnest(ARRAY['part', 'kv', 'member']) t, \
               unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r \
             WHERE NOT has_table_privilege(t, r)",
            &[],
        )
        .await
        .map_err(failed)?;
    session.release();
    match rows.first().and_then(|row| row.get::<_, Option<String>>(0)) {
        Some(missing) => Err(PostgresError::MissingRight { place, detail: format!("it has no {missing}") }),
        None => Ok(()),
    }
}

/// The version of the tables that are there; 0 = none.
pub(super) async fn version(node: &Node, options: &PostgresOptions) -> Result<i32, PostgresError> {
    let place = options.place();
    let failed = |fault: Fault| refusal(&place, &fault);
    let session = node.session().await.map_err(failed)?;
    let there = session
        .query("SELECT to_regclass($1::text) IS NOT NULL", &[&format!("{}.meta", options.schema)])
        .await
        .map_err(failed)?;
    let mut found = 0;
    if there.first().is_some_and(|row| row.get(0)) {
        let rows = session.query("SELECT value::int FROM meta WHERE name = 'schema_version'", &[]).await;
        found = rows.map_err(failed)?.first().map_or(0, |row| row.get(0));
    }
    session.release();
    if found > SCHEMA_VERSION {
        return Err(PostgresError::SchemaTooNew { place, found, known: SCHEMA_VERSION });
    }
    Ok(found)
}

/// Makes the tables, or brings older ones up to date. One process does it at a time; the rest find it done.
pub(super) async fn migrate(
    node: &Node,
    options: &PostgresOptions,
    server: &Server,
) -> Result<i32, PostgresError> {
    let place = options.place();
    let explain = |fault: Fault| refusal(&place, &fault);
    let session = node.session().await.map_err(explain)?;
    let schema = &options.schema;
    // Distributing tables takes its time on a busy cluster.
    session
        .run_patiently(&format!(
            "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
             SELECT pg_advisory_lock(hashtextextended('orrery:{schema}:migrate', 0))"
        ))
        .await
        .map_err(explain)?;
    let found = version(node, options).await?;
    for statement in migrations::from_version(found, options, server) {
        session.run_patiently(&statement).await.map_err(explain)?;
    }
    // The connection is closed rather than given back: its settings and its lock go with it.
    drop(session);
    Ok(found)
}
