//! Which account to connect to: connection strings, endpoints, keys, and which certificates to trust.

use std::path::PathBuf;

use orrery_gateway::auth::{MasterKey, WELL_KNOWN_KEY};

use crate::failure::Failure;

/// An endpoint and its account key.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<CertificateTrust>,
    pub(crate) key: MasterKey,
    /// Host and port, as in the `host` header.
    pub(crate) authority: String,
}

/// Which server certificates are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateTrust {
    /// A PEM file of certificates to trust besides the system's.
    pub(crate) certificate: Option<PathBuf>,
    /// Accept any certificate.
    pub(crate) accept_any: bool,
}

impl Account {
    /// `endpoint` is `http://host:port` or `https://host:port`. Without a key the emulator's well-known one is used.
    pub(crate) fn new(endpoint: &str, key: Option<&str>) -> Result<Self, Failure> {
        let wrong = || {
            Failure::usage(format!(
                "the endpoint must be http://host:port or https://host:port, but got `{endpoint}`"
            ))
        };
        let uri: http::Uri = endpoint.trim().parse().map_err(|_| wrong())?;
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => (Some(CertificateTrust::default()), 443),
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        // No path, query or user name: they would be ignored.
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(wrong());
        }
        let key = MasterKey::parse(key.unwrap_or(WELL_KNOWN_KEY))
            .map_err(|error| Failure::usage(format!("the key is not valid: {error}")))?;
        Ok(Self {
            // Connecting takes an IPv6 address without its brackets.
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(port),
            tls,
            key,
            authority: authority.as_str().to_owned(),
        })
    }

    /// Reads `AccountEndpoint=…;AccountKey=…;`, in any order and case, or a bare endpoint.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        // A bare endpoint means an emulator, with its well-known key.
        if text.starts_with("http://") || text.starts_with("https://") {
            return Self::new(text, None);
        }
        let (mut endpoint, mut key, mut accept_any) = (None, None, false);
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            // The message does not quote the part: it may be a key.
            let (name, value) = part.split_once('=').ok_or_else(|| {
                Failure::usage("a connection string looks like AccountEndpoint=URL;AccountKey=KEY;")
            })?;
            match name.trim().to_ascii_lowercase().as_str() {
                "accountendpoint" => endpoint = Some(value.trim()),
                "accountkey" => key = Some(value.trim()),
                "disableservercertificatevalidation" => {
                    accept_any = value.trim().eq_ignore_ascii_case("true");
                }
                // Settings of other clients that do not affect where to connect.
                _ => {}
            }
        }
        let endpoint =
            endpoint.ok_or_else(|| Failure::usage("the connection string has no AccountEndpoint"))?;
        let key = key.ok_or_else(|| Failure::usage("the connection string has no AccountKey"))?;
        let mut account = Self::new(endpoint, Some(key))?;
        if let Some(trust) = &mut account.tls {
            trust.accept_any = accept_any;
        }
        Ok(account)
    }

    /// The same endpoint with another key.
    pub(crate) fn with_key(self, key: &str) -> Result<Self, Failure> {
        let key = MasterKey::parse(key)
            .map_err(|error| Failure::usage(format!("the key is not valid: {error}")))?;
        Ok(Self { key, ..self })
    }

    /// Accepts further certificates. No effect without TLS.
    pub(crate) fn trusting(mut self, certificate: Option<PathBuf>, accept_any: bool) -> Self {
        if let Some(trust) = &mut self.tls {
            trust.certificate = certificate.or_else(|| trust.certificate.take());
            trust.accept_any |= accept_any;
        }
        self
    }

    /// Whether the server would be on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    /// The endpoint as text, without the key.
    pub(crate) fn endpoint(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        Account::parse(text).err().and_then(|failure| failure.message).unwrap()
    }

    #[test]
    fn connection_strings_are_parsed() {
        let text = format!("AccountEndpoint=https://x.example:443/;AccountKey={WELL_KNOWN_KEY};");
        let account = Account::parse(&text).ok().unwrap();
        assert_eq!((account.host.as_str(), account.port), ("x.example", 443));
        assert_eq!(account.tls, Some(CertificateTrust::default()));
        assert!(account.key.is_well_known());
        let text = format!(
            "accountkey={WELL_KNOWN_KEY}; DisableServerCertificateValidation=True;AccountEndpoint=https://[::1]"
        );
        let account = Account::parse(&text).ok().unwrap();
        assert_eq!(
            (account.host.as_str(), account.port, account.tls.unwrap().accept_any),
            ("::1", 443, true)
        );
        let account = Account::parse("http://127.0.0.1:8081/").ok().unwrap();
        assert_eq!((account.port, account.tls.clone()), (8081, None));
        assert_eq!(account.endpoint(), "http://127.0.0.1:8081");
    }

    #[test]
    fn bad_connection_strings_are_rejected_without_quoting_the_key() {
        assert!(message("AccountKey=c2VjcmV0;").contains("no AccountEndpoint"));
        assert!(message("AccountEndpoint=http://x").contains("no AccountKey"));
        assert!(message("c2VjcmV0").contains("AccountEndpoint=URL"));
        let wrong_key = message("AccountEndpoint=http://x;AccountKey=c2VjcmV0");
        assert!(wrong_key.contains("key") && !wrong_key.contains("c2VjcmV0"), "{wrong_key}");
        for endpoint in ["ftp://x", "http://", "http://x/path", "http://user@x", "x"] {
            assert!(Account::new(endpoint, None).is_err(), "{endpoint}");
        }
    }
}
