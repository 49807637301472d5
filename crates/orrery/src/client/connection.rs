//! Connections that are kept and used again, plain or with TLS.

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

use super::Answer;
use super::account::{Account, Trust};
use crate::failure::Failure;

/// A server that says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_mins(2);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(20);
/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A request without an answer.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Broken {
    message: String,
    /// Whether another attempt makes sense.
    pub(super) may_pass: bool,
}

impl Broken {
    pub(super) fn ours(error: &dyn std::fmt::Display) -> Self {
        Self { message: format!("the request cannot be sent: {error}"), may_pass: false }
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// The connections of one client.
pub(super) struct Pool {
    host: String,
    port: u16,
    authority: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<Sender>>,
}

impl Pool {
    pub(super) fn new(account: &Account) -> Result<Self, Failure> {
        let tls = match &account.tls {
            None => None,
            Some(trust) => {
                let name = ServerName::try_from(account.host.clone()).map_err(|_| {
                    Failure::usage(format!("\"{}\" is no name that a certificate can have", account.host))
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

    /// Sends a request over a kept connection, or a new one.
    pub(super) async fn send(&self, request: http::Request<Full<Bytes>>) -> Result<Answer, Broken> {
        // A kept connection may have been closed by the other side in the meantime, without harm: it is tried
        // again on a new one.
        while let Some(mut sender) = self.take_idle() {
            if sender.ready().await.is_err() {
                continue;
            }
            match self.exchange(sender, request.clone()).await {
                Err(broken) if broken.may_pass => break,
                outcome => return outcome,
            }
        }
        let sender = timeout(CONNECT_TIME_MAX, self.connect())
            .await
            .map_err(|_| self.broken(&"it took too long"))??;
        self.exchange(sender, request).await
    }

    fn take_idle(&self) -> Option<Sender> {
        self.idle.lock().pop()
    }

    async fn exchange(
        &self,
        mut sender: Sender,
        request: http::Request<Full<Bytes>>,
    ) -> Result<Answer, Broken> {
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| self.broken(&error))?.to_bytes();
            Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
        };
        let answer = timeout(PATIENCE, exchange).await.map_err(|_| self.broken(&"it took too long"))??;
        let closes = answer.header("connection").is_some_and(|text| text.eq_ignore_ascii_case("close"));
        if !closes && !sender.is_closed() {
            self.idle.lock().push(sender);
        }
        Ok(answer)
    }

    async fn connect(&self) -> Result<Sender, Broken> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| self.broken(&error))?;
        // Requests are written whole; waiting for more to send would only delay them.
        stream.set_nodelay(true).map_err(|error| self.broken(&error))?;
        match &self.tls {
            None => self.begin(TokioIo::new(stream)).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await.map_err(|error| {
                    // A certificate that is not trusted stays so.
                    let is_untrusted = error.kind() == std::io::ErrorKind::InvalidData;
                    Broken { may_pass: !is_untrusted, ..self.broken(&error) }
                })?;
                self.begin(TokioIo::new(stream)).await
            }
        }
    }

    async fn begin<Io>(&self, io: Io) -> Result<Sender, Broken>
    where
        Io: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(io).await.map_err(|error| self.broken(&error))?;
        // Ends when the sender is dropped or the other side hangs up; requests under way learn of it themselves.
        tokio::spawn(async move { connection.await.ok() });
        Ok(sender)
    }

    fn broken(&self, error: &dyn std::fmt::Display) -> Broken {
        Broken {
            message: format!("the server at {} does not answer: {error}", self.authority),
            may_pass: true,
        }
    }
}

fn tls_config(trust: &Trust) -> Result<ClientConfig, Failure> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(Failure::internal)?;
    if trust.anyone {
        let verifier = Arc::new(TrustAnyone(provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    // Single certificates of the system that cannot be read are left out, as browsers do.
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
            "this system has no trusted certificates: install them, or name one with --certificate",
        ));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Accepts every certificate; that the other side holds its key is still checked.
#[derive(Debug)]
struct TrustAnyone(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnyone {
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
