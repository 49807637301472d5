//! What a request costs PostgreSQL, according to its log.

use orrery_testing::Server as PostgresServer;

use crate::common::Server;
use crate::{read, upsert};

const READS: usize = 20;

#[test]
fn a_point_read_is_one_statement() {
    let database = PostgresServer::start();
    let url = format!("{}?options=-c%20log_statement%3Dall", database.url());
    let server = Server::on_store(&url);
    let mut client = server.client();
    client.create_container(&[]);
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
    // Background work may run statements too, but none per read.
    assert!(others.len() < READS, "{others:#?}");
    server.stop();
}
