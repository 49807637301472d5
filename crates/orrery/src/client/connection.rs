//! A pool of HTTP/1.1 connections, plain or TLS.
//!
//! One request at a time per connection, and as many connections as there are requests in flight: the caller bounds
//! those. No pipelining, no HTTP/2.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::account::{Account, CertificateTrust};
use super::request::Response;
use crate::failure::Failure;

/// A request without a complete response after this long has failed.
const RESPONSE_TIME_MAX: Duration = Duration::from_mins(2);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(20);
/// The longest response body that is read.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// A request that got no response.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct RequestError {
    message: String,
    /// Whether a retry may succeed.
    pub(super) is_transient: bool,
    /// Nothing listens at the address.
    pub(super) is_refused: bool,
}

impl RequestError {
    pub(super) fn unsendable(error: &dyn std::fmt::Display) -> Self {
        Self {
            message: format!("the request cannot be sent: {error}"),
            is_transient: false,
            is_refused: false,
        }
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// The idle connections of one client.
pub(super) struct ConnectionPool {
    host: String,
    port: u16,
    authority: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<Sender>>,
}

impl ConnectionPool {
    pub(super) fn new(account: &Account) -> Result<Self, Failure> {
        let tls = match &account.tls {
            None => None,
            Some(trust) => {
                let name = ServerName::try_from(account.host.clone()).map_err(|_| {
                    Failure::usage(format!(
                        "`{}` is not a host name that a certificate can carry",
                        account.host
                    ))
                })?;
                Some((TlsConnector::from(Arc::new(tls_config(trust)?)), name))
            }
        };
        Ok(Self {
            host: account.host.clone(),
            port: account.port,
            authority: account.authority.clone(),
            tls,
            idle: Mutex::new(Vec::new()),
        })
    }

    /// Sends a request over an idle connection, or a new one.
    pub(super) async fn send(&self, request: http::Request<Full<Bytes>>) -> Result<Response, RequestError> {
        // The server may have closed an idle connection in the meantime; retry on a new one.
        while let Some(mut sender) = self.take_idle() {
            if sender.ready().await.is_err() {
                continue;
            }
            match self.exchange(sender, request.clone()).await {
                // The other idle connections are probably as dead as this one.
                Err(error) if error.is_transient => break,
                outcome => return outcome,
            }
        }
        // If packets are dropped, the system would try for minutes.
        let sender =
            timeout(CONNECT_TIME_MAX, self.connect()).await.map_err(|_| self.error(&"timed out"))??;
        self.exchange(sender, request).await
    }

    fn take_idle(&self) -> Option<Sender> {
        self.idle.lock().pop()
    }

    async fn exchange(
        &self,
        mut sender: Sender,
        request: http::Request<Full<Bytes>>,
    ) -> Result<Response, RequestError> {
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|error| self.error(&error))?;
            let (head, body) = response.into_parts();
            // More than any page has is a mistake of the server, and no reason to run out of memory.
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
            let body = body.map_err(|error| self.error(&error))?.to_bytes();
            Ok(Response { status: head.status.as_u16(), headers: head.headers, body })
        };
        // After a timeout the connection is dropped: its late response must not be taken for the next one.
        let response = timeout(RESPONSE_TIME_MAX, exchange).await.map_err(|_| self.error(&"timed out"))??;
        let closes = response.header("connection").is_some_and(|text| text.eq_ignore_ascii_case("close"));
        if !closes && !sender.is_closed() {
            self.idle.lock().push(sender);
        }
        Ok(response)
    }

    async fn connect(&self) -> Result<Sender, RequestError> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| RequestError {
            is_refused: error.kind() == std::io::ErrorKind::ConnectionRefused,
            ..self.error(&error)
        })?;
        // Requests are written in one piece, so Nagle's algorithm would only delay them.
        stream.set_nodelay(true).map_err(|error| self.error(&error))?;
        match &self.tls {
            None => self.handshake(TokioIo::new(stream)).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await.map_err(|error| {
                    // rustls reports a rejected certificate as invalid data. Retrying would not change the verdict.
                    if error.kind() == std::io::ErrorKind::InvalidData {
                        return self.untrusted(&error);
                    }
                    self.error(&error)
                })?;
                self.handshake(TokioIo::new(stream)).await
            }
        }
    }

    async fn handshake<Io>(&self, io: Io) -> Result<Sender, RequestError>
    where
        Io: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(io).await.map_err(|error| self.error(&error))?;
        // Ends when the sender is dropped or the server hangs up; a request in flight then gets its own error.
        orrery_env::task::spawn("connection", async move { connection.await.ok() });
        Ok(sender)
    }

    fn error(&self, error: &dyn std::fmt::Display) -> RequestError {
        RequestError {
            message: format!("the server at {} is not responding: {error}", self.authority),
            is_transient: true,
            is_refused: false,
        }
    }

    fn untrusted(&self, error: &dyn std::fmt::Display) -> RequestError {
        RequestError {
            message: format!(
                "the certificate of the server at {} is not trusted: pass --certificate FILE or --insecure ({error})",
                self.authority
            ),
            is_transient: false,
            is_refused: false,
        }
    }
}

fn tls_config(trust: &CertificateTrust) -> Result<ClientConfig, Failure> {
    // Named explicitly, because rustls does not guess where several providers are linked in.
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(Failure::internal)?;
    if trust.accept_any {
        let verifier = Arc::new(AcceptAnyCertificate(provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    // Like browsers, skip certificates of the system store that cannot be parsed.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = &trust.certificate {
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::usage(format!("the certificate {} cannot be used: {error}", path.display()))
        };
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
            let certificate = certificate.map_err(|error| wrong(&error))?;
            roots.add(certificate).map_err(|error| wrong(&error))?;
        }
    }
    if roots.is_empty() {
        return Err(Failure::refused(
            "this system has no trusted certificates: install them, or pass --certificate FILE",
        ));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Accepts every certificate. Signatures are still checked: the server must hold the certificate's private key.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
