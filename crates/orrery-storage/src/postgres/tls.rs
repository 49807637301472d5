//! TLS connections with rustls. Channel binding is not offered: SCRAM proves the password inside the encrypted
//! connection, and `verify-full` authenticates the server.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};

use super::options::{TlsChoice, Verify};

/// Creates TLS streams for the client library.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>);

pub(super) struct Connect {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

pub(super) struct Stream(tokio_rustls::client::TlsStream<Socket>);

impl Tls {
    /// `None` = connections are not encrypted.
    pub(super) fn new(choice: &TlsChoice) -> Result<Option<Self>, String> {
        if choice.mode == Verify::Disabled {
            return Ok(None);
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be used: {error}"))?;
        let verifier: Arc<dyn ServerCertVerifier> = match choice.mode {
            // `Disabled` has returned above; the arm only keeps the match exhaustive.
            Verify::Disabled | Verify::Nothing => Arc::new(Lenient { inner: None, provider }),
            Verify::Authority | Verify::Full => {
                let roots = Arc::new(roots(choice)?);
                let inner = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                    .build()
                    .map_err(|error| format!("the root certificates cannot be used: {error}"))?;
                // `verify-ca` accepts any host name, as in libpq, so only `verify-full` uses the plain verifier.
                if choice.mode == Verify::Full {
                    inner
                } else {
                    Arc::new(Lenient { inner: Some(inner), provider })
                }
            }
        };
        // `dangerous` is rustls's name for any custom verifier. Client certificates are not supported.
        let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        Ok(Some(Self(Arc::new(config))))
    }
}

fn roots(choice: &TlsChoice) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    // As in libpq, `sslrootcert=system` means the operating system's authorities.
    match choice.root_certificates.as_ref().filter(|path| path.as_os_str() != "system") {
        Some(path) => {
            let wrong = |error: &dyn std::fmt::Display| {
                format!("cannot read the root certificates in {}: {error}", path.display())
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
        }
        None => {
            // Systems ship certificates that rustls cannot parse; one of them must not make all others unusable.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    // Without this check every handshake would fail with a message that does not name the cause.
    if roots.is_empty() {
        return Err("no root certificates were found: set sslrootcert to a file".to_owned());
    }
    Ok(roots)
}

/// Accepts any host name, and without authorities any certificate, like the weaker modes of libpq.
#[derive(Debug)]
struct Lenient {
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Lenient {
    /// X.509 v1 certificates, such as the self-signed ones of Citus, cannot be parsed. Where the certificate is not
    /// verified, its signature proves nothing either, so it is accepted.
    fn tolerated(
        &self,
        found: Result<HandshakeSignatureValid, rustls::Error>,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match found {
            Err(rustls::Error::InvalidCertificate(_)) if self.inner.is_none() => {
                Ok(HandshakeSignatureValid::assertion())
            }
            found => found,
        }
    }
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // `sslmode=require` and `prefer`: encrypted, not authenticated.
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        // The chain has been verified when the name is compared, so only that verdict is overruled.
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.tolerated(rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.tolerated(rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Stream;
    type TlsConnect = Connect;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Connect, Self::Error> {
        // A Unix socket has no host name and is not encrypted.
        let name = if domain.is_empty() { "localhost" } else { domain };
        let name = ServerName::try_from(name)?.to_owned();
        Ok(Connect { config: Arc::clone(&self.0), name })
    }
}

impl TlsConnect<Socket> for Connect {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let connector = tokio_rustls::TlsConnector::from(self.config);
            Ok(Stream(connector.connect(self.name, stream).await?))
        })
    }
}

impl tokio_postgres::tls::TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
