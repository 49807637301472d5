//! The container that a transfer reads or writes: its definition, its throughput, and how to create one.

use orrery_env::SystemEnv;
use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::{Object, Value};

use crate::client::{Client, ContainerPath, Request, Response, path as url_path};
use crate::failure::Failure;

/// A container that exists on a server.
pub(crate) struct RemoteContainer {
    pub(crate) path: ContainerPath,
    pub(crate) key: PartitionKeyDefinition,
    pub(crate) rid: String,
    /// As the server returned it, with system properties.
    pub(crate) definition: Value,
    /// The number of items, if the server reports it.
    pub(crate) items: Option<u64>,
}

/// What the server adds to a container's definition.
const SYSTEM_PROPERTIES: [&str; 9] =
    ["_rid", "_self", "_etag", "_ts", "_docs", "_sprocs", "_triggers", "_udfs", "_conflicts"];

impl RemoteContainer {
    /// Looks a container up; none if it does not exist.
    pub(crate) async fn find(client: &Client, path: &ContainerPath) -> Result<Option<Self>, Failure> {
        let response = client.read_container(&SystemEnv, path).await?;
        response.map(|response| Self::parse(path, &response)).transpose()
    }

    fn parse(path: &ContainerPath, response: &Response) -> Result<Self, Failure> {
        let wrong = |what: &dyn std::fmt::Display| {
            Failure::refused(format!("the definition of {path} cannot be parsed: {what}"))
        };
        let definition = response.json().ok_or_else(|| wrong(&"it is not valid JSON"))?;
        let key = definition.get("partitionKey").ok_or_else(|| {
            Failure::refused(format!("{path} has no partition key, which is not supported"))
        })?;
        let key = PartitionKeyDefinition::parse(key).map_err(|error| wrong(&error))?;
        // The request asked for these figures; not every server has them.
        let usage = response.header("x-ms-resource-usage").unwrap_or_default();
        let items = usage.split(';').find_map(|part| part.strip_prefix("documentsCount=")?.parse().ok());
        let rid = definition.get("_rid").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self { path: path.clone(), key, rid, definition, items })
    }

    /// Looks up a container that must exist.
    pub(crate) async fn require(client: &Client, path: &ContainerPath) -> Result<Self, Failure> {
        Self::find(client, path).await?.ok_or_else(|| {
            Failure::refused(format!("there is no container {path} at {}", client.account().endpoint()))
        })
    }

    /// Creates a database unless it exists.
    pub(crate) async fn create_database(client: &Client, id: &str) -> Result<(), Failure> {
        let mut database = Object::new();
        database.set("id", Value::from(id));
        let request = Request::post("/dbs", Value::from(database).to_json());
        accepted_or_exists(client.send(&SystemEnv, &request).await?)
    }

    /// Creates a container, and its database if it is missing. If someone else creates either first, theirs is used.
    pub(crate) async fn create(
        client: &Client,
        path: &ContainerPath,
        mut definition: Object,
        throughput: Option<ProvisionedThroughput>,
    ) -> Result<Self, Failure> {
        Self::create_database(client, &path.database).await?;
        definition.set("id", Value::from(path.container.as_str()));
        let mut request = Request::post(
            url_path(&["dbs", &path.database, "colls"]),
            Value::from(definition).to_exact_json(),
        );
        if let Some(throughput) = throughput {
            request = throughput.add_to(request);
        }
        accepted_or_exists(client.send(&SystemEnv, &request).await?)?;
        // Read back: the server may have added defaults, and another client may have been first.
        Self::require(client, path).await
    }

    /// The definition without system properties, to create another container like this one.
    pub(crate) fn user_definition(&self) -> Object {
        let mut definition = self.definition.as_object().cloned().unwrap_or_default();
        for name in SYSTEM_PROPERTIES {
            definition.remove(name);
        }
        definition
    }

    /// The container's own throughput, if it has any.
    pub(crate) async fn throughput(&self, client: &Client) -> Result<Option<ProvisionedThroughput>, Failure> {
        let response = client.send(&SystemEnv, &Request::get("/offers")).await?;
        // Serverless accounts have no offers, read-only keys may not read them, and some emulators do not know them.
        if !response.is_success() {
            return Ok(None);
        }
        Ok(ProvisionedThroughput::find(&client.list("/offers", "Offers").await?, &self.rid))
    }
}

/// What a container was provisioned with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProvisionedThroughput {
    /// Request units per second.
    Manual(i64),
    /// The most request units per second.
    Autoscale(i64),
}

impl ProvisionedThroughput {
    /// The throughput of the resource with this RID; none if it has none of its own.
    pub(crate) fn find(offers: &[Value], rid: &str) -> Option<Self> {
        let own =
            offers.iter().find(|offer| offer.get("offerResourceId").and_then(Value::as_str) == Some(rid));
        let content = own?.get("content")?;
        let autoscale =
            content.get("offerAutopilotSettings").and_then(|settings| settings.get("maxThroughput"));
        if let Some(maximum) = autoscale.and_then(Value::as_i64) {
            return Some(Self::Autoscale(maximum));
        }
        content.get("offerThroughput").and_then(Value::as_i64).map(Self::Manual)
    }

    /// The headers that provision it with a new database or container.
    pub(crate) fn add_to(self, request: Request) -> Request {
        match self {
            Self::Manual(units) => request.with("x-ms-offer-throughput", &units.to_string()),
            Self::Autoscale(maximum) => request
                .with("x-ms-cosmos-offer-autopilot-settings", &format!("{{\"maxThroughput\":{maximum}}}")),
        }
    }
}

impl std::fmt::Display for ProvisionedThroughput {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Manual(units) => write!(formatter, "{units} RU/s"),
            Self::Autoscale(maximum) => write!(formatter, "up to {maximum} RU/s (autoscale)"),
        }
    }
}

fn accepted_or_exists(response: Response) -> Result<(), Failure> {
    if response.status == 409 { Ok(()) } else { response.accepted().map(|_| ()) }
}
