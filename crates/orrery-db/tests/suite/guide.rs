//! The tables of the guide are what its command measures: a change of charges must not leave old figures behind.

#[path = "../../examples/partition_keys/measure.rs"]
mod measure;

#[tokio::test]
async fn the_tables_of_the_guide_are_up_to_date() {
    let guide = include_str!("../../../../docs/partition-keys.md");
    let measured = measure::with_tables(guide, &measure::tables().await);
    for (written, measured) in guide.lines().zip(measured.lines()) {
        assert_eq!(written, measured, "the guide is stale: run `make guide` and read its text again");
    }
    assert_eq!(guide, measured, "the guide is stale: run `make guide` and read its text again");
}
