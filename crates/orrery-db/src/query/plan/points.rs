//! Items that a query names individually, by partition key and id: they are read directly, without an index or a scan.
//! SDKs that read many items at once send such queries.

use orrery_model::partition_key::EpkRange;
use orrery_query::Program;
use orrery_query::filter::named_items;
use orrery_storage::{Key, KeyRange};

use crate::catalog::{Container, Partition};
use crate::layout::keys;
use crate::query::options::QueryOptions;

/// The only possible matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Points {
    /// Their keys, sorted and deduplicated.
    keys: Vec<Key>,
    /// Whether each existing one matches, so that the filter need not be evaluated.
    pub is_exact: bool,
}

impl Points {
    /// Finds the items that the filter names inside the windows.
    pub(crate) fn find(
        container: &Container,
        options: &QueryOptions,
        program: &Program,
        windows: &[EpkRange],
    ) -> Option<Self> {
        let definition = &container.definition.partition_key;
        let within = options.scope.partition_key.as_ref().filter(|key| definition.is_full(key));
        let named = named_items(program, definition, within)?;
        let mut item_keys = Vec::with_capacity(named.items.len());
        let mut is_exact = named.is_exact;
        for (key, id) in &named.items {
            let effective = definition.effective_key(key);
            // Another key may have the same hash, so the filter must be evaluated.
            is_exact &= !definition.may_collide(key);
            // The last window that begins at or before the key is the only one that can contain it.
            let after = windows.partition_point(|window| window.min <= effective);
            if after > 0 && windows[after - 1].contains(&effective) {
                item_keys.push(keys::item(&effective, id));
            }
        }
        // In key order, so that pages continue by key and each item is read once however often it is named.
        item_keys.sort_unstable();
        item_keys.dedup();
        Some(Self { keys: item_keys, is_exact })
    }

    /// The items of one partition, from a key on.
    pub(crate) fn within(&self, partition: &Partition, start: &Key) -> Vec<Key> {
        let KeyRange { start: first, end } = keys::items_in(&partition.range);
        let from = self.keys.partition_point(|key| *key < first || key < start);
        let to = end.map_or(self.keys.len(), |end| self.keys.partition_point(|key| *key < end));
        self.keys.get(from..to).unwrap_or_default().to_vec()
    }

    pub(crate) fn count(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn label(&self) -> String {
        match self.count() {
            1 => "1 item by key".to_owned(),
            count => format!("{count} items by key"),
        }
    }
}
