//! What `serve` tells when it is ready: where to connect, with which key, and where the data is.
//!
//! A key is shown only if it is public anyway or was made just now; later it can be read in its file.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use orrery_gateway::auth::MasterKey;
use orrery_model::{Object, Value};
use orrery_storage::Durability;

use crate::assembly::host_name;
use crate::keys::KeyOrigin;
use crate::settings::Storage;

pub(crate) struct Banner<'a> {
    /// The address that is really listened on.
    pub(crate) address: SocketAddr,
    pub(crate) key: &'a MasterKey,
    pub(crate) key_origin: &'a KeyOrigin,
    pub(crate) storage: &'a Storage,
    /// None = plain HTTP only; otherwise whether the certificate was made just now.
    pub(crate) tls: Option<TlsNote>,
    pub(crate) ready_after: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TlsNote {
    Users,
    Kept,
    Made,
}

impl Banner<'_> {
    /// Where clients on this machine (loopback) or elsewhere reach the server.
    fn endpoint(&self) -> String {
        let (ip, port) = (self.address.ip(), self.address.port());
        let host = match ip {
            _ if ip.is_unspecified() => host_name().unwrap_or_else(|| "localhost".to_owned()),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        // On loopback plain HTTP spares most SDKs the import of a certificate.
        let scheme = if ip.is_loopback() || self.tls.is_none() { "http" } else { "https" };
        format!("{scheme}://{host}:{port}/")
    }

    fn shown_key(&self) -> Option<&str> {
        match self.key_origin {
            KeyOrigin::WellKnown | KeyOrigin::Made(_) | KeyOrigin::MadeForThisRun => Some(self.key.reveal()),
            KeyOrigin::Given | KeyOrigin::Kept(_) => None,
        }
    }

    fn connection_string(&self) -> String {
        let key = match (self.shown_key(), self.key_origin) {
            (Some(key), _) => key.to_owned(),
            (None, KeyOrigin::Kept(path)) => format!("<the key in {}>", path.display()),
            (None, _) => "<your key>".to_owned(),
        };
        format!("AccountEndpoint={};AccountKey={key};", self.endpoint())
    }

    fn key_note(&self) -> String {
        match self.key_origin {
            KeyOrigin::WellKnown if self.address.ip().is_loopback() => {
                "the well-known key of emulators".to_owned()
            }
            KeyOrigin::WellKnown => {
                "the well-known key of emulators: everyone who reaches this port can do everything".to_owned()
            }
            KeyOrigin::Given => "the one you gave".to_owned(),
            KeyOrigin::Kept(path) => format!("the one in {}", path.display()),
            KeyOrigin::Made(path) => format!("made just now and kept in {}; not shown again", path.display()),
            KeyOrigin::MadeForThisRun => "made just now for this run only; not shown again".to_owned(),
        }
    }

    fn data_note(&self) -> String {
        match self.storage {
            Storage::Postgres(options) => options.place(),
            Storage::Memory => "in memory, forgotten at the end".to_owned(),
            Storage::Directory { path, durability: Durability::Always, .. } => path.display().to_string(),
            Storage::Directory { path, durability: Durability::Relaxed { interval_ms }, .. } => {
                format!("{} (relaxed: a power failure may lose the last {interval_ms} ms)", path.display())
            }
        }
    }

    fn tls_note(&self) -> String {
        let import = || format!("{}_explorer/emulator.pem", self.endpoint());
        match self.tls {
            None => "off".to_owned(),
            Some(TlsNote::Users) => "on the same port, with your certificate".to_owned(),
            Some(TlsNote::Kept) => format!("on the same port; clients can trust {}", import()),
            Some(TlsNote::Made) => {
                format!("on the same port, with a certificate made just now; clients can trust {}", import())
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "Orrery {} is ready after {} ms\n",
            env!("CARGO_PKG_VERSION"),
            self.ready_after.as_millis()
        );
        for (name, value) in [
            ("Endpoint", self.endpoint()),
            ("Connection string", self.connection_string()),
            ("Key", self.key_note()),
            ("TLS", self.tls_note()),
            ("Data", self.data_note()),
        ] {
            writeln!(text, "  {name:<18} {value}").expect("a String accepts every write");
        }
        text
    }

    /// One line, for programs that start the server.
    pub(crate) fn json(&self) -> String {
        let mut object = Object::new();
        object.set("version", Value::from(env!("CARGO_PKG_VERSION")));
        object.set("endpoint", Value::from(self.endpoint()));
        object.set("port", Value::from(i64::from(self.address.port())));
        if self.shown_key().is_some() {
            object.set("connectionString", Value::from(self.connection_string()));
        }
        object.set("key", Value::from(self.key_note()));
        let directory = match self.storage {
            Storage::Postgres(options) => Some(Value::from(options.place())),
            storage => storage.directory().map(|path| Value::from(path.display().to_string())),
        };
        object.set("data", directory.unwrap_or_default());
        object.set("tls", Value::from(self.tls.is_some()));
        let ready_ms = i64::try_from(self.ready_after.as_millis()).unwrap_or(i64::MAX);
        object.set("readyAfterMs", Value::from(ready_ms));
        object.set("pid", Value::from(i64::from(std::process::id())));
        let mut text = Value::Object(object).to_json();
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banner<'a>(
        address: &str,
        key: &'a MasterKey,
        origin: &'a KeyOrigin,
        storage: &'a Storage,
    ) -> Banner<'a> {
        Banner {
            address: address.parse().unwrap(),
            key,
            key_origin: origin,
            storage,
            tls: Some(TlsNote::Made),
            ready_after: Duration::from_millis(7),
        }
    }

    #[test]
    fn the_connection_string_is_ready_to_use_on_loopback() {
        let key = MasterKey::well_known();
        let text = banner("127.0.0.1:8081", &key, &KeyOrigin::WellKnown, &Storage::Memory).text();
        let expected = format!("AccountEndpoint=http://127.0.0.1:8081/;AccountKey={};", key.reveal());
        assert!(text.contains(&expected), "{text}");
        assert!(text.contains("ready after 7 ms"), "{text}");
        let text = banner("[::1]:80", &key, &KeyOrigin::WellKnown, &Storage::Memory).text();
        assert!(text.contains("http://[::1]:80/"), "{text}");
    }

    #[test]
    fn kept_and_given_keys_are_not_shown() {
        let key = MasterKey::from_bytes(&[7; 64]);
        for (origin, shown) in [
            (KeyOrigin::Given, false),
            (KeyOrigin::Kept("/data/account-key".into()), false),
            (KeyOrigin::Made("/data/account-key".into()), true),
            (KeyOrigin::MadeForThisRun, true),
        ] {
            let banner = banner("192.0.2.1:8081", &key, &origin, &Storage::Memory);
            for text in [banner.text(), banner.json()] {
                assert_eq!(text.contains(key.reveal()), shown, "{text}");
                assert!(text.contains("https://192.0.2.1:8081/"), "{text}");
            }
        }
    }

    #[test]
    fn relaxed_durability_is_said() {
        let key = MasterKey::well_known();
        let storage = Storage::Directory {
            path: "/data".into(),
            durability: Durability::Relaxed { interval_ms: 50 },
            cache_bytes: 0,
        };
        let text = banner("127.0.0.1:1", &key, &KeyOrigin::WellKnown, &storage).text();
        assert!(text.contains("/data (relaxed: a power failure may lose the last 50 ms)"), "{text}");
    }
}
