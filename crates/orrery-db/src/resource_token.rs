//! Resource tokens: signed, scoped, expiring proofs of one permission.
//!
//! `type=resource&ver=1&sig=<payload>;<signature>;` where the payload is base64url JSON with the permission's
//! link, mode, key and expiry, and the signature HMAC-SHA256 over it with the account's secret. Clients never
//! look inside.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use orrery_model::partition_key::PartitionKey;
use orrery_model::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::Database;
use crate::catalog::{Permission, PermissionMode};

#[derive(Serialize, Deserialize)]
struct Payload {
    resource: String,
    all: bool,
    key: Option<String>,
    expires: i64,
    /// Makes every token different, so that a leaked one can be told apart.
    nonce: u64,
}

/// What a valid token allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    target: Target,
    may_write: bool,
    partition_key: Option<PartitionKey>,
}

/// The container, and perhaps the one resource in it, that a link names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub database: String,
    pub container: String,
    /// The kind (`docs`, `sprocs` …) and id of a resource inside.
    pub child: Option<(String, String)>,
}

impl Target {
    /// Reads `dbs/…/colls/…[/docs/…]`, by names or RIDs, with or without slashes at the ends.
    pub(crate) fn parse(link: &str) -> Option<Self> {
        let segments: Vec<&str> = link.split('/').filter(|segment| !segment.is_empty()).collect();
        let (database, container, child) = match segments[..] {
            ["dbs", database, "colls", container] => (database, container, None),
            ["dbs", database, "colls", container, kind, id] => (database, container, Some((kind, id))),
            _ => return None,
        };
        let child = child.map(|(kind, id)| (kind.to_owned(), id.to_owned()));
        Some(Self { database: database.to_owned(), container: container.to_owned(), child })
    }
}

/// What a request wants to do.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    pub database: &'a str,
    pub container: &'a str,
    pub child: Option<(&'a str, &'a str)>,
    pub writes: bool,
    /// Reads only what every client of the container needs: its definition or its ranges.
    pub is_routing: bool,
    pub partition_key: Option<&'a PartitionKey>,
}

/// A new token for the permission.
pub(crate) fn issue(secret: &[u8; 32], permission: &Permission, expires: i64, nonce: u64) -> String {
    let payload = Payload {
        resource: permission.resource.to_string(),
        all: permission.mode == PermissionMode::All,
        key: permission.partition_key.as_ref().map(PartitionKey::to_json),
        expires,
        nonce,
    };
    let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&payload).expect("it is plain data"));
    let signature = URL_SAFE_NO_PAD.encode(mac(secret, &payload).finalize().into_bytes());
    format!("type=resource&ver=1&sig={payload};{signature};")
}

fn mac(secret: &[u8; 32], payload: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(b"resource-token\0");
    mac.update(payload.as_bytes());
    mac
}

impl Database {
    /// Checks the signature part of a resource token.
    pub fn open_resource_token(&self, signature_part: &str) -> Result<Grant> {
        let refused = || {
            Error::new(
                ErrorKind::Unauthorized,
                "The input authorization token is not a valid resource token.",
            )
        };
        let (payload, signature) =
            signature_part.trim_end_matches(';').split_once(';').ok_or_else(refused)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| refused())?;
        let secret = self.catalog.snapshot().secret;
        mac(&secret, payload).verify_slice(&signature).map_err(|_| refused())?;
        let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| refused())?;
        let payload: Payload = serde_json::from_slice(&payload).map_err(|_| refused())?;
        if payload.expires <= self.env.now_seconds() {
            return Err(Error::new(
                ErrorKind::Forbidden,
                "The authorization token is not valid at the current time: the resource token has expired.",
            ));
        }
        let key = payload.key.as_deref().map(|text| PartitionKey::parse_header(text.as_bytes())).transpose();
        Ok(Grant {
            target: Target::parse(&payload.resource).ok_or_else(refused)?,
            may_write: payload.all,
            partition_key: key.map_err(|_| refused())?,
        })
    }

    /// Refuses what the grant does not cover.
    pub fn check_grant(&self, grant: &Grant, access: &Access<'_>) -> Result<()> {
        let refuse = |reason: &str| {
            let text = "Insufficient permissions provided in the authorization header for the corresponding request.";
            Err(Error::new(ErrorKind::Forbidden, format!("{text} {reason}")))
        };
        let catalog = self.catalog.snapshot();
        let granted = catalog.container(&grant.target.database, &grant.target.container);
        let wanted = catalog.container(access.database, access.container);
        let (Ok(granted), Ok(wanted)) = (granted, wanted) else {
            return refuse("The token is for another resource.");
        };
        if granted.rid != wanted.rid {
            return refuse("The token is for another container.");
        }
        if access.is_routing && !access.writes {
            return Ok(());
        }
        if let Some((kind, id)) = &grant.target.child
            && access.child != Some((kind.as_str(), id.as_str()))
        {
            return refuse("The token is for another item.");
        }
        if access.writes && !grant.may_write {
            return refuse("The token only allows reading.");
        }
        match (&grant.partition_key, access.partition_key) {
            (None, _) => Ok(()),
            (Some(allowed), Some(key)) if key.starts_with(allowed) => Ok(()),
            _ => refuse("The token is for another partition key."),
        }
    }
}
