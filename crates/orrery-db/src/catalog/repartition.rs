//! The catalog's record of a repartitioning in progress.

use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::rid::ContainerRid;
use orrery_model::{Error, ErrorKind, Result};

use super::{Catalog, Container, existing};

/// The state of a container that is being repartitioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repartition {
    /// The container that replaces it.
    pub target: ContainerRid,
    /// The new name of the original; it is dropped if there is none.
    pub keep_as: Option<Box<str>>,
    /// Writes are frozen for the cut-over.
    pub frozen: bool,
    /// The confirmed feed position of each partition, by range id.
    pub positions: Vec<(u32, u64)>,
    /// The name of the run that may work on it.
    pub run: u64,
    /// Why the last run failed; it is not resumed until requested.
    pub failure: Option<Box<str>>,
    /// Items copied and copies removed, as of the last recorded position.
    pub copied: u64,
    pub removed: u64,
}

/// What a repartitioned container remembers of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repartitioned {
    pub items: u64,
    pub copied: u64,
    pub removed: u64,
    pub compared: u64,
    pub checksum: u128,
    pub kept_as: Option<Box<str>>,
    /// The old partition key; absent if it was repartitioned by an earlier version.
    pub former_key: Option<PartitionKeyDefinition>,
}

/// A run of a repartitioning, which must still be the one in the catalog.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepartitionRun {
    pub source: ContainerRid,
    pub name: u64,
}

impl RepartitionRun {
    pub(crate) fn check(&self, catalog: &Catalog) -> Result<()> {
        self.own(existing(catalog, self.source)?).map(drop)
    }

    pub(crate) fn own(&self, source: &Container) -> Result<Repartition> {
        let own = source.repartition.as_ref().ok_or_else(given_up)?;
        self.check_own(own)?;
        Ok(own.clone())
    }

    pub(crate) fn check_own(&self, own: &Repartition) -> Result<()> {
        if own.run == self.name {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::RetryWith, "Another server has taken over the repartitioning."))
        }
    }
}

pub(crate) fn given_up() -> Error {
    Error::new(ErrorKind::NotFound, "The repartitioning was aborted.")
}

/// The error for operations that are not allowed during a repartitioning.
pub(crate) fn is_locked() -> Error {
    Error::new(
        ErrorKind::Locked,
        "The container is being repartitioned: this operation is not possible until it has finished.",
    )
}
