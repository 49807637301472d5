//! A compiled query: names are slots, parameters are constants, functions are resolved.
//!
//! A `Block` is one SELECT. Its rows are bound to slots, which are unique within the program, so expressions at any
//! depth refer to values by number. Aggregates and grouping keys are slots too: they are bound once a group is
//! complete.

use orrery_model::Value;
use orrery_model::container::DistanceFunction;

use crate::aggregate::{Aggregate, DistinctValues};
use crate::ast::{BinaryOperator, Direction, LogicalOperator, SubqueryKind, UnaryOperator};
use crate::functions::Function;
use crate::like::Pattern;

/// The slot of the document that is fed to the program.
pub(crate) const DOCUMENT: usize = 0;

/// A runnable query.
#[derive(Debug)]
pub struct Program {
    pub(crate) block: Block,
    /// Whether the query reads documents at all; `SELECT 1` runs once without any.
    pub(crate) reads_documents: bool,
    /// Whether a FROM subquery further inside than the first one collects rows of the whole container. The service plans
    /// such queries; executing one is a clear error.
    pub(crate) collects_inside: bool,
    pub(crate) rank: Option<Ranking>,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) sources: Vec<Source>,
    pub(crate) filter: Option<Node>,
    pub(crate) grouping: Option<Grouping>,
    pub(crate) projection: Projection,
    pub(crate) distinct: bool,
    pub(crate) order: Vec<OrderKey>,
    pub(crate) top: Option<u64>,
    pub(crate) offset: Option<u64>,
    pub(crate) limit: Option<u64>,
    /// Whether the first source is a subquery over all documents that must see them together, as
    /// in `FROM (SELECT DISTINCT … FROM c)`. Others are evaluated document by document.
    pub(crate) collects_first: bool,
    /// Whether there may be several rows, judging by the clauses.
    pub(crate) many: bool,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) slot: usize,
    pub(crate) iterate: bool,
    pub(crate) rows: SourceRows,
}

#[derive(Debug)]
pub(crate) enum SourceRows {
    Value(Node),
    Subquery(Box<Block>),
}

#[derive(Debug)]
pub(crate) struct Grouping {
    pub(crate) keys: Vec<Node>,
    pub(crate) aggregates: Vec<(Aggregate, Node)>,
    /// Sources whose values the group keeps: where there is one row at most, the SELECT list may name them.
    pub(crate) kept: Vec<usize>,
    /// The slots of the keys, then of the aggregates, then of what is kept.
    pub(crate) slots: Vec<usize>,
    /// The order in which groups come, over the same slots.
    pub(crate) order: Vec<(Node, Direction)>,
}

#[derive(Debug)]
pub(crate) enum Projection {
    /// `SELECT *`: the row of this slot.
    Row(usize),
    Value(Node),
    Columns(Vec<(Box<str>, Node)>),
}

#[derive(Debug)]
pub(crate) struct OrderKey {
    pub(crate) node: Node,
    pub(crate) direction: Direction,
    /// Vector distances put rows without one last whatever the direction.
    pub(crate) undefined_last: bool,
}

/// ORDER BY RANK: components, each scored on its own.
#[derive(Debug)]
pub(crate) struct Ranking {
    pub(crate) components: Vec<RankComponent>,
    /// One weight per component.
    pub(crate) weights: Vec<f64>,
}

#[derive(Debug)]
pub(crate) enum RankComponent {
    /// The text and the terms looked for; `path` finds the language in the policy.
    FullText {
        text: Node,
        terms: Vec<Value>,
        path: Option<String>,
    },
    Vector {
        score: Node,
        direction: Direction,
    },
}

/// A scalar expression.
#[derive(Debug)]
pub(crate) enum Node {
    Constant(Option<Value>),
    Slot(usize),
    /// A property path below a slot.
    Path {
        slot: usize,
        steps: Vec<Step>,
    },
    Member {
        base: Box<Node>,
        name: Box<str>,
    },
    Element {
        base: Box<Node>,
        index: usize,
    },
    Array(Vec<Node>),
    Object(Vec<(Box<str>, Node)>),
    Unary {
        operator: UnaryOperator,
        operand: Box<Node>,
    },
    Binary {
        operator: BinaryOperator,
        left: Box<Node>,
        right: Box<Node>,
    },
    Logical {
        operator: LogicalOperator,
        operands: Vec<Node>,
    },
    Conditional(Box<[Node; 3]>),
    Between {
        not: bool,
        operands: Box<[Node; 3]>,
    },
    In {
        not: bool,
        operand: Box<Node>,
        members: Members,
    },
    Like {
        not: bool,
        operands: Box<[Node; 2]>,
        escape: Option<char>,
        pattern: Option<Pattern>,
    },
    Call(Box<FunctionCall>),
    Udf {
        name: Box<str>,
        arguments: Vec<Node>,
    },
    Subquery {
        kind: SubqueryKind,
        block: Box<Block>,
    },
    /// Computes the value, binds it to the slot, and computes the body.
    Let {
        slot: usize,
        value: Box<Node>,
        body: Box<Node>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Name(Box<str>),
    Index(usize),
}

#[derive(Debug)]
pub(crate) enum Members {
    /// All constant: looked up by hash.
    Constant {
        values: Vec<Value>,
        set: DistinctValues,
    },
    Computed(Vec<Node>),
}

#[derive(Debug)]
pub(crate) struct FunctionCall {
    pub(crate) function: &'static Function,
    pub(crate) arguments: Vec<Node>,
    /// The property the call is about, such as `/text`, if its policy matters.
    pub(crate) path: Option<String>,
    pub(crate) distance: Option<DistanceFunction>,
}

impl Program {
    /// Whether its FROM subquery collects rows of the whole container before the rest can start, so that the results of
    /// several ranges cannot be merged.
    pub fn collects_over_container(&self) -> bool {
        self.block.collects_first
    }
}

impl Block {
    /// How many rows of the sorted or streamed result are wanted at most.
    pub(crate) fn rows_max(&self) -> Option<u64> {
        let window = self.limit.map(|limit| self.offset.unwrap_or(0).saturating_add(limit));
        match (self.top, window) {
            (Some(top), Some(window)) => Some(top.min(window)),
            (top, window) => top.or(window),
        }
    }

    /// Whether all rows are aggregated into one.
    pub(crate) fn is_single_group(&self) -> bool {
        self.grouping.as_ref().is_some_and(|grouping| grouping.keys.is_empty())
    }

    /// Whether results depend on all rows together even without an order.
    pub(crate) fn collects(&self) -> bool {
        self.distinct || self.grouping.is_some()
    }
}
