//! Writes of one item, with the request's triggers around them.

use bytes::Bytes;

use orrery_model::{ErrorKind, Result};

use super::Scripts;
use crate::items::batch::BatchKind;
use crate::items::fill::Missing;
use crate::items::point::{ItemOptions, ItemReply, full_key, patch_action, prepare, with_key};
use crate::items::prepare::PreparedItem;
use crate::items::transaction::ActionKind;
use crate::partition::Receipt;

impl Scripts {
    /// Creates an item; one with the same id is a conflict.
    pub async fn create_item(
        &self,
        receipt: &mut Receipt,
        place: (&str, &str),
        options: &ItemOptions,
        body: &Bytes,
    ) -> Result<ItemReply> {
        self.write_whole(receipt, place, options, body, BatchKind::Create, ActionKind::Create).await
    }

    /// Creates an item or replaces the one with the same id.
    pub async fn upsert_item(
        &self,
        receipt: &mut Receipt,
        place: (&str, &str),
        options: &ItemOptions,
        body: &Bytes,
    ) -> Result<ItemReply> {
        self.write_whole(receipt, place, options, body, BatchKind::Upsert, ActionKind::Upsert).await
    }

    /// Writes an item under the id in its body.
    async fn write_whole(
        &self,
        receipt: &mut Receipt,
        (database, container): (&str, &str),
        options: &ItemOptions,
        body: &Bytes,
        kind: BatchKind,
        action: fn(PreparedItem) -> ActionKind,
    ) -> Result<ItemReply> {
        let container = self.item_container(receipt, database, container, options.intended_rid.as_deref())?;
        // A pre-trigger may still change the item, so only its key is determined now.
        if let Some(triggers) = &options.triggers {
            let (key, body) = with_key(&container, options, body, Missing::Made, self.env())?;
            return self
                .write_with_triggers(receipt, &container, key, kind, None, Some(&body), options, triggers)
                .await;
        }
        let (key, item) = prepare(&container, options, body, Missing::Made, self.env())?;
        self.write_item(receipt, &container, key, item.id.clone(), action(item), options).await
    }

    /// Replaces an item, which may be renamed.
    pub async fn replace_item(
        &self,
        receipt: &mut Receipt,
        (database, container, item): (&str, &str, &str),
        options: &ItemOptions,
        body: &Bytes,
    ) -> Result<ItemReply> {
        let container = self.item_container(receipt, database, container, options.intended_rid.as_deref())?;
        if let Some(triggers) = &options.triggers {
            let (key, body) = with_key(&container, options, body, Missing::Found, self.env())?;
            let kind = BatchKind::Replace;
            let id = Some(self.item_id(receipt, &container, &key, database, item).await?);
            return self
                .write_with_triggers(receipt, &container, key, kind, id, Some(&body), options, triggers)
                .await;
        }
        let (key, new) = match prepare(&container, options, body, Missing::Found, self.env()) {
            // A missing item takes precedence over a key mismatch.
            Err(error) if error.kind == ErrorKind::PartitionKeyMismatch => {
                let place = (database, container.definition.id.as_str(), item);
                self.read_item(receipt, place, options).await?;
                return Err(error);
            }
            prepared => prepared?,
        };
        let id = self.item_id(receipt, &container, &key, database, item).await?;
        self.write_item(receipt, &container, key, id, ActionKind::Replace(new), options).await
    }

    /// Patches an item.
    pub async fn patch_item(
        &self,
        receipt: &mut Receipt,
        (database, container, item): (&str, &str, &str),
        options: &ItemOptions,
        body: &Bytes,
    ) -> Result<ItemReply> {
        let container = self.item_container(receipt, database, container, options.intended_rid.as_deref())?;
        let key = full_key(&container, options)?;
        // Parsed before the item is looked up: a malformed patch is an error whether or not there is an item.
        let kind = patch_action(&container, body)?;
        let id = self.item_id(receipt, &container, &key, database, item).await?;
        if let Some(triggers) = &options.triggers {
            let kind = BatchKind::Patch;
            return self
                .write_with_triggers(receipt, &container, key, kind, Some(id), Some(body), options, triggers)
                .await;
        }
        self.write_item(receipt, &container, key, id, kind, options).await
    }

    /// Deletes an item.
    pub async fn delete_item(
        &self,
        receipt: &mut Receipt,
        (database, container, item): (&str, &str, &str),
        options: &ItemOptions,
    ) -> Result<ItemReply> {
        let container = self.item_container(receipt, database, container, options.intended_rid.as_deref())?;
        let key = full_key(&container, options)?;
        let id = self.item_id(receipt, &container, &key, database, item).await?;
        if let Some(triggers) = &options.triggers {
            let kind = BatchKind::Delete;
            return self
                .write_with_triggers(receipt, &container, key, kind, Some(id), None, options, triggers)
                .await;
        }
        self.write_item(receipt, &container, key, id, ActionKind::Delete, options).await
    }
}
