//! The state of a shell: current container, output mode, and the execution of each statement.

use std::io::Write;

use orrery_env::{SystemEnv, monotonic};
use orrery_model::{Object, Value, value};
use tokio::runtime::Runtime;

use super::complete::Names;
use super::help::HELP;
use super::statement::Statement;
use crate::client::{
    Client, ContainerPath, QueryPages, QueryText, Request, ServerArguments, announce, id_of,
    parse_partition_key,
};
use crate::commands::containers::container_rows;
use crate::commands::{export, import, items, parse_arguments, partitions, query};
use crate::failure::Failure;
use crate::io::rows::{RowsFormat, chart, csv, json_array, json_lines, table, terminal_width};
use crate::io::{count, print};
use crate::transfer::RemoteContainer;

/// Rows that `ls` shows of a container.
const LISTED_ITEMS: usize = 20;
/// Items whose properties are completed.
const SAMPLED_ITEMS: usize = 50;
/// Rows of a page where the height of the terminal is unknown.
const DEFAULT_SCREEN_ROWS: usize = 40;

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Rows(RowsFormat),
    Chart,
}

pub(super) struct Session {
    runtime: Runtime,
    client: Client,
    server: ServerArguments,
    is_interactive: bool,
    /// Whether the server is an Orrery; unknown until asked.
    is_orrery: Option<bool>,
    database: Option<String>,
    container: Option<RemoteContainer>,
    mode: Mode,
    /// Queries are restricted to this partition key, a JSON array.
    key: Option<String>,
    shows_charge: bool,
    /// For the prompt, when they have changed.
    names: Option<Names>,
    /// Properties of a sample of the container's items.
    properties: Vec<String>,
}

impl Session {
    pub(super) fn open(
        server: ServerArguments,
        is_interactive: bool,
        format: Option<RowsFormat>,
    ) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| Failure::internal(format!("the async runtime cannot start: {error}")))?;
        // Scripts are read by programs.
        let default = if is_interactive { RowsFormat::Table } else { RowsFormat::Jsonl };
        Ok(Self {
            runtime,
            client: server.connect()?,
            server,
            is_interactive,
            is_orrery: None,
            database: None,
            container: None,
            mode: Mode::Rows(format.unwrap_or(default)),
            key: None,
            shows_charge: false,
            names: None,
            properties: Vec::new(),
        })
    }

    /// Prints the server and loads the names for completion. Fails if the server cannot be reached.
    pub(super) fn greet(&mut self) -> Result<(), Failure> {
        self.learn_names()?;
        announce(self.client.account(), "help lists the commands");
        Ok(())
    }

    pub(super) fn prompt(&self) -> String {
        match (&self.container, &self.database) {
            (Some(container), _) => format!("{}.{}> ", container.path.database, container.path.container),
            (None, Some(database)) => format!("{database}> "),
            (None, None) => "orrery> ".to_owned(),
        }
    }

    /// The names to complete, if they have changed since the last call.
    pub(super) fn changed_names(&mut self) -> Option<Names> {
        self.names.take()
    }

    /// Executes a statement. Returns whether the session continues.
    pub(super) fn execute(&mut self, statement: Statement) -> Result<bool, Failure> {
        match statement {
            Statement::Nothing => {}
            Statement::Exit => return Ok(false),
            Statement::Help => self.print(HELP)?,
            Statement::Query(text) => self.query(&text)?,
            Statement::Use(text) => self.use_place(&text)?,
            Statement::List(text) => self.list(&text)?,
            Statement::Show(id) => {
                let found = {
                    let container = self.container()?;
                    let (client, key) = (&self.client, self.key.as_deref());
                    let work = client.find_item(&container.path, &container.key, &id, key);
                    self.run(work)?
                };
                self.print(&items::pretty(&found.item))?;
            }
            Statement::Put(text) => {
                let item = value::parse(text.as_bytes())
                    .map_err(|error| Failure::usage(format!("the item is not valid JSON: {error}")))?;
                let container = self.container()?;
                self.run(items::write_item(&self.client, container, &item, true))?;
                self.say(&format!("Wrote the item {}.", id_of(&item)));
            }
            Statement::Remove(id) => {
                let container = self.container()?;
                let key = self.key.as_deref();
                self.run(self.client.delete_item(&container.path, &container.key, &id, key))?;
                self.say(&format!("Deleted the item {id}."));
            }
            Statement::Mode(mode) => {
                self.mode = match mode.as_str() {
                    "chart" => Mode::Chart,
                    "json" => Mode::Rows(RowsFormat::Json),
                    "jsonl" => Mode::Rows(RowsFormat::Jsonl),
                    "csv" => Mode::Rows(RowsFormat::Csv),
                    _ => Mode::Rows(RowsFormat::Table),
                };
            }
            Statement::Key(text) => {
                self.key = (!text.is_empty()).then(|| parse_partition_key(&text));
                match &self.key {
                    Some(key) => self.say(&format!("Queries are restricted to the partition key {key}.")),
                    None => self.say("Queries cover all partition keys."),
                }
            }
            Statement::Charge(is_on) => self.shows_charge = is_on,
            Statement::Explain(text) => self.explain(&text)?,
            Statement::Partitions => self.partitions()?,
            Statement::Schema => {
                // Fails if no container is in use.
                self.container()?;
                self.print(&(self.properties.join("\n") + "\n"))?;
            }
            Statement::Import(file) => {
                let mut arguments: import::ImportArguments = self.transfer_arguments(&file)?;
                arguments.server = self.server.clone();
                import::run(&arguments, &mut std::io::stdout())?;
                // The imported items may have new properties.
                self.sample()?;
            }
            Statement::Export(file) => {
                let mut arguments: export::ExportArguments = self.transfer_arguments(&file)?;
                arguments.server = self.server.clone();
                export::run(&arguments, &mut std::io::stdout())?;
            }
        }
        Ok(true)
    }

    /// The arguments of `import` or `export` for a file and the current container, with the usual options.
    fn transfer_arguments<A: clap::Args>(&self, file: &str) -> Result<A, Failure> {
        let path = &self.container()?.path;
        let mut arguments = vec!["orrery", file, "-d", &path.database, "-c", &path.container];
        // The output of a script shows no progress.
        arguments.extend((!self.is_interactive).then_some("--quiet"));
        parse_arguments(&arguments)
    }

    /// Runs until the end, or until Ctrl-C.
    fn run<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        self.runtime.block_on(async {
            tokio::select! {
                result = work => result,
                // Cancels the statement, not the session.
                Ok(()) = tokio::signal::ctrl_c() => Err(Failure::refused("stopped")),
            }
        })
    }

    #[expect(clippy::unused_self, reason = "reads like the other verbs")]
    fn print(&self, text: &str) -> Result<(), Failure> {
        print(&mut std::io::stdout(), text)
    }

    /// A message for interactive use; not printed in scripts.
    fn say(&self, text: &str) {
        if self.is_interactive {
            writeln!(std::io::stdout(), "{text}").ok();
        }
    }

    fn container(&self) -> Result<&RemoteContainer, Failure> {
        self.container.as_ref().ok_or_else(|| {
            Failure::usage("no container is in use: `ls` lists them, `use DB.CONTAINER` enters one")
        })
    }

    fn learn_names(&mut self) -> Result<(), Failure> {
        let (databases, containers) = self.run(async {
            let databases: Vec<String> = self.client.list_databases().await?.iter().map(id_of).collect();
            let mut containers = Vec::new();
            for database in &databases {
                let listed = self.client.list_containers(database).await?;
                containers.extend(listed.iter().map(|container| format!("{database}.{}", id_of(container))));
            }
            Ok((databases, containers))
        })?;
        self.names = Some(Names { databases, containers, properties: self.properties.clone() });
        Ok(())
    }

    /// `DB.CONTAINER`, `DB/CONTAINER`, `DB`, or a container of the database in use. Ids may contain dots, so existing
    /// names take precedence.
    fn use_place(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            (self.database, self.container) = (None, None);
            return Ok(());
        }
        // Ids may contain dots, so the existing databases tell where theirs ends.
        let databases: Vec<String> = self.run(self.client.list_databases())?.iter().map(id_of).collect();
        let inside = databases.iter().find_map(|database| {
            let rest = text.strip_prefix(database.as_str())?;
            Some((database.clone(), rest.strip_prefix(['.', '/'])?.to_owned()))
        });
        if let Some((database, container)) = inside {
            return self.enter(&database, Some(&container));
        }
        if databases.iter().any(|database| database == text) {
            return self.enter(text, None);
        }
        // Otherwise it is a container of the database in use.
        if let Some(database) = self.database.clone() {
            return self.enter(&database, Some(text));
        }
        Err(Failure::refused(match databases.as_slice() {
            [] => format!("there is no database for `{text}`: the account has none"),
            databases => {
                format!("there is no database for `{text}`: the account has {}", databases.join(", "))
            }
        }))
    }

    pub(super) fn enter(&mut self, database: &str, container: Option<&str>) -> Result<(), Failure> {
        if let Some(container) = container {
            let path = ContainerPath::new(database, container);
            let found = self.run(RemoteContainer::require(&self.client, &path))?;
            self.say(&format!("{path} is partitioned by {}.", key_paths(&found)));
            self.container = Some(found);
            self.sample()?;
        } else {
            // Fails if the database does not exist.
            self.run(self.client.list_containers(database))?;
            self.container = None;
        }
        self.database = Some(database.to_owned());
        // The key was one of the container left.
        self.key = None;
        Ok(())
    }

    /// Samples items for property names to complete.
    fn sample(&mut self) -> Result<(), Failure> {
        let query = QueryText { text: "SELECT * FROM c".to_owned(), parameters: Vec::new() };
        let path = &self.container()?.path;
        let mut pages = QueryPages::new(&self.client, path, query, None);
        let rows = self.run(async { pages.next().await })?.unwrap_or_default();
        let mut properties = Vec::new();
        for row in rows.iter().take(SAMPLED_ITEMS) {
            add_properties(row, "", &mut properties);
        }
        properties.sort();
        properties.dedup();
        self.properties = properties;
        // Scripts complete nothing.
        if self.is_interactive {
            self.learn_names()?;
        }
        Ok(())
    }

    fn list(&self, text: &str) -> Result<(), Failure> {
        let database = if text.is_empty() { self.database.as_deref() } else { Some(text) };
        let rows = match (&self.container, database) {
            (Some(container), _) if text.is_empty() => {
                let query = QueryText { text: "SELECT * FROM c".to_owned(), parameters: Vec::new() };
                let pages = QueryPages::new(&self.client, &container.path, query, self.key.clone());
                self.run(pages.collect(LISTED_ITEMS))?
            }
            (_, Some(database)) => self.run(container_rows(&self.client, Some(database)))?,
            (_, None) => {
                let row = |database: &Value| {
                    let mut row = Object::new();
                    row.set("database", Value::from(id_of(database)));
                    Value::from(row)
                };
                self.run(self.client.list_databases())?.iter().map(row).collect()
            }
        };
        if rows.is_empty() {
            self.say("Nothing here.");
        }
        // A list is no chart.
        if self.mode == Mode::Chart { self.print(&table(&rows, terminal_width())) } else { self.show(&rows) }
    }

    fn show(&self, rows: &[Value]) -> Result<(), Failure> {
        let width = terminal_width();
        let text = match self.mode {
            Mode::Rows(RowsFormat::Table) => table(rows, width),
            Mode::Rows(RowsFormat::Json) => json_array(rows),
            Mode::Rows(RowsFormat::Jsonl) => json_lines(rows),
            Mode::Rows(RowsFormat::Csv) => csv(rows),
            Mode::Chart => chart(rows, width).map_err(Failure::usage)?,
        };
        self.print(&text)
    }

    fn query(&self, text: &str) -> Result<(), Failure> {
        let path = &self.container()?.path;
        let query = QueryText::new(text, &[])?;
        let charge_before = self.client.charge();
        let started = monotonic::now();
        let mut pages = QueryPages::new(&self.client, path, query, self.key.clone());
        // Tables on a terminal are paged; JSON lines are printed as they arrive; everything else needs all rows.
        let is_paged = self.is_interactive && self.mode == Mode::Rows(RowsFormat::Table);
        let streams = self.mode == Mode::Rows(RowsFormat::Jsonl);
        let mut screen = if is_paged { screen_rows() } else { usize::MAX };
        let mut waiting: Vec<Value> = Vec::new();
        let mut shown = 0_u64;
        let mut is_stopped = false;
        while let Some(page) = self.run(pages.next())? {
            waiting.extend(page);
            if streams {
                shown += waiting.len() as u64;
                self.show(&std::mem::take(&mut waiting))?;
            }
            while waiting.len() > screen && !is_stopped {
                let rest = waiting.split_off(screen);
                shown += waiting.len() as u64;
                self.show(&std::mem::replace(&mut waiting, rest))?;
                match ask_for_more() {
                    More::Page => {}
                    More::All => screen = usize::MAX,
                    More::None => is_stopped = true,
                }
            }
            if is_stopped {
                break;
            }
        }
        if !is_stopped {
            shown += waiting.len() as u64;
            // An empty result is visible in every mode but JSON lines.
            if !waiting.is_empty() || shown == 0 && !streams {
                self.show_last(&waiting)?;
            }
        }
        let charge = format!("{:.2} RU", self.client.charge() - charge_before);
        let rest = if is_stopped { " shown" } else { "" };
        let milliseconds = monotonic::elapsed(started).as_millis();
        match (self.is_interactive, self.shows_charge) {
            (true, true) => self.say(&format!("{}{rest}, {charge}, {milliseconds} ms", count(shown, "row"))),
            (true, false) => self.say(&format!("{}{rest}", count(shown, "row"))),
            (false, true) => {
                // Only for people: ignore a closed standard error.
                writeln!(std::io::stderr(), "{}, {charge}", count(shown, "row")).ok();
            }
            (false, false) => {}
        }
        Ok(())
    }

    /// Prints the end of a result. An empty chart is not an error.
    fn show_last(&self, rows: &[Value]) -> Result<(), Failure> {
        // A chart of nothing is an error, but an empty result is none.
        if rows.is_empty() && self.mode == Mode::Chart { Ok(()) } else { self.show(rows) }
    }

    /// Whether the server supports Orrery's extensions.
    fn is_orrery(&mut self) -> Result<bool, Failure> {
        if let Some(known) = self.is_orrery {
            return Ok(known);
        }
        let response = self.run(self.client.send(&SystemEnv, &Request::get("/_orrery/health")))?;
        // Other servers return something else at this path, or nothing.
        let is_orrery = response.json().is_some_and(|health| health.get("store").is_some());
        self.is_orrery = Some(is_orrery);
        Ok(is_orrery)
    }

    fn explain(&mut self, text: &str) -> Result<(), Failure> {
        let path = self.container()?.path.clone();
        let query = QueryText::new(text, &[])?;
        if !self.is_orrery()? {
            return self.print_metrics(&path, &query);
        }
        let mut body = Object::new();
        body.set("database", Value::from(path.database.as_str()));
        body.set("container", Value::from(path.container.as_str()));
        let body = query::explain_request(body, &query, self.key.as_deref())?;
        let request = Request::post("/_orrery/explain", body.to_json());
        let answer = crate::client::accepted_json(self.run(self.client.send(&SystemEnv, &request))?)?;
        self.print(&query::describe_explanation(&answer))
    }

    /// The query metrics, which every endpoint returns.
    fn print_metrics(&self, path: &ContainerPath, query: &QueryText) -> Result<(), Failure> {
        // Metrics come page by page; this asks for the first.
        let mut request = query.request(path).with("x-ms-documentdb-populatequerymetrics", "True");
        if let Some(key) = &self.key {
            request = request.with("x-ms-documentdb-partitionkey", &crate::client::ascii_json(key));
        }
        let response = self.run(self.client.send(&SystemEnv, &request))?.accepted()?;
        let charge = response.header("x-ms-request-charge").unwrap_or("unknown");
        let metrics = response.header("x-ms-documentdb-query-metrics").unwrap_or_default();
        let lines: String = metrics
            .split(';')
            .filter(|part| !part.is_empty())
            .map(|part| part.replace('=', "  ") + "\n")
            .collect();
        self.print(&format!("Charge of the first page: {charge} RU\n{lines}"))
    }

    fn partitions(&mut self) -> Result<(), Failure> {
        let path = self.container()?.path.clone();
        if self.is_orrery()? {
            let query = crate::client::container_query(&path.database, &path.container);
            let request = Request::get("/_orrery/partitions").with_query(&query);
            let views = crate::client::accepted_json(self.run(self.client.send(&SystemEnv, &request))?)?;
            let text: String = views.as_array().unwrap_or(&[]).iter().map(partitions::table).collect();
            return self.print(&text);
        }
        let ranges = self.run(self.client.read_ranges(&SystemEnv, &path))?;
        let row = |range: &crate::client::PartitionRange| {
            let mut row = Object::new();
            row.set("partition", Value::from(range.id.as_str()));
            row.set("from", Value::from(range.keys.min.to_string()));
            row.set("to", Value::from(range.keys.max.to_string()));
            Value::from(row)
        };
        let rows: Vec<Value> = ranges.iter().map(row).collect();
        self.print(&table(&rows, terminal_width()))
    }
}

fn key_paths(container: &RemoteContainer) -> String {
    let paths =
        container.definition.get("partitionKey").and_then(|key| key.get("paths")).and_then(Value::as_array);
    let paths: Vec<&str> = paths.unwrap_or(&[]).iter().filter_map(Value::as_str).collect();
    paths.join(", ")
}

/// The paths of an object's properties, without the server's own and without array elements.
fn add_properties(value: &Value, prefix: &str, paths: &mut Vec<String>) {
    for (name, member) in value.as_object().into_iter().flat_map(Object::iter) {
        // Other names would need brackets and quotes.
        let is_word = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        if !is_word || prefix.is_empty() && matches!(name, "_rid" | "_self" | "_attachments") {
            continue;
        }
        let path = format!("{prefix}{name}");
        add_properties(member, &format!("{path}."), paths);
        paths.push(path);
    }
}

/// The user's choice after a screen of rows.
enum More {
    Page,
    All,
    None,
}

fn ask_for_more() -> More {
    let terminal = console::Term::stdout();
    write!(std::io::stdout(), "-- more (any key: next page, a: all, q: quit) --").ok();
    std::io::stdout().flush().ok();
    let key = terminal.read_key();
    terminal.clear_line().ok();
    match key {
        Ok(console::Key::Char('q' | 'Q') | console::Key::Escape | console::Key::CtrlC) | Err(_) => More::None,
        Ok(console::Key::Char('a' | 'A')) => More::All,
        Ok(_) => More::Page,
    }
}

/// Rows that fit the terminal together with header, borders and the pager prompt.
fn screen_rows() -> usize {
    let height = console::Term::stdout().size_checked().map(|(rows, _)| usize::from(rows));
    height.unwrap_or(DEFAULT_SCREEN_ROWS).saturating_sub(6).max(5)
}
