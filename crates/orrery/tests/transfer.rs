//! Import, export and copy against running servers.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// What a test waits for at most; only failures take that long.
const PATIENCE: Duration = Duration::from_mins(2);

fn orrery(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0", "--output", "json"];
        all.extend_from_slice(arguments);
        let mut command = orrery(&all);
        let mut child = command
            .env("ORRERY_LOG", "warn")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no start: {line}"));
        Self { child, port: u16::try_from(ready["port"].as_u64().unwrap()).unwrap() }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Runs a command against this server and gives back its exit code and its summary.
    fn run(&self, arguments: &[&str], input: &[u8]) -> (i32, Value) {
        let mut all = arguments.to_vec();
        let url = self.url();
        all.extend(["--endpoint", &url, "--output", "json", "--quiet"]);
        run(&all, input)
    }

    /// All items of a container by id, exported.
    fn items(&self, container: &str) -> BTreeMap<String, Value> {
        let output = orrery(&["export", "-d", "db", "-c", container, "--endpoint", &self.url(), "-q"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        lines(&String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
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

fn run(arguments: &[&str], input: &[u8]) -> (i32, Value) {
    let mut child = orrery(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = input.to_vec();
    let feeding = std::thread::spawn(move || stdin.write_all(&bytes).ok());
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let summary = serde_json::from_str(&stdout).unwrap_or_else(|_| json!({ "message": stderr }));
    (output.status.code().unwrap(), summary)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
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
fn json_lines_are_imported_and_what_fails_is_told() {
    let server = Server::start(&["--in-memory", "--partitions-at-creation", "3"]);
    let directory = tempfile::tempdir().unwrap();
    let failures = directory.path().join("failures.jsonl");
    let mut input = numbered(700, 10);
    input.extend(["{\"id\":\"", &"i".repeat(1100), "\",\"pk\":\"x\"}\n"]);
    input.extend(["{\"id\":\"big\",\"text\":\"", &"t".repeat(3 << 20), "\"}\n"]);
    input.push_str("this is no JSON\n\n[1]\n{\"pk\":\"x\"}\n{\"id\":5}\n");
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
    for part in ["no JSON:", "no JSON object", "no id", "not a text"] {
        assert!(reasons.iter().any(|reason| reason.contains(part)), "{part}: {reasons:?}");
    }
    let listed = std::fs::read_to_string(&failures).unwrap();
    assert_eq!(listed.lines().count(), 6, "{listed}");
    let with_item = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert!(
        with_item.clone().any(|line| line["record"] == "705" && line["item"] == json!({"pk": "x"})),
        "{listed}"
    );

    let items = server.items("c");
    assert_eq!(items.len(), 701);
    assert_eq!(items["699"]["pk"], "k49");
    let output =
        orrery(&["export", "-d", "db", "-c", "c", "--endpoint", &server.url(), "-q"]).output().unwrap();
    let exported = String::from_utf8(output.stdout).unwrap();
    let last = "{\"id\":\"last\",\"pk\":\"é\",\"exact\":1.50,\"big\":12345678901234567890}\n";
    assert!(exported.contains(last), "numbers keep their text");

    // The second import writes the same: nothing is there twice.
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
fn an_import_that_was_killed_goes_on() {
    let server = Server::start(&["--in-memory", "--no-throttle"]);
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = directory.path().join("point");
    let url = server.url();
    let arguments =
        import_with(&["--checkpoint", text(&checkpoint), "--endpoint", &url, "--output", "json", "-q"]);
    let input = numbered(3000, 100);
    let mut first = orrery(&arguments).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let half: usize = input.lines().take(2000).map(|line| line.len() + 1).sum();
    // The input stays open, so the import waits in the middle until it is killed.
    let mut stdin = first.stdin.take().unwrap();
    stdin.write_all(&input.as_bytes()[..half]).unwrap();
    stdin.flush().unwrap();
    let begin = Instant::now();
    let saved = || {
        let text = std::fs::read_to_string(&checkpoint).unwrap_or_default();
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        value["state"]["records"].as_u64().unwrap_or(0)
    };
    while saved() == 0 {
        assert!(begin.elapsed() < PATIENCE, "no checkpoint");
        std::thread::sleep(Duration::from_millis(10));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let before = saved();
    let (code, summary) = run(&arguments, input.as_bytes());
    assert_eq!((code, &summary["complete"]), (0, &json!(true)), "{summary}");
    assert_eq!(summary["doneBefore"].as_u64(), Some(before));
    assert_eq!(summary["items"].as_u64(), Some(3000 - before));
    assert_eq!(server.items("c").len(), 3000);
    assert!(!checkpoint.exists(), "it is removed at the end");

    // A checkpoint of another transfer is not used.
    std::fs::write(&checkpoint, r#"{"version":1,"identity":"other","state":{"records":5}}"#).unwrap();
    let (code, summary) = run(&arguments, input.as_bytes());
    assert_eq!(code, 1);
    assert!(summary["message"].as_str().unwrap().contains("belongs to another transfer"), "{summary}");
}

#[test]
fn throttling_slows_an_import_down_and_loses_nothing() {
    let server = Server::start(&["--in-memory"]);
    let (code, summary) = server.run(&import_with(&["--throughput", "400"]), numbered(250, 20).as_bytes());
    assert_eq!((code, &summary["items"]), (0, &json!(250)), "{summary}");
    assert!(summary["throttled"].as_u64().unwrap() > 0, "{summary}");
    assert_eq!(server.items("c").len(), 250);
}

#[test]
fn an_export_that_was_killed_goes_on() {
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
    // So slow that it is still under way when it is killed: a page costs seconds.
    let mut slow = arguments.to_vec();
    slow.extend(["--request-units", "60"]);
    let mut first = orrery(&slow).stdout(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while !checkpoint.exists() {
        assert!(begin.elapsed() < PATIENCE, "no checkpoint");
        assert!(first.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(10));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    // The ranges of the checkpoint are not there any more.
    for partition in ["0", "5"] {
        split(&server, partition);
    }
    let (code, summary) = run(&arguments, b"");
    assert_eq!((code, &summary["complete"]), (0, &json!(true)), "{summary}");
    assert!(summary["items"].as_u64().unwrap() < 2000, "it went on: {summary}");
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
fn an_export_follows_splits() {
    let server = Server::start(&["--in-memory", "--no-throttle", "--partitions-at-creation", "6"]);
    let (code, _) = server.run(&import_with(&[]), numbered(2000, 10).as_bytes());
    assert_eq!(code, 0);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("items.jsonl");
    let url = server.url();
    let mut arguments = vec!["export", text(&file), "-d", "db", "-c", "c", "--endpoint", &url, "-q"];
    arguments.extend(["--concurrency", "1", "--request-units", "200"]);
    let mut export = orrery(&arguments).stdout(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while !file.exists() {
        assert!(begin.elapsed() < PATIENCE && export.try_wait().unwrap().is_none(), "nothing is written");
        std::thread::sleep(Duration::from_millis(1));
    }
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
    std::fs::write(&certificate, to.get("/_explorer/emulator.pem")).unwrap();
    let key = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
    let secure = format!("AccountEndpoint=https://localhost:{}/;AccountKey={key};", to.port);
    let from_url = from.url();
    let copy = |more: &[&str]| {
        let mut all =
            vec!["copy", "--from", &from_url, "--to", &secure, "-d", "db", "--output", "json", "-q"];
        all.extend_from_slice(more);
        run(&all, b"")
    };
    // A certificate that nobody vouches for is refused.
    let (code, summary) = copy(&[]);
    assert_eq!(code, 1);
    assert!(summary["error"].as_str().unwrap().contains("certificate"), "{summary}");

    let (code, summary) = copy(&["--certificate", text(&certificate)]);
    assert_eq!((code, &summary["items"]), (0, &json!(1520)), "{summary}");
    for container in ["c", "other"] {
        assert_eq!(to.items(container), from.items(container));
    }
    let views =
        orrery(&["partitions", "list", "--endpoint", &to.url(), "--output", "json"]).output().unwrap();
    let views: Value = serde_json::from_slice(&views.stdout).unwrap();
    assert!(views.as_array().unwrap().iter().all(|view| view["throughput"] == 700), "{views}");

    // Split in the source, and into another container of the same account, by its other name.
    split(&from, "1");
    let (code, summary) = copy(&["-c", "c", "--to-container", "again", "--insecure"]);
    assert_eq!((code, &summary["items"]), (0, &json!(1500)), "{summary}");
    assert_eq!(to.items("again"), from.items("c"));
    let (code, summary) = run(&["copy", "--from", &from_url, "--to", &from_url, "-d", "db", "-c", "c"], b"");
    assert_eq!(code, 2, "{summary}");
}

#[test]
fn a_copy_that_was_killed_goes_on() {
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
    // So slow that it is still under way when it is killed.
    let mut slow = arguments.to_vec();
    slow.extend(["--request-units", "1000"]);
    let mut first = orrery(&slow).stdout(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    let has_got_on =
        || std::fs::read_to_string(&checkpoint).is_ok_and(|text| text.contains("\"finished\":true"));
    while !has_got_on() {
        assert!(begin.elapsed() < PATIENCE, "no checkpoint");
        assert!(first.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(10));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(to.items("c").len() < 2000, "it was not done");
    // What was copied before is not read again, and the ranges of the checkpoint are not there any more.
    split(&from, "5");
    let (code, summary) = run(&arguments, b"");
    assert_eq!((code, &summary["complete"]), (0, &json!(true)), "{summary}");
    assert!(summary["items"].as_u64().unwrap() < 2000, "it went on: {summary}");
    assert_eq!(to.items("c"), from.items("c"));
    assert!(!checkpoint.exists(), "it is removed at the end");
}

#[test]
fn a_server_starts_with_its_seed() {
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

    // What has happened since is not undone by a restart.
    let changed = b"{\"id\":\"7\",\"pk\":\"k7\",\"changed\":true}\n{\"id\":\"new\",\"pk\":\"x\"}\n";
    assert_eq!(server.run(&import_with(&[]), changed).0, 0);
    drop(server);
    let server = Server::start(&arguments);
    assert_eq!(server.items("c").len(), 301);
    assert_eq!(server.items("c")["7"]["changed"], true);
    drop(server);

    // A file that has changed is loaded over what is there.
    std::fs::write(seed.join("db/c.jsonl"), numbered(310, 10)).unwrap();
    let server = Server::start(&arguments);
    let items = server.items("c");
    assert_eq!((items.len(), &items["7"]["n"]), (311, &json!(7)));
    drop(server);

    std::fs::write(seed.join("db/c.jsonl"), "{\"id\":\"1\"}\n{\"id\":2}\n").unwrap();
    let refused = orrery(&["serve", "--listen", "0", "--in-memory", "--seed", text(&seed)]).output().unwrap();
    let message = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(message.contains("c.jsonl, record 2: "), "{message}");
}
