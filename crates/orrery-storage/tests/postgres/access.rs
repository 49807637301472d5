//! Access control: libpq's TLS modes, passwords, privileges, connection limits. Uses one server with its own
//! certificates.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use orrery_storage::{PostgresError, ReadRequest};
use orrery_testing::{Server, wait};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use super::*;
use crate::suite::{PARTITION, put};

const PASSWORD: &str = "a-very-long-secret";

/// A certificate authority and a server certificate for `localhost`, as PEM: authority, certificate, key.
fn certificates() -> [String; 3] {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let root = authority.self_signed(&authority_key).unwrap().pem();
    let mut own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    own.use_authority_key_identifier_extension = true;
    let certificate = own.signed_by(&key, &Issuer::new(authority, authority_key)).unwrap();
    [root, certificate.pem(), key.serialize_pem()]
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Files for the server, which may run as a different user than the tests.
fn give(data: &Path, name: &str, text: &str) {
    use std::os::unix::fs::MetadataExt;
    let path = data.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let owner = fs::metadata(data).unwrap();
    std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

async fn opened(url: &str) -> Result<Postgres, PostgresError> {
    Postgres::open(PostgresOptions::parse(url).unwrap()).await
}

/// Whether the connections with this application name are encrypted; `None` = there are none.
async fn is_encrypted(admin: &tokio_postgres::Client, name: &str) -> Option<bool> {
    let text = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
         WHERE a.application_name = $1";
    admin.query_one(text, &[&name]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_modes_passwords_and_privileges() {
    let directory = tempfile::Builder::new().prefix("orrery-tls").tempdir_in("/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start_with_port(&directory.path().join("pg"));
    let admin = connect(server.url()).await;
    let [root, certificate, key] = certificates();
    let [other_root, ..] = certificates();
    let root_file = directory.path().join("root.pem");
    let other_file = directory.path().join("other.pem");
    fs::write(&root_file, root).unwrap();
    fs::write(&other_file, other_root).unwrap();
    let data = server.directory().join("data");
    give(&data, "server.crt", &certificate);
    give(&data, "server.key", &key);
    let rules = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\nhost all plain 127.0.0.1/32 scram-sha-256\n";
    give(&data, "pg_hba.conf", rules);
    admin
        .batch_execute(&format!(
            "SET password_encryption = 'scram-sha-256'; \
             CREATE ROLE gateway LOGIN PASSWORD '{PASSWORD}'; CREATE ROLE plain LOGIN PASSWORD '{PASSWORD}'; \
             GRANT CREATE ON DATABASE postgres TO gateway, plain"
        ))
        .await
        .unwrap();
    let kept = admin
        .query_one("SELECT bool_and(rolpassword LIKE 'SCRAM-SHA-256$%') FROM pg_authid WHERE rolpassword IS NOT NULL", &[])
        .await
        .unwrap();
    assert!(kept.get::<_, bool>(0));
    let reload = async || {
        admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    };
    reload().await;
    let port = server.port().unwrap();
    let url = |user: &str, host: &str, rest: &str| {
        format!("postgres://{user}:{PASSWORD}@{host}:{port}/postgres?schema=s_{user}&{rest}")
    };
    // The server applies reloaded settings a moment after it replies.
    let eventually = async |url: String| wait::eventually(&url, async || opened(&url).await.ok()).await;

    // A server without TLS: `prefer` connects in plain text, `require` fails.
    let store = eventually(url("plain", "127.0.0.1", "sslmode=prefer&application_name=before")).await;
    assert_eq!(is_encrypted(&admin, "before").await, Some(false));
    store.close().await.unwrap();
    let error = opened(&url("plain", "127.0.0.1", "sslmode=require")).await.err().unwrap();
    assert!(
        matches!(error, PostgresError::Unreachable { .. }) && error.to_string().contains("TLS"),
        "{error}"
    );

    // The same server with TLS.
    admin.batch_execute("ALTER SYSTEM SET ssl = on").await.unwrap();
    reload().await;
    let (right, wrong) = (root_file.to_str().unwrap(), other_file.to_str().unwrap());
    drop(eventually(url("gateway", "127.0.0.1", "sslmode=require")).await);
    let expectations = [
        ("plain", "127.0.0.1", "sslmode=disable".to_owned(), Ok(false)),
        ("gateway", "127.0.0.1", "sslmode=disable".to_owned(), Err("rejects the user")),
        ("gateway", "127.0.0.1", String::new(), Ok(true)),
        ("gateway", "127.0.0.1", "sslmode=prefer".to_owned(), Ok(true)),
        ("gateway", "127.0.0.1", "sslmode=require".to_owned(), Ok(true)),
        ("gateway", "127.0.0.1", format!("sslmode=require&sslrootcert={right}"), Ok(true)),
        ("gateway", "127.0.0.1", format!("sslmode=require&sslrootcert={wrong}"), Err("is not trusted")),
        ("gateway", "127.0.0.1", format!("sslmode=verify-ca&sslrootcert={right}"), Ok(true)),
        ("gateway", "127.0.0.1", format!("sslmode=verify-ca&sslrootcert={wrong}"), Err("is not trusted")),
        // The certificate is for another host name.
        ("gateway", "127.0.0.1", format!("sslmode=verify-full&sslrootcert={right}"), Err("is not trusted")),
        ("gateway", "localhost", format!("sslmode=verify-full&sslrootcert={right}"), Ok(true)),
        ("gateway", "localhost", format!("sslmode=verify-full&sslrootcert={wrong}"), Err("is not trusted")),
        (
            "gateway",
            "localhost",
            "sslmode=verify-full&sslrootcert=/none.pem".to_owned(),
            Err("cannot read the root certificates"),
        ),
    ];
    for (at, (user, host, rest, expected)) in expectations.into_iter().enumerate() {
        let name = format!("case{at}");
        let outcome = opened(&url(user, host, &format!("{rest}&application_name={name}"))).await;
        match (outcome, expected) {
            (Ok(store), Ok(encrypted)) => {
                assert_eq!(is_encrypted(&admin, &name).await, Some(encrypted), "{host} {rest}");
                store.close().await.unwrap();
            }
            (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{host} {rest}: {error}"),
            (Ok(_), Err(_)) => panic!("{host} {rest} was let in"),
            (Err(error), Ok(_)) => panic!("{host} {rest}: {error}"),
        }
    }

    // A wrong password, which no message repeats.
    let wrong_password = url("gateway", "127.0.0.1", "sslmode=require").replace(PASSWORD, "another-secret");
    let error = opened(&wrong_password).await.err().unwrap();
    assert!(matches!(error, PostgresError::Refused { .. }), "{error}");
    assert!(!error.to_string().contains("another-secret"));

    // The user's connection limit is exhausted.
    admin.batch_execute("ALTER ROLE gateway CONNECTION LIMIT 0").await.unwrap();
    let error = opened(&url("gateway", "127.0.0.1", "")).await.err().unwrap();
    assert!(matches!(error, PostgresError::NoConnectionLeft { .. }), "{error}");
    admin.batch_execute("ALTER ROLE gateway CONNECTION LIMIT -1").await.unwrap();

    // A user with read privileges only.
    admin
        .batch_execute(&format!(
            "CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'; GRANT USAGE ON SCHEMA s_gateway TO reader; \
             GRANT SELECT ON ALL TABLES IN SCHEMA s_gateway TO reader"
        ))
        .await
        .unwrap();
    let reader = url("reader", "127.0.0.1", "").replace("s_reader", "s_gateway");
    let error = opened(&reader).await.err().unwrap();
    assert!(matches!(error, PostgresError::MissingRight { .. }), "{error}");
    assert!(error.to_string().contains("INSERT on kv"), "{error}");
    // The privileges listed in docs/deploy.md are sufficient.
    admin
        .batch_execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA s_gateway TO reader")
        .await
        .unwrap();
    let store: Arc<dyn PartitionStore> = Arc::new(opened(&reader).await.unwrap());
    store.create(PARTITION.id, 0).await.unwrap();
    put(&store, b"key", b"value").await;
    store.close().await.unwrap();

    // The pool never exceeds its limit.
    let limited: Arc<dyn PartitionStore> =
        Arc::new(opened(&url("gateway", "127.0.0.1", "pool_max=3&application_name=limited")).await.unwrap());
    let readers: Vec<_> = (0..60)
        .map(|_| {
            let store = Arc::clone(&limited);
            tokio::spawn(async move {
                store.read(PARTITION, ReadRequest::Get(vec![b"key".to_vec()])).await.unwrap();
            })
        })
        .collect();
    let mut most = 0;
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'limited'";
    while !readers.iter().all(tokio::task::JoinHandle::is_finished) {
        most = most.max(admin.query_one(count, &[]).await.unwrap().get::<_, i64>(0));
    }
    for reader in readers {
        reader.await.unwrap();
    }
    // The request connections plus the listener; no snapshot was taken.
    assert!(most <= 4, "{most} connections");
    limited.close().await.unwrap();
}
