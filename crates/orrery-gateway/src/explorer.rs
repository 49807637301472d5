//! The explorer: the web page at `/_explorer/`, embedded as `npm run build` left it.
//!
//! The page is an ordinary client: everything it does goes through the wire protocol and `/_orrery`, signed with the
//! user's key or token. File names contain a content hash, so browsers can cache them forever; only `index.html` is
//! revalidated. All other files are stored and sent compressed, because every browser supports gzip.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use sha2::{Digest, Sha256};

use crate::headers;

/// Names below `/_explorer/`, and the files; empty if the page was not built.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/explorer.rs"));

/// Nothing from other origins, nothing inline, no framing. `data:` is for the small images in the editor's style
/// sheets.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const NOT_BUILT: &str = "This server was built without the explorer.\n\nThe database works: connect with any Cosmos DB \
     SDK, or with `orrery query`. To have the page, install Node.js with npm and build with `make build`.\n";

/// Whether a browser requests the root, where clients read the account document: clients sign their requests or do not
/// accept HTML.
pub(crate) fn is_visit(parts: &Parts) -> bool {
    let accepts = headers::text(&parts.headers, ACCEPT.as_str()).unwrap_or_default();
    parts.uri.path() == "/"
        && (parts.method == Method::GET || parts.method == Method::HEAD)
        && !parts.headers.contains_key(AUTHORIZATION)
        && accepts.split(',').any(|kind| kind.trim().to_ascii_lowercase().starts_with("text/html"))
}

/// Redirects the browser to the page.
pub(crate) fn redirect() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/_explorer/"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept, authorization"));
    // The same URL is the account document for others, so the redirect must not stay in any cache.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(crate) fn is_asset(path: &str) -> bool {
    path == "/_explorer" || path.starts_with("/_explorer/")
}

/// Serves the page or one of its files.
pub(crate) fn answer(path: &str, sent: &HeaderMap) -> Response<Full<Bytes>> {
    let name = path.strip_prefix("/_explorer").unwrap_or(path).trim_start_matches('/');
    let name = if name.is_empty() { "index.html" } else { name };
    let mut response = match find(FILES, name) {
        Some((bytes, true)) => file(name, bytes),
        // Only the page is stored as it is: the build compresses everything else.
        Some((bytes, false)) => page(bytes, sent),
        None if FILES.is_empty() => plain(NOT_BUILT),
        None => plain("The explorer has no such file.\n"),
    };
    for (header, value) in [
        (HeaderName::from_static("content-security-policy"), POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(header, HeaderValue::from_static(value));
    }
    response
}

/// A file by its name, and whether it is stored compressed.
fn find<'f>(files: &[(&str, &'f [u8])], name: &str) -> Option<(&'f [u8], bool)> {
    files.iter().find_map(|(stored, bytes)| match stored.strip_prefix(name)? {
        "" => Some((*bytes, false)),
        ".gz" => Some((*bytes, true)),
        _ => None,
    })
}

/// A file whose name changes with its content.
fn file(name: &str, bytes: &'static [u8]) -> Response<Full<Bytes>> {
    let kind = match name.rsplit('.').next().unwrap_or_default() {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        "txt" => "text/plain; charset=utf-8",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    };
    let mut response = Response::new(Full::new(Bytes::from_static(bytes)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    response
}

/// The page itself.
fn page(bytes: &'static [u8], sent: &HeaderMap) -> Response<Full<Bytes>> {
    let digest = Sha256::digest(bytes);
    // 96 bits distinguish the few versions that a browser will ever see.
    let etag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest[..12]));
    let is_known = headers::text(sent, IF_NONE_MATCH.as_str()).is_some_and(|known| known.contains(&etag));
    let body = if is_known { Bytes::new() } else { Bytes::from_static(bytes) };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ETAG, HeaderValue::from_str(&etag).expect("letters and digits are a header"));
    response
}

fn plain(text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visits(method: &str, path: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        is_visit(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn browsers_are_told_from_clients() {
        let chromium = ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
        assert!(visits("GET", "/", &[chromium]));
        assert!(visits("HEAD", "/", &[chromium]));
        assert!(!visits("GET", "/", &[chromium, ("authorization", "type%3dmaster")]));
        assert!(!visits("GET", "/", &[("accept", "application/json")]));
        assert!(!visits("GET", "/", &[("accept", "*/*")]));
        assert!(!visits("GET", "/", &[]));
        assert!(!visits("POST", "/", &[chromium]));
        assert!(!visits("GET", "/dbs", &[chromium]));
    }

    #[test]
    fn files_are_found_by_their_plain_names() {
        let files: &[(&str, &[u8])] =
            &[("assets/a.js.gz", b"1"), ("assets/a.json.gz", b"2"), ("index.html", b"3")];
        assert_eq!(find(files, "assets/a.js"), Some((b"1".as_slice(), true)));
        assert_eq!(find(files, "index.html"), Some((b"3".as_slice(), false)));
        assert_eq!(find(files, "assets/a"), None);
        assert_eq!(find(files, "index"), None);
    }

    #[test]
    fn every_answer_carries_the_policy() {
        for path in ["/_explorer", "/_explorer/index.html", "/_explorer/assets/none.js", "/_explorer/../x"] {
            let response = answer(path, &HeaderMap::new());
            let policy = response.headers()["content-security-policy"].to_str().unwrap();
            assert!(!policy.contains("unsafe") && policy.starts_with("default-src 'none'"), "{path}");
        }
        let page = answer("/_explorer", &HeaderMap::new());
        if FILES.is_empty() {
            assert_eq!(page.status(), StatusCode::NOT_FOUND);
            return;
        }
        assert_eq!(page.status(), StatusCode::OK);
        let known: HeaderMap = [(IF_NONE_MATCH, page.headers()[ETAG].clone())].into_iter().collect();
        assert_eq!(answer("/_explorer", &known).status(), StatusCode::NOT_MODIFIED);
    }
}
