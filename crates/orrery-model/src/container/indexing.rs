//! The indexing policy: which paths of an item are indexed, and how.

use super::fields;
use super::index_path::{IndexStep, PolicyPath, parse_composite};
use super::vector::{self, VectorEmbedding, VectorIndex};
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::value::{Object, Value};

/// Paths in the included list, and again in the excluded one.
const PATHS_MAX: usize = 1500;
const COMPOSITE_PATHS_MAX: usize = 8;
const COMPOSITE_PATHS_TOTAL_MAX: usize = 100;
const CORNERS: [&str; 4] = ["xmin", "ymin", "xmax", "ymax"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexingMode {
    /// The index is written with the item.
    Consistent,
    /// There is no index.
    None,
}

/// A checked indexing policy.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexingPolicy {
    pub mode: IndexingMode,
    /// Whether items are indexed unless their write says otherwise, or only if it says so.
    pub automatic: bool,
    pub included: Vec<PolicyPath>,
    pub excluded: Vec<PolicyPath>,
    pub composite: Vec<Vec<CompositePath>>,
    pub spatial: Vec<SpatialIndex>,
    pub vector: Vec<VectorIndex>,
    pub full_text: Vec<KeyPath>,
    document: Object,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompositePath {
    pub steps: Vec<IndexStep>,
    pub descending: bool,
    text: Box<str>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SpatialIndex {
    pub path: PolicyPath,
    pub types: Vec<SpatialType>,
    /// xmin, ymin, xmax, ymax of a geometry index.
    pub bounding_box: Option<[f64; 4]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpatialType {
    Point,
    LineString,
    Polygon,
    MultiPolygon,
}

impl SpatialType {
    const ALL: [Self; 4] = [Self::Point, Self::LineString, Self::Polygon, Self::MultiPolygon];

    fn name(self) -> &'static str {
        match self {
            Self::Point => "Point",
            Self::LineString => "LineString",
            Self::Polygon => "Polygon",
            Self::MultiPolygon => "MultiPolygon",
        }
    }
}

impl Default for IndexingPolicy {
    fn default() -> Self {
        Self::parse(&Object::new(), &[]).expect("the empty policy is valid")
    }
}

impl CompositePath {
    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl IndexingPolicy {
    /// Validates a policy and adds the service's defaults.
    pub fn parse(policy: &Object, embeddings: &[VectorEmbedding]) -> Result<Self> {
        let mode = parse_mode(policy)?;
        let automatic = fields::optional_bool(policy, "automatic")?;
        let mut included = parse_paths(policy, "includedPaths")?;
        let mut excluded = parse_paths(policy, "excludedPaths")?;
        match mode {
            IndexingMode::None => {
                // Without an index there is nothing to do automatically; the default follows the mode.
                if automatic == Some(true) {
                    return Err(Error::bad_request(
                        "The indexing policy is invalid: indexing mode 'none' requires 'automatic' to be false.",
                    ));
                }
                if !included.is_empty() || !excluded.is_empty() {
                    return Err(Error::bad_request(
                        "The indexing policy is invalid: indexing mode 'none' does not allow included or excluded paths.",
                    ));
                }
            }
            IndexingMode::Consistent => {
                // A policy that names no paths of its own means everything.
                if included.is_empty() && excluded.iter().all(is_etag) {
                    included.push(PolicyPath::root());
                }
                if !included.iter().chain(&excluded).any(PolicyPath::is_root) {
                    return Err(Error::bad_request(
                        "The special mandatory indexing path \"/\" is not provided in any of the path type sets. Please provide this path in one of the sets.",
                    ));
                }
                if !included.iter().chain(&excluded).any(is_etag) {
                    // The service adds this path to every policy, and its clients expect to read it back.
                    excluded.push(PolicyPath::parse("/\"_etag\"/?")?);
                }
            }
        }
        let composite = parse_composites(policy)?;
        let mut policy = Self {
            mode,
            automatic: automatic.unwrap_or(mode == IndexingMode::Consistent),
            included,
            excluded,
            composite,
            spatial: parse_spatial(policy)?,
            vector: vector::parse_indexes(policy, embeddings)?,
            full_text: parse_full_text(policy)?,
            document: policy.clone(),
        };
        policy.document = policy.normalised();
        Ok(policy)
    }

    pub fn to_value(&self) -> Value {
        Value::Object(self.document.clone())
    }

    /// Whether scalars at this position are in the range index. `id` and `_ts` always are.
    pub fn indexes(&self, steps: &[IndexStep]) -> bool {
        if self.mode == IndexingMode::None {
            return false;
        }
        if let [IndexStep::Property(name)] = steps
            && matches!(name.as_ref(), "id" | "_ts")
        {
            return true;
        }
        let best = |paths: &[PolicyPath]| paths.iter().filter_map(|path| path.precision(steps)).max();
        // The more precise path wins; if both are equally precise, the included one.
        let included = best(&self.included);
        included.is_some() && included >= best(&self.excluded)
    }

    /// Whether anything below this position may be in the range index, so that a walk over an item can skip fully
    /// excluded parts.
    pub fn indexes_below(&self, steps: &[IndexStep]) -> bool {
        if self.mode == IndexingMode::None {
            return false;
        }
        // An included path that goes on from here.
        let below = |path: &PolicyPath| {
            path.tuple.is_empty() && path.steps.len() > steps.len() && path.steps.starts_with(steps)
        };
        // Subtrees that this position is in: as for a single value, the more precise one decides.
        let covering = |paths: &[PolicyPath]| {
            let subtrees = paths.iter().filter(|path| path.end == super::PathEnd::Subtree);
            subtrees.filter_map(|path| path.precision(steps)).max()
        };
        let included = covering(&self.included);
        // The root is never skipped: `id` and `_ts` are below it, which are always indexed.
        steps.is_empty()
            || self.included.iter().any(below)
            || included.is_some() && included >= covering(&self.excluded)
    }

    /// The policy for responses: what was sent, with the known parts in the service's order and format. The `indexes`
    /// of old clients are omitted, as in current versions.
    fn normalised(&self) -> Object {
        let sent = &self.document;
        let mut out = Object::new();
        let mode = match self.mode {
            IndexingMode::Consistent => "consistent",
            IndexingMode::None => "none",
        };
        out.set("indexingMode", Value::from(mode));
        out.set("automatic", Value::Bool(self.automatic));
        for (name, paths) in [("includedPaths", &self.included), ("excludedPaths", &self.excluded)] {
            let paths = paths.iter().map(|path| path_object(path.as_str()));
            out.set(name, Value::Array(paths.map(Value::Object).collect()));
        }
        // Only what was sent comes back: the service adds no empty lists.
        if fields::present(sent, "compositeIndexes").is_some() {
            let lists = self.composite.iter().map(|list| {
                let paths = list.iter().map(|path| {
                    let mut object = path_object(&path.text);
                    object
                        .set("order", Value::from(if path.descending { "descending" } else { "ascending" }));
                    Value::Object(object)
                });
                Value::Array(paths.collect())
            });
            out.set("compositeIndexes", Value::Array(lists.collect()));
        }
        if fields::present(sent, "spatialIndexes").is_some() {
            out.set(
                "spatialIndexes",
                Value::Array(self.spatial.iter().map(SpatialIndex::to_value).collect()),
            );
        }
        // Other parts, such as vector indexes, are returned as they were sent.
        for (name, value) in sent.iter() {
            if !out.contains(name) && name != "compositeIndexes" && !matches!(value, Value::Null) {
                out.set(name, value.clone());
            }
        }
        out
    }
}

impl SpatialIndex {
    /// For geography the service indexes every kind of shape, and lists all four whatever was requested
    /// (`ContainerSettingsTests` of the .NET client); on a plane it keeps what was sent.
    fn to_value(&self) -> Value {
        let mut types = self.types.clone();
        if self.bounding_box.is_none() {
            // What was requested keeps its place in front.
            types.extend(SpatialType::ALL.into_iter().filter(|kind| !self.types.contains(kind)));
        }
        let mut object = path_object(self.path.as_str());
        object.set("types", Value::Array(types.into_iter().map(|kind| Value::from(kind.name())).collect()));
        if let Some(corners) = self.bounding_box {
            let mut sides = Object::new();
            for (name, corner) in CORNERS.into_iter().zip(corners) {
                sides.set(name, Value::from(corner));
            }
            object.set("boundingBox", Value::Object(sides));
        }
        Value::Object(object)
    }
}

fn path_object(path: &str) -> Object {
    let mut object = Object::new();
    object.set("path", Value::from(path));
    object
}

fn is_etag(path: &PolicyPath) -> bool {
    matches!(path.steps.as_slice(), [IndexStep::Property(name)] if name.as_ref() == "_etag")
}

fn parse_mode(policy: &Object) -> Result<IndexingMode> {
    let name = fields::optional_str(policy, "indexingMode")?.unwrap_or("consistent");
    match name.to_ascii_lowercase().as_str() {
        // Lazy indexing no longer exists; the service treats it as consistent (asserted by the Java client's suite).
        "consistent" | "lazy" => Ok(IndexingMode::Consistent),
        "none" => Ok(IndexingMode::None),
        _ => Err(Error::bad_request(format!(
            "The indexing mode '{name}' is invalid. Valid modes are 'consistent' and 'none'."
        ))),
    }
}

fn parse_paths(policy: &Object, list: &str) -> Result<Vec<PolicyPath>> {
    let listed = fields::array(policy, list)?;
    if listed.len() > PATHS_MAX {
        return Err(Error::bad_request(format!(
            "The indexing policy has {} paths in '{list}'. A maximum of {PATHS_MAX} is allowed.",
            listed.len()
        )));
    }
    let mut paths: Vec<PolicyPath> = Vec::with_capacity(listed.len());
    for entry in listed {
        let path = PolicyPath::parse(fields::required_str(fields::object(entry, list)?, "path")?)?;
        // Repeating a path changes nothing; the service keeps one.
        if !paths.iter().any(|earlier| {
            earlier.steps == path.steps && earlier.end == path.end && earlier.tuple == path.tuple
        }) {
            paths.push(path);
        }
    }
    Ok(paths)
}

fn parse_composites(policy: &Object) -> Result<Vec<Vec<CompositePath>>> {
    let mut total = 0;
    let mut composites = Vec::new();
    for list in fields::array(policy, "compositeIndexes")? {
        let Some(list) = list.as_array() else {
            return Err(fields::wrong_type("compositeIndexes", "an array of arrays"));
        };
        if !(2..=COMPOSITE_PATHS_MAX).contains(&list.len()) {
            return Err(Error::bad_request(format!(
                "A composite index has {} paths. It must have between 2 and {COMPOSITE_PATHS_MAX}.",
                list.len()
            )));
        }
        total += list.len();
        if total > COMPOSITE_PATHS_TOTAL_MAX {
            return Err(Error::bad_request(format!(
                "The composite indexes have more than {COMPOSITE_PATHS_TOTAL_MAX} paths in total."
            )));
        }
        let paths = list.iter().map(parse_composite_path).collect::<Result<Vec<_>>>()?;
        let repeated = paths
            .iter()
            .enumerate()
            // Whatever their orders: a path twice in one index says nothing more than once.
            .find(|(at, path)| paths[..*at].iter().any(|earlier| earlier.steps == path.steps));
        if let Some((_, path)) = repeated {
            return Err(Error::bad_request(format!(
                "The path '{}' is repeated in a composite index.",
                path.text
            )));
        }
        composites.push(paths);
    }
    Ok(composites)
}

fn parse_composite_path(entry: &Value) -> Result<CompositePath> {
    let entry = fields::object(entry, "compositeIndexes")?;
    let text = fields::required_str(entry, "path")?;
    let descending = match fields::optional_str(entry, "order")?.unwrap_or("ascending") {
        order if order.eq_ignore_ascii_case("ascending") => false,
        order if order.eq_ignore_ascii_case("descending") => true,
        order => {
            return Err(Error::bad_request(format!(
                "The order '{order}' of the composite index path '{text}' is invalid. Valid orders are 'ascending' and 'descending'."
            )));
        }
    };
    Ok(CompositePath { steps: parse_composite(text)?, descending, text: text.into() })
}

fn parse_spatial(policy: &Object) -> Result<Vec<SpatialIndex>> {
    let indexes = fields::array(policy, "spatialIndexes")?;
    if indexes.len() > PATHS_MAX {
        return Err(Error::bad_request(format!(
            "The indexing policy has more than {PATHS_MAX} spatial indexes."
        )));
    }
    let indexes = indexes.iter().map(|entry| {
        let entry = fields::object(entry, "spatialIndexes")?;
        let path = PolicyPath::parse(fields::required_str(entry, "path")?)?;
        let names = fields::array(entry, "types")?;
        if names.is_empty() {
            return Err(Error::bad_request(format!(
                "The spatial data types array cannot be empty. Assign at least one spatial type for the 'types' array for the path '{path}'."
            )));
        }
        let types = names.iter().map(|name| parse_spatial_type(name, &path)).collect::<Result<_>>()?;
        let bounding_box = fields::optional_object(entry, "boundingBox")?.map(parse_bounding_box).transpose()?;
        Ok(SpatialIndex { path, types, bounding_box })
    });
    indexes.collect()
}

fn parse_spatial_type(name: &Value, path: &PolicyPath) -> Result<SpatialType> {
    let known = SpatialType::ALL.into_iter().find(|kind| name.as_str() == Some(kind.name()));
    known.ok_or_else(|| {
        Error::bad_request(format!(
            "The spatial data type {} for the path '{path}' is invalid. Valid types are {}.",
            name.to_json(),
            SpatialType::ALL.map(SpatialType::name).join(", ")
        ))
    })
}

fn parse_bounding_box(object: &Object) -> Result<[f64; 4]> {
    let mut corners = [0.0; 4];
    for (corner, name) in corners.iter_mut().zip(CORNERS) {
        let number = object.get(name).and_then(Value::as_number);
        *corner = number.ok_or_else(|| fields::wrong_type(name, "a number"))?.as_f64();
    }
    // In the order of `CORNERS`: xmin, ymin, xmax, ymax.
    if corners[0] >= corners[2] || corners[1] >= corners[3] {
        return Err(Error::bad_request(
            "The bounding box of a spatial index must have xmin < xmax and ymin < ymax.",
        ));
    }
    Ok(corners)
}

fn parse_full_text(policy: &Object) -> Result<Vec<KeyPath>> {
    let mut paths: Vec<KeyPath> = Vec::new();
    for (index, entry) in fields::array(policy, "fullTextIndexes")?.iter().enumerate() {
        let text = fields::object(entry, "fullTextIndexes")?.get("path").and_then(Value::as_str).ok_or_else(
            || {
                Error::bad_request(format!(
                    "Missing path in full-text index specification at index ({index})"
                ))
            },
        )?;
        let path = KeyPath::parse(text).map_err(|_| {
            Error::bad_request(format!(
                "Full-text index specification at index ({index}) contains invalid path '{text}'."
            ))
        })?;
        if paths.iter().any(|earlier| earlier.same_property(&path)) {
            return Err(Error::bad_request(format!(
                "Duplicate Path :{text} found in Full Text Indexing Policy."
            )));
        }
        if paths.len() == PATHS_MAX {
            return Err(Error::bad_request(format!(
                "The indexing policy has more than {PATHS_MAX} full-text indexes."
            )));
        }
        paths.push(path);
    }
    Ok(paths)
}
