//! Users of a database, which own permissions.

use orrery_model::document::parse_object;
use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_model::Result;
use orrery_model::ids::ResourceName;
use orrery_model::rid::UserRid;

use super::Resources;
use super::databases::check_etag;
use super::metadata::{MetadataReply, first_unused};
use crate::catalog::{Change, DatabaseEntry, User, already_exists};
use crate::partition::Receipt;

impl Resources {
    /// Creates a user or, for an upsert, returns the existing one.
    pub async fn create_user(
        &self,
        receipt: &mut Receipt,
        database: &str,
        body: &[u8],
        upsert: bool,
    ) -> Result<MetadataReply> {
        let body = parse_object(body)?;
        let name = ResourceName::from_body(body.as_object().expect("it is an object"))?;
        let random = self.env.random_u64();
        self.change_catalog(receipt, |change| {
            let database = Arc::clone(change.catalog.database(database)?);
            match database.users.get(name.as_str()) {
                Some(_) if !upsert => Err(already_exists()),
                Some(user) => {
                    // A user has nothing to replace but its stamp; its permissions stay.
                    let user = User { stamp: change.stamp, ..User::clone(user) };
                    Ok(put(change, &database, user, false))
                }
                None => {
                    let user = User {
                        rid: unused_rid(&database, random),
                        id: name.as_str().into(),
                        stamp: change.stamp,
                        permissions: BTreeMap::new(),
                    };
                    Ok(put(change, &database, user, true))
                }
            }
        })
        .await
    }

    pub fn read_user(&self, receipt: &mut Receipt, database: &str, user: &str) -> Result<MetadataReply> {
        let catalog = self.read_catalog(receipt);
        Ok(reply(catalog.database(database)?.user(user)?, false))
    }

    /// Replaces a user, which may be renamed and keeps its permissions.
    pub async fn replace_user(
        &self,
        receipt: &mut Receipt,
        (database, user): (&str, &str),
        body: &[u8],
        if_match: Option<&str>,
    ) -> Result<MetadataReply> {
        let body = parse_object(body)?;
        let name = ResourceName::from_body(body.as_object().expect("it is an object"))?;
        self.change_catalog(receipt, |change| {
            let database = Arc::clone(change.catalog.database(database)?);
            let current = Arc::clone(database.user(user)?);
            check_etag(if_match, current.stamp)?;
            // The record is keyed by RID, but the catalog finds users by name.
            if *current.id != *name.as_str() {
                if database.users.contains_key(name.as_str()) {
                    return Err(already_exists());
                }
                change.remove_user(&database.id, &current);
            }
            let user = User { id: name.as_str().into(), stamp: change.stamp, ..User::clone(&current) };
            Ok(put(change, &database, user, false))
        })
        .await
    }

    pub async fn delete_user(
        &self,
        receipt: &mut Receipt,
        (database, user): (&str, &str),
        if_match: Option<&str>,
    ) -> Result<()> {
        self.change_catalog(receipt, |change| {
            let database = Arc::clone(change.catalog.database(database)?);
            let user = database.user(user)?;
            check_etag(if_match, user.stamp)?;
            change.remove_user(&database.id, user);
            Ok(())
        })
        .await
    }
}

fn put(change: &mut Change, database: &DatabaseEntry, user: User, created: bool) -> MetadataReply {
    let reply = reply(&user, created);
    change.put_user(&database.id, user);
    reply
}

fn reply(user: &User, created: bool) -> MetadataReply {
    MetadataReply::new(user.to_value(), user.stamp, created)
}

fn unused_rid(database: &DatabaseEntry, random: u64) -> UserRid {
    let first = u32::try_from(random & 0x7FFF_FFFF).expect("31 bits are left");
    let candidates =
        (0u32..).map(|step| UserRid::new(database.rid, first.wrapping_add(step) & 0x7FFF_FFFF | 1));
    let taken = |rid: &UserRid| database.users.values().any(|user| user.rid == *rid);
    first_unused(candidates, taken)
}
