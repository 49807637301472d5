//! Where the partitions of a container are served in direct mode: the address feed, and the paths in it.
//!
//! A server advertises itself as the only replica, and thus the primary, of every partition. It can serve all of them,
//! even if several servers share one store. With a single replica clients have nothing to compare, so a read is one
//! request at every consistency level. If the server goes away, the client resolves the addresses again at another
//! endpoint.
//!
//! Every request repeats the path of its address. It identifies the container by RID and the partition by range, in the
//! format of the service's GUIDs: `/apps/{0}/services/{container}/partitions/{range}/replicas/1p/`. This lets the
//! server detect requests to a partition that has been split or a container that was deleted, and make the client
//! refresh its routing.

use std::fmt::Write;

use orrery_model::rid::ContainerRid;
use orrery_model::value::write_json_string;

use crate::options::PortEndpoint;

/// The target of a replica's address; none for the account's own resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replica {
    pub container: Option<ContainerRid>,
    pub range_id: Option<u32>,
}

/// The id of the partition that holds the account's own resources.
const MASTER: &str = "M";

impl Replica {
    /// Parses the path of an address; none if it is not one of ours.
    pub fn parse(path: &str) -> Self {
        let guid_after = |keyword: &str| {
            let rest = &path.as_bytes()[path.find(keyword)? + keyword.len()..];
            // A GUID is read as one number of 128 bits; it takes 36 bytes with its hyphens.
            let digits = rest.get(..36)?.iter().filter(|byte| **byte != b'-');
            digits
                .map(|byte| char::from(*byte).to_digit(16))
                .try_fold(0_u128, |number, digit| Some(number << 4 | u128::from(digit?)))
        };
        let read = || {
            let container = guid_after("/services/")?.to_be_bytes();
            // The RID's eight bytes are the first half of the GUID, the second half is zero.
            let container = ContainerRid::from_bytes(container.get(..8)?)?;
            let range_id = u32::try_from(guid_after("/partitions/")?).ok()?;
            Some(Self { container: Some(container), range_id: Some(range_id) })
        };
        // A path of another server says nothing about staleness, so the request is served without the check.
        read().unwrap_or_default()
    }

    fn write_path(self, out: &mut String) {
        const NOBODY: &str = "00000000-0000-0000-0000-000000000000";
        let container = self.container.map_or(0, |rid| u64::from_be_bytes(rid.to_bytes()));
        let range_id = self.range_id.unwrap_or(0);
        let high = container >> 32;
        let (middle, low) = ((container >> 16) & 0xFFFF, container & 0xFFFF);
        write!(
            out,
            "/apps/{NOBODY}/services/{high:08x}-{middle:04x}-{low:04x}-0000-000000000000/partitions/00000000-0000-0000-0000-{range_id:012x}/replicas/1p/",
        )
        .expect("a String accepts every write");
    }
}

/// The feed: one address for each of these ranges, or that of the account's own resources.
pub(crate) fn feed(container: Option<(ContainerRid, &[u32])>, endpoint: &PortEndpoint, host: &str) -> String {
    let mut rows = Vec::new();
    match container {
        None => rows.push((MASTER.to_owned(), Replica::default())),
        Some((rid, ranges)) => {
            for range_id in ranges {
                let replica = Replica { container: Some(rid), range_id: Some(*range_id) };
                rows.push((range_id.to_string(), replica));
            }
        }
    }
    let authority = endpoint.authority(host);
    let rid = container.map(|(rid, _)| rid.to_string()).unwrap_or_default();
    // The service spells these `Addresss` and `physcialUri`, and clients look for exactly that.
    let mut feed = format!("{{\"_rid\":\"{rid}\",\"Addresss\":[");
    for (at, (range_id, replica)) in rows.iter().enumerate() {
        if at > 0 {
            feed.push(',');
        }
        let mut address = format!("rntbd://{authority}");
        replica.write_path(&mut address);
        feed.push_str("{\"isPrimary\":true,\"isAuxiliary\":false,\"protocol\":\"rntbd\",\"logicalUri\":\"urn:orrery\",\"physcialUri\":");
        write_json_string(&address, &mut feed);
        write!(
            feed,
            ",\"partitionIndex\":\"{range_id}@0\",\"partitionKeyRangeId\":\"{range_id}\",\"partitionTargetReplicaSetSize\":1}}"
        )
        .expect("a String accepts every write");
    }
    write!(feed, "],\"_count\":{}}}", rows.len()).expect("a String accepts every write");
    feed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_an_address_names_its_replica() {
        let replica =
            Replica { container: Some(ContainerRid::parse("hLEEAI1YjgA=").unwrap()), range_id: Some(12_345) };
        let mut path = String::new();
        replica.write_path(&mut path);
        assert_eq!(
            path,
            "/apps/00000000-0000-0000-0000-000000000000/services/84b10400-8d58-8e00-0000-000000000000/partitions/00000000-0000-0000-0000-000000003039/replicas/1p/"
        );
        // Clients omit the trailing slash.
        assert_eq!(Replica::parse(path.trim_end_matches('/')), replica);
        let mut master = String::new();
        Replica::default().write_path(&mut master);
        for other in
            [master.as_str(), "", "/", "/services//partitions//replicas/", "/services/ü/partitions/ü/"]
        {
            assert_eq!(Replica::parse(other), Replica::default(), "{other}");
        }
    }

    #[test]
    fn every_range_has_one_address() {
        let rid = ContainerRid::parse("hLEEAI1YjgA=").unwrap();
        let endpoint = PortEndpoint { port: 10250, advertised: None };
        let text = feed(Some((rid, &[1, 2])), &endpoint, "db.test:8081");
        let value = orrery_model::value::parse(text.as_bytes()).unwrap();
        assert_eq!(value.get("_rid").and_then(|rid| rid.as_str()), Some("hLEEAI1YjgA="));
        assert_eq!(text.matches("rntbd://db.test:10250/apps/").count(), 2, "{text}");
        assert_eq!(text.matches("\"isPrimary\":true").count(), 2, "{text}");
        assert!(text.contains("\"partitionKeyRangeId\":\"2\""), "{text}");
        let master = feed(None, &endpoint, "[::1]:8081");
        assert!(master.contains("rntbd://[::1]:10250/") && master.contains("\"partitionKeyRangeId\":\"M\""));
        let endpoint = PortEndpoint { port: 10250, advertised: Some("db.example.com:443".into()) };
        assert!(feed(None, &endpoint, "localhost").contains("rntbd://db.example.com:443/"));
        let endpoint = PortEndpoint { port: 10250, advertised: Some("db.example.com".into()) };
        assert!(feed(None, &endpoint, "localhost").contains("rntbd://db.example.com:10250/"));
    }
}
