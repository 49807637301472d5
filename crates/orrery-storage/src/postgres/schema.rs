//! Checks the server and the user's privileges, and creates or migrates the tables.

use tokio_postgres::error::SqlState;

use super::migrations::{self, SCHEMA_VERSION};
use super::options::{PostgresOptions, explain};
use super::pool::{Node, Session};
use super::server_error::ServerError;

/// The oldest supported server: PostgreSQL 15.
const SERVER_VERSION_MIN: i32 = 150_000;

/// Why a PostgreSQL store cannot be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PostgresError {
    /// A setting cannot be used, for example a certificate file that does not exist.
    #[error("{0}")]
    Options(String),
    /// No host accepted a connection in time.
    #[error("{place} cannot be reached: {detail}")]
    Unreachable { place: String, detail: String },
    /// The server rejected the user or the password.
    #[error("{place} rejects the user: {detail}")]
    Refused { place: String, detail: String },
    /// The server's certificate failed verification.
    #[error("{place} is not trusted: {detail}; set sslrootcert to the authority that signed its certificate")]
    Untrusted { place: String, detail: String },
    /// `max_connections` of the server, or the user's own limit, is exhausted.
    #[error(
        "{place} has no free connection: {detail}; raise max_connections, or lower pool_max in the store URLs"
    )]
    NoConnectionLeft { place: String, detail: String },
    /// Older than any version the tests cover.
    #[error("{place} is PostgreSQL {found}, but version 15 or later is required")]
    ServerTooOld { place: String, found: String },
    /// Only standbys were reachable.
    #[error("{place} is a read-only standby: put the primary, or all hosts of the cluster, into the URL")]
    ReadOnly { place: String },
    #[error(
        "{place} was created by a newer version of Orrery: its tables have version {found}, but this program supports {known}"
    )]
    SchemaTooNew { place: String, found: i32, known: i32 },
    /// The schema is missing and the caller does not create it.
    #[error("{place} has no Orrery tables yet: create them with \"orrery store init\"")]
    NoSchema { place: String },
    /// The user lacks a table privilege or may not create tables.
    #[error("{place}: the user lacks a privilege: {detail}")]
    MissingRight { place: String, detail: String },
    #[error(
        "{place} accepts {allowed} connections, but the pool may need {needed}: lower pool_max in the store URL or raise max_connections"
    )]
    TooFewConnections { place: String, allowed: i64, needed: i64 },
    /// Any other error of the server.
    #[error("{place}: {detail}")]
    Failed { place: String, detail: String },
}

/// Properties of the server that affect the schema.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub version: String,
    pub citus: Option<String>,
}

/// Checks the server's version, role and connection limit.
pub(super) async fn check_server(node: &Node, options: &PostgresOptions) -> Result<Server, PostgresError> {
    let place = options.place();
    let session = connect(node, options).await?;
    let failed =
        |fault: ServerError| PostgresError::Failed { place: place.clone(), detail: fault.text().to_owned() };
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
        return Err(PostgresError::Failed { place, detail: "it did not report its version".to_owned() });
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
    // Refusing to start is better than failing under load.
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
        // `read_only_sql_transaction`, which a standby reports.
        "25006" => PostgresError::ReadOnly { place },
        // The client library's own error, which has no code: none of the hosts is a primary.
        _ if detail.contains("does not allow writes") => PostgresError::ReadOnly { place },
        // A wrong password, or a user that pg_hba.conf rejects.
        "28P01" | "28000" => PostgresError::Refused { place, detail },
        // `too_many_connections`.
        "53300" => PostgresError::NoConnectionLeft { place, detail },
        // Has no code either: the text is that of rustls.
        _ if detail.contains("invalid peer certificate") => PostgresError::Untrusted { place, detail },
        _ => PostgresError::Unreachable { place, detail },
    })
}

/// Turns a failed statement into an error with advice.
fn refusal(place: &str, fault: &ServerError) -> PostgresError {
    let place = place.to_owned();
    match fault.text().strip_prefix("the user lacks a privilege: ") {
        Some(detail) => PostgresError::MissingRight {
            place,
            detail: format!(
                "{detail}; grant CREATE on the database, or let its owner run \"orrery store init\" and grant the rest"
            ),
        },
        None => PostgresError::Failed { place, detail: fault.text().to_owned() },
    }
}

/// Checks that the user has all privileges that serving needs, so that a missing one is reported now and not at the
/// first write.
pub(super) async fn check_rights(node: &Node, options: &PostgresOptions) -> Result<(), PostgresError> {
    let place = options.place();
    let failed = |fault: ServerError| refusal(&place, &fault);
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

/// The schema version of the existing tables; 0 = there are none.
pub(super) async fn version(node: &Node, options: &PostgresOptions) -> Result<i32, PostgresError> {
    let place = options.place();
    let failed = |fault: ServerError| refusal(&place, &fault);
    let session = node.session().await.map_err(failed)?;
    // `to_regclass` is null where the table does not exist; a query on it would fail.
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
    // Older tables are migrated; newer ones may mean anything.
    if found > SCHEMA_VERSION {
        return Err(PostgresError::SchemaTooNew { place, found, known: SCHEMA_VERSION });
    }
    Ok(found)
}

/// Creates or migrates the tables. One process does it at a time; the others then find it done.
pub(super) async fn migrate(
    node: &Node,
    options: &PostgresOptions,
    server: &Server,
) -> Result<i32, PostgresError> {
    let place = options.place();
    let explain = |fault: ServerError| refusal(&place, &fault);
    let session = node.session().await.map_err(explain)?;
    let schema = &options.schema;
    // Distributing tables can take long on a busy cluster.
    session
        .run_untimed(&format!(
            "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
             SELECT pg_advisory_lock(hashtextextended('orrery:{schema}:migrate', 0))"
        ))
        .await
        .map_err(explain)?;
    // Read again under the lock: another process may have migrated in the meantime.
    let found = version(node, options).await?;
    for statement in migrations::from_version(found, options, server) {
        session.run_untimed(&statement).await.map_err(explain)?;
    }
    // Close the connection instead of returning it: its settings and its lock must not outlive this.
    drop(session);
    Ok(found)
}
