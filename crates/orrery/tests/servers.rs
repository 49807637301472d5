//! One way to name a server: every command takes the same flags and variables, with the same precedence.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::net::TcpListener;

use common::{Server, orrery, run, run_with_input};

const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// A command, and whether it changes something.
struct Case {
    arguments: &'static [&'static str],
    changes: bool,
}

const fn reads(arguments: &'static [&'static str]) -> Case {
    Case { arguments, changes: false }
}

const fn changes(arguments: &'static [&'static str]) -> Case {
    Case { arguments, changes: true }
}

const DEFINITION: &str = r#"{"format":1,"kind":"concatenate","parts":["/a","/b"]}"#;

/// Every command that talks to a server, in an order in which all succeed.
const CASES: &[Case] = &[
    changes(&["databases", "create", "db"]),
    reads(&["databases", "list"]),
    reads(&["databases", "show", "db"]),
    changes(&["containers", "create", "-d", "db", "-c", "c", "--partition-key", "/partitionKey"]),
    reads(&["containers", "list"]),
    reads(&["containers", "show", "-d", "db", "-c", "c"]),
    changes(&["items", "create", r#"{"id":"1","partitionKey":"x"}"#, "-d", "db", "-c", "c"]),
    changes(&["items", "put", r#"{"id":"1","partitionKey":"x"}"#, "-d", "db", "-c", "c"]),
    reads(&["items", "list", "-d", "db", "-c", "c"]),
    reads(&["items", "show", "1", "-d", "db", "-c", "c"]),
    reads(&["query", "run", "SELECT * FROM c", "-d", "db", "-c", "c"]),
    reads(&["query", "explain", "SELECT * FROM c", "-d", "db", "-c", "c"]),
    reads(&["export", "-d", "db", "-c", "c"]),
    reads(&["advise", "-d", "db", "-c", "c"]),
    changes(&["items", "delete", "1", "-d", "db", "-c", "c"]),
    changes(&["import", "-d", "db", "-c", "c"]),
    changes(&["record", "start", "-d", "db", "-c", "c"]),
    changes(&["record", "stop", "-d", "db", "-c", "c"]),
    reads(&["record", "list"]),
    reads(&["record", "download", "-d", "db", "-c", "c"]),
    changes(&["record", "discard", "-d", "db", "-c", "c"]),
    changes(&["record", "for", "0", "-d", "db", "-c", "c"]),
    reads(&["partitions", "list"]),
    reads(&["partitions", "show", "-d", "db", "-c", "c"]),
    changes(&["partitions", "split", "0", "-d", "db", "-c", "c"]),
    changes(&["partitions", "merge", "1", "2", "-d", "db", "-c", "c"]),
    changes(&["containers", "synthetic", "set", DEFINITION, "-d", "db", "-c", "c"]),
    reads(&["containers", "synthetic", "show", "-d", "db", "-c", "c"]),
    changes(&["containers", "synthetic", "remove", "-d", "db", "-c", "c"]),
    changes(&["containers", "repartition", "--partition-key", "/pk", "--drop", "-d", "db", "-c", "c"]),
    changes(&["faults", "add", "--status", "503", "--id", "f", "--count", "1", "--operation", "patch"]),
    reads(&["faults", "list"]),
    changes(&["faults", "remove", "f"]),
    changes(&["containers", "delete", "-d", "db", "-c", "c"]),
    changes(&["databases", "delete", "db"]),
];

/// A port that nothing listens on.
fn dead_endpoint() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn every_command_follows_the_connection_variable_before_the_endpoint_variable() {
    let server = Server::start(&["--in-memory", "--no-throttle", "--test-controls"]);
    let connection = format!("AccountEndpoint={}/;AccountKey={KEY};", server.url());
    for case in CASES {
        let mut command = orrery(case.arguments);
        let (code, _, stderr) =
            run(command.env("ORRERY_CONNECTION", &connection).env("ORRERY_ENDPOINT", dead_endpoint()));
        assert_eq!(code, 0, "{:?}: {stderr}", case.arguments);
        let announced = stderr.contains(&format!("Server: {} (ORRERY_CONNECTION)", server.url()));
        assert_eq!(announced, case.changes, "{:?}: {stderr}", case.arguments);
    }
}

#[test]
fn flags_of_every_command_win_over_both_variables() {
    let server = Server::start(&["--in-memory", "--no-throttle", "--test-controls"]);
    let (url, https) = (server.url(), server.url().replace("http://", "https://"));
    let dead = dead_endpoint();
    let dead_connection = format!("AccountEndpoint={dead};AccountKey={KEY};");
    for (at, case) in CASES.iter().enumerate() {
        // Each kind of flag in turn; the whole list runs with each of them over all commands.
        let flags: &[&str] = match at % 3 {
            0 => &["--endpoint", &url],
            1 => &["--connection", &url],
            _ => &["--endpoint", &https, "--insecure"],
        };
        let mut command = orrery(&[case.arguments, flags].concat());
        let command = command.env("ORRERY_CONNECTION", &dead_connection).env("ORRERY_ENDPOINT", &dead);
        let (code, _, stderr) = run(command);
        assert_eq!(code, 0, "{:?} {flags:?}: {stderr}", case.arguments);
    }
    for case in CASES {
        let mut command = orrery(&[case.arguments, &["--endpoint", &dead]].concat());
        let (code, stdout, stderr) = run(command.env("ORRERY_CONNECTION", &url));
        assert_eq!((code, stdout.as_str()), (1, ""), "{:?}", case.arguments);
        assert!(stderr.contains(dead.trim_start_matches("http://")), "{:?}: {stderr}", case.arguments);
    }
}

#[test]
fn certificates_are_checked_by_every_command() {
    let server = Server::start(&["--in-memory", "--no-throttle", "--test-controls"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("server.pem");
    let answer = server.get("/_explorer/emulator.pem");
    std::fs::write(&file, answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let https = server.url().replace("http://", "https://");
    for case in CASES {
        let untrusted = run(orrery(case.arguments).env("ORRERY_ENDPOINT", &https));
        assert_eq!(untrusted.0, 1, "{:?}: {untrusted:?}", case.arguments);
        assert!(untrusted.2.contains("certificate"), "{:?}: {untrusted:?}", case.arguments);
        let mut trusted = orrery(case.arguments);
        let trusted = run(trusted.env("ORRERY_ENDPOINT", &https).env("ORRERY_CERTIFICATE", &file));
        assert_eq!(trusted.0, 0, "{:?}: {trusted:?}", case.arguments);
    }
}

/// It needs a server with a store on disk, and a directory to write to.
#[test]
fn backups_name_their_server_like_other_commands() {
    let directory = tempfile::tempdir().unwrap();
    let (data, backup) = (directory.path().join("data"), directory.path().join("backup"));
    let server = Server::on_directory(&data);
    let arguments = ["backup", common::path_text(&backup)];
    let mut command = orrery(&arguments);
    let (code, _, stderr) =
        run(command.env("ORRERY_CONNECTION", server.url()).env("ORRERY_ENDPOINT", dead_endpoint()));
    assert_eq!(code, 0, "{stderr}");
    let mut command = orrery(&[&arguments[..], &["--endpoint", &dead_endpoint()]].concat());
    assert_eq!(run(command.env("ORRERY_CONNECTION", server.url())).0, 1);
}

#[test]
fn contradictory_and_wrong_names_are_usage_errors() {
    for (arguments, variable, fragment) in [
        (&["--connection", "http://x", "--endpoint", "http://y"][..], "", "cannot be used with"),
        (&["--endpoint", "x"], "", "--endpoint: the endpoint must be"),
        (&[], "AccountKey=x", "ORRERY_CONNECTION: the connection string has no AccountEndpoint"),
        (&[], "ftp://x", "ORRERY_CONNECTION: "),
    ] {
        let mut command = orrery(&[&["databases", "list"], arguments].concat());
        let (code, _, stderr) = run(command.env("ORRERY_CONNECTION", variable));
        assert_eq!(code, 2, "{arguments:?}: {stderr}");
        assert!(stderr.contains(fragment), "{arguments:?}: {stderr}");
    }
}

#[test]
fn copies_name_both_servers() {
    let (from, to) = (Server::start(&["--in-memory"]), Server::start(&["--in-memory"]));
    let import =
        ["import", "-d", "db", "-c", "c", "--create", "--partition-key=/pk", "--endpoint", &from.url()];
    assert_eq!(run_with_input(&import, b"{\"id\":\"1\",\"pk\":\"x\"}\n").0, 0);
    let (code, stdout, stderr) =
        run(orrery(&["copy", "-d", "db"]).env("ORRERY_FROM", from.url()).env("ORRERY_TO", to.url()));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("Copied 1 item"), "{stdout}");
    assert!(stderr.contains(&format!("Server: {} (copying to)", to.url())), "{stderr}");
}
