//! What a filter says about documents before any is read.
//!
//! Three questions are answered from the compiled filter: which partition key values it names
//! ([`key_restriction`]), which single items ([`named_items`]), and which conditions an index could answer
//! ([`index_condition`]). All may say less than the filter does, never more: documents are always checked
//! against the filter itself, unless it names items and says nothing else.

mod index;
mod interval;
mod keys;
mod never;
mod types;
mod values;

pub use index::{Bound, IndexCondition, Test, TypeTest, index_condition};
pub use interval::{End, Interval};
pub(crate) use keys::keys_restriction;
pub use keys::{
    KeyRestriction, NamedItems, OrderedKeys, fixed_values, key_restriction, named_items, ordered_keys,
};
pub(crate) use never::{Verdict, verdict};

use orrery_model::container::{IndexPath, IndexStep};

use crate::program::{Block, DOCUMENT, Node, Source, SourceRows, Step};

/// The property path that each slot stands for, where it stands for one.
struct Slots {
    known: Vec<(usize, IndexPath)>,
}

impl Slots {
    /// The slots of a block; those of enclosing blocks are kept.
    fn of(block: &Block) -> Self {
        let mut slots = Self { known: vec![(DOCUMENT, IndexPath(Vec::new()))] };
        slots.extend(block);
        slots
    }

    fn extend(&mut self, block: &Block) {
        for Source { slot, iterate, rows } in &block.sources {
            let SourceRows::Value(node) = rows else {
                continue;
            };
            if let Some(mut path) = self.path(node) {
                if *iterate {
                    path.0.push(IndexStep::Element);
                }
                self.known.push((*slot, path));
            }
        }
    }

    /// The document path of an expression, if it is one.
    fn path(&self, node: &Node) -> Option<IndexPath> {
        let (slot, steps) = match node {
            Node::Slot(slot) => (slot, &[][..]),
            Node::Path { slot, steps } => (slot, &steps[..]),
            _ => return None,
        };
        let (_, base) = self.known.iter().find(|(known, _)| known == slot)?;
        let mut path = base.clone();
        path.0.extend(steps.iter().map(|step| match step {
            Step::Name(name) => IndexStep::Property(name.clone()),
            Step::Index(_) => IndexStep::Element,
        }));
        // An index into an array is found among all elements, so the condition gets weaker.
        Some(path)
    }
}
