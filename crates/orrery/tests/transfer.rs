//! Import, export and copy against running servers.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::Stdio;

use common::{Server, orrery, path_text as text, run_with_input, until};
use serde_json::{Value, json};

/// Commands against a server.
trait Commands {
    /// Runs a command; returns its exit code and its summary.
    fn run(&self, arguments: &[&str], input: &[u8]) -> (i32, Value);
    /// All items of a container by id, exported.
    fn items(&self, container: &str) -> BTreeMap<String, Value>;
}

impl Commands for Server {
    fn run(&self, arguments: &[&str], input: &[u8]) -> (i32, Value) {
        let url = self.url();
        run(&[arguments, &["--endpoint", &url, "--output", "json", "--quiet"]].concat(), input)
    }

    fn items(&self, container: &str) -> BTreeMap<String, Value> {
        let export = ["export", "-d", "db", "-c", container, "--endpoint", &self.url(), "-q"];
        let (code, stdout, stderr) = common::run(&mut orrery(&export));
        assert_eq!(code, 0, "{stderr}");
        lines(&stdout)
    }
}

fn lines(text: &str) -> BTreeMap<String, Value> {
    let items = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut by_id = BTreeMap::new();
    for item in items {
        let id = item["id"].as_str().unwrap().to_owned();
        assert!(by_id.insert(id.clone(), item).is_none(), "{id} is there twice");
    }
    by_id
}

/// Runs a command; returns its exit code and its summary, or its message if it printed none.
fn run(arguments: &[&str], input: &[u8]) -> (i32, Value) {
    let (code, stdout, stderr) = run_with_input(arguments, input);
    (code, serde_json::from_str(&stdout).unwrap_or_else(|_| json!({ "message": stderr })))
}

const INTO: [&str; 6] = ["-d", "db", "-c", "c", "--create", "--partition-key=/pk"];

fn import_with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["import"];
    all.extend(INTO);
    all.extend_from_slice(more);
    all
}

fn numbered(count: usize, padding: usize) -> String {
    let padding = "x".repeat(padding);
    let line =
        |n: usize| format!("{{\"id\":\"{n}\",\"pk\":\"k{}\",\"n\":{n},\"padding\":\"{padding}\"}}\n", n % 50);
    (0..count).map(line).collect()
}

#[test]
fn json_lines_are_imported_and_failures_are_reported() {
    let server = Server::start(&["--in-memory", "--partitions-at-creation", "3"]);
    let directory = tempfile::tempdir().unwrap();
    let failures = directory.path().join("failures.jsonl");
    let mut input = numbered(700, 10);
    input.extend(["{\"id\":\"", &"i".repeat(1100), "\",\"pk\":\"x\"}\n"]);
    input.extend(["{\"id\":\"big\",\"text\":\"", &"t".repeat(3 << 20), "\"}\n"]);
    input.push_str("this is not JSON\n\n[1]\n{\"pk\":\"x\"}\n{\"id\":5}\n");
    input.push_str("{\"id\":\"last\",\"pk\":\"é\",\"exact\":1.50,\"big\":12345678901234567890}\n");
    let (code, summary) =
        server.run(&import_with(&["--throughput", "9000", "--failures", text(&failures)]), input.as_bytes());
    assert_eq!(code, 1, "{summary}");
    assert_eq!(
        (&summary["items"], &summary["failed"], &summary["complete"]),
        (&json!(701), &json!(6), &json!(true))
    );
    let statuses: Vec<u64> =
        summary["failures"].as_array().unwrap().iter().map(|row| row["status"].as_u64().unwrap()).collect();
    assert!(statuses.contains(&400) && statuses.contains(&413), "{statuses:?}");
    let reasons: Vec<&str> =
        summary["failures"].as_array().unwrap().iter().map(|row| row["reason"].as_str().unwrap()).collect();
    for part in ["not valid JSON:", "not a JSON object", "no id", "not a string"] {
        assert!(reasons.iter().any(|reason| reason.contains(part)), "{part}: {reasons:?}");
    }
    let listed = std::fs::read_to_string(&failures).unwrap();
    assert_eq!(listed.lines().count(), 6, "{listed}");
    let with_item = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(
        with_item.clone().any(|line| line["record"] == "line 706" && line["item"] == json!({"pk": "x"})),
        "{listed}"
    );

    let items = server.items("c");
    assert_eq!(items.len(), 701);
    assert_eq!(items["699"]["pk"], "k49");
    let output =
        orrery(&["export", "-d", "db", "-c", "c", "--endpoint", &server.url(), "-q"]).output().unwrap();
    let exported = String::from_utf8(output.stdout).unwrap();
    // Numbers are doubles, as the service documents, and are printed as such.
    let last = "{\"id\":\"last\",\"pk\":\"é\",\"exact\":1.5,\"big\":12345678901234567000}\n";
    assert!(exported.contains(last), "{exported}");

    // Importing again writes the same items: nothing is duplicated.
    let (code, summary) = server.run(&import_with(&[]), numbered(700, 10).as_bytes());
    assert_eq!((code, &summary["items"]), (0, &json!(700)));
    assert_eq!(server.items("c"), items);

    let (code, summary) = server.run(&["import", "-d", "db", "-c", "none"], b"{}");
    assert_eq!(code, 1);
    assert!(summary["message"].as_str().unwrap().contains("no container db/none"), "{summary}");
}

#[test]
fn arrays_gzip_and_csv_are_imported() {
    let server = Server::start(&["--in-memory", "--no-throttle"]);
    let directory = tempfile::tempdir().unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let elements: Vec<String> = numbered(1200, 0).lines().map(str::to_owned).collect();
    write!(encoder, "[\n {}\n]\n", elements.join(" ,\n ")).unwrap();
    let compressed = encoder.finish().unwrap();
    let (code, summary) = server.run(&import_with(&["--batch", "1", "--concurrency", "16"]), &compressed);
    assert_eq!((code, &summary["items"]), (0, &json!(1200)), "{summary}");
    assert_eq!(server.items("c").len(), 1200);

    let csv = directory.path().join("people.csv");
    std::fs::write(&csv, "sku,pk,price,address.city\n007,a,1.5,Paris\n12,b,,\n").unwrap();
    let arguments = [
        "import",
        text(&csv),
        "-d",
        "db",
        "-c",
        "people",
        "--create",
        "--partition-key",
        "/pk",
        "--id-from",
        "sku",
    ];
    let (code, summary) = server.run(&arguments, b"");
    assert_eq!((code, &summary["items"]), (0, &json!(2)), "{summary}");
    let items = server.items("people");
    assert_eq!(
        items["007"],
        json!({"sku": "007", "pk": "a", "price": 1.5, "address": {"city": "Paris"}, "id": "007"})
    );
    assert_eq!(items["12"], json!({"sku": 12, "pk": "b", "id": "12"}));

    let broken = br#"[{"id":"one","pk":1},{"id":"#;
    let (code, summary) = server.run(&["import", "-d", "db", "-c", "people"], broken);
    assert_eq!((code, &summary["items"], &summary["complete"]), (1, &json!(1), &json!(false)), "{summary}");
    assert!(summary["error"].as_str().unwrap().contains("ends inside a record"), "{summary}");
}

#[test]
fn a_killed_import_resumes() {
    let server = Server::start(&["--in-memory", "--no-throttle"]);
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = directory.path().join("point");
    let url = server.url();
    let arguments =
        import_with(&["--checkpoint", text(&checkpoint), "--endpoint", &url, "--output", "json", "-q"]);
    let input = numbered(3000, 100);
    let mut first = orrery(&arguments).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let half: usize = input.lines().take(2000).map(|line| line.len() + 1).sum();
    // The input stays open, so the import blocks half way until it is killed.
    let mut stdin = first.stdin.take().unwrap();
    stdin.write_all(&input.as_bytes()[..half]).unwrap();
    stdin.flush().unwrap();
    let saved = || {
        let text = std::fs::read_to_string(&checkpoint).unwrap_or_default();
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        value["state"]["records"].as_u64().unwrap_or(0)
    };
    until("a checkpoint", || (saved() > 0).then_some(()));
    first.kill().unwrap();
    first.wait().unwrap();
    let before = saved();
    let (code, summary) = run(&arguments, input.as_bytes());
    assert_eq!((code, &summary["complete"]), (0, &json!(true)), "{summary}");
    assert_eq!(summary["doneBefore"].as_u64(), Some(before));
    assert_eq!(summary["items"].as_u64(), Some(3000 - before));
    assert_eq!(server.items("c").len(), 3000);
    assert!(!checkpoint.exists(), "the checkpoint was not removed");

    // A checkpoint of another transfer is not used.
    std::fs::write(&checkpoint, r#"{"version":1,"identity":"other","state":{"records":5}}"#).unwrap();
    let (code, summary) = run(&arguments, input.as_bytes());
    assert_eq!(code, 1);
    assert!(summary["message"].as_str().unwrap().contains("belongs to another transfer"), "{summary}");
}

#[test]
fn a_throttled_import_loses_nothing() {
    let server = Server::start(&["--in-memory"]);
    let (code, summary) = server.run(&import_with(&["--throughput", "400"]), numbered(250, 20).as_bytes());
    assert_eq!((code, &summary["items"]), (0, &json!(250)), "{summary}");
    assert!(summary["throttled"].as_u64().unwrap() > 0, "{summary}");
    assert_eq!(server.items("c").len(), 250);
}

#[test]
fn a_killed_export_resumes() {
    let server = Server::start(&["--in-memory", "--no-throttle", "--partitions-at-creation", "6"]);
    let (code, _) = server.run(&import_with(&[]), numbered(2000, 10).as_bytes());
    assert_eq!(code, 0);
    let directory = tempfile::tempdir().unwrap();
    let (checkpoint, file) = (directory.path().join("point"), directory.path().join("items.jsonl.gz"));
    let url = server.url();
    let arguments = [
        "export",
        text(&file),
        "-d",
        "db",
        "-c",
        "c",
        "--checkpoint",
        text(&checkpoint),
        "--concurrency",
        "1",
        "--endpoint",
        &url,
        "--output",
        "json",
        "-q",
    ];
    // Slow enough to be still running when it is killed: a page takes seconds.
    let mut slow = arguments.to_vec();
    slow.extend(["--request-units", "60"]);
    let mut first = orrery(&slow).stdout(Stdio::null()).spawn().unwrap();
    until("a checkpoint", || {
        assert!(first.try_wait().unwrap().is_none(), "it ended too early");
        checkpoint.exists().then_some(())
    });
    first.kill().unwrap();
    first.wait().unwrap();
    // The ranges in the checkpoint no longer exist.
    for partition in ["0", "5"] {
        split(&server, partition);
    }
    let (code, summary) = run(&arguments, b"");
    assert_eq!((code, &summary["complete"]), (0, &json!(true)), "{summary}");
    assert!(summary["items"].as_u64().unwrap() < 2000, "it started over: {summary}");
    let mut exported = String::new();
    flate2::read::MultiGzDecoder::new(std::fs::File::open(&file).unwrap())
        .read_to_string(&mut exported)
        .unwrap();
    assert_eq!(lines(&exported).len(), 2000);
    let (code, summary) = run(&arguments, b"");
    assert_eq!(code, 1);
    assert!(summary["message"].as_str().unwrap().contains("--overwrite"), "{summary}");
}

#[test]
fn an_export_survives_splits() {
    let server = Server::start(&["--in-memory", "--no-throttle", "--partitions-at-creation", "6"]);
    let (code, _) = server.run(&import_with(&[]), numbered(2000, 10).as_bytes());
    assert_eq!(code, 0);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("items.jsonl");
    let url = server.url();
    let mut arguments = vec!["export", text(&file), "-d", "db", "-c", "c", "--endpoint", &url, "-q"];
    arguments.extend(["--concurrency", "1", "--request-units", "200"]);
    let mut export = orrery(&arguments).stdout(Stdio::null()).spawn().unwrap();
    until("the file", || {
        assert!(export.try_wait().unwrap().is_none(), "nothing was written");
        file.exists().then_some(())
    });
    split(&server, "5");
    assert!(export.wait().unwrap().success());
    assert_eq!(lines(&std::fs::read_to_string(&file).unwrap()).len(), 2000);
}

fn split(server: &Server, partition: &str) {
    let split = ["partitions", "split", partition, "-d", "db", "-c", "c", "--endpoint", &server.url()];
    assert!(orrery(&split).output().unwrap().status.success());
}

#[test]
fn containers_are_copied_between_accounts() {
    let from = Server::start(&["--in-memory", "--no-throttle", "--partitions-at-creation", "3"]);
    let to = Server::start(&["--in-memory", "--no-throttle", "--partitions-at-creation", "2"]);
    for (container, key, count) in [("c", "/pk", 1500), ("other", "/n", 20)] {
        let arguments = [
            "import",
            "-d",
            "db",
            "-c",
            container,
            "--create",
            "--partition-key",
            key,
            "--throughput",
            "700",
        ];
        assert_eq!(from.run(&arguments, numbered(count, 10).as_bytes()).0, 0);
    }
    let directory = tempfile::tempdir().unwrap();
    let certificate = directory.path().join("orrery.pem");
    let response = to.get("/_explorer/emulator.pem");
    std::fs::write(&certificate, response.split_once("\r\n\r\n").unwrap().1).unwrap();
    let key = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
    let secure = format!("AccountEndpoint=https://localhost:{}/;AccountKey={key};", to.port);
    let from_url = from.url();
    let copy = |more: &[&str]| {
        let mut all =
            vec!["copy", "--from", &from_url, "--to", &secure, "-d", "db", "--output", "json", "-q"];
        all.extend_from_slice(more);
        run(&all, b"")
    };
    // An untrusted certificate is refused, and the message says what to do.
    let (code, summary) = copy(&[]);
    assert_eq!(code, 1);
    assert!(
        summary["error"].as_str().unwrap().contains("pass --certificate FILE or --insecure"),
        "{summary}"
    );

    let (code, summary) = copy(&["--certificate", text(&certificate)]);
    assert_eq!((code, &summary["items"]), (0, &json!(1520)), "{summary}");
    for container in ["c", "other"] {
        assert_eq!(to.items(container), from.items(container));
    }
    let views =
        orrery(&["partitions", "list", "--endpoint", &to.url(), "--output", "json"]).output().unwrap();
    let views: Value = serde_json::from_slice(&views.stdout).unwrap();
    assert!(views.as_array().unwrap().iter().all(|view| view["throughput"] == 700), "{views}");

    // After a split of the source, and into a container of another name.
    split(&from, "1");
    let (code, summary) = copy(&["-c", "c", "--to-container", "again", "--insecure"]);
    assert_eq!((code, &summary["items"]), (0, &json!(1500)), "{summary}");
    assert_eq!(to.items("again"), from.items("c"));
    let (code, summary) = run(&["copy", "--from", &from_url, "--to", &from_url, "-d", "db", "-c", "c"], b"");
    assert_eq!(code, 2, "{summary}");
}

#[test]
fn a_killed_copy_resumes() {
    let from = Server::start(&["--in-memory", "--no-throttle", "--partitions-at-creation", "6"]);
    let to = Server::start(&["--in-memory", "--no-throttle"]);
    let (code, _) = from.run(&import_with(&[]), numbered(2000, 10).as_bytes());
    assert_eq!(code, 0);
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = directory.path().join("point");
    let (from_url, to_url) = (from.url(), to.url());
    let arguments = [
        "copy",
        "--from",
        &from_url,
        "--to",
        &to_url,
        "-d",
        "db",
        "--checkpoint",
        text(&checkpoint),
        "--concurrency",
        "1",
        "--output",
        "json",
        "-q",
    ];
    // Slow enough to be still running when it is killed.
    let mut slow = arguments.to_vec();
    slow.extend(["--request-units", "1000"]);
    let mut first = orrery(&slow).stdout(Stdio::null()).spawn().unwrap();
    until("a finished lane in the checkpoint", || {
        assert!(first.try_wait().unwrap().is_none(), "it ended too early");
        let text = std::fs::read_to_string(&checkpoint).ok()?;
        text.contains("\"finished\":true").then_some(())
    });
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(to.items("c").len() < 2000, "it was already complete");
    // Copied items are not read again, and the ranges in the checkpoint no longer exist.
    split(&from, "5");
    let (code, summary) = run(&arguments, b"");
    assert_eq!((code, &summary["complete"]), (0, &json!(true)), "{summary}");
    assert!(summary["items"].as_u64().unwrap() < 2000, "it started over: {summary}");
    assert_eq!(to.items("c"), from.items("c"));
    assert!(!checkpoint.exists(), "the checkpoint was not removed");
}

#[test]
fn seed_data_is_loaded_once() {
    let directory = tempfile::tempdir().unwrap();
    let (seed, data) = (directory.path().join("seed"), directory.path().join("data"));
    std::fs::create_dir_all(seed.join("db")).unwrap();
    std::fs::create_dir_all(seed.join("empty")).unwrap();
    std::fs::write(seed.join("README"), "What this is.").unwrap();
    std::fs::write(seed.join("db/c.jsonl"), numbered(300, 10)).unwrap();
    std::fs::write(
        seed.join("db/c.json"),
        r#"{"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"throughput":500}"#,
    )
    .unwrap();
    std::fs::write(seed.join("db/plain.csv"), "id,n\n1,2\n").unwrap();
    let arguments = ["--data", text(&data), "--seed", text(&seed)];
    let server = Server::start(&arguments);
    assert_eq!(server.items("c").len(), 300);
    assert_eq!(server.items("plain")["1"], json!({"id": "1", "n": 2}));
    let views =
        orrery(&["partitions", "list", "--endpoint", &server.url(), "--output", "json"]).output().unwrap();
    let views: Value = serde_json::from_slice(&views.stdout).unwrap();
    assert!(views.as_array().unwrap().iter().any(|view| view["throughput"] == 500), "{views}");

    // A restart does not undo later changes.
    let changed = b"{\"id\":\"7\",\"pk\":\"k7\",\"changed\":true}\n{\"id\":\"new\",\"pk\":\"x\"}\n";
    assert_eq!(server.run(&import_with(&[]), changed).0, 0);
    drop(server);
    let server = Server::start(&arguments);
    assert_eq!(server.items("c").len(), 301);
    assert_eq!(server.items("c")["7"]["changed"], true);
    drop(server);

    // A changed file is loaded again and overwrites.
    std::fs::write(seed.join("db/c.jsonl"), numbered(310, 10)).unwrap();
    let server = Server::start(&arguments);
    let items = server.items("c");
    assert_eq!((items.len(), &items["7"]["n"]), (311, &json!(7)));
    drop(server);

    std::fs::write(seed.join("db/c.jsonl"), "{\"id\":\"1\"}\n{\"id\":2}\n").unwrap();
    let refused = orrery(&["serve", "--listen", "0", "--in-memory", "--seed", text(&seed)]).output().unwrap();
    let message = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(message.contains("c.jsonl, line 2: "), "{message}");
}

/// What a created container was provisioned with.
fn throughput_of(server: &Server, container: &str) -> String {
    let show =
        ["containers", "show", "-d", "db", "-c", container, "--endpoint", &server.url(), "--output", "json"];
    let (code, stdout, stderr) = common::run(&mut orrery(&show));
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str::<Value>(&stdout).unwrap()["throughput"].as_str().unwrap().to_owned()
}

#[test]
fn created_containers_get_throughput_that_fits_the_import() {
    let server = Server::start(&["--in-memory"]);
    let directory = tempfile::tempdir().unwrap();
    let import = |container: &str, items: String, more: &[&str]| {
        let file = directory.path().join(format!("{container}.jsonl"));
        std::fs::write(&file, items).unwrap();
        let url = server.url();
        let mut arguments =
            vec!["import", text(&file), "-d", "db", "-c", container, "--create", "--partition-key=/pk"];
        arguments.extend(["--endpoint", &url]);
        arguments.extend(more);
        let (code, _, stderr) = common::run(&mut orrery(&arguments));
        assert_eq!(code, 0, "{stderr}");
        stderr
    };
    // Two megabytes could be 20,000 small items, which take five minutes at 400 units per second.
    let stderr = import("large", numbered(40, 50_000), &[]);
    assert_eq!(throughput_of(&server, "large"), "up to 1000 RU/s (autoscale)");
    assert!(
        stderr.contains("Created db/large with up to 1000 RU/s (autoscale), to fit this import"),
        "{stderr}"
    );
    let stderr = import("small", numbered(10, 10), &[]);
    assert_eq!(throughput_of(&server, "small"), "400 RU/s");
    assert!(!stderr.contains("to fit"), "{stderr}");
    import("given", numbered(40, 50_000), &["--throughput", "700"]);
    assert_eq!(throughput_of(&server, "given"), "700 RU/s");
}

#[test]
fn inputs_that_are_not_what_they_seem_are_refused() {
    let server = Server::start(&["--in-memory"]);
    let directory = tempfile::tempdir().unwrap();
    for content in ["just a line of text\n", "words, and a comma\n", "several\nlines\nof text\n"] {
        let file = directory.path().join("notes.txt");
        std::fs::write(&file, content).unwrap();
        let (code, summary) = server.run(&import_with(&[text(&file)]), b"");
        assert_eq!(code, 1, "{content}");
        assert!(
            summary["message"].as_str().unwrap().contains("neither JSON nor CSV"),
            "{content}: {summary}"
        );
    }
    let file = directory.path().join("lines.jsonl");
    std::fs::write(&file, "{\"id\":\"1\",\"pk\":\"x\"}\n\n\n{\"id\":\n").unwrap();
    let (code, summary) = server.run(&import_with(&[text(&file)]), b"");
    assert_eq!((code, &summary["failures"][0]["first"]), (1, &json!("line 4")), "{summary}");
}

#[test]
fn a_dead_server_is_reported_at_once() {
    let dead = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let from = Server::start(&["--in-memory"]);
    let (code, _) = from.run(&import_with(&[]), numbered(10, 10).as_bytes());
    assert_eq!(code, 0);
    let url = from.url();
    let started = std::time::Instant::now();
    for arguments in [
        &["import", "-d", "db", "-c", "c", "--create", "--partition-key=/pk", "--endpoint", &dead][..],
        &["copy", "-d", "db", "--from", &url, "--to", &dead],
        &["copy", "-d", "db", "--from", &dead, "--to", &url],
    ] {
        let (code, _, stderr) = run_with_input(arguments, numbered(10, 10).as_bytes());
        assert_eq!(code, 1, "{arguments:?}");
        assert!(stderr.contains("is not responding"), "{arguments:?}: {stderr}");
        assert!(stderr.contains("`orrery serve` starts one"), "{arguments:?}: {stderr}");
    }
    // It used to be tried for as long as a server that restarts.
    assert!(started.elapsed() < std::time::Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn seed_files_in_the_wrong_place_fail_the_start() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("README.md"), "# Data").unwrap();
    Server::start(&["--in-memory", "--seed", text(directory.path())]);
    std::fs::write(directory.path().join("orders.jsonl"), "{\"id\":\"1\"}\n").unwrap();
    let arguments = ["serve", "--in-memory", "--listen", "127.0.0.1:0", "--seed", text(directory.path())];
    let (code, _, stderr) = common::run(&mut orrery(&arguments));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("orders.jsonl is not in a database directory"), "{stderr}");
    std::fs::create_dir(directory.path().join("db")).unwrap();
    std::fs::rename(directory.path().join("orders.jsonl"), directory.path().join("db/orders.jsonl")).unwrap();
    std::fs::write(directory.path().join("db/orders.jsonl"), "{\"id\":\"1\"}\n\n{\"id\":2}\n").unwrap();
    let (code, _, stderr) = common::run(&mut orrery(&arguments));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("orders.jsonl, line 3: "), "{stderr}");
}
