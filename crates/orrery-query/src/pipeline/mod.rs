//! Runs a program over rows supplied by the caller.
//!
//! The caller feeds documents in its order and takes the results; there is no I/O here. The pipeline's [`Shape`]
//! determines how far results can be streamed, and how a later page resumes.
//!
//! * [`Shape::Once`]: no documents are read; call [`Pipeline::finish`].
//! * [`Shape::Stream`]: each document gives its rows at once. A page may end after any row and the
//!   next one begins at that input position, with [`Options::passed`] rows already counted against
//!   OFFSET, LIMIT and TOP.
//! * [`Shape::Sort`]: all input is needed, but with [`Options::page_rows`] only one page of rows is
//!   kept. The next page feeds all input again and resumes after a sort position.
//! * [`Shape::Collect`]: groups, distinct or ranked rows. All input is needed; the next page runs
//!   again and skips [`Options::passed`] rows.
//!
//! A rewritten query for one range needs no special handling: its text says everything.

mod rank;
mod resume;
mod sort;

use std::sync::Arc;

use orrery_model::{Number, Value};

pub use resume::{ResumePoint, ResumeValue};

use self::rank::RankedRows;
use self::sort::{SortedRow, Sorter};
use crate::aggregate::{CellMeter, DistinctValues};
use crate::context::Context;
use crate::error::EvalError;
use crate::eval::group::GroupTable;
use crate::eval::subquery::{bind_rows, for_each_filtered, for_each_match};
use crate::eval::{Env, project};
use crate::operand::{Operand, borrowed};
use crate::order;
use crate::program::{Block, DOCUMENT, Program, Projection, SourceRows};

/// A document to evaluate.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub document: &'a Value,
    /// The document's number in its resource id: rows that sort alike come in this order. It must be
    /// unique among the rows of a run, over all partitions that are fed, or a page that resumes after
    /// a tie could lose rows.
    pub ordinal: u64,
    /// The bytes of the document's text, where the caller keeps it for its row
    /// ([`Options::documents_by_reference`]): they count against what a sort may hold.
    pub text_bytes: usize,
}

/// A result row.
#[derive(Clone, Debug)]
pub struct Output {
    pub value: Value,
    /// Which fed document it comes from, counted from 0. Groups come from none.
    pub input: u64,
    /// Which of the document's rows it is, counted from 0: joins make several.
    pub row: u32,
    /// Its place in the order, for shape [`Shape::Sort`].
    pub position: Option<ResumePoint>,
    /// The value of [`Options::passed`] for a page that starts after this row.
    pub passed: u64,
}

/// How results are produced, and how a later page resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Once,
    Stream,
    Sort,
    Collect {
        /// Whether rows come out while input goes in, as DISTINCT does without ORDER BY.
        incremental: bool,
    },
}

/// Where a run starts and how much it keeps.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Rows that earlier pages let pass, as their last [`Output::passed`] says. Where input goes on
    /// from a place they count against OFFSET, LIMIT and TOP; where all of it is fed again they are
    /// made again and left out.
    pub passed: u64,
    /// Rows of the first fed document that an earlier page has already returned. If that document
    /// turns out to be gone, say so with [`Pipeline::forget_skipped_rows`].
    pub skip_rows: u32,
    /// How many sorted rows this page can return. It keeps fewer if they are large; either way
    /// [`Pipeline::has_more`] tells that rows were left. Where rows come as documents do, a document is left when so
    /// many are ready: [`Pipeline::cut_at`].
    pub page_rows: Option<usize>,
    /// Bytes of rows that may be ready before a document is left in the same way.
    pub page_bytes: Option<usize>,
    /// Sorted rows before this place are left out.
    pub resume: Vec<ResumePoint>,
    /// Where a row is the document as it was fed ([`Program::returns_documents`]), leave its value
    /// null: the caller has the document, and its text, under [`Output::input`].
    pub documents_by_reference: bool,
    /// Every document that is fed is known to satisfy the filter, as where
    /// [`crate::filter::NamedItems::is_exact`] says so: it is not evaluated.
    pub filter_holds: bool,
}

/// One run of a program.
pub struct Pipeline {
    program: Arc<Program>,
    options: Options,
    /// For a FROM subquery over the whole container whose rows need collecting: its own run.
    inner: Option<Box<Stage>>,
    stage: Stage,
    window: Window,
    fed: u64,
    /// How often the document that is being fed occurs.
    times: i64,
    outputs: Vec<Output>,
    /// About what the outputs take in memory.
    output_bytes: usize,
    /// The row of the last document at which it was left.
    cut_at: Option<u32>,
    finished: bool,
}

/// OFFSET, LIMIT and TOP, counting rows across pages.
struct Window {
    passed: u64,
    offset: u64,
    end: u64,
}

impl Window {
    fn new(program: &Program, passed: u64) -> Self {
        let block = &program.block;
        let (offset, end) = (block.offset.unwrap_or(0), block.rows_max().unwrap_or(u64::MAX));
        // The first two resume behind the rows of earlier pages. The others start over and skip them;
        // `passed` includes the rows that OFFSET skipped, so the larger number counts.
        match program.shape() {
            Shape::Stream | Shape::Sort => Self { passed, offset, end },
            Shape::Once | Shape::Collect { .. } => Self { passed: 0, offset: offset.max(passed), end },
        }
    }

    fn is_full(&self) -> bool {
        self.passed >= self.end
    }

    /// Whether the next row is to be returned.
    fn admit(&mut self) -> bool {
        let admitted = self.passed >= self.offset && self.passed < self.end;
        self.passed += 1;
        admitted
    }
}

/// The state of one block over its input.
struct Stage {
    state: State,
    seen: DistinctValues,
    meter: CellMeter,
}

enum State {
    Stream,
    Group(Option<GroupTable>),
    Sort(Sorter),
    Rank(RankedRows),
}

impl Stage {
    fn new(block: &Block, state: State) -> Self {
        // A grouped block keeps groups, whatever its order: they are sorted when they are complete.
        let state = match (&block.grouping, state) {
            (Some(grouping), _) => State::Group(Some(GroupTable::new(grouping))),
            (None, state) => state,
        };
        Self { state, seen: DistinctValues::default(), meter: CellMeter::default() }
    }

    /// Whether a row is to be kept; DISTINCT drops repetitions.
    fn is_new(&mut self, block: &Block, value: &Value, context: &Context<'_>) -> Result<bool, EvalError> {
        if !block.distinct {
            return Ok(true);
        }
        let new = self.seen.insert(value, context)?;
        if new {
            self.meter.add(order::cells(value), context)?;
        }
        Ok(new)
    }
}

impl Pipeline {
    pub fn new(program: Arc<Program>, options: Options) -> Self {
        let block = &program.block;
        let window = Window::new(&program, options.passed);
        let state = if let Some(ranking) = &program.rank {
            State::Rank(RankedRows::new(ranking))
        } else if block.order.is_empty() {
            State::Stream
        } else {
            let remaining = if block.distinct { u64::MAX } else { window.end.saturating_sub(window.passed) };
            let skipped = window.offset.saturating_sub(window.passed);
            // Distinct rows are counted after the sort, so all of them are kept.
            let page =
                options.page_rows.filter(|_| !block.distinct).map(|rows| skipped.saturating_add(rows as u64));
            State::Sort(Sorter::new(&block.order, remaining, page, options.resume.clone()))
        };
        let stage = Stage::new(block, state);
        // A source that collects has no order of its own: its rows are groups or distinct values.
        let inner = collected_source(block).map(|inner| Box::new(Stage::new(inner, State::Stream)));
        Self {
            options,
            inner,
            stage,
            window,
            fed: 0,
            times: 1,
            outputs: Vec::new(),
            output_bytes: 0,
            cut_at: None,
            finished: false,
            program,
        }
    }

    pub fn shape(&self) -> Shape {
        self.program.shape()
    }

    /// The document whose rows were to be skipped is not there any more: the next one is a whole one.
    pub fn forget_skipped_rows(&mut self) {
        self.options.skip_rows = 0;
    }

    /// Takes one document.
    pub fn feed(&mut self, row: Row<'_>, context: &Context<'_>) -> Result<(), EvalError> {
        self.feed_times(row, 1, context)
    }

    /// Takes equal documents at once, where the program has a [`Program::covering_path`].
    pub fn feed_times(&mut self, row: Row<'_>, times: i64, context: &Context<'_>) -> Result<(), EvalError> {
        self.check_supported()?;
        let values = [borrowed(row.document)];
        let env = Env::default();
        let env = Env::bind(&env, &[DOCUMENT], &values);
        let program = Arc::clone(&self.program);
        let input = self.fed;
        self.fed += 1;
        self.times = times;
        self.cut_at = None;
        // The outer block sees the rows of a collecting subquery in `finish`.
        if let (Some(inner), Some(block)) = (&mut self.inner, collected_source(&program.block)) {
            return inner_feed(inner, block, env, context);
        }
        let mut number = 0u32;
        // Only the first document of a page can have been returned in part.
        let skip = if input == 0 { self.options.skip_rows } else { 0 };
        let filter = program.block.filter.as_ref().filter(|_| !self.options.filter_holds);
        for_each_filtered(&program.block, filter, env, context, &mut |env| {
            let row_number = number;
            number += 1;
            if row_number < skip {
                return Ok(true);
            }
            self.matched(&program, env, context, (input, row.ordinal, row_number), row.text_bytes)
        })?;
        Ok(())
    }

    /// Refuses what can be planned but not executed, whether there are documents or not.
    fn check_supported(&self) -> Result<(), EvalError> {
        if self.program.collects_inside {
            return Err(EvalError::Message(
                "Aggregates, GROUP BY and DISTINCT over the whole container are supported in the outermost FROM subquery only."
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Takes a row that passed the filter. False: no more rows are wanted.
    fn matched(
        &mut self,
        program: &Program,
        env: Env<'_>,
        context: &Context<'_>,
        (input, ordinal, row): (u64, u64, u32),
        text_bytes: usize,
    ) -> Result<bool, EvalError> {
        let block = &program.block;
        let by_reference = self.options.documents_by_reference && program.returns_documents();
        match &mut self.stage.state {
            State::Group(table) => {
                if let (Some(grouping), Some(table)) = (&block.grouping, table) {
                    table.add(grouping, env, self.times, context, &mut self.stage.meter)?;
                }
                Ok(true)
            }
            State::Sort(sorter) => {
                sorter.add(block, env, context, (input, ordinal, row), by_reference.then_some(text_bytes))?;
                Ok(true)
            }
            State::Rank(ranked) => {
                if let Some(ranking) = &program.rank {
                    ranked.add(ranking, block, env, context, ordinal)?;
                }
                Ok(true)
            }
            State::Stream => {
                // Joins make several rows of one document, so the limit may be reached inside it.
                if self.window.is_full() {
                    return Ok(false);
                }
                if by_reference {
                    // The caller puts the stored text in its place.
                    self.emit(block, Value::Null, (input, row), None, context)?;
                } else if let Some(value) = project(&block.projection, env, context)? {
                    self.output_bytes += order::bytes(&value);
                    self.emit(block, value, (input, row), None, context)?;
                }
                // Checked after the row was added: a page has at least one row, however large.
                let is_page_full = self.options.page_rows.is_some_and(|rows| self.outputs.len() >= rows)
                    || self.options.page_bytes.is_some_and(|bytes| self.output_bytes >= bytes);
                if is_page_full {
                    self.cut_at = Some(row + 1);
                }
                Ok(!is_page_full && !self.window.is_full())
            }
        }
    }

    /// Lets a row through DISTINCT and the window.
    fn emit(
        &mut self,
        block: &Block,
        value: Value,
        (input, row): (u64, u32),
        position: Option<ResumePoint>,
        context: &Context<'_>,
    ) -> Result<(), EvalError> {
        if self.stage.is_new(block, &value, context)? && self.window.admit() {
            // Rows that are skipped need not be representable.
            check_finite(&value)?;
            self.outputs.push(Output { value, input, row, position, passed: self.window.passed });
        }
        Ok(())
    }

    /// Tells that all input was fed. The remaining results become available.
    pub fn finish(&mut self, context: &Context<'_>) -> Result<(), EvalError> {
        // A second call changes nothing.
        if std::mem::replace(&mut self.finished, true) {
            return Ok(());
        }
        self.check_supported()?;
        let program = Arc::clone(&self.program);
        let block = &program.block;
        // No document was fed: the whole query is evaluated here.
        if !program.reads_documents {
            for_each_match(block, Env::default(), context, &mut |env| {
                self.matched(&program, env, context, (0, 0, 0), 0)
            })?;
        }
        if let (Some(inner), Some(inner_block)) = (self.inner.take(), collected_source(block)) {
            self.feed_collected(&program, *inner, inner_block, context)?;
        }
        match std::mem::replace(&mut self.stage.state, State::Stream) {
            State::Stream => {}
            State::Group(table) => {
                if let (Some(grouping), Some(table)) = (&block.grouping, table) {
                    table.finish(grouping, &block.projection, Env::default(), context, &mut |value| {
                        if let Some(value) = value {
                            self.emit(block, value, (0, 0), None, context)?;
                        }
                        Ok(!self.window.is_full())
                    })?;
                }
            }
            State::Sort(sorter) => self.emit_sorted(block, sorter, context)?,
            State::Rank(ranked) => {
                if let Some(ranking) = &program.rank {
                    for value in ranked.finish(ranking, context)? {
                        self.emit(block, value, (0, 0), None, context)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn emit_sorted(&mut self, block: &Block, sorter: Sorter, context: &Context<'_>) -> Result<(), EvalError> {
        let page_rows = self.options.page_rows.unwrap_or(usize::MAX);
        let (rows, dropped) = sorter.finish();
        for SortedRow { position, value, input, row } in rows {
            if self.window.is_full() {
                break;
            }
            // There is at least one row more than the page holds.
            if self.outputs.len() >= page_rows {
                self.finished_early();
                return Ok(());
            }
            self.emit(block, value, (input, row), Some(position), context)?;
        }
        // The sorter keeps only what one page can return, so the next page finds rows that are missing here.
        if dropped && !self.window.is_full() {
            self.finished_early();
        }
        Ok(())
    }

    fn finished_early(&mut self) {
        // Also the mark that `has_more` looks for.
        self.options.page_rows = Some(0);
    }

    /// Whether sorted rows were left for a later page.
    pub fn has_more(&self) -> bool {
        self.finished && self.options.page_rows == Some(0)
    }

    /// Feeds the rows of a collected FROM subquery to the block around it.
    fn feed_collected(
        &mut self,
        program: &Program,
        inner: Stage,
        inner_block: &Block,
        context: &Context<'_>,
    ) -> Result<(), EvalError> {
        let Some((source, rest)) = program.block.sources.split_first() else {
            return Ok(());
        };
        let rows = inner_finish(inner, inner_block, context)?;
        // Rows of the subquery take the place of documents. They have no RID, so their index is their
        // ordinal.
        for (index, row) in rows.iter().enumerate() {
            let operand: Operand<'_> = borrowed(row);
            let mut number = 0;
            let go_on = bind_rows(source, operand, rest, Env::default(), context, &mut |env| {
                number += 1;
                if let Some(filter) = &program.block.filter
                    && !crate::eval::is_true(filter, env, context)?
                {
                    return Ok(true);
                }
                self.matched(program, env, context, (index as u64, index as u64, number - 1), 0)
            })?;
            if !go_on {
                break;
            }
        }
        Ok(())
    }

    /// Takes the results so far, in order.
    pub fn take(&mut self) -> Vec<Output> {
        self.output_bytes = 0;
        std::mem::take(&mut self.outputs)
    }

    /// Where rows come as documents do: the last document was left at this row because the page is full. It goes on
    /// there when it is fed again with so many [`Options::skip_rows`].
    pub fn cut_at(&self) -> Option<u32> {
        self.cut_at
    }

    /// How many results are waiting to be taken.
    pub fn ready(&self) -> usize {
        self.outputs.len()
    }

    /// Whether further input cannot change anything: TOP or LIMIT is reached.
    pub fn is_done(&self) -> bool {
        self.finished
            || (self.window.is_full()
                // Collected rows fill the window only in `finish`, after all input; an empty window needs no
                // input at all.
                && (self.window.end == 0
                    || (matches!(self.stage.state, State::Stream) && self.inner.is_none())))
    }

    /// For input that comes in the order of the query: whether documents that sort after all fed so far
    /// cannot change this page any more.
    pub fn is_settled(&self) -> bool {
        matches!(&self.stage.state, State::Sort(sorter) if sorter.is_settled())
    }

    /// Whether the rows may depend on the order in which documents were fed, as sums do that were rounded.
    pub fn depends_on_order(&self) -> bool {
        matches!(&self.stage.state, State::Group(Some(table)) if table.depends_on_order())
    }

    /// How many documents were fed.
    pub fn fed(&self) -> u64 {
        self.fed
    }

    /// Whether the document that was fed last has a row that is kept to be sorted.
    pub fn keeps_last(&self) -> bool {
        matches!(&self.stage.state, State::Sort(sorter) if sorter.last_kept.is_some_and(|input| input + 1 == self.fed))
    }

    /// The documents, counted from 0, whose rows are kept to be sorted.
    pub fn kept_inputs(&self) -> impl Iterator<Item = u64> {
        let sorter = match &self.stage.state {
            State::Sort(sorter) => Some(sorter),
            _ => None,
        };
        sorter.into_iter().flat_map(Sorter::inputs)
    }

    /// How many rows came too late in the order to enter this page. Input that comes in order can stop
    /// after one of them.
    pub fn rows_lost(&self) -> u64 {
        match &self.stage.state {
            State::Sort(sorter) => sorter.lost,
            _ => 0,
        }
    }

    /// The rows counted against OFFSET, LIMIT and TOP so far, including earlier pages.
    pub fn passed(&self) -> u64 {
        self.window.passed
    }
}

impl Program {
    /// Whether every row is a fed document, unchanged: `SELECT * FROM c`, streamed or sorted.
    pub fn returns_documents(&self) -> bool {
        let block = &self.block;
        matches!(block.projection, Projection::Row(DOCUMENT))
            && block.sources.is_empty()
            && !block.distinct
            && block.grouping.is_none()
            && self.rank.is_none()
    }

    /// The maximum number of rows the query needs, including skipped ones.
    pub fn rows_max(&self) -> Option<u64> {
        self.block.rows_max()
    }

    /// How the results of this program come out.
    pub fn shape(&self) -> Shape {
        let block = &self.block;
        if !self.reads_documents {
            Shape::Once
        } else if block.grouping.is_some() || self.rank.is_some() || collected_source(block).is_some() {
            Shape::Collect { incremental: false }
        } else if block.distinct {
            Shape::Collect { incremental: block.order.is_empty() }
        } else if block.order.is_empty() {
            Shape::Stream
        } else {
            Shape::Sort
        }
    }
}

/// The first source, if its rows are collected before the block around it sees them.
fn collected_source(block: &Block) -> Option<&Block> {
    match block.sources.first().map(|source| &source.rows) {
        Some(SourceRows::Subquery(inner)) if block.collects_first => Some(inner),
        _ => None,
    }
}

fn inner_feed(
    inner: &mut Stage,
    block: &Block,
    env: Env<'_>,
    context: &Context<'_>,
) -> Result<(), EvalError> {
    for_each_match(block, env, context, &mut |env| {
        if let (State::Group(Some(table)), Some(grouping)) = (&mut inner.state, &block.grouping) {
            table.add(grouping, env, 1, context, &mut inner.meter)?;
        } else if let Some(value) = project(&block.projection, env, context)? {
            // The rows of a DISTINCT subquery are the values seen, so nothing else has to keep them.
            inner.is_new(block, &value, context)?;
        }
        Ok(true)
    })?;
    Ok(())
}

fn inner_finish(inner: Stage, block: &Block, context: &Context<'_>) -> Result<Vec<Value>, EvalError> {
    let mut seen = inner.seen;
    if let (State::Group(Some(table)), Some(grouping)) = (inner.state, &block.grouping) {
        let mut rows = Vec::new();
        table.finish(grouping, &block.projection, Env::default(), context, &mut |value| {
            if let Some(value) = value
                && (!block.distinct || seen.insert(&value, context)?)
            {
                rows.push(value);
            }
            Ok(true)
        })?;
        return Ok(rows);
    }
    Ok(seen.into_values())
}

/// Rejects values that JSON cannot represent.
pub(crate) fn check_finite(value: &Value) -> Result<(), EvalError> {
    match value {
        Value::Number(Number::Double(number)) if !number.is_finite() => Err(EvalError::NotFinite),
        Value::Array(items) => items.iter().try_for_each(check_finite),
        Value::Object(object) => object.iter().try_for_each(|(_, value)| check_finite(value)),
        _ => Ok(()),
    }
}
