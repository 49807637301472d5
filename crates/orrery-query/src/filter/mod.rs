//! Static analysis of filters.
//!
//! Three things are derived from the compiled filter: the partition key values it names ([`key_restriction`]), single
//! items ([`named_items`]), and conditions that an index can answer ([`index_condition`]). All of them are necessary
//! conditions: documents are still checked against the filter itself, unless it does nothing but name items.

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

/// The property path of each slot, if it has one.
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
        // An array index is weakened to any element.
        Some(path)
    }
}
