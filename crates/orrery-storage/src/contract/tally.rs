//! Counting entries without returning them.

use super::{Key, KeyRange, ReadPage};

/// Counts the entries of a range in key order, one page at a time.
#[derive(Clone, Debug)]
pub struct Tally {
    pub range: KeyRange,
    pub by: TallyBy,
    /// At most this many entries are counted.
    pub entries_max: usize,
    /// At most this many runs are returned.
    pub runs_max: usize,
}

/// Which entries are counted together.
#[derive(Clone, Copy, Debug)]
pub enum TallyBy {
    /// All of them, as one run with an empty beginning.
    Range,
    /// Consecutive keys that begin with the same bytes. The function tells how many bytes of a key that is the first
    /// of its run; no such beginning may itself be the beginning of another one.
    Beginning(fn(&[u8]) -> usize),
}

/// Consecutive entries that are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TallyRun {
    pub beginning: Key,
    /// The entries counted on this page; the next page may start with more of the same run.
    pub count: u64,
}

/// A page of a tally while it is being counted.
pub(crate) struct TallyPage<'t> {
    tally: &'t Tally,
    page: ReadPage,
    counted: usize,
    last: Key,
}

impl<'t> TallyPage<'t> {
    pub(crate) fn new(tally: &'t Tally) -> Self {
        Self { tally, page: ReadPage::default(), counted: 0, last: Key::new() }
    }

    /// Whether the page takes no entry after those counted so far. More may be there.
    pub(crate) fn is_full(&self) -> bool {
        self.counted >= self.tally.entries_max
    }

    /// Counts the next entry; false = the page is full and the entry belongs to the next one.
    pub(crate) fn count(&mut self, key: &[u8]) -> bool {
        if self.is_full() {
            return false;
        }
        let runs = &mut self.page.runs;
        // Keys come in order and no beginning is the beginning of another, so only the last run can continue.
        let goes_on = runs.last().is_some_and(|run| key.starts_with(&run.beginning));
        if let Some(run) = runs.last_mut().filter(|_| goes_on) {
            run.count += 1;
        } else if runs.len() >= self.tally.runs_max {
            // Refused before it is counted: the next page starts with this entry.
            return false;
        } else {
            let length = match self.tally.by {
                TallyBy::Range => 0,
                TallyBy::Beginning(length) => length(key).min(key.len()),
            };
            runs.push(TallyRun { beginning: key[..length].to_vec(), count: 1 });
        }
        self.counted += 1;
        // The buffer is reused, since this runs for every entry.
        self.last.clear();
        self.last.extend_from_slice(key);
        true
    }

    /// The finished page. `more` = an entry was left.
    pub(crate) fn finish(self, more: bool) -> ReadPage {
        let reached = (self.counted > 0).then_some(self.last);
        ReadPage { reached, more, ..self.page }
    }
}

impl Tally {
    /// The tally of a page of keys that starts where the tally's range does.
    pub fn of_keys(&self, keys: impl Iterator<Item = impl AsRef<[u8]>>, more: bool) -> ReadPage {
        let mut page = TallyPage::new(self);
        for key in keys {
            if !page.count(key.as_ref()) {
                return page.finish(true);
            }
        }
        page.finish(more)
    }
}
