//! Single items: finding, writing and deleting them by id, with or without their partition key.

use orrery_env::SystemEnv;
use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::{Value, value};

use super::{Client, ContainerPath, QueryPages, QueryText, Request, Response, ascii_json};
use crate::failure::Failure;

/// A partition key as users write it: a JSON array, another JSON value, or plain text. `ada` and `"ada"` mean
/// `["ada"]`, `42` means `[42]`, and `"42"` means `["42"]`.
pub(crate) fn parse_partition_key(text: &str) -> String {
    match value::parse(text.as_bytes()) {
        Ok(array @ Value::Array(_)) => array.to_exact_json(),
        Ok(value) => Value::from(vec![value]).to_exact_json(),
        Err(_) => Value::from(vec![Value::from(text)]).to_json(),
    }
}

/// An item and its partition key as a JSON array.
pub(crate) struct FoundItem {
    pub(crate) item: Value,
    pub(crate) key: String,
}

impl Client {
    /// Looks up an item. Without a key all partitions are searched, and the id must be unique.
    pub(crate) async fn find_item(
        &self,
        container: &ContainerPath,
        definition: &PartitionKeyDefinition,
        id: &str,
        key: Option<&str>,
    ) -> Result<FoundItem, Failure> {
        let missing =
            |place: &str| Failure::refused(format!("there is no item `{id}` in {container}{place}"));
        if let Some(key) = key {
            let request =
                Request::get(container.item_path(id)).with("x-ms-documentdb-partitionkey", &ascii_json(key));
            let response = self.send(&SystemEnv, &request).await?;
            if response.status == 404 {
                return Err(missing(&format!(" with the partition key {key}")));
            }
            let item = super::accepted_json(response)?;
            return Ok(FoundItem { item, key: key.to_owned() });
        }
        // Without its key the id has to be searched for in all partitions.
        let query = QueryText {
            text: "SELECT * FROM c WHERE c.id = @id".to_owned(),
            parameters: vec![("@id".to_owned(), Value::from(id))],
        };
        // More than one, because the message lists the keys to choose from.
        let rows = QueryPages::new(self, container, query, None).collect(3).await?;
        let mut found = Vec::new();
        for item in rows {
            let key = definition.extract(&item).map_err(|error| Failure::refused(error.message))?.to_json();
            found.push(FoundItem { item, key });
        }
        if found.len() > 1 {
            let keys: Vec<&str> = found.iter().map(|found| found.key.as_str()).collect();
            return Err(Failure::refused(format!(
                "several items of {container} have the id `{id}`, with the partition keys {}: choose one with \
                 --partition-key KEY (in the shell: .key KEY)",
                keys.join(" and ")
            )));
        }
        found.pop().ok_or_else(|| missing(""))
    }

    /// Writes an item, with its partition key taken from the item itself.
    pub(crate) async fn write_item(
        &self,
        container: &ContainerPath,
        definition: &PartitionKeyDefinition,
        item: &Value,
        replaces: bool,
    ) -> Result<Response, Failure> {
        if item.get("id").and_then(Value::as_str).is_none() {
            return Err(Failure::usage("an item is a JSON object with a string `id`"));
        }
        // The server wants the key in a header, although the item has it too.
        let key = definition.extract(item).map_err(|error| Failure::refused(error.message))?.to_json();
        let mut request = Request::post(container.items_path(), item.to_exact_json())
            .with("x-ms-documentdb-partitionkey", &ascii_json(&key));
        if replaces {
            request = request.with("x-ms-documentdb-is-upsert", "True");
        }
        self.send(&SystemEnv, &request).await?.accepted()
    }

    /// Deletes an item; without a key like [`Self::find_item`].
    pub(crate) async fn delete_item(
        &self,
        container: &ContainerPath,
        definition: &PartitionKeyDefinition,
        id: &str,
        key: Option<&str>,
    ) -> Result<(), Failure> {
        let key = match key {
            Some(key) => key.to_owned(),
            None => self.find_item(container, definition, id, None).await?.key,
        };
        let request =
            Request::delete(container.item_path(id)).with("x-ms-documentdb-partitionkey", &ascii_json(&key));
        let response = self.send(&SystemEnv, &request).await?;
        if response.status == 404 {
            return Err(Failure::refused(format!(
                "there is no item `{id}` in {container} with the partition key {key}"
            )));
        }
        response.accepted().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_keys_are_json_or_plain_text() {
        for (text, expected) in [
            ("ada", r#"["ada"]"#),
            ("\"42\"", r#"["42"]"#),
            ("42", "[42]"),
            ("null", "[null]"),
            (r#"["a", 1]"#, r#"["a",1]"#),
            ("a, b", r#"["a, b"]"#),
        ] {
            assert_eq!(parse_partition_key(text), expected);
        }
    }
}
