//! Choosing how the items of a page are found.

use orrery_model::Result;

use super::run::Run;
use crate::partition::Receipt;
use crate::query::metrics::Considered;
use crate::query::plan::access::{AccessPath, AccessPaths, Candidate, Sequence};

/// Entries counted to judge a candidate.
const PROBE_ENTRIES: usize = 128;
/// The same where the index also has the order of the query. Following the order may lead past any number of
/// items that do not match, so it must be clear that sorting those that do would be much work.
const PROBE_ENTRIES_BEFORE_ORDER: usize = 2048;

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
        let mut best: Option<(usize, Candidate)> = None;
        let several = candidates.len() > 1 || sequence.is_some();
        let count_max = if sequence.is_some() { PROBE_ENTRIES_BEFORE_ORDER } else { PROBE_ENTRIES };
        candidates.sort_by_key(|candidate| (!candidate.is_narrow, !candidate.is_selective));
        for candidate in candidates {
            // Entries of the wanted keys alone are worth more than those of all keys.
            let is_beaten = |(_, best): &(usize, Candidate)| best.is_narrow && !candidate.is_narrow;
            if best.as_ref().is_some_and(is_beaten) {
                let access = candidate.label.clone();
                self.metrics.considered.push(Considered { access, entries: None, is_more: false });
                continue;
            }
            // In order the same entries do at least as well.
            let same = |sequence: &Sequence| *candidate.ranges == [sequence.range.clone()];
            if sequence.as_ref().is_some_and(same) {
                continue;
            }
            let needs_probe =
                several || self.options.probe_all || !candidate.is_selective || !candidate.is_narrow;
            let probed = if needs_probe {
                self.reader.probe(receipt, &partition, &candidate, count_max).await?
            } else {
                0
            };
            let is_more = probed >= count_max;
            self.metrics.considered.push(Considered {
                access: candidate.label.clone(),
                entries: needs_probe.then_some(probed),
                is_more,
            });
            if is_more && !(candidate.is_selective && candidate.is_narrow) {
                continue;
            }
            if best.as_ref().is_none_or(|(fewest, ..)| probed < *fewest) {
                best = Some((probed, candidate));
            }
        }
        if let Some(sequence) = &sequence {
            let access = sequence.label.clone();
            self.metrics.considered.push(Considered { access, entries: None, is_more: false });
        }
        Ok(match (best, sequence) {
            (Some((probed, candidate)), Some(_)) if probed < count_max => AccessPath::of(candidate),
            (_, Some(sequence)) => AccessPath::Sequence(sequence),
            (Some((_, candidate)), None) => AccessPath::of(candidate),
            (None, None) => AccessPath::Items,
        })
    }
}
