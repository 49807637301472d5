//! Chooses among the ways in which an index can find the matches of a filter.
//!
//! A way is probed by counting its first entries in one partition. [`Choice`] says which way to probe next and what
//! the counts mean; the caller counts entries, or estimates them. The server and the advisor both decide this way.
//!
//! Several ways can have more entries than a probe counts. They are then counted further, once, and if that does not
//! tell them apart either, single values go before ranges. Only a tie that is left after that is decided by position,
//! so callers pass the ways in an order that does not depend on how the query was written.

/// Entries counted to evaluate a candidate.
pub const PROBE_ENTRIES: usize = 128;
/// Entries counted in the second round, of ways that have more than [`PROBE_ENTRIES`].
pub const PROBE_ENTRIES_AGAIN: usize = 1024;
/// [`PROBE_ENTRIES`] where the index also has the order of the query. Following the order may lead past any number of items that
/// do not match, so it must be clear that sorting those that do would be much work.
pub const PROBE_ENTRIES_BEFORE_ORDER: usize = 2048;

/// What is known about a candidate before it is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts")]
pub struct Merits {
    /// Only entries of the requested keys are read.
    pub is_narrow: bool,
    /// Worth following even if it leads to many items.
    pub is_selective: bool,
    /// It asks for single values, not for a range of them.
    pub is_point: bool,
    /// Its entries are those of the sort order: reading them in order is at least as good.
    pub is_order: bool,
}

/// What to do with a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Count its entries up to `count_max`, and report them to [`Choice::counted`].
    Probe { way: usize, count_max: usize },
    /// The same again with a higher maximum. This is the planner's own work: it is not charged.
    ProbeAgain { way: usize, count_max: usize },
    /// Use it without counting, unless another has no entries at all.
    Unprobed { way: usize },
    /// Skip it: a more selective one was found.
    Beaten { way: usize },
}

/// The chosen candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    Way(usize),
    /// The index in sort order.
    Order,
    /// All items.
    Scan,
}

/// A choice in progress.
#[derive(Clone, Debug)]
pub struct Choice {
    merits: Vec<Merits>,
    /// The candidates in probing order, next one last.
    waiting: Vec<usize>,
    count_max: usize,
    has_order: bool,
    probes_all: bool,
    several: bool,
    /// The candidate with the fewest entries so far.
    best: Option<(usize, usize)>,
    /// Ways that would be followed however many entries they have, and have more than were counted.
    level: Vec<usize>,
}

impl Choice {
    /// `has_order`: an index provides the sort order. `probes_all`: count even if there is no choice.
    pub fn new(merits: Vec<Merits>, has_order: bool, probes_all: bool) -> Self {
        let mut waiting: Vec<usize> = (0..merits.len()).collect();
        // Taken from the end: narrow ways first, then selective ones, each in the caller's order.
        waiting.sort_by_key(|way| (!merits[*way].is_narrow, !merits[*way].is_selective));
        waiting.reverse();
        let count_max = if has_order { PROBE_ENTRIES_BEFORE_ORDER } else { PROBE_ENTRIES };
        let several = merits.len() > 1 || has_order;
        Self { merits, waiting, count_max, has_order, probes_all, several, best: None, level: Vec::new() }
    }

    /// What to do with the next candidate; none once all have been considered.
    pub fn next_step(&mut self) -> Option<Step> {
        loop {
            let Some(way) = self.waiting.pop() else {
                self.begin_second_round()?;
                continue;
            };
            let merits = self.merits[way];
            if self.count_max == PROBE_ENTRIES_AGAIN {
                return Some(Step::ProbeAgain { way, count_max: self.count_max });
            }
            // Entries of the requested keys only are preferred to those of all keys.
            if self.best.is_some_and(|(_, best)| self.merits[best].is_narrow && !merits.is_narrow) {
                return Some(Step::Beaten { way });
            }
            // Following these entries and following the order are the same, so `Chosen::Order` stands for
            // both.
            if self.has_order && merits.is_order {
                continue;
            }
            if self.several || self.probes_all || !merits.is_selective || !merits.is_narrow {
                return Some(Step::Probe { way, count_max: self.count_max });
            }
            // The only way, to be used however many entries it has: counting them would tell nothing.
            self.counted(way, 0);
            return Some(Step::Unprobed { way });
        }
    }

    /// Counts further where the first round left several ways level.
    fn begin_second_round(&mut self) -> Option<()> {
        let is_undecided = self.best.is_some_and(|(fewest, _)| fewest >= self.count_max);
        // Counting on helps only between ways that are followed in any case, and where no order competes with
        // them.
        if self.has_order || self.count_max == PROBE_ENTRIES_AGAIN || !is_undecided || self.level.len() < 2 {
            return None;
        }
        self.count_max = PROBE_ENTRIES_AGAIN;
        // The second counts replace the first.
        self.best = None;
        self.waiting = std::mem::take(&mut self.level);
        self.waiting.reverse();
        Some(())
    }

    /// Records how many entries were counted for a candidate.
    pub fn counted(&mut self, way: usize, entries: usize) {
        let merits = self.merits[way];
        // So many entries are no better than a scan.
        if entries >= self.count_max && !(merits.is_selective && merits.is_narrow) {
            return;
        }
        if entries >= self.count_max {
            self.level.push(way);
        }
        let rank = |entries: usize, way: usize| (entries, !self.merits[way].is_point);
        if self.best.is_none_or(|(fewest, best)| rank(entries, way) < rank(fewest, best)) {
            self.best = Some((entries, way));
        }
    }

    /// The final choice.
    pub fn chosen(&self) -> Chosen {
        match self.best {
            // If the index has the order, a way must be known to be short to be worth sorting for.
            Some((entries, way)) if !self.has_order || entries < self.count_max => Chosen::Way(way),
            _ if self.has_order => Chosen::Order,
            _ => Chosen::Scan,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Merits = Merits { is_narrow: true, is_selective: true, is_point: true, is_order: false };
    const RANGE: Merits = Merits { is_point: false, ..NARROW };
    const WIDE: Merits = Merits { is_narrow: false, ..NARROW };
    const VAGUE: Merits = Merits { is_selective: false, ..NARROW };

    fn choose(merits: &[Merits], has_order: bool, counts: &[usize]) -> Chosen {
        let mut choice = Choice::new(merits.to_vec(), has_order, false);
        while let Some(step) = choice.next_step() {
            if let Step::Probe { way, count_max } | Step::ProbeAgain { way, count_max } = step {
                choice.counted(way, counts[way].min(count_max));
            }
        }
        choice.chosen()
    }

    #[test]
    fn the_fewest_entries_win() {
        assert_eq!(choose(&[NARROW, NARROW], false, &[90, 7]), Chosen::Way(1));
        assert_eq!(choose(&[NARROW], false, &[100_000]), Chosen::Way(0));
    }

    #[test]
    fn level_ways_are_counted_further() {
        assert_eq!(choose(&[NARROW, NARROW], false, &[500, 300]), Chosen::Way(1));
        assert_eq!(choose(&[NARROW, NARROW, NARROW], false, &[900, 5000, 800]), Chosen::Way(2));
        // A range with few entries goes before a value with many.
        assert_eq!(choose(&[NARROW, RANGE], false, &[5000, 300]), Chosen::Way(1));
        // Both have more than were counted: a single value is likelier to have fewer, then the first is as good as any.
        assert_eq!(choose(&[RANGE, NARROW], false, &[2000, 9000]), Chosen::Way(1));
        assert_eq!(choose(&[NARROW, RANGE], false, &[9000, 2000]), Chosen::Way(0));
        assert_eq!(choose(&[NARROW, NARROW], false, &[2000, 2000]), Chosen::Way(0));
    }

    #[test]
    fn many_entries_of_other_keys_are_not_followed() {
        assert_eq!(choose(&[WIDE], false, &[127]), Chosen::Way(0));
        assert_eq!(choose(&[WIDE], false, &[128]), Chosen::Scan);
        assert_eq!(choose(&[VAGUE], false, &[128]), Chosen::Scan);
        assert_eq!(choose(&[WIDE, NARROW], false, &[1, 100]), Chosen::Way(1));
    }

    #[test]
    fn the_order_is_followed_where_sorting_would_be_much_work() {
        assert_eq!(choose(&[NARROW], true, &[2047]), Chosen::Way(0));
        assert_eq!(choose(&[NARROW], true, &[2048]), Chosen::Order);
        assert_eq!(choose(&[Merits { is_order: true, ..NARROW }], true, &[1]), Chosen::Order);
        assert_eq!(choose(&[], true, &[]), Chosen::Order);
        assert_eq!(choose(&[], false, &[]), Chosen::Scan);
    }
}
