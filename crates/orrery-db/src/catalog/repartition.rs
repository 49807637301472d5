//! What the catalog records of a container that is being given another partition key.

use orrery_model::partition_key::PartitionKeyDefinition;
use orrery_model::rid::ContainerRid;
use orrery_model::{Error, ErrorKind, Result};

use super::{Catalog, Container, existing};

/// A container on its way to another key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repartition {
    /// What takes its place.
    pub target: ContainerRid,
    /// The name under which it is kept; it is dropped if there is none.
    pub keep_as: Option<Box<str>>,
    /// Writes are held back: the switch is near.
    pub frozen: bool,
    /// How far each partition was followed, by its range id.
    pub positions: Vec<(u32, u64)>,
    /// The name of the run that may work on it.
    pub run: u64,
    /// Why the last run stopped; nobody goes on until somebody asks for it.
    pub failure: Option<Box<str>>,
    /// Items copied and copies removed, as of the last time that the places were recorded.
    pub copied: u64,
    pub removed: u64,
}

/// What a container that has taken another's place remembers of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repartitioned {
    pub items: u64,
    pub copied: u64,
    pub removed: u64,
    pub compared: u64,
    pub checksum: u128,
    pub kept_as: Option<Box<str>>,
    /// The key that it had; absent if it was repartitioned by an earlier version.
    pub former_key: Option<PartitionKeyDefinition>,
}

/// A run of the work, which must still be the one that the catalog names.
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
            Err(Error::new(ErrorKind::RetryWith, "Another server goes on with the repartitioning."))
        }
    }
}

pub(crate) fn given_up() -> Error {
    Error::new(ErrorKind::NotFound, "The repartitioning was given up.")
}

/// The refusal of what must not happen to a container meanwhile.
pub(crate) fn is_locked() -> Error {
    Error::new(ErrorKind::Locked, "The container is being repartitioned: this must wait until that is done.")
}
