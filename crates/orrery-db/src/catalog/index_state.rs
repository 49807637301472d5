//! The generations of a container's index: serving, building and retired.

use std::sync::Arc;

use orrery_model::container::IndexingPolicy;

use super::PolicyTree;

/// One generation of a container's index.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Part of every entry's key; never reused in the container.
    pub number: u32,
    pub policy: IndexingPolicy,
    pub(crate) tree: PolicyTree,
}

impl Generation {
    pub fn new(number: u32, policy: IndexingPolicy) -> Self {
        Self { number, tree: PolicyTree::new(&policy), policy }
    }
}

/// The index of a container.
#[derive(Clone, Debug)]
pub struct IndexState {
    /// Used by queries.
    pub serving: Arc<Generation>,
    /// The generation of a changed policy, while it is being filled.
    pub building: Option<Arc<Generation>>,
    /// Incremented when either changes, so that writes with a stale view are detected and retried.
    pub version: u64,
    /// Unused generations whose entries are still in the store.
    pub retired: Vec<u32>,
}

impl IndexState {
    pub fn new(policy: IndexingPolicy) -> Self {
        Self {
            serving: Arc::new(Generation::new(1, policy)),
            building: None,
            version: 1,
            retired: Vec::new(),
        }
    }

    /// The generations that a write must maintain.
    pub fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.serving).chain(&self.building)
    }

    /// The state after the building generation has been filled: it becomes serving, and the old one is retired.
    #[must_use]
    pub fn finished(&self) -> Self {
        let Some(building) = &self.building else { return self.clone() };
        let mut retired = self.retired.clone();
        retired.push(self.serving.number);
        Self { serving: Arc::clone(building), building: None, version: self.version + 1, retired }
    }

    /// The state after the policy was replaced. Reverting to the serving policy just stops the building.
    #[must_use]
    pub fn with_policy(&self, policy: &IndexingPolicy) -> Self {
        let target = self.building.as_ref().unwrap_or(&self.serving);
        if target.policy == *policy {
            return self.clone();
        }
        let used = self.generations().map(|generation| generation.number).chain(self.retired.iter().copied());
        let number = used.max().unwrap_or(0) + 1;
        let mut retired = self.retired.clone();
        retired.extend(self.building.as_ref().map(|abandoned| abandoned.number));
        let building =
            (self.serving.policy != *policy).then(|| Arc::new(Generation::new(number, policy.clone())));
        Self { serving: Arc::clone(&self.serving), building, version: self.version + 1, retired }
    }
}
