//! The container that is read or written: its definition, and how it is made.

use bytes::Bytes;
use orrery_db::SystemEnv;
use orrery_model::partition_key::{EffectiveKey, PartitionKeyDefinition};
use orrery_model::{Object, Value, value};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::client::feed::Place;
use crate::client::{Answer, Client, Request, path};
use crate::failure::Failure;

/// A container that exists.
pub(super) struct Target {
    pub(super) place: Place,
    pub(super) key: PartitionKeyDefinition,
    pub(super) rid: String,
    /// As the server has it, with system properties.
    pub(super) definition: Value,
    /// How many items it has, if the server says.
    pub(super) items: Option<u64>,
}

/// What the server adds to a container's definition.
const CONTAINER_SYSTEM: [&str; 9] =
    ["_rid", "_self", "_etag", "_ts", "_docs", "_sprocs", "_triggers", "_udfs", "_conflicts"];

impl Target {
    /// Finds a container; none if it does not exist.
    pub(super) async fn find(client: &Client, place: &Place) -> Result<Option<Self>, Failure> {
        let answer = client.read_container(&SystemEnv, place).await?;
        answer.map(|answer| Self::of(place, &answer)).transpose()
    }

    fn of(place: &Place, answer: &Answer) -> Result<Self, Failure> {
        let wrong = |what: &dyn std::fmt::Display| {
            Failure::refused(format!("the definition of {place} cannot be understood: {what}"))
        };
        let definition = answer.json().ok_or_else(|| wrong(&"it is no JSON"))?;
        let key = definition.get("partitionKey").ok_or_else(|| {
            Failure::refused(format!("{place} has no partition key, which is not supported"))
        })?;
        let key = PartitionKeyDefinition::parse(key).map_err(|error| wrong(&error))?;
        let usage = answer.header("x-ms-resource-usage").unwrap_or_default();
        let items = usage.split(';').find_map(|part| part.strip_prefix("documentsCount=")?.parse().ok());
        let rid = definition.get("_rid").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self { place: place.clone(), key, rid, definition, items })
    }

    /// Finds a container that must exist.
    pub(super) async fn require(client: &Client, place: &Place) -> Result<Self, Failure> {
        Self::find(client, place).await?.ok_or_else(|| {
            Failure::refused(format!("there is no container {place} at {}", client.account().endpoint()))
        })
    }

    /// Makes a container, and its database if need be. One that exists by now is as good.
    pub(super) async fn create(
        client: &Client,
        place: &Place,
        mut definition: Object,
        throughput: Option<u32>,
    ) -> Result<Self, Failure> {
        let mut database = Object::new();
        database.set("id", Value::from(place.database.as_str()));
        let request = Request::post("/dbs", Value::from(database).to_json());
        accepted_or_exists(client.ask(&SystemEnv, &request).await?)?;
        definition.set("id", Value::from(place.container.as_str()));
        let path = path(&["dbs", &place.database, "colls"]);
        let mut request = Request::post(path, Value::from(definition).to_exact_json());
        if let Some(throughput) = throughput {
            request = request.with("x-ms-offer-throughput", &throughput.to_string());
        }
        accepted_or_exists(client.ask(&SystemEnv, &request).await?)?;
        Self::require(client, place).await
    }

    /// The definition as it would be sent to make another container like this one.
    pub(super) fn blueprint(&self) -> Object {
        let mut definition = self.definition.as_object().cloned().unwrap_or_default();
        for name in CONTAINER_SYSTEM {
            definition.remove(name);
        }
        definition
    }

    /// The container's own throughput, if it has one: units a second, or the most of its autoscale.
    pub(super) async fn throughput(&self, client: &Client) -> Result<Option<Throughput>, Failure> {
        let mut continuation: Option<String> = None;
        loop {
            let mut request = Request::get("/offers");
            if let Some(token) = &continuation {
                request = request.with("x-ms-continuation", token);
            }
            let answer = client.ask(&SystemEnv, &request).await?;
            // Serverless accounts have no offers, and read-only keys may not see them.
            if !answer.is_success() {
                return Ok(None);
            }
            let body = answer.json().unwrap_or_default();
            let offers = body.get("Offers").and_then(Value::as_array).unwrap_or(&[]);
            let own = offers.iter().find(|offer| {
                offer.get("offerResourceId").and_then(Value::as_str) == Some(self.rid.as_str())
            });
            if let Some(content) = own.and_then(|offer| offer.get("content")) {
                let autoscale = content.get("offerAutopilotSettings");
                let maximum = autoscale.and_then(|settings| settings.get("maxThroughput"));
                if let Some(maximum) = maximum.and_then(Value::as_i64) {
                    return Ok(Some(Throughput::Autoscale(maximum)));
                }
                let manual = content.get("offerThroughput").and_then(Value::as_i64);
                return Ok(manual.map(Throughput::Manual));
            }
            continuation = answer.continuation().map(str::to_owned);
            if continuation.is_none() {
                return Ok(None);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Throughput {
    Manual(i64),
    Autoscale(i64),
}

fn accepted_or_exists(answer: Answer) -> Result<(), Failure> {
    if answer.status == 409 { Ok(()) } else { answer.accepted().map(|_| ()) }
}

/// Makes a container like another one, with the same kind of throughput.
pub(super) async fn create_like(
    client: &Client,
    place: &Place,
    original: &Target,
    throughput: Option<Throughput>,
) -> Result<Target, Failure> {
    match throughput {
        Some(Throughput::Autoscale(maximum)) => {
            let mut database = Object::new();
            database.set("id", Value::from(place.database.as_str()));
            let request = Request::post("/dbs", Value::from(database).to_json());
            accepted_or_exists(client.ask(&SystemEnv, &request).await?)?;
            let mut definition = original.blueprint();
            definition.set("id", Value::from(place.container.as_str()));
            let request = Request::post(
                path(&["dbs", &place.database, "colls"]),
                Value::from(definition).to_exact_json(),
            )
            .with("x-ms-cosmos-offer-autopilot-settings", &format!("{{\"maxThroughput\":{maximum}}}"));
            accepted_or_exists(client.ask(&SystemEnv, &request).await?)?;
            Target::require(client, place).await
        }
        manual => {
            let units = match manual {
                Some(Throughput::Manual(units)) => u32::try_from(units).ok(),
                _ => None,
            };
            Target::create(client, place, original.blueprint(), units).await
        }
    }
}

/// An item that is ready to be written.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) id: String,
    /// The partition key as JSON.
    pub(super) key: String,
    pub(super) effective: EffectiveKey,
    pub(super) body: Bytes,
}

/// Where ids come from.
#[derive(Clone, Debug)]
pub(super) enum IdRule {
    Given,
    /// A property holds it.
    From(String),
    /// Made from position and content where there is none.
    Made,
}

/// Finds an item's id and key. `number` is its place in the input.
pub(super) fn prepare(
    definition: &PartitionKeyDefinition,
    rule: &IdRule,
    number: u64,
    text: Vec<u8>,
) -> Result<Prepared, (String, Vec<u8>)> {
    let mut item = match value::parse(&text) {
        Ok(item @ Value::Object(_)) => item,
        Ok(_) => return Err(("the record is no JSON object".to_owned(), text)),
        Err(error) => return Err((format!("the record is no JSON: {error}"), Vec::new())),
    };
    let new_id = match rule {
        IdRule::From(property) => match item.get(property) {
            Some(Value::String(id)) => Some(id.to_string()),
            Some(number @ Value::Number(_)) => Some(number.to_json()),
            _ => return Err((format!("the property {property} holds no id"), text)),
        },
        IdRule::Made if item.get("id").is_none() => {
            Some(format!("{:032x}", xxh3_128_with_seed(&text, number)))
        }
        IdRule::Given | IdRule::Made => None,
    };
    let body = match new_id {
        None => Bytes::from(text),
        Some(id) => {
            if let Some(object) = item.as_object_mut() {
                object.set("id", Value::from(id.as_str()));
            }
            Bytes::from(item.to_exact_json())
        }
    };
    let id = match item.get("id") {
        Some(Value::String(id)) => id.to_string(),
        Some(_) => return Err(("the id is not a text".to_owned(), body.into())),
        None => return Err(("the item has no id".to_owned(), body.into())),
    };
    let key = match definition.extract(&item) {
        Ok(key) => key,
        Err(error) => return Err((error.message, body.into())),
    };
    let effective = definition.effective_key(&key);
    Ok(Prepared { id, key: key.to_json(), effective, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_taken_or_made() {
        let definition = PartitionKeyDefinition::with_paths(&["/pk"]).unwrap();
        let check = |rule: &IdRule, text: &str| {
            prepare(&definition, rule, 7, text.as_bytes().to_vec())
                .map(|item| (item.id, item.key, String::from_utf8(item.body.to_vec()).unwrap()))
                .map_err(|(reason, _)| reason)
        };
        let text = r#"{"id":"a","pk":1.50}"#;
        let expected = ("a".to_owned(), "[1.5]".to_owned(), text.to_owned());
        assert_eq!(check(&IdRule::Given, text), Ok(expected.clone()));
        assert_eq!(check(&IdRule::Made, text), Ok(expected));
        let (id, key, body) = check(&IdRule::From("n".to_owned()), r#"{"n":12}"#).unwrap();
        assert_eq!((id.as_str(), key.as_str(), body.as_str()), ("12", "[{}]", r#"{"n":12,"id":"12"}"#));
        let made = check(&IdRule::Made, r#"{"pk":"x"}"#).unwrap();
        assert_eq!(made, check(&IdRule::Made, r#"{"pk":"x"}"#).unwrap());
        assert_eq!(made.0.len(), 32);
        for (text, reason) in
            [("[1]", "no JSON object"), ("{", "no JSON"), ("{}", "no id"), (r#"{"id":1}"#, "not a text")]
        {
            assert!(check(&IdRule::Given, text).unwrap_err().contains(reason), "{text}");
        }
    }
}
