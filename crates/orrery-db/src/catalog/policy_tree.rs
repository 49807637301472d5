//! An indexing policy as a tree of paths, so that walking an item decides each property in one step.

use orrery_model::container::{IndexStep, IndexingMode, IndexingPolicy, PathEnd, PolicyPath};

/// The policy's paths as a tree.
#[derive(Clone, Debug)]
pub(crate) struct PolicyTree {
    nodes: Vec<Node>,
    enabled: bool,
}

#[derive(Clone, Debug, Default)]
struct Node {
    children: Vec<(IndexStep, usize)>,
    /// The `/?` rule for the scalar here.
    scalar: Option<bool>,
    /// The `/*` rule for everything here and below.
    subtree: Option<bool>,
}

/// A position in an item and the policy rules that apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyPlace {
    node: Option<usize>,
    /// The nearest `/*` rule above.
    inherited: bool,
}

impl PolicyTree {
    pub(crate) fn new(policy: &IndexingPolicy) -> Self {
        // Without automatic indexing only items whose write asks for it would be indexed. Queries must find the others
        // too, so they scan all items, and entries of a few would never be read.
        let enabled = policy.mode == IndexingMode::Consistent && policy.automatic;
        let mut tree = Self { nodes: vec![Node::default()], enabled };
        // If both lists contain the same path, the included one wins, so it is written last.
        for path in &policy.excluded {
            tree.add(path, false);
        }
        for path in policy.included.iter().filter(|path| path.tuple.is_empty()) {
            tree.add(path, true);
        }
        // Always indexed, whatever the policy says.
        for name in ["id", "_ts"] {
            let node = tree.child_or_new(0, &IndexStep::Property(name.into()));
            tree.nodes[node].scalar = Some(true);
        }
        tree
    }

    fn add(&mut self, path: &PolicyPath, included: bool) {
        let mut node = 0;
        for step in &path.steps {
            node = self.child_or_new(node, step);
        }
        match path.end {
            PathEnd::Scalar => self.nodes[node].scalar = Some(included),
            PathEnd::Subtree => self.nodes[node].subtree = Some(included),
        }
    }

    fn child_or_new(&mut self, parent: usize, step: &IndexStep) -> usize {
        if let Some((_, child)) = self.nodes[parent].children.iter().find(|(known, _)| known == step) {
            return *child;
        }
        self.nodes.push(Node::default());
        let child = self.nodes.len() - 1;
        self.nodes[parent].children.push((step.clone(), child));
        child
    }

    /// Whether there is an index at all.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn root(&self) -> PolicyPlace {
        PolicyPlace { node: Some(0), inherited: self.nodes[0].subtree.unwrap_or(false) }
    }

    pub(crate) fn property(&self, place: PolicyPlace, name: &str) -> PolicyPlace {
        self.step(place, |step| matches!(step, IndexStep::Property(known) if **known == *name))
    }

    pub(crate) fn element(&self, place: PolicyPlace) -> PolicyPlace {
        self.step(place, |step| *step == IndexStep::Element)
    }

    fn step(&self, place: PolicyPlace, is_it: impl Fn(&IndexStep) -> bool) -> PolicyPlace {
        let children = place.node.map_or(&[][..], |node| &self.nodes[node].children);
        let node = children.iter().find(|(step, _)| is_it(step)).map(|(_, child)| *child);
        let subtree = node.and_then(|node| self.nodes[node].subtree);
        // The nearest rule wins, as in the service: a deeper `/*` overrides the one above.
        PolicyPlace { node, inherited: subtree.unwrap_or(place.inherited) }
    }

    /// Whether the value at this position has a term.
    pub(crate) fn indexes(&self, place: PolicyPlace) -> bool {
        let scalar = place.node.and_then(|node| self.nodes[node].scalar);
        self.enabled && scalar.unwrap_or(place.inherited)
    }

    /// Whether anything at or below this position may have a term.
    pub(crate) fn indexes_below(&self, place: PolicyPlace) -> bool {
        self.enabled
            && (place.inherited || place.node.is_some_and(|node| !self.nodes[node].children.is_empty()))
    }
}
