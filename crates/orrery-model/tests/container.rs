//! Container definitions: defaults, normal form, and the refusals that client suites match.

#![allow(clippy::unwrap_used, reason = "a failed expectation should end the test")]

use orrery_model::container::{ContainerDefinition, IndexStep, IndexingMode};
use orrery_model::value::{self, Value};
use orrery_model::{Error, ErrorKind};

fn json(text: &str) -> Value {
    value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A container with these further members.
fn body(members: &str) -> Value {
    let comma = if members.is_empty() { "" } else { "," };
    json(&format!(
        r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{comma}{members}}}"#
    ))
}

fn create(members: &str) -> ContainerDefinition {
    ContainerDefinition::create(&body(members)).unwrap_or_else(|error| panic!("{error}: {members}"))
}

fn refusal(members: &str) -> Error {
    ContainerDefinition::create(&body(members)).expect_err(members)
}

fn policy_of(members: &str) -> String {
    create(members).to_value().get("indexingPolicy").unwrap().to_json()
}

#[test]
fn defaults_are_filled_in() {
    assert_eq!(
        create("").to_value().to_json(),
        concat!(
            r#"{"id":"c","indexingPolicy":{"indexingMode":"consistent","automatic":true,"#,
            r#""includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]},"#,
            r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"#,
            r#""conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""},"#,
            r#""geospatialConfig":{"type":"Geography"}}"#
        )
    );
}

#[test]
fn policies_are_normalised() {
    for (policy, expected) in [
        (
            r#"{"indexingMode":"Consistent","includedPaths":[{"path":"/*","indexes":[{"kind":"Range","dataType":"String","precision":-1}]}]}"#,
            r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}"#,
        ),
        (
            r#"{"automatic":true,"includedPaths":[{"path":"/a/?"}],"excludedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}]}"#,
            r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/a/?"}],"excludedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}]}"#,
        ),
        (
            r#"{"includedPaths":[{"path":"/"}],"excludedPaths":[]}"#,
            r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}"#,
        ),
        (
            r#"{"indexingMode":"none","automatic":false,"includedPaths":[],"excludedPaths":[]}"#,
            r#"{"indexingMode":"none","automatic":false,"includedPaths":[],"excludedPaths":[]}"#,
        ),
        (
            r#"{"indexingMode":"none"}"#,
            r#"{"indexingMode":"none","automatic":false,"includedPaths":[],"excludedPaths":[]}"#,
        ),
        (
            r#"{"compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"Descending"}]],"spatialIndexes":[{"path":"/loc/*","types":["Point"]}],"later":1}"#,
            concat!(
                r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}],"#,
                r#""compositeIndexes":[[{"path":"/a","order":"ascending"},{"path":"/b","order":"descending"}]],"spatialIndexes":[{"path":"/loc/*","types":["Point","LineString","Polygon","MultiPolygon"]}],"later":1}"#
            ),
        ),
    ] {
        assert_eq!(policy_of(&format!(r#""indexingPolicy":{policy}"#)), expected, "{policy}");
    }
}

#[test]
fn definitions_are_returned_as_sent() {
    let members = concat!(
        r#""defaultTtl":60,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/b/c"]}]},"#,
        r#""computedProperties":[{"name":"cp_lower","query":"SELECT VALUE LOWER(c.name) FROM c"}],"#,
        r#""changeFeedPolicy":{"retentionDuration":10},"analyticalStorageTtl":-1,"#,
        r#""vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v","dataType":"float32","dimensions":3,"distanceFunction":"cosine","embeddingSource":{}}]},"#,
        r#""fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/t","language":"en-US"}]},"#,
        r#""materializedViewDefinition":{"x":1},"somethingNew":[1]"#
    );
    let definition = create(&format!(
        r#"{members},"_rid":"x","_self":"x","_etag":"x","_ts":1,"_docs":"docs/","_sprocs":"x","statistics":[]"#
    ));
    let value = definition.to_value();
    for (name, sent) in json(&format!("{{{members}}}")).as_object().unwrap().iter() {
        assert_eq!(value.get(name), Some(sent), "{name}");
    }
    for name in ["_rid", "_self", "_etag", "_ts", "_docs", "_sprocs", "statistics"] {
        assert_eq!(value.get(name), None, "{name}");
    }
    assert_eq!(definition.default_ttl, Some(60));
    assert_eq!(definition.unique_keys.len(), 1);
    assert_eq!(definition.change_feed_retention_minutes, Some(10));
    let stored = ContainerDefinition::from_stored(&value).unwrap();
    assert_eq!(stored, definition);
    assert_eq!(stored.to_value().to_json(), value.to_json());
    assert_eq!(ContainerDefinition::from_stored(&json("{}")).unwrap_err().kind, ErrorKind::Internal);
}

#[test]
fn the_most_precise_path_decides() {
    let definition = create(
        r#""indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/food/ingredients/nutrition/*"},{"path":"/s/?"}],"excludedPaths":[{"path":"/food/ingredients/*"},{"path":"/s/*"}]}"#,
    );
    let steps = |path: &str| -> Vec<IndexStep> {
        let steps = path.split('/').filter(|name| !name.is_empty());
        steps
            .map(|name| if name == "[]" { IndexStep::Element } else { IndexStep::Property(name.into()) })
            .collect()
    };
    for (path, indexed) in [
        ("a", true),
        ("a/[]/b", true),
        ("food/ingredients/salt", false),
        ("food/ingredients/nutrition/energy", true),
        ("food/name", true),
        ("s", true),
        ("s/t", false),
        ("_etag", false),
        ("id", true),
    ] {
        assert_eq!(definition.indexing.indexes(&steps(path)), indexed, "{path}");
    }
    for (path, below) in [
        ("", true),
        ("food", true),
        ("food/ingredients", true),
        ("food/ingredients/salt", false),
        ("s", false),
    ] {
        assert_eq!(definition.indexing.indexes_below(&steps(path)), below, "{path}");
    }
    let excluded = create(r#""indexingPolicy":{"excludedPaths":[{"path":"/*"}]}"#);
    assert!(excluded.indexing.indexes(&steps("id")) && excluded.indexing.indexes(&steps("_ts")));
    assert!(!excluded.indexing.indexes(&steps("pk")));
    let none = create(r#""indexingPolicy":{"indexingMode":"none"}"#);
    assert_eq!(none.indexing.mode, IndexingMode::None);
    assert!(!none.indexing.indexes(&steps("id")));
}

#[test]
fn invalid_bodies_are_rejected() {
    for (text, fragment) in [
        ("[]", "not a JSON object"),
        (r#"{"partitionKey":{"paths":["/a"]}}"#, "required properties - 'id; ' - are missing"),
        (r#"{"id":"","partitionKey":{"paths":["/a"]}}"#, "less than '255' characters"),
        (r#"{"id":"c"}"#, "'partitionKey; '"),
        (r#"{"id":"c","partitionKey":5}"#, "object"),
    ] {
        let error = ContainerDefinition::create(&json(text)).unwrap_err();
        assert!(error.message.contains(fragment), "{text}: {error}");
    }
    let policy = |policy: &str| format!(r#""indexingPolicy":{policy}"#);
    let composites = |count: usize, paths: usize| {
        let paths: Vec<_> = (0..paths).map(|n| format!(r#"{{"path":"/p{n}"}}"#)).collect();
        policy(&format!(
            r#"{{"compositeIndexes":[{}]}}"#,
            vec![format!("[{}]", paths.join(",")); count].join(",")
        ))
    };
    let unique = |keys: usize, paths: usize| {
        let paths: Vec<_> = (0..paths).map(|n| format!("\"/p{n}\"")).collect();
        let key = format!(r#"{{"paths":[{}]}}"#, paths.join(","));
        format!(r#""uniqueKeyPolicy":{{"uniqueKeys":[{}]}}"#, vec![key; keys].join(","))
    };
    let included = |count: usize| {
        let paths: Vec<_> = (0..count).map(|n| format!(r#"{{"path":"/p{n}/?"}}"#)).collect();
        policy(&format!(r#"{{"includedPaths":[{}],"excludedPaths":[{{"path":"/*"}}]}}"#, paths.join(",")))
    };
    let computed = |count: usize| {
        let properties: Vec<_> =
            (0..count).map(|n| format!(r#"{{"name":"n{n}","query":"SELECT VALUE 1 FROM c"}}"#)).collect();
        format!(r#""computedProperties":[{}]"#, properties.join(","))
    };
    for allowed in [composites(12, 8), unique(10, 16), included(1500), computed(20)] {
        create(&allowed);
    }
    for (members, fragment) in [
        (policy(r#"{"indexingMode":"eager"}"#), "eager"),
        (policy(r#"{"indexingMode":"fast"}"#), "'fast' is invalid"),
        (policy(r#"{"indexingMode":"none","automatic":true}"#), "'automatic' to be false"),
        (policy(r#"{"indexingMode":"none","automatic":false,"includedPaths":[{"path":"/*"}]}"#), "paths"),
        (policy(r#"{"indexingMode":"none"},"defaultTtl":10"#), "'defaultTtl'"),
        (
            policy(r#"{"includedPaths":[{"path":"/a/?"}]}"#),
            "The special mandatory indexing path \"/\" is not provided",
        ),
        (policy(r#"{"excludedPaths":[{"path":"/a/?"}]}"#), "The special mandatory indexing path"),
        (
            policy(r#"{"includedPaths":[{"path":"/*"},{"path":"/a"}]}"#),
            "The indexing path '/a' could not be accepted, failed near position '2'.",
        ),
        (policy(r#"{"includedPaths":[{}]}"#), "'path; '"),
        (policy(r#"{"includedPaths":{}}"#), "'includedPaths' is not an array"),
        (included(1501), "1500"),
        (composites(1, 9), "between 2 and 8"),
        (composites(1, 1), "between 2 and 8"),
        (composites(13, 8), "100 paths in total"),
        (
            policy(r#"{"compositeIndexes":[[{"path":"/a"},{"path":"/b/*"}]]}"#),
            "Please ensure that the path is a valid path",
        ),
        (policy(r#"{"compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"up"}]]}"#), "'up'"),
        (
            policy(r#"{"spatialIndexes":[{"path":"/loc/*","types":[]}]}"#),
            "The spatial data types array cannot be empty. Assign at least one spatial type for the 'types' array for the path",
        ),
        (policy(r#"{"spatialIndexes":[{"path":"/loc/*","types":["Line"]}]}"#), "Line"),
        (
            policy(
                r#"{"spatialIndexes":[{"path":"/loc/*","types":["Point"]}]},"geospatialConfig":{"type":"Geometry"}"#,
            ),
            "needs a boundingBox",
        ),
        (
            policy(
                r#"{"spatialIndexes":[{"path":"/loc/*","types":["Point"],"boundingBox":{"xmin":-180,"ymin":-90,"xmax":180,"ymax":90}}]}"#,
            ),
            "cannot have a boundingBox",
        ),
        (r#""geospatialConfig":{"type":"Flat"}"#.into(), "'Flat'"),
        (unique(11, 1), "maximum of 10"),
        (unique(1, 17), "between 1 and 16"),
        (unique(1, 0), "between 1 and 16"),
        (r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a/[]/b"]}]}"#.into(), "could not be accepted"),
        (r#""defaultTtl":0"#.into(), "The input ttl '0' is invalid"),
        (r#""defaultTtl":null"#.into(), "The input ttl 'null' is invalid"),
        (r#""analyticalStorageTtl":-5"#.into(), "'-5'"),
        (r#""changeFeedPolicy":{"retentionDuration":-1}"#.into(), "'-1'"),
        (
            r#""conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/a/b"}"#.into(),
            "Invalid path '/a/b' for last writer wins conflict resolution",
        ),
        (r#""conflictResolutionPolicy":{"mode":"Random"}"#.into(), "'Random'"),
        (computed(21), "One of the specified inputs is invalid"),
        (r#""computedProperties":[{"name":"a"}]"#.into(), "One of the specified inputs is invalid"),
        (
            r#""computedProperties":[{"name":"","query":"SELECT VALUE 1 FROM c"}]"#.into(),
            "Computed property 'name' is either empty or unspecified.",
        ),
        (
            r#""computedProperties":[{"name":"a","query":""}]"#.into(),
            "Computed property 'query' is either empty or unspecified.",
        ),
        (
            r#""computedProperties":[{"name":"a","query":"SELECT VALUE 1 FROM c"},{"name":"a","query":"SELECT VALUE 2 FROM c"}]"#.into(),
            "Computed property name 'a' cannot be used in multiple definitions.",
        ),
        (
            r#""computedProperties":[{"name":"id","query":"SELECT VALUE 1 FROM c"}]"#.into(),
            "The system property name 'id' cannot be used as a computed property name.",
        ),
        (r#""clientEncryptionPolicy":{"includedPaths":[],"policyFormatVersion":3}"#.into(), "version"),
    ] {
        let error = refusal(&members);
        assert!(error.message.contains(fragment), "{members}: {error}");
        assert_eq!(error.kind, ErrorKind::BadRequest);
    }
}

/// The texts are those of the Python and Java suites.
#[test]
fn vector_policies_are_checked() {
    let embedding =
        r#"{"path":"/vector1","dataType":"float32","dimensions":256,"distanceFunction":"euclidean"}"#;
    let both = |embeddings: &str, indexes: &str| {
        format!(
            r#""vectorEmbeddingPolicy":{{"vectorEmbeddings":[{embeddings}]}},"indexingPolicy":{{"vectorIndexes":[{indexes}]}}"#
        )
    };
    create(&both(
        embedding,
        r#"{"path":"/vector1","type":"diskANN","quantizerType":"product","quantizationByteSize":128,"indexingSearchListSize":100,"vectorIndexShardKey":["/country"]}"#,
    ));
    for (embeddings, indexes, fragment) in [
        (
            "",
            r#"{"path":"/vector1","type":"flat"}"#,
            "The Vector Indexing Policy's path::/vector1 not matching in Embedding's path.",
        ),
        (embedding, r#"{"path":"/vector1","type":"notFlat"}"#, "Index Type::notFlat is invalid"),
        (
            embedding,
            r#"{"path":"/vector2","type":"quantizedFlat","quantizationByteSize":0}"#,
            "The Vector Indexing Policy parameter QuantizationByteSize value :: 0 is out of range. The allowed range is between 1 and 256.",
        ),
        (
            embedding,
            r#"{"path":"/vector2","type":"diskANN","indexingSearchListSize":5}"#,
            "IndexingSearchListSize value :: 5 is out of range. The allowed range is between 25 and 500.",
        ),
        (
            embedding,
            r#"{"path":"/vector1","type":"diskANN","vectorIndexShardKey":["country"]}"#,
            "The Vector Indexing Policy has an invalid Shard Path: country.",
        ),
        (
            embedding,
            r#"{"path":"/vector1","type":"diskANN","vectorIndexShardKey":["/a","/b","/c"]}"#,
            "The number of shard paths defined in the Vector Indexing Policy: 3 exceeds the maximum: 1.",
        ),
        (
            embedding,
            r#"{"path":"/vector1","type":"flat"},{"path":"/vector1","type":"flat"}"#,
            "Duplicate Path :/vector1 found in Vector Indexing Policy.",
        ),
        (
            r#"{"path":"/v","dimensions":3},{"path":"/v","dimensions":3}"#,
            "",
            "Duplicate Path :/v found in Vector Embedding Policy.",
        ),
        (r#"{"path":"/v","dataType":"float33"}"#, "", "Vector Embedding Policy has an invalid DataType"),
        (
            r#"{"path":"/v","dimensions":8000}"#,
            "",
            "Vector Embedding Policy has Dimensions:8000 which is more than the maximum supported value",
        ),
        (
            r#"{"path":"/v","dimensions":506}"#,
            r#"{"path":"/v","type":"flat"}"#,
            "Vector Embedding Policy has Dimensions:506 which is more than the maximum supported value",
        ),
        (r#"{"path":"/v","dimensions":-1}"#, "", "The Vector Embedding Policy has Dimensions:-1"),
        (
            r#"{"path":"/v","distanceFunction":"handMeasured"}"#,
            "",
            "The Vector Embedding Policy has an invalid DistanceFunction:handMeasured",
        ),
    ] {
        let error = refusal(&both(embeddings, indexes));
        assert!(error.message.contains(fragment), "{embeddings} {indexes}: {error}");
    }
    let flat = r#"{"path":"/vector1","type":"flat"}"#;
    let existing = create(&both(embedding, flat));
    for (members, fragment) in [
        (
            format!(r#""indexingPolicy":{{"vectorIndexes":[{flat}]}}"#),
            "The Vector Indexing Policy's path::/vector1 not matching in Embedding's path.",
        ),
        (
            r#""indexingPolicy":{"vectorIndexes":[{"path":"/vector1","type":"quantizedFlat"}]}"#.into(),
            "Paths in existing vector indexing policy cannot be modified in Collection Replace.",
        ),
        (
            both(embedding, r#"{"path":"/vector1","type":"quantizedFlat"}"#),
            "Paths in existing vector indexing policy cannot be modified in Collection Replace. They can only be added or removed.",
        ),
        (
            both(&embedding.replace("256", "384"), flat),
            "Paths in existing embedding policy cannot be modified in Collection Replace",
        ),
    ] {
        let error = existing.replace(&body(&members)).unwrap_err();
        assert!(error.message.contains(fragment), "{members}: {error}");
    }
    existing.replace(&body("")).unwrap();
}

/// The texts are those of the Python and Java suites.
#[test]
fn full_text_policies_are_checked() {
    for policy in [
        r#"{"defaultLanguage":"en-US"}"#,
        r#"{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/abstract"}]}"#,
        r#"{"fullTextPaths":[{"path":"/abstract","language":"en-US"}]}"#,
    ] {
        create(&format!(r#""fullTextPolicy":{policy}"#));
    }
    let both = |path: &str, default: &str, language: &str, index: &str| {
        format!(
            r#""fullTextPolicy":{{"defaultLanguage":"{default}","fullTextPaths":[{{"path":"{path}","language":"{language}"}}]}},"indexingPolicy":{{"fullTextIndexes":[{index}]}}"#
        )
    };
    create(&both("/abstract", "en-US", "en-US", r#"{"path":"/abstract"}"#));
    for language in ["de-DE", "fr-FR", "es-ES", "it-IT", "pt-BR", "pt-PT", "1033"] {
        create(&both("/abstract", language, language, r#"{"path":"/abstract"}"#));
    }
    for (members, fragment) in [
        (both("abstract", "en-US", "en-US", ""), "The Full Text Policy contains an invalid Path: abstract"),
        (
            both("abstract", "en-US", "xx-XX", ""),
            "The Full Text Policy contains an unsupported language xx-XX.",
        ),
        (
            both("/a", "spa-SPA", "en-US", ""),
            "The Full Text Policy contains an unsupported language spa-SPA. Supported languages are: \"en-US\"",
        ),
        (
            both("/a", "en-US", "fr-XX", ""),
            "The Full Text Policy contains an unsupported language fr-XX. Supported languages are: \"en-US\"",
        ),
        (
            both("/a", "", "en-US", ""),
            "The Full Text Policy contains an unsupported language . Supported languages are: \"en-US\"",
        ),
        (
            both("/a", "en-US", "en-US", r#"{"path":"/path"}"#),
            "The path of the Full Text Index /path does not match the path specified in the Full Text Policy",
        ),
        (
            both("/a", "en-US", "en-US", r#"{"path":"abstract"}"#),
            "Full-text index specification at index (0) contains invalid path",
        ),
        (
            both("/a", "en-US", "en-US", r#"{"not_path":"abstract"}"#),
            "Missing path in full-text index specification at index (0)",
        ),
        (
            r#""fullTextPolicy":{"fullTextPaths":[{"path":"/a"}]}"#.into(),
            "Language needs to specified for the path in the Full text policy.",
        ),
    ] {
        let error = refusal(&members);
        assert!(error.message.contains(fragment), "{members}: {error}");
    }
}

#[test]
fn encryption_policies_are_validated_and_stored() {
    let policy = |path: &str, kind: &str, version: u8| {
        format!(
            r#""clientEncryptionPolicy":{{"includedPaths":[{{"path":"{path}","clientEncryptionKeyId":"dekId","encryptionType":"{kind}","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"}}],"policyFormatVersion":{version}}}"#
        )
    };
    let container = create(&policy("/secret", "Randomized", 1));
    assert_eq!(container.client_encryption.as_ref().unwrap().paths[0].key_id.as_ref(), "dekId");
    let same = container.replace(&body(&policy("/secret", "Randomized", 1))).unwrap();
    assert_eq!(same.to_value(), container.to_value());
    // Leaving it out is a change, which the tests of the .NET client assert.
    for changed in [policy("/secret", "Deterministic", 1), String::new()] {
        let error = container.replace(&body(&changed)).unwrap_err();
        assert_eq!(
            error.message,
            "'clientEncryptionPolicy' cannot be changed as part of collection replace operation."
        );
    }
    create(&policy("/pk", "Deterministic", 2));
    for (path, kind, version) in
        [("/pk", "Deterministic", 1), ("/id", "Randomized", 2), ("/a/b", "Randomized", 1), ("/a", "Plain", 1)]
    {
        refusal(&policy(path, kind, version));
    }
}

#[test]
fn replace_changes_only_mutable_properties() {
    let container = create(
        r#""defaultTtl":10,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/b"]}]},"indexingPolicy":{"excludedPaths":[{"path":"/*"}]}"#,
    );
    // What Python sends: no version, no unique keys. The rest goes back to its defaults.
    let replaced =
        container.replace(&json(r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash"}}"#)).unwrap();
    assert_eq!(replaced.partition_key, container.partition_key);
    assert_eq!(replaced.unique_keys, container.unique_keys);
    assert_eq!(replaced.default_ttl, None);
    assert_eq!(replaced.indexing, create("").indexing);
    // Read, change, write back.
    let mut read = container.to_value();
    read.as_object_mut().unwrap().set("defaultTtl", Value::from(20));
    assert_eq!(container.replace(&read).unwrap().default_ttl, Some(20));
    container.replace(&body(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/'b'","/a"]}]}"#)).unwrap();

    for (text, fragment) in [
        (r#"{"id":"d"}"#, "id of a container cannot be changed"),
        (r#"{"id":"c","partitionKey":{"paths":["/other"]}}"#, "partition key cannot be changed"),
        (r#"{"id":"c","partitionKey":{"paths":["/pk"],"version":1}}"#, "partition key cannot be changed"),
        (
            r#"{"id":"c","uniqueKeyPolicy":{"uniqueKeys":[]}}"#,
            "unique key policy of a container cannot be changed",
        ),
        (
            r#"{"id":"c","conflictResolutionPolicy":{"mode":"Custom"}}"#,
            "Updating conflict resolution policy is currently not supported",
        ),
        (r#"{"id":"c","defaultTtl":0}"#, "The input ttl '0'"),
    ] {
        let error = container.replace(&json(text)).unwrap_err();
        assert!(error.message.contains(fragment), "{text}: {error}");
    }
}
