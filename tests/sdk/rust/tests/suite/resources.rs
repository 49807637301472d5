//! Databases, containers, feed ranges.

use azure_data_cosmos::models::*;
use azure_data_cosmos::options::CreateContainerOptions;
use azure_data_cosmos::{Query, ResourceId};
use futures::TryStreamExt;
use orrery_sdk_rust::*;

#[tokio::test]
async fn database_life_cycle() {
    let client = client().await;
    let id = unique_name("rust");
    let created = client.create_database(&id, None).await.expect("created");
    assert_eq!(u16::from(created.status().status_code()), 201);
    assert!(created.headers().request_charge().is_some());
    let properties = created.into_model().expect("a body");
    assert_eq!(properties.id.as_deref(), Some(id.as_str()));
    assert!(properties.system_properties.etag.is_some());
    assert!(properties.system_properties.resource_id.is_some());
    assert!(properties.system_properties.last_modified.is_some());
    assert_eq!(refusal(client.create_database(&id, None).await).0, 409);

    let database = client.database_client(&id);
    let read = database.read(None).await.expect("read").into_model().expect("a body");
    assert_eq!(read.system_properties.resource_id, properties.system_properties.resource_id);
    database.delete(None).await.expect("deleted");
    assert_eq!(refusal(database.read(None).await), (404, 0));
    assert_eq!(refusal(database.delete(None).await), (404, 0));
}

#[tokio::test]
async fn list_databases() {
    let client = client().await;
    with_database_of(&client, async |database| {
        let name = database.name().expect("named").to_owned();
        let all: Vec<DatabaseProperties> =
            client.query_databases("SELECT * FROM root r", None).await.expect("listed").try_collect().await.expect("listed");
        assert!(all.iter().any(|found| found.id.as_deref() == Some(&name)));
        let query = Query::from("SELECT * FROM root r WHERE r.id = @id").with_parameter("@id", &name).expect("a parameter");
        let one: Vec<DatabaseProperties> = client.query_databases(query, None).await.expect("found").try_collect().await.expect("found");
        assert_eq!(one.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn container_life_cycle() {
    with_database(async |database| {
        let created = database.create_container(ContainerProperties::new("c", "/pk".into()), None).await.expect("created");
        assert_eq!(u16::from(created.status().status_code()), 201);
        let properties = created.into_model().expect("a body");
        assert_eq!(properties.partition_key.paths(), ["/pk"]);
        assert_eq!(properties.partition_key.kind(), PartitionKeyKind::Hash);
        assert_eq!(properties.partition_key.version(), PartitionKeyVersion::V2);
        let policy = properties.indexing_policy.expect("an indexing policy");
        assert!(policy.automatic);
        assert_eq!(policy.indexing_mode, Some(IndexingMode::Consistent));
        assert_eq!(policy.included_paths, [PropertyPath::from("/*")]);
        assert_eq!(policy.excluded_paths, [PropertyPath::from("/\"_etag\"/?")]);
        let again = database.create_container(ContainerProperties::new("c", "/pk".into()), None).await;
        assert_eq!(refusal(again).0, 409);

        let container = database.container_client("c", None).await.expect("found");
        container.read(None).await.expect("read");
        container.delete(None).await.expect("deleted");
        assert_eq!(refusal(container.read(None).await).0, 404);
    })
    .await;
}

#[tokio::test]
async fn list_containers() {
    with_database(async |database| {
        for id in ["one", "two", "three"] {
            create(&database, ContainerProperties::new(id, "/pk".into())).await;
        }
        let found: Vec<ContainerProperties> =
            database.query_containers("SELECT * FROM root r", None).await.expect("listed").try_collect().await.expect("listed");
        let mut names: Vec<_> = found.iter().map(|each| each.id.to_string()).collect();
        names.sort();
        assert_eq!(names, ["one", "three", "two"]);
    })
    .await;
}

#[tokio::test]
async fn policies_come_back() {
    let policy = IndexingPolicy::default()
        .with_indexing_mode(IndexingMode::Consistent)
        .with_included_path("/*")
        .with_excluded_path("/blob/*")
        .with_composite_index(
            CompositeIndex::default()
                .with_property(CompositeIndexProperty::new("/a", CompositeIndexOrder::Ascending))
                .with_property(CompositeIndexProperty::new("/b", CompositeIndexOrder::Descending)),
        )
        .with_spatial_index(SpatialIndex::new("/place/*").with_type(SpatialType::Point));
    let unique = UniqueKeyPolicy::default().with_unique_key(UniqueKey::default().with_path("/email").with_path("/team/name"));
    let mut properties = ContainerProperties::new("p", "/pk".into())
        .with_indexing_policy(policy.clone())
        .with_unique_key_policy(unique.clone())
        .with_default_ttl(3600u32)
        .with_conflict_resolution_policy(
            ConflictResolutionPolicy::new(ConflictResolutionMode::LastWriterWins).with_resolution_path("/rank"),
        );
    properties.indexing_policy.as_mut().expect("set").automatic = true;
    with_container(properties, async |container| {
        let read = container.read(None).await.expect("read").into_model().expect("a body");
        let found = read.indexing_policy.expect("an indexing policy");
        assert_eq!(found.composite_indexes, policy.composite_indexes);
        assert_eq!(found.spatial_indexes[0].path, "/place/*");
        assert!(found.excluded_paths.contains(&PropertyPath::from("/blob/*")));
        assert_eq!(read.unique_key_policy, Some(unique));
        assert_eq!(read.default_ttl, TimeToLive::Seconds(3600));
        let conflicts = read.conflict_resolution_policy.expect("a conflict policy");
        assert_eq!(conflicts.resolution_path, "/rank");
    })
    .await;
}

#[tokio::test]
async fn replace_container() {
    with_items(async |container| {
        let mut properties = container.read(None).await.expect("read").into_model().expect("a body");
        properties.default_ttl = TimeToLive::NoDefault;
        let policy = properties.indexing_policy.take().expect("an indexing policy");
        properties.indexing_policy = Some(policy.with_excluded_path("/skip/*"));
        let replaced = container.replace(properties.clone(), None).await.expect("replaced").into_model().expect("a body");
        assert_eq!(replaced.default_ttl, TimeToLive::NoDefault);
        let excluded = replaced.indexing_policy.expect("an indexing policy").excluded_paths;
        assert!(excluded.contains(&PropertyPath::from("/skip/*")));
        properties.partition_key = "/another".into();
        assert_eq!(refusal(container.replace(properties, None).await), (400, 0));
    })
    .await;
}

#[tokio::test]
async fn hierarchical_containers() {
    with_database(async |database| {
        let properties = ContainerProperties::new("h", ("/a", "/b", "/c").into());
        let container = create(&database, properties).await;
        let read = container.read(None).await.expect("read").into_model().expect("a body");
        assert_eq!(read.partition_key.kind(), PartitionKeyKind::MultiHash);
        assert_eq!(read.partition_key.paths(), ["/a", "/b", "/c"]);
        let four = ["/a", "/b", "/c", "/d"].map(Into::into).to_vec();
        let definition = PartitionKeyDefinition::new(four).with_kind(PartitionKeyKind::MultiHash);
        let refused = database.create_container(ContainerProperties::new("f", definition), None).await;
        assert_eq!(refusal(refused), (400, 0));
    })
    .await;
}

/// Paths, kind, throughput: what the client cannot build itself it may still send.
#[tokio::test]
async fn missing_owner() {
    let database = client().await.database_client(unique_name("absent"));
    let refused = database.create_container(ContainerProperties::new("c", "/pk".into()), None).await;
    assert_eq!(refusal(refused).0, 404);
    with_database(async |database| {
        assert_eq!(refusal(database.container_client("absent", None).await.map(|_| ())).0, 404);
    })
    .await;
}

#[tokio::test]
async fn resources_by_resource_id() {
    let client = client().await;
    with_database_of(&client, async |database| {
        let container = create(&database, ContainerProperties::new("c", "/pk".into())).await;
        let of_database = database.read(None).await.expect("read").into_model().expect("a body");
        let of_container = container.read(None).await.expect("read").into_model().expect("a body");
        let rid = |properties: SystemProperties| ResourceId::from(properties.resource_id.expect("a resource id"));
        let by_rid = client
            .database_client(rid(of_database.system_properties))
            .container_client(rid(of_container.system_properties), None)
            .await
            .expect("found by resource id");
        let read = by_rid.read(None).await.expect("read").into_model().expect("a body");
        assert_eq!(read.id, "c");
        assert_eq!(by_rid.read_feed_ranges(None).await.expect("ranges").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn feed_ranges_cover_the_key_space() {
    with_database(async |database| {
        for (name, throughput) in [("small", 400), ("large", 30_000)] {
            let options = CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(throughput));
            database.create_container(ContainerProperties::new(name, "/pk".into()), Some(options)).await.expect("created");
            let container = database.container_client(name, None).await.expect("found");
            let ranges = container.read_feed_ranges(None).await.expect("ranges");
            let wanted = throughput.div_ceil(10_000) as usize;
            assert!(ranges.len() >= wanted, "{} ranges for {throughput}", ranges.len());
            for key in ["a", "b", "c", "d"] {
                let owner = container.feed_range_from_partition_key(key, None).await.expect("an owner");
                assert_eq!(owner.len(), 1);
                assert!(ranges.contains(&owner[0]));
            }
        }
    })
    .await;
}
