//! Provisioned throughput of databases and containers.

use azure_data_cosmos::models::{ContainerProperties, ThroughputProperties};
use azure_data_cosmos::options::CreateContainerOptions;
use orrery_sdk_rust::*;

fn options(throughput: ThroughputProperties) -> Option<CreateContainerOptions> {
    Some(CreateContainerOptions::default().with_throughput(throughput))
}

#[tokio::test]
async fn the_default_of_a_container_is_400() {
    with_items(async |container| {
        let found = container.read_throughput(None).await.expect("read");
        assert_eq!(found.expect("an offer").throughput(), Some(400));
    })
    .await;
}

#[tokio::test]
async fn a_database_without_throughput_has_no_offer() {
    with_database(async |database| {
        assert!(database.read_throughput(None).await.expect("read").is_none());
    })
    .await;
}

#[tokio::test]
async fn replace_manual_throughput() {
    with_database(async |database| {
        let properties = ContainerProperties::new("c", "/pk".into());
        let manual = ThroughputProperties::manual(500);
        database.create_container(properties, options(manual)).await.expect("created");
        let container = database.container_client("c", None).await.expect("found");
        let read = container.read_throughput(None).await.expect("read").expect("an offer");
        assert_eq!(read.throughput(), Some(500));
        let replaced = container
            .begin_replace_throughput(ThroughputProperties::manual(1000), None)
            .await
            .expect("begun")
            .await
            .expect("done")
            .into_model()
            .expect("a body");
        assert_eq!(replaced.throughput(), Some(1000));
        let read = container.read_throughput(None).await.expect("read").expect("an offer");
        assert_eq!(read.throughput(), Some(1000));
        let low = container.begin_replace_throughput(ThroughputProperties::manual(100), None).await;
        let refused = match low {
            Err(error) => Err(error),
            Ok(poller) => poller.await.map(|_| ()),
        };
        assert_eq!(refusal(refused), (400, 0));
    })
    .await;
}

#[tokio::test]
async fn autoscale_throughput() {
    with_database(async |database| {
        let properties = ContainerProperties::new("c", "/pk".into());
        let autoscale = ThroughputProperties::autoscale(5000, Some(10));
        database.create_container(properties, options(autoscale)).await.expect("created");
        let container = database.container_client("c", None).await.expect("found");
        let read = container.read_throughput(None).await.expect("read").expect("an offer");
        assert_eq!(read.autoscale_maximum(), Some(5000));
        assert_eq!(read.autoscale_increment(), Some(10));
        container.begin_replace_throughput(ThroughputProperties::autoscale(6000, None), None).await.expect("begun").await.expect("done");
        let read = container.read_throughput(None).await.expect("read").expect("an offer");
        assert_eq!(read.autoscale_maximum(), Some(6000));
    })
    .await;
}

#[tokio::test]
async fn throughput_refused_at_creation() {
    with_database(async |database| {
        for throughput in [
            ThroughputProperties::manual(399),
            ThroughputProperties::manual(450),
            ThroughputProperties::autoscale(500, None),
            ThroughputProperties::autoscale(1500, None),
        ] {
            let properties = ContainerProperties::new("c", "/pk".into());
            let refused = database.create_container(properties, options(throughput)).await;
            assert_eq!(refusal(refused), (400, 0));
        }
    })
    .await;
}
