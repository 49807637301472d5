//! Chooses the access path of a page.

use orrery_model::Result;
use orrery_query::choice::{Choice, Chosen, Merits, Step};

use super::run::Run;
use crate::catalog::Partition;
use crate::partition::Receipt;
use crate::query::metrics::Considered;
use crate::query::plan::access::{AccessPath, AccessPaths, Candidate, Sequence};

/// The maximum number of items of the requested keys to count before using entries of all keys.
const OWN_ITEMS_MAX: usize = 1024;
/// Up to this many items are sorted directly.
const OWN_ITEMS_FEW: usize = 64;
/// Entries sampled to estimate how many belong to the requested keys.
const SEQUENCE_ENTRIES: usize = 128;

impl Run<'_> {
    /// Chooses the access path: the items that the filter names, the index order, the candidate with the fewest entries, or all items.
    pub(crate) async fn choose(
        &mut self,
        receipt: &mut Receipt,
        paths: AccessPaths,
        sequence: Option<Sequence>,
    ) -> Result<AccessPath> {
        if let Some(points) = paths.points {
            let (access, entries) = (points.label(), Some(points.count()));
            self.metrics.considered.push(Considered { access, entries, is_more: false });
            return Ok(AccessPath::Points(points));
        }
        let mut candidates = paths.candidates;
        candidates.retain(|candidate| !candidate.names_key);
        let Some(partition) = self.reader.partitions().into_iter().next() else {
            return Ok(AccessPath::Items);
        };
        // With specific keys, entries of other keys lie in between. Whether to read those depends on how many items the
        // keys have.
        let sequence = match sequence {
            Some(sequence) if self.by_keys => {
                self.is_dense(receipt, &partition, &sequence).await?.then_some(sequence)
            }
            sequence => sequence,
        };
        // Ties do not depend on the order of conditions in the filter.
        candidates.sort_by(|a, b| a.label.cmp(&b.label));
        // Reading the same entries in order is at least as good.
        let is_order = |candidate: &Candidate| {
            sequence.as_ref().is_some_and(|sequence| *candidate.ranges == [sequence.range.clone()])
        };
        let merits = candidates.iter().map(|candidate| Merits {
            is_narrow: candidate.is_narrow,
            is_selective: candidate.is_selective,
            is_point: candidate.is_point,
            is_order: is_order(candidate),
        });
        let mut choice = Choice::new(merits.collect(), sequence.is_some(), self.options.probe_all);
        while let Some(step) = choice.next_step() {
            let (way, entries, is_more) = match step {
                Step::Probe { way, count_max } => {
                    let probed = self.reader.probe(receipt, &partition, &candidates[way], count_max).await?;
                    choice.counted(way, probed);
                    (way, Some(probed), probed >= count_max)
                }
                Step::ProbeAgain { way, count_max } => {
                    let probed =
                        self.reader.probe_unpaid(receipt, &partition, &candidates[way], count_max).await?;
                    choice.counted(way, probed);
                    self.metrics.considered.retain(|considered| considered.access != candidates[way].label);
                    (way, Some(probed), probed >= count_max)
                }
                Step::Unprobed { way } | Step::Beaten { way } => (way, None, false),
            };
            let access = candidates[way].label.clone();
            self.metrics.considered.push(Considered { access, entries, is_more });
        }
        if let Some(sequence) = &sequence {
            let access = sequence.label.clone();
            self.metrics.considered.push(Considered { access, entries: None, is_more: false });
        }
        Ok(match (choice.chosen(), sequence) {
            (Chosen::Way(way), _) => AccessPath::of(candidates.swap_remove(way)),
            (Chosen::Order, Some(sequence)) => AccessPath::Sequence(sequence),
            (Chosen::Order | Chosen::Scan, _) => AccessPath::Items,
        })
    }

    /// Whether following the index order is cheaper than sorting all items of the requested keys: it also reads the
    /// entries of all other keys.
    async fn is_dense(
        &self,
        receipt: &mut Receipt,
        partition: &Partition,
        sequence: &Sequence,
    ) -> Result<bool> {
        let own_items = self.reader.probe_items(receipt, partition, OWN_ITEMS_MAX).await?;
        if own_items <= self.rows_max.max(OWN_ITEMS_FEW) {
            return Ok(false);
        }
        let (own, all) = self.reader.probe_sequence(receipt, partition, sequence, SEQUENCE_ENTRIES).await?;
        // Skipping an entry costs a fraction of loading an item.
        Ok(own > 0 && self.rows_max.saturating_mul(all) / own <= own_items.saturating_mul(4))
    }
}
