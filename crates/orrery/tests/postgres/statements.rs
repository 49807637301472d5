//! What a request costs the database, told by its own log.

use std::ffi::OsStr;

use orrery_testing::Server;

use crate::client::Client;
use crate::server::Served;
use crate::{create_container, read, upsert};

const READS: usize = 20;

#[test]
fn a_point_read_is_one_statement() {
    let database = Server::start();
    let url = format!("{}?options=-c%20log_statement%3Dall", database.url());
    let served = Served::start_on("--store", OsStr::new(&url));
    let mut client = Client::new(served.port);
    create_container(&mut client, &[]);
    assert_eq!(upsert(&mut client, "k", r#"{"id":"i","pk":"k"}"#).unwrap().status, 201);
    assert_eq!(read(&mut client, "k", "i", &[]).status, 200);
    let before = database.log().len();
    for _ in 0..READS {
        assert_eq!(read(&mut client, "k", "i", &[]).status, 200);
    }
    let log = database.log()[before..].to_owned();
    let executed = log.lines().filter(|line| line.contains("LOG:  execute ") && line.contains("kv "));
    let (points, others): (Vec<&str>, Vec<&str>) =
        executed.partition(|line| line.contains("k.key = $2::bytea"));
    assert_eq!(points.len(), READS, "{log}");
    // The background may have looked at something meanwhile, but nothing is done once per read.
    assert!(others.len() < READS, "{others:#?}");
    served.stop();
}
