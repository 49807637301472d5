//! What a writer of versioned items knows, and the check that a server has exactly that.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Client, DOCS, TIME_MAX};

/// One writer's items: the last acknowledged version of each, and the one whose fate is unknown.
#[derive(Default)]
pub struct KnownVersions {
    pub acknowledged: BTreeMap<u64, u64>,
    pub unknown: BTreeMap<u64, u64>,
    pub next_version: u64,
}

impl KnownVersions {
    pub fn acknowledge(&mut self, id: u64, version: u64) {
        self.acknowledged.insert(id, version);
        self.unknown.remove(&id);
    }

    /// Checks that every acknowledged item is there once, with its version, and nothing else. Versions whose fate was
    /// unknown are known afterwards. Returns the number of items.
    pub fn verify(client: &mut Client, known: &mut [Self], expected: &Expected, context: &str) -> usize {
        let found = read_versions(client, expected, context);
        let mut expected = expected.untracked_items;
        for own in known {
            for (id, version) in std::mem::take(&mut own.unknown) {
                if found.get(&id) == Some(&version) {
                    own.acknowledged.insert(id, version);
                }
            }
            for (id, version) in &own.acknowledged {
                assert_eq!(found.get(id), Some(version), "{context}: {id}");
            }
            expected += own.acknowledged.len();
        }
        assert_eq!(found.len(), expected, "{context}");
        expected
    }
}

/// How a container is read and what it holds besides the writers' items.
pub struct Expected {
    pub untracked_items: usize,
    pub page_items: u32,
    /// The container may be replaced between two pages; clients then start over.
    pub may_be_replaced: bool,
}

/// All items of the container, by id.
fn read_versions(client: &mut Client, expected: &Expected, context: &str) -> BTreeMap<u64, u64> {
    let begun = Instant::now();
    let page_items = expected.page_items.to_string();
    let (mut found, mut token) = (BTreeMap::new(), None::<String>);
    loop {
        let mut headers = vec![("x-ms-max-item-count", page_items.as_str())];
        headers.extend(token.as_deref().map(|token| ("x-ms-continuation", token)));
        let page = client.send("GET", DOCS, &headers, b"").unwrap();
        if expected.may_be_replaced && matches!(page.status, 400 | 404 | 410) {
            assert!(begun.elapsed() < TIME_MAX, "{context}: {}", page.text());
            (found, token) = (BTreeMap::new(), None);
            continue;
        }
        assert_eq!(page.status, 200, "{context}: {}", page.text());
        for item in page.json().get("Documents").unwrap().as_array().unwrap() {
            let id = item.get("id").unwrap().as_str().unwrap().parse().unwrap();
            let version = u64::try_from(item.get("version").unwrap().as_i64().unwrap()).unwrap();
            assert!(found.insert(id, version).is_none(), "{context}: {id} is there twice");
        }
        token = page.header("x-ms-continuation").map(str::to_owned);
        if token.is_none() {
            return found;
        }
    }
}
