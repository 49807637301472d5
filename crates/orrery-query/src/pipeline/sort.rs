//! Sorted rows: all of them, or only as many as can still be wanted.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use orrery_model::Value;

use super::resume::{ResumePoint, ResumeValue};
use crate::ast::Direction;
use crate::context::{Context, Held};
use crate::error::EvalError;
use crate::eval::{self, Env, project};
use crate::limits;
use crate::operand::{self, Operand};
use crate::order;
use crate::program::{Block, OrderKey};

/// A row that came out of the sort.
pub(super) struct SortedRow {
    pub(super) position: ResumePoint,
    pub(super) value: Value,
    pub(super) input: u64,
    pub(super) row: u32,
}

/// The direction of one sort key.
#[derive(Clone, Copy)]
struct Rule {
    direction: Direction,
    undefined_last: bool,
}

impl Rule {
    fn compare(self, left: Option<&Value>, right: Option<&Value>) -> Ordering {
        if self.undefined_last && left.is_some() != right.is_some() {
            return left.is_none().cmp(&right.is_none());
        }
        self.directed(order::compare(left, right))
    }

    fn directed(self, ordering: Ordering) -> Ordering {
        match self.direction {
            Direction::Ascending => ordering,
            Direction::Descending => ordering.reverse(),
        }
    }

    /// How an operand stands to a place, in the order of the query.
    fn compare_to(self, left: Option<&Value>, right: &ResumeValue) -> Ordering {
        let right_undefined = *right == ResumeValue::Undefined;
        if self.undefined_last && left.is_none() != right_undefined {
            return left.is_none().cmp(&right_undefined);
        }
        // Reversed, because here the place is the right side.
        self.directed(right.compare(left).reverse())
    }
}

struct Entry {
    rules: Arc<[Rule]>,
    keys: Vec<Option<Value>>,
    ordinal: u64,
    input: u64,
    row: u32,
    value: Value,
    bytes: usize,
}

impl Entry {
    fn place(&self) -> (u64, u64, u32) {
        (self.ordinal, self.input, self.row)
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = self.rules.iter().zip(self.keys.iter().zip(&other.keys));
        keys.map(|(rule, (left, right))| rule.compare(left.as_ref(), right.as_ref()))
            .find(|ordering| ordering.is_ne())
            .unwrap_or_else(|| self.place().cmp(&other.place()))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

/// Keeps the best rows. The heap has the worst of them on top.
pub(super) struct Sorter {
    rules: Arc<[Rule]>,
    heap: BinaryHeap<Entry>,
    /// How many rows can be wanted at most.
    capacity: usize,
    /// Whether rows beyond the capacity belong to later pages instead of being dropped.
    capacity_is_page: bool,
    dropped: bool,
    /// Rows that came too late in the order to enter the page.
    pub(super) lost: u64,
    /// The document whose row was kept last.
    pub(super) last_kept: Option<u64>,
    /// Rows before any of these places were returned already.
    resume: Vec<ResumePoint>,
    bytes: usize,
    held: Held,
    /// Whether there are pages: then rows that take too much memory are left to the next one.
    paged: bool,
}

impl Sorter {
    /// Whether rows that sort after all those seen so far cannot change the page.
    pub(super) fn is_settled(&self) -> bool {
        // A page must also have seen a row beyond its end, or it could not tell that there is a next one.
        self.heap.len() >= self.capacity && (self.dropped || !self.capacity_is_page)
    }

    /// `wanted` rows are left before TOP or LIMIT; `page` bounds this page, if there are pages.
    pub(super) fn new(order: &[OrderKey], wanted: u64, page: Option<u64>, resume: Vec<ResumePoint>) -> Self {
        let rule = |key: &OrderKey| Rule { direction: key.direction, undefined_last: key.undefined_last };
        let capacity = page.map_or(wanted, |page| page.min(wanted));
        Self {
            rules: order.iter().map(rule).collect(),
            heap: BinaryHeap::new(),
            capacity: usize::try_from(capacity).unwrap_or(usize::MAX),
            capacity_is_page: page.is_some_and(|page| page < wanted),
            dropped: false,
            lost: 0,
            last_kept: None,
            resume,
            bytes: 0,
            held: Held::default(),
            paged: page.is_some(),
        }
    }

    /// The documents whose rows are kept.
    pub(super) fn inputs(&self) -> impl Iterator<Item = u64> {
        self.heap.iter().map(|entry| entry.input)
    }

    /// Takes a row. `by_reference`: it is the document itself, which the caller keeps, and has so many bytes.
    pub(super) fn add(
        &mut self,
        block: &Block,
        env: Env<'_>,
        context: &Context<'_>,
        (input, ordinal, row): (u64, u64, u32),
        by_reference: Option<usize>,
    ) -> Result<(), EvalError> {
        if self.capacity == 0 {
            return Ok(());
        }
        // Borrowed until it is certain that the row is kept: of a large input most are not.
        let mut keys: Vec<Operand<'_>> = Vec::with_capacity(block.order.len());
        for key in &block.order {
            keys.push(eval::evaluate(&key.node, env, context)?);
        }
        // Each is compared with the worst row, and with others on its way into the heap.
        context.bytes(keys.iter().flatten().map(|key| order::bytes(key)).sum())?;
        if self.is_before_resume(&keys, ordinal, row) {
            return Ok(());
        }
        let full = self.heap.len() >= self.capacity;
        if full && !self.beats_worst(&keys, (ordinal, input, row)) {
            // Whether the row exists at all is seen only when it is projected; a row too many here
            // costs one empty page, a row too few would lose data.
            self.dropped = true;
            self.lost += 1;
            return Ok(());
        }
        let key_bytes: usize = keys.iter().flatten().map(|key| order::bytes(key)).sum();
        let (value, bytes) = if let Some(bytes) = by_reference {
            (Value::Null, bytes + size_of::<Entry>())
        } else if let Some(value) = project(&block.projection, env, context)? {
            let bytes = order::bytes(&value);
            (value, bytes)
        } else {
            return Ok(());
        };
        // Only now, since the projection has shown that the new row exists.
        if full {
            self.drop_worst();
        }
        self.last_kept = Some(input);
        let bytes = bytes + key_bytes;
        self.bytes += bytes;
        let keys = keys.into_iter().map(operand::into_value).collect();
        let rules = Arc::clone(&self.rules);
        self.heap.push(Entry { rules, keys, ordinal, input, row, value, bytes });
        self.keep_bounded()?;
        self.held.grow_to(self.bytes, context)
    }

    fn drop_worst(&mut self) {
        if let Some(worst) = self.heap.pop() {
            self.bytes -= worst.bytes;
        }
        self.dropped = true;
    }

    fn keep_bounded(&mut self) -> Result<(), EvalError> {
        while self.paged && self.bytes > limits::SORTED_PAGE_BYTES_MAX && self.heap.len() > 1 {
            // From here on a row must beat the worst one kept, or it would come before a dropped one.
            self.drop_worst();
            self.capacity = self.heap.len();
            self.capacity_is_page = true;
        }
        if self.heap.len() > limits::SORT_ROWS_MAX || self.bytes > limits::SORT_BYTES_MAX {
            return Err(EvalError::StateTooLarge { limit: limits::SORT_ROWS_MAX });
        }
        Ok(())
    }

    fn beats_worst(&self, keys: &[Operand<'_>], place: (u64, u64, u32)) -> bool {
        let Some(worst) = self.heap.peek() else {
            return true;
        };
        let pairs = self.rules.iter().zip(keys.iter().zip(&worst.keys));
        pairs
            .map(|(rule, (key, worst))| rule.compare(key.as_deref(), worst.as_ref()))
            .find(|ordering| ordering.is_ne())
            .unwrap_or_else(|| place.cmp(&worst.place()))
            .is_lt()
    }

    fn is_before_resume(&self, keys: &[Operand<'_>], ordinal: u64, row: u32) -> bool {
        self.resume.iter().any(|resume| self.is_before(resume, keys, ordinal, row))
    }

    fn is_before(&self, resume: &ResumePoint, keys: &[Operand<'_>], ordinal: u64, row: u32) -> bool {
        let pairs = self.rules.iter().zip(keys.iter().zip(&resume.values));
        let by_keys = pairs
            .map(|(rule, (key, value))| rule.compare_to(key.as_deref(), value))
            .find(|ordering| ordering.is_ne());
        match (by_keys, resume.ordinal) {
            (Some(ordering), _) => ordering.is_lt(),
            // Without a document all rows with these values stand at this place.
            (None, None) => resume.exclude,
            (None, Some(at)) => match (ordinal, row).cmp(&(at, resume.row)) {
                Ordering::Less => true,
                Ordering::Equal => resume.exclude,
                Ordering::Greater => false,
            },
        }
    }

    /// The rows in order, and whether some were left for a later page.
    pub(super) fn finish(self) -> (impl Iterator<Item = SortedRow>, bool) {
        let rows = self.heap.into_sorted_vec().into_iter().map(|entry| SortedRow {
            // Every row carries its place, because the page may end after any of them.
            position: ResumePoint {
                values: entry.keys.iter().map(|key| ResumeValue::of(key.as_ref())).collect(),
                ordinal: Some(entry.ordinal),
                row: entry.row,
                exclude: true,
            },
            value: entry.value,
            input: entry.input,
            row: entry.row,
        });
        (rows, self.dropped && self.capacity_is_page)
    }
}
