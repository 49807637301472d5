//! The definition of a container: parsed and validated once, and returned to clients.
//!
//! A definition has typed parts for the database next to the JSON object for clients. The object is what was sent, in
//! the service's normal form, so unknown fields are returned unchanged.

mod computed;
mod conflict;
mod encryption;
mod fields;
mod full_text;
mod index_path;
mod indexing;
mod known;
mod throughput_buckets;
pub mod ttl;
mod unique_key;
mod vector;

pub use computed::ComputedProperty;
pub use conflict::ConflictResolution;
pub use encryption::{ClientEncryptionPolicy, EncryptedPath};
pub use full_text::{FullTextPath, FullTextPolicy, LANGUAGES as FULL_TEXT_LANGUAGES};
pub use index_path::{IndexPath, IndexStep, PathEnd, PolicyPath, TupleStep};
pub use indexing::{CompositePath, IndexingMode, IndexingPolicy, SpatialIndex, SpatialType};
pub use known::check_known_properties;
pub use throughput_buckets::ThroughputBucket;
pub use unique_key::UniqueKey;
pub use vector::{DistanceFunction, VectorDataType, VectorEmbedding, VectorIndex, VectorIndexKind};

use crate::error::{Error, ErrorKind, Result};
use crate::ids::{ResourceName, missing_properties};
use crate::partition_key::PartitionKeyDefinition;
use crate::path::KeyPath;
use crate::value::{Object, Value};

/// System properties of a container; ignored if clients send them back.
const SYSTEM_PROPERTIES: [&str; 11] = [
    "_rid",
    "_self",
    "_etag",
    "_ts",
    "_cts",
    "_docs",
    "_sprocs",
    "_triggers",
    "_udfs",
    "_conflicts",
    "statistics",
];

/// The synthetic key definition, validated by the database.
pub const SYNTHETIC_KEY: &str = "orrerySyntheticKey";

/// The maximum size of a definition: unknown fields are kept, so they need a limit.
const DEFINITION_BYTES_MAX: usize = 2 << 20;

/// The coordinate system of spatial values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Geospatial {
    /// A sphere.
    Geography,
    /// A plane.
    Geometry,
}

/// A checked container definition.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerDefinition {
    pub id: ResourceName,
    pub partition_key: PartitionKeyDefinition,
    pub indexing: IndexingPolicy,
    pub unique_keys: Vec<UniqueKey>,
    pub conflict_resolution: ConflictResolution,
    pub geospatial: Geospatial,
    /// The default time to live in seconds; -1 = only items with their own `ttl` expire, `None` = none expire.
    pub default_ttl: Option<i64>,
    /// A property to count the time to live from instead of `_ts`.
    pub ttl_property_path: Option<KeyPath>,
    pub analytical_ttl: Option<i64>,
    /// How long all versions are retained for the change feed.
    pub change_feed_retention_minutes: Option<u32>,
    pub computed_properties: Vec<ComputedProperty>,
    pub vector_embeddings: Vec<VectorEmbedding>,
    pub full_text: Option<FullTextPolicy>,
    pub client_encryption: Option<ClientEncryptionPolicy>,
    pub throughput_buckets: Vec<ThroughputBucket>,
    document: Object,
}

impl ContainerDefinition {
    /// Validates the body of a create request.
    pub fn create(body: &Value) -> Result<Self> {
        let body = object(body)?;
        let id = ResourceName::from_body(body)?;
        let partition_key = match fields::present(body, "partitionKey") {
            Some(definition) => PartitionKeyDefinition::parse(definition)?,
            None => return Err(missing_properties(&["partitionKey"])),
        };
        Self::build(body, id, partition_key)
    }

    /// Validates the body of a replace request. Absent properties revert to their defaults, except for immutable ones.
    pub fn replace(&self, body: &Value) -> Result<Self> {
        let body = object(body)?;
        let id = ResourceName::from_body(body)?;
        if id != self.id {
            return Err(Error::bad_request(format!(
                "The id of a container cannot be changed: the body has '{id}', the container is '{}'.",
                self.id
            )));
        }
        if let Some(definition) = fields::present(body, "partitionKey") {
            self.check_partition_key(definition)?;
        }
        let mut body = body.clone();
        // Python sends none of these on a replace; dropping them would silently change the container.
        for name in ["uniqueKeyPolicy", "conflictResolutionPolicy", "throughputBuckets"] {
            if fields::present(&body, name).is_none()
                && let Some(kept) = self.document.get(name)
            {
                body.set(name, kept.clone());
            }
        }
        // An extension of ours, which typed clients do not know and so do not send back. Only null removes it.
        if !body.contains(SYNTHETIC_KEY)
            && let Some(kept) = self.document.get(SYNTHETIC_KEY)
        {
            body.set(SYNTHETIC_KEY, kept.clone());
        }
        // A changed index is reported before a missing embedding policy, as clients expect.
        if let Ok(Some(policy)) = fields::optional_object(&body, "indexingPolicy")
            && let Ok(indexes) = vector::parse_indexes(policy, &self.vector_embeddings)
        {
            vector::check_replaced_indexes(&self.indexing.vector, &indexes)?;
        }
        // The partition key is the existing one, whether or not the body repeats it.
        let new = Self::build(&body, id, self.partition_key.clone())?;
        if !unique_key::same(&self.unique_keys, &new.unique_keys) {
            return Err(Error::bad_request("The unique key policy of a container cannot be changed."));
        }
        if self.conflict_resolution != new.conflict_resolution {
            return Err(Error::bad_request("Updating conflict resolution policy is currently not supported"));
        }
        if self.client_encryption != new.client_encryption {
            return Err(Error::bad_request(
                "'clientEncryptionPolicy' cannot be changed as part of collection replace operation.",
            ));
        }
        // Checked above only where the policy could be read on its own.
        vector::check_replaced_indexes(&self.indexing.vector, &new.indexing.vector)?;
        vector::check_replaced_embeddings(&self.vector_embeddings, &new.vector_embeddings)?;
        Ok(new)
    }

    /// Parses the output of [`to_value`](Self::to_value).
    pub fn from_stored(value: &Value) -> Result<Self> {
        // The stored form is one that a client could send, so that there is one parser for both.
        Self::create(value).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("a stored container definition is damaged: {error}"))
        })
    }

    /// The definition without system properties.
    pub fn to_value(&self) -> Value {
        Value::Object(self.document.clone())
    }

    fn build(body: &Object, id: ResourceName, partition_key: PartitionKeyDefinition) -> Result<Self> {
        let vector_embeddings = vector::parse_embeddings(body)?;
        // Without a policy the defaults of an empty one apply.
        let empty = Object::new();
        let policy = fields::optional_object(body, "indexingPolicy")?.unwrap_or(&empty);
        // After the embeddings, which vector indexes refer to.
        let indexing = IndexingPolicy::parse(policy, &vector_embeddings)?;
        let full_text = full_text::parse(body)?;
        full_text::check_indexes(&indexing, full_text.as_ref())?;
        let default_ttl = ttl::of_container(body)?;
        // As in the service, where time to live needs the index.
        if default_ttl.is_some() && indexing.mode == IndexingMode::None {
            return Err(Error::bad_request(
                "The property 'defaultTtl' cannot be set when the indexing mode is 'none'.",
            ));
        }
        let unique_keys = unique_key::parse(body)?;
        let geospatial = parse_geospatial(body)?;
        check_spatial(&indexing, geospatial)?;
        let mut definition = Self {
            id,
            indexing,
            unique_keys: unique_keys.unwrap_or_default(),
            conflict_resolution: ConflictResolution::parse(body)?.unwrap_or_default(),
            geospatial,
            default_ttl,
            ttl_property_path: parse_ttl_path(body)?,
            analytical_ttl: parse_analytical_ttl(body)?,
            change_feed_retention_minutes: parse_change_feed_policy(body)?,
            computed_properties: computed::parse(body)?,
            vector_embeddings,
            full_text,
            client_encryption: encryption::parse(body, &partition_key)?,
            throughput_buckets: throughput_buckets::parse(body)?,
            partition_key,
            document: Object::new(),
        };
        definition.document = definition.normalised(body);
        if Value::Object(definition.document.clone()).to_json().len() > DEFINITION_BYTES_MAX {
            return Err(Error::new(ErrorKind::TooLarge, "Request size is too large"));
        }
        Ok(definition)
    }

    /// The object for clients: known parts in the service's order, then everything else that was sent.
    fn normalised(&self, sent: &Object) -> Object {
        let mut out = Object::new();
        out.set("id", Value::from(self.id.as_str()));
        out.set("indexingPolicy", self.indexing.to_value());
        out.set("partitionKey", self.partition_key.to_value());
        // Here in the service's order; their content is returned as it was sent.
        for name in ["defaultTtl", "uniqueKeyPolicy"] {
            if let Some(value) = fields::present(sent, name) {
                out.set(name, value.clone());
            }
        }
        out.set("conflictResolutionPolicy", self.conflict_resolution.to_value());
        let kind = match self.geospatial {
            Geospatial::Geography => "Geography",
            Geospatial::Geometry => "Geometry",
        };
        let mut geospatial = Object::new();
        geospatial.set("type", Value::from(kind));
        out.set("geospatialConfig", Value::Object(geospatial));
        for (name, value) in sent.iter() {
            // Clients send back what they have read; its system properties must not be stored as properties of the
            // definition.
            let ours = SYSTEM_PROPERTIES.contains(&name) || out.contains(name);
            if !ours && !matches!(value, Value::Null) {
                out.set(name, value.clone());
            }
        }
        out
    }

    /// A definition without a version, which many clients send, means the existing one.
    fn check_partition_key(&self, definition: &Value) -> Result<()> {
        let mut definition = definition.clone();
        if let Some(object) = definition.as_object_mut() {
            let known = self.partition_key.to_value();
            for name in ["version", "kind"] {
                if fields::present(object, name).is_none()
                    && let Some(value) = known.get(name)
                {
                    object.set(name, value.clone());
                }
            }
        }
        let sent = PartitionKeyDefinition::parse(&definition)?;
        let own = &self.partition_key;
        // By names, because clients quote and unquote them as they like.
        let same_paths = sent.paths().len() == own.paths().len()
            && sent.paths().iter().zip(own.paths()).all(|(sent, own)| sent.same_property(own));
        if same_paths && sent.kind() == own.kind() && sent.version() == own.version() {
            return Ok(());
        }
        Err(Error::bad_request("Document collection partition key cannot be changed."))
    }
}

fn object(body: &Value) -> Result<&Object> {
    body.as_object()
        .ok_or_else(|| Error::bad_request("The input content is invalid because it is not a JSON object."))
}

fn parse_geospatial(body: &Object) -> Result<Geospatial> {
    let Some(config) = fields::optional_object(body, "geospatialConfig")? else {
        return Ok(Geospatial::Geography);
    };
    match fields::optional_str(config, "type")?.unwrap_or("Geography") {
        "Geography" => Ok(Geospatial::Geography),
        "Geometry" => Ok(Geospatial::Geometry),
        other => Err(Error::bad_request(format!(
            "The geospatial type '{other}' is invalid. Valid types are 'Geography' and 'Geometry'."
        ))),
    }
}

fn check_spatial(indexing: &IndexingPolicy, geospatial: Geospatial) -> Result<()> {
    let is_plane = geospatial == Geospatial::Geometry;
    // On a plane the index needs bounds to divide; a sphere has its own.
    let Some(index) = indexing.spatial.iter().find(|index| index.bounding_box.is_some() != is_plane) else {
        return Ok(());
    };
    let path = &index.path;
    Err(Error::bad_request(if is_plane {
        format!(
            "The spatial index for the path '{path}' needs a boundingBox because the geospatial type is 'Geometry'."
        )
    } else {
        format!(
            "The spatial index for the path '{path}' cannot have a boundingBox because the geospatial type is 'Geography'."
        )
    }))
}

fn parse_ttl_path(body: &Object) -> Result<Option<KeyPath>> {
    let Some(text) = fields::optional_str(body, "ttlPropertyPath")? else { return Ok(None) };
    let path = KeyPath::parse(text);
    path.map(Some).map_err(|_| {
        Error::bad_request(format!("The property 'ttlPropertyPath' has an invalid path '{text}'."))
    })
}

fn parse_analytical_ttl(body: &Object) -> Result<Option<i64>> {
    let seconds = fields::optional_i64(body, "analyticalStorageTtl")?;
    match seconds {
        // -1 means forever, as for `defaultTtl`.
        Some(value) if value < -1 || value > i64::from(i32::MAX) => {
            Err(Error::bad_request(format!("The input analytical storage ttl '{value}' is invalid.")))
        }
        other => Ok(other),
    }
}

fn parse_change_feed_policy(body: &Object) -> Result<Option<u32>> {
    let Some(policy) = fields::optional_object(body, "changeFeedPolicy")? else { return Ok(None) };
    let Some(minutes) = fields::optional_i64(policy, "retentionDuration")? else { return Ok(None) };
    u32::try_from(minutes).map(Some).map_err(|_| {
        Error::bad_request(format!(
            "The retention duration '{minutes}' of the change feed policy is invalid."
        ))
    })
}
