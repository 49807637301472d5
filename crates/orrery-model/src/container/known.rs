//! The properties that a container's definition may have.

use super::SYNTHETIC_KEY;
use crate::error::Result;
use crate::known::Shape::{Any, Each, Members, Undone};
use crate::known::{self, Shape};
use crate::value::Value;

/// Rejects unknown properties at any depth, and known but unsupported settings.
pub fn check_known_properties(body: &Value) -> Result<()> {
    // A value, not a name, decides, which shapes cannot express.
    if body.get("analyticalStorageTtl").and_then(Value::as_i64).is_some_and(|seconds| seconds != 0) {
        return Err(crate::Error::not_implemented(
            "There is no analytical store: 'analyticalStorageTtl' can only be 0 or null.",
        ));
    }
    known::check(body, CONTAINER, "the container")
}

const CONTAINER: Shape = Members(&[
    ("id", Any),
    ("partitionKey", Members(&[("paths", Any), ("kind", Any), ("version", Any), ("systemKey", Any)])),
    ("indexingPolicy", INDEXING),
    ("defaultTtl", Any),
    ("ttlPropertyPath", Any),
    ("uniqueKeyPolicy", Members(&[("uniqueKeys", Each(&Members(&[("paths", Any)])))])),
    (
        "conflictResolutionPolicy",
        Members(&[("mode", Any), ("conflictResolutionPath", Any), ("conflictResolutionProcedure", Any)]),
    ),
    ("geospatialConfig", Members(&[("type", Any)])),
    ("analyticalStorageTtl", Any),
    ("changeFeedPolicy", Members(&[("retentionDuration", Any)])),
    ("computedProperties", Each(&Members(&[("name", Any), ("query", Any)]))),
    ("vectorEmbeddingPolicy", Members(&[("vectorEmbeddings", Each(&EMBEDDING))])),
    (
        "fullTextPolicy",
        Members(&[
            ("defaultLanguage", Any),
            ("defaultSpec", Any),
            ("fullTextPaths", Each(&Members(&[("path", Any), ("language", Any), ("spec", Any)]))),
        ]),
    ),
    (
        "clientEncryptionPolicy",
        Members(&[("includedPaths", Each(&ENCRYPTED_PATH)), ("policyFormatVersion", Any)]),
    ),
    // Extensions, checked where they are read.
    ("throughputBuckets", Any),
    (SYNTHETIC_KEY, Any),
    // Returned by the service and sent back by clients.
    ("_rid", Any),
    ("_self", Any),
    ("_etag", Any),
    ("_ts", Any),
    ("_cts", Any),
    ("_docs", Any),
    ("_sprocs", Any),
    ("_triggers", Any),
    ("_udfs", Any),
    ("_conflicts", Any),
    ("statistics", Any),
    ("createMode", Undone("Containers cannot be restored: 'createMode' is not supported.")),
    ("restoreParameters", Undone("Containers cannot be restored: 'restoreParameters' is not supported.")),
    ("backupPolicy", Undone("Backups are made outside of the protocol: 'backupPolicy' is not supported.")),
    ("dataMaskingPolicy", Undone("Masking data is not supported ('dataMaskingPolicy').")),
    ("materializedViewDefinition", Undone("Materialized views are not supported.")),
    ("materializedViews", Undone("Materialized views are not supported.")),
    ("materializedViewsProperties", Undone("Materialized views are not supported.")),
    ("allowMaterializedViews", Undone("Materialized views are not supported.")),
    ("globalSecondaryIndexDefinition", Undone("Global secondary indexes are not supported.")),
    ("globalSecondaryIndexes", Undone("Global secondary indexes are not supported.")),
]);

const PATHS: Shape = Each(&Members(&[("path", Any), ("indexes", Any)]));

const INDEXING: Shape = Members(&[
    ("indexingMode", Any),
    ("automatic", Any),
    ("includedPaths", PATHS),
    ("excludedPaths", PATHS),
    ("compositeIndexes", Each(&Each(&Members(&[("path", Any), ("order", Any)])))),
    (
        "spatialIndexes",
        Each(&Members(&[
            ("path", Any),
            ("types", Any),
            ("boundingBox", Members(&[("xmin", Any), ("ymin", Any), ("xmax", Any), ("ymax", Any)])),
        ])),
    ),
    (
        "vectorIndexes",
        Each(&Members(&[
            ("path", Any),
            ("type", Any),
            ("quantizationByteSize", Any),
            ("quantizerType", Any),
            ("indexingSearchListSize", Any),
            ("vectorIndexShardKey", Any),
        ])),
    ),
    ("fullTextIndexes", Each(&Members(&[("path", Any)]))),
]);

const EMBEDDING: Shape =
    Members(&[("path", Any), ("dataType", Any), ("distanceFunction", Any), ("dimensions", Any)]);

const ENCRYPTED_PATH: Shape = Members(&[
    ("path", Any),
    ("clientEncryptionKeyId", Any),
    ("encryptionType", Any),
    ("encryptionAlgorithm", Any),
]);
