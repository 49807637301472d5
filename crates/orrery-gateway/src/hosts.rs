//! Protects the server from foreign web pages.
//!
//! A browser on this machine can reach a loopback port, and so can every page it shows. Two attacks are blocked. *DNS
//! rebinding*: a page at `evil.example` makes its name resolve to loopback, and the browser considers the server
//! same-origin. Such requests carry the page's name in `Host`, so a loopback listener accepts only loopback names and
//! configured ones. *Cross-origin requests*: the browser sends them even if the page cannot read the response, marked
//! by `Origin` and `Sec-Fetch-Site`. They are rejected unless the origin is allowed; responses then carry CORS headers.
//!
//! Clients other than browsers send neither header and are not affected by the second check.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::{HOST, HeaderName, ORIGIN, VARY};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method};

use crate::auth::AuthFailure;

/// How long a browser may cache a preflight response, in seconds.
const PREFLIGHT_SECONDS: &str = "600";
/// Names in messages are truncated to this length.
const SHOWN_CHARACTERS_MAX: usize = 100;

/// The host names that the server accepts, and the web pages that may use it.
#[derive(Clone, Debug, Default)]
pub struct HostPolicy {
    /// Whether only loopback names and those in `hosts` are accepted.
    is_limited: bool,
    hosts: Vec<HostPattern>,
    origins: Vec<String>,
}

/// An invalid host name or origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidHost(String);

#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPattern {
    name: NamePattern,
    /// None = any.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NamePattern {
    Any,
    Exactly(String),
    /// `*.example.com`: matches names that end with `.example.com`.
    Below(String),
}

impl HostPolicy {
    /// On loopback only loopback names and the given ones are accepted. Elsewhere every name is, unless some are given:
    /// then only those and loopback names.
    pub fn new(listens_on: IpAddr, hosts: &[String], origins: &[String]) -> Result<Self, InvalidHost> {
        let hosts = hosts.iter().map(|text| HostPattern::parse(text)).collect::<Result<Vec<_>, _>>()?;
        let origins = origins.iter().map(|text| parse_origin(text)).collect::<Result<Vec<_>, _>>()?;
        // The canonical form also recognises `::ffff:127.0.0.1`.
        let is_loopback = listens_on.to_canonical().is_loopback();
        Ok(Self { is_limited: is_loopback || !hosts.is_empty(), hosts, origins })
    }

    /// Rejects requests with a foreign host name, and those of foreign web pages.
    pub(crate) fn check(&self, parts: &Parts) -> Result<(), AuthFailure> {
        if self.is_limited {
            // HTTP/2 names the host in `:authority`, which hyper puts into the URL, HTTP/1 in `Host`. A request
            // may have both or several, and each of them must be acceptable.
            let in_url = parts.uri.authority().map(Authority::as_str);
            let in_headers = parts.headers.get_all(HOST).into_iter();
            let named = in_url.map(str::as_bytes).into_iter().chain(in_headers.map(HeaderValue::as_bytes));
            for host in named {
                if !self.accepts_host(host) {
                    return Err(AuthFailure::HostNotAllowed { host: shown(host) });
                }
            }
        }
        let foreign = |origin: &[u8]| Err(AuthFailure::OriginNotAllowed { origin: shown(origin) });
        // An origin says who asks. Without one, `Sec-Fetch-Site` tells whether a browser asks for another site.
        match parts.headers.get(ORIGIN) {
            Some(origin) if is_own_origin(origin, parts) || self.allows_origin(origin) => Ok(()),
            Some(origin) => foreign(origin.as_bytes()),
            None => match parts.headers.get(FETCH_SITE).map(HeaderValue::as_bytes) {
                // Older browsers and other clients; typed by the user; sent by our own page.
                None | Some(b"none" | b"same-origin") => Ok(()),
                Some(_) if is_visit(parts) => Ok(()),
                Some(_) => foreign(b"another site"),
            },
        }
    }

    /// Whether this is a CORS preflight from an allowed origin.
    pub(crate) fn is_preflight(&self, parts: &Parts) -> bool {
        let allows = |origin| self.allows_origin(origin);
        parts.method == Method::OPTIONS
            && parts.headers.contains_key(REQUEST_METHOD)
            && parts.headers.get(ORIGIN).is_some_and(allows)
    }

    /// The preflight response.
    pub(crate) fn answer_preflight(&self, asked: &HeaderMap, answered: &mut HeaderMap) {
        // Whatever is asked for is allowed: the origin is trusted as a whole, and the key decides the rest.
        let echoes = [
            (REQUEST_METHOD, "access-control-allow-methods"),
            (REQUEST_HEADERS, "access-control-allow-headers"),
        ];
        for (wanted, allowed) in echoes {
            if let Some(value) = asked.get(wanted) {
                answered.insert(allowed, value.clone());
            }
        }
        answered.insert("access-control-max-age", HeaderValue::from_static(PREFLIGHT_SECONDS));
        self.mark(asked, answered);
    }

    /// Adds CORS headers for an allowed origin to the response.
    pub(crate) fn mark(&self, asked: &HeaderMap, answered: &mut HeaderMap) {
        if self.origins.is_empty() {
            return;
        }
        // Even without an allowed origin: a cache must not serve this response to another page.
        answered.insert(VARY, HeaderValue::from_static("origin"));
        let Some(origin) = asked.get(ORIGIN).filter(|origin| self.allows_origin(origin)) else { return };
        let names: Vec<&str> = answered.keys().map(HeaderName::as_str).collect();
        // Pages can read only the headers listed here.
        let exposed = HeaderValue::from_str(&names.join(", "));
        answered.insert("access-control-allow-origin", origin.clone());
        if let Ok(exposed) = exposed {
            answered.insert("access-control-expose-headers", exposed);
        }
    }

    fn accepts_host(&self, host: &[u8]) -> bool {
        let Some((name, port)) = std::str::from_utf8(host).ok().and_then(split_host) else { return false };
        is_loopback_name(&name) || self.hosts.iter().any(|pattern| pattern.covers(&name, port))
    }

    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        let origin = origin.to_str().ok().and_then(|text| parse_origin(text).ok());
        origin.is_some_and(|origin| self.origins.contains(&origin))
    }
}

const FETCH_SITE: &str = "sec-fetch-site";
const REQUEST_METHOD: &str = "access-control-request-method";
const REQUEST_HEADERS: &str = "access-control-request-headers";

/// Following a link to our page is safe: no other page can read the response, and it changes nothing.
fn is_visit(parts: &Parts) -> bool {
    let is = |name: &str, value: &[u8]| parts.headers.get(name).is_some_and(|sent| sent.as_bytes() == value);
    parts.method == Method::GET
        && (parts.uri.path() == "/" || parts.uri.path().starts_with("/_explorer"))
        && is("sec-fetch-mode", b"navigate")
        && is("sec-fetch-dest", b"document")
}

/// Whether the origin is this server, by the host in the request. The scheme is not compared: a proxy may terminate
/// TLS.
fn is_own_origin(origin: &HeaderValue, parts: &Parts) -> bool {
    let Some((scheme, page)) = origin.to_str().ok().and_then(|text| text.split_once("://")) else {
        return false;
    };
    let host = parts.uri.authority().map(Authority::as_str);
    let host = host.or_else(|| parts.headers.get(HOST)?.to_str().ok());
    // `Host` omits the default port and so does `Origin`, but not always both.
    let default = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
    let with_port = |text: &str| split_host(text).map(|(name, port)| (name, port.unwrap_or(default)));
    with_port(page).is_some_and(|page| host.and_then(with_port) == Some(page))
}

/// A host without its port, in lower case and without a final dot.
fn split_host(text: &str) -> Option<(String, Option<u16>)> {
    let authority: Authority = text.parse().ok()?;
    // User information in front of the host would make a foreign name look like ours.
    if authority.as_str().contains('@') {
        return None;
    }
    let name = authority.host();
    let rest = authority.as_str().strip_prefix(name)?;
    let port = match rest.strip_prefix(':') {
        None | Some("") => None,
        Some(port) => Some(port.parse().ok()?),
    };
    // A final dot makes a name absolute; it is the same host.
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    (!name.is_empty()).then_some((name, port))
}

fn is_loopback_name(name: &str) -> bool {
    // `.localhost` is reserved for loopback (RFC 6761), so no page can rebind a name below it.
    if name == "localhost" || name.ends_with(".localhost") {
        return true;
    }
    if let Some(address) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok_and(|address| address.to_canonical().is_loopback());
    }
    name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

impl HostPattern {
    fn parse(text: &str) -> Result<Self, InvalidHost> {
        let invalid = || {
            InvalidHost(format!(
                "\"{text}\" is not a host name: give a name or address like db.example.com, *.example.com or \
                 db.example.com:8081, or * for any"
            ))
        };
        let text = text.trim();
        if text == "*" {
            return Ok(Self { name: NamePattern::Any, port: None });
        }
        let (below, rest) = text.strip_prefix('*').map_or((false, text), |rest| (true, rest));
        // An IPv6 address may lack its brackets.
        let bracketed = rest.parse::<Ipv6Addr>().map(|address| format!("[{address}]"));
        let rest = bracketed.as_deref().unwrap_or(rest);
        let named = if below { rest.strip_prefix('.').ok_or_else(invalid)? } else { rest };
        let (name, port) = split_host(named).ok_or_else(invalid)?;
        // `Authority` accepts more characters than a host name has, among them a second asterisk.
        let is_legal = |name: &str| {
            let name = name.trim_start_matches('[').trim_end_matches(']');
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte))
        };
        if !is_legal(&name) {
            return Err(invalid());
        }
        let name = if below { NamePattern::Below(format!(".{name}")) } else { NamePattern::Exactly(name) };
        Ok(Self { name, port })
    }

    fn covers(&self, name: &str, port: Option<u16>) -> bool {
        let is_named = match &self.name {
            NamePattern::Any => true,
            NamePattern::Exactly(own) => own == name,
            // The pattern begins with its dot, so `evilexample.com` is not below `example.com`.
            NamePattern::Below(end) => name.len() > end.len() && name.ends_with(end.as_str()),
        };
        is_named && self.port.is_none_or(|own| port == Some(own))
    }
}

/// An origin as browsers send it: scheme, host, and the port unless it is the scheme's default.
fn parse_origin(text: &str) -> Result<String, InvalidHost> {
    let invalid =
        || InvalidHost(format!("\"{text}\" is not an origin: give one like https://app.example.com:3000"));
    let (scheme, rest) = text.trim().trim_end_matches('/').split_once("://").ok_or_else(invalid)?;
    let scheme = scheme.to_ascii_lowercase();
    let (name, port) = split_host(rest).ok_or_else(invalid)?;
    let default = match scheme.as_str() {
        "https" => 443,
        "http" => 80,
        _ => return Err(invalid()),
    };
    // Normalised to what browsers send, so that origins can be compared as text.
    Ok(match port.filter(|port| *port != default) {
        Some(port) => format!("{scheme}://{name}:{port}"),
        None => format!("{scheme}://{name}"),
    })
}

/// A client's value, sanitised for a message.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    // The text goes into a log line and a response: no line breaks, no terminal sequences, no megabytes.
    text.chars().filter(|letter| !letter.is_control()).take(SHOWN_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const EVERYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

    fn policy(address: IpAddr, hosts: &[&str], origins: &[&str]) -> HostPolicy {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        HostPolicy::new(address, &owned(hosts), &owned(origins)).unwrap()
    }

    fn request(method: &str, url: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn accepts(policy: &HostPolicy, host: &str) -> bool {
        let by_header = policy.check(&request("GET", "/", &[("host", host)])).is_ok();
        // HTTP/2 has it in the URL.
        if let Ok(parts) = http::Uri::builder().scheme("https").authority(host).path_and_query("/").build() {
            let mut h2 = request("GET", "/", &[]);
            h2.uri = parts;
            assert_eq!(policy.check(&h2).is_ok(), by_header, "{host}");
        }
        by_header
    }

    #[test]
    fn loopback_listeners_answer_to_loopback_names() {
        let policy = policy(LOOPBACK, &[], &[]);
        for host in [
            "localhost",
            "localhost:8081",
            "LOCALHOST:1",
            "localhost.",
            "orders.localhost:8081",
            "127.0.0.1",
            "127.0.0.1:8081",
            "127.9.9.9:80",
            "[::1]",
            "[::1]:8081",
            "[::ffff:127.0.0.1]:8081",
        ] {
            assert!(accepts(&policy, host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8081",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "xlocalhost:8081",
            "128.0.0.1",
            "0.0.0.0:8081",
            "[::]",
            "[::2]:8081",
            "host.docker.internal:8081",
            "localhost@evil.example",
            "evil.example@localhost",
            "127.1",
            "2130706433",
            "localhost:99999",
            "",
            " ",
        ] {
            assert!(!accepts(&policy, host), "{host}");
        }
        // Whoever names no host is no browser.
        assert!(policy.check(&request("GET", "/", &[])).is_ok());
        // Every name that is sent counts.
        let two = request("GET", "/", &[("host", "localhost"), ("host", "evil.example")]);
        assert!(policy.check(&two).is_err());
        let both = request("GET", "http://localhost/", &[("host", "evil.example")]);
        assert!(policy.check(&both).is_err());
        let refused = policy.check(&request("GET", "/", &[("host", "host.docker.internal:8081")]));
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("--allowed-hosts") && message.contains("host.docker.internal"), "{message}");
    }

    #[test]
    fn more_hosts_can_be_allowed() {
        let policy_of = |hosts: &[&str]| policy(LOOPBACK, hosts, &[]);
        let named =
            policy_of(&["host.docker.internal", "Db.example.com:8081", "*.test", "10.0.0.7", "fe80::1"]);
        for (host, expected) in [
            ("host.docker.internal:8081", true),
            ("HOST.docker.internal", true),
            ("db.example.com:8081", true),
            ("db.example.com", false),
            ("db.example.com:8082", false),
            ("x.test", true),
            ("x.y.test:1", true),
            ("test", false),
            (".test", false),
            ("xtest", false),
            ("10.0.0.7:8081", true),
            ("[fe80::1]:8081", true),
            ("localhost", true),
            ("evil.example", false),
        ] {
            assert_eq!(accepts(&named, host), expected, "{host}");
        }
        assert!(accepts(&policy_of(&["*"]), "evil.example"));
        for bad in ["", "a b", "*x", "*.", "http://x", "x/y", "x:y", "a@b", "a,b"] {
            assert!(HostPolicy::new(LOOPBACK, &[bad.to_owned()], &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn other_listeners_answer_to_every_name_unless_some_are_given() {
        let open = policy(EVERYWHERE, &[], &[]);
        assert!(accepts(&open, "db.example.com") && accepts(&open, "10.1.2.3:8081"));
        let limited = policy(EVERYWHERE, &["db.example.com"], &[]);
        assert!(accepts(&limited, "db.example.com") && accepts(&limited, "localhost:8081"));
        assert!(!accepts(&limited, "evil.example"));
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        assert!(!accepts(&policy(mapped, &[], &[]), "evil.example"));
    }

    #[test]
    fn only_pages_of_the_server_itself_may_ask() {
        let closed = policy(LOOPBACK, &[], &[]);
        let check = |headers: &[(&str, &str)]| {
            let mut all = vec![("host", "localhost:8081")];
            all.extend(headers);
            closed.check(&request("GET", "/dbs", &all)).is_ok()
        };
        for (headers, expected) in [
            (&[][..], true),
            (&[("origin", "http://localhost:8081")], true),
            (&[("origin", "https://localhost:8081")], true),
            (&[("origin", "https://LOCALHOST:8081"), ("sec-fetch-site", "same-origin")], true),
            (&[("origin", "http://localhost:3000")], false),
            (&[("origin", "http://localhost")], false),
            (&[("origin", "http://127.0.0.1:8081")], false),
            (&[("origin", "https://evil.example")], false),
            (&[("origin", "null")], false),
            (&[("origin", "")], false),
            (&[("sec-fetch-site", "none")], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "whatever")], false),
            (
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "navigate"),
                    ("sec-fetch-dest", "document"),
                ],
                false,
            ),
        ] {
            assert_eq!(check(headers), expected, "{headers:?}");
        }
        // Links to the page work; frames and forms do not.
        let visit = |method: &str, dest: &str| {
            let headers = [
                ("host", "localhost:8081"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", dest),
            ];
            let check = |path: &str| closed.check(&request(method, path, &headers)).is_ok();
            assert!(!check("/dbs"));
            assert_eq!(check("/"), check("/_explorer/"));
            check("/_explorer/")
        };
        assert!(visit("GET", "document"));
        assert!(!visit("GET", "iframe") && !visit("POST", "document"));
        // HTTP/2, and a port that browsers leave out.
        let mut own = request("GET", "https://db.example.com/", &[("origin", "https://db.example.com")]);
        let open = policy(EVERYWHERE, &[], &[]);
        assert!(open.check(&own).is_ok());
        own.headers.insert(ORIGIN, HeaderValue::from_static("https://db.example.com:8443"));
        assert!(open.check(&own).is_err());
    }

    #[test]
    fn allowed_origins_get_what_browsers_ask_for() {
        let policy = policy(LOOPBACK, &[], &["https://App.example.com:443/", "http://localhost:3000"]);
        let ask = |origin: &str| {
            let headers = [
                ("host", "localhost:8081"),
                ("origin", origin),
                ("sec-fetch-site", "cross-site"),
                ("access-control-request-method", "PUT"),
                ("access-control-request-headers", "authorization, x-ms-date"),
            ];
            request("OPTIONS", "/dbs", &headers)
        };
        for origin in ["https://app.example.com", "http://localhost:3000"] {
            let asked = ask(origin);
            assert!(policy.check(&asked).is_ok(), "{origin}");
            assert!(policy.is_preflight(&asked), "{origin}");
            let mut answered = HeaderMap::new();
            policy.answer_preflight(&asked.headers, &mut answered);
            assert_eq!(answered["access-control-allow-origin"], origin);
            assert_eq!(answered["access-control-allow-methods"], "PUT");
            assert_eq!(answered["access-control-allow-headers"], "authorization, x-ms-date");
        }
        for origin in
            ["http://app.example.com", "https://app.example.com:3000", "http://localhost:3001", "null"]
        {
            let asked = ask(origin);
            assert!(policy.check(&asked).is_err(), "{origin}");
            assert!(!policy.is_preflight(&asked), "{origin}");
        }
        for bad in ["", "*", "null", "app.example.com", "ftp://x", "https://"] {
            assert!(HostPolicy::new(LOOPBACK, &[], &[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
