//! The server's TLS certificate: the user's own, or one generated on first start and stored.
//!
//! The generated one is issued by a single-use certificate authority, whose key is discarded after signing. Users can
//! import the authority as a trust anchor (Java, .NET, Go, OpenSSL and rustls all accept that, while some reject a
//! self-signed server certificate), and a stolen data directory cannot be used to issue further certificates that they
//! trust.
//!
//! The certificate can be replaced while serving ([`CurrentCertificate`]): connections that are open keep theirs, new
//! ones get the new one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::RwLock;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};

use crate::durable_file::{self, Access};

/// Names by which a local server can always be reached.
pub const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Apple's platforms refuse server certificates that are valid for more than 825 days.
const VALID_DAYS: u64 = 820;
/// A stored certificate is replaced when it expires within this time.
const RENEW_DAYS: u64 = 14;
const DAY_SECONDS: u64 = 86_400;

/// The certificate, ready to serve.
#[derive(Clone)]
pub struct ServerCertificate {
    pub tls: Arc<ServerConfig>,
    pub current: Arc<CurrentCertificate>,
    /// Whether it is new, so that earlier imports are no longer valid.
    pub is_new: bool,
}

/// The certificate that new connections get.
#[derive(Debug)]
pub struct CurrentCertificate(RwLock<Presented>);

#[derive(Debug)]
struct Presented {
    key: Arc<CertifiedKey>,
    trust_pem: String,
}

impl CurrentCertificate {
    /// What clients import to trust this server, as PEM. Never a private key.
    pub fn trust_pem(&self) -> String {
        self.0.read().trust_pem.clone()
    }

    /// Reads the user's files again; returns whether they contain another certificate. Files that cannot be used change
    /// nothing.
    pub fn reload(&self, certificate: &Path, key: &Path) -> Result<bool, CertificateError> {
        let new = Pair::read(certificate, key)?.presented(certificate, Origin::User)?;
        // Read and checked before the lock is taken: handshakes wait only for the exchange.
        let mut current = self.0.write();
        let is_other = current.key.cert != new.key.cert;
        *current = new;
        Ok(is_other)
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().key))
    }
}

/// What clients must offer in a handshake.
#[derive(Clone, Debug, Default)]
pub struct TlsPolicy {
    /// Refuse TLS 1.2.
    pub only_tls13: bool,
    /// A PEM file with the authorities that issue client certificates. Without it clients need none.
    pub client_authorities: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: String },
    #[error("{} cannot be written: {error}", path.display())]
    Unwritable { path: PathBuf, error: io::Error },
    #[error("{} contains no PEM certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} contains no PEM private key", .0.display())]
    NoKey(PathBuf),
    #[error("the certificate {} and its key cannot be used: {error}", path.display())]
    Unusable { path: PathBuf, error: rustls::Error },
    #[error("\"{0}\" is neither a host name nor an IP address for a certificate")]
    Name(String),
    #[error("cannot generate a certificate: {0}")]
    Generate(String),
}

/// The user's certificate chain (the server's first) and private key.
pub fn load(
    certificate: &Path,
    key: &Path,
    policy: &TlsPolicy,
) -> Result<ServerCertificate, CertificateError> {
    Pair::read(certificate, key)?.into_server(certificate, Origin::User, policy)
}

/// The certificate stored in `directory` as `cert.pem` and `key.pem`. It is replaced if it is missing, damaged, about
/// to expire or issued for other names.
pub fn load_or_create(
    directory: &Path,
    names: &[String],
    now_seconds: i64,
    policy: &TlsPolicy,
) -> Result<ServerCertificate, CertificateError> {
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    match Pair::read(&certificate, &key) {
        Ok(kept) if kept.is_good_for(names, now_seconds) => {
            if let Ok(server) = kept.into_server(&certificate, Origin::Kept, policy) {
                return Ok(server);
            }
            tracing::warn!("the stored certificate and key do not match; replacing them");
        }
        Ok(_) => tracing::info!("the stored certificate has expired or lacks a name; replacing it"),
        Err(error) if certificate.exists() => tracing::warn!(%error, "replacing the stored certificate"),
        // The first start: there is nothing to replace, and nothing to warn of.
        Err(_) => {}
    }
    let made = Pair::make(names, now_seconds)?;
    // Write the key first: a certificate without its key counts as damaged and is replaced.
    write_file(&key, &made.key_pem, true)?;
    write_file(&certificate, &made.chain_pem, false)?;
    made.into_server(&certificate, Origin::Made, policy)
}

/// A certificate that is not stored, for in-memory servers.
pub fn create(
    names: &[String],
    now_seconds: i64,
    policy: &TlsPolicy,
) -> Result<ServerCertificate, CertificateError> {
    Pair::make(names, now_seconds)?.into_server(Path::new("in memory"), Origin::Made, policy)
}

/// A certificate chain and the key of its first certificate.
struct Pair {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    chain_pem: String,
    key_pem: String,
}

impl Pair {
    fn read(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let read = |path: &Path| {
            fs::read_to_string(path)
                .map_err(|error| CertificateError::Unreadable { path: path.into(), error: error.to_string() })
        };
        let (chain_pem, key_pem) = (read(certificate)?, read(key)?);
        let chain =
            CertificateDer::pem_slice_iter(chain_pem.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(
                |error| CertificateError::Unreadable { path: certificate.into(), error: error.to_string() },
            )?;
        if chain.is_empty() {
            return Err(CertificateError::NoCertificate(certificate.into()));
        }
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(|_| CertificateError::NoKey(key.into()))?;
        Ok(Self { chain, key, chain_pem, key_pem })
    }

    fn make(names: &[String], now_seconds: i64) -> Result<Self, CertificateError> {
        let failed = |error: rcgen::Error| CertificateError::Generate(error.to_string());
        if let Some(name) = names.iter().find(|name| ServerName::try_from(name.as_str()).is_err()) {
            return Err(CertificateError::Name(name.clone()));
        }
        let now = u64::try_from(now_seconds).unwrap_or(0);
        let at = |seconds: u64| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        // The authority's key exists only within this function.
        let authority_key = KeyPair::generate().map_err(failed)?;
        let server_key = KeyPair::generate().map_err(failed)?;

        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "Orrery local authority");
        // Constrained to leaves: it could not issue a further authority even if its key had been kept.
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // Valid from a day ago, because the clocks of containers and hosts differ.
        authority.not_before = at(now.saturating_sub(DAY_SECONDS));
        authority.not_after = at(now + VALID_DAYS * DAY_SECONDS);

        // The names go into the subject alternative names; the common name is only shown to people.
        let mut server = CertificateParams::new(names).map_err(failed)?;
        let common_name = names.first().map_or("localhost", String::as_str);
        server.distinguished_name.push(DnType::CommonName, common_name);
        server.is_ca = IsCa::ExplicitNoCa;
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // Lets clients find the right anchor among several authorities with the same name, as after a renewal.
        server.use_authority_key_identifier_extension = true;
        server.not_before = authority.not_before;
        server.not_after = authority.not_after;

        let authority_certificate = authority.self_signed(&authority_key).map_err(failed)?;
        let issuer = Issuer::new(authority, authority_key);
        let certificate = server.signed_by(&server_key, &issuer).map_err(failed)?;
        let key_pem = server_key.serialize_pem();
        Ok(Self {
            // The leaf first, then its issuer, as TLS sends a chain.
            chain_pem: format!("{}{}", certificate.pem(), authority_certificate.pem()),
            chain: vec![certificate.der().clone(), authority_certificate.der().clone()],
            key: PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
                .map_err(|error| CertificateError::Generate(error.to_string()))?,
            key_pem,
        })
    }

    /// Whether a client that trusts the last certificate would accept the first for all these names, now and
    /// for some time.
    fn is_good_for(&self, names: &[String], now_seconds: i64) -> bool {
        // A single certificate does not match: it would be self-signed, or lack its issuer.
        let [server, .., authority] = self.chain.as_slice() else { return false };
        let mut roots = RootCertStore::empty();
        if roots.add(authority.clone()).is_err() {
            return false;
        }
        let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build()
        else {
            return false;
        };
        let now = u64::try_from(now_seconds).unwrap_or(0);
        // Asks a client's verifier (webpki) instead of comparing dates and names here.
        [now, now + RENEW_DAYS * DAY_SECONDS].into_iter().all(|seconds| {
            let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            names.iter().all(|name| {
                ServerName::try_from(name.as_str())
                    .is_ok_and(|name| verifier.verify_server_cert(server, &[], &name, &[], time).is_ok())
            })
        })
    }

    fn into_server(
        self,
        path: &Path,
        origin: Origin,
        policy: &TlsPolicy,
    ) -> Result<ServerCertificate, CertificateError> {
        let current = Arc::new(CurrentCertificate(RwLock::new(self.presented(path, origin)?)));
        let versions: &[_] = if policy.only_tls13 { &[&TLS13] } else { &[&TLS13, &TLS12] };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .map_err(|error| CertificateError::Unusable { path: path.into(), error })?;
        let builder = match &policy.client_authorities {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let unusable = |error: String| CertificateError::Unreadable { path: file.clone(), error };
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(read_roots(file)?), provider());
                builder
                    .with_client_cert_verifier(verifier.build().map_err(|error| unusable(error.to_string()))?)
            }
        };
        // Resolved at each handshake, so a reloaded certificate needs no new listener.
        let mut config = builder.with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(ServerCertificate { tls: Arc::new(config), current, is_new: origin == Origin::Made })
    }

    fn presented(self, path: &Path, origin: Origin) -> Result<Presented, CertificateError> {
        // Re-encoded from the certificates, because the user's file may contain the private key as well.
        let trust_pem = match origin {
            Origin::User => self.chain.iter().map(|certificate| print_pem(certificate)).collect(),
            Origin::Kept | Origin::Made => self.chain.last().map_or_else(String::new, |last| print_pem(last)),
        };
        let key = CertifiedKey::from_der(self.chain, self.key, &provider())
            .map_err(|error| CertificateError::Unusable { path: path.into(), error })?;
        Ok(Presented { key: Arc::new(key), trust_pem })
    }
}

/// The authorities in a PEM file.
fn read_roots(path: &Path) -> Result<RootCertStore, CertificateError> {
    let unreadable = |error: String| CertificateError::Unreadable { path: path.into(), error };
    let text = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
    }
    if roots.is_empty() { Err(CertificateError::NoCertificate(path.into())) } else { Ok(roots) }
}

/// The origin of a certificate, which determines what clients should trust: the user's whole chain, or the authority at
/// the end of our own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    User,
    Kept,
    Made,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn print_pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = String::with_capacity(text.len() + text.len() / 64 + 64);
    pem.push_str("-----BEGIN CERTIFICATE-----\n");
    // RFC 7468 wraps at 64 characters.
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|byte| char::from(*byte)));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

/// Writes a file atomically; a secret one is readable only by its owner from the start.
fn write_file(path: &Path, text: &str, secret: bool) -> Result<(), CertificateError> {
    let failed = |error| CertificateError::Unwritable { path: path.into(), error };
    let access = if secret { Access::Owner } else { Access::Everyone };
    durable_file::write(path, text.as_bytes(), access).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_000_000;

    fn names(extra: &[&str]) -> Vec<String> {
        LOCAL_NAMES.iter().chain(extra).map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_made_certificate_is_kept_and_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let first = load_or_create(directory.path(), &names(&[]), NOW, &TlsPolicy::default()).unwrap();
        assert!(first.is_new);
        assert!(first.current.trust_pem().starts_with("-----BEGIN CERTIFICATE-----\n"));
        assert_eq!(first.current.trust_pem().matches("BEGIN").count(), 1);
        let second =
            load_or_create(directory.path(), &names(&[]), NOW + 1000, &TlsPolicy::default()).unwrap();
        assert!(!second.is_new);
        assert_eq!(first.current.trust_pem(), second.current.trust_pem());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |name: &str| fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode("key.pem") & 0o777, 0o600);
        }
    }

    #[test]
    fn an_unfit_certificate_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let first = load_or_create(directory.path(), &names(&[]), NOW, &TlsPolicy::default()).unwrap();
        let named =
            load_or_create(directory.path(), &names(&["db.example"]), NOW, &TlsPolicy::default()).unwrap();
        assert!(named.is_new && named.current.trust_pem() != first.current.trust_pem());
        // Fewer names are no reason to replace it.
        assert!(!load_or_create(directory.path(), &names(&[]), NOW, &TlsPolicy::default()).unwrap().is_new);
        let nearly_over = NOW + 810 * 86_400;
        assert!(
            load_or_create(directory.path(), &names(&[]), nearly_over, &TlsPolicy::default()).unwrap().is_new
        );
        assert!(
            !load_or_create(directory.path(), &names(&[]), nearly_over, &TlsPolicy::default())
                .unwrap()
                .is_new
        );

        fs::write(directory.path().join("cert.pem"), "damaged").unwrap();
        assert!(
            load_or_create(directory.path(), &names(&[]), nearly_over, &TlsPolicy::default()).unwrap().is_new
        );
        let other = tempfile::tempdir().unwrap();
        load_or_create(other.path(), &names(&[]), nearly_over, &TlsPolicy::default()).unwrap();
        fs::copy(other.path().join("key.pem"), directory.path().join("key.pem")).unwrap();
        assert!(
            load_or_create(directory.path(), &names(&[]), nearly_over, &TlsPolicy::default()).unwrap().is_new
        );
    }

    #[test]
    fn a_users_certificate_is_taken_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let made = Pair::make(&names(&[]), NOW).unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("both.pem"), format!("{}{}", made.key_pem, made.chain_pem)).unwrap();
        let loaded = load(&path("both.pem"), &path("both.pem"), &TlsPolicy::default()).unwrap();
        assert!(!loaded.is_new);
        assert_eq!(loaded.current.trust_pem().matches("BEGIN CERTIFICATE").count(), 2);
        assert!(!loaded.current.trust_pem().contains("PRIVATE"));
    }

    #[test]
    fn unusable_files_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (one, two) = (Pair::make(&names(&[]), NOW).unwrap(), Pair::make(&names(&[]), NOW).unwrap());
        fs::write(path("cert.pem"), &one.chain_pem).unwrap();
        fs::write(path("key.pem"), &two.key_pem).unwrap();
        fs::write(path("empty.pem"), "").unwrap();
        let message = |certificate: &str, key: &str| {
            load(&path(certificate), &path(key), &TlsPolicy::default())
                .err()
                .expect("it must not load")
                .to_string()
        };
        assert!(message("missing.pem", "key.pem").contains("missing.pem cannot be read"));
        assert!(message("empty.pem", "key.pem").contains("empty.pem contains no PEM certificate"));
        assert!(message("cert.pem", "empty.pem").contains("empty.pem contains no PEM private key"));
        assert!(message("cert.pem", "key.pem").contains("cannot be used"));
    }

    #[test]
    fn another_certificate_is_taken_while_serving() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let store = |pair: &Pair| {
            fs::write(path("cert.pem"), &pair.chain_pem).unwrap();
            fs::write(path("key.pem"), &pair.key_pem).unwrap();
        };
        store(&Pair::make(&names(&[]), NOW).unwrap());
        let server = load(&path("cert.pem"), &path("key.pem"), &TlsPolicy::default()).unwrap();
        let (first, reload) =
            (server.current.trust_pem(), || server.current.reload(&path("cert.pem"), &path("key.pem")));
        assert!(!reload().unwrap());
        // A certificate whose key is not there yet changes nothing.
        let other = Pair::make(&names(&[]), NOW).unwrap();
        fs::write(path("cert.pem"), &other.chain_pem).unwrap();
        assert!(reload().is_err());
        assert_eq!(server.current.trust_pem(), first);
        store(&other);
        assert!(reload().unwrap());
        assert_ne!(server.current.trust_pem(), first);
    }

    #[test]
    fn names_must_fit_into_a_certificate() {
        let error = create(&names(&["not a name"]), NOW, &TlsPolicy::default()).err().unwrap();
        assert!(matches!(error, CertificateError::Name(name) if name == "not a name"));
    }
}
