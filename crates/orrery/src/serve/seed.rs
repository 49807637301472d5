//! Seed data: databases, containers and items to load when the server starts (`--seed`).
//!
//! ```text
//! DIRECTORY/<database>/<container>.jsonl    items, one JSON object per line; also .jsonl.gz, .ndjson, .csv
//! DIRECTORY/<database>/<container>.json     the container's definition: partitionKey, indexingPolicy, …, and
//!                                           throughput or maxThroughput; partitioned by /id without it
//! ```
//! Existing databases and containers are not changed. A file that was loaded completely is recorded with its hash
//! beside the data, so that a restart does not undo later changes to its items. A file that has changed is loaded again
//! and overwrites items with the same ids.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use orrery_db::{Database, ItemOptions, Receipt, RequestContext};
use orrery_gateway::durable_file::{self, Access};
use orrery_gateway::wire::throughput;
use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::{ErrorKind, Object, Value, value};
use xxhash_rust::xxh3::Xxh3;

use super::settings::ListedContainer;
use crate::failure::Failure;
use crate::transfer::input::{CsvArguments, Input, InputFormat, Place, Record};

/// Items written concurrently.
const CONCURRENCY: usize = 64;
/// The file in the data directory that records what was loaded.
const LEDGER_FILE: &str = "seeded.json";
const DATA_ENDINGS: [&str; 4] = [".jsonl", ".jsonl.gz", ".ndjson", ".csv"];

/// Seed containers by database and id.
type SeedContainers = BTreeMap<(String, String), SeedContainer>;

/// The files of one container.
#[derive(Default)]
struct SeedContainer {
    definition: Option<PathBuf>,
    data: Option<PathBuf>,
}

/// Loads everything in `directory` that is not recorded as loaded in `data_directory`.
pub(super) async fn load(
    database: &Arc<Database>,
    directory: &Path,
    data_directory: Option<&Path>,
) -> Result<(), Failure> {
    let (databases, seeds) = scan(directory)?;
    // A database without containers is created as well.
    for name in &databases {
        create_database(database, name).await?;
    }
    let mut ledger = SeedLedger::read(data_directory);
    for ((database_name, container), seed) in &seeds {
        // Before the ledger is asked, because that knows the container by its RID.
        create_container(database, database_name, container, seed.definition.as_deref()).await?;
        let Some(path) = &seed.data else { continue };
        let catalog = database.catalog();
        let rid = catalog.container(database_name, container).map_err(Failure::refused)?.rid.to_string();
        let hash = hash_file(path)?;
        let name = format!("{database_name}/{container}");
        if ledger.is_loaded(&name, &rid, &hash) {
            continue;
        }
        let count = load_items(database, (database_name, container), path).await?;
        tracing::info!(container = name, items = count, "loaded seed data");
        ledger.record(name, rid, hash);
        // After each file, so that an interrupted start repeats only one of them.
        ledger.write(data_directory)?;
    }
    Ok(())
}

/// Creates the containers of `--containers` that do not exist.
pub(super) async fn create_listed(
    database: &Database,
    containers: &[ListedContainer],
) -> Result<(), Failure> {
    for ListedContainer { database: name, id, paths } in containers {
        if database.catalog().container(name, id).is_ok() {
            continue;
        }
        create_database(database, name).await?;
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let key = PartitionKeyDefinition::with_paths(&paths)
            .map_err(|error| Failure::usage(format!("the container {name}/{id}: {}", error.message)))?;
        let mut body = Object::new();
        body.set("id", Value::from(id.as_str()));
        body.set("partitionKey", key.to_value());
        let body = Value::from(body).to_exact_json();
        let created = database.create_container(&mut Receipt::default(), name, body.as_bytes(), None).await;
        created.map_err(|error| {
            Failure::refused(format!("the container {name}/{id} cannot be created: {error}"))
        })?;
    }
    Ok(())
}

/// The databases and containers in the directory.
fn scan(directory: &Path) -> Result<(Vec<String>, SeedContainers), Failure> {
    let list = |path: &Path| -> Result<Vec<(String, PathBuf)>, Failure> {
        let failed = |error: std::io::Error| {
            Failure::refused(format!("the seed directory {} cannot be read: {error}", path.display()))
        };
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            // Hidden files belong to editors and version control.
            if !name.starts_with('.') {
                entries.push((name, path));
            }
        }
        // The order of a directory differs between systems; every start should do the same.
        entries.sort();
        Ok(entries)
    };
    let (mut databases, mut seeds) = (Vec::new(), SeedContainers::new());
    for (database, path) in list(directory)? {
        // Files beside the databases, such as a README, are ignored, but not data that the user expects to be loaded.
        if !path.is_dir() {
            if DATA_ENDINGS.iter().chain(&[".json"]).any(|ending| database.ends_with(ending)) {
                return Err(Failure::refused(format!(
                    "the seed file {} is not in a database directory: move it to {}/<database>/",
                    path.display(),
                    directory.display()
                )));
            }
            continue;
        }
        for (file, path) in list(&path)? {
            let container = DATA_ENDINGS.iter().find_map(|ending| file.strip_suffix(ending));
            if let Some(container) = container {
                let seed = seeds.entry((database.clone(), container.to_owned())).or_default();
                if let Some(other) = seed.data.replace(path) {
                    return Err(Failure::refused(format!(
                        "the seed container {database}/{container} has two data files, one of them {}",
                        other.display()
                    )));
                }
            } else if let Some(container) = file.strip_suffix(".json") {
                seeds.entry((database.clone(), container.to_owned())).or_default().definition = Some(path);
            } else {
                return Err(Failure::refused(format!(
                    "the seed file {} is neither data (.jsonl, .jsonl.gz, .ndjson, .csv) nor a definition (.json)",
                    path.display()
                )));
            }
        }
        databases.push(database);
    }
    Ok((databases, seeds))
}

async fn create_database(database: &Database, name: &str) -> Result<(), Failure> {
    let mut body = Object::new();
    body.set("id", Value::from(name));
    let body = Value::from(body).to_json();
    let created = database.create_database(&mut Receipt::default(), body.as_bytes(), None).await;
    match created {
        // A database that exists is left as it is.
        Err(error) if error.kind != ErrorKind::Conflict => {
            Err(Failure::refused(format!("the seed database {name} cannot be created: {error}")))
        }
        _ => Ok(()),
    }
}

async fn create_container(
    database: &Database,
    database_name: &str,
    container: &str,
    definition: Option<&Path>,
) -> Result<(), Failure> {
    if database.catalog().container(database_name, container).is_ok() {
        return Ok(());
    }
    let wrong = |error: &dyn std::fmt::Display| {
        let place =
            definition.map_or_else(|| "without a definition".to_owned(), |path| path.display().to_string());
        Failure::refused(format!("the seed container {database_name}/{container} ({place}): {error}"))
    };
    let mut body = match definition {
        None => Object::new(),
        Some(path) => {
            let text = fs::read(path).map_err(|error| wrong(&error))?;
            match value::parse(&text).map_err(|error| wrong(&error))? {
                Value::Object(object) => object,
                _ => return Err(wrong(&"the definition is not a JSON object")),
            }
        }
    };
    // The name of the file is the id, whatever the definition says.
    body.set("id", Value::from(container));
    if body.get("partitionKey").is_none() {
        let key = value::parse(br#"{"paths":["/id"],"kind":"Hash","version":2}"#);
        body.set("partitionKey", key.expect("the constant is JSON"));
    }
    // Not part of the definition: requests carry the throughput in headers.
    let mut number = |name: &str| body.remove(name).map(|value| value.to_json());
    let manual = number("throughput");
    // The form of the header for autoscale.
    let autoscale = number("maxThroughput").map(|maximum| format!("{{\"maxThroughput\":{maximum}}}"));
    let throughput = throughput::requested(manual.as_deref(), autoscale.as_deref());
    let throughput = throughput.map_err(|error| wrong(&error))?;
    let body = Value::from(body).to_exact_json();
    let created =
        database.create_container(&mut Receipt::default(), database_name, body.as_bytes(), throughput).await;
    created.map(|_| ()).map_err(|error| wrong(&error))
}

/// Writes every record. The first one that cannot be written fails the start.
async fn load_items(database: &Arc<Database>, place: (&str, &str), path: &Path) -> Result<u64, Failure> {
    let input = Input::open(path, InputFormat::Auto, &CsvArguments::default())?;
    let broken = |error: &dyn std::fmt::Display| {
        Failure::refused(format!("the seed file {} cannot be read: {error}", path.display()))
    };
    let wrong = |place: Place, error: &dyn std::fmt::Display| {
        Failure::refused(format!("the seed file {}, {place}: {error}", path.display()))
    };
    let mut count = 0;
    let mut writes = FuturesUnordered::new();
    for record in input.records {
        count += 1;
        let Record { place: line, text } = record.map_err(|error| broken(&error))?;
        let text = text.map_err(|error| wrong(line, &error))?;
        // Upserted, because an interrupted start may have written it already.
        writes.push(async move {
            let mut receipt = Receipt::open(RequestContext::own_work());
            let options = ItemOptions::default();
            let written = database.upsert_item(&mut receipt, place, &options, &Bytes::from(text)).await;
            (line, written.map(|_| ()))
        });
        if writes.len() >= CONCURRENCY
            && let Some((line, result)) = writes.next().await
        {
            result.map_err(|error| wrong(line, &error))?;
        }
    }
    while let Some((line, result)) = writes.next().await {
        result.map_err(|error| wrong(line, &error))?;
    }
    Ok(count)
}

fn hash_file(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        Failure::refused(format!("the seed file {} cannot be read: {error}", path.display()))
    };
    let mut file = fs::File::open(path).map_err(failed)?;
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok(format!("{:032x}", hasher.digest128())),
            length => hasher.update(&buffer[..length]),
        }
    }
}

/// Which files were loaded completely: per container, its RID and the hash of the file. The RID distinguishes a
/// recreated container from the one that was loaded.
struct SeedLedger(BTreeMap<String, (String, String)>);

impl SeedLedger {
    /// An unreadable ledger counts as empty: the data is loaded again.
    fn read(directory: Option<&Path>) -> Self {
        let text = directory.and_then(|directory| fs::read(directory.join(LEDGER_FILE)).ok());
        let value = text.and_then(|text| value::parse(&text).ok()).unwrap_or_default();
        let entries = value.as_object().into_iter().flat_map(Object::iter).filter_map(|(name, entry)| {
            let text = |name: &str| Some(entry.get(name)?.as_str()?.to_owned());
            Some((name.to_owned(), (text("rid")?, text("hash")?)))
        });
        Self(entries.collect())
    }

    fn is_loaded(&self, name: &str, rid: &str, hash: &str) -> bool {
        self.0.get(name).is_some_and(|(known_rid, known_hash)| known_rid == rid && known_hash == hash)
    }

    fn record(&mut self, name: String, rid: String, hash: String) {
        self.0.insert(name, (rid, hash));
    }

    fn write(&self, directory: Option<&Path>) -> Result<(), Failure> {
        let Some(directory) = directory else { return Ok(()) };
        let mut object = Object::new();
        for (name, (rid, hash)) in &self.0 {
            let mut entry = Object::new();
            entry.set("rid", Value::from(rid.as_str()));
            entry.set("hash", Value::from(hash.as_str()));
            object.set(name.as_str(), Value::from(entry));
        }
        let path = directory.join(LEDGER_FILE);
        durable_file::write(&path, Value::from(object).to_json().as_bytes(), Access::Everyone)
            .map_err(|error| Failure::refused(format!("{} cannot be written: {error}", path.display())))
    }
}
