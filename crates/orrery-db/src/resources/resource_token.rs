//! Resource tokens: signed, scoped, expiring proofs of one permission.
//!
//! `type=resource&ver=1&sig=<payload>;<signature>;` where the payload is base64url JSON with the permission's
//! RID, link, mode, key and expiry, and the signature HMAC-SHA256 over it with the account's secret. Clients never
//! look inside.
//!
//! The signature proves that the token was issued; whether it is still valid is looked up in the catalog at every use.
//! Permission and container are identified by RIDs, which are never reused, so a token becomes invalid with its
//! permission, user, database or container, and does not become valid again when another one gets the name. A replaced
//! permission allows what both the token and the replacement allow.
//!
//! What a request needs is a [`Wish`], determined from method, path and headers; `check_grant` is the
//! complete table of which grants cover which wishes. Everything else is denied.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use orrery_model::partition_key::{KeyPart, PartitionKey};
use orrery_model::rid::{ContainerRid, ItemRid, PermissionRid};
use orrery_model::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::Resources;
use crate::catalog::{Catalog, Container, Permission, PermissionMode, ScriptKind};

#[derive(Serialize, Deserialize)]
struct Payload {
    permission: String,
    /// The container as it was when the token was issued; without one the token grants nothing.
    container: Option<String>,
    resource: String,
    all: bool,
    key: Option<String>,
    expires: i64,
    /// Makes every token different, so that a leaked one can be identified.
    nonce: u64,
}

/// What a valid token allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    target: Target,
    container: ContainerRid,
    may_write: bool,
    partition_key: Option<PartitionKey>,
}

/// The container in a link, and optionally a resource inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub database: String,
    pub container: String,
    pub child: Option<Child>,
}

/// A resource inside a container, by its kind and its name or RID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Item(String),
    Script(ScriptKind, String),
}

impl Target {
    /// Reads `dbs/…/colls/…[/docs/…]`, by names or RIDs, with or without slashes at the ends. The resource inside may
    /// be an item or a script; nothing else in a container can be granted.
    pub(crate) fn parse(link: &str) -> Option<Self> {
        let segments: Vec<&str> = link.split('/').filter(|segment| !segment.is_empty()).collect();
        // Anything else, such as a database, yields no target: such a permission grants nothing.
        let (database, container, child) = match segments[..] {
            ["dbs", database, "colls", container] => (database, container, None),
            ["dbs", database, "colls", container, kind, id] => {
                let scripts = [ScriptKind::StoredProcedure, ScriptKind::Trigger, ScriptKind::Function];
                let script = scripts.into_iter().find(|script| script.keyword() == kind);
                let child = match script {
                    Some(script) => Child::Script(script, id.to_owned()),
                    None if kind == "docs" => Child::Item(id.to_owned()),
                    None => return None,
                };
                (database, container, Some(child))
            }
            _ => return None,
        };
        Some(Self { database: database.to_owned(), container: container.to_owned(), child })
    }
}

/// The access that a request needs: what, where, and with which partition key.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    pub database: &'a str,
    pub container: &'a str,
    pub wish: Wish<'a>,
    /// The partition key header of the request.
    pub partition_key: Option<&'a PartitionKey>,
}

/// The kind of access to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish<'a> {
    /// Read the definition and ranges, which every client needs for routing.
    Routing,
    /// Plan a query, which reads no items.
    Plan,
    /// Other access to the container itself: replacing, deleting, reading sizes.
    Container {
        writes: bool,
    },
    /// A request to the feed of items: create, upsert, list, query, batch, change feed, delete by key.
    Items {
        writes: bool,
    },
    /// One item, by its id or RID.
    Item {
        id: &'a str,
        writes: bool,
    },
    /// The feed of scripts of one kind, or a script by its name or RID.
    Scripts {
        writes: bool,
    },
    Script {
        kind: ScriptKind,
        id: &'a str,
        writes: bool,
    },
    /// Run a stored procedure.
    Execute {
        id: &'a str,
    },
    /// Conflicts between regions.
    Conflicts {
        writes: bool,
    },
}

impl Wish<'_> {
    fn writes(self) -> bool {
        match self {
            Self::Routing | Self::Plan => false,
            // A procedure may write, whatever it does this time.
            Self::Execute { .. } => true,
            Self::Container { writes }
            | Self::Items { writes }
            | Self::Item { writes, .. }
            | Self::Scripts { writes }
            | Self::Script { writes, .. }
            | Self::Conflicts { writes } => writes,
        }
    }
}

/// A new token for the permission.
pub(crate) fn issue(catalog: &Catalog, permission: &Permission, expires: i64, nonce: u64) -> String {
    // Resolved when the token is issued: later a container of another RID may have the name.
    let target = Target::parse(&permission.resource);
    let container = target.and_then(|target| {
        catalog.container(&target.database, &target.container).ok().map(|container| container.rid.to_string())
    });
    let payload = Payload {
        permission: permission.rid.to_string(),
        container,
        resource: permission.resource.to_string(),
        all: permission.mode == PermissionMode::All,
        key: permission.partition_key.as_ref().map(PartitionKey::to_json),
        expires,
        nonce,
    };
    let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&payload).expect("it is plain data"));
    let signature = URL_SAFE_NO_PAD.encode(mac(&catalog.secret, &payload).finalize().into_bytes());
    format!("type=resource&ver=1&sig={payload};{signature};")
}

fn mac(secret: &[u8; 32], payload: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    // Separates these signatures from those of continuation tokens, which use the same secret.
    mac.update(b"resource-token\0");
    mac.update(payload.as_bytes());
    mac
}

fn verified_payload(secret: &[u8; 32], signature_part: &str) -> Result<Payload> {
    let refused = || {
        Error::new(ErrorKind::Unauthorized, "The input authorization token is not a valid resource token.")
    };
    let (payload, signature) = signature_part.trim_end_matches(';').split_once(';').ok_or_else(refused)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| refused())?;
    // Verified before anything in the payload is looked at. `verify_slice` compares in constant time.
    mac(secret, payload).verify_slice(&signature).map_err(|_| refused())?;
    let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| refused())?;
    serde_json::from_slice(&payload).map_err(|_| refused())
}

impl Resources {
    /// Verifies a resource token, and that its permission still exists.
    pub async fn open_resource_token(&self, signature_part: &str) -> Result<Grant> {
        let payload = verified_payload(&self.catalog.snapshot().secret, signature_part)?;
        if payload.expires <= self.env.now_seconds() {
            return Err(Error::new(
                ErrorKind::Forbidden,
                "The authorization token is not valid at the current time: the resource token has expired.",
            ));
        }
        match current_grant(&self.catalog.snapshot(), &payload) {
            // Another server of the same store may have just created the permission.
            Err(_) => {
                self.look_at_catalog_again().await;
                current_grant(&self.catalog.snapshot(), &payload)
            }
            grant => grant,
        }
    }

    /// Rejects what the grant does not cover.
    pub fn check_grant(&self, grant: &Grant, access: &Access<'_>) -> Result<()> {
        // One snapshot for all checks, so that they agree on what exists.
        let catalog = self.catalog.snapshot();
        let granted = catalog.container(&grant.target.database, &grant.target.container);
        let wanted = catalog.container(access.database, access.container);
        let (Ok(granted), Ok(wanted)) = (granted, wanted) else {
            return Err(insufficient("The token is for another resource."));
        };
        // The name may belong to another container by now.
        if granted.rid != grant.container {
            return Err(insufficient("The container that the token was issued for no longer exists."));
        }
        // By RID, since token and request may write the same container differently.
        if wanted.rid != granted.rid {
            return Err(insufficient("The token is for another container."));
        }
        if access.wish.writes() && !grant.may_write {
            return Err(insufficient("The token only allows reading."));
        }
        match &grant.target.child {
            None => covers_container(grant, access, wanted),
            Some(Child::Item(id)) => covers_item(grant, id, access, wanted),
            Some(Child::Script(kind, id)) => covers_script(&catalog, grant, (*kind, id), access, wanted),
        }
    }
}

/// A token for a container: everything in it or, with a key, the items of the key.
fn covers_container(grant: &Grant, access: &Access<'_>, container: &Container) -> Result<()> {
    let Some(allowed) = &grant.partition_key else { return Ok(()) };
    match access.wish {
        // Routing information names no item, and without it a client cannot send any request.
        Wish::Routing => Ok(()),
        // Some clients plan without a key and query with it.
        Wish::Plan if access.partition_key.is_none() => Ok(()),
        Wish::Plan | Wish::Items { .. } | Wish::Item { .. } | Wish::Execute { .. } => {
            covers_key(allowed, access, container)
        }
        Wish::Container { .. } | Wish::Scripts { .. } | Wish::Script { .. } | Wish::Conflicts { .. } => {
            Err(insufficient("The token is for the items of a partition key, not for the container."))
        }
    }
}

/// A token for an item: that item, and the routing information.
fn covers_item(grant: &Grant, granted: &str, access: &Access<'_>, container: &Container) -> Result<()> {
    match access.wish {
        Wish::Routing => Ok(()),
        Wish::Item { id, .. }
            if item_of(&grant.target.database, granted, container)
                == item_of(access.database, id, container) =>
        {
            match &grant.partition_key {
                None => Ok(()),
                Some(allowed) => covers_key(allowed, access, container),
            }
        }
        _ => Err(insufficient("The token is for another item.")),
    }
}

/// A token for a script. If limited to a partition key, it only allows running the script on that key.
fn covers_script(
    catalog: &Catalog,
    grant: &Grant,
    (kind, granted): (ScriptKind, &str),
    access: &Access<'_>,
    container: &Container,
) -> Result<()> {
    let scripts = catalog.scripts(container.rid);
    let is_granted = |wanted_kind: ScriptKind, id: &str| {
        let rid = |id| scripts.get(kind, id).ok().map(|script| script.rid);
        wanted_kind == kind && rid(id).is_some() && rid(id) == rid(granted)
    };
    match access.wish {
        // Running one needs the partition of its key.
        Wish::Routing if kind == ScriptKind::StoredProcedure => Ok(()),
        Wish::Execute { id } if is_granted(ScriptKind::StoredProcedure, id) => match &grant.partition_key {
            None => Ok(()),
            Some(allowed) => covers_key(allowed, access, container),
        },
        Wish::Script { kind, id, .. } if grant.partition_key.is_none() && is_granted(kind, id) => Ok(()),
        _ => Err(insufficient("The token is for another script.")),
    }
}

/// The request must be limited to the granted key or, for hierarchical keys, to one below it.
fn covers_key(allowed: &PartitionKey, access: &Access<'_>, container: &Container) -> Result<()> {
    // With a synthetic key, an undefined part of a request's key means the item's own value.
    if container.synthetic.is_some() && (allowed.0.is_empty() || allowed.0.contains(&KeyPart::Undefined)) {
        return Err(insufficient(
            "The token's partition key is undefined, but this container has a synthetic key.",
        ));
    }
    match access.partition_key {
        // A hierarchical key may be longer than the granted one, never shorter.
        Some(key) if key.starts_with(allowed) => Ok(()),
        _ => Err(insufficient("The token is for another partition key.")),
    }
}

/// An item as addressed by a path. A name that looks like a RID is not the item with this RID.
#[derive(PartialEq, Eq)]
enum ItemName<'a> {
    Id(&'a str),
    Rid(ItemRid),
}

fn item_of<'a>(database: &str, item: &'a str, container: &Container) -> ItemName<'a> {
    // A path consists of RIDs or of names; the database's segment tells which.
    let by_rid = database == container.rid.database().to_string();
    let rid = ItemRid::parse(item).filter(|rid| by_rid && rid.container == container.rid);
    rid.map_or(ItemName::Id(item), ItemName::Rid)
}

/// The intersection of the token's and the permission's rights.
fn current_grant(catalog: &Catalog, payload: &Payload) -> Result<Grant> {
    let revoked = || insufficient("The permission that the token was issued for was deleted or replaced.");
    let rid = PermissionRid::parse(&payload.permission).ok_or_else(revoked)?;
    let database = catalog.database_by_rid(rid.user.database()).ok_or_else(revoked)?;
    // By RID and not by name: a user that was created again is another one.
    let user = database.users.values().find(|user| user.rid == rid.user).ok_or_else(revoked)?;
    let permission =
        user.permissions.values().find(|permission| permission.rid == rid).ok_or_else(revoked)?;
    // Replaced by a permission on something else; the token must not follow it there.
    if *permission.resource != *payload.resource {
        return Err(revoked());
    }
    let container = payload.container.as_deref().and_then(ContainerRid::parse).ok_or_else(revoked)?;
    let token_key = payload.key.as_deref().map(|text| PartitionKey::parse_json(text.as_bytes())).transpose();
    let token_key = token_key.map_err(|_| revoked())?;
    // The narrower of the two keys, or none if they exclude each other.
    let partition_key = match (token_key, permission.partition_key.clone()) {
        (Some(token), Some(now)) if token.starts_with(&now) => Some(token),
        (Some(token), Some(now)) if now.starts_with(&token) => Some(now),
        (Some(_), Some(_)) => return Err(revoked()),
        (token, now) => token.or(now),
    };
    Ok(Grant {
        target: Target::parse(&payload.resource).ok_or_else(revoked)?,
        container,
        // Both must allow it: a replaced permission can take rights away, but give a token no more than it had.
        may_write: payload.all && permission.mode == PermissionMode::All,
        partition_key,
    })
}

fn insufficient(reason: &str) -> Error {
    let text = "Insufficient permissions provided in the authorization header for the corresponding request.";
    Error::new(ErrorKind::Forbidden, format!("{text} {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only issued tokens are accepted, and arbitrary payloads and links do not panic.
    #[test]
    fn fuzz_resource_tokens() {
        let secret = [3; 32];
        let payload = Payload {
            permission: "AAAAAA==".to_owned(),
            container: Some("AAAAAAAAAAA=".to_owned()),
            resource: "dbs/d/colls/c/docs/1".to_owned(),
            all: true,
            key: Some(r#"["a"]"#.to_owned()),
            expires: 7,
            nonce: 9,
        };
        let json = serde_json::to_vec(&payload).unwrap();
        let encoded = URL_SAFE_NO_PAD.encode(&json);
        let signature = URL_SAFE_NO_PAD.encode(mac(&secret, &encoded).finalize().into_bytes());
        let token = format!("{encoded};{signature};");
        assert!(verified_payload(&secret, &token).is_ok());
        let seeds = [token.clone().into_bytes(), json, payload.resource.into_bytes()];
        let issued = token.trim_end_matches(';');
        let catalog = Catalog::default();
        orrery_testing::fuzz::fuzz("resource tokens", &seeds, |input| {
            let Ok(text) = std::str::from_utf8(input) else { return };
            if verified_payload(&secret, text).is_ok() {
                assert_eq!(text.trim_end_matches(';'), issued);
            }
            drop(Target::parse(text));
            if let Ok(payload) = serde_json::from_slice::<Payload>(input) {
                assert!(current_grant(&catalog, &payload).is_err(), "nothing is granted in an empty catalog");
            }
        });
    }
}
