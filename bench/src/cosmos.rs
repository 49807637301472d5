//! Operations over the wire protocol of Cosmos DB, signed: queries, loading, and whole answers. `light` executes those of
//! single items.

use std::fmt::Write;

use orrery_gateway::auth::{MasterKey, print_date, sign_request};

use crate::documents::{code, id, item, key};
use crate::wire::{Answer, Connection};
use crate::workload::{Operation, Workload};

pub const DATABASE: &str = "bench";
pub const CONTAINER: &str = "items";

/// One connection to a server.
pub struct Session {
    address: String,
    connection: Connection,
    key: MasterKey,
    /// The date of signatures, with the second it stands for.
    date: (i64, String),
    /// Where the change feed is.
    changes: Option<String>,
    request: String,
    /// Batches are sent without a transaction to servers that have none for a partition.
    docs: String,
}

#[expect(clippy::disallowed_methods, reason = "signatures carry the real time")]
pub fn now_seconds() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(0))
}

impl Session {
    pub async fn open(address: &str) -> Result<Self, String> {
        let connection = Connection::open(address).await.map_err(|error| error.to_string())?;
        Ok(Self {
            address: address.to_owned(),
            connection,
            key: MasterKey::well_known(),
            date: (0, String::new()),
            changes: None,
            request: String::new(),
            docs: format!("/dbs/{DATABASE}/colls/{CONTAINER}/docs"),
        })
    }

    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer, String> {
        let now = now_seconds();
        if self.date.0 != now {
            self.date = (now, print_date(now));
        }
        let authorization = sign_request(&self.key, method, path, None, &self.date.1);
        self.request.clear();
        write!(
            self.request,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: {authorization}\r\nx-ms-date: {}\r\nx-ms-version: 2018-12-31\r\n",
            self.address, self.date.1
        )
        .map_err(|error| error.to_string())?;
        for (name, value) in headers {
            self.request.extend([name, ": ", value, "\r\n"]);
        }
        // Some servers refuse a GET that tells the length of a body.
        if method != "GET" {
            write!(self.request, "content-length: {}\r\n", body.len()).map_err(|error| error.to_string())?;
        }
        self.request.push_str("\r\n");
        self.request.push_str(body);
        self.connection.exchange(self.request.as_bytes()).await.map_err(|error| error.to_string())
    }

    fn expect(answer: Answer, statuses: &[u16]) -> Result<Answer, String> {
        if statuses.contains(&answer.status) {
            return Ok(answer);
        }
        let body: String = String::from_utf8_lossy(&answer.body).chars().take(200).collect();
        Err(format!("status {}: {}", answer.status, body.replace(['\r', '\n'], " ")))
    }

    pub async fn set_up(&mut self) -> Result<(), String> {
        let json = ("content-type", "application/json");
        let body = format!("{{\"id\":\"{DATABASE}\"}}");
        Self::expect(self.send("POST", "/dbs", &[json], &body).await?, &[201, 409])?;
        let body = format!(
            "{{\"id\":\"{CONTAINER}\",\"partitionKey\":{{\"paths\":[\"/pk\"],\"kind\":\"Hash\",\"version\":2}}}}"
        );
        let path = format!("/dbs/{DATABASE}/colls");
        let throughput = ("x-ms-offer-throughput", "10000");
        Self::expect(self.send("POST", &path, &[json, throughput], &body).await?, &[201, 409])?;
        Ok(())
    }

    /// Writes items as fast as the server takes them: bulk requests, or single creates where it has none.
    pub async fn load(&mut self, from: u64, to: u64, bulk: bool) -> Result<(), String> {
        if !bulk {
            for number in from..to {
                self.create(number).await?;
            }
            return Ok(());
        }
        let mut next = from;
        while next < to {
            let end = (next + 100).min(to);
            let mut body = String::from("[");
            for number in next..end {
                if number > next {
                    body.push(',');
                }
                write!(
                    body,
                    "{{\"operationType\":\"Upsert\",\"partitionKey\":\"[\\\"{}\\\"]\",\"resourceBody\":{}}}",
                    key(number),
                    item(number, 0)
                )
                .map_err(|error| error.to_string())?;
            }
            body.push(']');
            let headers = [
                ("x-ms-cosmos-is-batch-request", "True"),
                ("x-ms-cosmos-batch-atomic", "False"),
                ("x-ms-cosmos-batch-continue-on-error", "True"),
                ("x-ms-documentdb-partitionkeyrangeid", "0"),
                ("prefer", "return=minimal"),
            ];
            let docs = self.docs.clone();
            Self::expect(self.send("POST", &docs, &headers, &body).await?, &[200])?;
            next = end;
        }
        Ok(())
    }

    async fn create(&mut self, number: u64) -> Result<(), String> {
        let key = format!("[\"{}\"]", key(number));
        let headers = [("x-ms-documentdb-partitionkey", key.as_str()), ("content-type", "application/json")];
        let docs = self.docs.clone();
        Self::expect(self.send("POST", &docs, &headers, &item(number, 0)).await?, &[201]).map(|_| ())
    }

    async fn read(&mut self, number: u64) -> Result<Answer, String> {
        let key = format!("[\"{}\"]", key(number));
        let path = format!("{}/{}", self.docs, id(number));
        Self::expect(self.send("GET", &path, &[("x-ms-documentdb-partitionkey", &key)], "").await?, &[200])
    }

    /// Asks a query with at most one parameter, `@p`.
    async fn query(
        &mut self,
        query: &str,
        parameter: Option<&str>,
        key: Option<&str>,
        items: &str,
    ) -> Result<Answer, String> {
        let parameter = parameter.map(|value| format!("{{\"name\":\"@p\",\"value\":\"{value}\"}}"));
        let parameter = parameter.unwrap_or_default();
        let body = format!("{{\"query\":\"{query}\",\"parameters\":[{parameter}]}}");
        let mut headers = vec![
            ("x-ms-documentdb-isquery", "True"),
            ("content-type", "application/query+json"),
            ("x-ms-max-item-count", items),
        ];
        match key {
            Some(key) => headers.push(("x-ms-documentdb-partitionkey", key)),
            None => headers.push(("x-ms-documentdb-query-enablecrosspartition", "True")),
        }
        let docs = self.docs.clone();
        let mut answer = Self::expect(self.send("POST", &docs, &headers, &body).await?, &[200])?;
        // Over many items a page may end before its first row.
        while count(&answer) == 0
            && let Some(position) = answer.header("x-ms-continuation").map(str::to_owned)
        {
            let mut headers = headers.clone();
            headers.push(("x-ms-continuation", &position));
            answer = Self::expect(self.send("POST", &docs, &headers, &body).await?, &[200])?;
        }
        Ok(answer)
    }

    /// Does one operation and checks that it gave what it must.
    pub async fn perform(&mut self, operation: Operation) -> Result<(), String> {
        match operation {
            Operation::Create(number) => self.create(number).await,
            Operation::ByCode(number) => {
                let answer = self.by_code(number).await?;
                check(count(&answer) >= 10, || format!("{} rows by code", count(&answer)))
            }
            Operation::Top10 => {
                let answer = self.top_10().await?;
                check(count(&answer) == 10, || format!("{} rows of 10", count(&answer)))
            }
            Operation::Page(number) => {
                let answer = self.page(number).await?;
                check(count(&answer) == 100, || format!("{} rows of 100", count(&answer)))
            }
            Operation::Scan(number, length) => {
                let answer = self.scan(number, length).await?;
                check(count(&answer) >= 1, || "an empty scan".to_owned())
            }
            Operation::GroupBy => {
                let answer = self.groups().await?;
                check(count(&answer) == 8, || format!("{} groups of 8", count(&answer)))
            }
            Operation::CountByCode(number) => {
                let answer = self.count_by_code(number).await?;
                check(count(&answer) == 1, || format!("{} counts of 1", count(&answer)))
            }
            Operation::CountByLength => {
                let answer = self.count_by_length().await?;
                check(count(&answer) == 1, || format!("{} counts of 1", count(&answer)))
            }
            Operation::Changes => self.next_changes().await,
            other => Err(format!("{other:?} is for the light generator")),
        }
    }

    async fn by_code(&mut self, number: u64) -> Result<Answer, String> {
        self.query("SELECT * FROM c WHERE c.code = @p", Some(&code(number)), None, "100").await
    }

    async fn top_10(&mut self) -> Result<Answer, String> {
        self.query("SELECT TOP 10 * FROM c ORDER BY c.rank DESC", None, None, "10").await
    }

    async fn page(&mut self, number: u64) -> Result<Answer, String> {
        let key = key(number);
        let header = format!("[\"{key}\"]");
        self.query("SELECT * FROM c WHERE c.pk = @p", Some(&key), Some(&header), "100").await
    }

    async fn scan(&mut self, number: u64, length: u64) -> Result<Answer, String> {
        let key = format!("[\"{}\"]", key(number));
        let query = format!("SELECT TOP {length} * FROM c WHERE c.id >= @p");
        self.query(&query, Some(&id(number)), Some(&key), "100").await
    }

    async fn groups(&mut self) -> Result<Answer, String> {
        let query = "SELECT c.status, COUNT(1) AS n FROM c GROUP BY c.status";
        self.query(query, None, None, "100").await
    }

    async fn count_by_code(&mut self, number: u64) -> Result<Answer, String> {
        let query = "SELECT VALUE COUNT(1) FROM c WHERE c.code = @p";
        self.query(query, Some(&code(number)), None, "100").await
    }

    async fn count_by_length(&mut self) -> Result<Answer, String> {
        self.query("SELECT VALUE COUNT(1) FROM c WHERE LENGTH(c.code) > 1000", None, None, "100").await
    }

    async fn changes_after(&mut self, position: Option<&str>) -> Result<Answer, String> {
        let mut headers = vec![
            ("a-im", "Incremental feed"),
            ("x-ms-max-item-count", "100"),
            ("x-ms-documentdb-partitionkeyrangeid", "0"),
        ];
        if let Some(position) = position {
            headers.push(("if-none-match", position));
        }
        let docs = self.docs.clone();
        Self::expect(self.send("GET", &docs, &headers, "").await?, &[200, 304])
    }

    /// The next page; from the beginning again after the last one.
    async fn next_changes(&mut self) -> Result<(), String> {
        let position = self.changes.take();
        let answer = self.changes_after(position.as_deref()).await?;
        if answer.status == 200 {
            check(count(&answer) > 0, || "a page without changes".to_owned())?;
            self.changes = answer.header("etag").map(str::to_owned);
            return check(self.changes.is_some(), || "no position in the change feed".to_owned());
        }
        check(position.is_some(), || "no changes at all".to_owned())
    }

    /// The whole answer to an operation of a workload, for the servers that only repeat it.
    pub async fn sample(&mut self, workload: Workload) -> Result<Answer, String> {
        match workload {
            Workload::QueryIndexed => self.by_code(0).await,
            Workload::OrderByTop10 => self.top_10().await,
            Workload::Page100 => self.page(0).await,
            Workload::CountIndexed => self.count_by_code(0).await,
            Workload::GroupBy => self.groups().await,
            Workload::ScanUnindexed => self.count_by_length().await,
            Workload::ChangeFeed => self.changes_after(None).await,
            // Fifty of the lengths between one and a hundred.
            Workload::YcsbE => self.scan(0, 50).await,
            _ => self.read(0).await,
        }
    }
}

fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Rows of a feed, by the count that the server gives.
fn count(answer: &Answer) -> u64 {
    if let Some(count) = answer.header("x-ms-item-count").and_then(|count| count.parse().ok()) {
        return count;
    }
    let text = String::from_utf8_lossy(&answer.body);
    let number = text
        .rsplit_once("\"_count\":")
        .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
