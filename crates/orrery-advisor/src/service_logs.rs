//! The service's own diagnostic logs, exported as CSV or JSON, as a workload and as measurements of the current key:
//! `DataPlaneRequests`, `QueryRuntimeStatistics`, `PartitionKeyRUConsumption` and `PartitionKeyStatistics`, in the tables
//! of Log Analytics (`CDB…`), in the older shared table (`requestCharge_s`), and as written to storage accounts.
//!
//! Requests are joined with their query and key by activity id. What a log lacks is counted and reported, never guessed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use orrery_model::Value as Item;
use orrery_model::value;
use serde_json::{Value, json};

use crate::guard::KEY_BYTES_MAX;
use crate::moment;
use crate::rank::{count, in_words, percent};

/// Most records that are read.
pub const RECORDS_MAX: usize = 2_000_000;
/// Keys that are listed.
const LISTED: usize = 5;
/// A key with this share of the load or of its size limit is worth a sentence.
const DANGER: f64 = 0.1;

/// Why logs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("it is neither CSV with a header line nor JSON: {0}")]
    Syntax(String),
    #[error("it has no column of the service's logs, such as RequestCharge or SizeKb")]
    Unknown,
    #[error("it has more than {RECORDS_MAX} records")]
    TooLong,
    #[error("it has several containers: {0}. Name one with --database and --container")]
    Containers(String),
}

/// A record, by lower-case column name.
type Record = BTreeMap<String, String>;

/// Everything read so far.
#[derive(Clone, Debug, Default)]
pub struct ServiceLogs {
    requests: Vec<Record>,
    /// Query texts and key values by activity id.
    queries: HashMap<String, String>,
    keys: HashMap<String, String>,
    consumed: Vec<Record>,
    /// Bytes by key: the largest of all measurements.
    sizes: BTreeMap<String, f64>,
    containers: BTreeSet<(String, String)>,
    records: usize,
}

/// The requests of logs as a recording, with what could not be used.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Like the file of `orrery record`.
    pub text: String,
    pub requests: usize,
    pub notes: Vec<String>,
}

impl ServiceLogs {
    /// Reads an export. With `place`, only records of that database and container count.
    pub fn add(&mut self, text: &str, place: Option<(&str, &str)>) -> Result<(), LogError> {
        let records = if text.trim_start().starts_with(['{', '[']) { of_json(text)? } else { of_csv(text)? };
        self.records += records.len();
        if self.records > RECORDS_MAX {
            return Err(LogError::TooLong);
        }
        // Single records may lack a column, but if all do, this is another kind of log.
        if !records.is_empty() && !records.iter().any(is_logged) {
            return Err(LogError::Unknown);
        }
        for record in records.into_iter().filter(is_logged) {
            self.take(record, place);
        }
        if self.containers.len() > 1 {
            let names = self.containers.iter().map(|(database, container)| format!("{database}/{container}"));
            return Err(LogError::Containers(names.collect::<Vec<_>>().join(", ")));
        }
        Ok(())
    }

    fn take(&mut self, record: Record, place: Option<(&str, &str)>) {
        let has = |name: &str| record.get(name).is_some_and(|text| !text.is_empty());
        let of = |name: &str| record.get(name).cloned().unwrap_or_default();
        let is_ours = |name: &str| record.contains_key(name);
        let (database, container) = (of("databasename"), of("collectionname"));
        if place.is_some_and(|place| (database.as_str(), container.as_str()) != place) {
            // Records of other containers are known, but not used.
            return;
        }
        if !container.is_empty() {
            self.containers.insert((database, container));
        }
        // The case of ids differs between the logs.
        let activity = of("activityid").to_lowercase();
        // Which log a record is from shows in its columns.
        if has("sizekb") {
            let bytes = of("sizekb").parse::<f64>().unwrap_or(0.0) * 1024.0;
            let known = self.sizes.entry(key_text(&of("partitionkey"))).or_default();
            *known = known.max(bytes);
        } else if is_ours("querytext") {
            self.queries.insert(activity, of("querytext"));
        } else if has("statuscode") || is_ours("requestresourcetype") {
            let kind = of("requestresourcetype");
            // Requests for other resources are not load of the container.
            if kind.is_empty() || kind.eq_ignore_ascii_case("document") {
                self.requests.push(record);
            }
        } else if is_ours("partitionkey") || is_ours("partitionkeyrangeid") {
            if !activity.is_empty() && has("partitionkey") {
                self.keys.insert(activity, key_text(&of("partitionkey")));
            }
            self.consumed.push(record);
        }
    }

    /// The requests as a recording of a container with this key.
    pub fn recording(&self, key_paths: &[String]) -> Recording {
        let mut lines = Vec::with_capacity(self.requests.len());
        let (mut unnamed, mut untimed, mut other, mut keyless) = (0usize, 0usize, 0usize, 0usize);
        let mut obfuscated = 0;
        for record in &self.requests {
            let of = |name: &str| record.get(name).map(String::as_str).unwrap_or_default();
            let Some(at_ms) = time_of(record) else {
                untimed += 1;
                continue;
            };
            let operation = match of("operationname").to_lowercase().as_str() {
                "create" => "create",
                "read" => "read",
                "query" | "sqlquery" => "query",
                "replace" => "replace",
                "upsert" => "upsert",
                "delete" => "delete",
                "patch" => "patch",
                "batch" => "batch",
                _ => {
                    other += 1;
                    continue;
                }
            };
            let activity = of("activityid").to_lowercase();
            let mut line = json!({
                "atMs": at_ms,
                "operation": operation,
                "status": of("statuscode").parse::<u32>().unwrap_or(200),
                "charge": of("requestcharge").parse::<f64>().unwrap_or(0.0),
            });
            if operation == "query" {
                match self.queries.get(&activity).and_then(|text| query_of(text)) {
                    Some((text, _)) if is_obfuscated(&text) => {
                        obfuscated += 1;
                        continue;
                    }
                    Some((text, parameters)) => {
                        line["query"] = json!(text);
                        line["parameters"] = parameters;
                    }
                    None => {
                        unnamed += 1;
                        continue;
                    }
                }
            }
            if let Some(id) = id_of(of("requestresourceid")) {
                line["id"] = json!(id);
            }
            let own = of("partitionkey");
            // Some tables have the key with the request, others in the log of consumption.
            let key = if own.is_empty() { self.keys.get(&activity).cloned() } else { Some(key_text(own)) };
            match key.and_then(|key| serde_json::from_str::<Value>(&key).ok()) {
                Some(key) => line["key"] = key,
                None => keyless += 1,
            }
            // Only the bodies of writes are items.
            if let Ok(bytes) = of("requestlength").parse::<f64>()
                && bytes > 0.0
                && matches!(operation, "create" | "upsert" | "replace")
            {
                line["bytes"] = json!(bytes);
            }
            lines.push((at_ms, line.to_string()));
        }
        lines.sort_by_key(|(at_ms, _)| *at_ms);
        let requests = lines.len();
        let mut text = json!({ "recording": 1, "partitionKey": key_paths }).to_string() + "\n";
        for (_, line) in lines {
            text += &line;
            text.push('\n');
        }
        let mut notes = Vec::new();
        let mut note = |number: usize, what: &str| {
            if number > 0 {
                notes.push(format!("{} {what}", count(number as f64)));
            }
        };
        note(
            unnamed,
            "logged queries have no text and are left out: export QueryRuntimeStatistics of the same time too.",
        );
        note(
            obfuscated,
            "logged queries have an obfuscated text and are left out: enable full-text queries in the account's diagnostics.",
        );
        note(keyless, "logged requests have no key: export PartitionKeyRUConsumption of the same time too.");
        note(other, "logged requests are feeds, scripts or metadata and are left out.");
        note(untimed, "logged requests have no time and are left out.");
        Recording { text, requests, notes }
    }

    /// Whether there are individual requests.
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// What the logs measured of the key in use.
    pub fn findings(&self) -> Findings {
        let number = |record: &Record, name: &str| {
            record.get(name).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0)
        };
        let mut findings = Findings { requests: self.requests.len(), ..Findings::default() };
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        for record in &self.requests {
            findings.units += number(record, "requestcharge");
            findings.throttled += usize::from((number(record, "statuscode") - 429.0).abs() < 0.5);
            if let Some(at_ms) = time_of(record) {
                (first, last) = (first.min(at_ms), last.max(at_ms));
            }
        }
        findings.seconds = if last > first { (last - first) as f64 / 1000.0 } else { 0.0 };
        let (mut keys, mut partitions): (BTreeMap<String, f64>, BTreeMap<String, f64>) = Default::default();
        for record in &self.consumed {
            let charge = number(record, "requestcharge");
            findings.consumed += charge;
            if let Some(key) = record.get("partitionkey").filter(|key| !key.is_empty()) {
                *keys.entry(key_text(key)).or_default() += charge;
            }
            if let Some(partition) = record.get("partitionkeyrangeid").filter(|id| !id.is_empty()) {
                *partitions.entry(partition.clone()).or_default() += charge;
            }
        }
        let shares = |sums: BTreeMap<String, f64>| {
            // Never 0, since it divides.
            let total = findings.consumed.max(1e-9);
            let mut shares: Vec<(String, f64)> =
                sums.into_iter().map(|(name, charge)| (name, charge / total)).collect();
            // Equal shares by name, so that reports can be compared.
            shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            shares
        };
        (findings.keys, findings.partitions) = (shares(keys), shares(partitions));
        findings.sizes = self.sizes.iter().map(|(key, bytes)| (key.clone(), *bytes)).collect();
        findings.sizes.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        findings
    }
}

/// Measurements of a container at the service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    pub requests: usize,
    pub throttled: usize,
    pub units: f64,
    pub seconds: f64,
    /// Request units in the log of keys.
    pub consumed: f64,
    /// Shares of those by key and by physical partition, largest first.
    pub keys: Vec<(String, f64)>,
    pub partitions: Vec<(String, f64)>,
    /// Bytes by key, largest first.
    pub sizes: Vec<(String, f64)>,
}

impl Findings {
    /// Sentences about the key in use.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub fn sentences(&self) -> Vec<String> {
        let mut text = Vec::new();
        if self.requests > 0 {
            let rate = if self.seconds > 0.0 {
                format!(" over {} s, {} RU/s", count(self.seconds), count(self.units / self.seconds))
            } else {
                String::new()
            };
            text.push(format!(
                "{} requests{rate}; {} were throttled (429).",
                count(self.requests as f64),
                percent(self.throttled as f64 / self.requests as f64)
            ));
        }
        if let [(partition, share), others @ ..] = self.partitions.as_slice() {
            let even = 1.0 / (others.len() + 1) as f64;
            text.push(format!(
                "The busiest of {} partitions with load, {partition}, took {}, {:.1} times an even share.",
                others.len() + 1,
                percent(*share),
                share / even
            ));
        }
        for (key, share) in self.keys.iter().take(LISTED).filter(|(_, share)| *share > DANGER) {
            let words = in_words(*share);
            let words = if words.starts_with("one in") {
                format!("{words} request units")
            } else {
                format!("{words} of the request units")
            };
            text.push(format!("{key} took {words}."));
        }
        for (key, bytes) in self.sizes.iter().take(LISTED).filter(|(_, bytes)| bytes / KEY_BYTES_MAX > DANGER)
        {
            text.push(format!("{key} holds {:.1} GB of at most 20 GB per key.", bytes / crate::layout::GIB));
        }
        if text.is_empty() {
            text.push("The logs have no requests, load or sizes of keys that stand out.".to_owned());
        }
        text
    }

    /// The measurements as JSON.
    pub fn json(&self) -> Value {
        let shares = |list: &[(String, f64)], name: &str, figure: &str| {
            list.iter().take(1000).map(|(own, value)| json!({ name: own, figure: value })).collect::<Vec<_>>()
        };
        json!({
            "requests": self.requests,
            "throttled": self.throttled,
            "requestUnits": self.units,
            "seconds": self.seconds,
            "keys": shares(&self.keys, "key", "share"),
            "partitions": shares(&self.partitions, "partition", "share"),
            "sizes": shares(&self.sizes, "key", "bytes"),
            "sentences": self.sentences(),
        })
    }
}

/// Whether a record is of one of these logs.
fn is_logged(record: &Record) -> bool {
    ["requestcharge", "sizekb", "querytext"].iter().any(|name| record.contains_key(*name))
}

/// A key value as JSON, however it was logged: `["a"]`, `[\"a\"]`, or a bare text.
fn key_text(text: &str) -> String {
    let text = text.trim();
    let parses = |text: &str| serde_json::from_str::<Value>(text).ok().filter(Value::is_array);
    // Some exports escape the quotes once more.
    let plain = text.replace("\\\"", "\"");
    match parses(text).or_else(|| parses(&plain)) {
        Some(key) => key.to_string(),
        None => json!([text]).to_string(),
    }
}

/// The text and parameters of a logged query.
fn query_of(text: &str) -> Option<(String, Value)> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let Ok(logged) = serde_json::from_str::<Value>(text) else {
        // What begins like JSON but is none was cut off.
        return (!text.starts_with('{')).then(|| (text.to_owned(), json!([])));
    };
    let query = logged.get("query").and_then(Value::as_str)?.to_owned();
    Some((query, logged.get("parameters").cloned().unwrap_or_else(|| json!([]))))
}

/// Whether the service replaced names by ones like `p1__10`.
fn is_obfuscated(text: &str) -> bool {
    text.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).any(|word| {
        let parts = word.strip_prefix('p').and_then(|rest| rest.split_once("__"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        parts.is_some_and(|(number, length)| is_number(number) && is_number(length))
    })
}

/// The id in `/dbs/d/colls/c/docs/id`.
fn id_of(resource: &str) -> Option<&str> {
    let (_, id) = resource.split_once("/docs/")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

fn time_of(record: &Record) -> Option<i64> {
    let text = record.get("timegenerated").or_else(|| record.get("time"))?;
    moment::parse_text(text).or_else(|| american_time(text))
}

/// `2/12/2021, 11:20:00.000 PM`, as the portal exports times.
fn american_time(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(',')?;
    let mut date = date.trim().split('/').map(|part| part.parse::<i64>().ok());
    let (month, day, year) = (date.next()??, date.next()??, date.next()??);
    let (clock, half) = time.trim().split_once(' ')?;
    let mut clock = clock.split(':');
    let (hour, minute) = (clock.next()?.parse::<i64>().ok()?, clock.next()?);
    // 12 AM is midnight.
    let hour = hour % 12 + if half.trim().eq_ignore_ascii_case("pm") { 12 } else { 0 };
    let seconds = clock.next().unwrap_or("0");
    moment::parse_text(&format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:0>2}:{seconds}Z"))
}

/// A column's name as it is compared: without case, the suffixes of the shared table and the portal's time zone.
fn column(name: &str) -> String {
    let name = name.trim().trim_start_matches('\u{feff}').to_lowercase();
    let name = name.split(" [").next().unwrap_or_default().trim().to_owned();
    match name.rsplit_once('_') {
        Some((plain, "s" | "g" | "d" | "t" | "b")) if !plain.is_empty() => plain.to_owned(),
        _ => name,
    }
}

fn of_csv(text: &str) -> Result<Vec<Record>, LogError> {
    let syntax = |error: csv::Error| LogError::Syntax(error.to_string());
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    let names: Vec<String> = reader.headers().map_err(syntax)?.iter().map(column).collect();
    let mut records = Vec::new();
    for row in reader.records() {
        let row = row.map_err(syntax)?;
        records.push(names.iter().cloned().zip(row.iter().map(str::to_owned)).collect());
        if records.len() > RECORDS_MAX {
            return Err(LogError::TooLong);
        }
    }
    Ok(records)
}

/// An array of records, one per line, `{"records":[…]}`, or the tables of a Log Analytics answer.
fn of_json(text: &str) -> Result<Vec<Record>, LogError> {
    let mut records = Vec::new();
    match value::parse(text.as_bytes()) {
        Ok(Item::Array(rows)) => records.extend(rows.iter().map(of_row)),
        Ok(whole) => {
            if let Some(rows) = whole.get("records").and_then(Item::as_array) {
                records.extend(rows.iter().map(of_row));
            } else if let Some(tables) = whole.get("tables").and_then(Item::as_array) {
                for table in tables {
                    of_table(table, &mut records);
                }
            } else {
                records.push(of_row(&whole));
            }
        }
        Err(_) => {
            for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let row = value::parse(line.as_bytes())
                    .map_err(|error| LogError::Syntax(format!("line {}: {error}", number + 1)))?;
                records.push(of_row(&row));
            }
        }
    }
    Ok(records)
}

fn of_table(table: &Item, records: &mut Vec<Record>) {
    let columns = table.get("columns").and_then(Item::as_array).unwrap_or(&[]);
    let names: Vec<String> = columns
        .iter()
        .map(|own| column(own.get("name").and_then(Item::as_str).unwrap_or_default()))
        .collect();
    for row in table.get("rows").and_then(Item::as_array).unwrap_or(&[]) {
        let cells = row.as_array().unwrap_or(&[]).iter().map(text_of);
        records.push(names.iter().cloned().zip(cells).collect());
    }
}

/// A record; those written to storage accounts have most columns in `properties`.
fn of_row(row: &Item) -> Record {
    let mut record = Record::new();
    let Some(object) = row.as_object() else { return record };
    for (name, value) in object.iter() {
        match value {
            Item::Object(inner) if name.eq_ignore_ascii_case("properties") => {
                record.extend(inner.iter().map(|(name, value)| (column(name), text_of(value))));
            }
            value => {
                record.insert(column(name), text_of(value));
            }
        }
    }
    record
}

fn text_of(value: &Item) -> String {
    match value {
        Item::String(text) => text.to_string(),
        Item::Null => String::new(),
        other => other.to_json(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Paths;
    use crate::workload::{OperationKind, Workload};

    /// As Log Analytics exports tables: https://learn.microsoft.com/azure/azure-monitor/reference/tables/cdbdataplanerequests
    const REQUESTS: &str = "\u{feff}\"TimeGenerated [UTC]\",AccountName,ActivityId,CollectionName,DatabaseName,OperationName,PartitionId,RequestCharge,RequestLength,RequestResourceId,RequestResourceType,ResponseLength,StatusCode\n\
        \"2/12/2021, 11:20:00.000 PM\",a,A-1,orders,shop,Create,p0,7.05,512,,Document,0,201\n\
        \"2/12/2021, 11:20:01.500 PM\",a,A-2,orders,shop,Read,p0,1,0,/dbs/shop/colls/orders/docs/o1,Document,400,200\n\
        \"2/12/2021, 11:20:02.000 PM\",a,A-3,orders,shop,Query,p0,2.8,60,,Document,900,200\n\
        \"2/12/2021, 11:20:03.000 PM\",a,A-4,orders,shop,Query,p1,2.8,60,,Document,900,200\n\
        \"2/12/2021, 11:20:04.000 PM\",a,A-5,orders,shop,Upsert,p1,0.38,60,,Document,0,429\n\
        \"2/12/2021, 11:20:05.000 PM\",a,A-6,orders,shop,ReadFeed,p1,1,0,,Collection,100,200\n";
    /// As written to a storage account.
    const QUERIES: &str = r#"{"time":"2021-02-12T23:20:02Z","category":"QueryRuntimeStatistics","properties":{"activityId":"a-3","databasename":"shop","collectionname":"orders","partitionkeyrangeid":"0","querytext":"{\"query\":\"SELECT * FROM c WHERE c.customer = @c\",\"parameters\":[{\"name\":\"@c\",\"value\":\"c1\"}]}"}}
        {"time":"2021-02-12T23:20:03Z","category":"QueryRuntimeStatistics","properties":{"activityId":"a-4","databasename":"shop","collectionname":"orders","partitionkeyrangeid":"0","querytext":"{\"query\":\"SELECT *\\nFROM c\\nWHERE (c.p1__10 != true)\",\"parameters\":[]}"}}"#;
    /// As the answer of a Log Analytics query.
    const CONSUMED: &str = r#"{"tables":[{"name":"PrimaryResult","columns":[{"name":"TimeGenerated","type":"datetime"},{"name":"ActivityId","type":"string"},{"name":"CollectionName","type":"string"},{"name":"DatabaseName","type":"string"},{"name":"PartitionKey","type":"string"},{"name":"PartitionKeyRangeId","type":"string"},{"name":"RequestCharge","type":"real"}],"rows":[
        ["2021-02-12T23:20:00Z","a-1","orders","shop","[\"c1\"]","0",7.5],["2021-02-12T23:20:01Z","a-2","orders","shop","[\"c2\"]","1",2.5]]}]}"#;
    const SIZES: &str = r#"[{"TimeGenerated":"2021-02-12T00:00:00Z","CollectionName":"orders","DatabaseName":"shop","PartitionKey":"[\"c1\"]","SizeKb":18874368},
        {"TimeGenerated":"2021-02-11T00:00:00Z","CollectionName":"orders","DatabaseName":"shop","PartitionKey":"[\"c1\"]","SizeKb":"18000000"}]"#;

    fn logs() -> ServiceLogs {
        let mut logs = ServiceLogs::default();
        for text in [REQUESTS, QUERIES, CONSUMED, SIZES] {
            logs.add(text, None).unwrap();
        }
        logs
    }

    #[test]
    fn exports_become_a_workload() {
        let recording = logs().recording(&["/customer".to_owned()]);
        assert_eq!(recording.requests, 4);
        let notes = recording.notes.join(" ");
        assert!(notes.contains("1 logged queries have an obfuscated text"), "{notes}");
        assert!(notes.contains("2 logged requests have no key"), "{notes}");
        let workload = Workload::parse(&recording.text, &mut Paths::new()).unwrap();
        // The throttled request is not replayed.
        assert_eq!(workload.recorded.len(), 3);
        let kinds: Vec<OperationKind> = workload.operations.iter().map(|operation| operation.kind).collect();
        assert_eq!(kinds, [OperationKind::Create, OperationKind::Read, OperationKind::Query]);
        assert_eq!(workload.recorded[1].at_ms - workload.recorded[0].at_ms, 1500);
        assert_eq!(workload.recorded[1].id.as_deref(), Some("o1"));
        assert_eq!(workload.recorded[2].parameters[0].0, "@c");
        assert_eq!(workload.recorded[0].key, [orrery_model::KeyPart::from("c1")]);
    }

    #[test]
    fn exports_show_the_load_and_size_of_keys() {
        let findings = logs().findings();
        assert_eq!((findings.requests, findings.throttled), (5, 1));
        assert_eq!(findings.keys[0], ("[\"c1\"]".to_owned(), 0.75));
        assert_eq!(findings.partitions[1], ("1".to_owned(), 0.25));
        assert_eq!(findings.sizes, [("[\"c1\"]".to_owned(), 18.0 * crate::layout::GIB)]);
        let sentences = findings.sentences().join("\n");
        for expected in [
            "5 requests over 4 s, 4 RU/s; 20 % were throttled (429).",
            "The busiest of 2 partitions with load, 0, took 75 %, 1.5 times an even share.",
            "[\"c1\"] took 75 % of the request units.",
            "[\"c2\"] took one in four request units.",
            "[\"c1\"] holds 18.0 GB of at most 20 GB per key.",
        ] {
            assert!(sentences.contains(expected), "{expected}: {sentences}");
        }
    }

    #[test]
    fn the_shared_table_is_read_and_other_containers_are_not() {
        let text = "TimeGenerated,databaseName_s,collectionName_s,partitionKey_s,sizeKb_d,OperationName\n2021-02-12T00:00:00Z,shop,orders,\"[\"\"a\"\"]\",100,\n2021-02-12T00:00:00Z,shop,carts,\"[\"\"b\"\"]\",100,\n";
        let mut logs = ServiceLogs::default();
        assert!(
            matches!(logs.add(text, None), Err(LogError::Containers(names)) if names == "shop/carts, shop/orders")
        );
        let mut logs = ServiceLogs::default();
        logs.add(text, Some(("shop", "carts"))).unwrap();
        assert_eq!(logs.findings().sizes, [("[\"b\"]".to_owned(), 102_400.0)]);
    }

    #[test]
    fn other_files_are_refused() {
        let refused = |text: &str| ServiceLogs::default().add(text, None).unwrap_err().to_string();
        assert!(refused("a,b\n1,2\n").contains("no column of the service's logs"));
        assert!(refused("{\"a\":1}\n{").contains("line 2"));
        assert!(refused("[{\"id\":\"x\"}]").contains("no column"));
        assert_eq!(
            american_time("2/12/2021, 12:05:09.250 AM"),
            moment::parse_text("2021-02-12T00:05:09.250Z")
        );
    }
}
