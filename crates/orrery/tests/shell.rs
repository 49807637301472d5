//! `orrery shell`, `query run` and the resource commands, in pipes and on a terminal.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use common::{Server, orrery, path_text, run_with_input, until};
use serde_json::{Value, json};

/// A server with the container `shop/orders`, partitioned by `/customer`, over four partitions.
fn server_with_orders(more: &[&str]) -> Server {
    let server =
        Server::start(&[&["--in-memory", "--no-throttle", "--partitions-at-creation", "4"], more].concat());
    let cities = ["Paris", "Oslo", "Rome"];
    let line = |n: usize| {
        let (customer, city) = (n % 20, cities[n % 3]);
        format!(
            "{{\"id\":\"{n}\",\"customer\":\"c{customer}\",\"total\":{n},\"address\":{{\"city\":\"{city}\"}}}}\n"
        )
    };
    let input: String = (0..300).map(line).collect();
    let url = server.url();
    let import = [
        "import",
        "-d",
        "shop",
        "-c",
        "orders",
        "--create",
        "--partition-key=/customer",
        "--endpoint",
        &url,
        "-q",
    ];
    assert_eq!(run_with_input(&import, input.as_bytes()).0, 0);
    server
}

/// Runs a script in the shell: exit code, standard output, standard error.
fn shell(server: &Server, script: &str) -> (i32, String, String) {
    run_with_input(&["shell", &server.url()], script.as_bytes())
}

fn succeed(server: &Server, script: &str) -> String {
    let (code, stdout, stderr) = shell(server, script);
    assert_eq!((code, stderr.as_str()), (0, ""), "{script}");
    stdout
}

/// Runs a command against a server; it must succeed.
fn command(server: &Server, arguments: &[&str]) -> String {
    let url = server.url();
    let (code, stdout, stderr) = common::run(&mut orrery(&[arguments, &["--endpoint", &url]].concat()));
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout
}

#[test]
fn scripts_run_statement_by_statement() {
    let server = server_with_orders(&[]);
    let script = "ls\nls shop\nuse shop.orders\nSELECT VALUE c.total\nFROM c\nWHERE c.id = '7';\n\
                  .mode csv\nSELECT c.id, c.address FROM c WHERE c.id IN ('1', '2') ORDER BY c.id;\n\
                  .key c1\nSELECT VALUE COUNT(1) FROM c\n";
    let stdout = succeed(&server, script);
    let expected = [
        r#"{"database":"shop"}"#,
        "partitionKey",
        "7\n",
        "id,address\r\n1,\"{\"\"city\"\":\"\"Oslo\"\"}\"\r\n2,",
        "value\r\n15\r\n",
    ];
    let mut rest = stdout.as_str();
    for fragment in expected {
        let at = rest.find(fragment).unwrap_or_else(|| panic!("{fragment} is missing in {rest}\n{stdout}"));
        rest = &rest[at + fragment.len()..];
    }
}

#[test]
fn items_are_shown_written_and_removed() {
    let server = server_with_orders(&[]);
    let script = "use shop/orders\nput {\"id\":\"new\",\"customer\":\"ada\",\"n\":1}\ncat new\nrm new\n\
                  SELECT VALUE COUNT(1) FROM c WHERE c.id = 'new'\n";
    let stdout = succeed(&server, script);
    assert!(stdout.contains("\"customer\": \"ada\"") && stdout.ends_with("\n0\n"), "{stdout}");
    let (code, _, stderr) = shell(&server, "use shop.orders\ncat none\nSELECT 1\n");
    assert_eq!(code, 1);
    assert!(stderr.contains("there is no item `none` in shop/orders"), "{stderr}");
}

#[test]
fn the_first_error_ends_a_script() {
    let server = server_with_orders(&[]);
    for (script, code, message) in [
        ("SELECT 1;", 2, "no container is in use"),
        ("use nowhere.x", 1, "the account has shop"),
        ("use shop.orders\nSELECT * FORM c;\nSELECT 2", 1, "(SC1001 at character"),
        ("use shop.orders\nSELECT @p", 2, "@p, which has no value"),
        (".mode xml", 2, "table, json, jsonl, csv, chart"),
    ] {
        let (found, stdout, stderr) = shell(&server, script);
        assert_eq!((found, stdout.as_str()), (code, ""), "{script}: {stderr}");
        assert!(stderr.contains(message) && stderr.lines().count() == 1, "{script}: {stderr}");
    }
}

#[test]
fn files_are_imported_exported_explained_and_charted() {
    let server = server_with_orders(&[]);
    let directory = tempfile::tempdir().unwrap();
    let (input, output) = (directory.path().join("in.jsonl"), directory.path().join("out.jsonl"));
    std::fs::write(&input, "{\"id\":\"x\",\"customer\":\"ada\"}\n").unwrap();
    let script = format!(
        "use shop.orders\n.import {}\n.export {}\n.explain SELECT * FROM c WHERE c.total = 5\n.partitions\n.schema\n\
         .mode chart\nSELECT c.address.city, COUNT(1) AS n FROM c GROUP BY c.address.city\n",
        path_text(&input),
        path_text(&output)
    );
    let (code, stdout, stderr) = shell(&server, &script);
    assert_eq!(code, 0, "{stderr}");
    for fragment in
        ["Imported 1 item", "Exported 301 items", "Access", "/total", "PARTITION", "address.city", "███"]
    {
        assert!(stdout.contains(fragment), "{fragment} is missing in {stdout}");
    }
    assert_eq!(std::fs::read_to_string(&output).unwrap().lines().count(), 301);
}

/// The rows of a query, as JSON.
fn rows(server: &Server, query: &str) -> Vec<Value> {
    let stdout = command(server, &["query", "run", query, "-d", "shop", "-c", "orders", "--output", "json"]);
    serde_json::from_str::<Value>(&stdout).unwrap().as_array().unwrap().clone()
}

/// With `plan` the server refuses what the service refuses, and the client merges; with `merge` the server does it all. Both
/// must give the same rows.
#[test]
fn queries_over_partitions_are_merged_like_the_server_merges_them() {
    let (merging, planning) = (
        server_with_orders(&["--cross-partition-queries", "merge"]),
        server_with_orders(&["--cross-partition-queries", "plan"]),
    );
    for query in [
        "SELECT VALUE c.total FROM c ORDER BY c.total DESC",
        "SELECT c.id, c.total FROM c WHERE c.total > 100 ORDER BY c.total OFFSET 5 LIMIT 10",
        "SELECT TOP 7 VALUE c.total FROM c ORDER BY c.total",
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT VALUE AVG(c.total) FROM c",
        "SELECT VALUE MAX(c.address.city) FROM c",
        "SELECT VALUE SUM(c.nothing) FROM c",
        "SELECT VALUE MIN(c.nothing) FROM c",
        "SELECT COUNT(1) AS n, MIN(c.total) AS least, AVG(c.total) AS mean FROM c",
    ] {
        assert_eq!(rows(&planning, query), rows(&merging, query), "{query}");
    }
    // Without an order, rows may come in any.
    for query in [
        "SELECT DISTINCT VALUE c.address.city FROM c",
        "SELECT c.address.city, COUNT(1) AS n, SUM(c.total) AS total FROM c GROUP BY c.address.city",
        "SELECT VALUE AVG(c.total) FROM c GROUP BY c.customer",
        "SELECT * FROM c WHERE c.customer = 'c3'",
    ] {
        let sorted = |server: &Server| {
            let mut rows = rows(server, query);
            rows.iter_mut().filter_map(Value::as_object_mut).for_each(|row| {
                row.retain(|name, _| !name.starts_with('_'));
            });
            let mut texts: Vec<String> = rows.iter().map(Value::to_string).collect();
            texts.sort();
            texts
        };
        let merged = sorted(&planning);
        assert!(!merged.is_empty(), "{query}");
        assert_eq!(merged, sorted(&merging), "{query}");
    }
}

#[test]
fn query_run_prints_every_format_and_reports_errors_as_sentences() {
    let server = server_with_orders(&[]);
    let query = "SELECT c.id, c.total FROM c WHERE c.total < 2 ORDER BY c.total";
    let run = |format: &str| {
        command(&server, &["query", "run", query, "-d", "shop", "-c", "orders", "--output", format])
    };
    assert_eq!(run("csv"), "id,total\r\n0,0\r\n1,1\r\n");
    assert_eq!(run("jsonl"), "{\"id\":\"0\",\"total\":0}\n{\"id\":\"1\",\"total\":1}\n");
    assert_eq!(run("json"), "[\n  {\"id\":\"0\",\"total\":0},\n  {\"id\":\"1\",\"total\":1}\n]\n");
    let table = run("table");
    assert!(table.lines().count() == 6 && table.contains("│ id ┆ total │"), "{table}");

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("query.sql");
    std::fs::write(&file, "SELECT VALUE c.id FROM c\nWHERE c.id = @id;\n").unwrap();
    let from_file = [
        "query",
        "run",
        "-f",
        path_text(&file),
        "-p",
        "@id=\"5\"",
        "-d",
        "shop",
        "-c",
        "orders",
        "-o",
        "jsonl",
    ];
    assert_eq!(command(&server, &from_file), "\"5\"\n");

    let url = server.url();
    let wrong = ["query", "run", "SELECT * FORM c", "-d", "shop", "-c", "orders", "--endpoint", &url];
    let (code, stdout, stderr) = common::run(&mut orrery(&wrong));
    assert_eq!((code, stdout.as_str(), stderr.lines().count()), (1, "", 1), "{stderr}");
    assert!(stderr.contains("Syntax error") && !stderr.contains('{'), "{stderr}");
    let (_, _, verbose) = common::run(orrery(&wrong).arg("--verbose"));
    assert!(verbose.contains("{\"code\":\"BadRequest\""), "{verbose}");
    let missing = ["query", "explain", "SELECT @p", "-d", "shop", "-c", "orders", "--endpoint", &url];
    let (code, _, stderr) = common::run(&mut orrery(&missing));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("@p, which has no value"), "{stderr}");
}

#[test]
fn resources_are_managed_from_the_command_line() {
    let server = Server::start(&["--in-memory"]);
    command(&server, &["databases", "create", "db", "--throughput", "1000"]);
    let definition = r#"{"defaultTtl":60}"#;
    let create = [
        "containers",
        "create",
        "-d",
        "db",
        "-c",
        "c",
        "--partition-key",
        "/a,/b",
        "--definition",
        definition,
    ];
    let created = command(&server, &[&create[..], &["--max-throughput", "4000", "-o", "json"]].concat());
    let created: Value = serde_json::from_str(&created).unwrap();
    assert_eq!(
        (&created["partitionKey"]["paths"], &created["defaultTtl"]),
        (&json!(["/a", "/b"]), &json!(60))
    );
    let listed = command(&server, &["containers", "list", "-o", "csv"]);
    assert_eq!(
        listed,
        "database,id,partitionKey,throughput\r\ndb,c,\"/a, /b\",up to 4000 RU/s (autoscale)\r\n"
    );
    assert!(command(&server, &["databases", "list"]).contains("│ db ┆          1 │"));
    let place = ["-d", "db", "-c", "c"];
    command(&server, &[&["items", "put", r#"{"id":"1","a":"x","b":2}"#], &place[..]].concat());
    let shown =
        command(&server, &[&["items", "show", "1", "--partition-key", r#"["x",2]"#], &place[..]].concat());
    assert!(shown.contains("\"b\": 2"), "{shown}");
    let url = server.url();
    for (arguments, code, message) in [
        (&["items", "create", r#"{"id":"1","a":"x","b":2}"#, "-d", "db", "-c", "c"][..], 1, "(409)"),
        (&["items", "put", "{}", "-d", "db", "-c", "c"], 2, "a string `id`"),
        (&["items", "show", "2", "-d", "db", "-c", "c"], 1, "there is no item `2` in db/c"),
        (&["containers", "show", "-d", "db", "-c", "none"], 1, "there is no container db/none"),
        (&["containers", "create", "-d", "db", "-c", "c"], 1, "already exists"),
        (&["containers", "create", "-d", "db", "-c", "x", "--partition-key", "a"], 2, "--partition-key /a"),
        (&["query", "run", "SELECT 1", "-d", "db", "-c", "none"], 1, "there is no container db/none"),
        (&["databases", "list", "--key", "!"], 2, "--key: the key is not valid"),
        (&["databases", "create", "db"], 1, "already exists"),
        (&["databases", "delete", "none"], 1, "there is no database `none`"),
    ] {
        let (found, _, stderr) = common::run(&mut orrery(&[arguments, &["--endpoint", &url]].concat()));
        assert_eq!(found, code, "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
    }
    // An id under several keys is named with all of them.
    command(&server, &[&["items", "put", r#"{"id":"1","a":"y","b":3}"#], &place[..]].concat());
    let (code, _, stderr) =
        common::run(&mut orrery(&[&["items", "show", "1", "--endpoint", &url], &place[..]].concat()));
    assert_eq!(code, 1, "{stderr}");
    for part in [r#"["x",2]"#, r#"["y",3]"#, "--partition-key KEY"] {
        assert!(stderr.contains(part), "{stderr}");
    }
    command(&server, &[&["items", "delete", "1", "--partition-key", r#"["y",3]"#], &place[..]].concat());
    command(&server, &[&["items", "delete", "1"], &place[..]].concat());
    assert_eq!(command(&server, &[&["items", "list", "-o", "jsonl"], &place[..]].concat()), "");
    command(&server, &["containers", "delete", "-d", "db", "-c", "c"]);
    command(&server, &["databases", "delete", "db"]);
    assert_eq!(command(&server, &["databases", "list"]), "There are no databases.\n");
    assert_eq!(command(&server, &["health"]), "ready\n");
}

#[test]
fn completions_and_man_pages_are_generated() {
    for name in ["bash", "zsh", "fish", "powershell"] {
        let (code, stdout, _) = common::run(&mut orrery(&["completions", name]));
        assert_eq!(code, 0);
        assert!(stdout.contains("repartition") && stdout.contains("shell"), "{name}");
    }
    let directory = tempfile::tempdir().unwrap();
    let man = directory.path().join("man1");
    let (code, _, stderr) = common::run(&mut orrery(&["man", path_text(&man)]));
    assert_eq!(code, 0, "{stderr}");
    for page in ["orrery.1", "orrery-serve.1", "orrery-query-run.1", "orrery-shell.1"] {
        let text = std::fs::read_to_string(man.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{page}");
    }
}

/// A command on a pseudo terminal of its own, which `script` provides.
struct Terminal {
    child: Child,
    output: Arc<Mutex<String>>,
}

impl Terminal {
    fn open(server: &Server, columns: u32, command: &str, history: &str) -> Self {
        let line = format!("stty cols {columns} rows 40; exec {} {command}", env!("CARGO_BIN_EXE_orrery"));
        let mut child = Command::new("script")
            .args(["-q", "-e", "-f", "-c", &line, "/dev/null"])
            .env("TERM", "xterm")
            .env("ORRERY_ENDPOINT", server.url())
            .env("ORRERY_HISTORY", history)
            .env_remove("ORRERY_OUTPUT")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        let mut stdout = child.stdout.take().unwrap();
        let seen = Arc::clone(&output);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = stdout.read(&mut bytes) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        Self { child, output }
    }

    /// Types a text and waits for what it brings.
    fn enter(&mut self, text: &str, expected: &str) {
        let before = self.output.lock().unwrap().len();
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        self.expect(before, expected);
    }

    fn expect(&self, from: usize, expected: &str) {
        let seen = || self.output.lock().unwrap().get(from..).unwrap_or_default().to_owned();
        common::until(&format!("{expected:?}"), || seen().contains(expected).then_some(()));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_progress_bar_fits_its_line_and_leaves_it_clean() {
    let server = Server::start(&["--in-memory", "--test-controls"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("items.jsonl");
    std::fs::write(&file, "{\"id\":\"1\"}\n").unwrap();
    // Longer than the bar waits before it is drawn.
    command(&server, &["faults", "add", "--latency-ms", "300"]);
    let import = format!("import {} -d db -c c --create --partition-key /id", path_text(&file));
    let mut terminal = Terminal::open(&server, 50, &import, "");
    assert!(until("the import to end", || terminal.child.try_wait().unwrap()).success());
    terminal.expect(0, "Imported 1 item");
    let output = terminal.output.lock().unwrap().clone();
    let bars: Vec<String> = output
        .split(['\r', '\n'])
        .map(|line| console::strip_ansi_codes(line).into_owned())
        .filter(|line| line.contains(" left, "))
        .collect();
    assert!(!bars.is_empty(), "{output:?}");
    assert!(bars.iter().all(|bar| bar.chars().count() <= 50), "{bars:?}");
    assert!(bars.iter().any(|bar| bar.contains(" left, 0 items")), "{bars:?}");
    // The summary begins a line that holds nothing else.
    let summary = output.lines().find(|line| line.contains("Imported 1 item")).unwrap();
    let shown = summary.rsplit('\r').next().unwrap();
    assert!(console::strip_ansi_codes(shown).starts_with("Imported"), "{output:?}");
}

#[test]
fn a_terminal_session_completes_pages_remembers_and_survives_ctrl_c() {
    let server = server_with_orders(&["--test-controls"]);
    let directory = tempfile::tempdir().unwrap();
    let history = directory.path().join("history");
    // The server is named before anything is said about it.
    let started = Terminal::open(&server, 100, "shell -d shop -c orders", "");
    started.expect(0, "shop.orders> ");
    let greeting = started.output.lock().unwrap().clone();
    assert!(greeting.find("Server: ").unwrap() < greeting.find("is partitioned by").unwrap(), "{greeting}");
    drop(started);
    let mut terminal = Terminal::open(&server, 100, "shell", path_text(&history));
    terminal.expect(0, "orrery> ");
    terminal.enter("use shop.or\t\r", "shop.orders> ");
    // A query over two lines runs once it is complete; the second line is completed by the sampled properties.
    terminal.enter("SELECT VALUE COUNT(1)\rFROM c WHERE c.address.ci\t = 'Oslo'\r", "100");
    terminal.enter("SELECT * FROM c\r", "-- more");
    terminal.enter("q", "rows shown");
    terminal.enter(".charge on\r", "shop.orders> ");
    terminal.enter("SELECT c.id, c.total FROM c WHERE c.id = '9'\r", " RU, ");
    terminal.enter("SELECT * FORM c\r", "error: ");
    // What is typed or pasted ahead is not lost.
    terminal.enter(".charge off\rSELECT VALUE 1 + 1\r", "│     2 │");

    // Ctrl-C stops the query that is under way, and the shell goes on.
    let slow = ["faults", "add", "--latency-ms", "600000", "--operation", "query", "--id", "slow"];
    command(&server, &slow);
    terminal.enter("SELECT * FROM c\r", "\n");
    until("the query", || {
        let list = command(&server, &["faults", "list", "--output", "json"]);
        let list: Value = serde_json::from_str(&list).unwrap();
        (list["rules"][0]["hits"] == 1).then_some(())
    });
    terminal.enter("\u{3}", "error: stopped");
    command(&server, &["faults", "remove", "slow"]);
    terminal.enter("SELECT VALUE 6 * 7\r", "42");
    terminal.enter("exit\r", "\n");
    assert!(until("the shell to end", || terminal.child.try_wait().unwrap()).success());
    assert!(std::fs::read_to_string(&history).unwrap().contains("SELECT VALUE 6 * 7"));
}
