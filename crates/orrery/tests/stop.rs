//! Shutdown: requests in flight may finish for a bounded time, a second signal stops at once, and acknowledged writes are
//! kept. Also which hosts and origins a server accepts, and what it does on SIGHUP.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stderr, reason = "tests")]
#![cfg(unix)]

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{DOCS, Exit, Server, until, until_within};

fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Server {
    let mut command = Server::command(&[&["--no-throttle"], arguments].concat());
    Server::spawn(command.envs(variables.iter().copied()).env("ORRERY_LOG", "error").stderr(Stdio::piped()))
}

/// Delays every read of an item by a minute.
fn hold_reads(server: &Server) {
    server.client().create_container(&[]);
    let rule = br#"{"id":"slow","latencyMs":60000,"operations":["read"],"container":"c"}"#;
    let made = server.client().send("POST", "/_orrery/faults", &[], rule).unwrap();
    assert!(made.status < 300, "{}", made.text());
}

const KEY: [(&str, &str); 1] = [("x-ms-documentdb-partitionkey", "[\"a\"]")];

/// A delayed request that is in flight when this returns.
fn begin_read(server: &Server) -> std::thread::JoinHandle<std::io::Result<u16>> {
    let mut client = server.client();
    let reading = std::thread::spawn(move || {
        client.send("GET", "/dbs/db/colls/c/docs/1", &KEY, b"").map(|response| response.status)
    });
    until("the rule to match", || {
        let rules = server.client().send("GET", "/_orrery/faults", &[], b"").unwrap().text();
        rules.contains("\"hits\":1").then_some(())
    });
    reading
}

#[test]
fn requests_in_flight_are_cut_off_after_the_drain_time() {
    for signal in ["-TERM", "-INT"] {
        let arguments = ["--in-memory", "--test-controls", "--drain-seconds", "1"];
        let mut server = start(&arguments, &[]);
        hold_reads(&server);
        let reading = begin_read(&server);
        server.signal(signal);
        let Exit { code, took, .. } = server.wait();
        assert_eq!(code, 0);
        assert!(took > Duration::from_millis(500) && took < Duration::from_secs(8), "{took:?}");
        assert!(reading.join().unwrap().is_err());
    }
}

#[test]
fn a_second_signal_stops_at_once() {
    for (first, second) in [("-TERM", "-TERM"), ("-INT", "-TERM"), ("-TERM", "-INT")] {
        let arguments = ["--in-memory", "--test-controls"];
        let mut server = start(&arguments, &[("ORRERY_DRAIN_SECONDS", "50")]);
        hold_reads(&server);
        let reading = begin_read(&server);
        server.signal(first);
        // It accepts no connection any more, but is still draining.
        until("the listener to close", || {
            TcpStream::connect(("127.0.0.1", server.port)).is_err().then_some(())
        });
        assert!(server.is_running());
        server.signal(second);
        let Exit { code, took, .. } = server.wait();
        assert_eq!(code, 1);
        assert!(took < Duration::from_secs(5), "{took:?}");
        assert!(reading.join().unwrap().is_err());
    }
}

/// Queries keep evaluation threads busy, which must not delay shutdown.
#[test]
fn long_queries_do_not_delay_shutdown() {
    let mut server = start(&["--in-memory", "--drain-seconds", "1"], &[]);
    let mut client = server.client();
    client.create_container(&[]);
    let numbers: Vec<String> = (0..60_000).map(|number| number.to_string()).collect();
    let item = format!(r#"{{"id":"1","pk":"a","s":"{}","n":[{}]}}"#, "a".repeat(900_000), numbers.join(","));
    assert_eq!(client.send("POST", DOCS, &KEY, item.as_bytes()).unwrap().status, 201);
    let queries = [
        r#"{"query":"SELECT VALUE COUNT(1) FROM c WHERE RegexMatch(c.s, '(?=a*b)x')"}"#,
        r#"{"query":"SELECT VALUE COUNT(1) FROM c JOIN x IN c.n WHERE ARRAY_CONTAINS(c.n, -x)"}"#,
    ];
    #[cfg(target_os = "linux")]
    let before = ticks(&server);
    let running: Vec<_> = (0..6)
        .map(|number| {
            let (mut client, query) = (server.client(), queries[number % 2]);
            std::thread::spawn(move || {
                let mut headers = KEY.to_vec();
                headers.push(("x-ms-documentdb-isquery", "True"));
                headers.push(("content-type", "application/query+json"));
                client.send("POST", DOCS, &headers, query.as_bytes()).ok();
            })
        })
        .collect();
    #[cfg(target_os = "linux")]
    until("the queries to run", || (ticks(&server) - before > 30).then_some(()));
    server.signal("-TERM");
    let Exit { code, took, .. } = server.wait();
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(8), "{took:?}");
    for query in running {
        query.join().unwrap();
    }
}

/// The CPU time a process has used, in ticks of ten milliseconds.
#[cfg(target_os = "linux")]
fn ticks(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// A client that hangs up over HTTP/1.1 cancels its query, whatever it is evaluating.
#[cfg(target_os = "linux")]
#[test]
fn queries_are_cancelled_when_their_client_disconnects() {
    let server = start(&["--in-memory"], &[]);
    let mut client = server.client();
    client.create_container(&[]);
    let numbers: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
    let item = format!(r#"{{"id":"1","pk":"a","s":"{}","n":[{}]}}"#, "a".repeat(900_000), numbers.join(","));
    assert_eq!(client.send("POST", DOCS, &KEY, item.as_bytes()).unwrap().status, 201);
    for query in [
        r#"{"query":"SELECT VALUE COUNT(1) FROM c WHERE RegexMatch(c.s, '(?=a*b)x')"}"#,
        r#"{"query":"SELECT VALUE COUNT(1) FROM c JOIN x IN c.n WHERE ARRAY_CONTAINS(c.n, -x - 1)"}"#,
    ] {
        let date = orrery_gateway::auth::print_date(orrery_env::Env::now_seconds(&orrery_env::SystemEnv));
        let key = orrery_gateway::auth::MasterKey::well_known();
        let path = DOCS;
        let authorization = orrery_gateway::auth::sign_request(&key, "POST", path, None, &date);
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nx-ms-date: {date}\r\nauthorization: {authorization}\r\n\
             x-ms-documentdb-partitionkey: [\"a\"]\r\nx-ms-documentdb-isquery: True\r\n\
             content-type: application/query+json\r\ncontent-length: {}\r\n\r\n{query}",
            query.len()
        )
        .unwrap();
        let before = ticks(&server);
        until("the query to run", || (ticks(&server) - before > 20).then_some(()));
        drop(stream);
        // It runs for minutes if nobody stops it. A hundred looks without work mean that it was.
        let (mut last, mut looks) = (ticks(&server), 0);
        until_within(Duration::from_secs(20), &format!("the end of {query}"), || {
            let now = ticks(&server);
            looks = if now - last <= 3 { looks + 1 } else { 0 };
            if looks == 0 {
                last = now;
            }
            (looks >= 100).then_some(())
        });
    }
}

#[test]
fn acknowledged_writes_survive_a_stop() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let mut server = start(&["--data", data, "--drain-seconds", "2"], &[]);
    server.client().create_container(&[]);
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (mut client, stop, count) = (server.client(), &stop, &count);
                scope.spawn(move || {
                    let mut acknowledged = Vec::new();
                    for number in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let id = format!("{writer}-{number}");
                        let body = format!(r#"{{"id":"{id}","pk":"a"}}"#);
                        let written = client.send("POST", DOCS, &KEY, body.as_bytes());
                        match written {
                            Ok(response) if response.status == 201 => acknowledged.push(id),
                            _ => break,
                        }
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    acknowledged
                })
            })
            .collect();
        until("some writes", || (count.load(Ordering::Relaxed) > 200).then_some(()));
        server.signal("-TERM");
        let Exit { code, took, .. } = server.wait();
        assert_eq!(code, 0);
        assert!(took < Duration::from_secs(10), "{took:?}");
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    assert!(acknowledged.len() > 8, "{}", acknowledged.len());
    let server = start(&["--data", data], &[]);
    let mut client = server.client();
    for id in &acknowledged {
        let path = format!("/dbs/db/colls/c/docs/{id}");
        assert_eq!(client.send("GET", &path, &KEY, b"").unwrap().status, 200, "{id}");
    }
}

#[test]
fn hosts_and_origins_can_be_allowed_by_flag_variable_and_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("orrery.toml");
    std::fs::write(
        &file,
        "allowed-hosts = [\"db.test\", \"*.inner.test\"]\nallowed-origins = \"http://app.test\"\n",
    )
    .unwrap();
    let get = |host: &str, more: &str| format!("GET /_orrery/health HTTP/1.1\r\nhost: {host}\r\n{more}");
    let from_file = start(&["--in-memory", "--config", file.to_str().unwrap()], &[]);
    let by_flag =
        ["--in-memory", "--allowed-hosts", "db.test,*.inner.test", "--allowed-origins", "http://app.test"];
    let variables =
        [("ORRERY_ALLOWED_HOSTS", "db.test,*.inner.test"), ("ORRERY_ALLOWED_ORIGINS", "http://app.test")];
    for server in [from_file, start(&by_flag, &[]), start(&["--in-memory"], &variables)] {
        for host in ["localhost", "127.0.0.1:8081", "db.test:1", "x.inner.test"] {
            assert_eq!(server.raw(&get(host, "")).0, 200, "{host}");
        }
        let (status, answer) = server.raw(&get("evil.test", ""));
        assert!(status == 403 && answer.contains("--allowed-hosts"), "{answer}");
        assert_eq!(server.raw(&get("localhost", "origin: http://app.test\r\n")).0, 200);
        assert_eq!(server.raw(&get("localhost", "origin: http://evil.test\r\n")).0, 403);
    }
}

/// What systemd hears from a service of `Type=notify` with a watchdog.
#[test]
#[cfg(target_os = "linux")]
fn the_service_manager_is_told_what_happens() {
    use std::os::unix::net::UnixDatagram;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(common::TIME_MAX)).unwrap();
    let next = || {
        let mut buffer = [0; 200];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let mut command = Server::command(&["--in-memory"]);
    let server = Server::spawn(command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "20000"));
    assert_eq!(next(), "READY=1\nSTATUS=Serving");
    assert_eq!((next(), next()), ("WATCHDOG=1".to_owned(), "WATCHDOG=1".to_owned()));
    server.stop();
    while next() != "STOPPING=1" {}
}

/// The generated certificate and key of another server, to stand for the user's own.
fn made_certificate(directory: &std::path::Path) -> [Vec<u8>; 2] {
    let data = directory.join("made");
    drop(start(&["--data", data.to_str().unwrap()], &[]));
    let files = ["cert.pem", "key.pem"].map(|name| std::fs::read(data.join(name)).unwrap());
    std::fs::remove_dir_all(&data).unwrap();
    files
}

#[test]
fn a_renewed_certificate_is_served_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = ["own.pem", "own-key.pem"].map(|name| directory.path().join(name));
    let store = |pair: &[Vec<u8>; 2]| {
        std::fs::write(&cert, &pair[0]).unwrap();
        std::fs::write(&key, &pair[1]).unwrap();
    };
    let [first, second, third] = [(), (), ()].map(|()| made_certificate(directory.path()));
    store(&first);
    let paths = [cert.to_str().unwrap(), key.to_str().unwrap()];
    let server = start(&["--in-memory", "--cert", paths[0], "--cert-key", paths[1]], &[]);
    let served = || server.client().send("GET", "/_explorer/emulator.pem", &[], b"").unwrap().text();
    let is_served = |pair: &[Vec<u8>; 2]| {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        (lines(&served()) == lines(&String::from_utf8_lossy(&pair[0]))).then_some(())
    };
    is_served(&first).unwrap();
    // On a signal, and when the files change.
    store(&second);
    server.signal("-HUP");
    until("the second certificate", || is_served(&second));
    store(&third);
    until("the third certificate", || is_served(&third));
    // A client that trusts only the new one connects.
    let url = format!("https://localhost:{}", server.port);
    let arguments = ["health", "--endpoint", &url, "--certificate", paths[0]];
    let (code, _, stderr) =
        common::run(std::process::Command::new(env!("CARGO_BIN_EXE_orrery")).args(arguments));
    assert_eq!(code, 0, "{stderr}");
}

#[test]
fn the_log_can_be_json() {
    let mut command = Server::command(&["--in-memory", "--log-format", "json"]);
    let mut server = Server::spawn(command.env("ORRERY_LOG", "info").stderr(Stdio::piped()));
    server.signal("-TERM");
    let Exit { code, stderr, .. } = server.wait();
    assert_eq!(code, 0);
    let lines: Vec<_> = stderr.lines().collect();
    assert!(!lines.is_empty());
    for line in lines {
        let event = orrery_model::value::parse(line.as_bytes()).unwrap_or_else(|_| panic!("{line}"));
        for name in ["timestamp", "level", "message", "target"] {
            assert!(event.get(name).is_some(), "{name} is missing in {line}");
        }
    }
}
