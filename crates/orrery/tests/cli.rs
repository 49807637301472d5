//! The command line: help, messages, exit codes, signals.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Server, orrery, path_text as text, run};

/// Fails with one sentence on standard error and nothing on standard output.
fn assert_refused(command: &mut Command, exit_code: i32, fragments: &[&str]) {
    let (code, stdout, stderr) = run(command);
    assert_eq!(code, exit_code, "{stderr}");
    assert_eq!(stdout, "");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("orrery: "), "{stderr}");
    for fragment in fragments {
        assert!(stderr.contains(fragment), "{fragment} is missing in: {stderr}");
    }
}

/// Starts a server whose log can be read when it has ended.
fn start(arguments: &[&str]) -> Server {
    Server::spawn(Server::command(arguments).stderr(Stdio::piped()))
}

/// With huge pages the resident memory would be a multiple of the memory in use.
#[test]
#[cfg(target_os = "linux")]
fn the_server_disables_huge_pages() {
    let server = start(&["--in-memory"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    // Kernels before 5.0 do not report it.
    if let Some(line) = status.lines().find(|line| line.starts_with("THP_enabled:")) {
        assert_eq!(line.split_whitespace().nth(1), Some("0"), "{line}");
    }
}

#[test]
fn help_lists_every_command_and_option() {
    let (code, stdout, _) = run(&mut orrery(&["--help"]));
    assert_eq!(code, 0);
    for fragment in
        ["Azure Cosmos DB", "Usage: orrery [OPTIONS] <COMMAND>", "  serve ", "  key ", "--version"]
    {
        assert!(stdout.contains(fragment), "{fragment} is missing in:\n{stdout}");
    }
    let (code, stdout, _) = run(&mut orrery(&["serve", "--help"]));
    assert_eq!(code, 0);
    let options = [
        "listen",
        "data",
        "in-memory",
        "config",
        "seed",
        "containers",
        "profile",
        "durability",
        "cache-mb",
        "key",
        "key-file",
        "secondary-key",
        "read-only-key",
        "allow-well-known-key",
        "no-clock-check",
        "cert",
        "cert-key",
        "cert-name",
        "no-tls",
        "connections-max",
        "allowed-hosts",
        "allowed-origins",
        "drain-seconds",
        "output",
    ];
    for option in options {
        let variable = format!("[env: ORRERY_{}", option.to_uppercase().replace('-', "_"));
        assert!(stdout.contains(&format!("--{option}")), "--{option} is missing in:\n{stdout}");
        assert!(stdout.contains(&variable), "{variable} is missing in:\n{stdout}");
    }
    assert!(stdout.contains("[default: 127.0.0.1:8081]"), "{stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 100), "{stdout}");

    let (code, stdout, _) = run(&mut orrery(&["key", "hash", "--help"]));
    assert_eq!(code, 0);
    assert!(stdout.contains("MultiHash"), "{stdout}");
    let (code, stdout, _) = run(&mut orrery(&["--version"]));
    assert_eq!((code, stdout.as_str()), (0, concat!("orrery ", env!("CARGO_PKG_VERSION"), "\n")));
}

#[test]
fn keys_in_the_environment_are_not_shown_by_help() {
    let mut command = orrery(&["serve", "--help"]);
    let (_, stdout, _) = run(command.env("ORRERY_KEY", "c2VjcmV0").env("ORRERY_READ_ONLY_KEY", "c2VjcmV0"));
    assert!(stdout.contains("ORRERY_KEY") && !stdout.contains("c2VjcmV0"), "{stdout}");
}

#[test]
fn wrong_usage_exits_with_code_2() {
    for arguments in
        [&[][..], &["unknown"], &["serve", "--unknown"], &["key"], &["serve", "--cache-mb", "many"]]
    {
        let (code, stdout, stderr) = run(&mut orrery(arguments));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(stderr.contains("Usage") || stderr.contains("For more information"), "{stderr}");
    }
    assert_refused(
        &mut orrery(&["serve", "--in-memory", "--listen", "nowhere"]),
        2,
        &["listen must be", "`nowhere`"],
    );
    assert_refused(&mut orrery(&["serve", "--in-memory", "--data", "x"]), 2, &["mutually exclusive"]);
    assert_refused(&mut orrery(&["serve", "--in-memory", "--key", "AAAA"]), 2, &["key: ", "64 bytes"]);
    assert_refused(&mut orrery(&["serve", "--in-memory", "--cert", "x.pem"]), 2, &["cert-key"]);
    for (arguments, fragment) in [
        (
            &["--default-consistency", "perfect"][..],
            "must be strong, bounded-staleness, session, consistent-prefix or eventual, but got `perfect`",
        ),
        (&["--max-staleness-seconds", "10"], "bounded-staleness"),
        (
            &["--default-consistency", "bounded-staleness", "--max-staleness-prefix", "9"],
            "between 10 and 2147483647",
        ),
        (
            &["--default-consistency", "BoundedStaleness", "--max-staleness-seconds", "4"],
            "between 5 and 86400",
        ),
        (&["--change-feed-retention", "0"], "at least 1"),
    ] {
        let all = [&["serve", "--in-memory"], arguments].concat();
        assert_refused(&mut orrery(&all), 2, &[fragment]);
    }
    assert_refused(&mut orrery(&["serve"]), 2, &["no home directory", "--data"]);
    let mut wrong_filter = orrery(&["serve", "--in-memory"]);
    assert_refused(wrong_filter.env("ORRERY_LOG", "x=y=z"), 2, &["ORRERY_LOG"]);
    let well_known =
        "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
    let public = &["serve", "--in-memory", "--listen", "0.0.0.0:0", "--key", well_known];
    assert_refused(&mut orrery(public), 2, &["well-known key", "--allow-well-known-key"]);
}

#[test]
fn configuration_errors_name_the_key_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orrery.toml");
    let check = |content: &str, fragments: &[&str]| {
        std::fs::write(&path, content).unwrap();
        assert_refused(&mut orrery(&["serve", "--config", text(&path)]), 2, fragments);
    };
    check("in-memory = true\nlisen = \"x\"\n", &["orrery.toml, line 2", "unknown field `lisen`"]);
    check("cache-mb = \"many\"\n", &["line 1", "invalid type"]);
    check("listen = \"nowhere\"\nin-memory = true\n", &["listen must be", "`nowhere`"]);
    check("= 1\n", &["line 1"]);
    check("in-memory = true\ndata = \"x\"\n", &["mutually exclusive"]);
    let missing = directory.path().join("missing.toml");
    assert_refused(&mut orrery(&["serve", "--config", text(&missing)]), 2, &["missing.toml cannot be read"]);
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orrery.toml");
    let data = |name: &str| directory.path().join(name);
    let content = format!("listen = \"127.0.0.1:0\"\nno-tls = true\ndata = '{}'\n", text(&data("file")));
    std::fs::write(&path, content).unwrap();
    let serve = |arguments: &[&str], variable: Option<&Path>| {
        let mut command = orrery(&["serve", "--output", "json", "--config", text(&path)]);
        command.args(arguments);
        if let Some(variable) = variable {
            command.env("ORRERY_DATA", variable);
        }
        Server::spawn(command.stderr(Stdio::piped())).ready.clone()
    };
    let from_file = serve(&[], None);
    assert_eq!(from_file["data"], text(&data("file")));
    assert_eq!(from_file["tls"], false);
    assert_eq!(serve(&[], Some(&data("variable")))["data"], text(&data("variable")));
    let from_flag = serve(&["--data", text(&data("flag")), "--no-tls=false"], Some(&data("variable")));
    assert_eq!(from_flag["data"], text(&data("flag")));
    assert_eq!(from_flag["tls"], true);
    // Memory and a directory are mutually exclusive, so the flag overrides the variable of the other.
    assert_eq!(serve(&["--in-memory"], Some(&data("variable")))["data"], serde_json::Value::Null);
}

#[test]
fn a_port_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = ["serve", "--in-memory", "--listen", &address];
    assert_refused(&mut orrery(&arguments), 1, &[&format!("the address {address} is in use")]);
}

#[test]
fn a_data_directory_in_use_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let _first = start(&["--data", text(directory.path())]);
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data", text(directory.path())];
    assert_refused(&mut orrery(&arguments), 1, &["in use by another process"]);
}

#[test]
fn unusable_files_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "not a key").unwrap();
    let serve = |arguments: &[&str]| {
        let mut command = orrery(&["serve", "--listen", "127.0.0.1:0"]);
        command.args(arguments);
        command
    };
    assert_refused(&mut serve(&["--data", text(&file)]), 1, &["cannot be created"]);
    assert_refused(&mut serve(&["--in-memory", "--key-file", text(&file)]), 2, &["key file", "base64"]);
    let certificate = ["--in-memory", "--cert", text(&file), "--cert-key", text(&file)];
    assert_refused(&mut serve(&certificate), 1, &["contains no PEM certificate"]);
    assert_refused(&mut serve(&["--in-memory", "--cert-name", "not a name"]), 1, &["\"not a name\""]);
}

#[test]
fn the_start_up_message_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("new");
    let mut command = orrery(&["serve", "--listen", "127.0.0.1:0", "--data", text(&data)]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let announced: Vec<String> = lines.by_ref().take(8).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(announced[0].starts_with(concat!("Orrery ", env!("CARGO_PKG_VERSION"), " is ready after ")));
    let line = |name: &str| announced.iter().find(|line| line.trim_start().starts_with(name)).unwrap();
    assert!(line("Endpoint").contains("http://127.0.0.1:"), "{announced:?}");
    assert!(line("Connection string").contains("AccountEndpoint=http://127.0.0.1:"), "{announced:?}");
    assert!(line("Explorer").ends_with("/_explorer/"), "{announced:?}");
    assert!(line("Connection string").contains(";AccountKey=C2y6yDjf5/"), "{announced:?}");
    assert!(line("Direct mode").contains("port "), "{announced:?}");
    assert!(line("Data").contains(text(&data)), "{announced:?}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn a_ready_server_answers() {
    let server = start(&["--in-memory"]);
    assert!(server.get("/_orrery/health").starts_with("HTTP/1.1 200"));
    // An unsigned request is refused, as the service does.
    assert!(server.get("/").starts_with("HTTP/1.1 401"));
    let pem = server.get("/_explorer/emulator.pem");
    assert!(pem.contains("-----BEGIN CERTIFICATE-----") && !pem.contains("PRIVATE"), "{pem}");
    assert!(server.ready["readyAfterMs"].as_i64().is_some());
}

#[test]
fn signals_stop_the_server_with_code_0() {
    for signal in ["-TERM", "-INT"] {
        let directory = tempfile::tempdir().unwrap();
        let mut server = start(&["--data", text(directory.path())]);
        // An idle connection does not delay shutdown.
        let _idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        server.get("/_orrery/health");
        server.signal(signal);
        let exit = server.wait();
        assert_eq!((exit.code, exit.stderr.as_str()), (0, ""), "{signal}");
        // The directory is unlocked again.
        start(&["--data", text(directory.path())]);
    }
}

#[test]
fn the_certificate_is_reused() {
    let directory = tempfile::tempdir().unwrap();
    let certificate = || start(&["--data", text(directory.path())]).get("/_explorer/emulator.pem");
    let body = |answer: String| answer.split("\r\n\r\n").nth(1).unwrap().to_owned();
    assert_eq!(body(certificate()), body(certificate()));
}

#[test]
fn keys_are_never_logged() {
    let key = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ==";
    let mut command = orrery(&["serve", "--listen", "127.0.0.1:0", "--output", "json", "--in-memory"]);
    let mut server =
        Server::spawn(command.env("ORRERY_LOG", "trace").env("ORRERY_KEY", key).stderr(Stdio::piped()));
    server.get("/dbs");
    server.signal("-TERM");
    let exit = server.wait();
    assert_eq!(exit.code, 0);
    let log = exit.stderr;
    assert!(!log.is_empty() && !log.contains(key) && !server.ready.to_string().contains(key));
}

#[test]
fn key_hash_agrees_with_the_sdks() {
    let vectors: serde_json::Value = serde_json::from_str(include_str!("data/epk.json")).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 151);
    // Use the file's text: parsed values would not keep numbers like -0.0.
    let lines = include_str!("data/epk.json").lines();
    let input: String = lines
        .filter(|line| line.starts_with("{\"kind\":\"") && line.contains("\"pk\":"))
        .map(|line| line.trim_end_matches(','))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut child = orrery(&["key", "hash"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let answers: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), cases.len());
    for (answer, case) in answers.iter().zip(cases) {
        assert_eq!(answer["epk"], case["epk"], "{case}");
    }
}

#[test]
fn key_hash_answers_bad_lines_and_exits_with_code_1() {
    let mut child = orrery(&["key", "hash"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = "nonsense\n{\"kind\":\"Hash\",\"version\":2,\"pk\":[\"redmond\"]}\n";
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr, b"");
    let lines: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("{\"error\":\""));
    assert_eq!(lines[1], "{\"epk\":\"22E342F38A486A088463DFF7838A5963\"}");
}

#[test]
fn query_plans_are_printed_line_by_line() {
    let mut child = orrery(&["query", "plan"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let input =
        "{\"query\":\"SELECT VALUE COUNT(1) FROM c\",\"pk\":[\"/pk\"]}\n{\"query\":\"SELECT * FORM c\"}\n";
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(lines[0]["queryInfo"]["aggregates"], serde_json::json!(["Count"]));
    assert_eq!(lines[1]["errors"][0]["code"], "SC1001");
}

#[test]
fn queries_are_explained_by_a_running_server() {
    let server = start(&["--in-memory"]);
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    let explain = |extra: &[&str]| {
        let mut arguments = vec!["query", "explain", "--endpoint", &endpoint, "-d", "db", "-c", "things"];
        arguments.extend_from_slice(extra);
        run(&mut orrery(&arguments))
    };
    // The container does not exist.
    let (code, _, message) = explain(&["SELECT * FROM c"]);
    assert_eq!(code, 1, "{message}");
    assert!(message.contains("refused (404)"), "{message}");
    let (code, _, message) = explain(&["SELECT * FROM c", "-p", "nonsense"]);
    assert_eq!(code, 2, "{message}");
    let wrong = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==";
    let (code, _, message) = explain(&["SELECT * FROM c", "--key", wrong]);
    assert!(code == 1 && message.contains("refused (401)"), "{message}");
}

#[test]
fn partitions_are_shown_split_and_merged() {
    let server = start(&["--in-memory", "--test-controls"]);
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    let partitions = |arguments: &[&str]| {
        let mut all = vec!["partitions"];
        all.extend_from_slice(arguments);
        run(orrery(&all).env("ORRERY_ENDPOINT", &endpoint))
    };
    let (code, stdout, stderr) = partitions(&["list", "--output", "json"]);
    assert_eq!((code, stdout.as_str()), (0, "[]\n"), "{stderr}");
    let (code, _, stderr) = partitions(&["split", "0", "--database", "d", "--container", "c"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("refused (404): Owner resource does not exist"), "{stderr}");
    let (code, stdout, _) = partitions(&["list"]);
    assert_eq!((code, stdout.as_str()), (0, "There are no containers.\n"));
    let (code, _, _) = partitions(&["merge", "0", "--database", "d", "--container", "c"]);
    assert_eq!(code, 2);
    let (code, _, stderr) = partitions(&["list", "--database", "d"]);
    assert_eq!(code, 2, "{stderr}");
}

#[test]
fn listed_containers_exist_at_the_start_and_stay() {
    let directory = tempfile::tempdir().unwrap();
    let listed = "shop/orders:/customer,shop/visits:/tenant:/user,other/plain";
    let serve = || {
        let mut command = Server::command(&["--data", text(directory.path())]);
        Server::spawn(command.env("ORRERY_CONTAINERS", listed))
    };
    let server = serve();
    let list = ["containers", "list", "--output", "csv", "--endpoint", &server.url()];
    let (_, before, _) = run(&mut orrery(&list));
    for row in ["other,plain,/id,", "shop,orders,/customer,", "shop,visits,\"/tenant, /user\","] {
        assert!(before.contains(row), "{before}");
    }
    let put = ["items", "put", "{\"id\":\"1\",\"customer\":\"ada\"}", "-d", "shop", "-c", "orders"];
    assert_eq!(run(orrery(&put).args(["--endpoint", &server.url()])).0, 0);
    server.stop();
    let server = serve();
    let show = ["items", "show", "1", "-d", "shop", "-c", "orders", "--endpoint", &server.url()];
    assert_eq!(run(&mut orrery(&show)).0, 0);
    assert_refused(
        &mut orrery(&["serve", "--in-memory", "--containers", "orders"]),
        2,
        &["shop/orders:/customer"],
    );
}

#[test]
fn profiles_set_options_and_report_them() {
    let server = start(&["--in-memory", "--profile", "emulator"]);
    let note =
        "emulator: no-throttle=true, allow-well-known-key=true, no-clock-check=true, durability=relaxed:100";
    assert_eq!(server.ready["profile"], note);
    // The production profile has a key of its own, even on loopback.
    let list = |server: &Server| run(&mut orrery(&["databases", "list", "--endpoint", &server.url()]));
    assert_eq!(list(&server).0, 0);
    let server = start(&["--in-memory", "--profile", "production"]);
    let (code, _, stderr) = list(&server);
    assert_eq!(code, 1);
    assert!(stderr.contains("(401)"), "{stderr}");
    let server = start(&["--in-memory", "--profile", "faithful"]);
    assert_eq!(
        server.ready["profile"],
        "faithful: no-throttle=false, cross-partition-queries=plan, account-limits=1"
    );
    let mut client = server.client();
    client.create_container(&[]);
    let headers = [
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-isquery", "True"),
        ("x-ms-documentdb-query-enablecrosspartition", "True"),
    ];
    let query = br#"{"query":"SELECT * FROM c ORDER BY c.id"}"#;
    let answer = client.send("POST", common::DOCS, &headers, query).unwrap();
    assert_eq!((answer.status, answer.header("x-ms-substatus")), (400, Some("1004")), "{}", answer.text());
}

#[test]
fn the_status_page_reports_the_version() {
    let server = start(&["--in-memory"]);
    let (status, answer) = server.raw("GET /status HTTP/1.1\r\nhost: localhost\r\n");
    let body: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((status, &body["ready"], &body["status"]), (200, &true.into(), &"ready".into()));
    assert_eq!(body["version"], env!("CARGO_PKG_VERSION"));
    assert!(
        server.get("/alive").starts_with("HTTP/1.1 200") && server.get("/ready").starts_with("HTTP/1.1 200")
    );
}
