//! Vector embeddings of a container and the vector indexes over them.

use super::fields;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::value::{Object, Value};

const DIMENSIONS_MAX: i64 = 4096;
/// A flat index stores whole vectors in the index, which bounds them.
const FLAT_DIMENSIONS_MAX: u32 = 505;
const QUANTIZATION_BYTES_MAX: i64 = 512;
/// The bound the service names when the index has no embedding to measure.
const QUANTIZATION_BYTES_MAX_UNKNOWN: i64 = 256;
const EMBEDDINGS_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorDataType {
    Float32,
    Float16,
    Int8,
    Uint8,
}

/// How two vectors are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DistanceFunction {
    #[default]
    Cosine,
    DotProduct,
    Euclidean,
}

impl DistanceFunction {
    /// Reads the name as policies and query options spell it, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        [("cosine", Self::Cosine), ("dotproduct", Self::DotProduct), ("euclidean", Self::Euclidean)]
            .into_iter()
            .find_map(|(known, function)| known.eq_ignore_ascii_case(name).then_some(function))
    }

    /// Whether a smaller result means more alike.
    pub fn is_ascending(self) -> bool {
        self == Self::Euclidean
    }
}

/// What the vectors at a path are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorEmbedding {
    pub path: KeyPath,
    pub data_type: VectorDataType,
    pub dimensions: u32,
    pub distance: DistanceFunction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorIndexKind {
    Flat,
    QuantizedFlat,
    DiskAnn,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorIndex {
    pub path: KeyPath,
    pub kind: VectorIndexKind,
    pub quantization_bytes: Option<u32>,
    pub search_list_size: Option<u32>,
    pub shard_key: Option<KeyPath>,
}

/// The `vectorEmbeddingPolicy` of a container.
pub(super) fn parse_embeddings(container: &Object) -> Result<Vec<VectorEmbedding>> {
    let Some(policy) = fields::optional_object(container, "vectorEmbeddingPolicy")? else {
        return Ok(Vec::new());
    };
    let listed = fields::array(policy, "vectorEmbeddings")?;
    if listed.len() > EMBEDDINGS_MAX {
        return Err(Error::bad_request(format!(
            "The Vector Embedding Policy has more than {EMBEDDINGS_MAX} embeddings."
        )));
    }
    let mut embeddings: Vec<VectorEmbedding> = Vec::with_capacity(listed.len());
    for entry in listed {
        let embedding = parse_embedding(fields::object(entry, "vectorEmbeddings")?)?;
        if embeddings.iter().any(|earlier| earlier.path.same_property(&embedding.path)) {
            return Err(Error::bad_request(format!(
                "Duplicate Path :{} found in Vector Embedding Policy.",
                embedding.path
            )));
        }
        embeddings.push(embedding);
    }
    Ok(embeddings)
}

fn parse_embedding(entry: &Object) -> Result<VectorEmbedding> {
    let text = fields::required_str(entry, "path")?;
    let path = KeyPath::parse(text)
        .map_err(|_| Error::bad_request(format!("The Vector Embedding Policy has an invalid Path:{text}")))?;
    // The defaults here are the service's; some clients omit what equals them.
    let name = fields::optional_str(entry, "dataType")?.unwrap_or("float32");
    let data_type = match name.to_ascii_lowercase().as_str() {
        "float32" => VectorDataType::Float32,
        "float16" => VectorDataType::Float16,
        "int8" => VectorDataType::Int8,
        "uint8" => VectorDataType::Uint8,
        _ => {
            return Err(Error::bad_request(format!(
                "The Vector Embedding Policy has an invalid DataType:{name}"
            )));
        }
    };
    let dimensions = fields::optional_i64(entry, "dimensions")?.unwrap_or(1536);
    if dimensions > DIMENSIONS_MAX {
        return Err(too_many_dimensions(dimensions, DIMENSIONS_MAX));
    }
    let dimensions = u32::try_from(dimensions).ok().filter(|dimensions| *dimensions > 0).ok_or_else(|| {
        Error::bad_request(format!(
            "The Vector Embedding Policy has Dimensions:{dimensions} which is less than the minimum supported value: 1"
        ))
    })?;
    let name = fields::optional_str(entry, "distanceFunction")?.unwrap_or("cosine");
    let distance = DistanceFunction::parse(name).ok_or_else(|| {
        Error::bad_request(format!("The Vector Embedding Policy has an invalid DistanceFunction:{name}"))
    })?;
    Ok(VectorEmbedding { path, data_type, dimensions, distance })
}

fn too_many_dimensions(dimensions: i64, max: i64) -> Error {
    Error::bad_request(format!(
        "The Vector Embedding Policy has Dimensions:{dimensions} which is more than the maximum supported value: {max}"
    ))
}

/// The `vectorIndexes` of an indexing policy. The order of the checks is the service's, which its
/// clients' tests depend on: the parameters of an index come before its embedding.
pub(super) fn parse_indexes(policy: &Object, embeddings: &[VectorEmbedding]) -> Result<Vec<VectorIndex>> {
    let mut indexes: Vec<VectorIndex> = Vec::new();
    for entry in fields::array(policy, "vectorIndexes")? {
        let index = parse_index(fields::object(entry, "vectorIndexes")?, embeddings)?;
        if indexes.iter().any(|earlier| earlier.path.same_property(&index.path)) {
            return Err(Error::bad_request(format!(
                "Duplicate Path :{} found in Vector Indexing Policy.",
                index.path
            )));
        }
        indexes.push(index);
    }
    Ok(indexes)
}

fn parse_index(entry: &Object, embeddings: &[VectorEmbedding]) -> Result<VectorIndex> {
    let text = fields::required_str(entry, "path")?;
    let path = KeyPath::parse(text)
        .map_err(|_| Error::bad_request(format!("The Vector Indexing Policy has an invalid Path:{text}")))?;
    let name = fields::required_str(entry, "type")?;
    let kind = match name.to_ascii_lowercase().as_str() {
        "flat" => VectorIndexKind::Flat,
        "quantizedflat" => VectorIndexKind::QuantizedFlat,
        "diskann" => VectorIndexKind::DiskAnn,
        _ => {
            return Err(Error::bad_request(format!(
                "The Vector Indexing Policy's Index Type::{name} is invalid. Valid index types are 'flat', 'quantizedFlat' or 'diskANN'."
            )));
        }
    };
    let embedding = embeddings.iter().find(|embedding| embedding.path.same_property(&path));
    // Whether the embedding exists is reported last; until then the bound has to do without it.
    let bytes_max = embedding.map_or(QUANTIZATION_BYTES_MAX_UNKNOWN, |embedding| {
        // A quantised vector has at least one dimension per byte.
        QUANTIZATION_BYTES_MAX.min(embedding.dimensions.into())
    });
    let quantization_bytes = bounded(entry, "quantizationByteSize", "QuantizationByteSize", 1, bytes_max)?;
    let search_list_size = bounded(entry, "indexingSearchListSize", "IndexingSearchListSize", 25, 500)?;
    let shard_key = parse_shard_key(entry)?;
    // Only now, after the parameters: that is the order in which the service reports errors.
    let Some(embedding) = embedding else {
        return Err(Error::bad_request(format!(
            "The Vector Indexing Policy's path::{path} not matching in Embedding's path."
        )));
    };
    // Quantised indexes store fewer bytes than the vectors have, and have no such bound.
    if kind == VectorIndexKind::Flat && embedding.dimensions > FLAT_DIMENSIONS_MAX {
        return Err(too_many_dimensions(embedding.dimensions.into(), FLAT_DIMENSIONS_MAX.into()));
    }
    Ok(VectorIndex { path, kind, quantization_bytes, search_list_size, shard_key })
}

fn bounded(entry: &Object, name: &str, title: &str, min: i64, max: i64) -> Result<Option<u32>> {
    let Some(value) = fields::optional_i64(entry, name)? else { return Ok(None) };
    let fits = u32::try_from(value).ok().filter(|_| (min..=max).contains(&value));
    // The service's messages spell the names differently from its policies, hence `title`.
    fits.map(Some).ok_or_else(|| {
        Error::bad_request(format!(
            "The Vector Indexing Policy parameter {title} value :: {value} is out of range. The allowed range is between {min} and {max}."
        ))
    })
}

fn parse_shard_key(entry: &Object) -> Result<Option<KeyPath>> {
    let paths = fields::array(entry, "vectorIndexShardKey")?;
    if paths.len() > 1 {
        return Err(Error::bad_request(format!(
            "The number of shard paths defined in the Vector Indexing Policy: {} exceeds the maximum: 1.",
            paths.len()
        )));
    }
    let parse = |path: &Value| {
        let invalid = |shown: &str| {
            Error::bad_request(format!("The Vector Indexing Policy has an invalid Shard Path: {shown}."))
        };
        let text = path.as_str().ok_or_else(|| invalid(&path.to_json()))?;
        KeyPath::parse(text).map_err(|_| invalid(text))
    };
    paths.first().map(parse).transpose()
}

/// Indexes may come and go with a replace, but not change.
pub(super) fn check_replaced_indexes(old: &[VectorIndex], new: &[VectorIndex]) -> Result<()> {
    // A path that was not there before is an addition.
    let changed = |index: &VectorIndex| {
        old.iter().any(|before| before.path.same_property(&index.path) && before != index)
    };
    if new.iter().any(changed) { Err(modified("vector indexing")) } else { Ok(()) }
}

/// Embeddings may come and go with a replace, but not change.
pub(super) fn check_replaced_embeddings(old: &[VectorEmbedding], new: &[VectorEmbedding]) -> Result<()> {
    // Items were written, and indexed, as the old embedding says.
    let changed = |embedding: &VectorEmbedding| {
        old.iter().any(|before| before.path.same_property(&embedding.path) && before != embedding)
    };
    if new.iter().any(changed) { Err(modified("embedding")) } else { Ok(()) }
}

fn modified(policy: &str) -> Error {
    Error::bad_request(format!(
        "Paths in existing {policy} policy cannot be modified in Collection Replace. They can only be added or removed."
    ))
}
