//! The generations of a container's index: serving, building and retired.

use std::sync::Arc;

use orrery_model::container::{ComputedProperty, IndexingPolicy};

use super::{ComputedIndex, PolicyTree};

/// One generation of a container's index.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Part of every entry's key; never reused in the container.
    pub number: u32,
    pub policy: IndexingPolicy,
    pub(crate) tree: PolicyTree,
    pub(crate) computed: ComputedIndex,
}

impl Generation {
    pub fn new(number: u32, policy: IndexingPolicy, computed: &[ComputedProperty]) -> Self {
        let computed = ComputedIndex::of(computed, &policy);
        Self { number, tree: PolicyTree::new(&policy), policy, computed }
    }

    /// Whether its entries are those of this policy and these properties.
    fn is_of(&self, policy: &IndexingPolicy, computed: &ComputedIndex) -> bool {
        self.policy == *policy && self.computed == *computed
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
    pub fn new(policy: IndexingPolicy, computed: &[ComputedProperty]) -> Self {
        Self {
            serving: Arc::new(Generation::new(1, policy, computed)),
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
        // Its entries stay until no page that began with it can still be running.
        retired.push(self.serving.number);
        Self { serving: Arc::clone(building), building: None, version: self.version + 1, retired }
    }

    /// The state after the policy or the computed properties were replaced. Going back to what serves just stops the
    /// building.
    #[must_use]
    pub fn with_policy(&self, policy: &IndexingPolicy, computed: &[ComputedProperty]) -> Self {
        // Compared with what will serve in the end, so that repeating a change does not start over.
        let target = self.building.as_ref().unwrap_or(&self.serving);
        let wanted = ComputedIndex::of(computed, policy);
        if target.is_of(policy, &wanted) {
            return self.clone();
        }
        // Numbers are part of entries' keys, so one with entries left in the store must not come back.
        let used = self.generations().map(|generation| generation.number).chain(self.retired.iter().copied());
        let number = used.max().unwrap_or(0) + 1;
        let mut retired = self.retired.clone();
        // A build that is given up has left entries behind.
        retired.extend(self.building.as_ref().map(|abandoned| abandoned.number));
        let building = (!self.serving.is_of(policy, &wanted))
            .then(|| Arc::new(Generation::new(number, policy.clone(), computed)));
        Self { serving: Arc::clone(&self.serving), building, version: self.version + 1, retired }
    }
}
