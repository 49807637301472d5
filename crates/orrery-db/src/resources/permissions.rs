//! Permissions of users, and the resource tokens that prove them.

use orrery_model::document::parse_object;
use std::sync::Arc;

use orrery_model::ids::{ResourceName, missing_properties};
use orrery_model::partition_key::PartitionKey;
use orrery_model::rid::PermissionRid;
use orrery_model::{Error, Object, Result, Value};

use super::databases::check_etag;
use super::metadata::MetadataReply;
use super::{Resources, resource_token};
use crate::catalog::{Change, DatabaseEntry, Permission, PermissionMode, User, already_exists};
use crate::layout::page_request::PageRequest;
use crate::partition::Receipt;
use crate::query::MetadataPage;

const TOKEN_SECONDS_DEFAULT: i64 = 3600;
const TOKEN_SECONDS: std::ops::RangeInclusive<i64> = 10..=86_400;

/// A permission with a fresh token.
pub type PermissionReply = MetadataReply;

impl Resources {
    pub async fn create_permission(
        &self,
        receipt: &mut Receipt,
        (database, user): (&str, &str),
        body: &[u8],
        upsert: bool,
        token_seconds: Option<i64>,
    ) -> Result<PermissionReply> {
        let wanted = Wanted::parse(body)?;
        let token_seconds = check_token_seconds(token_seconds)?;
        let random = self.env.random_u64();
        let (permission, created) = self
            .change_catalog(receipt, |change| {
                let database = Arc::clone(change.catalog.database(database)?);
                let mut user = User::clone(database.user(user)?);
                let existing = user.permissions.get(wanted.id.as_str());
                if existing.is_some() && !upsert {
                    return Err(already_exists());
                }
                let created = existing.is_none();
                // Tokens name the permission by its RID, so an upsert keeps it and with it the tokens that were
                // issued.
                let rid = existing.map_or(PermissionRid::new(user.rid, random), |existing| existing.rid);
                wanted.check_resource_is_free(&user)?;
                let permission = Arc::new(wanted.permission(rid, change.stamp));
                user.permissions.insert(permission.id.clone(), Arc::clone(&permission));
                change.put_user(&database.id, user);
                Ok((permission, created))
            })
            .await?;
        Ok(self.permission_reply(&permission, created, token_seconds))
    }

    pub fn read_permission(
        &self,
        receipt: &mut Receipt,
        (database, user, permission): (&str, &str, &str),
        token_seconds: Option<i64>,
    ) -> Result<PermissionReply> {
        let token_seconds = check_token_seconds(token_seconds)?;
        let catalog = self.read_catalog(receipt);
        let permission = catalog.database(database)?.user(user)?.permission(permission)?;
        Ok(self.permission_reply(permission, false, token_seconds))
    }

    pub fn list_permissions(
        &self,
        receipt: &mut Receipt,
        (database, user): (&str, &str),
        page: &PageRequest,
        token_seconds: Option<i64>,
    ) -> Result<MetadataPage> {
        let token_seconds = check_token_seconds(token_seconds)?;
        let catalog = self.read_catalog(receipt);
        let user = catalog.database(database)?.user(user)?;
        let permissions = user.permissions.iter().map(|(name, permission)| {
            (&**name, self.permission_reply(permission, false, token_seconds).value)
        });
        self.metadata_page("permissions", user.rid.to_string(), page, permissions)
    }

    pub async fn replace_permission(
        &self,
        receipt: &mut Receipt,
        place: (&str, &str, &str),
        body: &[u8],
        if_match: Option<&str>,
        token_seconds: Option<i64>,
    ) -> Result<PermissionReply> {
        let wanted = Wanted::parse(body)?;
        let token_seconds = check_token_seconds(token_seconds)?;
        let permission = self
            .change_catalog(receipt, |change| {
                let (database, mut user, current) = take_permission(change, place, if_match)?;
                // `user` no longer contains the permission that is replaced, so keeping its id is not a conflict.
                if user.permissions.contains_key(wanted.id.as_str()) {
                    return Err(already_exists());
                }
                wanted.check_resource_is_free(&user)?;
                let permission = Arc::new(wanted.permission(current.rid, change.stamp));
                user.permissions.insert(permission.id.clone(), Arc::clone(&permission));
                change.put_user(&database.id, user);
                Ok(permission)
            })
            .await?;
        Ok(self.permission_reply(&permission, false, token_seconds))
    }

    pub async fn delete_permission(
        &self,
        receipt: &mut Receipt,
        place: (&str, &str, &str),
        if_match: Option<&str>,
    ) -> Result<()> {
        self.change_catalog(receipt, |change| {
            let (database, user, _) = take_permission(change, place, if_match)?;
            change.put_user(&database.id, user);
            Ok(())
        })
        .await
    }

    fn permission_reply(
        &self,
        permission: &Permission,
        created: bool,
        token_seconds: i64,
    ) -> PermissionReply {
        let expires = self.env.now_seconds().saturating_add(token_seconds);
        // Every reply has a new token: the expiry counts from the request.
        let token =
            resource_token::issue(&self.catalog.snapshot(), permission, expires, self.env.random_u64());
        let mut object = Object::new();
        object.set("id", Value::from(&*permission.id));
        object.set("permissionMode", Value::from(&*permission.mode_text));
        object.set("resource", Value::from(&*permission.resource));
        if let Some(key) = &permission.partition_key {
            object.set("resourcePartitionKey", key.to_value());
        }
        let rid = permission.rid;
        permission.stamp.add_system_properties(&mut object, &rid.to_string(), &rid.self_link());
        object.set("_token", Value::from(token));
        MetadataReply::new(object.into(), permission.stamp, created)
    }
}

/// A permission as a client asks for it.
struct Wanted {
    id: ResourceName,
    mode: PermissionMode,
    mode_text: String,
    resource: String,
    partition_key: Option<PartitionKey>,
}

impl Wanted {
    fn parse(body: &[u8]) -> Result<Self> {
        let body = parse_object(body)?;
        let object = body.as_object().expect("it is an object");
        let mode_text = body.get("permissionMode").and_then(Value::as_str);
        let mode_text = mode_text.ok_or_else(|| missing_properties(&["permissionMode"]))?;
        let mode = PermissionMode::parse(mode_text)
            .ok_or_else(|| Error::bad_request("The permissionMode must be 'All' or 'Read'."))?;
        let resource =
            body.get("resource").and_then(Value::as_str).ok_or_else(|| missing_properties(&["resource"]))?;
        // Rejected when it is created rather than when its first token fails.
        if resource_token::Target::parse(resource).is_none() {
            return Err(Error::bad_request(format!(
                "The resource '{resource}' of the permission must be the link of a container, or of an item, stored procedure, trigger or function in one."
            )));
        }
        let partition_key = match body.get("resourcePartitionKey") {
            None | Some(Value::Null) => None,
            Some(key) => Some(PartitionKey::parse_json(key.to_json().as_bytes())?),
        };
        Ok(Self {
            id: ResourceName::from_body(object)?,
            mode,
            mode_text: mode_text.to_owned(),
            resource: resource.to_owned(),
            partition_key,
        })
    }

    fn permission(self, rid: PermissionRid, stamp: crate::catalog::Stamp) -> Permission {
        Permission {
            rid,
            id: self.id.as_str().into(),
            mode: self.mode,
            mode_text: self.mode_text.into(),
            resource: self.resource.into(),
            partition_key: self.partition_key,
            stamp,
        }
    }

    /// A user has at most one permission on a resource and key.
    fn check_resource_is_free(&self, user: &User) -> Result<()> {
        let taken = user.permissions.values().any(|other| {
            *other.id != *self.id.as_str()
                // Links with and without slashes at their ends are the same resource.
                && other.resource.trim_matches('/') == self.resource.trim_matches('/')
                && other.partition_key == self.partition_key
        });
        if taken { Err(already_exists()) } else { Ok(()) }
    }
}

fn check_token_seconds(seconds: Option<i64>) -> Result<i64> {
    match seconds {
        None => Ok(TOKEN_SECONDS_DEFAULT),
        Some(seconds) if TOKEN_SECONDS.contains(&seconds) => Ok(seconds),
        Some(seconds) => Err(Error::bad_request(format!(
            "One of the input values is invalid. The token's validity must be between {} and {} seconds, not {seconds}.",
            TOKEN_SECONDS.start(),
            TOKEN_SECONDS.end()
        ))),
    }
}

/// Removes a permission from its user, for replacing or deleting it.
fn take_permission(
    change: &Change,
    (database, user, permission): (&str, &str, &str),
    if_match: Option<&str>,
) -> Result<(Arc<DatabaseEntry>, User, Arc<Permission>)> {
    let database = Arc::clone(change.catalog.database(database)?);
    // Permissions are part of their user's record, so a change of one is a change of the user.
    let mut user = User::clone(database.user(user)?);
    let current = Arc::clone(user.permission(permission)?);
    check_etag(if_match, current.stamp)?;
    user.permissions.remove(&current.id);
    Ok((database, user, current))
}
