//! The generations of a container's index: which serves, which is being built, which are retired.

use std::sync::Arc;

use orrery_model::container::IndexingPolicy;

use super::PolicyTree;

/// One generation of a container's index.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Never reused in the container: part of every entry's key.
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
    /// What queries use.
    pub serving: Arc<Generation>,
    /// What a changed policy will have, while it is being filled.
    pub building: Option<Arc<Generation>>,
    /// Counts changes of the two, so that a write with an old view of them is told to look again.
    pub version: u64,
    /// Generations that nobody uses any more but whose entries still lie in the store.
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

    /// The generations that a write must keep.
    pub fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.serving).chain(&self.building)
    }

    /// The state after the building generation was filled: it serves, and the old one goes.
    #[must_use]
    pub fn finished(&self) -> Self {
        let Some(building) = &self.building else { return self.clone() };
        let mut retired = self.retired.clone();
        retired.push(self.serving.number);
        Self { serving: Arc::clone(building), building: None, version: self.version + 1, retired }
    }

    /// The state after the policy was replaced. Going back to the serving policy just stops the building.
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
